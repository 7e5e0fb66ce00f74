"""The form of FastDCGS for graphs with a hub, an agent that is everyone's neighbor.

There the sum of all gradients takes two rounds, or one where everyone is a hub. So agents take accelerated
steps along the gradient of f itself, all the same ones, each with an inner solver in place of a projection.
What everyone computes depends on sums alone, which are the same to the last bit for all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dcgs.inner import Inner, Solver, Subproblem
from dcgs.memory import Memory, Past, Remembers
from dcgs.methods.base import Agent
from dcgs.methods.talk import expect
from dcgs.objectives import LeastSquares, Objective
from dcgs.objectives.losses import Image
from dcgs.points import EPS, Point, vdot
from dcgs.protocol import Program

# A smoothness that turned out too small is raised by this factor at least. One of which less than _SLACK was
# seen falls to _MORE times that, by _FALL at most; _FALLS times at most, and not after _RAISES raises.
_RAISE = 1.5
_SLACK, _MORE, _FALL = 0.5, 1.2, 0.7
_FALLS, _RAISES = 20, 2
# What a step may miss its bound by, relative to the value of f: rounding errors.
_ROUNDING = 1e3 * EPS
# The numbers that travel beside a gradient: values at x and y, largest and mean curvature, rounding error.
_NUMBERS = 5


@final
@dataclass(frozen=True, eq=False)
class _Spot(Remembers):
    """A point, and this agent's image of it."""

    x: Point
    image: Image

    @classmethod
    def again(cls, past: Past) -> _Spot:
        """Return the spot of a memory."""
        return cls(*past.points("x", "image"))

    def memory(self) -> Memory:
        return {"x": self.x, "image": self.image}

    def beyond(self, before: _Spot, share: float) -> _Spot:
        """Return the point that lies beyond this one by a share of the way from the one before."""
        return _Spot(self.x + share * (self.x - before.x), self.image + share * (self.image - before.image))


@final
@dataclass(frozen=True, eq=False)
class _View(Remembers):
    """What everyone knows of f after an exchange: its value and gradient at ``spot``."""

    spot: _Spot
    value: float
    grad: Point

    @classmethod
    def again(cls, past: Past) -> _View:
        """Return the view of a memory."""
        return cls(_Spot.again(past.part("spot")), past.number("value"), past.point("grad"))

    def memory(self) -> Memory:
        return {"spot": self.spot.memory(), "value": self.value, "grad": self.grad}

    def bound(self, x: Point, smoothness: float) -> float:
        """Return what f(x) is at most, if f is that smooth."""
        d = x - self.spot.x
        return self.value + vdot(self.grad, d) + 0.5 * smoothness * vdot(d, d)

    def curvature(self, x: Point, value: float) -> float:
        """Return the curvature of f on the way to x, where it has that value."""
        d = x - self.spot.x
        length = vdot(d, d)
        return 2.0 * (value - self.value - vdot(self.grad, d)) / length if length > 0.0 else 0.0


def over_hub(
    agent: Agent, inner: Callable[[Objective], Inner], gap: Callable[[int, float], float]
) -> Program[Point]:
    """Return what the agent does; ``gap(k, size)`` falls with k, from the size of losses."""
    f, ends, step = agent.f, _Ends(agent), _Prox(agent, inner)
    x = y = best = _Spot(agent.x0, f.map.image(agent.x0))
    view: _View | None = None
    start = least = math.inf
    t, L = 1.0, 0.0
    raises = falls = 0
    past = agent.past
    if past is not None:
        x, best = _Spot.again(past.part("x")), _Spot.again(past.part("best"))
        y = _Spot.again(past.part("y")) if "y" in past else x
        view = _View.again(past.part("view")) if "view" in past else None
        start, least, t, L = past.numbers("start", "least", "t", "L")
        raises, falls = past.whole("raises"), past.whole("falls")
    for k in agent.ks:
        told = (f.loss.value(x.image), f.loss.value(y.image), f.smoothness, f.mean_curvature, ends.noise(y))
        grad = f.map.adjoint(f.loss.grad(y.image))
        total = yield from add_up(np.concatenate([grad.reshape(-1), told]), agent)
        value, value_y, largest, mean, noise = total[-_NUMBERS:].tolist()
        last, view = view, _View(y, value_y, total[:-_NUMBERS].reshape(x.x.shape))
        if ends.reached(view, y is x, noise):
            agent.observe(k, y.x)
            agent.agree()
            return y.x
        rounding = _ROUNDING * abs(value)
        size = start - least if start > least else ends.gap(view)
        if k == 1:
            L = math.sqrt(largest * mean) or 1.0
            start = least = value
        elif last is not None and value > last.bound(x.x, L) + rounding:
            # The last step was too long: take it again, shorter.
            raises += 1
            L = max(_RAISE * L, last.curvature(x.x, value))
            view, t = last, 1.0
        elif value > least + gap(k, size) + rounding:
            # It led uphill: go back, without momentum.
            x = y = best
            view, t = None, 1.0
        else:
            best, least = x, value
            seen = last.curvature(x.x, value) if last is not None else 0.0
            if 0.0 < seen < _SLACK * L and raises < _RAISES and falls < _FALLS:
                falls += 1
                L = max(_FALL * L, _MORE * seen)
        if view is not None:
            point = step(view, L, gap(k, size) / k**2)
            before, x = x, _Spot(point, f.map.image(point))
            uphill = vdot(view.spot.x - x.x, x.x - before.x) > 0.0
            t_before = 1.0 if uphill else t
            t = 0.5 + math.sqrt(0.25 + t_before**2)
            y = x if ends.near(least) else x.beyond(before, (t_before - 1.0) / t)
        agent.observe(k, x.x)
        agent.keep(
            k,
            inner=step,
            ends=ends,
            x=x,
            y=None if y is x else y,
            best=best,
            view=view,
            start=start,
            least=least,
            t=t,
            L=L,
            raises=raises,
            falls=falls,
        )
    return x.x


