"""NIDS: a method that projects, for comparison.

Li, Shi and Yan, *A Decentralized Proximal-Gradient Method with Network Independent Step-Sizes and
Separated Convergence Rates*, IEEE Transactions on Signal Processing, 2019.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.methods.base import Agent, Method
from dcgs.methods.mixing import average
from dcgs.methods.projections import Projection, projection_incompatibility, projector
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Facts
from dcgs.sets.base import ConvexSet
from dcgs.validation import POSITIVE


@final
@dataclass(eq=False)
class NIDSState:
    """The last two iterates, the last gradient, and z, of which the iterate is the projection."""

    x_prev: Point
    grad_prev: Point
    z: Point
    x: Point


@final
@dataclass(frozen=True)
class NIDS(Method):
    """Projected gradient steps whose size does not depend on the network; one round an iteration.

    It mixes with I − c α (I − W), W the Metropolis weights. The method converges for steps α < 2/l on every
    graph, l the largest smoothness of all agents; by default α is 1.9/l. c is the largest that the theory
    has, 1/(α (1 − λ_min(W))). l and λ_min(W) are assumed to be known to all agents before the run. The theory
    also has a step for each agent by its own smoothness; where agents differ, that was slower here. One
    projection an iteration, and one before the first.
    """

    step: float | None = None
    rounds_per_iteration = 1
    projects = True
    State = NIDSState

    def __post_init__(self) -> None:
        POSITIVE.or_none(self.step, "step")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return projection_incompatibility(self, X)

    def program(self, agent: Agent) -> Program[Point]:
        f, W, project = agent.f, agent.metropolis, projector(agent)
        alpha = self.step or _bound(agent.facts)
        share = 1.0 / (1.0 - agent.facts.mixing[0])  # c α
        at = agent.restore(NIDSState) or _first(agent, alpha, project)
        for k in agent.iterations_left:
            grad = f.grad(at.x)
            v = 2.0 * at.x - at.x_prev - alpha * (grad - at.grad_prev)
            v_bar = yield from average(v, W)
            at.z = at.z - at.x + v - share * (v - v_bar)
            at.x_prev, at.grad_prev = at.x, grad
            at.x = project(at.z)
            agent.observe(k, at.x)
            agent.save(k, at)
        return at.x


def _first(agent: Agent, alpha: float, project: Projection) -> NIDSState:
    """Return the state after a projected gradient step from x⁰."""
    grad = agent.f.grad(agent.x0)
    z = agent.x0 - alpha * grad
    return NIDSState(agent.x0, grad, z, project(z))


def _bound(facts: Facts) -> float:
    """Return 0.95 · 2/l; 1 if all objectives are linear."""
    return 1.9 / facts.smoothness if facts.smoothness > 0.0 else 1.0
