"""The state of links that are not reliable: messages on their way, and what has arrived of each neighbor."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from dcgs.points import Point
from dcgs.protocol import Message


@final
@dataclass(frozen=True, eq=False)
class SentMessage:
    """A message: its sender, the round in which it was sent, and that in which it arrives.

    ``slot`` is the place of the message within an iteration of the sender.
    """

    sender: int
    sent: int
    due: int
    slot: int
    parts: tuple[Point, ...]
    is_tuple: bool

    @classmethod
    def of(cls, sender: int, sent: int, due: int, slot: int, message: Message) -> SentMessage:
        """Return a message on its way."""
        is_tuple = isinstance(message, tuple)
        return cls(sender, sent, due, slot, message if isinstance(message, tuple) else (message,), is_tuple)

    @property
    def message(self) -> Message:
        """What was sent."""
        return self.parts if self.is_tuple else self.parts[0]


@final
@dataclass(eq=False)
class AgentLinks:
    """The links to one agent, and the messages that it has sent.

    ``steps`` counts the messages that it has sent. ``is_unsent`` is True if it has not sent the message that
    it yielded last. ``in_flight`` are messages on their way to it. ``newest`` is, for each neighbor, the
    round in which the newest message that has arrived was sent. ``latest`` are the last messages that have
    arrived of each neighbor, one for each place in an iteration. ``met`` are pairs of a neighbor and a place
    of which a message was sent to this agent.
    """

    steps: int = 0
    is_unsent: bool = True
    in_flight: list[SentMessage] = field(default_factory=list)
    newest: dict[int, int] = field(default_factory=dict)
    latest: list[SentMessage] = field(default_factory=list)
    met: list[tuple[int, int]] = field(default_factory=list)

    def arrived(self, round: int) -> dict[int, Message]:
        """Return the newest message of each neighbor that has arrived since the last call.

        A message that is older than one that has arrived before is dropped.
        """
        here = sorted((each for each in self.in_flight if each.due <= round), key=lambda each: each.sent)
        self.in_flight = [each for each in self.in_flight if each.due > round]
        arrived: dict[int, Message] = {}
        for each in here:
            if each.sent > self.newest.get(each.sender, 0):
                self.newest[each.sender] = each.sent
                arrived[each.sender] = each.message
                place = each.sender, each.slot
                others = [one for one in self.latest if (one.sender, one.slot) != place]
                self.latest = sorted([*others, each], key=lambda one: (one.sender, one.slot))
        return {i: arrived[i] for i in sorted(arrived)}

    def repeated(self, slot: int) -> dict[int, Message]:
        """Return the last message of each neighbor that has this place in an iteration."""
        return {each.sender: each.message for each in self.latest if each.slot == slot}
