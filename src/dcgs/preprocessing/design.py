"""From the rows of all sites to a problem for ``minimize``: standardized columns, and a free intercept.

A model z = ⟨a, coef⟩ + intercept is found as x, in standardized units: coefⱼ = xⱼ/sⱼ, with sⱼ the deviation
of column j over all sites. The set bounds x and never the intercept.

* Least squares: the best intercept for given coefficients follows from the network means, so that it is
  eliminated: columns and targets are centered. Sparse columns are centered as S − u vᵀ, and not filled in.
* Other losses: the intercept is the last entry of x, in an interval that :mod:`.intercept` derives from the
  data and that the optimum never leaves. Columns are centered here too, which changes no model but makes
  the problem easier: a year is 2,000 with a deviation of 5.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.objectives import LinearMap, LogisticLoss, Loss, Objective, SquaredLoss, matrix_map
from dcgs.objectives.centered import CenteredMap, CenteredMatrix
from dcgs.objectives.losses import WeightedLoss
from dcgs.points import Point
from dcgs.preprocessing.intercept import InterceptBound, logistic_bound, range_bound
from dcgs.preprocessing.reductions import Reductions, Steps
from dcgs.preprocessing.site_data import SiteData
from dcgs.preprocessing.statistics import Statistics, statistics
from dcgs.sets import Box, ConvexSet, ProductSet

Vector: TypeAlias = NDArray[np.float64]
LossOf: TypeAlias = Callable[[Vector], Loss]
"""Targets ↦ the loss, such as ``SquaredLoss``, ``LogisticLoss`` or ``partial(HuberLoss, delta=2.0)``."""

# Sparse features with at most this number of entries (0.5 MB) are filled in: products are then faster.
_SMALL = 1 << 16


@final
@dataclass(frozen=True, eq=False)
class LinearModel:
    """z = ⟨a, coef⟩ + intercept, in the units of the user's columns.

    A model of several classes has a row of coefficients and an intercept for each.
    """

    coef: Vector
    intercept: float | Vector

    def image(self, A: Any) -> Vector:
        """Return z for each row of A; for several classes a column for each."""
        return np.asarray(A @ self.coef.T + self.intercept)


@final
@dataclass(frozen=True, eq=False)
class Design:
    """How rows become an objective, and a point of the set becomes a model.

    With an intercept columns are centered.
    ``bound`` is what is known of a free intercept; None if it is eliminated, or if there is none.
    """

    statistics: Statistics
    loss: LossOf
    intercept: bool
    standardize: bool
    bound: InterceptBound | None

    @property
    def scale(self) -> Vector:
        """What each column is divided by."""
        return self.statistics.scale if self.standardize else np.ones_like(self.statistics.mean)

    @property
    def eliminates(self) -> bool:
        """Whether the intercept is eliminated by means."""
        return self.intercept and self.loss is SquaredLoss

    def objectives(self, sites: Mapping[int, SiteData]) -> dict[int, Objective]:
        """Return the objectives of the sites of this process."""
        return {i: self.objective(site) for i, site in sites.items()}

    def objective(self, site: SiteData) -> Objective:
        """Return the loss of the rows of a site, as a function of x."""
        site = _without_zero_weights(site)
        if self.loss is not SquaredLoss or site.weights is None:
            return self.judge(site)
        # Rows times the roots of their weights: all that is fast for least squares stays so.
        roots = np.sqrt(site.weights)
        return Objective(SquaredLoss(roots * self._targets(site)), self._map(site, roots))

    def judge(self, site: SiteData) -> Objective:
        """Return the same function, with the loss of each row apart from its weight."""
        loss = self.loss(self._targets(site))
        weighted = loss if site.weights is None else WeightedLoss(loss, site.weights)
        return Objective(weighted, self._map(site, None))

    def _targets(self, site: SiteData) -> Vector:
        return site.targets - self.statistics.target_mean if self.eliminates else site.targets

    def _map(self, site: SiteData, roots: Vector | None) -> LinearMap:
        """Return the map of standardized columns and, if the intercept is free, a column of ones."""
        mean, scale, constant = self.statistics.mean, self.scale, self.statistics.constant
        if not site.is_sparse or np.prod(site.A.shape) <= _SMALL:
            dense = site.A.toarray() if site.is_sparse else site.A
            A = (dense - mean) / scale if self.intercept else dense / scale
            if self.intercept:
                A[:, constant] = 0.0  # else rounding error
            A = A if roots is None else roots[:, None] * A
            return matrix_map(A if self.bound is None else np.column_stack([A, np.ones(len(A))]))
        S = sp.csr_array(site.A @ sp.diags_array(1.0 / scale))
        v = mean / scale
        if self.bound is not None:
            S, v = sp.csr_array(sp.hstack([S, np.ones((S.shape[0], 1))], format="csr")), np.append(v, 0.0)
        if roots is not None:
            S = sp.csr_array(sp.diags_array(roots) @ S)
        if not self.intercept:
            return matrix_map(S)
        u = np.ones(S.shape[0]) if roots is None else roots
        return CenteredMap(CenteredMatrix.of(S, u, v), (S.shape[1],))

    def set_of(self, X: ConvexSet) -> ConvexSet:
        """Return the set of x: X itself, or X times the interval of a free intercept."""
        if self.bound is None:
            return X
        low, high = self.bound.interval(X)
        return ProductSet(X, Box([low], [high]))

    def start(self, X: ConvexSet) -> Point:
        """Return the point of the set where a run starts: that of X, and the best intercept of no model."""
        flat = X.start().reshape(-1)
        if self.bound is None:
            return flat
        low, high = self.bound.interval(X)
        return np.append(flat, min(max(self.bound.start, low), high))

    def model(self, x: Point) -> LinearModel:
        """Return the model of a point, in the user's units."""
        d = len(self.statistics.mean)
        coef = np.asarray(x[:d] / self.scale)
        if self.eliminates:
            return LinearModel(coef, self.statistics.target_mean - float(self.statistics.mean @ coef))
        if self.bound is None:
            return LinearModel(coef, 0.0)
        return LinearModel(coef, float(x[d]) - float(self.statistics.mean @ coef))


