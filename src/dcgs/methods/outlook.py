"""When the root of the spanning tree proposes a model, and by which bounds of f* it is to be certified.

Numbers are cheap, models are not, and gradients are dense where models are sparse. So the root proposes a
model when it expects its gap to be small enough: from the residual of the method, if it has one, whose unit
is that of f; else from the gaps so far.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np

from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap
from dcgs.points import Point

# The gap of the root's point is expected to be the number of agents times what the root knows of it alone,
# times this number before a gap was measured; a certificate changes it by _MOST_OFF at most.
_RATIO, _MOST_OFF = 1.3, 10.0
# The rate at which the part by the dual function falls from one round to the next: before it was measured,
# the least that is reckoned with, and the most. However many rounds there are, it is not expected to fall by
# more than the factor _MOST_FALL.
_RATE, _LEAST_RATE, _MOST_RATE, _MOST_FALL = 0.15, 0.05, 0.2, 3.0
# If the gap is expected to be small enough after some rounds, the root looks again after this share of them,
# but not later than after half as many rounds as so far, or the height of the tree.
# Without a residual it looks after _SOON rounds first, and again after this share of all rounds, or later.
_WAIT, _SELDOM, _SOON = 0.5, 0.1, 10
# If f is expected to be at most this multiple of the gap asked for above the least value of the losses, and
# falls toward it, the root does not compute its part by the dual function.
_NEAR = 10.0
# If the gap by the dual function is this multiple of that by another bound, it is left alone until there are
# _LATEST times as many rounds.
_HOPELESS = 3.0
# Steps of the inner solver with which the root computes it. They grow by the factor _MORE where they leave
# more than the share _LEFT of it open, and what was found then holds for _HOLDS rounds. What is open counts
# with the share _OPEN. Agents take _MORE times the steps for their shares, but not more than _MOST_EFFORT.
# Their solves may have been too short if they find _SHORT times the gap that was expected.
_SHORT = 1.5
_EFFORT, _MORE, _MOST_EFFORT, _LEFT, _OPEN, _HOLDS = 40, 16, 2560, 0.9, 0.3, 10
# A model is proposed if its gap is expected to be at most this multiple of the gap asked for: the second
# number if it is cheap, that is if models and gradients take at most the share _CHEAP of all that is sent. A
# second model is proposed while the first is on its way if its gap is expected to be _BETTER times as large.
_GOOD, _GENEROUS, _CHEAP, _BETTER = 0.7, 1.0, 0.015, 0.5
# A model is proposed at the latest after this multiple of the rounds at the last proposal, and this many
# heights of the tree; the first one after so many rounds.
_LATEST, _HEIGHTS, _FIRST = 1.5, 4, 100
# An agent's share of the dual function may be wrong by this share of the gap asked for, over all agents; what
# the root expects, by _COARSE.
_TOLERANCE, _COARSE = 0.25, 0.75
# A gradient is asked for if the gap by it is expected to be at most this multiple of the gap asked for, and
# in every so many requests.
_WOLFE, _ALWAYS = 2.0, 5
# The gap falls as a power of the number of rounds, between these.
_SLOWEST, _FASTEST = 0.5, 6.0
# Shares are flooded if they are at most the share _WORTH of the numbers in the messages of the rounds that it
# saves. A row is of so many numbers, what is attached has a header of as many, and a message of the method.
_WORTH = 0.25
_ROW, _HEADER, _MESSAGE = 5, 6, 14


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
    the method's own, or with ``uses_gradients`` those of the gradients at the last model. With ``floods``
    shares are flooded, else added along the tree.
    """

    proposal: Proposal = Proposal.NOTHING
    gradient: bool = False
    uses_gradients: bool = False
    tolerance: float = 0.0
    effort: int = 0
    floods: bool = False

    def numbers(self) -> tuple[float, float]:
        """Return the request as two numbers."""
        code = self.proposal + 4 * self.gradient + 8 * self.uses_gradients
        code += 16 * self.floods + 32 * self.effort
        return float(code), self.tolerance

    @classmethod
    def of(cls, code: float, tolerance: float) -> Request:
        """Return the request with the numbers of :meth:`numbers`."""
        effort, rest = divmod(int(code), 32)
        return cls(Proposal(rest % 4), bool(rest & 4), bool(rest & 8), tolerance, effort, bool(rest & 16))


@final
@dataclass(frozen=True)
class Measured:
    """The gaps of a model that was proposed in ``round``, when its gap was ``expected``; the best of all."""

    round: int
    expected: float
    best: CertifiedGap
    wolfe: float | None
    dual: float | None


