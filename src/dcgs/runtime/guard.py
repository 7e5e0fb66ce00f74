"""What becomes of a process that fails: one sentence, a status other than zero, and the end of all others."""

from __future__ import annotations

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
# Seconds in which other processes may end by themselves, before they are ended.
_GRACE = 1.0
_LONGEST = 200

_badge: mmap.mmap | None = None


def started_by_mpi() -> bool:
    """Return whether an mpiexec or srun started this process."""
    return any(name in os.environ for name in _RANKS)


def wear(name: str) -> None:
    """Tell who watches over this process which agents it runs."""
    if _badge is not None:
        text = name.encode()[:_LONGEST]
        _badge[: _LONGEST + 1] = text + bytes(_LONGEST + 1 - len(text))


def run_as_rank(main: Callable[[], int]) -> NoReturn:
    """Run main in a child and exit with its status; if it is killed, say which agent that was.

    Of an error one process tells in a sentence, the one that knows first; then all are ended. An mpiexec that
    sees a process die kills all others at once, so that nobody could tell but who watches over the dead.
    """
    if not started_by_mpi() or not hasattr(os, "fork"):
        sys.exit(main())
    global _badge
    _badge = mmap.mmap(-1, _LONGEST + 1)
    rank = next(os.environ[name] for name in _RANKS if name in os.environ)
    wear(f"rank {rank}")
    child = os.fork()
    if child == 0:
        _work(main)
    _watch(child)


def _work(main: Callable[[], int]) -> NoReturn:
    """Run main in this process; end all others if it fails."""
    _die_with_parent()
    try:
        status = main()
    except RunAbortedError as error:
        status = 1
        if not error.told:
            print(f"dcgs: error: {error}", file=sys.stderr, flush=True)
            end_all(status)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
        if status:
            end_all(status)
    sys.exit(status)


def end_all(status: int) -> None:
    """End all processes of the communicator, after a moment in which they may end themselves."""
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.size == 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_GRACE)
    mpi.COMM_WORLD.Abort(status)


def _watch(child: int) -> NoReturn:
    """Wait for the child, hand signals on to it, and exit as it does."""

    def pass_on(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, pass_on)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status < 0:
        assert _badge is not None
        name = bytes(_badge[:]).rstrip(b"\0").decode(errors="replace")
        print(
            f"dcgs: error: {name} was killed by {signal.Signals(-status).name}; see whether its machine "
            "ran out of memory, and start again.",
            file=sys.stderr,
            flush=True,
        )
        os._exit(128 - status)
    os._exit(status)


def _die_with_parent() -> None:
    """Ask Linux to end this process if who watches over it is killed."""
    with suppress(OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
