"""Asynchronous runs: every agent takes steps at its own pace, with the newest message of each neighbor.

In one process, agents run on a simulated clock, or as the record of an earlier run says. Over several
processes, each agent has a mailbox, and an exchange says what is sent to which process; it does no I/O.
"""

from __future__ import annotations

import heapq
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Any, final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.files import read_npz, write_npz
from dcgs.protocol import Inbox, Message
from dcgs.runtime.base import Job, Programs
from dcgs.runtime.encoding import Buffer
from dcgs.runtime.exchange import NeighborExchange
from dcgs.runtime.messages import Packets, Reply
from dcgs.runtime.transport import MailTransport
from dcgs.runtime.wire import (
    HEADER,
    BundleKind,
    Frame,
    Header,
    MessageError,
    bundle,
    read_header,
    read_messages,
)
from dcgs.validation import PATH


@final
@dataclass(eq=False)
class Record:
    """For every step of an agent the neighbors whose message it used first then, and their steps.

    ``rows`` are (agent, step, neighbor, step of the neighbor); ``steps`` counts the steps of each agent. An
    agent sends a message after each step; step 0 is its start.
    """

    rows: list[tuple[int, int, int, int]] = field(default_factory=list)
    steps: dict[int, int] = field(default_factory=dict)

    def add(self, agent: int, used: Mapping[int, int]) -> None:
        """Note that the next step of an agent used these messages, by neighbor and its step."""
        step = self.steps.get(agent, 0) + 1
        self.steps[agent] = step
        self.rows += [(agent, step, j, theirs) for j, theirs in sorted(used.items())]

    def arrays(self) -> list[NDArray[np.int64]]:
        """Return the record as two arrays."""
        rows = np.array(self.rows, dtype=np.int64).reshape(-1, 4)
        return [rows, np.array(sorted(self.steps.items()), dtype=np.int64).reshape(-1, 2)]

    @classmethod
    def joined(cls, arrays: Iterable[NDArray[Any]]) -> Record:
        """Return the record of all agents, from the arrays of several processes."""
        record, of_processes = cls(), list(arrays)
        for rows, steps in zip(of_processes[::2], of_processes[1::2], strict=True):
            record.rows += [(a, b, c, d) for a, b, c, d in rows.tolist()]
            record.steps |= {int(i): int(count) for i, count in steps.tolist()}
        return record

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the record to a file (NumPy's npz), and return its path."""
        rows, steps = self.arrays()
        return write_npz(PATH(path, "path"), {"rows": rows, "steps": steps})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Record:
        """Return the record that :meth:`save` wrote."""
        return read_npz(
            PATH(path, "path"),
            "the record of an asynchronous run",
            lambda npz: cls.joined([npz.array("rows"), npz.array("steps")]),
        )


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
        return {j: arrived[j][1] for j in sorted(arrived)}, {j: message[0] for j, message in arrived.items()}


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
                self._send(peer, BundleKind.MESSAGE, step, frames)

    def receive(self, buffer: Buffer, rank: int) -> None:
        """Take a bundle that has arrived from a process."""
        name = self.exchange.name(rank)
        header = read_header(buffer, name)
        if header.kind is BundleKind.LAST:
            self._expected[rank] = header.round
            return
        self._received[rank] += 1
        if header.kind is BundleKind.MESSAGE:
            received = self.exchange.delivered(read_messages(buffer[HEADER:], header, name), rank)
            for (i, j), message in received.items():
                self.boxes[j].put(i, header.round, message)
        elif header.kind is BundleKind.END and self._rank == 0:
            self._announcements[rank] = Ending(header.round)
            self._decide()
        elif header.kind is BundleKind.END and rank == 0:
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
            self._send(0, BundleKind.END, ending)

    def close(self) -> None:
        """Send the other processes the number of bundles that they must have received."""
        for rank, count in list(self._sent.items()):
            self._send(rank, BundleKind.LAST, count)

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
                self._send(rank, BundleKind.END, worst)

    def _send(self, rank: int, kind: BundleKind, number: int, frames: Sequence[Frame] = ()) -> None:
        self.outgoing.append((rank, bundle(frames, Header(kind, self._rank, number))))
        self._sent[rank] += 1


def run_by_clock(
    job: Job, programs: Programs, record: Record, durations: Sequence[float], latency: float, staleness: int
) -> None:
    """Run all agents at their own pace, until one has returned. A round is a unit of simulated time.

    ``durations`` are the times of a step of each agent, ``latency`` is that of a message.
    """
    agents = range(len(job.neighbors))
    boxes = [Mailbox(job.neighbors[i]) for i in agents]
    replies: dict[int, Reply] = programs.advance()
    # Events by time: an agent ends a step and sends (0), a message arrives (1), an agent may go on (2).
    events: list[tuple[float, int, int, int, int]] = [(durations[i], 0, i, 0, 0) for i in agents]
    messages: dict[tuple[int, int, int], Message] = {}
    idle: set[int] = set()
    heapq.heapify(events)
    while events:
        now, kind, i, sender, step = heapq.heappop(events)
        while now > job.traffic.rounds + 1:
            job.traffic.rounds += 1
            if not job.after_round():
                return
        if kind == 0:
            if replies[i] is None:
                return
            sent = job.packets(i, replies[i])
            job.traffic.count_messages(i, sent)
            done = record.steps.get(i, 0)
            for j, packet in sent.items():
                messages[i, j, done] = packet.copy
                heapq.heappush(events, (now + latency, 1, j, i, done))
            idle.add(i)
            heapq.heappush(events, (now, 2, i, 0, 0))
        elif kind == 1:
            boxes[i].put(sender, step, messages.pop((sender, i, step)))
            heapq.heappush(events, (now, 2, i, 0, 0))
        elif i in idle and boxes[i].is_ready(record.steps.get(i, 0), staleness):
            idle.discard(i)
            inbox, used = boxes[i].take(record.steps.get(i, 0) + 1)
            record.add(i, used)
            replies |= programs.advance({i: inbox})
            heapq.heappush(events, (now + durations[i], 0, i, 0, 0))


def run_recorded(job: Job, programs: Programs, record: Record) -> None:
    """Run all agents as a record says: every agent uses the same messages in the same steps."""
    agents = range(len(job.neighbors))
    used: dict[tuple[int, int], dict[int, int]] = {}
    for i, step, j, theirs in record.rows:
        used.setdefault((i, step), {})[j] = theirs
    wanted = {(j, theirs, i) for (i, _), steps_used in used.items() for j, theirs in steps_used.items()}
    messages: dict[tuple[int, int, int], Message] = {}
    done = dict.fromkeys(agents, 0)
    replies: dict[int, Reply] = programs.advance()

    def send(i: int) -> None:
        if replies[i] is None:
            return
        sent = job.packets(i, replies[i])
        job.traffic.count_messages(i, sent)
        for j, packet in sent.items():
            if (i, done[i], j) in wanted:
                messages[i, done[i], j] = packet.copy

    for i in agents:
        send(i)
    left = {i for i in agents if record.steps.get(i, 0)}
    while left:
        ready = [
            i
            for i in sorted(left)
            if all((j, theirs, i) in messages for j, theirs in used.get((i, done[i] + 1), {}).items())
        ]
        if not ready:
            raise ValueError(
                "a record must be of a run of the same agents; agents "
                f"{sorted(left)} wait for messages that nobody sends."
            )
        for i in ready:
            done[i] += 1
            inbox = {
                j: messages.pop((j, theirs, i)) for j, theirs in sorted(used.get((i, done[i]), {}).items())
            }
            replies |= programs.advance({i: inbox})
            send(i)
            if done[i] == record.steps[i] or replies[i] is None:
                left.discard(i)
    job.traffic.rounds = max(done.values())
    job.after_round()


def run_at_own_pace(job: Job, transport: MailTransport, staleness: int, record: Record) -> Ending:
    """Run the agents of this process until the run ends in all processes; return why it ended.

    An agent takes a step when a new message has arrived, unless a neighbor has been silent for ``staleness``
    steps. The rounds of the run are the steps of the fastest agent.
    """
    mail = MailExchange(job.neighbors, transport.rank, transport.size)
    hosted = mail.exchange.hosted
    transport.begin(mail.exchange.peers)
    programs = Programs(job, hosted)
    try:
        with threadpool_limits(1, user_api="blas"):
            _work(job, programs, mail, transport, staleness, record)
            mail.close()
            _carry(mail, transport)
            while not (mail.is_complete and transport.is_sent()):
                transport.check(is_idle=True, senders=mail.senders)
                _carry(mail, transport)
    finally:
        programs.close()
        # Agents do not compute in rounds: what counts is the seconds of the busiest agent.
        job.traffic.steps[:] = [max(float(job.traffic.worked[i]) for i in hosted)]
    assert mail.decision is not None
    return mail.decision


def _work(
    job: Job, programs: Programs, mail: MailExchange, transport: MailTransport, staleness: int, record: Record
) -> None:
    """Let agents take steps until the run ends."""

    def post(replies: dict[int, Reply]) -> None:
        for i, reply in replies.items():
            if reply is None:
                mail.announce(Ending.LIMIT)
                continue
            sent = job.packets(i, reply)
            job.traffic.count_messages(i, sent)
            mail.post(i, record.steps.get(i, 0), sent)

    try:
        post(programs.advance())
        while mail.decision is None:
            _carry(mail, transport)
            goes_on = mail.announced in (None, Ending.AGREED)
            ready = [
                i
                for i, box in mail.boxes.items()
                if goes_on and box.is_ready(record.steps.get(i, 0), staleness)
            ]
            for i in ready:
                inbox, used = mail.boxes[i].take(record.steps.get(i, 0) + 1)
                replies = programs.advance({i: inbox})
                record.add(i, used)
                job.traffic.rounds = max(job.traffic.rounds, record.steps[i])
                post(replies)
            if job.is_late():
                mail.announce(Ending.LIMIT)
            elif job.is_over():
                mail.announce(Ending.AGREED)
            start = time.perf_counter()
            transport.check(is_idle=not ready and not mail.outgoing, senders=mail.senders)
            job.traffic.count_wait(mail.exchange.hosted, time.perf_counter() - start)
    except BudgetSpentError:
        mail.announce(Ending.SPENT)
        while mail.decision is None:
            _carry(mail, transport)
            transport.check(is_idle=True, senders=mail.senders)


def _carry(mail: MailExchange, transport: MailTransport) -> None:
    """Send what is to be sent, and take what has arrived."""
    outgoing, mail.outgoing = mail.outgoing, []
    for rank, buffer in outgoing:
        transport.send(buffer, rank)
    while (arrived := transport.receive()) is not None:
        mail.receive(*arrived)
