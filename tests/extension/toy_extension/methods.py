"""A method: each agent takes a Frank–Wolfe step on its own objective, then averages with its neighbors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

import dcgs


@final
@dataclass(frozen=True)
class DiffusionFW(dcgs.Method):
    """x ← Σⱼ Wᵢⱼ (xⱼ + γ (sⱼ − xⱼ)), γ = shift/(k + shift), with Metropolis weights W."""

    shift: float = 2.0
    rounds_per_iteration = 1

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: dcgs.ConvexSet) -> str | None:
        return None

    def program(self, agent: dcgs.Agent) -> dcgs.Program[dcgs.Point]:
        x = agent.x0
        for k in range(1, agent.iterations + 1):
            s = agent.lmo(agent.f.grad(x), None)
            gamma = self.shift / (k + self.shift)
            x = yield from dcgs.average(x + gamma * (s.dense() - x), agent.metropolis)
            agent.observe(k, x)
        return x
