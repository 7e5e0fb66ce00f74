"""Minimize a convex quadratic of few unknowns over a set, to a Wolfe gap.

Over sets with a projection: proximal point steps, each solved by semismooth Newton steps, whose number hardly
depends on the condition of the Hessian. Over other sets, and where these steps do not reach the gap:
corrective steps over the hull of extreme points. A subproblem with few unknowns is minimized by Newton steps,
each of which minimizes such a quadratic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.counting import Oracle, Tally
from dcgs.inner.base import Accuracy, Outcome, Subproblem, Task, line_minimizer
from dcgs.inner.corrective import Corrective
from dcgs.objectives.losses import SquaredLoss
from dcgs.objectives.maps import DenseMap
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, frozen, vdot
from dcgs.sets.base import ConvexSet, DiagonallyProjectableSet, ProjectableSet

Matrix = NDArray[np.float64]

# The weight of the proximal term, relative to the largest curvature: at first, and at least. Each proximal
# point step divides it by _FACTOR, and by less after a step that could not be solved.
_FIRST, _LEAST, _FACTOR, _SMALLEST_FACTOR = 1e-1, 1e-13, 10.0, 1.5
_MOST_STEPS = 60
# A smaller gap than is needed is aimed at with so many Newton steps in all.
_MOST_BEYOND = 40
# Rounding error is reached if so many steps in a row did not reduce the gap, and no longer one follows.
_USELESS = 4
# The error of a proximal point step, relative to its length.
_SIGMA = 0.1
_MOST_NEWTON, _HALVINGS, _MOST_GRADIENT = 30, 6, 300
# Gradient steps end earlier if so many in a row left the same entries at zero: Newton steps find the others.
# It is not so for sets of matrices, whose projections have no zeros.
_SETTLED = 30
# The most corrective steps over a set that is no polytope: its extreme points never end.
_MOST_CORRECTIVE = 1000
# The relative step by which a projection without a known derivative is differenced.
_DIFFERENCE = 6e-6
# Coordinates are scaled by their curvature if that differs by more than this factor.
_UNEVEN = 10.0

FEW, MOST, TALL, WEAK = 64, 500, 10, 100.0
"""Newton steps on φ itself minimize a subproblem of at most FEW unknowns where others fail; one of at most
MOST at once, with TALL times as many rows if f has more than WEAK times the curvature of η/2 ‖x‖²."""
# Most such solves take fewer than twenty steps. If _FEW_USELESS did not halve the gap, it is rounding error.
_FEW_STEPS, _FEW_USELESS = 100, 6
# The gap of a model at its approximate minimizer, relative to the gap that is asked for, and to that of φ.
_SHARE, _FALL = 0.3, 1e-3


@final
@dataclass(frozen=True, eq=False)
class Quadratic:
    """q(x) = ⟨g, d⟩ + ½ dᵀ H d with d = x − center, flattened, and a positive semidefinite H.

    Written around a point, so that differences of q near it do not cancel.
    """

    H: Matrix
    g: Point
    center: Point

    def value(self, x: Point) -> float:
        """Return q(x)."""
        d = x.reshape(-1) - self.center
        return float(self.g @ d + 0.5 * (d @ (self.H @ d)))

    def grad(self, x: Point) -> Point:
        """Return ∇q(x), in the shape of x."""
        return (self.g + self.H @ (x.reshape(-1) - self.center)).reshape(x.shape)

    def terms(self, x: Point) -> float:
        """Return the size of the terms of ∇q(x), by which its rounding error is measured."""
        images = self.H @ np.stack([x.reshape(-1), self.center], axis=1)
        return float(np.abs(images).max(axis=0).sum()) + float(np.abs(self.g).max())


@final
@dataclass(frozen=True, eq=False)
class Domain:
    """The set of a quadratic, its oracle, and the count of projections."""

    X: ConvexSet
    lmo: Oracle
    projections: Tally

    def wolfe_gap(self, q: Quadratic, x: Point) -> float:
        """Return the Wolfe gap of q at x."""
        g = q.grad(x)
        return vdot(g, x) - self.lmo(g, None).dot(g)


@final
@dataclass(frozen=True, eq=False)
class _ProjectedQuadratic:
    """A quadratic over a set with a projection, a diagonal metric h or None, and the top curvature in it."""

    q: Quadratic
    domain: Domain
    h: Point | None
    top: float

    def project(self, y: Point) -> Point:
        """Return the projection of y, and count it."""
        self.domain.projections.count += 1
        X = self.domain.X
        if isinstance(X, DiagonallyProjectableSet):
            return X.projected(y, self.h).point
        assert isinstance(X, ProjectableSet)
        return X.project(y)


@final
@dataclass(frozen=True, eq=False)
class _Root:
    """A point y, its projection x, and the normal map F(y) there."""

    y: Point
    x: Point
    F: Point


Tolerance: TypeAlias = Callable[[float], float]
"""The decrease of q from the starting point ↦ the Wolfe gap that is small enough."""


def minimize_quadratic(
    q: Quadratic, domain: Domain, x: Point, tolerance: Tolerance, aim: Tolerance | None = None
) -> Point:
    """Return a point of X whose Wolfe gap is small enough, or as small as rounding allows; start at x.

    If X has a projection, steps go on toward the gap that is the ``aim``, as long as they are few.
    """
    if not isinstance(domain.X, ProjectableSet):
        return _over_hull(q, domain, x, tolerance)
    curvature = np.diag(q.H)
    largest = float(curvature.max(initial=0.0)) or 1.0
    uneven = largest > _UNEVEN * float(np.median(curvature))
    h = np.maximum(curvature / largest, _LEAST).reshape(x.shape)
    metric = h if uneven and isinstance(domain.X, DiagonallyProjectableSet) else None
    root = np.ones(x.size) if metric is None else np.sqrt(metric.reshape(-1))
    # Where the gradient changes over X by rounding error only, a larger curvature makes no difference.
    negligible = EPS * float(np.abs(q.g).max()) / (domain.X.diameter or 1.0)
    top = max(float(np.linalg.eigvalsh(q.H / root / root[:, None])[-1]), negligible) or 1.0
    problem = _ProjectedQuadratic(q, domain, metric, top)
    eta = _FIRST * top
    best, lowest, first = x, domain.wolfe_gap(q, x), q.value(x)
    normal, useless, factor = 0.0 * x, 0, _FACTOR
    steps = 0

    def is_enough(wanted: Tolerance) -> bool:
        """Return True if the lowest gap is small enough, or what rounding makes of one of 0."""
        rounding = EPS * q.terms(best) * domain.X.diameter
        return lowest <= max(rounding, wanted(first - q.value(best)))

    for _ in range(_MOST_STEPS):
        wanted = tolerance if aim is None or steps > _MOST_BEYOND else aim
        if is_enough(wanted) or useless == _USELESS:
            break
        step = _Proximal(problem, x, eta)
        solution = step.minimizer(normal)
        steps += step.steps
        accurate, gap = step.is_accurate(solution), domain.wolfe_gap(q, solution.x)
        if accurate:
            x, normal = solution.x, step.weights * (solution.y - solution.x)
        else:  # from the same point with the weight before, or a larger one if that has failed
            slower = max(math.sqrt(factor), _SMALLEST_FACTOR)
            eta, factor = eta * factor * slower, slower
        grows = accurate and eta > _LEAST * top  # the next step will be longer
        useless = 0 if gap < 0.9 * lowest or grows else useless + 1
        if gap < lowest:
            best, lowest = solution.x, gap
        eta = max(eta / factor, _LEAST * top)
    if is_enough(tolerance):
        return best
    ahead = _over_hull(q, domain, best, lambda decrease: tolerance(first - q.value(best) + decrease))
    return ahead if domain.wolfe_gap(q, ahead) < lowest else best


def _over_hull(q: Quadratic, domain: Domain, x: Point, tolerance: Tolerance) -> Point:
    """Return what corrective steps over the hull of x and of extreme points find."""
    R = 0.0 * q.H[:1]
    if q.H.any():  # an R with Rᵀ R = H/2
        values, vectors = np.linalg.eigh(q.H)
        kept = values > EPS * float(values[-1]) * len(values)
        R = np.sqrt(0.5 * values[kept])[:, None] * vectors.T[kept]
    f = Objective(SquaredLoss(R @ q.center), DenseMap(R, x.shape))
    most = Corrective().max_steps if domain.X.polytope else _MOST_CORRECTIVE
    solver = Corrective(max_steps=most).start(Task(f, domain.X, domain.lmo, frozen(x)))
    first = q.value(x)
    return solver(Subproblem(f, q.g.reshape(x.shape), 0.0, 0.0 * x), lambda v: tolerance(first - q.value(v)))


@final
class _Proximal:
    """Minimize φ(x) = q(x) + η/2 ‖x − p‖² over X, in the metric h.

    The minimizer is x = P(y) for the root y of the normal map F(y) = ∇q(P(y)) + η h (y − p). At any y, F(y)
    is a subgradient of φ at P(y), so that ‖x − x̂‖ ≤ ‖F(y)‖/η. Newton steps find the root.
    """

    def __init__(self, problem: _ProjectedQuadratic, p: Point, eta: float) -> None:
        self.problem, self.p, self.eta = problem, p, eta
        self.weights = np.full(p.shape, eta) if problem.h is None else eta * problem.h
        self.steps = 0

    def minimizer(self, normal: Point) -> _Root:
        """Return an approximate root of the normal map; start at p with a normal vector of X there.

        Newton steps end at an accurate point. Where they reduce ‖F‖ no more, gradient steps find another
        start; they end if that is no better.
        """
        root, lowest = self._at(self.p + normal / self.weights), math.inf
        for _ in range(_MOST_NEWTON):
            if self.is_accurate(root):
                break
            step, self.steps = self._newton_step(root), self.steps + 1
            length, size = 1.0, self._size(root.F)
            ahead = self._at(root.y + step)
            while self._size(ahead.F) > (1.0 - 1e-4 * length) * size and length > 0.5**_HALVINGS:
                length *= 0.5
                ahead = self._at(root.y + length * step)
            if self._size(ahead.F) >= size:
                if size >= lowest:
                    break
                ahead, lowest = self._after_gradient_steps(root.x), size
            root = ahead
        return root

    def _after_gradient_steps(self, x: Point) -> _Root:
        """Return the root that accelerated projected gradient steps from x lead to."""
        h = 1.0 if self.problem.h is None else self.problem.h
        beta = self.problem.top + self.eta
        root = math.sqrt(self.eta / beta)
        theta, y = (1.0 - root) / (1.0 + root), x
        settled, may_end = 0, isinstance(self.problem.domain.X, DiagonallyProjectableSet)
        for _ in range(min(_MOST_GRADIENT, math.ceil(2.0 / root))):
            g = self.problem.q.grad(y) + self.weights * (y - self.p)
            before, x = x, self.problem.project(y - g / (beta * h))
            y = x + theta * (x - before)
            settled = settled + 1 if np.array_equal(x == 0.0, before == 0.0) else 0
            if may_end and settled == _SETTLED:
                break
        return self._at(self.p - self.problem.q.grad(x) / self.weights)

    def _at(self, y: Point) -> _Root:
        x = self.problem.project(y)
        return _Root(y, x, self.problem.q.grad(x) + self.weights * (y - self.p))

    def _size(self, F: Point) -> float:
        """Return ‖F‖²/η, in the norm that is dual to that of the metric."""
        return vdot(F, F / self.weights)

    def is_accurate(self, root: _Root) -> bool:
        """Return True if the error of x is small beside its distance from p, or rounding error."""
        moved = root.x - self.p
        q = self.problem.q
        rounding = float(np.abs(root.F).max()) <= 8.0 * EPS * q.terms(root.x)
        return rounding or self._size(root.F) <= _SIGMA**2 * vdot(moved, self.weights * moved)

    def _newton_step(self, root: _Root) -> Point:
        """Return the solution of M d = −F, M = H K + diag(weights) with the derivative K of the projection.

        Coordinates in which K is zero follow from the others.
        """
        weights, F = self.weights.reshape(-1), root.F.reshape(-1)
        S, HK = self._curvature(root)
        M, d, rest = HK[S], np.zeros_like(F), np.ones(len(F), dtype=np.bool_)
        M.flat[:: len(S) + 1] += weights[S]
        try:
            d[S] = np.linalg.solve(M, -F[S])
        except np.linalg.LinAlgError:  # singular in floating point
            d[S] = np.linalg.lstsq(M, -F[S], rcond=None)[0]
        rest[S] = False
        d[rest] = -(F[rest] + HK[rest] @ d[S]) / weights[rest]
        return d.reshape(root.F.shape)

    def _curvature(self, root: _Root) -> tuple[NDArray[np.intp], Matrix]:
        """Return the coordinates in which the derivative K of the projection at y is not 0; their H K."""
        X, h, H = self.problem.domain.X, self.problem.h, self.problem.q.H
        if not isinstance(X, DiagonallyProjectableSet):
            K = self._differenced(root)
            S = np.flatnonzero(K.any(axis=0) | K.any(axis=1))
            return S, H @ K[:, S]
        derivative = X.projected(root.y, h).derivative()
        S = np.flatnonzero(derivative.k)
        q, some = derivative.columns[S], H if len(S) == len(H) else H[:, S]
        HK = some * derivative.k[S] - (some @ q) @ q.T
        return S, HK if h is None else HK * h.reshape(-1)[S]

    def _differenced(self, root: _Root) -> Matrix:
        """Return the derivative of a projection at y, by differences if it has no formula."""
        X = self.problem.domain.X
        assert isinstance(X, ProjectableSet)
        known = X.jacobian(root.y)
        if known is not None:
            return known
        step = _DIFFERENCE * (float(np.abs(root.y).max()) or 1.0)
        shape = root.y.shape
        project = self.problem.project
        units = [step * unit.reshape(shape) for unit in np.eye(root.y.size)]
        columns = [(project(root.y + d) - project(root.y - d)).reshape(-1) / (2.0 * step) for d in units]
        return np.array(columns).T


def minimize_few(phi: Subproblem, task: Task, x: Point, accuracy: Accuracy) -> Point:
    """Return a point of X with a Wolfe gap of φ of at most accuracy(x), or as small as rounding allows.

    The model has the Hessian of φ at x; its step is as long as an exact line search on φ says. So φ decreases
    in every step, however the data are scaled.
    """
    f, domain = phi.f, Domain(task.X, task.lmo, task.projections)
    proximal = np.diag(phi.prox_grad(np.ones(x.shape)).reshape(-1))
    image, outcome, lowest, useless = f.map.image(x), Outcome.STEPS, math.inf, 0
    for _ in range(_FEW_STEPS):
        g = phi.grad(x, image)
        gap, e = vdot(g, x) - task.lmo(g, None).dot(g), accuracy(x)
        useless, lowest = (0, gap) if gap < 0.5 * lowest else (useless + 1, lowest)
        if gap <= max(e, phi.noise(x, image, task.X.diameter)) or useless == _FEW_USELESS:
            outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
            break
        q = Quadratic(f.map.gram(f.loss.hess(image)) + proximal, g.reshape(-1), x.reshape(-1))
        d = minimize_quadratic(q, domain, x, _at_most(max(_SHARE * e, _FALL * gap))) - x
        slope = vdot(g, d)
        if slope >= 0.0:
            outcome = Outcome.ROUNDING
            break
        gamma = line_minimizer(f.loss, image, f.map.image(d), slope, phi.prox_curvature(d), 1.0)
        x = x + gamma * d
        image = f.map.image(x)
    task.outcomes[outcome] += 1
    return x


def _at_most(gap: float) -> Tolerance:
    return lambda decrease: gap
