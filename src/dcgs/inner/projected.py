"""Solvers by projections: accelerated projected gradient steps, and the closed form over a Euclidean ball."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dorgqr, dptsv, dsytrd

from dcgs.inner.base import Accuracy, Inner, Outcome, Solver, Subproblem, Task
from dcgs.momentum import Momentum
from dcgs.objectives.losses import Image, SquaredLoss
from dcgs.objectives.maps import DenseMap
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen, norm, vdot
from dcgs.projections import on_sphere
from dcgs.sets.base import ConvexSet, DiagonallyProjectableSet, ProjectableSet
from dcgs.sets.norm_balls import L2Ball
from dcgs.validation import COUNT

# The rounding error of a step, in units of the rounding error of one gradient.
_ROUNDINGS = 4.0
# Least squares with more than this number of rows per column are replaced by a square triangular system.
_TALL = 2.0
# About √(β/η) steps reduce the bound by a constant factor. It has stopped falling if it is not below _FALL
# times its lowest value after _PATIENCE times as many.
_FALL, _PATIENCE = 0.5, 20
# Columns that LAPACK's routines for matrices transform together.
_BLOCK = 32


@final
@dataclass(eq=False)
class ProjectedState:
    """The iterate with its image."""

    x: Point
    image: Image


@final
@dataclass(frozen=True)
class Projected(Inner):
    """Accelerated projected gradient steps (FISTA with restarts, for a strongly convex function).

    A step is v = P(y − ∇φ(y)/β) with β = l + η. It ends at a v with β²‖v − y‖²/(2η) ≤ accuracy(v). As φ is
    η-strongly convex, the left side bounds φ(v) − min φ. This takes about √(β/η) steps, and is independent of
    the diameter of X, on which a Wolfe gap depends. ``max_steps`` bounds the steps of one solve.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.Projected(), answer="last")
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), method, iterations=20)
    >>> result.x.round(3) + 0.0
    array([1., 0.])
    """

    max_steps: int = 100_000
    State = ProjectedState
    stops_by_gap = False

    def __post_init__(self) -> None:
        COUNT(self.max_steps, "max_steps")

    def supports_preconditioner(self, f: Objective, X: ConvexSet) -> bool:
        return isinstance(X, DiagonallyProjectableSet)

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        if isinstance(X, ProjectableSet):
            return None
        return (
            "projected needs a set with a Euclidean projection; "
            f"{type(X).__name__} has none. Use inner='auto'."
        )

    def start(self, task: Task) -> Solver:
        return ProjectedSolver(task, self.max_steps)

    def start_beside(self, solver: Solver, task: Task) -> Solver:
        assert isinstance(solver, ProjectedSolver)
        return ProjectedSolver(replace(task, f=solver.f), self.max_steps)


@final
class ProjectedSolver(Solver):
    """The solver of :class:`Projected`."""

    state: ProjectedState

    def __init__(self, task: Task, max_steps: int) -> None:
        assert isinstance(task.X, ProjectableSet)
        self.task = task
        self.X: ProjectableSet = task.X
        self.max_steps = max_steps
        self.f = reduced(task.f)
        self.metric = Metric(self.f)
        self.state = task.restore(ProjectedState) or ProjectedState(
            frozen(task.x0), self.f.map.image(task.x0)
        )

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        phi = phi.with_objective(self.f)
        state, map_ = self.state, self.f.map
        beta = self.metric.smoothness(phi) + phi.eta
        root = math.sqrt(phi.eta / beta)
        momentum = Momentum(most=(1.0 - root) / (1.0 + root))
        y, image = state.x, state.image
        noise = _ROUNDINGS * phi.grad_noise(y, image)
        outcome = Outcome.STEPS
        stall = Stall(beta / phi.eta)
        for _ in range(self.max_steps):
            v = self._project(phi, y - phi.scaled(phi.grad(y, image)) / beta)
            image_v = map_.image(v)
            d = v - y
            # Without curvature of f, the first step is exact.
            bound = 0.5 * beta**2 * phi.squared(d) / phi.eta if beta > phi.eta else 0.0
            floor = 0.5 * noise**2 / phi.eta
            uphill = vdot(d, v - state.x) < 0.0
            theta = momentum.weight(restart=uphill)
            y, image = v + theta * (v - state.x), image_v + theta * (image_v - state.image)
            state.x, state.image = v, image_v
            target = accuracy(v)
            if bound <= max(target, floor):
                outcome = Outcome.REACHED if bound <= target else Outcome.ROUNDING
                break
            if stall.is_reached(bound):
                outcome = Outcome.ROUNDING
                break
        self.task.outcomes[outcome] += 1
        state.x = frozen(state.x)
        return state.x

    def _project(self, phi: Subproblem, y: Point) -> Point:
        self.task.projections.count += 1
        if phi.preconditioner is None:
            return self.X.project(y)
        assert isinstance(self.X, DiagonallyProjectableSet)
        return self.X.projected(y, phi.preconditioner).point


@final
class Metric:
    """The smoothness of an objective in the metric of a subproblem, computed once for each preconditioner."""

    def __init__(self, f: Objective) -> None:
        self.f = f
        self._of: Point | None = None
        self._smoothness = f.smoothness

    def smoothness(self, phi: Subproblem) -> float:
        """Return the largest curvature of f relative to the preconditioner of φ."""
        if phi.preconditioner is not self._of:
            self._of = phi.preconditioner
            self._smoothness = self.f.smoothness_by(self._of)
        return self._smoothness


@final
class Stall:
    """Follows the bounds of accelerated steps, for a condition number β/η."""

    def __init__(self, condition: float) -> None:
        self.patience = _PATIENCE * math.ceil(math.sqrt(condition))
        self.lowest = math.inf
        self.waited = 0

    def is_reached(self, bound: float) -> bool:
        """Return True if the bound of this step shows that no further progress is possible."""
        if bound < _FALL * self.lowest:
            self.lowest, self.waited = bound, 0
            return False
        self.waited += 1
        return self.waited > self.patience


def reduced(f: Objective) -> Objective:
    """Return an objective equal to f up to a constant, with no more rows than columns if that is exact.

    ‖A x − b‖² is ‖R x − c‖² plus a constant, where R and c are parts of the triangular factor of [A b].
    """
    A = f.map.A if isinstance(f.map, DenseMap) else None
    if A is None or not isinstance(f.loss, SquaredLoss) or A.shape[0] <= _TALL * A.shape[1]:
        return f
    d = A.shape[1]
    R = scipy.linalg.qr(np.column_stack([A, f.loss.target]), mode="r")[0][: d + 1]
    return Objective(SquaredLoss(R[:d, d]), DenseMap(np.ascontiguousarray(R[:d, :d]), f.shape))


@final
@dataclass(frozen=True)
class ExactState:
    """Nothing: everything is computed from the data."""


@final
@dataclass(frozen=True)
class Exact(Inner):
    """Solve the subproblem by one tridiagonal form of 2AᵀA and one scalar equation.

    φ is then a quadratic whose minimizer over ‖x‖ ≤ ρ is x(μ) = (2AᵀA + (η + μ) I)⁻¹ h, with the
    multiplier μ = 0 if x(0) is in the ball, and else the root of ‖x(μ)‖ = ρ. No oracle is called.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.Exact(), answer="last")
    >>> result = dcgs.minimize(objectives, dcgs.L2Ball(2), nx.path_graph(2), method, iterations=20)
    >>> result.x.round(3) + 0.0
    array([1., 0.])
    """

    State = ExactState
    stops_by_gap = False

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        if isinstance(X, L2Ball) and isinstance(f.map, DenseMap) and isinstance(f.loss, SquaredLoss):
            return None
        return (
            "the closed form is for LeastSquares with a dense matrix over an L2Ball; "
            f"got {type(f.loss).__name__} with {type(f.map).__name__} over {type(X).__name__}. "
            "Use inner='auto'."
        )

    def start(self, task: Task) -> Solver:
        assert isinstance(task.f.map, DenseMap)
        assert isinstance(task.X, L2Ball)
        return _ExactSolver(task, task.f.map.A, task.X.radius)

    def start_beside(self, solver: Solver, task: Task) -> Solver:
        return solver  # it has no state


@final
class _ExactSolver(Solver):
    state: ExactState

    def __init__(self, task: Task, A: Point, radius: float) -> None:
        self.task = task
        self.state = ExactState()
        self.radius = radius
        rows, d = A.shape
        basis, B = None, A  # the rounding error of AᵀA is that of a gradient
        if rows < d:
            basis, R = scipy.linalg.qr(A.T, mode="economic")
            B = R.T
        # 2BᵀB = V T Vᵀ with a tridiagonal T takes a third of the time of the spectrum.
        side = min(rows, d)
        reflectors, diagonal, beside, tau, _ = dsytrd(2.0 * (B.T @ B), lower=1, lwork=_BLOCK * side)
        V = np.eye(side)
        if side > 1:
            V[1:, 1:] = dorgqr(reflectors[1:, :-1], tau, lwork=_BLOCK * side)[0]
        self.V, self.diagonal = V if basis is None else basis @ V, diagonal
        if rows < d:  # and one direction in the null space of A, where the curvature is η alone
            self.diagonal = np.append(diagonal, 0.0)
        self.beside = np.append(beside, 0.0)[: max(1, len(self.diagonal) - 1)]  # of one entry for one number
        # 2Aᵀb, from the gradient at zero.
        self.linear = -task.f.grad(np.zeros(task.X.shape)).reshape(-1)

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        V, h = self.V, self.linear - (phi.w - phi.eta * phi.center).reshape(-1)
        inside = h @ V
        if V.shape[1] == len(h):
            x = V @ self._minimizer(inside, phi.eta)
        else:
            outside = h - V @ inside
            # Twice, because a rounding error would be divided by η alone as well.
            outside -= V @ (outside @ V)
            rest = norm(outside)
            z = self._minimizer(np.append(inside, rest), phi.eta)
            x = V @ z[:-1] + outside * (z[-1] / (rest or 1.0))
        self.task.outcomes[Outcome.ROUNDING] += 1
        return frozen(x.reshape(self.task.X.shape))

    def _minimizer(self, h: Point, eta: float) -> Point:
        """Return z(μ) = (T + (η + μ) I)⁻¹ h, with μ = 0 if that is in the ball."""

        def solved(side: Point, mu: float) -> Point:
            _, _, z, info = dptsv(self.diagonal + (eta + mu), self.beside, side)
            if info != 0:
                raise np.linalg.LinAlgError(f"η = {eta!r} is rounding error beside the data.")
            return np.asarray(z)

        return on_sphere(lambda mu: solved(h, mu), lambda z, mu: vdot(z, solved(z, mu)), self.radius)[0]
