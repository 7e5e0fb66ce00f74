"""A method: each agent takes a Frank–Wolfe step on its own objective, then averages with its neighbors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import dcgs


@final
@dataclass
class DiffusionState:
    """All that the next iteration depends on."""

    x: dcgs.Point


@final
@dataclass(frozen=True)
class DiffusionFW(dcgs.Method):
    """x ← Σⱼ Wᵢⱼ (xⱼ + γ (sⱼ − xⱼ)), γ = shift/(k + shift), with Metropolis weights W.

    >>> DiffusionFW().shift
    2.0
    """

    shift: float = 2.0
    rounds_per_iteration = 1
    State = DiffusionState

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: dcgs.ConvexSet) -> str | None:
        return None

    def program(self, agent: dcgs.Agent) -> dcgs.Program[dcgs.Point]:
        state = agent.restore(DiffusionState) or DiffusionState(agent.x0)
        for k in agent.iterations_left:
            x = state.x
            s = agent.lmo(agent.f.grad(x), None)
            gamma = self.shift / (k + self.shift)
            state.x = yield from dcgs.average(x + gamma * (s.dense() - x), agent.metropolis)
            agent.observe(k, state.x)
            agent.save(k, state)
        return state.x
