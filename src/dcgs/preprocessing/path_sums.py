"""Models of many unknowns at several radii at once: accelerated projected steps along network sums.

The gradients of all models, of all folds and radii, are in one sum, with their losses on the rows that were
held out. So a batch of radii takes the rounds of its slowest one. A model is finished when f at its point is
close enough to a lower bound of f over the set: f(y) minus the Wolfe gap there, for the points y that were
passed. A model that is surely too large is left unfinished: it has a smaller loss on the rows trained on than
a model of smaller radius, but a larger one on the rows held out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from dcgs.methods.sums_control import SmoothnessEstimate
from dcgs.momentum import Momentum
from dcgs.objectives.losses import Image
from dcgs.points import Point, vdot
from dcgs.preprocessing.folds import Fold
from dcgs.preprocessing.path_models import GAP, ROUNDING, Fitted, SetOf, Sums, first_atom_radius
from dcgs.preprocessing.path_result import from_sums
from dcgs.preprocessing.reductions import ReductionRequest, Reductions, Steps
from dcgs.sets.base import ProjectableSet

# The most sums of one batch of radii.
_MOST_SUMS = 400
_NAME = "losses and gradients of the models of the path, and held-out losses"


@final
@dataclass(frozen=True, eq=False)
class _At:
    """A point with its image for each agent of this process."""

    x: Point
    images: Mapping[int, Image]

    def extrapolated(self, before: _At, theta: float) -> _At:
        images = {i: image + theta * (image - before.images[i]) for i, image in self.images.items()}
        return _At(self.x + theta * (self.x - before.x), images)


@final
@dataclass(frozen=True, eq=False)
class _Sample:
    """Sums over all agents: f and its gradient at y, f at x, and what x is worth on held-out rows."""

    value: float
    value_y: float
    grad: Point
    judged: Sums


@final
@dataclass(frozen=True, eq=False)
class _Tangent:
    """f and its gradient at a point y."""

    at: _At
    value: float
    grad: Point

    def excess(self, x: Point, value: float) -> tuple[float, float]:
        """Return ‖x − y‖², and by how much f(x) = ``value`` exceeds the linear model."""
        d = x - self.at.x
        return vdot(d, d), value - self.value - vdot(self.grad, d)


@final
@dataclass(eq=False)
class _Run:
    """The model of one fold at one radius, on its way: the last step x, the best point, and where y is."""

    X: ProjectableSet
    x: _At
    null: float
    smoothness: SmoothnessEstimate
    y: _At = field(init=False)
    best: _At = field(init=False)
    lowest: float = math.inf
    lower: float = -math.inf
    judged: Sums = field(default_factory=lambda: np.zeros(3))
    tangent: _Tangent | None = None
    momentum: Momentum = field(default_factory=Momentum)

    def __post_init__(self) -> None:
        self.y = self.best = self.x

    @property
    def is_finished(self) -> bool:
        return self.lowest - self.lower <= max(GAP * (self.null - self.lowest), ROUNDING * abs(self.lowest))

    def learn(self, at: _Sample) -> Point | None:
        """Judge the last step; return the point that is to be projected for the next one, or None."""
        gap = vdot(at.grad, self.y.x) - self.X.lmo(at.grad).dot(at.grad)
        self.lower = max(self.lower, at.value_y - gap)
        tangent, self.tangent = self.tangent, _Tangent(self.y, at.value_y, at.grad)
        rounding = ROUNDING * abs(at.value)
        squared, excess = (0.0, 0.0) if tangent is None else tangent.excess(self.x.x, at.value)
        if tangent is not None and excess > 0.5 * self.smoothness.L * squared + rounding:
            # The step was too long: repeat it.
            self.smoothness.increase(2.0 * excess / squared)
            self.tangent, self.momentum = tangent, Momentum()
        elif at.value > self.lowest + rounding:
            # f has increased: go back to the best point, without momentum.
            self.x = self.y = self.best
            self.tangent, self.momentum = None, Momentum()
            return None
        else:
            self.best, self.lowest, self.judged = self.x, at.value, at.judged
            if squared > 0.0:
                self.smoothness.decrease(2.0 * excess / squared)
        return self.tangent.at.x - self.tangent.grad / self.smoothness.L

    def move(self, x: _At) -> None:
        """Take the step to x, and extrapolate."""
        assert self.tangent is not None
        before, self.x = self.x, x
        uphill = vdot(self.tangent.at.x - x.x, x.x - before.x) > 0.0
        self.y = x.extrapolated(before, self.momentum.weight(restart=uphill))


@final
class SumsPath:
    """Models of any size over sets with a cheap projection, several radii at once."""

    def __init__(self, folds: Sequence[Fold], set_of: SetOf, network: Reductions, start: Point) -> None:
        self.folds, self.set_of, self.hosts, self.start = folds, set_of, list(network.hosts), start

    def begin(self) -> Steps[None]:
        """Find the loss of no model, its gradient, and the weight of the rows."""
        folds = self.folds
        points = [(n, self._at(self.start, n)) for n in range(len(folds))]
        own = {
            i: [_facts(folds, i), *_stacked([self._parts(i, n, at, at) for n, at in points])]
            for i in self.hosts
        }
        facts, *sums = yield ReductionRequest("weights, and losses and gradients of no model", own)
        self.weight = float(facts[0])
        self.curvatures = facts[1:].reshape(len(folds), 2)
        self.first = _samples(sums)
        losses = tuple(one.value for one in self.first)
        judged = np.sum([one.judged for one in self.first], axis=0)
        self.null = Fitted(0.0, (self.start,) * len(folds), losses, judged)

    def first_radius(self) -> Steps[float]:
        """Return the radius at which one atom alone, with the best weight, would end."""
        return first_atom_radius(self.folds[0], self.set_of, self.start, self.first[0].grad)

    def fit(
        self, radii: Sequence[float], known: Sequence[Fitted], patient: bool = False
    ) -> Steps[list[Fitted]]:
        """Return the models of increasing radii; they start from models that are known, or between them.

        Unless ``patient``, models that are clearly too large are not finished.
        """
        runs = {(r, n): self._run(r, n, known) for r in radii for n in range(len(self.folds))}
        going, too_large = dict(runs), set[float]()
        for step in range(_MOST_SUMS):
            if step == 0 and len(known) == 1:
                samples = [self.first[n] for _, n in going]
            else:
                samples = yield from self._samples(going)
            targets = {key: run.learn(one) for (key, run), one in zip(going.items(), samples, strict=True)}
            fitted = [self._fitted(r, runs) for r in radii]
            large = math.inf if patient else _too_large([*known, *fitted])
            going = {key: run for key, run in going.items() if not run.is_finished}
            too_large |= {r for r, _ in going if r >= large}
            going = {key: run for key, run in going.items() if key[0] < large}
            if not going:
                break
            for key, run in going.items():
                target = targets[key]
                if target is not None:
                    run.move(self._at(run.X.project(target), key[1]))
        return [replace(self._fitted(r, runs), too_large=r in too_large) for r in radii]

    def _run(self, radius: float, n: int, known: Sequence[Fitted]) -> _Run:
        X = self.set_of(radius)
        assert isinstance(X, ProjectableSet)
        x = _between(radius, n, known)
        x = x if X.accepts(x) else X.project(x)
        smoothness = SmoothnessEstimate()
        smoothness.start(*self.curvatures[n].tolist())
        return _Run(X, self._at(x, n), self.null.losses[n], smoothness)

    def _at(self, x: Point, n: int) -> _At:
        return _At(x, {i: self.folds[n].train[i].map.image(x) for i in self.hosts})

    def _samples(self, going: Mapping[tuple[float, int], _Run]) -> Steps[list[_Sample]]:
        own = {
            i: _stacked([self._parts(i, n, run.x, run.y) for (_, n), run in going.items()])
            for i in self.hosts
        }
        return _samples((yield ReductionRequest(_NAME, own)))

    def _parts(self, i: int, n: int, x: _At, y: _At) -> tuple[list[float], Point, Sums]:
        f = self.folds[n].train[i]
        values = [f.loss.value(x.images[i]), f.loss.value(y.images[i])]
        return values, f.map.adjoint(f.loss.grad(y.images[i])), self.folds[n].judgment(i, x.x)

    def _fitted(self, radius: float, runs: Mapping[tuple[float, int], _Run]) -> Fitted:
        own = [runs[radius, n] for n in range(len(self.folds))]
        judged = np.sum([run.judged for run in own], axis=0)
        finished = all(run.is_finished for run in own)
        return Fitted(
            radius, tuple(run.best.x for run in own), tuple(run.lowest for run in own), judged, finished
        )


def _stacked(parts: Sequence[tuple[list[float], Point, Sums]]) -> list[Any]:
    return [np.array(each) for each in zip(*parts, strict=True)]


def _samples(sums: Sequence[Any]) -> list[_Sample]:
    return [
        _Sample(float(values[0]), float(values[1]), grad, judged)
        for values, grad, judged in zip(*sums, strict=True)
    ]


def _facts(folds: Sequence[Fold], i: int) -> list[float]:
    """Return the weight of the rows of agent i, and the largest and the mean curvature of each fold."""
    curvatures = [(fold.train[i].smoothness, fold.train[i].mean_curvature) for fold in folds]
    return [sum(fold.weight(i) for fold in folds), *np.array(curvatures).reshape(-1)]


def _between(radius: float, n: int, known: Sequence[Fitted]) -> Point:
    """Return the start of a model: between those of the next smaller and the next larger radius."""
    below = [one for one in known if one.finished and one.radius <= radius]
    above = [one for one in known if one.finished and one.radius > radius]
    low = max(below, key=lambda one: one.radius)
    if not above or low.radius == 0.0:
        return np.asarray(low.models[n])
    high = min(above, key=lambda one: one.radius)
    share = (radius - low.radius) / (high.radius - low.radius)
    return np.asarray((1.0 - share) * low.models[n] + share * high.models[n])


def _too_large(fitted: Sequence[Fitted]) -> float:
    """Return the radius from which on models are clearly worse than one of smaller radius.

    They fit the rows trained on better than all models of smaller radius, and their error on held-out rows
    exceeds the least one by more than its standard error.
    """
    points = [
        from_sums(one.radius, one.judged.tolist(), sum(one.losses), 0.0)
        for one in sorted(fitted, key=lambda one: one.radius)
        if one.judged is not None
    ]
    for k, point in enumerate(points[1:], start=1):
        best = min(points[:k], key=lambda less: less.error)
        fits = point.loss < min(less.loss for less in points[:k])
        if fits and point.error > best.error + best.standard_error:
            return point.radius
    return math.inf
