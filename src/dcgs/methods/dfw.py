"""DFW: the decentralized Frank-Wolfe method, the paper's baseline.

Wai, Lafond, Scaglione and Moulines, *Decentralized Frank-Wolfe Algorithm for Convex and Nonconvex
Problems*, IEEE Transactions on Automatic Control, 2017.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.atoms import Atom
from dcgs.methods.base import Agent, Method
from dcgs.methods.gossip import repeated
from dcgs.methods.mixing import average
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.base import ConvexSet


@final
@dataclass(eq=False)
class TrackingState:
    """The iterate, the tracked gradient, the last gradient, and the oracle's last answer."""

    x: Point
    g: Point
    grad_prev: Point
    s: Atom | None = None


@final
@dataclass(eq=False)
class AveragingState:
    """The iterate and the oracle's last answer."""

    x: Point
    s: Atom | None = None


@final
@dataclass(frozen=True)
class DFW(Method):
    """One oracle call an iteration along an averaged gradient; step 2/(t+1), Metropolis weights.

    ``tracking=True``: the gradient is tracked, two rounds an iteration. ``tracking=False``: points and
    gradients are each averaged over ⌈log t + 1⌉ rounds, and no gradient is kept.
    """

    tracking: bool = True
    rounds_per_iteration = 2
    State = TrackingState | AveragingState

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        return _tracking(agent) if self.tracking else _averaging(agent)


def _tracking(agent: Agent) -> Program[Point]:
    f, W, x0 = agent.f, agent.metropolis, agent.x0
    at = agent.restore(TrackingState) or TrackingState(x0, 0.0 * x0, 0.0 * x0)
    for t in agent.iterations_left:
        x_bar = yield from average(at.x, W)
        grad = f.grad(x_bar)
        at.g = yield from average(at.g + grad - at.grad_prev, W)
        at.grad_prev = grad
        at.s = agent.lmo(at.g, at.s)
        at.x = x_bar + 2.0 / (t + 1.0) * (at.s.dense() - x_bar)
        agent.observe(t, at.x)
        agent.save(t, at)
    return at.x


def _averaging(agent: Agent) -> Program[Point]:
    f, W = agent.f, agent.metropolis
    at = agent.restore(AveragingState) or AveragingState(agent.x0)
    for t in agent.iterations_left:
        rounds = math.ceil(math.log(t) + 1.0)
        x_bar = yield from repeated(at.x, W, rounds)
        g = yield from repeated(f.grad(x_bar), W, rounds)
        at.s = agent.lmo(g, at.s)
        at.x = x_bar + 2.0 / (t + 1.0) * (at.s.dense() - x_bar)
        agent.observe(t, at.x)
        agent.save(t, at)
    return at.x
