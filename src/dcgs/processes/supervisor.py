"""The supervisor: the parent of the process that does the work of a command, the worker.

The worker may be in the midst of an import, in MPI's start, or computing for long without returning to
Python. The supervisor only waits. So it can always end the worker after Ctrl-C, and can print how a worker
died that was killed. It is forked before anything large is imported, so it is small.

Under an MPI launcher each rank has a supervisor. ``mpiexec`` ends all processes as soon as one dies, so only
a parent that outlives the worker can print which agent it was.
"""

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

import dcgs.processes.watchdog as watchdog
from dcgs.processes.environment import is_root, rank, started_by_mpi
from dcgs.processes.marks import STARTS, killed_by, marks_of_job, new_mark, own_name
from dcgs.processes.watchdog import FORWARDED, abort_launcher, print_line

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
"""The signals that end a command."""
# What the supervisor waits for: these signals, the end of the worker, and its deadline.
_AWAITED = (*SIGNALS, signal.SIGCHLD, signal.SIGALRM)

# Seconds from a signal to the end of a worker that does not exit by itself. Those of the processes that
# mpiexec started come first: a command that started mpiexec waits for them.
_DEADLINE, _RANK_DEADLINE = 4.5, 3.5
# Seconds that other ranks wait for the root to print, before they do so and abort all; and of a short sleep.
_ROOT_FIRST, _MOMENT = 2.5, 0.05
# Seconds in which the launcher ends this process after it got the command to end all.
_ENDED_BY_LAUNCHER = 0.5
# Seconds in which a repeated signal must not interrupt the exit: mpiexec may send each signal twice.
_REPEATED = 4.0
_MAX_LENGTH = 200

# Shared between the supervisor and its worker; None in other processes.
_name: mmap.mmap | None = None
_hint: mmap.mmap | None = None
_printed: mmap.mmap | None = None
# The signal that this worker obeys, and when it came.
_signal = 0
_signaled = float("-inf")


def set_name(name: str) -> None:
    """Tell the supervisor which agents this process hosts: from now on MPI ends it together with others."""
    _put(_name, name)
    watchdog.set_name(name)


def set_hint(hint: str) -> None:
    """Tell the supervisor what a user should do if this process is killed."""
    _put(_hint, hint)


def detach() -> None:
    """Tell the supervisor that this process will never call MPI, so that the others must not wait for it."""
    _put(_name, "")


def mark_printed() -> bool:
    """Tell the supervisor that this process prints that it was interrupted; return False if another did."""
    _put(_printed, "yes")
    return watchdog.claim_line()


def print_interrupted(what: str = "", hint: str = "") -> None:
    """Print that this process was interrupted, or what else was, if no other process has: the root first."""
    deadline = time.monotonic() + (0.0 if is_root() else _ROOT_FIRST)
    while time.monotonic() < deadline and not marks_of_job().is_claimed:
        time.sleep(_MOMENT)
    if watchdog.claim_line():
        _put(_printed, "yes")
        what = what or ("interrupted" if is_root() else f"{own_name()} was interrupted")
        print_line(f"dcgs: {what}; {hint}." if hint else f"dcgs: {what}.")


def is_worker() -> bool:
    """Return whether a supervisor forked this process."""
    return _name is not None


def signal_received() -> int:
    """Return the signal that this worker is to end by, 0 if there was none."""
    return _signal


def run_supervised(main: Callable[[], int]) -> NoReturn:
    """Run main in a worker process and exit with its status.

    Until main calls :func:`raise_on_signals`, a signal ends the worker at once. Where processes cannot be
    forked, main runs in this process.
    """
    if not sys.platform.startswith(("linux", "darwin")):
        sys.exit(main())
    global _name, _hint, _printed
    _name, _hint, _printed = (mmap.mmap(-1, _MAX_LENGTH + 1) for _ in range(3))
    watchdog.stop()
    if started_by_mpi() and rank() is not None:  # the mark of this process, until there is one of its worker
        marks_of_job().write(rank() or 0, new_mark(STARTS, own_name(), os.getpid()))
    set_name(own_name())
    set_hint("start again")
    supervisor = os.getpid()
    signal.pthread_sigmask(signal.SIG_BLOCK, _AWAITED)
    worker = os.fork()
    if worker != 0:
        _supervise(worker)
    _handle(signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _AWAITED)
    _die_with_parent(supervisor)
    watchdog.start(supervisor)
    status = main()
    _handle(signal.SIG_IGN if _signal else signal.SIG_DFL)  # nothing may be raised in exit handlers
    watchdog.exits(status)
    sys.exit(status)


