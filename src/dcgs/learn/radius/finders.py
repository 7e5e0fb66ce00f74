"""How the models of a path are found: by Newton steps on summed Hessians, or by runs of ``minimize``.

Models of many unknowns over sets with a cheap projection are found in :mod:`.sums_finder`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.counting import CountedOracle, Tally
from dcgs.inner.quadratic import Domain, Quadratic, minimize_quadratic
from dcgs.learn.radius.folds import Fold
from dcgs.learn.radius.result import PathPoint, from_sums
from dcgs.learn.sums import Reductions, Request, Sent, Steps
from dcgs.low_rank import LowRank
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, symmetric, upper_triangle, vdot
from dcgs.run.minimize import minimize
from dcgs.run.stopping import LIMITS
from dcgs.sets.base import ConvexSet
from dcgs.sets.product_set import Product

SetOf: TypeAlias = Callable[[float], ConvexSet]
Sums: TypeAlias = NDArray[np.float64]

# A model of the path is found to this Wolfe gap, relative to the decrease of the loss from no model.
GAP = 0.03
# A matrix in factors to this one: held-out errors differ little, and radii for half the rounds. At the best
# radius gaps that are smaller by _TIGHTER follow, down to _LEAST, while the held-out error falls clearly.
_MATRIX_GAP, _TIGHTER, _LEAST = 0.1, 0.25, 1e-3
CLEAR = 0.1
"""An error is clearly less than another one of the same kind by this share of its standard error."""
ROUNDING = 1e3 * EPS
"""How much a loss may exceed a bound by rounding error, relative to its value."""
# The most Newton steps of a batch of radii; the most radii of a batch, and numbers in one of its sums: with
# more, the bytes of a sum take longer than its rounds.
_MOST_STEPS, _MOST_AT_ONCE, _MOST_NUMBERS = 12, 12, 1 << 15
_ALL = 1000
# The share of the upper bound in the Hessian after a step that did not decrease the loss.
_SHARE = 0.25
# A Newton step is found to this share of the gap at the point where it begins.
_INEXACT = 0.1


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of each fold at one radius, their losses, and sums over the rows that were held out.

    ``finished`` is False if the models ran out of steps, so that their errors say nothing of the radius.
    """

    radius: float
    models: tuple[Any, ...]
    losses: tuple[float, ...]
    held_out: Sums
    finished: bool = True

    @property
    def point(self) -> PathPoint:
        """The error on held-out rows, with sums of losses over the rows trained on."""
        return from_sums(self.radius, self.held_out.tolist(), sum(self.losses), 0.0)

    @property
    def error(self) -> float:
        """The error on held-out rows; the loss on training rows, if none was held out."""
        error = self.point.error
        return error if error == error else sum(self.losses)

    @property
    def standard_error(self) -> float:
        """The standard error of the error; 0 if no row was held out."""
        error = self.point.standard_error
        return error if error == error else 0.0


Stops: TypeAlias = Callable[[Sequence[Fitted]], str | None]
"""Why no larger radius is needed than those of models that are finished; None if one is."""


class Finder(ABC):
    """Finds the models of all folds for increasing radii; ``begin`` finds what the other steps need."""

    null: Fitted
    weight: float
    """The weight of all rows that are trained on, over all folds."""
    at_once: int = 1
    """How many radii are tried at once."""
    beside: tuple[float, ...] = ()
    """Where radii beside the best are, between that and the next ones."""
    gives_up: bool = False
    """True if no larger radius is tried after a model that ran out of steps."""

    @abstractmethod
    def begin(self) -> Steps[None]:
        """Find the loss of no model, and the weight of the rows."""

    @abstractmethod
    def first_radius(self) -> Steps[float]:
        """Return the radius at which one atom alone, with the best weight, would end."""

    @abstractmethod
    def fit(
        self, radii: Sequence[float], known: Sequence[Fitted], stops: Stops | None
    ) -> Steps[list[Fitted]]:
        """Return the models of increasing radii, up to the one after which ``stops`` needs no larger one."""


