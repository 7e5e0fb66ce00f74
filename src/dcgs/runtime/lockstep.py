"""Lockstep: all agents in one process, round by round."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.parallel import cores, wide_products
from dcgs.points import Point, is_whole
from dcgs.protocol import Inbox, Program
from dcgs.runtime.base import Job, ProcessGroup, Reply, Runtime, SingleProcess, all_still_send, checked

# Bytes of a message from which agents gain from running side by side. With smaller points most of the
# time goes into Python, and threads that wait for its lock are slower than one (docs/measuring.md).
_PAYS = 1 << 19


@final
@dataclass(frozen=True)
class Lockstep(Runtime):
    """Run all agents in this process.

    ``threads`` agents compute at a time, or one whose large dense products are cut into as many
    parts, where that is faster. None takes the cores at hand where threads pay: for such products,
    and for points of half a megabyte or more; smaller ones spend their time in Python, which runs on
    one core. The result does not depend on it, to the bit. ``blas_threads`` is what all other linear
    algebra may use; above 1 bits may change.
    """

    threads: int | None = None
    blas_threads: int = 1

    def __post_init__(self) -> None:
        if self.threads is not None and not is_whole(self.threads, 1):
            raise ValueError(
                "threads must be a whole number of at least 1, or None for where they pay; "
                f"got {self.threads!r}."
            )
        if not is_whole(self.blas_threads, 1):
            raise ValueError(f"blas_threads must be a whole number of at least 1; got {self.blas_threads!r}.")

    def run(self, job: Job) -> None:
        agents = len(job.neighbors)
        programs = [job.program(i) for i in range(agents)]
        with ExitStack() as stack:
            stack.enter_context(threadpool_limits(self.blas_threads, user_api="blas"))
            if job.wide:
                stack.enter_context(wide_products(self.threads or cores()))
            # Closed after the pool: an agent that still runs when Ctrl-C comes cannot be.
            stack.callback(_close, programs)
            pool = self._pool(stack, job, self.threads or 1)
            replies = _advance(programs, [None] * agents, job, pool)
            if self.threads is None and _largest(replies) >= _PAYS:
                pool = self._pool(stack, job, cores())
            while all_still_send(dict(enumerate(replies))):
                inboxes = _deliver(replies, job)
                replies = _advance(programs, inboxes, job, pool)
                if not job.after_round():
                    return

    def hosts(self, agents: int) -> range:
        return range(agents)

    def group(self) -> ProcessGroup:
        return SingleProcess()

    def _pool(self, stack: ExitStack, job: Job, threads: int) -> Executor | None:
        """Return a pool for agents side by side, or None where they take turns."""
        side_by_side = 1 if job.wide else min(threads, len(job.neighbors))
        if side_by_side == 1:
            return None
        pool = ThreadPoolExecutor(side_by_side)
        stack.callback(pool.shutdown, cancel_futures=True)
        return pool


def _advance(
    programs: list[Program[Point]], inboxes: list[Inbox | None], job: Job, pool: Executor | None
) -> list[Reply]:
    """Resume every program with its inbox; return what each then yields."""
    # Side by side, an agent's own time is its thread's; the wall clock would count waiting for others.
    clock = time.perf_counter if pool is None else time.thread_time
    steps = [_Step(i, programs[i], inboxes[i], clock) for i in range(len(programs))]
    futures = [_run_now(step) if pool is None else pool.submit(step) for step in steps]
    # All take their step before an exception of one is raised: nobody may be running when the run
    # ends, and what was counted must not depend on the number of threads.
    failed = [f for f in futures if f.exception() is not None]
    done = [f.result() for f in failed or futures]
    job.traffic.step(range(len(done)), [seconds for _, seconds in done])
    return [reply for reply, _ in done]


def _run_now(step: _Step) -> Future[tuple[Reply, float]]:
    future: Future[tuple[Reply, float]] = Future()
    try:
        future.set_result(step())
    except Exception as error:
        future.set_exception(error)
    return future


@final
@dataclass(frozen=True, eq=False)
class _Step:
    i: int
    program: Program[Point]
    inbox: Inbox | None
    clock: Callable[[], float]

    def __call__(self) -> tuple[Reply, float]:
        """Return what the program yields next and the seconds it took."""
        start = self.clock()
        try:
            reply = next(self.program) if self.inbox is None else self.program.send(self.inbox)
        except StopIteration:
            reply = None
        except Exception as error:
            error.add_note(f"raised in agent {self.i}")
            raise
        return reply, self.clock() - start


def _deliver(replies: list[Reply], job: Job) -> list[Inbox | None]:
    """Freeze what each agent sends, count it, and sort it into the neighbors' inboxes."""
    messages = [checked(i, reply) for i, reply in enumerate(replies)]
    traffic = job.traffic
    traffic.rounds += 1
    for i, neighbors in enumerate(job.neighbors):
        traffic.send(i, len(neighbors), messages[i].nbytes)
    return [{j: messages[j] for j in neighbors} for neighbors in job.neighbors]


def _largest(replies: list[Reply]) -> int:
    """Return the bytes of the largest message."""
    return max((reply.nbytes for reply in replies if isinstance(reply, np.ndarray)), default=0)


def _close(programs: Iterable[Program[Point]]) -> None:
    for program in programs:
        with suppress(ValueError):  # still running: Ctrl-C came again while the pool was waited for
            program.close()