@final
@dataclass(frozen=True, eq=False)
class View:
    """What the root sees after an iteration: its point x, and the part of its own data in gaps.

    ``has_dual`` is True if agents have multipliers that sum to zero. ``residual`` is the agent's disagreement
    with neighbors, in the unit of f, None if it is not known. ``decrease`` and ``excess`` compute
    fᵢ(x⁰) − fᵢ(x) and fᵢ(x) minus its least value, and ``dual_gap(tolerance, effort)`` the root's part of the
    gap at x by the dual function, and how far that is off.
    """

    agent: Agent
    rounds: int
    x: Point
    has_dual: bool
    residual: float | None
    decrease: Callable[[], float]
    excess: Callable[[], float]
    dual_gap: Callable[[float, int], tuple[float, float]]

    @property
    def height(self) -> int:
        """The height of the tree, and 1 for a single agent."""
        return max(1, self.agent.tree.height)


@final
@dataclass(eq=False)
class Outlook:
    """What the root knows about the gaps to come.

    Gaps are about ``ratio`` times what the root knows alone. ``expected`` was the gap of the last model that
    was proposed, in ``round``. ``is_least`` is True if f is expected to be near the least value of the
    losses; the root's was by ``excess`` above it in the round ``compared``. The part by the dual function was
    ``dual_gap`` in the round ``looked``, falls at this ``rate``, and is computed with this ``effort``, not
    before the round ``look_dual``. Nothing is computed before the round ``look``, and the root's own decrease
    not before ``look_own``. ``gap`` is the last gap, of a model of the round ``measured``, and falls as this
    ``power`` of rounds; ``wolfe`` is the last Wolfe gap. ``decrease`` is the last f(x⁰) − f(y), and ``local``
    what the root's own data tell of it before. ``entries`` counts those of the root's ``points`` so far, and
    ``spent`` the numbers that certificates have added to the messages for one neighbor, where they add most.
    """

    ratio: float = _RATIO
    expected: float = math.inf
    round: int = 0
    dual_gap: float = math.inf
    looked: int = 0
    rate: float = _RATE
    effort: int = _EFFORT
    look: int = 0
    look_own: int = 0
    look_dual: int = 0
    gap: float = math.inf
    measured: int = 0
    power: float = 1.0
    wolfe: float = math.inf
    decrease: float = 0.0
    local: float = 0.0
    requests: int = 0
    tried_start: bool = False
    may_be_start: bool = False
    is_least: bool = False
    excess: float = math.inf
    compared: int = 0
    entries: float = 0.0
    points: int = 0
    spent: float = 0.0

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
        if measured.dual is not None and measured.dual > _HOPELESS * self.gap:
            self.look_dual = int(_LATEST * measured.round) + 1
        if measured.dual is not None and measured.dual > 0.0:
            self.dual_gap, self.looked = measured.dual / self.ratio, measured.round
            if measured.dual > _SHORT * measured.expected:
                self._raise_effort()

    def request(self, view: View, is_alone: bool) -> Request | None:
        """Return what the root asks for now, or None if it waits.

        ``is_alone`` is False if another model is on its way.
        """
        self.entries += int(np.count_nonzero(view.x))
        self.points += 1
        goal = self._goal(view)
        if not self.tried_start and (self.may_be_start or goal <= 0.0):
            self.tried_start = True
            self._propose(view, math.inf)
            return Request(Proposal.START, gradient=True)
        if not is_alone and (not view.has_dual or view.rounds < self.round + max(2, view.height // 2)):
            return None
        expected = self._expected(view, goal, is_alone)
        is_better = is_alone or (expected <= _BETTER * self.expected and self._share(view) <= _CHEAP)
        if not (is_better and self._is_due(view, expected, goal)):
            return None
        uses_gradients = not view.has_dual and self.wolfe < math.inf
        gradient = not view.has_dual or self._wants_gradient(view, goal)
        floods = not gradient and self._may_flood(view)
        self.spent += self._cost(view, floods) + view.x.size * (gradient + uses_gradients)
        self._propose(view, expected)
        has_multipliers = view.has_dual or uses_gradients
        wants_dual = has_multipliers and not self.is_least and view.rounds >= self.look_dual
        tolerance = _TOLERANCE * goal / view.agent.facts.agents if wants_dual else 0.0
        # Where nothing is known of the gap, the dual function is tried with little effort.
        effort = self.effort if expected == math.inf else min(_MORE * self.effort, _MOST_EFFORT)
        return Request(Proposal.MODEL, gradient, uses_gradients, tolerance, effort, floods)

    def _goal(self, view: View) -> float:
        """Return the gap asked for, as far as the decrease of f is known."""
        target, agents = view.agent.target, view.agent.facts.agents
        assert target is not None
        if self.decrease <= 0.0 and view.rounds >= self.look_own:
            self.local, self.look_own = agents * view.decrease(), 2 * view.rounds
        return target.threshold(max(self.decrease if self.decrease > 0.0 else self.local, 0.0))

    def _expected(self, view: View, goal: float, is_alone: bool) -> float:
        """Return the gap that is expected of the root's point."""
        if goal <= 0.0 or view.rounds < max(self.look, view.height if view.residual is not None else _SOON):
            return math.inf
        if not view.has_dual:
            if self.requests == 0:
                return 0.0 if view.rounds >= 2 * view.height else math.inf
            return self.gap * math.pow(self.measured / max(view.rounds, 1), self.power)
        agents = view.agent.facts.agents
        disagreement = agents * (view.residual or 0.0)
        if self.ratio * disagreement > goal:
            return math.inf
        excess = view.excess()
        expected = self.ratio * (agents * excess + disagreement)
        # f* may be above the least value of the losses by more than the gap: f falls no further then.
        falls = excess <= self.excess * math.exp(-_LEAST_RATE * (view.rounds - self.compared))
        self.excess, self.compared = excess, view.rounds
        self.is_least = expected <= _GOOD * goal or (expected <= _NEAR * goal and falls)
        if not self.is_least and view.rounds >= self.look_dual:
            dual = self._dual_part(view, goal, is_alone)
            if dual > _HOPELESS * agents * excess:
                self.look_dual = int(_LATEST * view.rounds) + 1
            expected = min(expected, self.ratio * (dual + disagreement))
        rounds = math.log(max(expected / goal, 1.0)) / max(self.rate, _LEAST_RATE)
        seldom = _SELDOM * view.rounds if view.residual is None else 0.0
        soon = min(_WAIT * rounds, max(view.height, 0.5 * view.rounds))
        self.look = view.rounds + max(1, int(max(soon, seldom)))
        return expected

    def _dual_part(self, view: View, goal: float, is_alone: bool) -> float:
        """Return the part by the dual function in the gap of a model that is proposed now.

        It is computed, unless that takes long and a result holds, or another model is on its way.
        """
        since = view.rounds - self.looked
        gap = self.dual_gap * self._fall(since)
        holds = not is_alone or (self.effort > _EFFORT and since < _HOLDS)
        if gap == math.inf or not holds:
            agents, tolerance = view.agent.facts.agents, _COARSE * goal / view.agent.facts.agents
            found, left = (agents * number for number in view.dual_gap(tolerance, self.effort))
            if left > _LEFT * found > goal and self.effort < _MOST_EFFORT:
                self._raise_effort()
                found, left = (agents * number for number in view.dual_gap(tolerance, self.effort))
            gap = found - (1.0 - _OPEN) * left
            if self.dual_gap > gap > 0.0 and since > 0:
                self.rate = min(_MOST_RATE, math.log(self.dual_gap / gap) / since)
            self.dual_gap, self.looked = gap, view.rounds
        # The shares of the dual function are of a later iteration than the model.
        return gap * self._fall(view.height)

    def _fall(self, rounds: int) -> float:
        """Return the factor by which the part by the dual function is expected to fall in these rounds."""
        return max(math.exp(-self.rate * rounds), 1.0 / _MOST_FALL)

    def _raise_effort(self) -> None:
        self.effort = min(_MORE * self.effort, _MOST_EFFORT)

    def _propose(self, view: View, expected: float) -> None:
        self.requests += 1
        self.round, self.expected = view.rounds, expected

    def _wants_gradient(self, view: View, goal: float) -> bool:
        """Return True if the Wolfe gap is worth its gradient, beside shares of the dual function."""
        if self.requests % _ALWAYS == _ALWAYS - 1:
            return True
        return self.wolfe * math.pow(self.round / max(view.rounds, 1), self.power) <= _WOLFE * goal

    def _is_due(self, view: View, expected: float, goal: float) -> bool:
        """Return True if the gap is expected to be small enough, or if none was measured for long."""
        latest = max(_LATEST * self.round, self.round + _HEIGHTS * view.height)
        if view.rounds >= max(latest, _FIRST if self.requests == 0 else 0):
            return True
        return expected <= (_GENEROUS if self._share(view) <= _CHEAP else _GOOD) * goal

    def _may_flood(self, view: View) -> bool:
        """Return True if flooding of shares saves rounds, whose messages have many more numbers."""
        saved = 2 * view.agent.tree.height - view.agent.tree.diameter
        return view.agent.reliable and saved > 0 and self._flood(view) <= _WORTH * saved * self._message

    def _share(self, view: View) -> float:
        """Return the share of certificates, with another one, in all that is sent until they are known."""
        rounds = view.rounds + 2 * view.height
        return (self.spent + self._cost(view, floods=False)) / (rounds * self._message)

    def _cost(self, view: View, floods: bool) -> float:
        """Return about how many numbers a certificate adds to each message of the agent that sends most."""
        numbers = self._flood(view) if floods else 0.0
        return numbers + view.agent.tree.load * int(np.count_nonzero(view.x))

    @property
    def _message(self) -> float:
        """The numbers of a message of the method, on average."""
        return _MESSAGE + self.entries / self.points

    def _flood(self, view: View) -> float:
        """Return about how many numbers cross an edge in one direction if shares are flooded.

        An agent sends what is new to it to all neighbors but the one from which it came.
        """
        facts = view.agent.facts
        new = 1.0 - (facts.agents - 1) / (facts.agents * facts.mean_degree) if facts.agents > 1 else 0.0
        return _ROW * facts.agents * new + _HEADER * view.agent.tree.diameter