def design(
    sites: Mapping[int, SiteData],
    network: Reductions,
    loss: LossOf,
    intercept: bool = True,
    standardize: bool = True,
) -> Design:
    """Return the design of the rows of all sites; ``network`` records what was sent for it.

    ``sites`` are those of the agents of this process.

    >>> import dcgs, networkx as nx
    >>> sites = {0: SiteData([[1.0], [3.0]], [5.0, 9.0]), 1: SiteData([[5.0], [7.0]], [13.0, 17.0])}
    >>> graph = nx.path_graph(2)
    >>> made = design(sites, Reductions(graph), dcgs.SquaredLoss)
    >>> X = made.set_of(dcgs.L1Ball(1, radius=100.0))
    >>> model = made.model(dcgs.minimize(made.objectives(sites), X, graph, gap=1e-9).x)
    >>> model.coef.round(6), round(model.intercept, 6)
    (array([2.]), 3.0)
    """
    return designs([sites], network, loss, intercept, standardize)[0]


def designs(
    classes: Sequence[Mapping[int, SiteData]],
    network: Reductions,
    loss: LossOf,
    intercept: bool = True,
    standardize: bool = True,
) -> list[Design]:
    """Return the designs of several models of the same columns, whose statistics are found once."""
    made = Design(statistics(classes[0], network), loss, intercept, standardize, None)
    return network.run(*(with_bound(made, sites, network) for sites in classes))


def with_bound(made: Design, sites: Mapping[int, SiteData], network: Reductions) -> Steps[Design]:
    """Return the design with what the rows of all sites say of a free intercept."""
    if made.eliminates or not made.intercept:
        return made
    if made.loss is not LogisticLoss:
        return replace(made, bound=range_bound(sites, network, made.loss, made.statistics, made.scale))
    return replace(made, bound=(yield from logistic_bound(sites, made.statistics, made.scale)))


def _without_zero_weights(site: SiteData) -> SiteData:
    """Return the rows of positive weight; all rows if there are none."""
    if site.weights is None:
        return site
    positive = site.weights > 0.0
    return site if positive.all() or not positive.any() else site.some(positive)
