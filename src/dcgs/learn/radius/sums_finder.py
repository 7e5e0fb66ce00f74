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

from dcgs.learn.radius.finders import GAP, ROUNDING, Finder, Fitted, SetOf, Stops, Sums, first_atom_radius
from dcgs.learn.radius.folds import Fold
from dcgs.learn.radius.result import from_sums
from dcgs.learn.sums import Reductions, Request, Steps
from dcgs.methods.fast.sums_control import SmoothnessEstimate
from dcgs.momentum import Momentum
from dcgs.objectives.losses import Image
from dcgs.points import Point, vdot
from dcgs.sets.base import ProjectableSet

# The most sums of one batch of radii.
_MOST_SUMS = 400
_NAME = "losses and gradients of the models of the path, and held-out losses"


@final
@dataclass(frozen=True, eq=False)
class _Point:
    """A point with its image for each agent of this process."""

    x: Point
    images: Mapping[int, Image]

    def extrapolated(self, before: _Point, theta: float) -> _Point:
        images = {i: image + theta * (image - before.images[i]) for i, image in self.images.items()}
        return _Point(self.x + theta * (self.x - before.x), images)


@final
@dataclass(frozen=True, eq=False)
class _Sample:
    """Sums over all agents: f and its gradient at y, f at x, and the losses of x on held-out rows."""

    value: float
    value_y: float
    grad: Point
    held_out: Sums


@final
@dataclass(frozen=True, eq=False)
class _Tangent:
    """f and its gradient at a point y."""

    at: _Point
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
    x: _Point
    null: float
    smoothness: SmoothnessEstimate
    y: _Point = field(init=False)
    best: _Point = field(init=False)
    lowest: float = math.inf
    lower: float = -math.inf
    held_out: Sums = field(default_factory=lambda: np.zeros(3))
    tangent: _Tangent | None = None
    momentum: Momentum = field(default_factory=Momentum)

    def __post_init__(self) -> None:
        self.y = self.best = self.x

    @property
    def is_finished(self) -> bool:
        return self.lowest - self.lower <= max(GAP * (self.null - self.lowest), ROUNDING * abs(self.lowest))

    def learn(self, sample: _Sample) -> Point | None:
        """Accept the last step or not; return the point to project for the next one, or None."""
        gap = vdot(sample.grad, self.y.x) - self.X.lmo(sample.grad).dot(sample.grad)
        self.lower = max(self.lower, sample.value_y - gap)
        tangent, self.tangent = self.tangent, _Tangent(self.y, sample.value_y, sample.grad)
        rounding = ROUNDING * abs(sample.value)
        squared, excess = (0.0, 0.0) if tangent is None else tangent.excess(self.x.x, sample.value)
        if tangent is not None and excess > 0.5 * self.smoothness.L * squared + rounding:
            # The step was too long: repeat it.
            self.smoothness.increase(2.0 * excess / squared)
            self.tangent, self.momentum = tangent, Momentum()
        elif sample.value > self.lowest + rounding:
            # f has increased: go back to the best point, without momentum.
            self.x = self.y = self.best
            self.tangent, self.momentum = None, Momentum()
            return None
        else:
            self.best, self.lowest, self.held_out = self.x, sample.value, sample.held_out
            if squared > 0.0:
                self.smoothness.decrease(2.0 * excess / squared)
        return self.tangent.at.x - self.tangent.grad / self.smoothness.L

    def move(self, x: _Point) -> None:
        """Take the step to x, and extrapolate."""
        assert self.tangent is not None
        before, self.x = self.x, x
        uphill = vdot(self.tangent.at.x - x.x, x.x - before.x) > 0.0
        self.y = x.extrapolated(before, self.momentum.weight(restart=uphill))


