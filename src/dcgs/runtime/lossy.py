"""Rounds in which messages may be lost or late and agents may sleep."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import final

import networkx as nx

from dcgs.protocol import Inbox, Message
from dcgs.runtime.base import Job
from dcgs.runtime.faults import Edge, FaultSchedule, RoundFaults
from dcgs.runtime.messages import Packets, Reply, packets
from dcgs.runtime.programs import Programs

# Rounds between two checks of whether the network is still connected.
_CHECK = 100


class PartitionedError(RuntimeError):
    """Raised when parts of the network have not exchanged a message for too long; ``parts`` are agents."""

    def __init__(self, parts: list[list[int]], rounds: int) -> None:
        super().__init__(
            f"agents must be able to reach each other; no message has crossed between {parts} in the last "
            f"{rounds} rounds."
        )
        self.parts = parts


@final
@dataclass(frozen=True, eq=False)
class InFlight:
    """A message on its way: its sender, the round in which it was sent, and that in which it arrives.

    ``slot`` is the number of the message within an iteration of the sender.
    """

    sender: int
    sent: int
    due: int
    slot: int
    message: Message


@final
@dataclass(eq=False)
class Delivery:
    """What is on its way to each agent, and what has arrived.

    With ``job.repeats``, a message that is missing is replaced by the last one of the same neighbor that had
    the same place in an iteration, for methods that cannot do without. The first such message always arrives.
    """

    job: Job
    schedule: FaultSchedule
    in_flight: dict[int, list[InFlight]] = field(default_factory=dict)
    newest: dict[Edge, int] = field(default_factory=dict)
    _steps: dict[int, int] = field(default_factory=dict)
    _received: dict[tuple[int, int, int], Message | None] = field(default_factory=dict)

    def send(self, round: int, faults: RoundFaults, sent: Mapping[int, Packets]) -> None:
        """Send the messages of agents that are awake."""
        up = None if self.job.edges_up is None else self.job.edges_up(round)
        for i, each in sent.items():
            slot = self._steps.get(i, 0) % self.job.slots
            self._steps[i] = self._steps.get(i, 0) + 1
            for j, packet in each.items():
                edge = (i, j)
                is_first = self.job.repeats and (i, j, slot) not in self._received
                if is_first:
                    self._received[i, j, slot] = None
                elif not (faults.arrives(edge) and _is_up(edge, up)):
                    continue
                message = self.schedule.changed(round, edge, packet.copy, faults.noise)
                due = round if is_first else round + faults.late.get(edge, 0)
                self.in_flight.setdefault(j, []).append(InFlight(i, round, due, slot, message))

    def inbox(self, j: int, round: int) -> Inbox:
        """Return the newest message of each neighbor that has arrived at agent j since it last was awake.

        A message that is older than one that has arrived before is dropped.
        """
        waiting = self.in_flight.pop(j, [])
        later = [each for each in waiting if each.due > round]
        if later:
            self.in_flight[j] = later
        arrived: dict[int, Message] = {}
        for each in sorted((each for each in waiting if each.due <= round), key=lambda each: each.sent):
            if each.sent > self.newest.get((each.sender, j), 0):
                self.newest[each.sender, j] = each.sent
                arrived[each.sender] = each.message
                self._received[each.sender, j, each.slot] = each.message
        if self.job.repeats:
            slot = (self._steps.get(j, 1) - 1) % self.job.slots
            arrived = {}
            for i in self.job.neighbors[j]:
                message = self._received.get((i, j, slot))
                if message is not None:
                    arrived[i] = message
        return {i: arrived[i] for i in sorted(arrived)}

    def check_connected(self, round: int) -> None:
        """Raise if parts of the network have not exchanged a message for too long."""
        patience = self.schedule.patience
        if round % _CHECK or round <= patience:
            return
        graph = nx.Graph()
        graph.add_nodes_from(range(len(self.job.neighbors)))
        graph.add_edges_from(edge for edge, sent in self.newest.items() if sent > round - patience)
        if not nx.is_connected(graph):
            raise PartitionedError([sorted(part) for part in nx.connected_components(graph)], patience)


def _is_up(edge: Edge, up: Collection[Edge] | None) -> bool:
    return up is None or edge in up or (edge[1], edge[0]) in up


def run_with_faults(job: Job, programs: Programs, delivery: Delivery, pool: Executor | None) -> None:
    """Run all agents round by round, until all have returned or ``job.after_round`` returns False.

    An agent that sleeps in a round neither sends in it nor uses messages before it. After it wakes, it first
    uses the newest message of each neighbor, and then sends.
    """
    replies: dict[int, Reply] = programs.advance(pool=pool)
    unsent = set(replies)
    faults = delivery.schedule.at(job.traffic.rounds + 1, job.neighbors)
    while any(reply is not None for reply in replies.values()):
        round = job.traffic.rounds + 1
        sent = {i: packets(i, replies[i], job.neighbors[i]) for i in sorted(unsent - faults.asleep)}
        job.traffic.count_round(sent, job.neighbors)
        delivery.send(round, faults, sent)
        unsent -= sent.keys()
        delivery.check_connected(round)
        faults = delivery.schedule.at(round + 1, job.neighbors)
        awake = [i for i, reply in replies.items() if reply is not None and i not in faults.asleep | unsent]
        resumed = programs.advance({i: delivery.inbox(i, round) for i in awake}, pool)
        replies |= resumed
        unsent |= {i for i, reply in resumed.items() if reply is not None}
        if not job.after_round():
            return
