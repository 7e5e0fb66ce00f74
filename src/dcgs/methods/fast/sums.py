"""FastDCGS by sums: accelerated steps along ∇f, the sum of all gradients, that the root of the tree takes.

The gradients are summed along the spanning tree, and the root sends every new point down: a gradient of all
data is dense, and the points of many sets are sparse. An iteration takes two rounds if an agent is a neighbor
of all others (a hub), and twice the height of the tree in general; more for long gradients. Short gradients
are flooded: every agent has all of them after as many rounds as the graph has diameter, one if it is
complete, and does what the root does. The line numbers are those of the box "FastDCGS by sums" in
docs/methods.md. ``sums_root.py`` has what the root does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import final

import numpy as np

from dcgs.inner import Inner
from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap, excess
from dcgs.methods.fast.sums_root import SumsRoot, SumsRootState
from dcgs.methods.local_bound import LocalBound, gradient_multiplier
from dcgs.methods.reduction import Value, flooded_answer, network_answer
from dcgs.objectives import Objective
from dcgs.objectives.losses import Image
from dcgs.points import Point
from dcgs.protocol import Program

# Steps of the inner solver for a share of the dual function.
_EFFORT = 320


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """A point, and this agent's image A x of it.

    ``terms`` is the entrywise sum of the sizes of what was added up, if the image is not a product A x.
    """

    x: Point
    image: Image
    terms: Point | None = None

    def extrapolated(self, before: Sample, theta: float) -> Sample:
        """Return the sample at x + θ (x − before)."""
        terms = (1.0 + theta) * np.abs(self.x) + theta * np.abs(before.x)
        image = self.image + theta * (self.image - before.image)
        return Sample(self.x + theta * (self.x - before.x), image, terms)

    @property
    def size(self) -> Point:
        """A point whose image has at least as large a rounding error."""
        return self.x if self.terms is None else self.terms


@final
@dataclass(eq=False)
class SumsState:
    """The last step x, and y, where the next gradient is taken.

    ``share`` is this agent's share of the dual function, if the root has asked for it, and ``z`` the point
    where it was found last. ``root`` is that of the root only.
    """

    x: Sample
    y: Sample
    share: float = 0.0
    z: Point | None = None
    root: SumsRootState | None = None


def by_sums(agent: Agent, inner: Callable[[Objective], Inner], own_data: bool = False) -> Program[Point]:
    """Run FastDCGS by sums for one agent; with ``own_data`` the root's data are a part of the model of f.

    It has a diagonal preconditioner where columns are sparse or uneven, if the inner solver supports it.
    """
    f, shape = agent.f, agent.x0.shape
    start = Sample(agent.x0, f.map.image(agent.x0))
    at = agent.restore(SumsState) or SumsState(start, start)  # line 1
    root = SumsRoot(agent, inner, own_data, at.root)
    bound = LocalBound(agent, inner(f))
    for k in agent.iterations_left:  # line 2
        numbers, point, *request = yield from _answer(agent, at, root, k)  # lines 3 to 7
        if len(point) == 0:
            agent.observe(k, at.x.x)
            agent.agree(CertifiedGap.of(numbers.tolist()))
            return at.x.x
        at.share = _dual_share(at, bound, *request) if request else 0.0
        x = Sample(point.reshape(shape), f.map.image(point.reshape(shape)))
        at.y = x.extrapolated(at.x, float(numbers[0]))  # line 8
        at.x, at.root = x, root.state
        agent.observe(k, x.x)
        agent.save(k, at, root.solver)
    return at.x.x


def _answer(agent: Agent, at: SumsState, root: SumsRoot, k: int) -> Program[Value]:
    """Return the answer of the root to the sums over all agents of ∇f(y), f(x), f(y) and a few numbers.

    Values of f are differences from f(x⁰), with a bound of their rounding error.
    """
    f, y = agent.f, at.y
    noise = f.grad_error(y.size, y.image)
    (fall_x, error_x), (fall_y, error_y) = (agent.baseline.decrease(p.size, p.image) for p in (at.x, y))
    above = 0.0 if agent.target is None else excess(f, f.loss.value(at.x.image)) + error_x
    own = (-fall_x, -fall_y, max(error_x, error_y), f.smoothness, f.mean_curvature, noise, above, at.share)
    value = [f.map.adjoint(f.loss.grad(y.image)).reshape(-1), np.array(own)]
    if root.preconditioned and k == 1:
        value.append(f.loss.curvature[1] * f.map.column_squares.reshape(-1))
    decide = partial(root.answer, k, y.x)
    if root.everywhere:
        return (yield from flooded_answer(tuple(value), agent, decide))
    return (yield from network_answer(tuple(value), agent, decide, sparse_answer=True))


def _dual_share(at: SumsState, bound: LocalBound, tolerance: Point, total: Point) -> float:
    """Return this agent's share of a lower bound of f* − f(x⁰), rounded down; ``total`` is ∇f(y)."""
    agent, f = bound.agent, bound.agent.f
    grad = f.map.adjoint(f.loss.grad(at.y.image))
    dual = gradient_multiplier(agent, total.reshape(grad.shape) / agent.facts.agents, grad)
    value, noise, _, at.z = bound(dual, at.x.x if at.z is None else at.z, float(tolerance[0]), _EFFORT)
    return value - noise - dual.drift * agent.X.diameter
