"""Newton: semismooth Newton steps on the dual of a subproblem, for sets whose projection has a derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.inner.base import Accuracy, DistanceAccuracy, Inner, Outcome, Solver, Subproblem, Task
from dcgs.inner.newton_system import Columns, Step, TrialPoint, newton_step
from dcgs.inner.projected import Metric, ProjectedSolver, reduced
from dcgs.inner.quadratic import FEW, MOST, TALL, WEAK, minimize_few
from dcgs.objectives.losses import Image
from dcgs.objectives.maps import MatrixMap, SparseMap
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, frozen, norm, vdot
from dcgs.sets.base import ConvexSet, DiagonallyProjectableSet
from dcgs.sets.norm_balls import L1Ball
from dcgs.validation import COUNT

# A Newton step of full length is halved up to this number of times if the residual does not fall.
_HALVINGS = 5
# If an approximate step reduces the residual to more than this share of what it was, exact steps follow.
_SLOW = 0.4
# Proximal point steps, where steps on the dual fail: their first η as a share of the smoothness of f, by what
# it is divided at first and at least, and the error of a step beside its length.
_FIRST, _FACTOR, _SMALLEST_FACTOR, _SIGMA = 0.1, 2.0, 1.1, 0.1
# Aᵀu is computed anew when its rounding error may be this multiple of what it is then.
_DRIFT = 16.0
# With fewer coordinates, or if A has entries in more than this share of them, nothing is saved by leaving out
# the others.
_LEAST, _SHARE = 10_000, 0.5

Coordinates: TypeAlias = NDArray[np.int64]


@final
@dataclass(eq=False)
class NewtonState:
    """The last answer, and the dual variable u of the last solve with Aᵀu.

    ``drift`` estimates the rounding error of Aᵀu, which grows as it is updated from step to step.
    """

    x: Point
    u: Image
    adjoint: Point
    drift: float

    def with_zeros(self, count: int) -> NewtonState:
        """Return the state with so many coordinates more, in which A has no entries and x is zero."""
        none = np.zeros(count)
        x, adjoint = np.concatenate([self.x, none]), np.concatenate([self.adjoint, none])
        return NewtonState(x, self.u, adjoint, self.drift)


@final
@dataclass(eq=False)
class CompressedState:
    """The coordinates over which a compressed solver works, and the state of its solves over them."""

    coordinates: Coordinates
    newton: NewtonState


@final
@dataclass(frozen=True)
class Newton(Inner):
    """Semismooth Newton steps for u = ∇ℓ(A x(u)), x(u) = argmin over X of ⟨w + Aᵀu, x⟩ + η/2 ‖x − center‖².

    x(u) is a projection, so every iterate is in X. If F = u − ∇ℓ(A x) then x is the exact solution of a
    subproblem whose gradient differs by AᵀF, which bounds its error: docs/methods.md. A step solves
    (I + D A K Aᵀ/η) Δu = −F, with D = ∇²ℓ and K the derivative of the projection; its size is the number of
    rows of A, or the number of nonzeros of x if that is smaller. Warm-started, one or two steps are enough.
    Over an ℓ₁ ball, coordinates in which a sparse A has no entries are left out until they are needed.
    Where they fail, or after ``max_steps`` of them, proximal point steps with a larger η follow, and where
    these fail projected gradient steps. With at most 64 unknowns, Newton steps on φ itself do; with at most
    500, ten times as many rows and a small η, these are taken at once.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.Newton(), answer="last")
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), method, iterations=20)
    >>> result.x.round(3) + 0.0
    array([1., 0.])
    """

    max_steps: int = 50
    State = NewtonState | CompressedState
    stops_by_gap = False

    def __post_init__(self) -> None:
        COUNT(self.max_steps, "max_steps")

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        if not isinstance(X, DiagonallyProjectableSet):
            return (
                "newton needs a set whose projection has a known derivative; "
                f"{type(X).__name__} has none. Use inner='auto'."
            )
        if f.loss.curvature[0] < 0.0:
            return f"newton needs a convex loss; {type(f.loss).__name__} is not one. Use inner='auto'."
        if not isinstance(f.map, MatrixMap):
            return f"newton needs an objective of a matrix; got a {type(f.map).__name__}. Use inner='auto'."
        return None

    def supports_preconditioner(self, f: Objective, X: ConvexSet) -> bool:
        return True

    def start(self, task: Task) -> Solver:
        used = _used_columns(task)
        if used is not None:
            return CompressedSolver(self, task, used)
        return _NewtonSolver(self, task, task.restore(NewtonState))

    def start_beside(self, solver: Solver, task: Task) -> Solver:
        if isinstance(solver, _NewtonSolver):
            return _NewtonSolver(self, replace(task, f=solver.f), None)
        return self.start(task)


@final
class _NewtonSolver(Solver):
    state: NewtonState

    def __init__(self, spec: Newton, task: Task, state: NewtonState | None) -> None:
        assert isinstance(task.X, DiagonallyProjectableSet)
        self.spec = spec
        self.task = task
        self.X: DiagonallyProjectableSet = task.X
        self.f = reduced(task.f)
        self.metric = Metric(self.f)
        self.columns = Columns(self.f)
        self.state = state or self._at(task.x0)

    def _at(self, x: Point) -> NewtonState:
        """Return the state of a solver that starts at x."""
        u = self.f.loss.grad(self.f.map.image(x))
        return NewtonState(frozen(x), u, self.f.map.adjoint(u), self._rounding(u))

    def _rounding(self, u: Image) -> float:
        """Return an estimate of the rounding error of Aᵀu."""
        return EPS * self.f.map.norm_bound * norm(u)

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        phi, state = phi.with_objective(self.f), self.state
        if self._is_tall(phi):
            self.state = self._at(minimize_few(phi, replace(self.task, f=self.f), state.x, accuracy))
            return self.state.x
        outcome = self._dual_steps(phi, accuracy)
        if outcome is None and state.x.size > FEW:
            outcome = self._proximal_points(phi, accuracy)
        if outcome is None:
            self.state = self._at(self._otherwise(phi, min(self.state.x, state.x, key=phi.value), accuracy))
        else:
            self.task.outcomes[outcome] += 1
        return self.state.x

    def _dual_steps(self, phi: Subproblem, accuracy: Accuracy) -> Outcome | None:
        """Move to the minimizer of φ by steps on the dual; None if they end before it."""
        state = self.state
        if state.drift > _DRIFT * self._rounding(state.u):
            state.adjoint, state.drift = self.f.map.adjoint(state.u), self._rounding(state.u)
        last = best = self._trial(phi, state.u, state.adjoint)
        step, length, exact = Step(last.u, last.adjoint), 1.0, False
        for _ in range(self.spec.max_steps):
            fall = 1.0 if last is best else norm(last.F) / norm(best.F)
            if last is best or fall < 1.0 - 1e-4 * length:
                exact, best, length = exact or _SLOW < fall < 1.0, last, 1.0
                try:
                    following = self._next_step(phi, best, accuracy, exact)
                except np.linalg.LinAlgError:  # η is so small that the system is singular in floating point
                    break
                if isinstance(following, Outcome):
                    drift = state.drift + self._rounding(best.u - state.u) + self._rounding(best.u)
                    self.state = NewtonState(frozen(best.x), best.u, best.adjoint, drift)
                    return following
                step = following
            elif not exact:  # an approximate step failed: take an exact one from the same place
                exact, last = True, best
                continue
            else:
                length *= 0.5
                if length < 0.5**_HALVINGS:
                    break
            last = self._trial(phi, best.u + length * step.u, best.adjoint + length * step.adjoint)
        self.state = self._at(best.x)
        return None

    def _proximal_points(self, phi: Subproblem, accuracy: Accuracy) -> Outcome | None:
        """Move to the minimizer of φ with a larger η around one point after another; None if that fails.

        The systems of steps on the dual are then better conditioned. η falls to that of φ.
        """
        eta, factor = max(phi.eta, _FIRST * self.metric.smoothness(phi)), _FACTOR
        while factor > _SMALLEST_FACTOR:
            before, p = self.state, self.state.x
            around = replace(phi, eta=eta, center=p + (phi.eta / eta) * (phi.center - p))
            is_last = eta == phi.eta
            outcome = self._dual_steps(around, accuracy if is_last else _beside_step(around, p, accuracy))
            if outcome is not None and is_last:
                return outcome
            if outcome is None:
                self.state, factor = before, math.sqrt(factor)
                eta *= factor
            else:
                eta = max(phi.eta, eta / factor)
        return None

    def _is_tall(self, phi: Subproblem) -> bool:
        """Return True if Newton steps on φ come first: steps on the dual fail or are many."""
        rows, d = self.f.map.size, phi.center.size
        return d <= MOST and rows >= TALL * d and self.metric.smoothness(phi) > WEAK * phi.eta

    def _otherwise(self, phi: Subproblem, x: Point, accuracy: Accuracy) -> Point:
        """Return the minimizer of φ where Newton steps on the dual failed, starting at x."""
        task = replace(self.task, f=self.f, x0=x, saved=None)
        if x.size <= FEW:
            return minimize_few(phi, task, x, accuracy)
        return ProjectedSolver(task, 100_000)(phi, accuracy)

    def _next_step(
        self, phi: Subproblem, trial: TrialPoint, accuracy: Accuracy, exact: bool
    ) -> Outcome | Step:
        """Return the next step from a trial, or how the solve ends there."""
        by_distance = isinstance(accuracy, DistanceAccuracy)
        bound, target = self._error_bound(phi, vdot(trial.F, trial.F), by_distance), accuracy(trial.x)
        if bound <= target:
            return Outcome.REACHED
        # The bound that rounding error of the point and of the residual alone makes.
        noise = self.f.grad_noise(trial.image) + EPS * (norm(phi.w) + phi.eta * norm(phi.center))
        floor = 8.0 * noise**2 / phi.eta
        if bound <= floor:
            return Outcome.ROUNDING
        if not exact and self.columns.has_good_mean(phi, trial):
            return self.columns.approximate_step(phi, trial)
        change = self.f.map.adjoint(trial.F)
        bound = 0.5 * vdot(change, phi.scaled(change)) / phi.eta
        if bound <= max(target, floor):
            return Outcome.REACHED if bound <= target else Outcome.ROUNDING
        return newton_step(phi, trial, change, self.columns)

    def _error_bound(self, phi: Subproblem, squared: float, by_distance: bool) -> float:
        """Return a bound of φ(x) − min φ, or of η/2 ‖x − x̂‖² if ``by_distance``, given ‖F‖².

        Let h be the least second derivative of the loss and λ = ‖A‖². The first bound is by strong convexity
        in the norm of η I + h AᵀA. For e = x − x̂ and a share θ, η‖e‖² + h‖A e‖² ≤ −⟨F, A e⟩ implies
        θ η‖e‖² ≤ −⟨F, A e⟩ − (h + (1 − θ) η/λ)‖A e‖² ≤ ‖F‖²/(4 (h + (1 − θ) η/λ)); the best θ is
        (η + h λ)/(2η), and at most 1.
        """
        lower, upper = self.f.loss.curvature
        norm_A, least = self.metric.smoothness(phi) / (upper or 1.0), max(0.0, lower)
        total = phi.eta + least * norm_A
        if not by_distance:
            return 0.5 * squared * norm_A / total
        if least * norm_A >= phi.eta:
            return squared / (8.0 * least)
        return 0.5 * squared * norm_A * phi.eta / total**2

    def _trial(self, phi: Subproblem, u: Image, adjoint: Point) -> TrialPoint:
        """Return x(u) and the residual there, given Aᵀu."""
        self.task.projections.count += 1
        y = phi.center - phi.scaled(phi.w + adjoint) / phi.eta
        projected = self.X.projected(y, phi.preconditioner)
        image = self.columns.image(projected.point)
        F = u - self.f.loss.grad(image)
        return TrialPoint(u, adjoint, projected, image, F)


def _beside_step(phi: Subproblem, p: Point, accuracy: Accuracy) -> Accuracy:
    """Return the accuracy of a proximal point step from p: small beside its length, at least that given."""
    return lambda x: max(accuracy(x), 0.5 * phi.eta * _SIGMA**2 * phi.squared(x - p))


def _used_columns(task: Task) -> Coordinates | None:
    """Return the columns in which an agent has entries, if a compressed solver pays, else None."""
    if not (isinstance(task.X, L1Ball) and isinstance(task.f.map, SparseMap) and len(task.X.shape) == 1):
        return None
    used = np.flatnonzero(np.diff(task.f.map.columns.indptr))
    return used if task.X.shape[0] >= _LEAST and len(used) <= _SHARE * task.X.shape[0] else None


@final
class CompressedSolver(Solver):
    """Newton solves over the columns of A with entries, and where x⁰, w or the center is not 0.

    Let A have no entries in column j, and let w and the center be zero there. Then the minimizer of φ over an
    ℓ₁ ball is zero there as well: a smaller |xⱼ| lowers φ, and stays in the ball. So the solve is exact
    without this coordinate. An agent with few of all features takes time in proportion to these, and not to
    all. Coordinates are added when a subproblem needs them.
    """

    def __init__(self, spec: Newton, task: Task, used: Coordinates) -> None:
        self.spec, self.task, self.used = spec, task, used
        self.outside = np.ones(task.X.shape, dtype=np.bool_)
        self.preconditioner: tuple[Point, Point] | None = None
        saved = task.restore(CompressedState)
        self.outside[used] = False
        more = np.flatnonzero(self.outside & (task.x0 != 0.0))
        self.coordinates = np.concatenate([used, more]) if saved is None else saved.coordinates
        self._build(None if saved is None else saved.newton)

    @property
    def state(self) -> CompressedState:
        return CompressedState(self.coordinates, self.solver.state)

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        more = np.flatnonzero(self.outside & ((phi.center != 0.0) | (phi.w != 0.0)))
        if len(more):
            self.coordinates = np.concatenate([self.coordinates, more])
            self._build(self.solver.state.with_zeros(len(more)))
        J = self.coordinates
        small = Subproblem(self.f, phi.w[J], phi.eta, phi.center[J], self._compressed(phi.preconditioner))
        return self._whole(self.solver(small, self._by_whole(accuracy)))

    def _build(self, state: NewtonState | None) -> None:
        """Make the solver over the current coordinates, with this state or that of a new run."""
        J, f = self.coordinates, self.task.f
        assert isinstance(f.map, SparseMap)
        assert isinstance(self.task.X, L1Ball)
        self.outside[J] = False
        self.preconditioner = None
        self.f = Objective(f.loss, f.map.with_columns(self.used, len(J)))
        X = L1Ball(len(J), self.task.X.radius)
        task = replace(self.task, f=self.f, X=X, x0=self.task.x0[J], saved=None)
        self.solver = _NewtonSolver(self.spec, task, state)

    def _compressed(self, h: Point | None) -> Point | None:
        """Return the entries of a preconditioner; the same array for the same preconditioner."""
        if h is None:
            return None
        if self.preconditioner is None or self.preconditioner[0] is not h:
            self.preconditioner = h, h[self.coordinates]
        return self.preconditioner[1]

    def _whole(self, x: Point) -> Point:
        whole = np.zeros(self.task.X.shape)
        whole[self.coordinates] = x
        return frozen(whole)

    def _by_whole(self, accuracy: Accuracy) -> Accuracy:
        def bound(x: Point) -> float:
            return accuracy(self._whole(x))

        return DistanceAccuracy(bound) if isinstance(accuracy, DistanceAccuracy) else bound