@final
class SumsFinder(Finder):
    """Models of any size over sets with a cheap projection, several radii at once."""

    at_once = 3

    def __init__(self, folds: Sequence[Fold], set_of: SetOf, network: Reductions, start: Point) -> None:
        self.folds, self.set_of, self.hosts, self.start = folds, set_of, list(network.hosts), start

    def begin(self) -> Steps[None]:
        folds = self.folds
        points = [(n, self._point(self.start, n)) for n in range(len(folds))]
        values = {
            i: [_facts(folds, i), *_stacked([self._parts(i, n, point, point) for n, point in points])]
            for i in self.hosts
        }
        facts, *sums = yield Request("weights, and losses and gradients of no model", values)
        self.weight = float(facts[0])
        self.curvatures = facts[1:].reshape(len(folds), 2)
        self.first = _samples(sums)
        losses = tuple(sample.value for sample in self.first)
        held_out = np.sum([sample.held_out for sample in self.first], axis=0)
        self.null = Fitted(0.0, (self.start,) * len(folds), losses, held_out)

    def first_radius(self) -> Steps[float]:
        return first_atom_radius(self.folds[0], self.set_of, self.start, self.first[0].grad)

    def fit(
        self, radii: Sequence[float], known: Sequence[Fitted], stops: Stops | None
    ) -> Steps[list[Fitted]]:
        """Return the models of increasing radii; they start from models that are known, or between them.

        With ``stops``, models that are clearly too large are not finished.
        """
        runs = {(r, n): self._run(r, n, known) for r in radii for n in range(len(self.folds))}
        going, too_large = dict(runs), set[float]()
        for step in range(_MOST_SUMS):
            if step == 0 and len(known) == 1:
                samples = [self.first[n] for _, n in going]
            else:
                samples = yield from self._samples(going)
            pairs = zip(going.items(), samples, strict=True)
            targets = {key: run.learn(sample) for (key, run), sample in pairs}
            fitted = [self._fitted(r, runs) for r in radii]
            large = math.inf if stops is None else _too_large([*known, *fitted])
            going = {key: run for key, run in going.items() if not run.is_finished}
            too_large |= {r for r, _ in going if r >= large}
            going = {key: run for key, run in going.items() if key[0] < large}
            if not going:
                break
            for key, run in going.items():
                target = targets[key]
                if target is not None:
                    run.move(self._point(run.X.project(target), key[1]))
        return [replace(self._fitted(r, runs), too_large=r in too_large) for r in radii]

    def _run(self, radius: float, n: int, known: Sequence[Fitted]) -> _Run:
        X = self.set_of(radius)
        assert isinstance(X, ProjectableSet)
        x = _between(radius, n, known)
        x = x if X.accepts(x) else X.project(x)
        smoothness = SmoothnessEstimate()
        smoothness.start(*self.curvatures[n].tolist())
        return _Run(X, self._point(x, n), self.null.losses[n], smoothness)

    def _point(self, x: Point, n: int) -> _Point:
        return _Point(x, {i: self.folds[n].train[i].map.image(x) for i in self.hosts})

    def _samples(self, going: Mapping[tuple[float, int], _Run]) -> Steps[list[_Sample]]:
        values = {
            i: _stacked([self._parts(i, n, run.x, run.y) for (_, n), run in going.items()])
            for i in self.hosts
        }
        return _samples((yield Request(_NAME, values)))

    def _parts(self, i: int, n: int, x: _Point, y: _Point) -> tuple[list[float], Point, Sums]:
        f = self.folds[n].train[i]
        values = [f.loss.value(x.images[i]), f.loss.value(y.images[i])]
        return values, f.map.adjoint(f.loss.grad(y.images[i])), self.folds[n].held_out_sums(i, x.x)

    def _fitted(self, radius: float, runs: Mapping[tuple[float, int], _Run]) -> Fitted:
        local = [runs[radius, n] for n in range(len(self.folds))]
        held_out = np.sum([run.held_out for run in local], axis=0)
        finished = all(run.is_finished for run in local)
        models, losses = tuple(run.best.x for run in local), tuple(run.lowest for run in local)
        return Fitted(radius, models, losses, held_out, finished)


def _stacked(parts: Sequence[tuple[list[float], Point, Sums]]) -> list[Any]:
    return [np.array(some) for some in zip(*parts, strict=True)]


def _samples(sums: Sequence[Any]) -> list[_Sample]:
    return [
        _Sample(float(values[0]), float(values[1]), grad, held_out)
        for values, grad, held_out in zip(*sums, strict=True)
    ]


def _facts(folds: Sequence[Fold], i: int) -> list[float]:
    """Return the weight of the rows of agent i, and the largest and the mean curvature of each fold."""
    curvatures = [(fold.train[i].smoothness, fold.train[i].mean_curvature) for fold in folds]
    return [sum(fold.weight(i) for fold in folds), *np.array(curvatures).reshape(-1)]


def _between(radius: float, n: int, known: Sequence[Fitted]) -> Point:
    """Return the start of a model: between those of the next smaller and the next larger radius."""
    below = [candidate for candidate in known if candidate.finished and candidate.radius <= radius]
    above = [candidate for candidate in known if candidate.finished and candidate.radius > radius]
    low = max(below, key=lambda candidate: candidate.radius)
    if not above or low.radius == 0.0:
        return np.asarray(low.models[n])
    high = min(above, key=lambda candidate: candidate.radius)
    share = (radius - low.radius) / (high.radius - low.radius)
    return np.asarray((1.0 - share) * low.models[n] + share * high.models[n])


def _too_large(fitted: Sequence[Fitted]) -> float:
    """Return the radius from which on models are clearly worse than one of smaller radius.

    They fit the rows trained on better than all models of smaller radius, and their error on held-out rows
    exceeds the least one by more than its standard error.
    """
    points = [
        from_sums(candidate.radius, candidate.held_out.tolist(), sum(candidate.losses), 0.0)
        for candidate in sorted(fitted, key=lambda candidate: candidate.radius)
    ]
    for k, point in enumerate(points[1:], start=1):
        best = min(points[:k], key=lambda less: less.error)
        fits = point.loss < min(less.loss for less in points[:k])
        if fits and point.error > best.error + best.standard_error:
            return point.radius
    return math.inf
