"""The subproblem of an agent in an outer iteration, line search on it, and the interface of inner solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, ClassVar, TypeAlias, TypeVar, final

import numpy as np

from dcgs.atoms import Atom
from dcgs.counting import Oracle, Tally
from dcgs.objectives.losses import Image, Loss
from dcgs.objectives.maps import LinearMap
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, add_scaled, norm, vdot
from dcgs.sets.base import ConvexSet
from dcgs.state import SavedState

T = TypeVar("T")

Accuracy: TypeAlias = Callable[[Point], float]
"""x ↦ the bound of φ(x) − min φ with which x is accurate enough. A Wolfe gap is such a bound."""


@final
@dataclass(frozen=True, eq=False)
class Subproblem:
    """φ(x) = f(x) + ⟨w, x⟩ + η/2 ‖x − center‖².

    With a diagonal preconditioner h, ‖x‖² is Σ hⱼ xⱼ². Not every solver supports one: see
    :meth:`Inner.supports_preconditioner`.

    >>> import dcgs, numpy as np
    >>> f = dcgs.LeastSquares(np.eye(2), [1.0, 0.0])
    >>> phi = dcgs.Subproblem(f, w=np.ones(2), eta=2.0, center=np.zeros(2))
    >>> phi.value(np.ones(2))
    5.0
    """

    f: Objective
    w: Point
    eta: float
    center: Point
    preconditioner: Point | None = None

    @cached_property
    def linear(self) -> Point:
        """The constant part of ∇φ − ∇f = (w − η·center) + η x."""
        return self.w - self.prox_grad(self.center)

    def prox_grad(self, x: Point) -> Point:
        """Return η x (η h x with a preconditioner h), the gradient of η/2 ‖x‖²."""
        return self.eta * x if self.preconditioner is None else self.eta * self.preconditioner * x

    def prox_curvature(self, d: Point) -> float:
        """Return η ‖d‖², the curvature of φ − f along d."""
        return self.eta * vdot(d, d) if self.preconditioner is None else vdot(d, self.prox_grad(d))

    def value(self, x: Point) -> float:
        """Return φ(x)."""
        return self.value_at(x, self.f.map.image(x))

    def value_at(self, x: Point, image: Image) -> float:
        """Return φ(x), given the image A x."""
        return self.f.loss.value(image) + vdot(self.w, x) + 0.5 * self.prox_curvature(x - self.center)

    def grad(self, x: Point, image: Image) -> Point:
        """Return ∇φ(x), given the image A x, which the solver updates along with x."""
        g = self.f.map.adjoint(self.f.loss.grad(image))
        g += self.linear
        if self.preconditioner is None:
            add_scaled(self.eta, x, g)
        else:
            g += self.prox_grad(x)
        return g

    def grad_noise(self, x: Point, image: Image) -> float:
        """Return an estimate of the rounding error of ∇φ(x)."""
        prox = self.eta * norm(x) if self.preconditioner is None else norm(self.prox_grad(x))
        return self.f.grad_noise(image) + EPS * (norm(self.linear) + prox)

    def noise(self, x: Point, image: Image, diameter: float) -> float:
        """Return an estimate of the rounding error of a Wolfe gap at x."""
        return self.grad_noise(x, image) * diameter

    def with_objective(self, f: Objective) -> Subproblem:
        """Return the subproblem with another objective in place of f."""
        return self if f is self.f else replace(self, f=f)

    def squared(self, d: Point) -> float:
        """Return ‖d‖², with the preconditioner if there is one."""
        return vdot(d, d) if self.preconditioner is None else vdot(d, self.preconditioner * d)

    def scaled(self, g: Point) -> Point:
        """Return the gradient g divided by the preconditioner, if there is one."""
        return g if self.preconditioner is None else g / self.preconditioner


class Outcome(Enum):
    """How one inner solve ended.

    >>> import dcgs
    >>> dcgs.Outcome.REACHED.value
    'the accuracy asked for was reached'
    """

    REACHED = "the accuracy asked for was reached"
    ROUNDING = "the accuracy asked for is below rounding error; it was solved to rounding"
    STEPS = "max_steps steps were taken before the accuracy asked for was reached"


def gap_at_most(e: float) -> Accuracy:
    """Return the accuracy that asks for φ(x) − min φ ≤ e.

    >>> import dcgs, numpy as np
    >>> accuracy = dcgs.gap_at_most(1e-3)
    >>> accuracy(np.zeros(2))
    0.001
    """
    return lambda x: e


@final
@dataclass(frozen=True, eq=False)
class DistanceAccuracy:
    """An accuracy for which η/2 ‖x − x̂‖² ≤ bound(x) is enough, x̂ the minimizer of φ.

    φ(x) − min φ ≤ bound(x) implies it, because φ is η-strongly convex. A solver may also bound the distance
    directly, which needs fewer steps.

    >>> import dcgs, numpy as np
    >>> accuracy = dcgs.DistanceAccuracy(lambda x: 1e-3)
    >>> accuracy(np.zeros(2))
    0.001
    """

    bound: Accuracy

    def __call__(self, x: Point) -> float:
        """Return the bound at x."""
        return self.bound(x)


@final
@dataclass(frozen=True, eq=False)
class Task:
    """The input of an agent's inner solver, the same in all outer iterations.

    Each solve adds its outcome to ``outcomes``, and its projections to ``projections``. ``saved`` is the
    state of the solver of a run that is resumed.

    >>> import dcgs, numpy as np
    >>> f, X = dcgs.LeastSquares(np.eye(2), [3.0, 0.0]), dcgs.L1Ball(2, radius=1.0)
    >>> task = dcgs.Task(f, X, X.lmo, X.start())
    >>> solve = dcgs.CG().start(task)
    >>> phi = dcgs.Subproblem(f, w=np.zeros(2), eta=1.0, center=np.zeros(2))
    >>> solve(phi, dcgs.gap_at_most(1e-6))
    array([1., 0.])
    >>> task.outcomes
    Counter({<Outcome.REACHED: 'the accuracy asked for was reached'>: 1})
    """

    f: Objective
    X: ConvexSet
    lmo: Oracle
    x0: Point
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    projections: Tally = field(default_factory=Tally)
    saved: SavedState | None = None

    def restore(self, kind: type[T]) -> T | None:
        """Return the solver's state from a checkpoint; None in a new run."""
        return None if self.saved is None else self.saved.restore(kind)


