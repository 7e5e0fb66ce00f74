"""The certificate by which the agents of FastDCGS over edges stop: an upper bound of f(y) − f* for a model y.

The root of the spanning tree sends its point down as a model y, with the answer of a reduction. In the next
reduction the agents sum up the decreases fᵢ(x⁰) − fᵢ(y) and what the root has asked for: shares of a lower
bound of f*, or gradients. The root computes a gap from the sums, and sends it down. So all agents come to the
same decision.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeAlias, final

import numpy as np

from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap, GapKind, gap_noise
from dcgs.methods.local_bound import DualShare
from dcgs.points import EPS, Point, frozen, norm

# What an agent says of a least value that its loss does not know; sums of it are finite.
_UNKNOWN = 1e300
# The rounding errors of a sum of losses, in units of EPS.
_ROUNDINGS = 4.0

Bound: TypeAlias = Callable[[float], DualShare]
"""tolerance ↦ the agent's share of a lower bound of f* − f(x⁰)."""


class Proposal(IntEnum):
    """What the root proposes for the next certificate."""

    NOTHING = 0
    """No certificate."""
    START = 1
    """The starting point x⁰, which all agents have."""
    MODEL = 2
    """A model that is sent down the tree."""


@final
@dataclass(frozen=True)
class Request:
    """What the root asks for: a model's decrease, and shares of lower bounds.

    ``tolerance`` is that of an agent's share of the dual function; 0 asks for none. With ``gradient``, the
    gradients at the model are summed.
    """

    proposal: Proposal = Proposal.NOTHING
    tolerance: float = 0.0
    gradient: bool = False


class Shares(NamedTuple):
    """What an agent contributes to a certificate, or the sums over all agents.

    At the model: a lower bound of the ``decrease`` f(x⁰) − f(y), its rounding ``error``, the ``excess`` of f
    over the least value of the losses, and the ``noise`` of the gradient. ``bound`` is a lower bound of
    f* − f(x⁰). At the agents' own points: Σ fᵢ(x⁰) − fᵢ(xᵢ), and the excess of Σ fᵢ(xᵢ).
    """

    decrease: float = 0.0
    error: float = 0.0
    excess: float = 0.0
    noise: float = 0.0
    bound: float = 0.0
    local_decrease: float = 0.0
    local_excess: float = 0.0


@final
@dataclass(frozen=True)
class Found:
    """The best gap of a model, its gap by a gradient, and its gap by the dual function alone."""

    best: CertifiedGap
    wolfe: CertifiedGap | None = None
    dual: float | None = None


@final
@dataclass(eq=False)
class Certificate:
    """One agent's part in the certificate.

    ``model`` is the point whose gap is to be certified, if there is one, and ``request`` says what it is. At
    the root, ``lower`` is the best lower bound of f* − f(x⁰) so far, and ``kind`` says where it is from.
    """

    model: Point | None = None
    request: Request = field(default_factory=Request)
    lower: float | None = None
    kind: GapKind = GapKind.WOLFE

    def contribution(self, agent: Agent, x: Point, bound: Bound | None) -> tuple[Shares, Point | None]:
        """Return this agent's shares, and the gradient at the model if the root has asked for it.

        x is the agent's own point, and ``bound`` computes its share of the dual function.
        """
        shares, grad = Shares(), None
        if agent.target is None:
            return shares, grad
        f = agent.f
        if self.model is not None:
            image = f.map.image(self.model)
            decrease, error = agent.baseline.decrease(self.model, image)
            noise = 0.0
            if self.request.gradient:
                grad, noise = f.map.adjoint(f.loss.grad(image)), f.grad_error(self.model, image)
            excess = _excess(agent, f.loss.value(image)) + error
            shares = Shares(decrease - error, error, excess, noise)
        if not agent.reliable:
            return shares, grad
        if bound is not None and self.request.tolerance > 0.0:
            lower = bound(self.request.tolerance)
            shares = shares._replace(bound=lower.value - lower.noise)
        image = f.map.image(x)
        local = agent.baseline.decrease(x, image)[0], _excess(agent, f.loss.value(image))
        return shares._replace(local_decrease=local[0], local_excess=local[1]), grad

    def found(self, agent: Agent, sums: Shares, grad: Point | None) -> Found | None:
        """Return the gap at the model, from the sums over all agents; the root calls the oracle."""
        if self.model is None:
            return None
        at_start, wolfe, dual = self.request.proposal is Proposal.START, None, None
        highest = -sums.decrease - 2.0 * sums.error  # f(y) − f(x⁰), rounded down
        if grad is not None:
            gap, error = agent.proven_gap(grad, self.model)
            noise = gap_noise(sums.noise, norm(self.model), agent.X.diameter) + error
            wolfe = CertifiedGap(gap, sums.decrease, noise, at_start)
            self._raise_to(highest - wolfe.gap - noise, GapKind.WOLFE)
        if agent.reliable and sums.excess < _UNKNOWN:
            self._raise_to(highest - sums.excess, GapKind.LEAST)
        if self.request.tolerance > 0.0:
            dual = -sums.decrease - sums.bound
            self._raise_to(sums.bound, GapKind.DUAL)
        gaps = [] if wolfe is None else [wolfe]
        if self.lower is not None and agent.reliable:
            gaps.append(CertifiedGap(-sums.decrease - self.lower, sums.decrease, 0.0, at_start, self.kind))
        if not gaps:
            return None
        best = min(gaps, key=lambda gap: gap.gap + gap.noise)
        if wolfe is not None and agent.target is not None and not agent.target.reached(best):
            best = wolfe if agent.target.ends(wolfe) else best
        return Found(best, wolfe, dual)

    def _raise_to(self, lower: float, kind: GapKind) -> None:
        if self.lower is None or lower > self.lower:
            self.lower, self.kind = lower, kind

    def accept(self, agent: Agent, request: Request, model: Point | None) -> None:
        """Store what the root has asked for."""
        self.model, self.request = None, request
        if request.proposal is Proposal.START:
            self.model = agent.x0
        elif request.proposal is Proposal.MODEL:
            assert model is not None
            self.model = frozen(model)


def _excess(agent: Agent, value: float) -> float:
    """Return an upper bound of fᵢ minus the least value of its loss, given the value of fᵢ."""
    loss = agent.f.loss
    if loss.least == -math.inf:
        return _UNKNOWN
    least = loss.size * loss.least
    return value - least + _ROUNDINGS * EPS * (abs(value) + abs(least))


def shares_of(numbers: Point) -> Shares:
    """Return the shares with these numbers."""
    return Shares(*map(float, numbers))


def numbers_of(shares: Shares) -> Point:
    """Return the shares as an array."""
    return np.array(shares, dtype=np.float64)
