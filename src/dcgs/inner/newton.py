"""Newton: semismooth Newton steps on the dual of a subproblem, for sets whose projection has a derivative."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.inner.base import Accuracy, DistanceAccuracy, Inner, Outcome, Solver, Subproblem, Task
from dcgs.inner.compressed import CompressedSolver, used_columns
from dcgs.inner.newton_state import CompressedState, NewtonState
from dcgs.inner.newton_system import conjugate_gradient, solve_by_columns, solve_by_rows, weighted_gram
from dcgs.inner.projected import Metric, ProjectedSolver, reduced
from dcgs.objectives.centered import CenteredMap
from dcgs.objectives.losses import Image
from dcgs.objectives.maps import DenseMap, MatrixMap, SparseMap
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, frozen, norm, vdot
from dcgs.projections import Derivative, ProjectedPoint
from dcgs.sets.base import ConvexSet, DiagonallyProjectableSet
from dcgs.validation import COUNT

# A Newton step of full length is halved up to this number of times if the residual does not fall.
_HALVINGS = 5
# The system of a Newton step is factorized if that takes less time than about this number of passes over the
# data. Else it is solved by some conjugate gradient steps.
_PASSES = 40.0
# The speed of dense products, relative to sparse ones.
_DENSE_SPEED = 20.0
# An approximate step is used for at most _MOST_ROWS rows, if x has more than _MANY times as many nonzeros as
# there are rows. If it reduces the residual to more than _SLOW of what it was, exact steps follow.
_MOST_ROWS, _MANY, _SLOW = 1500, 4, 0.4
# Aᵀu is computed anew when its rounding error may be this multiple of what it is then.
_DRIFT = 16.0
# If x has fewer nonzeros than this share of all entries, their columns of A are gathered.
_FEW = 0.25


@final
@dataclass(frozen=True)
class Newton(Inner):
    """Semismooth Newton steps for u = ∇ℓ(A x(u)), x(u) = argmin over X of ⟨w + Aᵀu, x⟩ + η/2 ‖x − center‖².

    x(u) is a projection, so every iterate is in X. If F = u − ∇ℓ(A x) then x is the exact solution of a
    subproblem whose gradient differs by AᵀF, which bounds its error: docs/methods.md. A step solves
    (I + D A K Aᵀ/η) Δu = −F, with D = ∇²ℓ and K the derivative of the projection; its size is the number of
    rows of A, or the number of nonzeros of x if that is smaller. Warm-started, one or two steps are enough.
    Over an ℓ₁ ball, coordinates in which a sparse A has no entries are left out until they are needed.
    Where Newton steps fail, or after ``max_steps`` of them, projected gradient steps finish the solve.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.Newton(), answer="last")
    >>> X, graph = dcgs.L1Ball(2, radius=1.0), nx.path_graph(2)
    >>> result = dcgs.minimize(objectives, X, graph, method, iterations=20)
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
        if not isinstance(f.map, MatrixMap):
            return f"newton needs an objective of a matrix; got a {type(f.map).__name__}. Use inner='auto'."
        return None

    def supports_preconditioner(self, f: Objective, X: ConvexSet) -> bool:
        return True

    def start(self, task: Task) -> Solver:
        def make(task: Task, state: NewtonState | None) -> Solver:
            return _NewtonSolver(self, task, state)

        used = used_columns(task)
        return make(task, task.restore(NewtonState)) if used is None else CompressedSolver(task, used, make)


@final
@dataclass(frozen=True, eq=False)
class _Trial:
    """A dual variable u with Aᵀu, its point x(u), A x, and the residual F = u − ∇ℓ(A x)."""

    u: Image
    adjoint: Point
    projected: ProjectedPoint
    image: Image
    F: Image

    @property
    def x(self) -> Point:
        """The point x(u)."""
        return self.projected.point

    @cached_property
    def derivative(self) -> Derivative:
        """The derivative of the projection, which only a further step needs."""
        return self.projected.derivative()