class Solver(ABC):
    """One agent's inner solver: it stores the iterate and what the next call reuses.

    ``state`` is a dataclass of type :attr:`Inner.State`: all that the next call depends on.

    >>> import dcgs, numpy as np
    >>> f, X = dcgs.LeastSquares(np.eye(2), [3.0, 0.0]), dcgs.L1Ball(2, radius=1.0)
    >>> solve = dcgs.PCG().start(dcgs.Task(f, X, X.lmo, X.start()))
    >>> phi = dcgs.Subproblem(f, w=np.zeros(2), eta=1.0, center=np.zeros(2))
    >>> isinstance(solve, dcgs.Solver), solve(phi, dcgs.gap_at_most(1e-6))
    (True, array([1., 0.]))
    """

    state: Any = None

    @abstractmethod
    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        """Return a point x of X with φ(x) − min φ ≤ accuracy(x), starting from the last answer."""


class Inner(ABC):
    """A choice of inner solver, made once for all agents.

    >>> import dcgs, numpy as np
    >>> f = dcgs.LeastSquares(np.eye(2), [3.0, 0.0])
    >>> isinstance(dcgs.PCG(), dcgs.Inner), dcgs.PCG().incompatibility(f, dcgs.L1Ball(2))
    (True, None)
    >>> print(dcgs.PCG().incompatibility(f, dcgs.L2Ball(2)))
    pcg needs a set with finitely many extreme points; L2Ball is not one. Use inner='cg'.
    """

    State: ClassVar[type | None] = None
    """The dataclass of its solvers' state. With None, a run with this solver cannot be checkpointed."""
    stops_by_gap: ClassVar[bool] = True
    """True if a solve ends by its Wolfe gap. Over a large set that is far above φ(x) − min φ. FastDCGS then
    asks for no more than gaps of a schedule, which have a finite sum."""

    @abstractmethod
    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        """Return why the solver cannot be used for this objective over this set, or None if it can."""

    def supports_preconditioner(self, f: Objective, X: ConvexSet) -> bool:
        """Return True if it solves subproblems with a diagonal preconditioner."""
        return False

    @abstractmethod
    def start(self, task: Task) -> Solver:
        """Return a solver for one agent; ``task.restore(State)`` is the state to resume from, or None."""

    def start_beside(self, solver: Solver, task: Task) -> Solver:
        """Return a second solver, which starts at ``task.x0`` and does not change the state of the first.

        It may share what the first has computed about the data.
        """
        return self.start(task)


