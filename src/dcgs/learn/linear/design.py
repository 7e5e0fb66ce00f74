"""From the rows of all sites to a problem for ``minimize``: statistics, scales, and a free intercept.

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

from dcgs.learn.linear.intercept import InterceptBound, LogisticBound, class_sums, range_bound
from dcgs.learn.sites import Rows
from dcgs.learn.sums import Reductions, Request, Steps, side_by_side
from dcgs.objectives import LinearMap, LogisticLoss, Loss, Objective, SquaredLoss, matrix_map
from dcgs.objectives.centered import CenteredMap, CenteredMatrix
from dcgs.objectives.losses import WeightedLoss
from dcgs.points import EPS, Point
from dcgs.sets import Box, ConvexSet, ProductSet

Vector: TypeAlias = NDArray[np.float64]
LossOf: TypeAlias = Callable[[Vector], Loss]
"""Targets ↦ the loss, such as ``SquaredLoss``, ``LogisticLoss`` or ``partial(HuberLoss, delta=2.0)``."""

# A deviation below this multiple of the rounding error of the mean is that of a constant column.
_ROUNDING = 32.0
# Sparse features with at most this number of entries (0.5 MB) are filled in: products are then faster.
_SMALL = 1 << 16


@final
@dataclass(frozen=True, eq=False)
class Statistics:
    """What all sites know of the columns and the targets of all rows, each row counted by its weight.

    ``rows`` counts rows of positive weight, and ``weight`` adds up weights. ``deviation`` is the root of the
    mean squared difference from ``mean``; it is exactly 0 for a constant column.
    """

    rows: int
    weight: float
    mean: Vector
    deviation: Vector
    target_mean: float

    @property
    def constant(self) -> NDArray[np.intp]:
        """The numbers of the columns that have the same value in all rows."""
        return np.flatnonzero(self.deviation == 0.0)

    @property
    def scale(self) -> Vector:
        """What standardization divides by: the deviation, and 1 for a constant column."""
        return np.where(self.deviation > 0.0, self.deviation, 1.0)

    def without(self, columns: NDArray[np.bool_]) -> Statistics:
        """Return the statistics of the same rows with 0 in some columns."""
        mean, deviation = (np.where(columns, 0.0, array) for array in (self.mean, self.deviation))
        return replace(self, mean=mean, deviation=deviation)


@final
@dataclass(frozen=True)
class DesignSpec:
    """The loss of a model, whether it has an intercept, and whether columns are divided by deviations."""

    loss: LossOf = SquaredLoss
    intercept: bool = True
    standardize: bool = True

    @property
    def eliminates(self) -> bool:
        """Whether the intercept is eliminated by means."""
        return self.intercept and self.loss is SquaredLoss


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

    spec: DesignSpec
    statistics: Statistics
    bound: InterceptBound | None = None

    @property
    def features(self) -> int:
        """The number of columns."""
        return len(self.statistics.mean)

    @property
    def scale(self) -> Vector:
        """What each column is divided by."""
        return self.statistics.scale if self.spec.standardize else np.ones_like(self.statistics.mean)

    def objectives(self, rows: Mapping[int, Rows]) -> dict[int, Objective]:
        """Return the objectives of the agents of this process."""
        return {i: self.objective(local) for i, local in rows.items()}

    def objective(self, rows: Rows) -> Objective:
        """Return the loss of the rows of an agent, as a function of x."""
        rows = _without_zero_weights(rows)
        if self.spec.loss is not SquaredLoss or rows.weights is None:
            return self.row_losses(rows)
        # Rows times the roots of their weights: all that is fast for least squares stays so.
        roots = np.sqrt(rows.weights)
        return Objective(SquaredLoss(roots * self._targets(rows)), self._map(rows, roots))

    def row_losses(self, rows: Rows) -> Objective:
        """Return the same function, with the loss of each row apart from its weight."""
        loss = self.spec.loss(self._targets(rows))
        weighted = loss if rows.weights is None else WeightedLoss(loss, rows.weights)
        return Objective(weighted, self._map(rows, None))

    def _targets(self, rows: Rows) -> Vector:
        return rows.targets - self.statistics.target_mean if self.spec.eliminates else rows.targets

    def _map(self, rows: Rows, roots: Vector | None) -> LinearMap:
        """Return the map of standardized columns and, if the intercept is free, a column of ones."""
        mean, scale, intercept = self.statistics.mean, self.scale, self.spec.intercept
        if not rows.is_sparse or np.prod(rows.A.shape) <= _SMALL:
            dense = rows.A.toarray() if rows.is_sparse else rows.A
            A = (dense - mean) / scale if intercept else dense / scale
            if intercept:
                A[:, self.statistics.constant] = 0.0  # else rounding error
            A = A if roots is None else roots[:, None] * A
            return matrix_map(A if self.bound is None else np.column_stack([A, np.ones(len(A))]))
        S = sp.csr_array(rows.A @ sp.diags_array(1.0 / scale))
        v = mean / scale
        if self.bound is not None:
            S, v = sp.csr_array(sp.hstack([S, np.ones((S.shape[0], 1))], format="csr")), np.append(v, 0.0)
        if roots is not None:
            S = sp.csr_array(sp.diags_array(roots) @ S)
        if not intercept:
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
        coef = np.asarray(x[: self.features] / self.scale)
        if self.spec.eliminates:
            return LinearModel(coef, self.statistics.target_mean - float(self.statistics.mean @ coef))
        if self.bound is None:
            return LinearModel(coef, 0.0)
        return LinearModel(coef, float(x[self.features]) - float(self.statistics.mean @ coef))

    def point(self, model: LinearModel) -> Point:
        """Return the point of a model; it may be outside of the set."""
        x = np.asarray(model.coef * self.scale)
        if self.bound is None:
            return x
        return np.append(x, float(model.intercept) + float(self.statistics.mean @ model.coef))


def designs(models: Sequence[Mapping[int, Rows]], network: Reductions, spec: DesignSpec) -> list[Design]:
    """Return the designs of several models of the same columns; ``network`` records what was sent for it.

    The rows are those of the agents of this process.

    >>> import dcgs, networkx as nx
    >>> rows = {0: Rows([[1.0], [3.0]], [5.0, 9.0]), 1: Rows([[5.0], [7.0]], [13.0, 17.0])}
    >>> graph = nx.path_graph(2)
    >>> (made,) = designs([rows], Reductions(graph), DesignSpec())
    >>> X = made.set_of(dcgs.L1Ball(1, radius=100.0))
    >>> model = made.model(dcgs.minimize(made.objectives(rows), X, graph, gap=1e-9).x)
    >>> model.coef.round(6), round(model.intercept, 6)
    (array([2.]), 3.0)
    """
    (made,) = network.run(design_steps(models, spec))
    return made


def design_steps(
    models: Sequence[Mapping[int, Rows]], spec: DesignSpec, known: Statistics | None = None
) -> Steps[list[Design]]:
    """Find the designs of models of the same columns: statistics, and what a free intercept needs.

    ``known`` are the statistics, if sites know them.
    """
    is_free = spec.intercept and not spec.eliminates
    of_classes = is_free and spec.loss is LogisticLoss
    programs = [class_sums(rows) for rows in models] if of_classes else []
    of_all, *positives = yield from side_by_side(statistics(models[0], known), *programs)
    made = Design(spec, of_all)
    if of_classes:
        return [
            replace(made, bound=LogisticBound.of(weight, sums, of_all, made.scale))
            for weight, sums in positives
        ]
    if is_free:
        bounds = yield from side_by_side(
            *(range_bound(rows, spec.loss, of_all, made.scale) for rows in models)
        )
        return [replace(made, bound=bound) for bound in bounds]
    return [made] * len(models)


def statistics(rows: Mapping[int, Rows], known: Statistics | None = None) -> Steps[Statistics]:
    """Find the statistics of all rows of all sites, by two sums; return those that are ``known``, if any.

    The first adds up counts and values. The second adds up squared differences from the mean, so that no
    accuracy is lost where a deviation is small beside a mean. Sparse data are not filled in.

    >>> import networkx as nx
    >>> rows = {0: Rows([[1.0], [3.0]], [0.0, 1.0]), 1: Rows([[5.0], [7.0]], [1.0, 2.0])}
    >>> (found,) = Reductions(nx.path_graph(2)).run(statistics(rows))
    >>> found.rows, found.mean, found.deviation.round(3), found.target_mean
    (4, array([4.]), array([2.236]), 1.0)
    """
    if known is not None:
        return known
    first = {i: _sums(local) for i, local in rows.items()}
    counts, sums = yield Request("counts, and sums of columns and targets", first)
    weight = float(counts[1])
    if weight <= 0.0:
        raise ValueError("the weights of all rows of all sites must have a positive sum; it is 0.")
    mean, target_mean = sums[:-1] / weight, float(sums[-1] / weight)
    second = {i: [_column_squares(local.A, local.counts, mean)] for i, local in rows.items()}
    (squares,) = yield Request("squared differences from the means", second)
    deviation = np.sqrt(squares / weight)
    deviation[deviation <= _ROUNDING * EPS * np.abs(mean)] = 0.0
    return Statistics(int(counts[0]), weight, mean, deviation, target_mean)


def _sums(rows: Rows) -> list[Any]:
    weights = rows.counts
    count = [float(np.count_nonzero(weights)), float(weights.sum())]
    return [count, np.append(rows.A.T @ weights, rows.targets @ weights)]


def _column_squares(A: Any, weights: Vector, mean: Vector) -> Vector:
    """Return Σ wᵢ (aᵢⱼ − μⱼ)² for each column; entries that are not stored count as 0."""
    if not sp.issparse(A):
        return np.asarray(weights @ (A - mean) ** 2)
    d, total = A.shape[1], float(weights.sum())
    row_weights = np.repeat(weights, np.diff(A.indptr))
    stored = np.bincount(A.indices, weights=row_weights * (A.data - mean[A.indices]) ** 2, minlength=d)
    weight_stored = np.bincount(A.indices, weights=row_weights, minlength=d)
    return np.asarray(stored + np.maximum(total - weight_stored, 0.0) * mean**2)


def _without_zero_weights(rows: Rows) -> Rows:
    """Return the rows of positive weight; all rows if there are none."""
    if rows.weights is None:
        return rows
    positive = rows.weights > 0.0
    return rows if positive.all() or not positive.any() else rows.some(positive)
