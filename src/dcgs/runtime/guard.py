"""What becomes of a process that fails: one sentence, a status other than zero, and the end of all others."""

from __future__ import annotations

import math
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import NoReturn

from dcgs.runtime.base import RunAbortedError

_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
"""Variables in which an mpiexec says which process this is."""
# Seconds in which other processes may end by themselves, before they are ended. Who was told of a failure
# waits for longer, so that the exit status is that of who failed.
_GRACE, _LONG_GRACE = 1.0, 3.0
_LONGEST = 200

_badge: mmap.mmap | None = None
_advice: mmap.mmap | None = None
_status = 1
_asked = -math.inf


def started_by_mpi() -> bool:
    """Return whether an mpiexec or srun started this process."""
    return any(name in os.environ for name in _RANKS)


def is_first() -> bool:
    """Return whether this process is the first that an mpiexec or srun started, or was started by none."""
    return _rank() in (None, "0")


def wear(name: str) -> None:
    """Tell who watches over this process which agents it runs."""
    _put(_badge, name)


def advise(what: str) -> None:
    """Tell who watches over this process what to do if it is killed."""
    _put(_advice, what)


def forsake() -> None:
    """Tell who watches that this process will not meet the others, who must not wait for it."""
    _put(_badge, "")


def run_as_rank(main: Callable[[], int]) -> NoReturn:
    """Run main in a child and exit with its status; if it is killed, say which agent that was.

    Of an error one process tells in a sentence, the one that knows first; then all are ended. An mpiexec that
    sees a process die kills all others at once, so that nobody could tell but who watches over the dead.
    """
    if not started_by_mpi() or not hasattr(os, "fork"):
        _work(main)
    global _badge, _advice
    _badge, _advice = mmap.mmap(-1, _LONGEST + 1), mmap.mmap(-1, _LONGEST + 1)
    wear(f"rank {_rank()}")
    advise("start again")
    child = os.fork()
    if child == 0:
        _die_with_parent()
        signal.signal(signal.SIGTERM, _end)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # and not ignored, by nohup, say
            signal.signal(signal.SIGINT, _end)
        _work(main)
    _watch(child)


def _work(main: Callable[[], int]) -> NoReturn:
    """Run main in this process, and end all others if it fails."""
    global _status
    try:
        status = main()
    except RunAbortedError as error:
        status = 1
        if not error.told:
            print(f"dcgs: error: {error}", file=sys.stderr, flush=True)
            end_all(status)
        elif started_by_mpi():
            time.sleep(_LONG_GRACE - _GRACE)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
        if status:
            end_all(status)
    _status = status or 1
    sys.exit(status)


def end_all(status: int | None = None) -> None:
    """End all processes of the communicator, after a moment in which they may end themselves.

    Without a status it is that with which this process exits.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.size == 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_GRACE)
    if _badge is not None:  # all is said, and MPICH would add a line of its own
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    mpi.COMM_WORLD.Abort(_status if status is None else status)


def _watch(child: int) -> NoReturn:
    """Wait for the child, hand signals on to it, and exit as it does."""

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        print(
            f"dcgs: error: {_read(_badge)} was killed by {signal.Signals(-status).name}; see whether its "
            f"machine ran out of memory, and {_read(_advice)}.",
            file=sys.stderr,
            flush=True,
        )
        if _read(_badge) == f"rank {_rank()}":
            _die(-status)
        os._exit(128 - status)
    if status and not _read(_badge):
        _die(signal.SIGKILL)
    os._exit(status)


def _die(number: int) -> NoReturn:
    """Die by a signal: an mpiexec whose processes have not met yet ends them for that, and for no status."""
    with suppress(OSError):  # of SIGKILL
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _end(number: int, _: FrameType | None) -> None:
    """End, as asked; an mpiexec may ask twice, which must not end what the first time began."""
    global _asked
    now, before = time.monotonic(), _asked
    if now - before < _LONG_GRACE + _GRACE:
        return
    _asked = now
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _die_with_parent() -> None:
    """Ask Linux to end this process if who watches over it is killed.

    Then it needs no signals but those handed on: an mpiexec sends one to all of a group.
    """
    with suppress(OSError, AttributeError):
        import ctypes

        if ctypes.CDLL(None).prctl(1, signal.SIGKILL) == 0:  # PR_SET_PDEATHSIG
            os.setpgid(0, 0)


def _rank() -> str | None:
    return next((os.environ[name] for name in _RANKS if name in os.environ), None)


def _put(place: mmap.mmap | None, text: str) -> None:
    if place is not None:
        short = text.encode()[:_LONGEST]
        place[: _LONGEST + 1] = short + bytes(_LONGEST + 1 - len(short))


def _read(place: mmap.mmap | None) -> str:
    assert place is not None
    return bytes(place[:]).rstrip(b"\0").decode(errors="replace")
