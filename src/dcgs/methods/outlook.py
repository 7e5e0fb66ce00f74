"""When the root of the spanning tree proposes a model, and by which bounds of f* it is to be certified.

Numbers are cheap, models are not, and gradients are dense where models are sparse. So the root proposes a
model when it expects its gap to be small enough: from the residual of the method, if it has one, whose unit
is that of f; else from the gaps so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from enum import IntEnum
from typing import TypeAlias, final

import numpy as np

from dcgs.methods.base import Agent, Dual
from dcgs.methods.certificate import CertifiedGap, excess
from dcgs.points import Point

# What the root expects of the gap of its point before one was measured: this multiple of the number of agents
# times its own part, in the gap by the dual function or in f above the least value of the losses, plus its
# residual, as the others have other points.
_RATIO = 1.3
# The rate at which the part by the dual function falls from one round to the next, before it was measured,
# and the most that is expected.
_RATE, _MOST_RATE = 0.1, 0.3
# The root computes its own part when the other is at most this multiple of the gap asked for.
_NEAR = 2.0
# If it is r times the gap asked for, the root looks again after this multiple of log r rounds.
_WAIT = 2.0
# Without a residual it also waits for this share of the rounds so far.
_SELDOM = 10
# A second model is proposed while the first is on its way if its gap is expected to be so much smaller.
_BETTER = 0.5
# A certificate changes the expectations by this factor at most.
_MOST_OFF = 10.0
# A model is proposed if its gap is expected to be at most this multiple of the gap asked for: the second
# number if it is cheap, that is if models and gradients take at most the share _CHEAP of all that is sent.
_GOOD, _GENEROUS, _CHEAP = 0.7, 1.0, 0.012
# An agent's share of the dual function may be wrong by this share of the gap asked for, over all agents.
_TOLERANCE = 0.25
# Steps of the inner solver for a share of the dual function: at first, at most, and the factor by which they
# grow where they were too few.
_EFFORT, _MOST_EFFORT, _MORE = 80, 2560, 4
# The gap falls as a power of the number of rounds, between these.
_SLOWEST, _FASTEST = 0.5, 6.0
# A model is proposed at the latest after this multiple of the rounds at the last request, and this many
# heights of the tree.
_LATEST, _HEIGHTS = 1.5, 4
# The first model is proposed after so many rounds at the latest.
_FIRST = 100
# x⁰ may be optimal if Σ fᵢ(x⁰) − fᵢ(xᵢ) has fallen to this share of what it was: agents return to x⁰.
_VANISHED = 0.2
# In every so many requests, gradients are asked for.
_ALWAYS = 5
# A gradient is asked for if the gap by it is expected to be at most this multiple of the gap asked for.
_WOLFE = 2.0


OwnGap: TypeAlias = Callable[[Dual, Point, float, int], tuple[float, float]]
"""dual, x, tolerance, effort ↦ the root's part of the gap at x by the dual function; how far it is off."""


