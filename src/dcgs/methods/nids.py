"""NIDS, a peer that projects.

Li, Shi and Yan, *A Decentralized Proximal-Gradient Method with Network Independent Step-Sizes and
Separated Convergence Rates*, IEEE Transactions on Signal Processing, 2019.
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
class NIDS(Method):
    """Projected gradient steps whose size does not depend on the network; one round an iteration.

    It mixes with I − c α (I − W), W the Metropolis weights. The method converges for steps α < 2/l on
    every graph, l the largest smoothness of all agents; by default α is 1.9/l. c is the largest that
    the theory has, 1/(α (1 − λ_min(W))). l and λ_min(W) are taken to be known to all beforehand. The theory
    also has a step for each agent by its own smoothness; where agents differ, that was slower here.
    One projection an iteration, and one before the first.
    """

    step: float | None = None
    rounds_per_iteration = 1
    projects = True

    def __post_init__(self) -> None:
        check_step(self.step)

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return projection_incompatibility(self, X)

    def program(self, agent: Agent) -> Program[Point]:
        f, W, project = agent.f, agent.metropolis, projector(agent)
        alpha = self.step or _bound(agent.facts)
        share = 1.0 / (1.0 - agent.facts.mixing[0])  # c α
        if agent.past is None:
            x_prev, grad_prev = agent.x0, f.grad(agent.x0)
            z = x_prev - alpha * grad_prev
            x = project(z)
        else:
            x_prev, grad_prev, z, x = agent.past.points("x_prev", "grad_prev", "z", "x")
        for k in agent.ks:
            grad = f.grad(x)
            v = 2.0 * x - x_prev - alpha * (grad - grad_prev)
            v_bar = yield from average(v, W)
            z = z - x + v - share * (v - v_bar)
            x_prev, grad_prev = x, grad
            x = project(z)
            agent.observe(k, x)
            agent.keep(k, x_prev=x_prev, grad_prev=grad_prev, z=z, x=x)
        return x

    def forgets(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None


def _bound(facts: Facts) -> float:
    """Return 0.95 · 2/l; any step does where all objectives are linear."""
    return 1.9 / facts.smoothness if facts.smoothness > 0.0 else 1.0
