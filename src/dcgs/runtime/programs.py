"""The programs of the agents hosted in this process: started, resumed together, run over a transport."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any, final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.counting import BudgetSpentError
from dcgs.parallel import wide_threads
from dcgs.protocol import Inbox, Program
from dcgs.runtime.base import Job
from dcgs.runtime.exchange import NeighborExchange, carry_out
from dcgs.runtime.messages import Reply, all_sent, blaming_senders, packets
from dcgs.runtime.transport import Transport


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
                    sent = {i: packets(i, reply, job.neighbors[i]) for i, reply in replies.items()}
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
