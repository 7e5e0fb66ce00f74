"""PG-EXTRA: a method that projects, for comparison.

Shi, Ling, Wu and Yin, *A Proximal Gradient Algorithm for Decentralized Composite Optimization*, IEEE
Transactions on Signal Processing, 2015.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.methods.base import Agent, Method
from dcgs.methods.mixing import average
from dcgs.methods.projections import projection_incompatibility, projector
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Facts
from dcgs.sets.base import ConvexSet
from dcgs.validation import POSITIVE, number


@final
@dataclass(eq=False)
class PGExtraState:
    """The iterate x = projection of z, the mixed iterate before, and the last gradient."""

    x: Point
    z: Point
    x_tilde: Point
    grad_prev: Point


@final
@dataclass(frozen=True)
class PGExtra(Method):
    """Projected gradient steps, corrected by the steps before; one round and one projection an iteration.

    It mixes with V = μ I + (1 − μ) W, W the Metropolis weights, μ the ``laziness``. All agents take the
    same ``step`` α. The method converges for α < (5 + 3 λ_min(V))/(4 l), l the largest smoothness of all
    agents: Li and Yan (arXiv:1711.06785), which for V with eigenvalues below 1 is more than the first
    paper's (1 + λ_min(V))/l. By default α is 0.99 times that. λ_min(W) and l are assumed to be known to
    all agents before the run.
    """

    step: float | None = None
    laziness: float = 0.5
    rounds_per_iteration = 1
    projects = True
    State = PGExtraState

    def __post_init__(self) -> None:
        POSITIVE.or_none(self.step, "step")
        number("be at least 0 and less than 1", lambda x: 0.0 <= x < 1.0)(self.laziness, "laziness")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return projection_incompatibility(self, X)

    def program(self, agent: Agent) -> Program[Point]:
        f, W, project, mu = agent.f, agent.metropolis, projector(agent), self.laziness
        alpha = self.step or self._bound(agent.facts)
        zero = 0.0 * agent.x0
        at = agent.restore(PGExtraState) or PGExtraState(agent.x0, zero, zero, zero)
        for k in agent.iterations_left:
            grad = f.grad(at.x)
            x_bar = mu * at.x + (1.0 - mu) * (yield from average(at.x, W))
            at.z = at.z + x_bar - at.x_tilde - alpha * (grad - at.grad_prev)
            at.x_tilde, at.grad_prev = 0.5 * (at.x + x_bar), grad
            at.x = project(at.z)
            agent.observe(k, at.x)
            agent.save(k, at)
        return at.x

    def _bound(self, facts: Facts) -> float:
        """Return 0.99 (5 + 3 λ_min(V))/(4 l); 1 if all objectives are linear."""
        smallest = self.laziness + (1.0 - self.laziness) * facts.mixing[0]
        if facts.smoothness == 0.0:
            return 1.0
        return 0.99 * (5.0 + 3.0 * smallest) / (4.0 * facts.smoothness)
