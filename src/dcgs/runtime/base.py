"""The interface of a runtime, and the programs of the agents that it hosts in this process.

A runtime starts the programs and resumes them together, in one process (``lockstep``) or over a transport.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.parallel import wide_threads
from dcgs.protocol import Inbox, Program
from dcgs.runtime.encoding import Array
from dcgs.runtime.exchange import NeighborExchange, carry_out
from dcgs.runtime.faults import AgentLinks, FaultSchedule
from dcgs.runtime.group import ProcessGroup
from dcgs.runtime.messages import (
    OnMessage,
    Packets,
    Reply,
    Traffic,
    all_sent,
    blaming_senders,
    packets,
)
from dcgs.runtime.transport import Transport

if TYPE_CHECKING:  # it imports cryptography, which open runs do not need
    from dcgs.secure.keys import Signatures


@final
@dataclass(frozen=True, eq=False)
class Job:
    """What a runtime runs: a program for every agent, and the graph.

    ``program(i)`` returns the program of agent i; ``neighbors[i]`` are in increasing order. ``after_round()``
    is called after each round, when all agents have yielded their next message; the run ends when it returns
    False, in all processes at once. ``traffic`` is up to date at any time, also when the
    run ends by an exception. With ``prefers_blas_threads`` agents run one after the other, and each
    matrix product uses all threads. ``spent``, if given, is called after each step. Its argument is whether
    an agent of this process has used up its budget; it returns whether an agent of any process has. An agent
    whose turn comes when ``is_out_of_time`` returns True has used up its budget.
    ``point_nbytes`` is the size of a point, by which a runtime may choose its threads. ``on_message`` sees
    every message as it is sent.

    ``edges_up``, if given, returns which edges are there in a round. ``links`` is the state of links that are
    not reliable. With ``repeats``, missing messages are replaced by older ones of the same ``slot``, which is
    the place in an iteration of an agent's message, counted from 0. Asynchronous runs have no rounds:
    ``is_over`` returns whether the agents of this process have ended, and may stop when those of all others
    have; ``is_late`` whether a limit was reached, at which all stop. ``allgather`` returns the arrays of all
    processes.
    """

    program: Callable[[int], Program[Any]]
    neighbors: Sequence[Sequence[int]]
    traffic: Traffic
    after_round: Callable[[], bool]
    prefers_blas_threads: bool = False
    spent: Callable[[bool], bool] | None = None
    is_out_of_time: Callable[[], bool] = lambda: False
    point_nbytes: int = 0
    edges_up: Callable[[int], Collection[tuple[int, int]]] | None = None
    links: Mapping[int, AgentLinks] = field(default_factory=dict)
    repeats: bool = False
    slot: Callable[[int], int] = lambda message: 0
    is_over: Callable[[], bool] = lambda: False
    is_late: Callable[[], bool] = lambda: False
    allgather: Callable[[Iterable[Array]], list[Array]] = list
    on_message: OnMessage | None = None

    def seen_by(self, see: OnMessage | None) -> Job:
        """Return the job whose messages a function sees as well."""
        first = self.on_message
        if first is None or see is None:
            return replace(self, on_message=first or see)

        def both(round: int, sender: int, receiver: int, arrays: tuple[Any, ...]) -> None:
            first(round, sender, receiver, arrays)
            see(round, sender, receiver, arrays)

        return replace(self, on_message=both)

    def packets(self, i: int, reply: Reply) -> Packets:
        """Return what agent i sends to each neighbor in this round; raise unless its messages are valid."""
        sent = packets(i, reply, self.neighbors[i])
        if self.on_message is not None:
            for j, packet in sent.items():
                self.on_message(self.traffic.rounds + 1, i, j, packet.arrays)
        return sent


class Runtime(ABC):
    """Runs every agent's program. It knows nothing about the optimization problem.

    With ``allow_faults``, a method that does not tolerate missing messages gets older ones instead.
    """

    allow_faults: bool = False
    faults: FaultSchedule | None = None
    separate_sites: bool = False
    """Whether each process is at a site of its own, with its own data and someone who reads what it
    prints."""

    @property
    def reliable(self) -> bool:
        """Whether every message arrives in the round in which it is sent, and all agents take part in it."""
        return self.faults is None and not self.asynchronous

    @property
    def asynchronous(self) -> bool:
        """Whether agents run at their own pace, without rounds."""
        return False

    @property
    def replays(self) -> bool:
        """Whether it repeats the recorded steps of an asynchronous run."""
        return False

    @property
    def has_noise(self) -> bool:
        """Whether messages may be changed on their way."""
        return self.faults is not None and self.faults.has_noise

    def in_rounds(self) -> Runtime:
        """Return the same runtime with rounds in which every message arrives, as network sums need them."""
        if not self.reliable:
            raise ValueError(
                f"sums over the network need rounds in which every message arrives; {self!r} has none. "
                "Define in_rounds() of this runtime, or use dcgs.Lockstep() or dcgs.MPI()."
            )
        return self

    def journal(self) -> Path | None:
        """Return the file of keys and counters of the next masked sums, if runs are replayed after a kill."""
        return None

    def signatures(self) -> Signatures | None:
        """Return how the keys of masked sums are signed, where sites have certificates."""
        return None

    @abstractmethod
    def run(self, job: Job) -> None:
        """Run until every program has returned or ``job.after_round`` returns False."""

    @abstractmethod
    def hosts(self, agents: int) -> range:
        """Return which of the agents 0, …, agents − 1 this process hosts."""

    @abstractmethod
    def group(self) -> ProcessGroup:
        """Return the group of all processes of the run."""


@final
@dataclass(frozen=True, eq=False, repr=False)
class ChangedRuntime(Runtime):
    """Run each job as ``runtime`` does, after ``change``."""

    runtime: Runtime
    change: Callable[[Job], Job]
    separate_sites: bool = False

    def __repr__(self) -> str:
        return repr(self.runtime)

    def hosts(self, agents: int) -> range:
        return self.runtime.hosts(agents)

    def group(self) -> ProcessGroup:
        return self.runtime.group()

    def journal(self) -> Path | None:
        return self.runtime.journal()

    def signatures(self) -> Signatures | None:
        return self.runtime.signatures()

    def run(self, job: Job) -> None:
        self.runtime.run(self.change(job))


@final
class Programs:
    """Runs the programs of some agents step by step."""

    def __init__(self, job: Job, agents: Iterable[int]) -> None:
        self._job = job
        self._programs = {i: _checked(i, job.program(i)) for i in agents}

    def advance(
        self, inboxes: Mapping[int, Inbox] | None = None, pool: Executor | None = None
    ) -> dict[int, Reply]:
        """Resume the programs of these inboxes, without inboxes start all; return what each then yields.

        With a pool the agents compute in parallel. All of them finish their step before an exception of one
        is raised, so that no program is running then.
        """
        # The seconds of an agent are those of its thread; the wall clock would add waiting for a core. If its
        # products run on several threads, the wall clock is the time that they take.
        clock = time.perf_counter if wide_threads() > 1 else time.thread_time

        def step(i: int) -> tuple[Reply, float, Exception | None]:
            start, program = clock(), self._programs[i]
            reply, error = None, None
            try:
                if self._job.is_out_of_time():
                    raise BudgetSpentError
                reply = next(program) if inboxes is None else program.send(inboxes[i])
            except StopIteration:
                pass
            except Exception as raised:
                raised.add_note(f"raised in agent {i}")
                error = raised
            return reply, clock() - start, error

        agents = list(self._programs if inboxes is None else inboxes)
        if not agents:
            return {}
        steps = map(step, agents) if pool is None else pool.map(step, agents)
        outcomes = dict(zip(agents, steps, strict=True))
        errors = [error for _, _, error in outcomes.values() if error is not None]
        for error in errors:
            if not isinstance(error, BudgetSpentError):
                raise error
        self._job.traffic.count_step({i: seconds for i, (_, seconds, _) in outcomes.items()})
        spent = bool(errors) if self._job.spent is None else self._job.spent(bool(errors))
        if spent:
            raise errors[0] if errors else BudgetSpentError
        return {i: reply for i, (reply, _, _) in outcomes.items()}

    def close(self) -> None:
        """Close all programs, except one that is still running after a second Ctrl-C."""
        for program in self._programs.values():
            with suppress(ValueError):
                program.close()


def run_hosted(job: Job, transport: Transport) -> None:
    """Run the agents of this process until all programs have returned or ``job.after_round`` is False."""
    exchange = NeighborExchange(job.neighbors, transport.rank, transport.size)
    transport.heartbeat.watch(exchange.peers)
    transport.allreduce_max(np.zeros(1))  # from here on all processes watch their neighbors
    programs = Programs(job, exchange.hosted)
    try:
        with threadpool_limits(1, user_api="blas"):
            replies = programs.advance()
            inboxes: dict[int, Inbox] = {}
            while all_sent(replies):
                with blaming_senders(inboxes):
                    sent = {i: job.packets(i, reply) for i, reply in replies.items()}
                del inboxes
                start = time.perf_counter()
                inboxes = carry_out(exchange.round(sent), transport, exchange.peers)
                job.traffic.count_wait(exchange.hosted, time.perf_counter() - start)
                job.traffic.count_round(sent, job.neighbors)
                del sent
                with blaming_senders(inboxes):
                    replies = programs.advance(inboxes)
                if not job.after_round():
                    return
            carry_out(exchange.end(), transport, exchange.peers)
    finally:
        programs.close()


def _checked(i: int, program: Any) -> Program[Any]:
    """Return the program of an agent if it is a generator."""
    if not isinstance(program, Generator):
        raise TypeError(
            "a program must be a generator: it must yield at least once; that of agent "
            f"{i} returned a {type(program).__name__}."
        )
    return program