@final
@dataclass(frozen=True, eq=False)
class _Step:
    """A change Δu of the dual variable, and Aᵀ Δu."""

    u: Image
    adjoint: Point


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
        self.columns = _Columns(self.f)
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
        if state.drift > _DRIFT * self._rounding(state.u):
            state.adjoint, state.drift = self.f.map.adjoint(state.u), self._rounding(state.u)
        last = best = self._trial(phi, state.u, state.adjoint)
        step, length, exact = _Step(last.u, last.adjoint), 1.0, False
        for _ in range(self.spec.max_steps):
            fall = 1.0 if last is best else norm(last.F) / norm(best.F)
            if last is best or fall < 1.0 - 1e-4 * length:
                exact, best, length = exact or _SLOW < fall < 1.0, last, 1.0
                ended, step = self._next_step(phi, best, accuracy, exact)
                if ended is not None:
                    self.task.outcomes[ended] += 1
                    drift = state.drift + self._rounding(best.u - state.u) + self._rounding(best.u)
                    self.state = NewtonState(frozen(best.x), best.u, best.adjoint, drift)
                    return self.state.x
            elif not exact:  # an approximate step failed: take an exact one from the same place
                exact, last = True, best
                continue
            else:
                length *= 0.5
                if length < 0.5**_HALVINGS:
                    break
            last = self._trial(phi, best.u + length * step.u, best.adjoint + length * step.adjoint)
        return self._finish_by_projections(phi, accuracy, best)

    def _next_step(
        self, phi: Subproblem, trial: _Trial, accuracy: Accuracy, exact: bool
    ) -> tuple[Outcome | None, _Step]:
        """Return how the solve ends at a trial, or None, and the next step."""
        none = _Step(trial.u, trial.adjoint)
        by_distance = isinstance(accuracy, DistanceAccuracy)
        bound, target = self._error_bound(phi, vdot(trial.F, trial.F), by_distance), accuracy(trial.x)
        if bound <= target:
            return Outcome.REACHED, none
        floor = self._floor(phi, trial)
        if bound <= floor:
            return Outcome.ROUNDING, none
        if not exact and self.columns.has_good_mean(phi, trial):
            return None, self.columns.approximate_step(phi, trial)
        change = self.f.map.adjoint(trial.F)
        bound = 0.5 * vdot(change, phi.scaled(change)) / phi.eta
        if bound <= max(target, floor):
            return Outcome.REACHED if bound <= target else Outcome.ROUNDING, none
        return None, _step(phi, trial, change, self.columns)

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

    def _trial(self, phi: Subproblem, u: Image, adjoint: Point) -> _Trial:
        """Return x(u) and the residual there, given Aᵀu."""
        self.task.projections.count += 1
        y = phi.center - phi.scaled(phi.w + adjoint) / phi.eta
        projected = self.X.projected(y, phi.preconditioner)
        image = self.columns.image(projected.point)
        F = u - self.f.loss.grad(image)
        return _Trial(u, adjoint, projected, image, F)

    def _floor(self, phi: Subproblem, trial: _Trial) -> float:
        """Return the bound that rounding error of the point and of the residual alone makes."""
        noise = self.f.grad_noise(trial.image) + EPS * (norm(phi.w) + phi.eta * norm(phi.center))
        return 8.0 * noise**2 / phi.eta

    def _finish_by_projections(self, phi: Subproblem, accuracy: Accuracy, best: _Trial) -> Point:
        task = replace(self.task, f=self.f, x0=best.x, saved=None)
        x = ProjectedSolver(task, 100_000)(phi, accuracy)
        self.state = self._at(x)
        return self.state.x


