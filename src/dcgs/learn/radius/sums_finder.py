"""Models of many unknowns at several radii at once: accelerated steps that the root takes along network sums.

The gradients of all models, of all folds and radii, are in one sum, with their losses on the rows that were
held out. So a batch of radii takes the rounds of its slowest one. The root of the tree judges the last step
of each model and takes the next one: x = argmin over X of h(x) + ⟨∇f(y) − ∇h(y), x⟩ + Λ/2 ‖x − y‖². If sites
have many rows, h is the root's own loss, times the number of sites, and Λ bounds only how unlike f it is. If
they have few, h is zero, and the step is a projection. Λ is found. Points are sent down the tree, as float32
where they then stay in the set, and no gradients. A model is finished when f at its point is close enough to
a lower bound of f over the set: f(y) minus the Wolfe gap there, for the points y that were passed.

Of a gradient only the features that matter are sent: those of the model, and those whose entries are large.
The other entries are those of h with the correction ∇f − ∇h of the last sum that had all features. Sums with
all of them are the first one, those that may finish a model, and one of _WHOLE.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.counting import CountedOracle
from dcgs.inner import Solver, Subproblem, Task, best_inner
from dcgs.learn.radius.finders import (
    GAP,
    ROUNDING,
    Finder,
    Fitted,
    HeldOut,
    SetOf,
    Stops,
    Sums,
    first_atom_radius,
    last_radius,
)
from dcgs.learn.radius.folds import Fold
from dcgs.learn.sums import Reductions, Request, Steps
from dcgs.methods.fast.sums_control import AcceleratedSteps, SmoothnessEstimate, SummedModel
from dcgs.methods.fast.sums_root import relative
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import Point, vdot
from dcgs.sets.base import ConvexSet, ProjectableSet

# The most sums of one batch of radii. A batch has up to _MOST_AT_ONCE radii if its sums have at most _SHORT
# numbers, and at least _LEAST_AT_ONCE.
_MOST_SUMS = 400
_MOST_AT_ONCE, _LEAST_AT_ONCE, _SHORT = 6, 4, 1 << 14
# With at least this number of rows at a site, on average, the root's own data are the model of everyone's.
# The estimate of Λ then begins at this share of the one without them.
_MANY_ROWS, _ALIKE = 100, 0.05
# With at least _MANY_FEATURES there are working sets: the features whose entries of the gradient are at least
# _LARGE of the largest, and those of the model; unless they are more than _MOST_FEATURES of all. One sum of
# _WHOLE, at least, has all features. The next sum may finish a model if its gap seems to be at most _SOON
# times what it is to be.
_MANY_FEATURES, _LARGE, _MOST_FEATURES, _WHOLE, _SOON = 1000, 0.8, 0.6, 6, 1.3
# A step with the own data of the root need not be more accurate than this share of the loss.
_EXACT = 1e-12
# The numbers that agents are told of a model: θ, whether the step is better and whether it is the last, f and
# four sums over the rows held out. Bits follow, which say what to send.
_TOLD = 8
_BITS = 48  # of a floating-point number, exactly
# The bits of a float64 that a float32 has as well.
_SHORT_BITS = -1 << 29
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
@dataclass(eq=False)
class _Run:
    """The model of one fold at one radius, on its way: the last step x, the best point, and where y is.

    ``sent`` says which entries of the gradient at y are sent; None for all.
    """

    n: int
    x: _Point
    y: _Point
    best: _Point
    lowest: float = math.inf
    held_out: Sums = field(default_factory=lambda: np.zeros(4))
    is_finished: bool = False
    sent: NDArray[np.bool_] | None = None

    def accept(self, told: Sequence[float]) -> None:
        """Learn what the root found at x: whether it is better, f, and the sums over held-out rows."""
        is_better, is_finished, lowest, *held_out = told
        self.is_finished = bool(is_finished)
        if is_better:
            self.best, self.lowest, self.held_out = self.x, lowest, np.array(held_out)

    def move(self, x: _Point, theta: float, sent: NDArray[np.bool_]) -> None:
        """Take the step to x, and extrapolate."""
        before, self.x = self.x, x
        self.y = x.extrapolated(before, theta)
        self.sent = None if sent.all() else sent

    def part(self, grad: Point) -> Point:
        """Return the entries of a gradient that are sent."""
        flat = grad.reshape(-1)
        return flat if self.sent is None else flat[self.sent]


@final
class _Control:
    """The root's judgment of the steps of one model, and its next step.

    ``own`` is the root's own loss and the number of sites, whose product is h; None if h is zero. ``at_y`` is
    what the model knows besides: h and its gradient at y, and True if all entries of ∇f were sent.
    """

    def __init__(
        self, X: ProjectableSet, own: tuple[Objective, int] | None, null: float, L: float, x: Point
    ) -> None:
        self.X, self.own, self.null = X, own, null
        self.steps, self.lower = AcceleratedSteps(x, x, smoothness=SmoothnessEstimate(L)), -math.inf
        self.at_y = 0.0, x, True
        self.solver: Solver | None = None
        self.correction = np.empty(0)
        self.partial, self.may_finish = 0, False

    @property
    def is_finished(self) -> bool:
        return self._is_near(self.lower, GAP)

    def _is_near(self, lower: float, gap: float) -> bool:
        lowest = self.steps.lowest
        return lowest - lower <= max(gap * (self.null - lowest), ROUNDING * abs(lowest))

    def gradient(self, entries: Point, run: _Run, own: Point) -> Point:
        """Return ∇f(y) from the entries that were sent, and ∇h(y) for the others."""
        if run.sent is None:
            self.correction, self.partial = entries - own.reshape(-1), 0
        else:
            self.correction[run.sent] = entries - own.reshape(-1)[run.sent]
            self.partial += 1
        return np.asarray(own + self.correction.reshape(own.shape))

    def features(self, run: _Run, to: Point) -> NDArray[np.bool_]:
        """Return which entries of the next gradient are to be sent, for a step to ``to``."""
        at = self.steps.model
        whole = np.ones(to.size, dtype=np.bool_)
        if to.size < _MANY_FEATURES or at is None or self.may_finish or self.partial + 1 >= _WHOLE:
            return whole
        sizes = np.abs(at.grad).reshape(-1)
        points = (point.reshape(-1) != 0.0 for point in (to, run.x.x, run.best.x))
        some = np.logical_or.reduce([sizes >= _LARGE * sizes.max(), *points])
        return some if np.count_nonzero(some) <= _MOST_FEATURES * to.size else whole

    def judge(self, run: _Run, values: Sequence[float], grad: Point, own: Sequence[Any]) -> bool:
        """Accept the last step or not: f at x and at y, ∇f(y), and the same of h."""
        (value, value_y), y, steps = values, run.y.x, self.steps
        lower = value_y - vdot(grad, y) + self.X.lmo(grad).dot(grad)
        if run.sent is None:
            self.lower = max(self.lower, lower)
        self.may_finish = self._is_near(lower, _SOON * GAP)
        last, (own_y, own_grad, is_whole), rounding = steps.model, self.at_y, ROUNDING * abs(value)
        curvature, is_long, most = None, False, steps.lowest + rounding
        if last is not None:
            squared, excess = last.excess(steps.x, value)
            excess -= own[0] - own_y - vdot(own_grad, steps.x - last.at)
            is_long = excess > 0.5 * steps.smoothness.L * squared + rounding
            if squared > 0.0:
                curvature = max(2.0 * excess / squared, ROUNDING * steps.smoothness.L)
        if is_long and not is_whole:  # features matter that were left out: undo the step
            most = -math.inf
        is_better = steps.judge(SummedModel(y, value_y, grad), value, most, curvature, is_long, not is_whole)
        if steps.model is not last:
            self.at_y = own[1], own[2], run.sent is None
        return is_better

    def step(self) -> float:
        """Take the next step; return how far to extrapolate beyond it."""
        steps, L = self.steps, self.steps.smoothness.L
        at, (_, own_grad, _) = steps.model, self.at_y
        if at is None:
            return 0.0
        if self.own is None:
            return steps.move(_shortened(self.X.project(at.at - at.grad / L), self.X))
        own, m = self.own
        if self.solver is None:
            inner = best_inner(own, self.X, may_project=True)
            self.solver = inner.start(Task(own, self.X, CountedOracle(self.X), steps.best))
        phi = Subproblem(own, (at.grad - own_grad) / m, L / m, at.at)
        x = self.solver(phi, relative(phi, _EXACT * abs(self.null) / m))
        return steps.move(_shortened(x, self.X))


@final
class SumsFinder(Finder):
    """Models of any size over sets with a cheap projection, several radii at once."""

    beside = (-0.5, 0.5)
    gives_up = True

    def __init__(self, folds: Sequence[Fold], set_of: SetOf, network: Reductions, start: Point) -> None:
        self.folds, self.set_of, self.hosts, self.start = folds, set_of, list(network.hosts), start
        self.root, self.agents = network.root, len(network.graph)
        self.held_out = HeldOut(folds, self.hosts, start)
        self.at_once = max(_LEAST_AT_ONCE, min(_MOST_AT_ONCE, _SHORT // (len(folds) * start.size)))

    def begin(self) -> Steps[None]:
        folds = self.folds
        points = [_Run(n, at, at, at) for n in range(len(folds)) for at in [self._point(self.start, n)]]
        values = {i: [_facts(folds, i), *self._values(i, points)] for i in self.hosts}
        facts, sums, gradients = yield Request("weights, and losses and gradients of no model", values)
        self.gradients = gradients.reshape(len(folds), *self.start.shape)
        self.weight = float(facts[0])
        rows, curvatures = self.weight / (self.agents * len(folds)), facts[1:].reshape(len(folds), 2)
        self.has_model = rows >= _MANY_ROWS
        self.L = [
            math.sqrt(a * b) * (_ALIKE if self.has_model else 1.0) or 1.0 for a, b in curvatures.tolist()
        ]
        losses, held_out = tuple(sums[:, 0].tolist()), sums[:, 2:].sum(axis=0)
        self.null = Fitted(0.0, (self.start,) * len(folds), losses, held_out)

    def first_radius(self) -> Steps[float]:
        return first_atom_radius(self.folds[0], self.set_of, self.start, self.gradients[0])

    def fit(
        self, radii: Sequence[float], known: Sequence[Fitted], stops: Stops | None
    ) -> Steps[list[Fitted]]:
        """Return the models of increasing radii; they start from models that are known, or between them."""
        runs = {(r, n): self._run(r, n, known) for r in radii for n in range(len(self.folds))}
        controls = (
            {key: self._control(*key, run.x.x) for key, run in runs.items()}
            if self.root in self.hosts
            else {}
        )
        last = math.inf
        for _ in range(_MOST_SUMS):
            going = {key: run for key, run in runs.items() if key[0] <= last and not run.is_finished}
            if not going:
                break
            yield from self._sum(going, controls)
            last = last_radius(radii, known, lambda r: self._fitted(r, runs), stops)
        for (_, n), control in controls.items():
            self.L[n] = control.steps.smoothness.L
        return [self._fitted(r, runs) for r in radii if r <= last]

    def _sum(self, going: Mapping[tuple[float, int], _Run], controls: Mapping[Any, _Control]) -> Steps[None]:
        """Take one step of each of these models, by one sum."""
        runs = list(going.values())

        def answer(totals: Sequence[Any]) -> Sequence[Any]:
            sums, entries = totals
            ends = np.cumsum([run.part(self.start).size for run in runs])
            pairs = zip(going.items(), sums, np.split(entries, ends[:-1]), strict=True)
            answers = [self._answer(run, controls[key], sums, grad) for (key, run), sums, grad in pairs]
            told, points = (np.concatenate(parts) for parts in zip(*answers, strict=True))
            return [told, _as_sent(points)]

        values = {i: self._values(i, runs) for i in self.hosts}
        told, points = yield Request(_NAME, values, answer=answer)
        for run, numbers, x in zip(
            runs,
            told.reshape(len(runs), -1),
            points.astype(np.float64).reshape(len(runs), *self.start.shape),
            strict=True,
        ):
            theta, *found = numbers[:_TOLD].tolist()
            run.accept(found)
            if not run.is_finished:
                run.move(self._point(x, run.n), theta, _unpacked(numbers[_TOLD:], x.size))

    def _answer(self, run: _Run, control: _Control, sums: Point, entries: Point) -> tuple[Point, Point]:
        """Return what the root tells all agents of one model: _TOLD numbers and bits, and the next point."""
        x, own = run.x, self._own(run)
        values, held_out = sums[:2].tolist(), sums[2:]
        is_better = control.judge(run, values, control.gradient(entries, run, own[2]), own)
        is_finished = control.is_finished
        theta = 0.0 if is_finished else control.step()
        to = x.x if is_finished else control.steps.x
        numbers = np.array([theta, is_better, is_finished, values[0], *held_out])
        return np.append(numbers, _packed(control.features(run, to))), to.reshape(-1)

    def _own(self, run: _Run) -> tuple[float, float, Point]:
        """Return h at x and at y, and its gradient at y."""
        if not self.has_model:
            return 0.0, 0.0, np.zeros_like(run.y.x)
        f, m = self.folds[run.n].train[self.root], self.agents
        x, y = run.x.images[self.root], run.y.images[self.root]
        return m * f.loss.value(x), m * f.loss.value(y), m * f.map.adjoint(f.loss.grad(y))

    def _run(self, radius: float, n: int, known: Sequence[Fitted]) -> _Run:
        X = self.set_of(radius)
        assert isinstance(X, ProjectableSet)
        x = _between(radius, n, known)
        at = self._point(x if X.accepts(x) else X.project(x), n)
        return _Run(n, at, at, at)

    def _control(self, radius: float, n: int, x: Point) -> _Control:
        X = self.set_of(radius)
        assert isinstance(X, ProjectableSet)
        own = (self.folds[n].train[self.root], self.agents) if self.has_model else None
        return _Control(X, own, self.null.losses[n], self.L[n], x)

    def _point(self, x: Point, n: int) -> _Point:
        return _Point(x, {i: self.folds[n].train[i].map.image(x) for i in self.hosts})

    def _values(self, i: int, runs: Sequence[_Run]) -> list[Any]:
        """Return what agent i adds up: losses at x and y with sums over held-out rows, and gradients at y."""
        numbers, gradients = [], []
        for run in runs:
            f, x, y = self.folds[run.n].train[i], run.x.images[i], run.y.images[i]
            numbers.append([f.loss.value(x), f.loss.value(y), *self.held_out.sums(i, run.n, run.x.x)])
            gradients.append(run.part(f.map.adjoint(f.loss.grad(y))))
        return [np.array(numbers), np.concatenate(gradients)]

    def _fitted(self, radius: float, runs: Mapping[tuple[float, int], _Run]) -> Fitted:
        local = [runs[radius, n] for n in range(len(self.folds))]
        held_out = np.sum([run.held_out for run in local], axis=0)
        finished = all(run.is_finished for run in local)
        models, losses = tuple(run.best.x for run in local), tuple(run.lowest for run in local)
        return Fitted(radius, models, losses, held_out, finished)


def _shortened(x: Point, X: ConvexSet) -> Point:
    """Return x with 24 of 53 bits of its entries, half as long to send; x itself if that is not in X."""
    short = (np.ascontiguousarray(x).view(np.int64) & _SHORT_BITS).view(np.float64)
    return short if X.holds(short) else x


def _as_sent(points: Point) -> Point:
    """Return points as they are sent: as float32, if no bit is lost."""
    with np.errstate(over="ignore"):
        short: Any = points.astype(np.float32)
    return np.asarray(short if (short == points).all() else points)


def _facts(folds: Sequence[Fold], i: int) -> list[float]:
    """Return the weight of the rows of agent i, and the largest and the mean curvature of each fold."""
    curvatures = [(fold.train[i].smoothness, fold.train[i].mean_curvature) for fold in folds]
    return [sum(fold.weight(i) for fold in folds), *np.array(curvatures).reshape(-1)]


def _packed(bits: NDArray[np.bool_]) -> Point:
    """Return bits as floating-point numbers, _BITS in each."""
    lines = np.zeros(-(-bits.size // _BITS) * _BITS)
    lines[: bits.size] = bits
    return np.asarray(lines.reshape(-1, _BITS) @ 2.0 ** np.arange(_BITS))


def _unpacked(numbers: Point, count: int) -> NDArray[np.bool_]:
    """Return the bits that :func:`_packed` has packed."""
    whole = numbers.astype(np.int64)[:, None] >> np.arange(_BITS)
    return np.asarray((whole & 1).astype(np.bool_).reshape(-1)[:count])


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
