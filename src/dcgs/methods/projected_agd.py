"""Accelerated projected gradient with repeated gossip: a method that projects, for comparison.

After Ye, Luo, Zhou and Zhang, *Multi-Consensus Decentralized Accelerated Gradient Descent*,
Journal of Machine Learning Research, 2023: Nesterov's steps along a tracked gradient, with several rounds of
gossip between two steps. Here points and gradients are mixed in the same rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal, final

import numpy as np

from dcgs.facts import Facts
from dcgs.methods.base import Agent, ProjectedMethod, projector
from dcgs.methods.mixing import chebyshev, chebyshev_rounds, exact, repeated, repeated_rounds, well_ordered
from dcgs.momentum import Momentum
from dcgs.points import Point, vdot
from dcgs.protocol import Program
from dcgs.validation import COUNT, POSITIVE, one_of

# Gossip shrinks every disagreement by L/(20 M), L the smoothness of the mean objective and M the largest of
# the agents'. With this factor tracking converged on all graphs and data tried; with L/(10 M) it did not.
_SHRINK = 0.05
# With more eigenvalues than this the exact average loses too much to rounding.
_MOST_EIGENVALUES = 32


@final
@dataclass(eq=False)
class AGDState:
    """The iterate, the extrapolated point y, the averaged gradient s, the last gradient, and the momentum."""

    x: Point
    y: Point
    s: Point
    grad_prev: Point
    momentum: Momentum


@final
@dataclass(frozen=True)
class ProjectedAGD(ProjectedMethod):
    """Nesterov's accelerated projected gradient along a gradient averaged over the network.

    ``step`` is 1/L by default, L the smoothness of the mean objective f/m. Momentum as in FISTA,
    restarted where it is an ascent direction (O'Donoghue and Candès 2015). One projection an iteration.

    ``gossip`` is how it averages. ``"exact"``: one round for each eigenvalue of the Metropolis matrix W
    except 1, after which every agent has the exact average; messages are gradients. ``"chebyshev"`` and
    ``"repeated"``: ``gossip_rounds`` rounds of a Chebyshev polynomial in W, or of W itself, mix points and
    tracked gradients, which are sent together in messages of double size. By default there are enough rounds
    to shrink every disagreement by L/(20 M), M the largest smoothness of all agents. ``"auto"`` takes the
    exact average if it needs no more rounds than Chebyshev's and no ``gossip_rounds`` are given. L, M and the
    eigenvalues are assumed to be known to all agents before the run.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> method = dcgs.ProjectedAGD()
    >>> result = dcgs.minimize(data.objectives(4), X, graph, method, iterations=10)
    >>> result.projections
    array([10, 10, 10, 10])
    """

    step: float | None = None
    gossip: Literal["auto", "exact", "chebyshev", "repeated"] = "auto"
    gossip_rounds: int | None = None
    State = AGDState

    def __post_init__(self) -> None:
        POSITIVE.or_none(self.step, "step")
        one_of("auto", "exact", "chebyshev", "repeated")(self.gossip, "gossip")
        COUNT.or_none(self.gossip_rounds, "gossip_rounds")
        if self.gossip == "exact" and self.gossip_rounds is not None:
            raise ValueError(
                "gossip_rounds must be None with gossip='exact', whose rounds the graph decides; "
                f"got {self.gossip_rounds!r}."
            )

    def program(self, agent: Agent) -> Program[Point]:
        f, W, project = agent.f, agent.metropolis, projector(agent)
        L = agent.facts.mean_smoothness
        alpha = self.step or (1.0 / L if L > 0.0 else 1.0)
        eigenvalues, mix = self._eigenvalues(agent.facts), self._mix(agent)
        x0 = agent.x0
        state = agent.restore(AGDState) or AGDState(x0, x0, 0.0 * x0, 0.0 * x0, Momentum())
        for k in agent.iterations_left:
            grad = f.grad(state.y)
            if eigenvalues:
                state.s = yield from exact(grad, W, eigenvalues)
            else:
                state.y, state.s = yield from mix(np.stack([state.y, state.s + grad - state.grad_prev]))
            x_prev, state.x, state.grad_prev = state.x, project(state.y - alpha * state.s), grad
            theta = state.momentum.weight(restart=vdot(state.y - state.x, state.x - x_prev) > 0.0)
            state.y = state.x + theta * (state.x - x_prev)
            agent.observe(k, state.x)
            agent.save(k, state)
        return state.x

    def _eigenvalues(self, facts: Facts) -> tuple[float, ...]:
        """Return the eigenvalues of W for an exact average, or none if the average is not exact."""
        if self.gossip == "exact" and not facts.mixing_eigenvalues:
            raise ValueError(
                "gossip='exact' needs all eigenvalues of W, which are not computed for "
                f"{facts.agents} agents. Use gossip='chebyshev'."
            )
        most = min(_MOST_EIGENVALUES, chebyshev_rounds(facts.extreme_eigenvalues, _factor(facts)))
        chosen = (
            self.gossip == "auto" and self.gossip_rounds is None and len(facts.mixing_eigenvalues) <= most
        )
        return well_ordered(facts.mixing_eigenvalues) if chosen or self.gossip == "exact" else ()

    def _mix(self, agent: Agent) -> Callable[[Point], Program[Point]]:
        """Return how points and gradients are averaged if the average is not exact."""
        W, extremes, factor = agent.metropolis, agent.facts.extreme_eigenvalues, _factor(agent.facts)
        if self.gossip == "repeated":
            return partial(repeated, W=W, rounds=self.gossip_rounds or repeated_rounds(extremes, factor))
        rounds = self.gossip_rounds or chebyshev_rounds(extremes, factor)
        return partial(chebyshev, W=W, extremes=extremes, rounds=rounds)


def _factor(facts: Facts) -> float:
    """Return the factor by which gossip must shrink every disagreement."""
    return _SHRINK * facts.mean_smoothness / facts.smoothness if facts.smoothness > 0.0 else _SHRINK
