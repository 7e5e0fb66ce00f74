"""FastDCGS on graphs with a hub, an agent that is a neighbor of all others.

There the sum of all gradients takes two rounds, or one if the graph is complete. All agents take the same
accelerated steps along ∇f, with an inner solve in place of each projection. Every decision depends on sums
that are equal to the last bit at all agents. The line numbers are those of the box "FastDCGS with a hub" in
docs/methods.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias, final

import numpy as np

from dcgs.inner import Inner, Subproblem
from dcgs.methods.base import Agent
from dcgs.methods.hub_control import HubStopping, Sample, SmoothnessEstimate, SummedModel
from dcgs.methods.mixing import check_shapes
from dcgs.momentum import Momentum
from dcgs.objectives import LeastSquares, Objective
from dcgs.points import EPS, Point, vdot
from dcgs.protocol import Program

Gap: TypeAlias = Callable[[int, float], float]
"""``gap(k, scale)`` falls with k, and is relative to the scale of losses."""

# How much f may exceed a bound by rounding error, relative to its value.
_ROUNDING = 1e3 * EPS


@final
@dataclass(eq=False)
class HubState:
    """The last step x, the last accepted point ``best``, and what the next step needs.

    ``y`` is where the next gradient is taken; None means at x. ``model`` is f at the last y, None after a
    rejected step. ``first`` and ``lowest`` are f(x⁰) and f(best).
    """

    x: Sample
    best: Sample
    y: Sample | None = None
    model: SummedModel | None = None
    first: float = math.inf
    lowest: float = math.inf
    smoothness: SmoothnessEstimate = field(default_factory=SmoothnessEstimate)
    momentum: Momentum = field(default_factory=Momentum)
    stopping: HubStopping = field(default_factory=HubStopping)

    def judge_last_step(self, k: int, value: float, gap: float, sums: _Sums) -> None:
        """Judge the last step, at whose end f has this value: accept it, shorten it or undo it."""
        rounding = _ROUNDING * abs(value)
        last, self.model = self.model, sums.model
        if k == 1:
            self.smoothness.start(sums.smoothness, sums.mean_curvature)
            self.first = self.lowest = value
        elif last is not None and value > last.bound(self.x.x, self.smoothness.L) + rounding:
            # The step was too long: repeat it with a larger Λ.
            self.smoothness.increase(last.curvature(self.x.x, value))
            self.model, self.momentum = last, Momentum()
        elif value > self.lowest + gap + rounding:
            # f has increased: go back to the best point, without momentum.
            self.x, self.y = self.best, None
            self.model, self.momentum = None, Momentum()
        else:
            self.best, self.lowest = self.x, value
            if last is not None:
                self.smoothness.decrease(last.curvature(self.x.x, value))


@final
@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over all agents: f as seen from y, f(x), curvatures, and the rounding error of ∇f(y)."""

    model: SummedModel
    value: float
    smoothness: float
    mean_curvature: float
    noise: float


def over_hub(agent: Agent, inner: Callable[[Objective], Inner], gap: Gap) -> Program[Point]:
    """Run FastDCGS with a hub for one agent."""
    f = agent.f
    zero = LeastSquares(np.zeros((1, agent.x0.size)), [0.0], agent.x0.shape)  # of the subproblem in line 6
    solver = inner(zero).start(replace(agent.task, f=zero))
    start = Sample(agent.x0, f.map.image(agent.x0))
    at = agent.restore(HubState) or HubState(start, start)  # line 1
    for k in agent.iterations_left:  # line 2
        y = at.y or at.x
        sums = yield from _sums(agent, at.x, y)  # line 3
        certified = at.stopping.certified(agent, sums.model, at.y is None, sums.noise)
        if certified is not None:  # line 4
            agent.observe(k, y.x)
            agent.agree(certified)
            return y.x
        scale = at.first - at.lowest if at.first > at.lowest else sums.model.gap(agent)
        at.judge_last_step(k, sums.value, gap(k, scale), sums)  # line 5
        if at.model is not None:
            phi = Subproblem(zero, at.model.grad, at.smoothness.L, at.model.at.x)
            point = solver(phi, gap(k, scale) / k**2)  # line 6
            x_prev, at.x = at.x, Sample(point, f.map.image(point))
            uphill = vdot(at.model.at.x - at.x.x, at.x.x - x_prev.x) > 0.0
            theta = at.momentum.weight(restart=uphill)
            at.y = (
                None if at.stopping.is_near(agent, at.lowest) else at.x.extrapolated(x_prev, theta)
            )  # line 7
        agent.observe(k, at.x.x)
        agent.save(k, at, solver)
    return at.x.x


def _sums(agent: Agent, x: Sample, y: Sample) -> Program[_Sums]:
    """Return the sums over all agents of ∇f(y), f(x), f(y) and what the decisions need."""
    f = agent.f
    noise = f.grad_noise(y.image)
    own = (f.loss.value(x.image), f.loss.value(y.image), f.smoothness, f.mean_curvature, noise)
    grad = f.map.adjoint(f.loss.grad(y.image))
    total = yield from sum_over_agents(np.concatenate([grad.reshape(-1), own]), agent)
    value, value_y, smoothness, mean_curvature, noise = total[-len(own) :].tolist()
    model = SummedModel(y, value_y, total[: -len(own)].reshape(x.x.shape))
    return _Sums(model, value, smoothness, mean_curvature, noise)


def sum_over_agents(value: Point, agent: Agent) -> Program[Point]:
    """Return the sum of all agents' values, equal to the last bit at all of them. One or two rounds."""
    empty, hub, me = value[:0], agent.facts.hub, agent.index
    if agent.facts.graph_diameter <= 1:
        inbox = yield value
        check_shapes(inbox, value.shape)
        return _sum({**inbox, me: value})
    inbox = yield empty if me == hub else value
    if me == hub:
        check_shapes(inbox, value.shape)
    total = _sum({**inbox, me: value}) if me == hub else empty
    inbox = yield total
    assert hub is not None
    if me == hub:
        return total
    check_shapes({hub: inbox[hub]}, value.shape)
    return inbox[hub]


def _sum(values: Mapping[int, Point]) -> Point:
    total = 0.0 * values[min(values)]
    for i in sorted(values):
        total = total + values[i]
    return total
