"""When agents may stop: a gap that they certify together, though none of them sees everything.

It takes three epochs, each as long as news need to reach everyone. In the first, agent 0's point travels
to all as a model y. In the second, the gradients at y travel back along the same edges and are added up
on the way, so that agent 0 gets ∇f(y) and asks its oracle for the Wolfe gap. In the third, everyone hears of
the gap, and of f(y), and all come to the same decision in the same round.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import final

import numpy as np

from dcgs.memory import Memory, Past, Remembers, plain
from dcgs.methods.base import Agent
from dcgs.methods.letters import Letter, News, Parcel, Row
from dcgs.points import EPS, Point, frozen, norm, vdot

WIDTH = 3
"""Numbers an agent tells about a model: its gap, its loss below that at x⁰, and the gap's rounding error."""

# After a gap that was too large, a model sets out when the residual has fallen as much as the gap must still,
# but for this factor; and every so many epochs in any case.
_HOPE = 3.0
_ANYHOW = 10


class Phase(Enum):
    """What the epoch is used for."""

    WAITING = auto()
    SUMMING = auto()
    TELLING = auto()


@final
class Certificate(Remembers):
    """What one agent does for the common certificate; nothing where the end is not the agents' to decide."""

    def __init__(self, agent: Agent, value: float) -> None:
        self.agent = agent
        self.value = value  # of fᵢ at x⁰
        self.phase = Phase.WAITING
        self.model: Point | None = None
        self.row: Row = (0.0,) * WIDTH
        self._parcel: Parcel | None = None
        self._depth = 0
        self._parent = 0
        self._sum = agent.x0
        # The gap at x⁰ is 1, relative to itself.
        self._gap = 1.0
        self._residual: float | None = None

    @classmethod
    def again(cls, agent: Agent, past: Past) -> Certificate:
        """Return the certificate of a memory."""
        its = cls(agent, past.number("value"))
        its.phase = Phase[past.word("phase")]
        its.model = past.point("model") if "model" in past else None
        its.row = tuple(past.point("row").tolist())
        if "parcel" in past:
            its._parcel = Parcel(past.part("parcel").point("point"), past.part("parcel").whole("to"))
        its._depth, its._parent = past.whole("depth"), past.whole("parent")
        its._sum, its._gap = past.point("sum"), past.number("gap")
        its._residual = past.number("residual") if "residual" in past else None
        return its

    def memory(self) -> Memory:
        return {
            "value": self.value,
            "phase": self.phase.name,
            "model": self.model,
            "row": np.array(self.row),
            "parcel": plain(self._parcel),
            "depth": self._depth,
            "parent": self._parent,
            "sum": self._sum,
            "gap": self._gap,
            "residual": self._residual,
        }

    def parcel(self, step: int) -> Parcel | None:
        """Return what goes out with the letters of this step of the epoch."""
        if self.phase is Phase.SUMMING:
            turn = self._depth > 0 and step == self.agent.facts.hops - self._depth + 1
            return Parcel(self._sum, self._parent) if turn else None
        parcel, self._parcel = self._parcel, None
        return parcel

    def receive(self, letters: Mapping[int, Letter], step: int) -> None:
        """Take in the parcels of this step."""
        parcels = {j: letter.parcel for j, letter in letters.items() if letter.parcel is not None}
        if self.phase is Phase.SUMMING:
            for parcel in parcels.values():
                if parcel.to == self.agent.index:
                    self._sum = self._sum + parcel.point
        elif parcels and self.model is None:
            self._parent = min(parcels)
            self._depth = step
            self.model = frozen(parcels[self._parent].point)
            self._parcel = Parcel(self.model)

    def agreed(self, news: News) -> Point | None:
        """Return the model if its gap is what was asked for, once everyone has heard of it; the same for all.

        What was asked for is relative to the gap at x⁰, which is at least f(x⁰) − f(y): a test by the latter
        errs on the safe side. A gap that is all rounding error gets no smaller.
        """
        if self.phase is not Phase.TELLING or self.agent.gap is None:
            return None
        gap, fall, noise = (news.total(column) for column in range(-WIDTH, 0))
        self._gap = gap / fall if fall > 0.0 else 1.0
        return self.model if gap <= max(self.agent.gap * fall, noise) else None

    def turn(self, x: Point, w: Point, epoch: int, residual: float) -> None:
        """Go on to the next epoch, at whose start the agent has the point x and the price w."""
        self.row, self._parcel = (0.0,) * WIDTH, None
        if self.phase is Phase.SUMMING:
            self.phase = Phase.TELLING
            self._tell()
        elif self.phase is Phase.WAITING and self.model is not None:
            self.phase = Phase.SUMMING
            self._sum = self.agent.f.grad(self.model) + w
        else:
            self.phase, self.model = Phase.WAITING, None
            if self.agent.gap is not None and self.agent.index == 0 and self._is_time(epoch, residual):
                self.model = frozen(x)
                self._parcel = Parcel(self.model)

    def _tell(self) -> None:
        """Write this agent's row about the model."""
        f, y = self.agent.f, self.model
        assert y is not None
        image = f.map.image(y)
        gap = 0.0
        if self.agent.index == 0:
            gap = vdot(self._sum, y) - self.agent.lmo(self._sum, None).dot(self._sum)
        noise = (f.grad_noise(image) + EPS * norm(self._sum)) * self.agent.X.diameter
        self.row = (gap, self.value - f.loss.value(image), noise)

    def _is_time(self, epoch: int, residual: float) -> bool:
        """Return whether a model is worth its bytes; the residual goes down with the square of the gap."""
        assert self.agent.gap is not None
        if epoch == 0:
            return False  # the news of the first epoch are older than all iterations
        if self._residual is None:
            self._residual = residual
        hopeful = residual <= self._residual * (_HOPE * self.agent.gap / self._gap) ** 2
        if not hopeful and epoch % _ANYHOW:
            return False
        self._residual = residual
        return True
