"""Fit a linear model over several sites: statistics, the radius, the model."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import networkx as nx
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from dcgs.front import Result, minimize
from dcgs.objectives.losses import LogisticLoss
from dcgs.preprocessing import (
    Design,
    HoldOut,
    LinearModel,
    LossOf,
    Path,
    Reductions,
    Sent,
    SiteData,
    design_paths,
    designs,
)
from dcgs.runtime import MPI, Lockstep, Runtime
from dcgs.sets import Box, ConvexSet, L1Ball
from dcgs.validation import COUNT, FLAG, POSITIVE, shown, takes

# With at most this number of unknowns, several folds cost no more rounds than one.
_FEW = 64
_FOLDS = 5


@final
@dataclass(frozen=True)
class LinearSpec:
    """The arguments of an estimator that say which model is fitted.

    ``radius`` is a number or ``"auto"``. ``set`` is None for an ℓ₁ ball, a set, or a function of the number
    of coefficients and the radius. ``folds`` is None for five folds of few unknowns and one of many.
    """

    radius: float | str
    set: ConvexSet | Callable[[int, float], ConvexSet] | None
    intercept: bool
    standardize: bool
    gap: float
    folds: int | None
    seed: int

    def ball(self, features: int, radius: float) -> ConvexSet:
        """Return the set of the coefficients."""
        if isinstance(self.set, ConvexSet):
            return self.set
        X = L1Ball(features, radius) if self.set is None else self.set(features, radius)
        if not isinstance(X, ConvexSet) or X.shape != (features,):
            raise ValueError(
                f"set must give a set of vectors with {features} entries, one per feature; got {shown(X)}."
            )
        return X

    def check(self, features: int) -> None:
        """Raise unless the arguments go together."""
        if self.radius != "auto":
            POSITIVE(self.radius, "radius (or 'auto')")
        POSITIVE(self.gap, "gap")
        COUNT.or_none(self.folds, "folds")
        FLAG(self.intercept, "fit_intercept")
        FLAG(self.standardize, "standardize")
        if isinstance(self.set, ConvexSet) and self.set.shape != (features,):
            raise ValueError(
                f"set must be of vectors with {features} entries, one per feature; it has shape "
                f"{self.set.shape}."
            )
        if not (self.set is None or isinstance(self.set, ConvexSet) or takes(self.set, features, 1.0)):
            raise ValueError(
                "set must be a set of dcgs, or a function of the number of features and the radius, such as "
                f"dcgs.L2Ball; got {shown(self.set)}."
            )


@final
@dataclass(frozen=True, eq=False)
class LinearFit:
    """A fitted model, and how it was found."""

    model: LinearModel
    radius: float
    path: Path | None
    result: Result

    @property
    def gap(self) -> float:
        """The certified gap."""
        return certified_gap(self.result)


def certified_gap(result: Result) -> float:
    """Return the certified gap of a run: the loss exceeds the least one by at most this; nan without one."""
    certified = result.about.get("certified")
    return math.nan if certified is None else max(0.0, float(certified["gap"]))


def warn_unless_certified(results: Sequence[Result], asked: float) -> None:
    """Warn of runs that ended before they certified the gap that was asked for, with the numbers."""
    for result in results:
        if not result.status.success:
            told = " ".join((str(result.status), *result.notes))
            warnings.warn(
                f"the model must be certified to a gap of {asked:.1e} of what it explains; its gap_ is "
                f"{certified_gap(result):.1e} after {result.iterations} iterations and {result.rounds} "
                f"rounds: {told}",
                ConvergenceWarning,
                stacklevel=3,  # the line that calls fit
            )


def warn_of_path(path: Path | None) -> None:
    """Warn if models of the path ran out of steps, or if nothing was held out to judge them by."""
    if path is not None and path.ran_out:
        warnings.warn(str(path), ConvergenceWarning, stacklevel=3)
    elif path is not None and math.isnan(path.best.error):
        warnings.warn(f"{path} Give a radius, or more rows.", UserWarning, stacklevel=3)


def fit_linear(
    rows: Sequence[Mapping[int, SiteData]], network: Reductions, loss: LossOf, spec: LinearSpec
) -> list[LinearFit]:
    """Return the model of all rows of all sites; for several classes there are rows for the model of each."""
    made = designs(rows, network, loss, spec.intercept, spec.standardize)
    spec.check(len(made[0].statistics.mean))
    _check_record(network.runtime, len(rows))
    paths: Sequence[Path | None] = [None] * len(rows)
    if spec.radius == "auto" and not isinstance(spec.set, ConvexSet):
        paths = find_paths(list(zip(rows, made, strict=True)), network, spec)
    return [_fit(*each, network, spec) for each in zip(rows, made, paths, strict=True)]


def _check_record(runtime: Runtime, runs: int) -> None:
    """Raise if the steps of a run are recorded or replayed, and there are several runs."""
    if runs > 1 and isinstance(runtime, Lockstep | MPI) and (runtime.record or runtime.replays):
        raise ValueError(
            f"record and replay are for one run; a fit of several classes has {runs}. Leave them out."
        )


def _fit(
    sites: Mapping[int, SiteData], made: Design, path: Path | None, network: Reductions, spec: LinearSpec
) -> LinearFit:
    """Return the model of one design; ``path`` has its radius, if that was found."""
    features = len(made.statistics.mean)
    x0 = None
    rule: dict[str, Any] = {"gap": spec.gap}
    if path is not None:
        radius = path.best.radius
        decrease = (path.null.loss - path.best.loss) * made.statistics.weight
        if _starts_warm(network.graph, features) and decrease > 0.0:
            x0 = path.best_model
            rule |= {"gap_abs": spec.gap * decrease}
    else:
        radius = 1.0 if spec.radius == "auto" else float(spec.radius)
    ball = spec.ball(features, radius)
    if path is not None and path.needs_no_model and not ball.start().any():
        radius, x0, ball = 0.0, None, Box(np.zeros(features), np.zeros(features))
    X = made.set_of(ball)
    start = made.start(ball) if x0 is None or not X.accepts(x0) else x0
    objectives = made.objectives(sites)
    result = minimize(objectives, X, network.graph, runtime=network.runtime, x0=start, every=None, **rule)
    here = int(result.bytes[list(network.hosts)].sum())  # a result has those of all processes
    network.sent.append(Sent("the model", "fit", X.shape[0], result.rounds, here))
    known = float(getattr(ball, "radius", np.nan)) if isinstance(spec.set, ConvexSet) else radius
    return LinearFit(made.model(result.x), known, path, result)


def _starts_warm(graph: nx.Graph, features: int) -> bool:
    """Return True if a run from the model of the path takes fewer rounds than one from no model.

    That is so for steps along sums. Over edges the dual variables start at zero in any case, and a
    start at the model of the path took more rounds than one at no model on women's-clothing over a cycle.
    """
    return features < _FEW or any(degree == len(graph) - 1 for _, degree in graph.degree())


def find_paths(
    models: Sequence[tuple[Mapping[int, SiteData], Design]], network: Reductions, spec: LinearSpec
) -> list[Path]:
    """Return the path of radii of each model."""
    made = models[0][1]
    features = len(made.statistics.mean)
    few = features < _FEW
    folds = spec.folds or (_FOLDS if few else 1)
    how = HoldOut.in_folds(folds, spec.seed, by_class=made.loss is LogisticLoss)
    return design_paths(models, network, lambda radius: spec.ball(features, radius), how)