def add_up(value: Point, agent: Agent) -> Program[Point]:
    """Return the sum of everyone's values, the same to the last bit for all."""
    nothing, hub, me = value[:0], agent.facts.hub, agent.index
    if agent.facts.hops <= 1:
        inbox = yield value
        expect(inbox, value.shape)
        return _sum({**inbox, me: value})
    inbox = yield nothing if me == hub else value
    if me == hub:
        expect(inbox, value.shape)
    total = _sum({**inbox, me: value}) if me == hub else nothing
    inbox = yield total
    assert hub is not None
    if me == hub:
        return total
    expect({hub: inbox[hub]}, value.shape)
    return inbox[hub]


def _sum(values: Mapping[int, Point]) -> Point:
    total = 0.0 * values[min(values)]
    for i in sorted(values):
        total = total + values[i]
    return total


@final
class _Prox(Remembers):
    """What minimizes ⟨∇f(y), x⟩ + L/2 ‖x − y‖² over X to a gap, given a view from y."""

    def __init__(self, agent: Agent, inner: Callable[[Objective], Inner]) -> None:
        self._nothing = LeastSquares(np.zeros((1, agent.x0.size)), [0.0], agent.x0.shape)
        self._solver: Solver = inner(self._nothing).start(replace(agent.task, f=self._nothing))

    def __call__(self, view: _View, L: float, e: float) -> Point:
        return self._solver(Subproblem(self._nothing, view.grad, L, view.spot.x), e)

    def memory(self) -> Memory:
        return self._solver.memory()


@final
class _Ends(Remembers):
    """When to stop: at a point of X whose gap is what was asked for, relative to that at x⁰, or rounding."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._first: float | None = None  # the gap at x⁰
        self._lower = -math.inf  # what f is at least, over X
        self._due = -math.inf  # how close f must come to that before a gap is worth a step
        if agent.past is not None:
            past = agent.past.part("ends")
            self._first = past.number("first") if "first" in past else None
            self._lower, self._due = past.numbers("lower", "due")

    def memory(self) -> Memory:
        return {"first": self._first, "lower": self._lower, "due": self._due}

    def noise(self, spot: _Spot) -> float:
        """Return this agent's part of the rounding error of a gap."""
        return self.agent.f.grad_noise(spot.image) * self.agent.X.diameter

    def gap(self, view: _View) -> float:
        """Return ⟨∇f(y), y⟩ less its minimum over X: the Wolfe gap, if y is in X."""
        return vdot(view.grad, view.spot.x) - self.agent.lmo(view.grad, None).dot(view.grad)

    def reached(self, view: _View, inside: bool, noise: float) -> bool:
        """Return whether the view is from a point to stop at, which is surely in X if ``inside``."""
        if self.agent.gap is None:
            return False
        gap = self.gap(view)
        self._lower = max(self._lower, view.value - gap)
        if self._first is None:
            self._first, self._due = gap, self.agent.gap * gap
        return inside and gap <= max(self.agent.gap * self._first, noise)

    def near(self, value: float) -> bool:
        """Return whether f is so close to its bound that a gap is worth a step without momentum."""
        if value - self._lower > self._due:
            return False
        self._due = 0.5 * (value - self._lower)
        return True
