"""Lockstep: the runtime for all agents in one process, round by round."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import final

import numpy as np
from threadpoolctl import threadpool_limits

from dcgs.parallel import cores, wide_products
from dcgs.runtime.base import Job, Runtime
from dcgs.runtime.group import ProcessGroup, SingleProcess
from dcgs.runtime.messages import all_sent, checked_copy
from dcgs.runtime.programs import Programs
from dcgs.validation import COUNT

# Bytes of a message from which agents are faster in parallel. With smaller points most of the time is spent
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
    """

    threads: int | None = None
    blas_threads: int = 1

    def __post_init__(self) -> None:
        COUNT.or_none(self.threads, "threads")
        COUNT(self.blas_threads, "blas_threads")

    def run(self, job: Job) -> None:
        programs = Programs(job, range(len(job.neighbors)))
        with ExitStack() as stack:
            stack.enter_context(threadpool_limits(self.blas_threads, user_api="blas"))
            if job.prefers_blas_threads:
                stack.enter_context(wide_products(self.threads or cores()))
            # Closed after the pool has shut down: a program that is running cannot be closed.
            stack.callback(programs.close)
            pool = self._pool(stack, job, self.threads or 1)
            replies = programs.advance(pool=pool)
            if self.threads is None and any(
                isinstance(reply, np.ndarray) and reply.nbytes >= _LARGE for reply in replies.values()
            ):
                pool = self._pool(stack, job, cores())
            while all_sent(replies):
                messages = {i: checked_copy(i, reply) for i, reply in replies.items()}
                job.traffic.count_round(messages, job.neighbors)
                inboxes = {i: {j: messages[j] for j in near} for i, near in enumerate(job.neighbors)}
                del messages
                replies = programs.advance(inboxes, pool)
                if not job.after_round():
                    return

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
