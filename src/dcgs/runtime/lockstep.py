"""Lockstep: the runtime for all agents in one process, round by round.

In rounds with faults, messages may be lost or late, and agents may sleep.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, final

import networkx as nx

from dcgs.parallel import blas_threads, cores, wide_products
from dcgs.protocol import Inbox
from dcgs.runtime.asynchronous import Record, run_by_clock, run_recorded
from dcgs.runtime.base import Job, Programs, Runtime
from dcgs.runtime.faults import AgentLinks, FaultSchedule, RecordedFaults, RoundFaults, SentMessage
from dcgs.runtime.group import ProcessGroup, SingleProcess
from dcgs.runtime.messages import OnMessage, Packets, all_sent
from dcgs.validation import COUNT, FLAG, NOT_NEGATIVE, PATH, POSITIVE, function_or_none, instance

# Bytes of a point from which agents are faster in parallel. With smaller points most of the time is spent
# in Python, and threads that wait for its lock are slower than one thread (docs/measuring.md).
_LARGE = 1 << 19


@final
@dataclass(frozen=True)
class Lockstep(Runtime):
    """Run all agents in this process, round by round.

    ``threads`` agents compute at the same time. Where large dense matrix products take most of the time, one
    agent computes at a time, and its products use as many threads instead. None uses all cores where threads
    are faster than one: for such products, and for points of half a megabyte or more. The result does not
    depend on ``threads``, to the bit. ``blas_threads`` is the number of threads of all other linear algebra;
    more than 1 may change the last bits.

    ``faults`` are lost, late and noisy messages, sleeping agents and edges that are down (:class:`Faults`). A
    method that does not tolerate them is refused, unless ``allow_faults`` is True: missing messages are then
    replaced by older ones. With ``speeds`` the agents run at their own pace on a simulated clock: the steps
    that each takes in a unit of time (a number for each agent, or a mapping with 1 for the others), and the
    ``latency`` of a message. An agent uses the newest message of each neighbor, and waits for a neighbor from
    which it has used none in its last ``staleness`` steps. ``record`` is a file to which such a run writes
    which messages were used when, and ``replay`` such a file to repeat.

    ``on_message(round, sender, receiver, arrays)`` sees every message as it is sent, before it may be lost:
    of runs, and of all sums beside them. Each run and each sum counts its rounds from 1. The arrays are
    read-only copies. :class:`MessageRecorder` writes them to a file.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> runtime = dcgs.Lockstep(threads=1)
    >>> result = dcgs.minimize(data.objectives(4), X, graph, dcgs.DFW(), iterations=10, runtime=runtime)
    >>> result.rounds
    20
    """

    threads: int | None = None
    blas_threads: int = 1
    faults: FaultSchedule | None = None
    allow_faults: bool = False
    speeds: float | Sequence[float] | Mapping[int, float] | None = None
    latency: float = 0.0
    staleness: int = 50
    record: str | os.PathLike[str] | None = None
    replay: str | os.PathLike[str] | None = None
    on_message: OnMessage | None = None

    def __post_init__(self) -> None:
        COUNT.or_none(self.threads, "threads")
        COUNT(self.blas_threads, "blas_threads")
        if self.faults is not None:
            instance(self.faults, FaultSchedule, "faults", "be faults such as dcgs.Faults(loss=0.1)")
        FLAG(self.allow_faults, "allow_faults")
        for speed in _values(self.speeds):
            POSITIVE(speed, "speeds")
        NOT_NEGATIVE(self.latency, "latency")
        COUNT(self.staleness, "staleness")
        PATH.or_none(self.record, "record")
        PATH.or_none(self.replay, "replay")
        function_or_none(self.on_message, "on_message", "a round, a sender, a receiver and arrays")
        if self.record is not None and self.speeds is None:
            raise ValueError("record must be None unless speeds are given: other runs repeat by themselves.")
        given = [name for name in ("faults", "speeds", "replay") if getattr(self, name) is not None]
        if len(given) > 1:
            raise ValueError(
                f"only one of faults, speeds and replay may be given; got {' and '.join(given)}."
            )

    @property
    def asynchronous(self) -> bool:
        return self.speeds is not None or self.replay is not None

    @property
    def replays(self) -> bool:
        return self.replay is not None

    def in_rounds(self) -> Lockstep:
        return replace(self, faults=None, speeds=None, record=None, replay=None)

    def run(self, job: Job) -> None:
        job = job.seen_by(self.on_message)
        programs = Programs(job, range(len(job.neighbors)))
        with ExitStack() as stack:
            stack.enter_context(blas_threads(self.blas_threads))
            if job.prefers_blas_threads:
                stack.enter_context(wide_products(self.threads or cores()))
            # Closed after the pool has shut down: a program that is running cannot be closed.
            stack.callback(programs.close)
            pool = self._pool(stack, job, self.threads or 1)
            if self.asynchronous:
                self._run_asynchronously(job, programs)
                return
            if self.faults is not None or job.edges_up is not None:
                faults = self.faults or RecordedFaults(())
                links = job.links or {i: AgentLinks() for i in range(len(job.neighbors))}
                run_with_faults(programs, Delivery(replace(job, links=links), faults), pool)
                return
            replies = programs.advance(pool=pool)
            if self.threads is None and job.point_nbytes >= _LARGE:
                pool = self._pool(stack, job, cores())
            while all_sent(replies):
                sent = {i: job.packets(i, reply) for i, reply in replies.items()}
                job.traffic.count_round(sent, job.neighbors)
                inboxes = {
                    i: {j: sent[j][i].copy for j in near if i in sent[j]}
                    for i, near in enumerate(job.neighbors)
                }
                del sent
                replies = programs.advance(inboxes, pool)
                if not job.after_round():
                    return

    def _run_asynchronously(self, job: Job, programs: Programs) -> None:
        if self.replay is not None:
            run_recorded(job, programs, Record.load(self.replay))
            return
        agents, record = len(job.neighbors), Record()
        speeds = self.speeds
        numbers = _values(speeds)
        if isinstance(speeds, Mapping):
            numbers = [speeds.get(i, 1.0) for i in range(agents)]
        if len(numbers) not in (1, agents):
            raise ValueError(f"speeds must have one number for each agent, {agents}; got {len(numbers)}.")
        try:
            durations = [1.0 / speed for speed in (numbers * agents if len(numbers) == 1 else numbers)]
            run_by_clock(job, programs, record, durations, self.latency, self.staleness)
        finally:
            if self.record is not None:
                record.save(self.record)

    def hosts(self, agents: int) -> range:
        return range(agents)

    def group(self) -> ProcessGroup:
        return SingleProcess()

    def _pool(self, stack: ExitStack, job: Job, threads: int) -> Executor | None:
        """Return a pool in which agents compute in parallel, or None if they compute one after another."""
        in_parallel = 1 if job.prefers_blas_threads else min(threads, len(job.neighbors))
        if in_parallel == 1:
            return None
        pool = ThreadPoolExecutor(in_parallel)
        stack.callback(pool.shutdown, cancel_futures=True)
        return pool


def _values(speeds: float | Sequence[float] | Mapping[int, float] | None) -> list[float]:
    """Return the speeds that were given, as a list."""
    if speeds is None:
        return []
    if isinstance(speeds, Mapping):
        return list(speeds.values())
    given: Any = speeds
    is_text = isinstance(given, str | bytes | bytearray)  # a sequence as well, but not of numbers
    return list(given) if isinstance(given, Sequence) and not is_text else [given]


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
        for i, outgoing in sent.items():
            slot = self.job.slot(links[i].steps)
            links[i].steps += 1
            links[i].is_unsent = False
            for j, packet in outgoing.items():
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
        slot = self.job.slot(links.steps - 1)
        complete = not self.job.repeats or all((i, slot) in links.met for i in self.job.neighbors[j])
        return not links.is_unsent and complete

    def inbox(self, j: int, round: int) -> Inbox:
        """Return what agent j gets after a round: messages that have arrived since it was last awake."""
        links = self.job.links[j]
        arrived = links.arrived(round)
        return links.repeated(self.job.slot(links.steps - 1)) if self.job.repeats else arrived

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
        ready = {i for i, links in job.links.items() if links.is_unsent and replies[i] is not None}
        awake = sorted(ready - faults.asleep)
        sent = {i: job.packets(i, replies[i]) for i in awake}
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
        for i in resumed:
            job.links[i].is_unsent = True
        if not job.after_round():
            return
