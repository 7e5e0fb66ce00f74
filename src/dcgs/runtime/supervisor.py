"""The supervisor of an MPI process: what happens when the process fails or is killed.

A failure ends with one sentence on standard error, an exit status other than zero, and the end of all
processes. ``mpiexec`` kills all processes as soon as one dies. So only a parent that outlives the killed
process can print which agent it was: the supervisor.
"""

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

from dcgs.runtime import environment
from dcgs.runtime.errors import RunAbortedError, Scope, is_printed_here, report

# Seconds in which other processes may exit by themselves before they are aborted. A process to
# which a failure was reported waits longer, so that the exit status is that of the process that failed.
_GRACE, _LONG_GRACE = 1.0, 3.0
_MAX_LENGTH = 200

# Shared between the supervisor and its child.
_name: mmap.mmap | None = None
_hint: mmap.mmap | None = None
_status = 1
_signaled = -math.inf


def set_name(name: str) -> None:
    """Tell the supervisor which agents this process hosts."""
    _put(_name, name)


def set_hint(hint: str) -> None:
    """Tell the supervisor what a user should do if this process is killed."""
    _put(_hint, hint)


def detach() -> None:
    """Tell the supervisor that this process will never call MPI, so that the others must not wait for it."""
    _put(_name, "")


def run_as_rank(main: Callable[[], int]) -> NoReturn:
    """Run main in a child process and exit with its status; if it is killed, print which agent it was.

    Of a :class:`RunAbortedError` one process prints the sentence; then all processes end. Without an MPI
    launcher main runs in this process.
    """
    if not environment.started_by_mpi() or not sys.platform.startswith(("linux", "darwin")):
        _run(main)
    global _name, _hint
    _name, _hint = mmap.mmap(-1, _MAX_LENGTH + 1), mmap.mmap(-1, _MAX_LENGTH + 1)
    set_name(_rank_name())
    set_hint("start again")
    child = os.fork()
    if child == 0:
        _die_with_parent()
        signal.signal(signal.SIGTERM, _exit_on_signal)
        if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # it may be ignored, by nohup
            signal.signal(signal.SIGINT, _exit_on_signal)
        _run(main)
    _supervise(child)


def _run(main: Callable[[], int]) -> NoReturn:
    """Run main in this process; if it fails, print the error where it must be printed, and end all."""
    global _status
    try:
        status = main()
    except RunAbortedError as error:
        status, root = report(error, environment.is_root()), environment.is_root()
        if is_printed_here(error.scope, root):
            abort_all(status)
        elif error.scope is Scope.REMOTE and environment.started_by_mpi():
            time.sleep(_LONG_GRACE - _GRACE)
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
        if status:
            abort_all(status)
    _status = status or 1
    sys.exit(status)


def abort_all(status: int | None = None) -> None:
    """Abort all MPI processes, after a moment in which they may exit by themselves.

    Without a status it is the exit status of this process.
    """
    mpi = sys.modules.get("mpi4py.MPI")
    if mpi is None or not mpi.Is_initialized() or mpi.Is_finalized() or mpi.COMM_WORLD.size == 1:
        return
    sys.stdout.flush()
    sys.stderr.flush()
    time.sleep(_GRACE)
    if _name is not None:  # everything has been printed, and MPICH would add a line
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    mpi.COMM_WORLD.Abort(_status if status is None else status)


def _supervise(child: int) -> NoReturn:
    """Wait for the child, forward signals to it, and exit as it does."""

    def forward(number: int, _: FrameType | None) -> None:
        with suppress(ProcessLookupError):
            os.kill(child, number)

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, forward)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    name = _read(_name)
    if status < 0:
        killed = RunAbortedError(
            f"{name} was killed by {signal.Signals(-status).name}; see whether its machine ran out of "
            f"memory, and {_read(_hint)}.",
            status=128 - status,
        )
        report(killed, is_root=False)
        if name == _rank_name():
            _die(-status)
        os._exit(killed.status)
    if status and not name:
        _die(signal.SIGKILL)
    os._exit(status)


def _die(number: int) -> NoReturn:
    """Die by a signal: before MPI is initialized, ``mpiexec`` ends the others for a signal only."""
    with suppress(OSError):  # SIGKILL has no handler
        signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
    os._exit(128 + number)


def _exit_on_signal(number: int, _: FrameType | None) -> None:
    """Exit as the signal asks; ``mpiexec`` may send it twice, and the second must not interrupt the exit."""
    global _signaled
    now, before = time.monotonic(), _signaled
    if now - before < _LONG_GRACE + _GRACE:
        return
    _signaled = now
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _die_with_parent() -> None:
    """Ask Linux to kill this process if its supervisor is killed.

    It can then leave the process group, to which ``mpiexec`` sends signals: the supervisor forwards them.
    """
    with suppress(OSError, AttributeError):
        import ctypes

        if ctypes.CDLL(None).prctl(1, signal.SIGKILL) == 0:  # PR_SET_PDEATHSIG
            os.setpgid(0, 0)


def _rank_name() -> str:
    return f"rank {environment.rank()}"


def _put(place: mmap.mmap | None, text: str) -> None:
    if place is not None:
        short = text.encode()[:_MAX_LENGTH]
        place[: _MAX_LENGTH + 1] = short + bytes(_MAX_LENGTH + 1 - len(short))


def _read(place: mmap.mmap | None) -> str:
    assert place is not None
    return bytes(place[:]).rstrip(b"\0").decode(errors="replace")
