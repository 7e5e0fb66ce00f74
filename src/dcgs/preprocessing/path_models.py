"""How the models of a path are found: by Newton steps on summed Hessians, or by ``minimize``.

Both go from one radius to the next larger one, and start where the last model is.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.counting import CountedOracle, Tally
from dcgs.front.minimize import minimize
from dcgs.front.stopping import LIMITS
from dcgs.inner.quadratic import Domain, Quadratic, minimize_quadratic
from dcgs.low_rank import LowRank
from dcgs.methods.second_order import symmetric
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, vdot
from dcgs.preprocessing.folds import Fold
from dcgs.preprocessing.reductions import ReductionRequest, Reductions, Sent, Steps
from dcgs.sets.base import ConvexSet
from dcgs.sets.product_set import Product

SetOf: TypeAlias = Callable[[float], ConvexSet]
Sums: TypeAlias = NDArray[np.float64]

# A model of the path is found to this Wolfe gap, relative to the decrease of the loss from no model.
GAP = 0.03
# A matrix in factors to this one: held-out errors differ little, and radii for half the rounds.
_MATRIX_GAP = 0.1
_MOST_STEPS = 4
ROUNDING = 1e3 * EPS
"""How much a loss may exceed a bound by rounding error, relative to its value."""
# The share of the upper bound in the Hessian after a step that did not decrease the loss.
_SHARE = 0.25


@final
@dataclass(frozen=True, eq=False)
class Fitted:
    """A model of each fold at one radius, their training losses, and sums over rows that were held out.

    ``judged`` is None if the sums have not been made yet. ``finished`` is False if the models have not
    reached the gap of the path: with ``too_large`` they were left because they are clearly worse than one of
    smaller radius, without it they ran out of steps.
    """

    radius: float
    models: tuple[Any, ...]
    losses: tuple[float, ...]
    judged: Sums | None
    finished: bool = True
    too_large: bool = False

    @property
    def ran_out(self) -> bool:
        """Whether the models ran out of steps, so that their errors say nothing of the radius."""
        return not (self.finished or self.too_large)


class PathModels(ABC):
    """The models of all folds at one radius after the other; ``begin`` finds what the other steps need."""

    null: Fitted
    weight: float
    """The weight of all rows that are trained on, over all folds."""
    exact: bool = False
    """True if models follow without further sums; the held-out rows are then judged for all at once."""

    @abstractmethod
    def begin(self) -> Steps[None]:
        """Find the loss of no model, and the weight of the rows."""

    @abstractmethod
    def first_radius(self) -> Steps[float]:
        """Return the radius at which one atom alone, with the best weight, would end."""

    @abstractmethod
    def fit(self, radius: float) -> Steps[Fitted]:
        """Return the models over the set of this radius, starting from the last ones."""


def judged(folds: Sequence[Fold], i: int, models: Sequence[Any]) -> Sums:
    """Return the sums over the held-out rows of agent i, over all folds."""
    return np.asarray(np.sum([fold.judgment(i, x) for fold, x in zip(folds, models, strict=True)], axis=0))


@final
@dataclass(eq=False)
class _At:
    """What is known of a fold at a point: the loss, its gradient and its Hessian."""

    x: Point
    value: float
    grad: Point
    hess: NDArray[np.float64]


@final
class NewtonPath(PathModels):
    """Models with few unknowns: the losses, gradients and Hessians of all folds are in one sum per radius.

    A model is the minimizer of a quadratic model over the next set; if its gap is too large, another step
    follows. For least squares the quadratic model is exact, so that one sum is enough for all radii.
    """

    def __init__(self, folds: Sequence[Fold], set_of: SetOf, network: Reductions, start: Point) -> None:
        self.folds, self.set_of, self.start = folds, set_of, start
        self.hosts, self.agents = list(network.hosts), len(network.graph)

    def begin(self) -> Steps[None]:
        folds = self.folds
        once = {i: [_once(folds, i), [_bound(fold.train[i]) for fold in folds]] for i in self.hosts}
        self.at, sums, (facts, bounds) = yield from self._evaluate([self.start] * len(folds), once)
        self.exact = float(facts[0]) == float(self.agents)
        self.weight = float(facts[1])
        self.bounds = [symmetric(one, self.start.size) for one in bounds]
        self.null = Fitted(0.0, tuple(at.x for at in self.at), tuple(at.value for at in self.at), sums)

    def first_radius(self) -> Steps[float]:
        yield from ()  # all is known
        grad = np.sum([at.grad for at in self.at], axis=0)
        hess = np.sum([at.hess for at in self.at], axis=0)
        atom = unit_atom(self.set_of(1.0), grad)
        return _atom_weight(-vdot(grad, atom), float(atom @ hess @ atom))

    def fit(self, radius: float) -> Steps[Fitted]:
        X, count = self.set_of(radius), len(self.folds)
        shares, trials, sums = [0.0] * count, [at.x for at in self.at], None
        for _ in range(_MOST_STEPS):
            trials = [self._trial(n, X, shares[n]) for n in range(count)]
            if self.exact:
                self.at = [self._moved(n, x) for n, x in enumerate(trials)]
                break
            ahead, sums, _ = yield from self._evaluate(trials)
            failed = [ahead[n].value > self.at[n].value for n in range(count)]
            shares = [_next_share(shares[n], failed[n]) for n in range(count)]
            self.at = [self.at[n] if failed[n] else ahead[n] for n in range(count)]
            if not any(failed) and all(self._is_near(n, X) for n in range(count)):
                break
        # If the last trial of a fold was rejected, the sums are not those of its model.
        accepted = all(at.x is x for at, x in zip(self.at, trials, strict=True))
        losses = tuple(at.value for at in self.at)
        finished = self.exact or all(self._is_near(n, X) for n in range(count))
        return Fitted(radius, tuple(at.x for at in self.at), losses, sums if accepted else None, finished)

    def _trial(self, n: int, X: ConvexSet, share: float) -> Point:
        at = self.at[n]
        H = (1.0 - share) * at.hess + share * self.bounds[n]
        q = Quadratic(H, at.grad, at.x)
        domain = Domain(X, CountedOracle(X), Tally())
        x = at.x if X.accepts(at.x) else X.start()
        decrease = self.null.losses[n] - at.value
        return minimize_quadratic(q, domain, x, lambda more: 0.3 * GAP * max(decrease + more, 0.0))

    def _moved(self, n: int, x: Point) -> _At:
        """Return the point x of a fold whose loss is quadratic."""
        at = self.at[n]
        step = x - at.x
        value = at.value + vdot(at.grad, step) + 0.5 * float(step @ at.hess @ step)
        return _At(x, value, at.grad + at.hess @ step, at.hess)

    def _is_near(self, n: int, X: ConvexSet) -> bool:
        at = self.at[n]
        gap = vdot(at.grad, at.x) - X.lmo(at.grad).dot(at.grad)
        null = self.null.losses[n]
        return gap <= max(GAP * (null - at.value), ROUNDING * (abs(null) + abs(at.value)))

    def _evaluate(
        self, points: Sequence[Point], once: Mapping[int, Sequence[Any]] | None = None
    ) -> Steps[tuple[list[_At], Sums, Sequence[Any]]]:
        """Return the folds at these points, the judgment of the points, and the sums of ``once``.

        All are in one sum over the network.
        """
        own = {
            i: [*_derivatives(self.folds, i, points), judged(self.folds, i, points), *(once or {}).get(i, [])]
            for i in self.hosts
        }
        name = "losses, gradients and Hessians of the folds, and held-out losses"
        values, grads, hessians, sums, *rest = yield ReductionRequest(name, own)
        found = [
            _At(x, float(values[n]), grads[n], symmetric(hessians[n], x.size)) for n, x in enumerate(points)
        ]
        return found, sums, rest


@final
class MinimizePath(PathModels):
    """Models of any size, each by a run of ``minimize`` that starts from the last one."""

    def __init__(self, folds: Sequence[Fold], set_of: SetOf, network: Reductions, start: Any) -> None:
        self.folds, self.set_of, self.network = folds, set_of, network
        self.models = [start] * len(folds)

    def begin(self) -> Steps[None]:
        own = {i: [_once(self.folds, i), self._own_losses(i)] for i in self.network.hosts}
        facts, losses = yield ReductionRequest("weights and losses of no model", own)
        self.weight, self.losses = float(facts[1]), tuple(losses.tolist())
        self.null = Fitted(0.0, tuple(self.models), self.losses, None)

    def first_radius(self) -> Steps[float]:
        x = self.models[0]
        if isinstance(x, LowRank):
            # The nuclear norm of what is to explain is at least its Frobenius norm, the root of the loss.
            return 2.0 * math.sqrt(self.losses[0]) or 1.0  # 1 if the offsets explain all: any radius will do
        own = {i: [f.grad(x)] for i, f in self.folds[0].train.items()}
        (grad,) = yield ReductionRequest("the gradient of no model", own)
        return (yield from first_atom_radius(self.folds[0], self.set_of, x, grad))

    def fit(self, radius: float) -> Steps[Fitted]:
        X, models, network, finished = self.set_of(radius), [], self.network, True
        for n, fold in enumerate(self.folds):
            decrease = self.null.losses[n] - self.losses[n]
            gap = _MATRIX_GAP if isinstance(self.models[n], LowRank) else GAP
            rule: dict[str, Any] = {"gap_abs": gap * decrease} if decrease > 0.0 else {"gap": 2.0 * gap}
            start = _start(self.models[n], X)
            result = minimize(
                dict(fold.train),
                X,
                network.graph,
                runtime=network.runtime.in_rounds(),
                x0=start,
                every=None,
                **rule,
            )
            name = f"the model of radius {radius:.4g}"
            # Of a matrix, blocks of vectors with an entry for each column are sent.
            here = int(result.bytes[list(network.hosts)].sum())  # a result has those of all processes
            network.sent.append(Sent(name, "fit", X.shape[-1], result.rounds, here))
            models.append(result.x)
            finished = finished and result.status not in LIMITS
        self.models = models
        own: dict[int, list[Any]] = {
            i: [self._own_losses(i), judged(self.folds, i, models)] for i in network.hosts
        }
        losses, sums = yield ReductionRequest("losses, and held-out losses", own)
        self.losses = tuple(losses.tolist())
        return Fitted(radius, tuple(models), self.losses, sums, finished)

    def _own_losses(self, i: int) -> list[float]:
        return [fold.train[i].value(x) for fold, x in zip(self.folds, self.models, strict=True)]


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
    (curvature,) = yield ReductionRequest("its curvature along one atom", curvatures)
    return _atom_weight(-vdot(grad, atom), float(curvature))


def _atom_weight(slope: float, curvature: float) -> float:
    return slope / curvature if slope > 0.0 and curvature > 0.0 else 1.0


def _curvature_along(f: Objective, x: Point, d: Point) -> float:
    moved = f.map.image(d)
    return float(f.loss.hess(f.map.image(x)) @ moved**2)


def _once(folds: Sequence[Fold], i: int) -> list[float]:
    """Return 1 if the losses of agent i are quadratic, else 0, and the weight of its training rows."""
    curvatures = [fold.train[i].loss.curvature for fold in folds]
    return [float(all(a == b for a, b in curvatures)), sum(fold.weight(i) for fold in folds)]


def _next_share(share: float, failed: bool) -> float:
    if not failed:
        return 0.25 * share
    return min(1.0, 4.0 * share) if share > 0.0 else _SHARE


def _bound(f: Objective) -> NDArray[np.float64]:
    """Return the upper triangle of an upper bound of the Hessian."""
    return _triangle(f.map.gram(np.full(f.map.size, f.loss.curvature[1])))


def _derivatives(folds: Sequence[Fold], i: int, points: Sequence[Point]) -> tuple[Point, Point, Point]:
    values, grads, hessians = [], [], []
    for fold, x in zip(folds, points, strict=True):
        f = fold.train[i]
        image = f.map.image(x)
        values.append(f.loss.value(image))
        grads.append(f.map.adjoint(f.loss.grad(image)))
        hessians.append(_triangle(f.map.gram(f.loss.hess(image))))
    return np.array(values), np.array(grads), np.array(hessians)


def _triangle(H: NDArray[np.float64]) -> NDArray[np.float64]:
    return H[np.triu_indices(len(H))]