def raise_on_signals() -> None:
    """Let signals raise KeyboardInterrupt or SystemExit in this worker, so that it can clean up."""
    if is_worker():
        _handle(_raise)


def _raise(number: int, _: FrameType | None) -> None:
    """Raise as the signal asks, unless it is a repeated one."""
    global _signal, _signaled
    now, before = time.monotonic(), _signaled
    if now - before < _REPEATED:
        return
    _signal, _signaled = number, now
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _handle(handler: Callable[[int, FrameType | None], None] | signal.Handlers) -> None:
    """Set the handler of all signals to end. A signal that is ignored, for example by nohup, stays so."""
    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _supervise(worker: int) -> NoReturn:
    """Wait for the worker, forward signals to it, and exit as it does.

    All signals stay blocked, and are taken one by one: a handler might miss one that comes just before a
    blocking wait.
    """
    received = 0
    ignored = {number for number in SIGNALS if signal.getsignal(number) is signal.SIG_IGN}
    signal.signal(signal.SIGCHLD, lambda *_: None)  # its default would drop it on some systems
    signal.signal(signal.SIGALRM, lambda *_: None)
    ended = 0
    while not ended:
        number = signal.sigwait(set(_AWAITED) - ignored)
        if number == signal.SIGALRM:
            _kill(worker, signal.SIGKILL)
        elif number != signal.SIGCHLD:
            if not received:
                received = number
                seconds = _RANK_DEADLINE if started_by_mpi() else _DEADLINE
                signal.setitimer(signal.ITIMER_REAL, seconds)
            _kill(worker, number)
        ended, code = os.waitpid(worker, os.WNOHANG)
    status = os.waitstatus_to_exitcode(code)
    if status < 0 and (received or -status in SIGNALS):
        _end_interrupted(received or -status)
    if status < 0:
        _end_killed(-status)
    if status and (received or not _read(_name)) and not _has_joined():
        _abort_all(status)
    os._exit(status)


def _end_interrupted(number: int) -> NoReturn:
    """Exit as the signal asks, for a worker that was interrupted and could not clean up or exit."""
    if not _read(_printed):
        hint = _read(_hint)
        print_interrupted(hint="" if hint == "start again" else hint)
    _abort_all(128 + number)
    os._exit(128 + number)


def _end_killed(number: int) -> NoReturn:
    """Print which worker was killed, and exit."""
    if watchdog.claim_line():
        print_line(f"dcgs: error: {_read(_name)} {killed_by(number, _read(_hint))}")
    if not _has_joined():
        _abort_all(128 + number)
    os._exit(128 + number)


def _has_joined() -> bool:
    """Return whether MPI knows the worker, so that ``mpiexec`` ends the other processes when it is gone."""
    return _read(_name) not in ("", own_name())


def _abort_all(status: int) -> None:
    """End all processes of the launcher, which would wait for the others where this one never called MPI."""
    if not started_by_mpi():
        return
    time.sleep(FORWARDED)
    if abort_launcher(status):
        time.sleep(_ENDED_BY_LAUNCHER)
    elif status - 128 not in SIGNALS:
        os.kill(os.getpid(), signal.SIGKILL)  # other launchers end all for a process that dies by a signal


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


def _die_with_parent(parent: int) -> None:
    """Ask Linux to kill this process if its supervisor is killed.

    A rank can then leave the process group, to which ``mpiexec`` sends signals: the supervisor forwards them.
    """
    with suppress(OSError, AttributeError):
        import ctypes

        if ctypes.CDLL(None).prctl(1, signal.SIGKILL) == 0:  # PR_SET_PDEATHSIG
            if os.getppid() != parent:  # it died before
                os._exit(1)
            if started_by_mpi():
                os.setpgid(0, 0)


def _put(place: mmap.mmap | None, text: str) -> None:
    if place is not None:
        short = text.encode()[:_MAX_LENGTH]
        place[: _MAX_LENGTH + 1] = short + bytes(_MAX_LENGTH + 1 - len(short))


def _read(place: mmap.mmap | None) -> str:
    assert place is not None
    return bytes(place[:]).rstrip(b"\0").decode(errors="replace")
