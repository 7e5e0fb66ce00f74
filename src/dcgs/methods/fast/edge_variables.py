"""What an agent of FastDCGS over edges keeps for its edges: its center and its dual variables.

If messages always arrive, one center and one dual variable are enough, and an agent sends its point alone. If
they may be lost or late, an agent keeps one vector for each neighbor. As long as nothing is lost, both are
the same iteration, relaxed consensus ADMM, with relaxation ω.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.inner import Solver, Subproblem
from dcgs.methods.base import Dual
from dcgs.methods.fast.step_size import StepSize
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, norm, vdot

# The rounding errors of an update of w, in units of EPS times what is added.
_ROUNDINGS = 4.0


class EdgeVariables(ABC):
    """The variables of an agent for its edges."""

    def dual(self, step: StepSize, residual: float, solver: Solver) -> Dual | None:
        """Return the dual variable, with which the next inner solve is made, if all agents' sum to zero."""
        return None

    @abstractmethod
    def outgoing(self, x: Point, step: StepSize) -> dict[int, Point]:
        """Return the vector to send to each neighbor."""

    @abstractmethod
    def update(
        self, x: Point, step: StepSize, received: Mapping[int, Point], omega: float
    ) -> tuple[float, float]:
        """Use the vectors of neighbors; return the primal and the dual half of the squared residual."""

    @abstractmethod
    def subproblem(self, f: Objective, step: StepSize) -> Subproblem:
        """Return the subproblem of the next inner solve."""

    @abstractmethod
    def reference(self, x: Point) -> Point:
        """Return the point whose distance from the next x bounds the error of the inner solve."""


@final
@dataclass(eq=False)
class ReliableEdgeVariables(EdgeVariables):
    """The center c and the dual variable w of an agent whose messages always arrive. It sends x.

    What one end of an edge adds to its w, the other subtracts: the w of all agents sum to zero, up to the
    rounding errors of which ``drift`` is a bound. The line numbers are those of the box "FastDCGS over edges"
    in docs/methods.md.
    """

    c: Point
    w: Point
    drift: float = 0.0

    def dual(self, step: StepSize, residual: float, solver: Solver) -> Dual | None:
        return Dual(self.w, self.drift, step.eta, residual, step.preconditioner, solver)

    def outgoing(self, x: Point, step: StepSize) -> dict[int, Point]:
        return dict.fromkeys(step.resistances, x)

    def update(
        self, x: Point, step: StepSize, received: Mapping[int, Point], omega: float
    ) -> tuple[float, float]:
        v, dual, size = 0.0 * x, 0.0, 0.0
        for j, theirs in received.items():
            d = x - theirs
            v = v + step.weights[j] * d  # line 4
            scaled = step.preconditioned(d)
            dual += 0.5 * step.weights[j] * vdot(d, scaled)
            size += step.weights[j] * norm(scaled)
        ahead = x - v / (2.0 * step.eta) - self.c
        self.c = self.c + omega * ahead  # line 5
        self.w = self.w + (0.5 * omega) * step.preconditioned(v)  # line 6
        self.drift += EPS * (norm(self.w) + (_ROUNDINGS + len(received)) * omega * size)
        return step.eta * vdot(ahead, step.preconditioned(ahead)), dual

    def subproblem(self, f: Objective, step: StepSize) -> Subproblem:
        return Subproblem(f, self.w, step.eta, self.c, step.preconditioner)

    def reference(self, x: Point) -> Point:
        return self.c


@final
@dataclass(eq=False)
class LossyEdgeVariables(EdgeVariables):
    """A vector zᵢⱼ for each neighbor j of an agent whose messages may be lost or late.

    It sends qᵢⱼ = 2ρᵢⱼ x − zᵢⱼ. ``weights`` are the ρᵢⱼ with which the zᵢⱼ were made. With a preconditioner
    h, ρᵢⱼ is ρᵢⱼ h; ``is_preconditioned`` tells whether the zᵢⱼ were made with it. The line numbers are
    those of the box "FastDCGS over edges, where messages may be lost" in docs/faults.md.
    """

    z: dict[int, Point]
    weights: dict[int, float]
    is_preconditioned: bool = False

    @classmethod
    def at(cls, x: Point, step: StepSize) -> LossyEdgeVariables:
        """Return the variables of an agent that starts at x, with no dual variable."""
        return cls({j: weight * x for j, weight in step.weights.items()}, dict(step.weights))  # line 1

    def outgoing(self, x: Point, step: StepSize) -> dict[int, Point]:
        self._reweigh(x, step)  # line 5
        hx = step.preconditioned(x)
        return {j: 2.0 * self.weights[j] * hx - z for j, z in self.z.items()}  # line 3

    def update(
        self, x: Point, step: StepSize, received: Mapping[int, Point], omega: float
    ) -> tuple[float, float]:
        alpha, change = 0.5 * omega, 0.0
        for j, q in received.items():
            d = q - self.z[j]
            self.z[j] = self.z[j] + alpha * d  # line 4
            change += vdot(d, d) / self.weights[j]
        self._reweigh(x, step)  # line 5
        return change, 0.0

    def subproblem(self, f: Objective, step: StepSize) -> Subproblem:
        zero = np.zeros(f.shape)
        total = sum((self.z[j] for j in sorted(self.z)), start=zero)
        eta = sum(self.weights[j] for j in sorted(self.weights))
        scale = eta if step.preconditioner is None else eta * step.preconditioner
        return Subproblem(f, zero, eta, total / scale, step.preconditioner)  # line 6

    def reference(self, x: Point) -> Point:
        return x

    def _reweigh(self, x: Point, step: StepSize) -> None:
        """Change the zᵢⱼ to the current weights: zᵢⱼ is ρᵢⱼ x plus a dual variable, which stays."""
        switched = step.preconditioner is not None and not self.is_preconditioned
        for j, weight in step.weights.items():
            before = self.weights[j]
            if weight != before or switched:
                old = before * x if switched else before * step.preconditioned(x)
                self.z[j] = self.z[j] + weight * step.preconditioned(x) - old
                self.weights[j] = weight
        self.is_preconditioned = self.is_preconditioned or switched