@final
class _Columns:
    """Products with some columns of A, gathered if they are few."""

    def __init__(self, f: Objective) -> None:
        assert isinstance(f.map, MatrixMap)
        self.map = f.map

    def image(self, x: Point) -> Image:
        """Return A x."""
        flat = x.reshape(-1)
        count = int(np.count_nonzero(flat))
        if count > _FEW * flat.size:
            return self.map.image(x)
        support = np.flatnonzero(flat)
        return np.asarray(self.some(support) @ flat[support])

    def some(self, support: NDArray[np.intp]) -> Any:
        """Return the columns of A of this support, dense or sparse as A is."""
        match self.map:
            case DenseMap():
                return self.map.A[:, support]
            case SparseMap():
                return self.map.columns[:, support]
            case CenteredMap():
                return self.map.A.some(support)
        raise AssertionError(self.map)

    def factorizes(self, n: int, s: int) -> bool:
        """Return True if a system with n rows and s columns of A is to be solved by a factorization."""
        least = min(n, s)
        match self.map:  # a sparse Gram matrix is cheap, and only the factorization counts
            case SparseMap():
                return least**3 <= _DENSE_SPEED * _PASSES * float(self.map.A.nnz)
            case CenteredMap():
                return least**3 <= _DENSE_SPEED * _PASSES * float(self.map.A.S.nnz)
        return least * s <= _PASSES * math.prod(self.map.shape)

    def has_good_mean(self, phi: Subproblem, trial: _Trial) -> bool:
        """Return True if A K Aᵀ is about mean(k) A Aᵀ: if x has many more nonzeros than A has rows."""
        n, hess = len(trial.u), phi.f.loss.hess(trial.image)
        is_flat = n <= _MOST_ROWS and float(hess.min()) == float(hess.max())
        return is_flat and int(np.count_nonzero(trial.derivative.k)) > _MANY * n

    def approximate_step(self, phi: Subproblem, trial: _Trial) -> _Step:
        """Return a step with mean(k) A Aᵀ in place of A K Aᵀ, which costs one pass over the data."""
        values, vectors = self.spectrum
        mean, hess = float(trial.derivative.k.mean()), phi.f.loss.hess(trial.image)
        u = -(vectors @ ((vectors.T @ trial.F) / (1.0 + (hess[0] * mean / phi.eta) * values)))
        return _Step(u, self.map.adjoint(u))

    @cached_property
    def spectrum(self) -> tuple[Image, NDArray[np.float64]]:
        """The eigenvalues and eigenvectors of A Aᵀ."""
        values, vectors = np.linalg.eigh(self.gram)
        return np.maximum(values, 0.0), vectors

    @cached_property
    def gram(self) -> NDArray[np.float64]:
        """A Aᵀ."""
        if isinstance(self.map, DenseMap):
            return self.map.row_gram
        return weighted_gram(self.map.A, np.ones(self.map.A.shape[1]))


def _step(phi: Subproblem, trial: _Trial, change: Point, columns: _Columns) -> _Step:
    """Return Δu with (I + D A K Aᵀ/η) Δu = −F, up to the tolerance of an inexact Newton step.

    With R = √D and Δu = −F + R q it is (I + B K Bᵀ/η) q = B K Aᵀ F/η for B = R A, which is symmetric.
    ``change`` is Aᵀ F.
    """
    R = np.sqrt(phi.f.loss.hess(trial.image))
    k, q = trial.derivative.k, trial.derivative.q
    support = np.flatnonzero(k)
    n, s, d = len(R), len(support), len(k)
    few = s <= _FEW * d
    A = columns.some(support) if few else columns.map.A
    k, q = (k[support], None if q is None else q[support]) if few else (k, q)

    K = Derivative(k, q)
    flat = change.reshape(-1)
    rhs = R * (A @ K.times(flat[support] if few else flat)) / phi.eta
    if columns.factorizes(n, s) and s > 0:
        p = None if q is None else R[:, None] * (A @ K.columns)
        if n <= s:
            full = s == d and float(k.min()) == float(k.max())
            gram = float(k[0]) * columns.gram if full else weighted_gram(A, np.sqrt(k))
            solution = solve_by_rows(R, gram, p, phi.eta, rhs)
        else:
            solution = solve_by_columns(A, R, np.sqrt(k), p, phi.eta, rhs)
    else:
        solution = conjugate_gradient(lambda v: v + R * (A @ K.times(A.T @ (R * v))) / phi.eta, rhs)
    moved = R * solution
    return _Step(moved - trial.F, columns.map.adjoint(moved) - change)
