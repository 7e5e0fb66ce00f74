"""DFW: the decentralized Frank-Wolfe method, the paper's baseline.

Wai, Lafond, Scaglione and Moulines, *Decentralized Frank-Wolfe Algorithm for Convex and Nonconvex
Problems*, IEEE Transactions on Automatic Control, 2017.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.atoms import Atom, atom_again
from dcgs.methods.base import Agent, Method
from dcgs.methods.talk import average
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True)
class DFW(Method):
    """One oracle call an iteration along an agreed gradient; step 2/(t+1), Metropolis weights.

    ``tracking=True``: the gradient is tracked, two rounds an iteration. ``tracking=False``: points
    and gradients are each averaged over ⌈log t + 1⌉ rounds, and nothing is remembered.
    """

    tracking: bool = True
    rounds_per_iteration = 2

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        return _tracking(agent) if self.tracking else _averaging(agent)

    def forgets(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None


def _tracking(agent: Agent) -> Program[Point]:
    f, W = agent.f, agent.metropolis
    x = agent.x0
    g = grad_prev = 0.0 * x
    s: Atom | None = None
    if agent.past is not None:
        x, g, grad_prev = agent.past.points("x", "g", "grad_prev")
        s = atom_again(agent.past.part("s"), x.shape)
    for t in agent.ks:
        x_bar = yield from average(x, W)
        grad = f.grad(x_bar)
        g = yield from average(g + grad - grad_prev, W)
        grad_prev = grad
        s = agent.lmo(g, s)
        x = x_bar + 2.0 / (t + 1.0) * (s.dense() - x_bar)
        agent.observe(t, x)
        agent.keep(t, x=x, g=g, grad_prev=grad_prev, s=s)
    return x


def _averaging(agent: Agent) -> Program[Point]:
    f, W = agent.f, agent.metropolis
    x = agent.x0
    s: Atom | None = None
    if agent.past is not None:
        x, s = agent.past.point("x"), atom_again(agent.past.part("s"), x.shape)
    for t in agent.ks:
        rounds = math.ceil(math.log(t) + 1.0)
        x_bar = yield from _repeatedly(x, W, rounds)
        g = yield from _repeatedly(f.grad(x_bar), W, rounds)
        s = agent.lmo(g, s)
        x = x_bar + 2.0 / (t + 1.0) * (s.dense() - x_bar)
        agent.observe(t, x)
        agent.keep(t, x=x, s=s)
    return x


def _repeatedly(value: Point, W: dict[int, float], rounds: int) -> Program[Point]:
    for _ in range(rounds):
        value = yield from average(value, W)
    return value