def last_radius(
    radii: Sequence[float], known: Sequence[Fitted], result: Callable[[float], Fitted], stops: Stops | None
) -> float:
    """Return the radius after which no larger one is needed, by models that are finished."""
    finished = [*known]
    for radius in radii:
        fitted = result(radius)
        if stops is None or not fitted.finished:
            break
        finished.append(fitted)
        if stops(finished):
            return radius
    return math.inf


@final
class HeldOut:
    """Sums over the rows that the agents of this process hold out, with differences from no model."""

    def __init__(self, folds: Sequence[Fold], hosts: Sequence[int], start: Any) -> None:
        self.folds = folds
        self.null = {i: [fold.held_out_losses(i, start) for fold in folds] for i in hosts}

    def sums(self, i: int, n: int, x: Any) -> Sums:
        """Return those of agent i and fold n, at x."""
        return self.folds[n].held_out_sums(i, x, self.null[i][n])

    def total(self, i: int, models: Sequence[Any]) -> Sums:
        """Return those of agent i over all folds, given a model of each."""
        return np.asarray(np.sum([self.sums(i, n, x) for n, x in enumerate(models)], axis=0))


@final
@dataclass(eq=False)
class _Tangent:
    """What is known of a fold at a point: the loss, its derivatives, and sums over the rows held out."""

    x: Point
    value: float
    grad: Point
    hess: NDArray[np.float64]
    held_out: Sums


@final
@dataclass(eq=False)
class _Search:
    """The model of one fold at one radius, on its way: where it is, and its share of the upper bound."""

    X: ConvexSet
    at: _Tangent
    share: float = 0.0


