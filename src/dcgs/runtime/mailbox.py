"""Mailboxes of an asynchronous run, and the exchange of messages between their processes. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import final

from dcgs.protocol import Inbox, Message
from dcgs.runtime.encoding import Buffer
from dcgs.runtime.exchange import NeighborExchange
from dcgs.runtime.messages import Packets
from dcgs.runtime.wire import HEADER, Frame, Header, Kind, MessageError, bundle, read_header, read_messages


@final
@dataclass(eq=False)
class Mailbox:
    """The messages that have arrived at one agent and that it has not used, the newest of each neighbor.

    ``heard`` has, for each neighbor, the agent's own step in which it last used a message of this neighbor.
    """

    neighbors: Sequence[int]
    arrived: dict[int, tuple[int, Message]] = field(default_factory=dict)
    heard: dict[int, int] = field(default_factory=dict)

    def put(self, sender: int, step: int, message: Message) -> None:
        """Store a message, unless a newer one of the same sender has arrived."""
        if sender not in self.arrived or step > self.arrived[sender][0]:
            self.arrived[sender] = step, message

    def is_ready(self, step: int, staleness: int) -> bool:
        """Return True if the agent may take its next step.

        There must be a new message, and none of the neighbors may have been silent for ``staleness`` steps.
        """
        silent = [j for j in self.neighbors if j not in self.arrived]
        fresh = all(step - self.heard.get(j, 0) < staleness for j in silent)
        return fresh and (bool(self.arrived) or not self.neighbors)

    def take(self, step: int) -> tuple[Inbox, dict[int, int]]:
        """Return the inbox of a step, and which steps of neighbors it is from."""
        arrived, self.arrived = self.arrived, {}
        self.heard |= dict.fromkeys(arrived, step)
        return {j: arrived[j][1] for j in sorted(arrived)}, {j: each[0] for j, each in arrived.items()}


class Ending(IntEnum):
    """Why a process wants an asynchronous run to end; the largest of all processes is the decision."""

    AGREED = 0
    """Its agents have ended. They send messages until those of all processes have."""
    LIMIT = 1
    """A limit was reached: the run ends at once."""
    SPENT = 2
    """An agent may not call its oracle again: the run ends at once."""


@final
class MailExchange:
    """The messages of an asynchronous run between the agents of this process and all their neighbors.

    ``outgoing`` are the bundles to send next, with their receivers. Process 0 decides when the run ends: when
    all processes have announced it, or as soon as one announces a limit. After the ``decision`` every process
    sends the others the number of bundles that it sent them, so that none is left on its way.
    """

    def __init__(self, neighbors: Sequence[Sequence[int]], rank: int, size: int) -> None:
        self.exchange = NeighborExchange(neighbors, rank, size)
        self.boxes = {i: Mailbox(neighbors[i]) for i in self.exchange.hosted}
        self.outgoing: list[tuple[int, Buffer]] = []
        self.announced: Ending | None = None
        self.decision: Ending | None = None
        self._rank, self._size = rank, size
        self._announcements: dict[int, Ending] = {}
        with_root = range(size) if rank == 0 else (0,)
        others = sorted({*self.exchange.peers, *with_root} - {rank})
        self._sent, self._received = dict.fromkeys(others, 0), dict.fromkeys(others, 0)
        self._expected: dict[int, int] = {}

    def post(self, i: int, step: int, sent: Packets) -> None:
        """Deliver the messages of an agent after its step: at once in this process, else by ``outgoing``."""
        for j, packet in sent.items():
            if j in self.boxes:
                self.boxes[j].put(i, step, packet.copy)
        for peer in self.exchange.peers:
            frames = self.exchange.frames({i: sent}, peer)
            if frames:
                self._send(peer, Kind.MESSAGE, step, frames)

    def receive(self, buffer: Buffer, rank: int) -> None:
        """Take a bundle that has arrived from a process."""
        name = self.exchange.name(rank)
        header = read_header(buffer, name)
        if header.kind is Kind.LAST:
            self._expected[rank] = header.round
            return
        self._received[rank] += 1
        if header.kind is Kind.MESSAGE:
            received = self.exchange.delivered(read_messages(buffer[HEADER:], header, name), rank)
            for (i, j), message in received.items():
                self.boxes[j].put(i, header.round, message)
        elif header.kind is Kind.END and self._rank == 0:
            self._announcements[rank] = Ending(header.round)
            self._decide()
        elif header.kind is Kind.END and rank == 0:
            self.decision = Ending(header.round)
        else:
            raise MessageError(
                f"a message of an asynchronous run was expected; {name} sent one of kind {header.kind.name}."
            )

    def announce(self, ending: Ending) -> None:
        """Announce that the agents of this process have ended; a limit overrides an agreement."""
        if self.decision is not None or (self.announced is not None and ending <= self.announced):
            return
        self.announced = ending
        if self._rank == 0:
            self._announcements[0] = ending
            self._decide()
        else:
            self._send(0, Kind.END, ending)

    def close(self) -> None:
        """Send the other processes the number of bundles that they must have received."""
        for rank, count in list(self._sent.items()):
            self._send(rank, Kind.LAST, count)

    @property
    def senders(self) -> set[int]:
        """The processes whose messages this one waits for."""
        if self.decision is not None:
            return {rank for rank, count in self._received.items() if self._expected.get(rank) != count}
        if self.announced not in (None, Ending.AGREED):
            return {0} - {self._rank}
        missing = {j for box in self.boxes.values() for j in box.neighbors if j not in box.arrived}
        return {self.exchange.home[j] for j in missing} - {self._rank}

    @property
    def is_complete(self) -> bool:
        """Whether all that was sent to this process has arrived."""
        return self._expected == self._received

    def _decide(self) -> None:
        worst = max(self._announcements.values())
        if self.decision is None and (worst > Ending.AGREED or len(self._announcements) == self._size):
            self.decision = worst
            for rank in range(1, self._size):
                self._send(rank, Kind.END, worst)

    def _send(self, rank: int, kind: Kind, number: int, frames: Sequence[Frame] = ()) -> None:
        self.outgoing.append((rank, bundle(frames, Header(kind, self._rank, number))))
        self._sent[rank] += 1
