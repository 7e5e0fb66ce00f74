"""PG-EXTRA, a peer that projects.

Shi, Ling, Wu and Yin, *A Proximal Gradient Algorithm for Decentralized Composite Optimization*, IEEE
Transactions on Signal Processing, 2015.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.methods.base import Agent, Method
from dcgs.methods.projections import check_step, projection_incompatibility, projector
from dcgs.methods.talk import average
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Facts
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True)
class PGExtra(Method):
    """Projected gradient steps, corrected by the steps before; one round and one projection an iteration.

    It mixes with V = μ I + (1 − μ) W, W the Metropolis weights, μ the ``laziness``. All agents take the
    same ``step`` α. The method converges for α < (5 + 3 λ_min(V))/(4 l), l the largest smoothness of all
    agents: Li and Yan (arXiv:1711.06785), which for V with eigenvalues below 1 is more than the first
    paper's (1 + λ_min(V))/l. By default α is 0.99 times that. λ_min(W) and l are taken to be known to
    all beforehand.
    """

    step: float | None = None
    laziness: float = 0.5
    rounds_per_iteration = 1
    projects = True

    def __post_init__(self) -> None:
        check_step(self.step)
        if not 0.0 <= self.laziness < 1.0:
            raise ValueError(f"laziness must be at least 0 and less than 1; got {self.laziness!r}.")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return projection_incompatibility(self, X)

    def program(self, agent: Agent) -> Program[Point]:
        f, W, project, mu = agent.f, agent.metropolis, projector(agent), self.laziness
        alpha = self.step or self._bound(agent.facts)
        x = agent.x0
        z = x_tilde = grad_prev = 0.0 * x
        if agent.past is not None:
            x, z, x_tilde, grad_prev = agent.past.points("x", "z", "x_tilde", "grad_prev")
        for k in agent.ks:
            grad = f.grad(x)
            x_bar = mu * x + (1.0 - mu) * (yield from average(x, W))
            z = z + x_bar - x_tilde - alpha * (grad - grad_prev)
            x_tilde, grad_prev = 0.5 * (x + x_bar), grad
            x = project(z)
            agent.observe(k, x)
            agent.keep(k, x=x, z=z, x_tilde=x_tilde, grad_prev=grad_prev)
        return x

    def forgets(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def _bound(self, facts: Facts) -> float:
        """Return 0.99 (5 + 3 λ_min(V))/(4 l); any step does where all objectives are linear."""
        smallest = self.laziness + (1.0 - self.laziness) * facts.mixing[0]
        if facts.smoothness == 0.0:
            return 1.0
        return 0.99 * (5.0 + 3.0 * smallest) / (4.0 * facts.smoothness)
