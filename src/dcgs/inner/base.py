"""The subproblem of one agent at one outer iteration, and what solves it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import final

from dcgs.counting import Oracle
from dcgs.memory import Memory, Past, Remembers
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, add_scaled, is_whole, norm, vdot
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True, eq=False)
class Subproblem:
    """φ(x) = f(x) + ⟨w, x⟩ + η/2 ‖x − center‖².

    With ``weights`` the norm is √(Σ weightsⱼ xⱼ²), which a solver has to know of: see :attr:`Inner.weighs`.
    """

    f: Objective
    w: Point
    eta: float
    center: Point
    weights: Point | None = None

    @cached_property
    def linear(self) -> Point:
        """The constant part of ∇φ − ∇f = (w − η·center) + η x."""
        return self.w - self.pull(self.center)

    def pull(self, x: Point) -> Point:
        """Return the gradient of η/2 ‖x‖²."""
        return self.eta * x if self.weights is None else self.eta * self.weights * x

    def bend(self, turn: Point) -> float:
        """Return η ‖turn‖², the curvature along a direction beside that of f."""
        return self.eta * vdot(turn, turn) if self.weights is None else vdot(turn, self.pull(turn))

    def value(self, x: Point) -> float:
        """Return φ(x)."""
        return self.value_at(x, self.f.map.image(x))

    def value_at(self, x: Point, image: Image) -> float:
        """Return φ(x), given the image A x."""
        return self.f.loss.value(image) + vdot(self.w, x) + 0.5 * self.bend(x - self.center)

    def grad(self, x: Point, image: Image) -> Point:
        """Return ∇φ(x), given the image A x that the solver carries along."""
        g = self.f.map.adjoint(self.f.loss.grad(image))
        g += self.linear
        if self.weights is None:
            add_scaled(self.eta, x, g)
        else:
            g += self.pull(x)
        return g

    def noise(self, x: Point, image: Image, diameter: float) -> float:
        """Return about the size of a Wolfe gap that is nothing but rounding error."""
        pull = self.eta * norm(x) if self.weights is None else norm(self.pull(x))
        rest = EPS * (norm(self.linear) + pull)
        return (self.f.grad_noise(image) + rest) * diameter


class Outcome(Enum):
    """How one inner solve ended."""

    REACHED = "the gap asked for was reached"
    ROUNDING = "the gap asked for is below rounding error; it was solved to rounding"
    STEPS = "max_steps steps were taken before the gap asked for was reached"


@final
@dataclass(frozen=True, eq=False)
class Task:
    """What an agent's inner solver works with, from the first outer iteration to the last.

    Each solve adds how it ended to ``outcomes``. ``past`` is the memory of the solver whose work a new one
    goes on with, None at the start of a run.
    """

    f: Objective
    X: ConvexSet
    lmo: Oracle
    x0: Point
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    past: Past | None = None


class Solver(Remembers):
    """One agent's inner solver: it owns the iterate and keeps what it learned from call to call."""

    @abstractmethod
    def __call__(self, phi: Subproblem, e: float) -> Point:
        """Return a point whose Wolfe gap for φ is at most e, starting from the last answer."""

    def memory(self) -> Memory:
        """Return all that the next solve depends on; asked for only if ``Inner.remembers``."""
        raise TypeError(f"a {type(self).__name__} cannot be kept in a checkpoint: it has no memory().")


class Inner(ABC):
    """A choice of inner solver, made once for all agents."""

    weighs: bool = False
    """Whether it solves subproblems that have weights."""
    remembers: bool = False
    """Whether its solvers have a ``memory()``, and start from ``Task.past`` where there is one."""

    @abstractmethod
    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        """Return why the solver cannot serve this objective over this set, or None if it can."""

    @abstractmethod
    def start(self, task: Task) -> Solver:
        """Return a fresh solver for one agent."""


def check_max_steps(max_steps: int) -> None:
    """Raise unless a solver may take at least one step."""
    if not is_whole(max_steps, 1):
        raise ValueError(f"max_steps must be a whole number of at least 1; got {max_steps!r}.")


def polytope_incompatibility(name: str, X: ConvexSet) -> str | None:
    """Return why a solver of that name, which needs a polytope, cannot serve X, or None if it can."""
    if X.polytope:
        return None
    return (
        f"{name} needs a set with finitely many extreme points; {type(X).__name__} is not one. "
        "Use inner='cg'."
    )
