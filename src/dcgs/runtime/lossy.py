"""Rounds in which messages may be lost or late and agents may sleep."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import final

import networkx as nx

from dcgs.protocol import Inbox
from dcgs.runtime.base import Job
from dcgs.runtime.faults import FaultSchedule, RoundFaults
from dcgs.runtime.in_flight import SentMessage
from dcgs.runtime.messages import Packets, packets
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
class Delivery:
    """Sends messages over links with faults.

    With ``job.repeats``, a message that is missing is replaced by the last one of the same neighbor that had
    the same place in an iteration, for methods that cannot do without. The first such message always arrives.
    """

    job: Job
    schedule: FaultSchedule

    def send(self, round: int, faults: RoundFaults, sent: Mapping[int, Packets]) -> None:
        """Send the messages of agents that are awake."""
        up = None if self.job.edges_up is None else self.job.edges_up(round)
        links, repeats = self.job.links, self.job.repeats
        for i, each in sent.items():
            slot = links[i].steps % self.job.slots
            links[i].steps += 1
            links[i].is_unsent = False
            for j, packet in each.items():
                edge = (i, j)
                is_first = repeats and (i, slot) not in links[j].met
                if is_first:
                    links[j].met.append((i, slot))
                elif edge in faults.lost or not (up is None or edge in up or (j, i) in up):
                    continue
                message = self.schedule.changed(round, edge, packet.copy, faults.noise)
                due = round if is_first else round + faults.late.get(edge, 0)
                links[j].in_flight.append(SentMessage.of(i, round, due, slot, message))

    def may_resume(self, j: int) -> bool:
        """Return whether agent j may go on; a method that needs all messages waits for the first of each."""
        links = self.job.links[j]
        slot = (links.steps - 1) % self.job.slots
        complete = not self.job.repeats or all((i, slot) in links.met for i in self.job.neighbors[j])
        return not links.is_unsent and complete

    def inbox(self, j: int, round: int) -> Inbox:
        """Return what agent j gets after a round: messages that have arrived since it was last awake."""
        links = self.job.links[j]
        arrived = links.arrived(round)
        return links.repeated((links.steps - 1) % self.job.slots) if self.job.repeats else arrived

    def check_connected(self, round: int) -> None:
        """Raise if parts of the network have not exchanged a message for too long."""
        patience = self.schedule.patience
        if round % _CHECK or round <= patience:
            return
        graph = nx.Graph()
        graph.add_nodes_from(range(len(self.job.neighbors)))
        for j, links in self.job.links.items():
            graph.add_edges_from((i, j) for i, sent in links.newest.items() if sent > round - patience)
        if not nx.is_connected(graph):
            raise PartitionedError([sorted(part) for part in nx.connected_components(graph)], patience)


def run_with_faults(programs: Programs, delivery: Delivery, pool: Executor | None) -> None:
    """Run all agents round by round, until all have returned or ``after_round`` of the job returns False.

    An agent that sleeps in a round neither sends in it nor uses messages before it. After it wakes, it first
    uses the newest message of each neighbor, and then sends.
    """
    job, replies = delivery.job, programs.advance(pool=pool)
    faults = delivery.schedule.at(job.traffic.rounds + 1, job.neighbors)
    while any(reply is not None for reply in replies.values()):
        round = job.traffic.rounds + 1
        awake = [i for i, links in job.links.items() if links.is_unsent and i not in faults.asleep]
        sent = {i: packets(i, replies[i], job.neighbors[i]) for i in awake}
        job.traffic.count_round(sent, job.neighbors)
        delivery.send(round, faults, sent)
        delivery.check_connected(round)
        faults = delivery.schedule.at(round + 1, job.neighbors)
        awake = [
            i
            for i, reply in replies.items()
            if reply is not None and i not in faults.asleep and delivery.may_resume(i)
        ]
        resumed = programs.advance({i: delivery.inbox(i, round) for i in awake}, pool)
        replies |= resumed
        for i, reply in resumed.items():
            job.links[i].is_unsent = reply is not None
        if not job.after_round():
            return
