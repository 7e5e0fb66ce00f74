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
from dcgs.methods.base import Agent, Dual, Method
from dcgs.methods.mixing import mixing_error, repeated
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.base import ConvexSet
from dcgs.validation import FLAG


@final
@dataclass(eq=False)
class DFWState:
    """The iterate, the averaged gradient, the last own gradient, and the oracle's last answer.

    ``drift`` bounds the agent's part in what rounding leaves of Σ g − ∇f, which is 0 exactly.
    """

    x: Point
    g: Point
    grad_prev: Point
    s: Atom | None = None
    drift: float = 0.0


@final
@dataclass(frozen=True)
class DFW(Method):
    """One oracle call an iteration along an averaged gradient; step 2/(t+1), Metropolis weights.

    ``tracking=True``: the gradient is tracked, two rounds an iteration. ``tracking=False``: points and
    gradients are each averaged over ⌈log t + 1⌉ rounds.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> method = dcgs.DFW()
    >>> result = dcgs.minimize(data.objectives(4), X, graph, method, iterations=10)
    >>> result.rounds, result.lmo_calls
    (20, array([10, 10, 10, 10]))
    """

    tracking: bool = True
    rounds_per_iteration = 2
    State = DFWState

    def __post_init__(self) -> None:
        FLAG(self.tracking, "tracking")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def slot(self, message: int) -> int:
        rounds, t = 1, 1  # of averaging points, and then gradients, in iterations from t on
        while not self.tracking:
            last = math.floor(math.exp(rounds - 1.0))
            if message < 2 * rounds * (last - t + 1):
                break
            message, rounds, t = message - 2 * rounds * (last - t + 1), rounds + 1, last + 1
        return message % (2 * rounds) // rounds

    def program(self, agent: Agent) -> Program[Point]:
        W, x0 = agent.metropolis, agent.x0
        state = agent.restore(DFWState) or DFWState(x0, 0.0 * x0, 0.0 * x0)
        for t in agent.iterations_left:
            rounds = 1 if self.tracking else math.ceil(math.log(t) + 1.0)
            x_bar = yield from repeated(state.x, W, rounds)
            grad = agent.f.grad(x_bar)
            g = state.g + grad - state.grad_prev if self.tracking else grad
            drift = mixing_error(agent.facts.agents, rounds, g, grad, state.grad_prev)
            state.drift = state.drift + drift if self.tracking else drift
            state.g = yield from repeated(g, W, rounds)
            state.grad_prev = grad
            state.s = agent.lmo(state.g, state.s)
            state.x = x_bar + 2.0 / (t + 1.0) * (state.s.dense() - x_bar)
            agent.observe(t, state.x, Dual(state.g - grad, state.drift))
            agent.save(t, state)
        return state.x