@final
class NewtonFinder(Finder):
    """Models with few unknowns: the losses, gradients and Hessians of folds at several radii are in one sum.

    A step minimizes a quadratic model over the set of its radius, around the best point of the set that is
    known, maybe that of a smaller radius. For least squares the quadratic model is exact, so that one sum is
    enough for all radii.
    """

    def __init__(self, folds: Sequence[Fold], set_of: SetOf, network: Reductions, start: Point) -> None:
        self.folds, self.set_of, self.start = folds, set_of, start
        self.hosts, self.agents = list(network.hosts), len(network.graph)
        self.held_out = HeldOut(folds, self.hosts, start)

    def begin(self) -> Steps[None]:
        folds, size = self.folds, self.start.size
        points = [(n, self.start) for n in range(len(folds))]
        once = {i: [_once(folds, i), [_bound(fold.train[i]) for fold in folds]] for i in self.hosts}
        values = {i: [*self._values(i, points), *once[i]] for i in self.hosts}
        *sums, facts, bounds = yield Request(_NAME, values)
        self.is_exact = float(facts[0]) == float(self.agents)
        self.weight = float(facts[1])
        self.bounds = [symmetric(bound, size) for bound in bounds]
        self.at_null = self._tangents(points, sums)
        self.known = [[tangent] for tangent in self.at_null]
        self.null = _fitted(0.0, self.at_null)
        numbers = sum(np.size(array) for array in sums)
        most = max(1, min(_MOST_AT_ONCE, _MOST_NUMBERS // numbers))
        self.at_once = _ALL if self.is_exact else most

    def first_radius(self) -> Steps[float]:
        yield from ()  # all is known
        grad = np.sum([tangent.grad for tangent in self.at_null], axis=0)
        hess = np.sum([tangent.hess for tangent in self.at_null], axis=0)
        atom = unit_atom(self.set_of(1.0), grad)
        return _atom_weight(-vdot(grad, atom), float(atom @ hess @ atom))

    def fit(
        self, radii: Sequence[float], known: Sequence[Fitted], stops: Stops | None
    ) -> Steps[list[Fitted]]:
        if self.is_exact:
            return (yield from self._fit_exactly(radii, known, stops))
        searches = {(r, n): self._begun(r, n) for r in radii for n in range(len(self.folds))}
        last = math.inf
        for _ in range(_MOST_STEPS):
            going = [(r, n) for r, n in searches if r <= last and not self._is_near(n, searches[r, n])]
            if not going:
                break
            trials = self._trials(going, searches)
            values = {i: self._values(i, trials) for i in self.hosts}
            tangents = self._tangents(trials, (yield Request(_NAME, values)))
            for (r, n), ahead in zip(going, tangents, strict=True):
                self._learn(n, searches[r, n], ahead)
            for (_, n), search in searches.items():
                search.at = self._best(n, search.X)
            last = last_radius(radii, known, lambda r: self._result(r, searches), stops)
        return [self._result(r, searches) for r in radii if r <= last]

    def _fit_exactly(
        self, radii: Sequence[float], known: Sequence[Fitted], stops: Stops | None
    ) -> Steps[list[Fitted]]:
        """Return the models of least squares, all from the first sum; held-out losses are in one more sum."""
        fitted: list[Fitted] = []
        for radius in radii:
            X = self.set_of(radius)
            for n, tangents in enumerate(self.known):
                tangents[:] = [self._moved(tangents[-1], self._trial(n, _Search(X, tangents[-1]), None))]
            fitted.append(_fitted(radius, [tangents[-1] for tangents in self.known]))
            if stops is not None and stops([*known, *fitted]):
                break
        values = {i: [[self.held_out.total(i, candidate.models) for candidate in fitted]] for i in self.hosts}
        (sums,) = yield Request("held-out losses", values)
        return [replace(candidate, held_out=local) for candidate, local in zip(fitted, sums, strict=True)]

    def _begun(self, radius: float, n: int) -> _Search:
        X = self.set_of(radius)
        return _Search(X, self._best(n, X))

    def _best(self, n: int, X: ConvexSet) -> _Tangent:
        """Return the point of X with the least loss, of those that are known; no model if none is in X."""
        inside = [tangent for tangent in self.known[n] if X.accepts(tangent.x)]
        return min(inside, key=lambda tangent: tangent.value, default=self.at_null[n])

    def _trials(
        self, going: Sequence[tuple[float, int]], searches: dict[tuple[float, int], _Search]
    ) -> list[tuple[int, Point]]:
        """Return the next point of each search; each starts from that of the next smaller radius."""
        trials: list[tuple[int, Point]] = []
        last: dict[int, Point] = {}
        for r, n in going:
            last[n] = self._trial(n, searches[r, n], last.get(n))
            trials.append((n, last[n]))
        return trials

    def _trial(self, n: int, search: _Search, near: Point | None) -> Point:
        X, tangent = search.X, search.at
        H = (1.0 - search.share) * tangent.hess + search.share * self.bounds[n]
        q = Quadratic(H, tangent.grad, tangent.x)
        domain = Domain(X, CountedOracle(X), Tally())
        starts = [x for x in (near, tangent.x) if x is not None and X.accepts(x)]
        decrease = self.null.losses[n] - tangent.value
        # A step that another one follows need not be exact: the gap falls by more than this factor anyway.
        enough = 0.0 if self.is_exact else _INEXACT * _wolfe_gap(tangent, X)
        x = starts[0] if starts else X.start()
        return minimize_quadratic(q, domain, x, lambda more: max(0.3 * GAP * (decrease + more), enough))

    def _learn(self, n: int, search: _Search, ahead: _Tangent) -> None:
        """Keep a point that was evaluated; after one of larger loss, use more of the upper bound."""
        self.known[n].append(ahead)
        if ahead.value <= search.at.value:
            search.share *= 0.25
        else:
            search.share = min(1.0, 4.0 * search.share) if search.share > 0.0 else _SHARE

    def _result(self, radius: float, searches: dict[tuple[float, int], _Search]) -> Fitted:
        local = [searches[radius, n] for n in range(len(self.folds))]
        finished = all(self._is_near(n, search) for n, search in enumerate(local))
        return _fitted(radius, [search.at for search in local], finished)

    def _moved(self, tangent: _Tangent, x: Point) -> _Tangent:
        """Return the point x of a fold whose loss is quadratic."""
        step = x - tangent.x
        value = tangent.value + vdot(tangent.grad, step) + 0.5 * float(step @ tangent.hess @ step)
        return _Tangent(x, value, tangent.grad + tangent.hess @ step, tangent.hess, tangent.held_out)

    def _is_near(self, n: int, search: _Search) -> bool:
        tangent, null = search.at, self.null.losses[n]
        most = max(GAP * (null - tangent.value), ROUNDING * (abs(null) + abs(tangent.value)))
        return _wolfe_gap(tangent, search.X) <= most

    def _values(self, i: int, points: Sequence[tuple[int, Point]]) -> list[Any]:
        """Return what agent i adds up at points of folds: losses, gradients, Hessians, held-out losses."""
        parts = []
        for n, x in points:
            f = self.folds[n].train[i]
            image = f.map.image(x)
            hessian = upper_triangle(f.map.gram(f.loss.hess(image)))
            parts.append(
                (
                    f.loss.value(image),
                    f.map.adjoint(f.loss.grad(image)),
                    hessian,
                    self.held_out.sums(i, n, x),
                )
            )
        return [np.array(part) for part in zip(*parts, strict=True)]

    def _tangents(self, points: Sequence[tuple[int, Point]], sums: Sequence[Any]) -> list[_Tangent]:
        return [
            _Tangent(x, float(value), grad, symmetric(hess, x.size), held_out)
            for (_, x), value, grad, hess, held_out in zip(points, *sums, strict=True)
        ]


_NAME = "losses, gradients and Hessians of the folds, and held-out losses"


@final
class RunFinder(Finder):
    """Models of any size, each by a run of ``minimize`` that starts from the last one."""

    gives_up = True  # a larger radius takes longer still

    def __init__(self, folds: Sequence[Fold], set_of: SetOf, network: Reductions, start: Any) -> None:
        self.folds, self.set_of, self.network = folds, set_of, network
        self.models, self.held_out = [start] * len(folds), HeldOut(folds, list(network.hosts), start)

    def begin(self) -> Steps[None]:
        values = {i: [_once(self.folds, i), *self._values(i)] for i in self.network.hosts}
        facts, losses, held_out = yield Request("weights and losses of no model", values)
        self.weight, self.losses = float(facts[1]), tuple(losses.tolist())
        self.null = Fitted(0.0, tuple(self.models), self.losses, held_out)

    def first_radius(self) -> Steps[float]:
        x = self.models[0]
        if isinstance(x, LowRank):
            # The nuclear norm of what is to explain is at least its Frobenius norm, the root of the loss.
            return 2.0 * math.sqrt(self.losses[0]) or 1.0  # 1 if the offsets explain all: any radius will do
        gradients = {i: [f.grad(x)] for i, f in self.folds[0].train.items()}
        (grad,) = yield Request("the gradient of no model", gradients)
        return (yield from first_atom_radius(self.folds[0], self.set_of, x, grad))

    def fit(
        self, radii: Sequence[float], known: Sequence[Fitted], stops: Stops | None
    ) -> Steps[list[Fitted]]:
        (radius,) = radii
        gap = _MATRIX_GAP if isinstance(self.models[0], LowRank) else GAP
        return [(yield from self._fit(radius, gap))]

    def enough_gap(self, best: Fitted) -> Steps[float]:
        """Return the gap at which the held-out error of the best model falls no more.

        A model that has the next gap already, such as one that leaves hardly any loss, gets the one after.
        """
        gap, self.models, self.losses = _MATRIX_GAP, list(best.models), best.losses
        is_better = self.null.error - best.error > best.point.paired_error
        while is_better and best.finished and gap > _LEAST:
            tighter = yield from self._fit(best.radius, _TIGHTER * gap)
            falls = tighter.error < best.error - CLEAR * best.standard_error
            had_gap = sum(best.losses) - sum(tighter.losses) <= ROUNDING * sum(self.null.losses)
            if not (tighter.finished and (falls or had_gap)):
                break
            gap, best = _TIGHTER * gap, tighter
        return gap

    def _fit(self, radius: float, gap: float) -> Steps[Fitted]:
        network = self.network
        X, models, finished = self.set_of(radius), [], True
        for n, fold in enumerate(self.folds):
            decrease = self.null.losses[n] - self.losses[n]
            rule: dict[str, Any] = {"gap_abs": gap * decrease} if decrease > 0.0 else {"gap": 2.0 * gap}
            runtime, x0 = network.runtime.in_rounds(), _start(self.models[n], X)
            name = f"the model of radius {radius:.4g}"
            network.named(name, X.shape[-1])
            rule |= {"runtime": runtime, "secure": network.secure_run(), "every": None}
            result = minimize(dict(fold.train), X, network.graph, x0=x0, **rule)
            # Of a matrix, blocks of vectors with an entry for each column are sent.
            sent = Sent(name, "fit", X.shape[-1], result.rounds, 0)
            network.record(sent, result)
            models.append(result.x)
            finished = finished and result.status not in LIMITS
        self.models = models
        losses, held_out = yield Request(
            "losses, and held-out losses", {i: self._values(i) for i in network.hosts}
        )
        self.losses = tuple(losses.tolist())
        return Fitted(radius, tuple(models), self.losses, held_out, finished)

    def _values(self, i: int) -> list[Any]:
        losses = [fold.train[i].value(x) for fold, x in zip(self.folds, self.models, strict=True)]
        return [losses, self.held_out.total(i, self.models)]


def _start(x: Any, X: ConvexSet) -> Any:
    """Return the last model as the start of the next, or None if it is not in the set.

    Of a matrix in factors every process may have its own rows only. It is in the larger ball.
    """
    if isinstance(x, LowRank):
        return x
    return x if X.accepts(x) else None


def unit_atom(X: ConvexSet, grad: Point) -> Point:
    """Return the best atom of X, or of the first part of a product, with zeros elsewhere."""
    if not isinstance(X, Product):
        return X.lmo(grad).dense()
    atom = np.zeros(X.shape)
    atom[X.slices[0]] = X.parts[0].lmo(X.split(grad)[0]).dense().reshape(-1)
    return atom


def first_atom_radius(fold: Fold, set_of: SetOf, x: Point, grad: Point) -> Steps[float]:
    """Return the radius at which one atom alone, with the best weight, would end; ``grad`` is that at x."""
    atom = unit_atom(set_of(1.0), grad)
    curvatures = {i: [_curvature_along(f, x, atom)] for i, f in fold.train.items()}
    (curvature,) = yield Request("its curvature along one atom", curvatures)
    return _atom_weight(-vdot(grad, atom), float(curvature))


def _wolfe_gap(tangent: _Tangent, X: ConvexSet) -> float:
    """Return the Wolfe gap of a fold at a point of X."""
    return vdot(tangent.grad, tangent.x) - X.lmo(tangent.grad).dot(tangent.grad)


def _fitted(radius: float, tangents: Sequence[_Tangent], finished: bool = True) -> Fitted:
    held_out = np.asarray(np.sum([tangent.held_out for tangent in tangents], axis=0))
    models = tuple(tangent.x for tangent in tangents)
    return Fitted(radius, models, tuple(tangent.value for tangent in tangents), held_out, finished)


def _atom_weight(slope: float, curvature: float) -> float:
    return slope / curvature if slope > 0.0 and curvature > 0.0 else 1.0


def _curvature_along(f: Objective, x: Point, d: Point) -> float:
    moved = f.map.image(d)
    return float(f.loss.hess(f.map.image(x)) @ moved**2)


def _once(folds: Sequence[Fold], i: int) -> list[float]:
    """Return 1 if the losses of agent i are quadratic, else 0, and the weight of its training rows."""
    curvatures = [fold.train[i].loss.curvature for fold in folds]
    return [float(all(a == b for a, b in curvatures)), sum(fold.weight(i) for fold in folds)]


def _bound(f: Objective) -> NDArray[np.float64]:
    """Return the upper triangle of an upper bound of the Hessian."""
    return upper_triangle(f.map.gram(np.full(f.map.size, f.loss.curvature[1])))
