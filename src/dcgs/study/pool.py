"""Run tasks in processes of their own."""

from __future__ import annotations

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any, TypeVar

from threadpoolctl import threadpool_limits

Item = TypeVar("Item")
Outcome = TypeVar("Outcome")


def run_in_processes(
    jobs: int, work: Callable[[Item], Outcome], items: Sequence[Item]
) -> Iterator[tuple[Item, Outcome]]:
    """Yield every item with ``work(item)``, in order of completion.

    It uses ``jobs`` processes with one BLAS thread each. With one job, or one item, it uses this process;
    otherwise ``work`` and the items must be picklable.
    """
    if jobs == 1 or len(items) < 2:
        with threadpool_limits(1):
            for item in items:
                yield item, work(item)
        return
    pool = ProcessPoolExecutor(min(jobs, len(items)), multiprocessing.get_context("spawn"), _start_worker)
    try:
        futures = {pool.submit(work, item): item for item in items}
        for future in as_completed(futures):
            yield futures[future], future.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)


def alone(function: Callable[..., Outcome], *arguments: Any) -> Outcome:
    """Return what a function returns in a new process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def _start_worker() -> None:
    """Compute on one thread; end at Ctrl-C without a traceback."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threadpool_limits(1)
