"""The watchdog of an MPI process, from the side of the process: it is started here, and told what happens.

``MPI_Init`` and the first collective calls wait for all processes, in C, at full speed and forever. A process
in them cannot notice that another was stopped, has raised an exception or has returned. So each process forks
a watchdog before MPI starts (:mod:`dcgs.watchdog_process`), and tells it over a pipe how far it is.
"""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from types import TracebackType
from typing import TypeAlias

from dcgs.environment import rank, size, started_by_mpi
from dcgs.marks import EXITED, LEAVES, LEFT, NAME, QUIT, RAISED, RUNS, STARTS, WAITS, marks_of_job
from dcgs.watchdog_process import run

Hook: TypeAlias = Callable[[type[BaseException], BaseException, TracebackType | None], object]

# The pipe to the watchdog, the process that it belongs to, and whether that has met all others.
_channel: int | None = None
_owner = 0
_has_met = False


def start(supervisor: int = 0) -> None:
    """Fork the watchdog of this process, if an MPI launcher started it as one of several.

    A supervisor, if there is one with this process number, reports itself that its worker was killed.
    """
    global _channel, _owner, _has_met
    if _channel is not None and _owner == os.getpid():
        return
    if not (started_by_mpi() and (size() or 0) > 1 and rank() is not None and hasattr(os, "fork")):
        return
    marks_of_job()  # by the ancestors of this process, which the watchdog will not have
    reading, writing = os.pipe()
    main = os.getpid()
    child = os.fork()
    if child == 0:
        os.close(writing)
        if os.fork():  # it must not be a child of a process that may wait for all its children
            os._exit(0)
        run(main, reading, supervisor)
    os.close(reading)
    os.waitpid(child, 0)
    is_first, _channel, _owner, _has_met = _owner == 0, writing, main, False
    if is_first:
        atexit.register(_exits)
        sys.excepthook = _hooked(sys.excepthook)


def stop() -> None:
    """End the watchdog of this process without a word."""
    global _channel
    if _channel is not None and _owner == os.getpid():
        _tell(QUIT)
        os.close(_channel)
        _channel = None


def waits(ranks: Collection[int], timeout: float, start_timeout: float) -> None:
    """Tell the watchdog that this process now waits until these ranks have started MPI.

    A rank that is stopped may be so for ``timeout`` seconds; all must have met after ``start_timeout``.
    """
    _tell(WAITS, timeout, start_timeout, *ranks)


def waits_no_more() -> None:
    """Tell the watchdog that this process gave up the wait."""
    _tell(RUNS if _has_met else STARTS)


def runs() -> None:
    """Tell the watchdog that all have met: from now on the heartbeat notices failures."""
    global _has_met
    _has_met = True
    _tell(RUNS)


def leaves() -> None:
    """Tell the watchdog that this process now waits until all leave MPI."""
    _tell(LEAVES)


def set_name(name: str) -> None:
    """Tell the watchdog what errors call this process."""
    _tell(NAME, name)


def exits(status: int = 0) -> None:
    """Tell the watchdog that this process exits by itself."""
    how = "exited" if status == 0 else f"ended with status {status}"
    after = "before its first call of MPI, while others wait for it; see what it printed and start again."
    _tell(LEFT if _has_met else EXITED, f"{how} {after}")


def claim_line() -> bool:
    """Return whether this process may print the one line of the job; the first one that asks may."""
    return not started_by_mpi() or marks_of_job().claim()


def _exits() -> None:
    exits()


def _hooked(previous: Hook) -> Hook:
    """Return an exception hook that tells the watchdog first. What several processes find, one prints."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if _owner == os.getpid():
            words = f"{kind.__name__}: {error}" if str(error) else kind.__name__
            did = "was interrupted" if kind is KeyboardInterrupt else f"raised {words.rstrip('.')}"
            _tell(LEFT if _has_met else RAISED, f"{did}, before its first call of MPI.")
            if getattr(error, "is_printed_once", False) and not claim_line():
                return
        previous(kind, error, trace)

    return hook


def _tell(*words: object) -> None:
    if _channel is not None and _owner == os.getpid():
        line = "\t".join(" ".join(str(word).split()) for word in words)[:2000]
        with suppress(OSError):
            os.write(_channel, f"{line}\n".encode(errors="replace"))