def needs_polytope(name: str, X: ConvexSet) -> str | None:
    """Return why a solver that needs a polytope cannot be used over X, or None if it can."""
    if X.polytope:
        return None
    return (
        f"{name} needs a set with finitely many extreme points; {type(X).__name__} is not one. "
        "Use inner='cg'."
    )


# Fewer bisections than this shrink a bracket to two neighboring doubles.
_MOST_TRIALS = 100
# The search ends when a step is shorter than this, relative to the bracket.
_SETTLED = 1e-14
# Every step adds a rounding error to the image. After so many steps it is computed from x.
_REFRESH = 200


def line_minimizer(
    loss: Loss, image: Image, motion: Image, slope: float, prox_curvature: float, limit: float
) -> float:
    """Return the γ ∈ [0, limit] that minimizes φ(x + γ d).

    ``image`` and ``motion`` are A x and A d, ``slope`` is ⟨∇φ(x), d⟩ < 0 and ``prox_curvature`` is η‖d‖². For
    a quadratic loss it takes one division, else safeguarded Newton steps.
    """
    lower, upper = loss.curvature
    if lower == upper:
        curvature = lower * float(motion @ motion) + prox_curvature
        return min(-slope / curvature, limit) if curvature > 0.0 else limit
    start = loss.grad(image)

    def slope_at(gamma: float) -> float:  # without the loss it is linear in γ
        change = loss.grad(image + gamma * motion) - start
        return slope + float(change @ motion) + gamma * prox_curvature

    if slope_at(limit) <= 0.0:
        return limit
    # The derivative is negative at 0 and positive at the limit; find its zero. Take a Newton step if it stays
    # in the bracket and is at most half the previous step, else bisect.
    left, right = 0.0, limit
    gamma, here, moved = 0.0, slope, limit
    for _ in range(_MOST_TRIALS):
        curvature = float((loss.hess(image + gamma * motion) * motion) @ motion) + prox_curvature
        step = -here / curvature if curvature > 0.0 else float("inf")
        if not left < gamma + step < right or abs(2.0 * step) > abs(moved):
            step = 0.5 * (left + right) - gamma
        gamma, moved = gamma + step, step
        here = slope_at(gamma)
        if here == 0.0 or abs(step) <= _SETTLED * right:
            break
        left, right = (gamma, right) if here < 0.0 else (left, gamma)
    return gamma


@final
@dataclass(eq=False)
class Pair:
    """A point and its image under a linear map; ``steps`` were taken since the image was computed from x."""

    x: Point
    image: Image
    steps: int = 0

    @classmethod
    def at(cls, x: Point, A: LinearMap) -> Pair:
        """Return the pair of a copy of x."""
        copy = np.array(x, dtype=np.float64, order="C")
        return cls(copy, A.image(copy))

    def reset(self, x: Point, A: LinearMap) -> None:
        """Replace the point by x, and compute its image."""
        self.x, self.image, self.steps = x, A.image(x), 0

    @property
    def stale(self) -> bool:
        """True if the image is due to be computed from x."""
        return self.steps >= _REFRESH

    def toward(self, atom: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (atom − x), given motion = A (atom − x)."""
        self.x *= 1.0 - gamma
        atom.add_to(self.x, gamma)
        self.image += gamma * motion
        self.steps += 1

    def swap(self, away: Atom, toward: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (toward − away), given motion = A (toward − away)."""
        toward.add_to(self.x, gamma)
        away.add_to(self.x, -gamma)
        self.image += gamma * motion
        self.steps += 1
