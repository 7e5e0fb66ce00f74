"""NIDS and PG-EXTRA: decentralized projected gradient methods, for comparison.

* NIDS: Li, Shi and Yan, *A Decentralized Proximal-Gradient Method with Network Independent Step-Sizes and
  Separated Convergence Rates*, IEEE Transactions on Signal Processing, 2019.
* PG-EXTRA: Shi, Ling, Wu and Yin, *A Proximal Gradient Algorithm for Decentralized Composite Optimization*,
  IEEE Transactions on Signal Processing, 2015.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.methods.base import Agent, Dual, ProjectedMethod, projector
from dcgs.methods.mixing import average, mixing_error
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.validation import POSITIVE, number


@final
@dataclass(eq=False)
class NIDSState:
    """The last two iterates, the last gradient, and z, of which the iterate is the projection.

    ``drift`` bounds the agent's part in what rounding leaves of Σ (x_prev − z)/α − ∇f(x_prev), which is 0
    exactly.
    """

    x_prev: Point
    grad_prev: Point
    z: Point
    x: Point
    drift: float = 0.0


@final
@dataclass(frozen=True)
class NIDS(ProjectedMethod):
    """Projected gradient steps whose size does not depend on the network; one round an iteration.

    It mixes with I − c α (I − W), W the Metropolis weights. The method converges for steps α < 2/l on every
    graph, l the largest smoothness of all agents; by default α is 1.9/l. c is the largest that the theory
    has, 1/(α (1 − λ_min(W))). l and λ_min(W) are assumed to be known to all agents before the run. The theory
    also has a step for each agent by its own smoothness; where agents differ, that was slower here. One
    projection an iteration, and one before the first.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> method = dcgs.NIDS()
    >>> result = dcgs.minimize(data.objectives(4), X, graph, method, iterations=10)
    >>> result.rounds, result.projections
    (10, array([11, 11, 11, 11]))
    """

    step: float | None = None
    State = NIDSState

    def __post_init__(self) -> None:
        POSITIVE.or_none(self.step, "step")

    def program(self, agent: Agent) -> Program[Point]:
        f, W, project = agent.f, agent.metropolis, projector(agent)
        smoothness = agent.facts.smoothness
        alpha = self.step or (1.9 / smoothness if smoothness > 0.0 else 1.0)
        share = 1.0 / (1.0 - agent.facts.extreme_eigenvalues[0])  # c α
        state = agent.restore(NIDSState)
        if state is None:
            grad = f.grad(agent.x0)
            z = agent.x0 - alpha * grad
            state = NIDSState(agent.x0, grad, z, project(z))
        for k in agent.iterations_left:
            grad = f.grad(state.x)
            v = 2.0 * state.x - state.x_prev - alpha * (grad - state.grad_prev)
            v_bar = yield from average(v, W)
            terms = state.z, state.x, state.x_prev, v, alpha * grad, alpha * state.grad_prev
            state.drift += (1.0 + share) / alpha * mixing_error(agent.facts.agents, 1, *terms)
            state.z = state.z - state.x + v - share * (v - v_bar)
            w = (state.x - state.z) / alpha - grad
            state.x_prev, state.grad_prev = state.x, grad
            state.x = project(state.z)
            agent.observe(k, state.x, Dual(w, state.drift))
            agent.save(k, state)
        return state.x


@final
@dataclass(eq=False)
class PGExtraState:
    """The iterate x = projection of z, the mixed iterate before, the last gradient; ``drift`` as in NIDS."""

    x: Point
    z: Point
    x_tilde: Point
    grad_prev: Point
    drift: float = 0.0


@final
@dataclass(frozen=True)
class PGExtra(ProjectedMethod):
    """Projected gradient steps, corrected by the steps before; one round and one projection an iteration.

    It mixes with V = μ I + (1 − μ) W, W the Metropolis weights, μ the ``laziness``. All agents take the
    same ``step`` α. The method converges for α < (5 + 3 λ_min(V))/(4 l), l the largest smoothness of all
    agents: Li and Yan (arXiv:1711.06785), which for V with eigenvalues below 1 is more than the first
    paper's (1 + λ_min(V))/l. By default α is 0.99 times that. λ_min(W) and l are assumed to be known to
    all agents before the run.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> method = dcgs.PGExtra()
    >>> result = dcgs.minimize(data.objectives(4), X, graph, method, iterations=10)
    >>> result.rounds, result.projections
    (10, array([10, 10, 10, 10]))
    """

    step: float | None = None
    laziness: float = 0.5
    State = PGExtraState

    def __post_init__(self) -> None:
        POSITIVE.or_none(self.step, "step")
        number("be at least 0 and less than 1", lambda x: 0.0 <= x < 1.0)(self.laziness, "laziness")

    def program(self, agent: Agent) -> Program[Point]:
        f, W, project, mu = agent.f, agent.metropolis, projector(agent), self.laziness
        smallest, smoothness = mu + (1.0 - mu) * agent.facts.extreme_eigenvalues[0], agent.facts.smoothness
        alpha = self.step or (0.99 * (5.0 + 3.0 * smallest) / (4.0 * smoothness) if smoothness > 0.0 else 1.0)
        zero = 0.0 * agent.x0
        state = agent.restore(PGExtraState) or PGExtraState(agent.x0, zero, zero, zero)
        for k in agent.iterations_left:
            grad = f.grad(state.x)
            x_bar = mu * state.x + (1.0 - mu) * (yield from average(state.x, W))
            terms = state.z, state.x, x_bar, state.x_tilde, alpha * grad, alpha * state.grad_prev
            state.drift += 2.0 / alpha * mixing_error(agent.facts.agents, 1, *terms)
            state.z = state.z + x_bar - state.x_tilde - alpha * (grad - state.grad_prev)
            w = (state.x - state.z) / alpha - grad
            state.x_tilde, state.grad_prev = 0.5 * (state.x + x_bar), grad
            state.x = project(state.z)
            agent.observe(k, state.x, Dual(w, state.drift))
            agent.save(k, state)
        return state.x
