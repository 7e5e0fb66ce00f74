"""FastDCGS by sums: all agents take the same accelerated steps along ∇f, the sum of all gradients.

A sum over the network takes two rounds if an agent is a neighbor of all others (a hub), one if the graph is
complete, and twice the height of the spanning tree in general; more for long gradients. Every decision
depends on sums that are equal to the last bit at all agents. The line numbers are those of the box "FastDCGS
by sums" in docs/methods.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from dcgs.inner import Inner, Subproblem, gap_at_most
from dcgs.methods.base import Agent
from dcgs.methods.preconditioner import summed_preconditioner
from dcgs.methods.reduction import network_sum
from dcgs.methods.sums_control import Sample, SmoothnessEstimate, SummedModel, SumsStopping
from dcgs.methods.tolerance import summable_tolerance
from dcgs.momentum import Momentum
from dcgs.objectives import LeastSquares, Objective
from dcgs.points import EPS, Point
from dcgs.protocol import Program

# How much f may exceed a bound by rounding error, relative to its value.
_ROUNDING = 1e3 * EPS


@final
@dataclass(eq=False)
class SumsState:
    """The last step x, the last accepted point ``best``, and what the next step needs.

    ``y`` is where the next gradient is taken; None means at x. ``model`` is f at the last y, None after a
    rejected step. ``first`` and ``lowest`` are f(x⁰) and f(best). ``preconditioner`` is h, if there is one.
    """

    x: Sample
    best: Sample
    y: Sample | None = None
    model: SummedModel | None = None
    first: float = math.inf
    lowest: float = math.inf
    smoothness: SmoothnessEstimate = field(default_factory=SmoothnessEstimate)
    momentum: Momentum = field(default_factory=Momentum)
    preconditioner: Point | None = None
    stopping: SumsStopping = field(default_factory=SumsStopping)

    def judge_last_step(self, k: int, value: float, gap: float, sums: _Sums) -> None:
        """Judge the last step, at whose end f has this value: accept it, shorten it or undo it."""
        rounding = _ROUNDING * abs(value)
        last, self.model = self.model, sums.model
        if k == 1:
            self.smoothness.start(sums.smoothness, sums.mean_curvature)
            self.first = self.lowest = value
            self.preconditioner = sums.model.preconditioner
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


def by_sums(
    agent: Agent, inner: Callable[[Objective], Inner], preconditioned: bool = False
) -> Program[Point]:
    """Run FastDCGS by sums for one agent; with a diagonal preconditioner, if the inner solver supports it."""
    f = agent.f
    zero = LeastSquares(np.zeros((1, agent.x0.size)), [0.0], agent.x0.shape)  # of the subproblem in line 6
    preconditioned = preconditioned and inner(zero).supports_preconditioner(zero, agent.X)
    solver = inner(zero).start(replace(agent.task, f=zero))
    start = Sample(agent.x0, f.map.image(agent.x0))
    at = agent.restore(SumsState) or SumsState(start, start)  # line 1
    for k in agent.iterations_left:  # line 2
        y = at.y or at.x
        sums = yield from _sums(agent, at, y, with_curvatures=preconditioned and k == 1)  # line 3
        certified = at.stopping.certified(agent, sums.model, at.y is None, sums.noise)
        if certified is not None:  # line 4
            agent.observe(k, y.x)
            agent.agree(certified)
            return y.x
        scale = at.first - at.lowest if at.first > at.lowest else sums.model.gap(agent)
        e = summable_tolerance(k, scale)  # by so much f may increase
        at.judge_last_step(k, sums.value, e, sums)  # line 5
        if at.model is not None:
            phi = Subproblem(zero, at.model.grad, at.smoothness.L, at.model.at.x, at.preconditioner)
            point = solver(phi, gap_at_most(e / k**2))  # line 6
            x_prev, at.x = at.x, Sample(point, f.map.image(point))
            uphill = at.model.dot(at.model.at.x - at.x.x, at.x.x - x_prev.x) > 0.0
            theta = at.momentum.weight(restart=uphill)
            at.y = (
                None if at.stopping.is_near(agent, at.lowest) else at.x.extrapolated(x_prev, theta)
            )  # line 7
        agent.observe(k, at.x.x)
        agent.save(k, at, solver)
    return at.x.x


def _sums(agent: Agent, at: SumsState, y: Sample, with_curvatures: bool) -> Program[_Sums]:
    """Return the sums over all agents of ∇f(y), f(x), f(y) and what the decisions need.

    A preconditioner is computed from the curvature of each coordinate, if these are summed as well.
    """
    f, shape = agent.f, agent.x0.shape
    noise = f.grad_noise(y.image)
    own = (f.loss.value(at.x.image), f.loss.value(y.image), f.smoothness, f.mean_curvature, noise)
    parts = [f.map.adjoint(f.loss.grad(y.image)).reshape(-1), np.array(own)]
    if with_curvatures:
        parts.append(f.loss.curvature[1] * f.map.column_squares.reshape(-1))
    total = yield from network_sum(np.concatenate(parts), agent)
    grad, numbers, *curvatures = np.split(total, np.cumsum([len(part) for part in parts[:-1]]))
    value, value_y, smoothness, mean_curvature, noise = numbers.tolist()
    h = summed_preconditioner(curvatures[0].reshape(shape)) if curvatures else at.preconditioner
    return _Sums(SummedModel(y, value_y, grad.reshape(shape), h), value, smoothness, mean_curvature, noise)