class Proposal(IntEnum):
    """What the root proposes as the model of the next certificate."""

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

    ``tolerance`` is that of an agent's share of the dual function, 0 for none, and ``effort`` limits the
    steps of its inner solver. With ``gradient``, the gradients at the model are summed. The multipliers are
    the method's own, or with ``uses_gradients`` those of the gradients at the last model.
    """

    proposal: Proposal = Proposal.NOTHING
    gradient: bool = False
    uses_gradients: bool = False
    tolerance: float = 0.0
    effort: int = 0

    @classmethod
    def fields(cls) -> tuple[str, ...]:
        """Return the names of the fields."""
        return tuple(each.name for each in fields(cls))

    def numbers(self) -> list[float]:
        """Return the fields as numbers."""
        return [float(getattr(self, name)) for name in self.fields()]

    @classmethod
    def of(cls, numbers: list[float]) -> Request:
        """Return the request with these numbers."""
        proposal, gradient, uses_gradients, tolerance, effort = numbers
        return cls(Proposal(int(proposal)), bool(gradient), bool(uses_gradients), tolerance, int(effort))


@final
@dataclass(frozen=True)
class Measured:
    """The gaps of a model that was proposed in ``round``, when its gap was ``expected``; the best of all."""

    round: int
    expected: float
    best: CertifiedGap
    wolfe: float | None
    dual: float | None
    left: float


@final
@dataclass(eq=False)
class Outlook:
    """What the root knows about the gaps to come.

    Gaps are about ``ratio`` times what the root knows alone; ``expected`` was the last one, of the model that
    was proposed in ``round``. The root's own part of the gap was ``own_gap`` in the round ``looked``, falls
    with this ``rate``, and is computed again in the round ``look``. ``gap`` is the last gap, of a model of
    the round ``measured``, and falls as this ``power`` of rounds. ``wolfe`` is the last Wolfe gap.
    ``decrease`` is the last f(x⁰) − f(y), ``local`` the last sum of the agents' own decreases, and ``first``
    the first. ``entries`` counts those of the root's ``points`` so far, and ``spent`` those of models and
    gradients along the tree.
    """

    ratio: float = _RATIO
    expected: float = math.inf
    own_gap: float = math.inf
    looked: int = 0
    look: int = 0
    rate: float = _RATE
    gap: float = math.inf
    measured: int = 0
    round: int = 0
    power: float = 1.0
    decrease: float = 0.0
    first: float = -1.0
    local: float = 0.0
    requests: int = 0
    effort: int = _EFFORT
    wolfe: float = math.inf
    tried_start: bool = False
    may_be_start: bool = False
    entries: float = 0.0
    points: int = 0
    spent: float = 0.0

    def count(self, x: Point) -> None:
        """Count the entries of a point of the root, for an estimate of what is sent."""
        self.entries += int(np.count_nonzero(x))
        self.points += 1

    def read_own(self, decrease: float) -> None:
        """Learn the sum of the decreases at the agents' own points."""
        self.local = decrease
        if self.first < 0.0:
            self.first = decrease

    def read(self, measured: Measured) -> None:
        """Learn from the gaps of a model."""
        best = measured.best
        self.may_be_start = best.decrease <= best.noise
        self.decrease = max(best.decrease, 0.0)
        if 0.0 < best.gap < self.gap < math.inf and measured.round > self.measured > 0:
            fall = math.log(self.gap / best.gap) / math.log(measured.round / self.measured)
            self.power = min(_FASTEST, max(_SLOWEST, fall))
        self.gap, self.measured = max(best.gap, 0.0), measured.round
        if 0.0 < measured.expected < math.inf:
            self.ratio *= min(_MOST_OFF, max(1.0 / _MOST_OFF, self.gap / measured.expected))
        if measured.wolfe is not None:
            self.wolfe = measured.wolfe
        if measured.dual is not None:
            self._adapt(measured.left, measured.dual, 0.0)

    def _adapt(self, left: float, gap: float, goal: float) -> None:
        """Allow more effort if a gap above the goal is mostly how far the shares are from their minima."""
        if gap > goal and left > 0.5 * gap:
            self.effort = min(_MOST_EFFORT, _MORE * self.effort)

    def request(
        self, agent: Agent, rounds: int, x: Point, dual: Dual | None, own_gap: OwnGap, is_alone: bool
    ) -> Request | None:
        """Return what the root asks for now, or None if it waits.

        ``dual`` has the root's multiplier, if agents have multipliers that sum to zero. ``is_alone`` is False
        if another model is on its way.
        """
        target = agent.target
        assert target is not None
        decrease = self.decrease if self.decrease > 0.0 else self.local
        goal = target.threshold(max(decrease, 0.0))
        vanished = self.local <= _VANISHED * self.first
        if not self.tried_start and (self.may_be_start or goal <= 0.0 or (vanished and self.requests > 0)):
            self.tried_start = True
            self._note(rounds, math.inf)
            return Request(Proposal.START, gradient=True)
        if not is_alone and (dual is None or rounds < self.round + max(2, agent.tree.height // 2)):
            return None
        expected = self._expected(agent, rounds, x, dual, goal, own_gap)
        if not is_alone and expected > _BETTER * self.expected:
            return None
        if not self._is_due(agent, rounds, x, expected, goal):
            return None
        tolerance = _TOLERANCE * goal / agent.facts.agents
        uses_gradients = dual is None and self.requests > 0 and self.wolfe < math.inf
        gradient = dual is None or self._wants_gradient(rounds, goal)
        self._note(rounds, expected)
        others = agent.facts.agents - 1 - len(agent.tree.children)
        self.spent += others * int(np.count_nonzero(x)) + (agent.facts.agents - 1) * gradient * x.size
        if dual is None and not uses_gradients:
            tolerance = 0.0
        return Request(Proposal.MODEL, gradient, uses_gradients, tolerance, self.effort)

    def _expected(
        self, agent: Agent, rounds: int, x: Point, dual: Dual | None, goal: float, own_gap: OwnGap
    ) -> float:
        """Return the gap that is expected of the root's point."""
        if goal <= 0.0:
            return math.inf
        if dual is None:
            if self.requests == 0:
                return 0.0 if rounds >= 2 * max(1, agent.tree.height) else math.inf
            return self.gap * math.pow(self.measured / max(rounds, 1), self.power)
        agents = agent.facts.agents
        disagreement = agents * (dual.residual or 0.0)
        if rounds < self.look or self.ratio * disagreement > _NEAR * goal:
            return math.inf
        above = agents * excess(agent.f, agent.f.value(x))
        expected = self.ratio * (above + disagreement)
        if expected > goal:
            gap, left = own_gap(dual, x, _TOLERANCE * goal / agents, self.effort)
            gap *= agents
            self._adapt(left * agents, gap, goal)
            if self.own_gap > gap > 0.0:
                self.rate = min(_MOST_RATE, math.log(self.own_gap / gap) / (rounds - self.looked))
            self.own_gap, self.looked = gap, rounds
            # The shares of the dual function are of a later iteration than the model.
            gap *= math.exp(-self.rate * agent.tree.height)
            expected = min(expected, self.ratio * (gap + disagreement))
        wait = round(_WAIT * math.log(max(expected / goal, 1.0)))
        self.look = rounds + max(1, wait, rounds // _SELDOM if dual.residual is None else 0)
        return expected

    def _note(self, rounds: int, expected: float) -> None:
        self.requests += 1
        self.round, self.expected = rounds, expected

    def _wants_gradient(self, rounds: int, goal: float) -> bool:
        """Return True if the Wolfe gap is worth its gradient, beside shares of the dual function."""
        if self.requests % _ALWAYS == _ALWAYS - 1:
            return True
        fall = math.pow(self.round / max(rounds, 1), self.power)
        return self.wolfe < math.inf and self.wolfe * fall <= _WOLFE * goal

    def _is_due(self, agent: Agent, rounds: int, x: Point, expected: float, goal: float) -> bool:
        """Return True if the gap is expected to be small enough, or if none was measured for long."""
        latest = max(_LATEST * self.round, self.round + _HEIGHTS * max(1, agent.tree.height))
        if rounds >= max(latest, _FIRST if self.requests == 0 else 0):
            return True
        return expected <= (_GENEROUS if self._is_cheap(agent, rounds, x) else _GOOD) * goal

    def _is_cheap(self, agent: Agent, rounds: int, x: Point) -> bool:
        """Return True if a model costs little beside all that has been sent so far."""
        facts = agent.facts
        traffic = rounds * facts.agents * facts.mean_degree * self.entries / max(self.points, 1)
        return self.spent + (facts.agents - 1) * int(np.count_nonzero(x)) <= _CHEAP * traffic
