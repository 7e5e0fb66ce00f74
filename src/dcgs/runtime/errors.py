"""The failure of a run: its scope, its sentence, who prints that, and how all processes end."""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from enum import Enum
from typing import NoReturn
from unicodedata import category

from dcgs.processes.environment import is_root, started_by_mpi
from dcgs.processes.marks import marks_of_job
from dcgs.processes.supervisor import is_worker, print_interrupted, run_supervised, signal_received
from dcgs.processes.watchdog import claim_line

_IN = "raised in "
_COMMANDS = ("Cc", "Cf", "Cs")  # controls, marks of direction and the like, halves of characters
_IN_ALL = f"{_IN}all processes"


class Scope(Enum):
    """Which processes of a run raise an error, and hence which of them prints it."""

    ONE = "one process raised it, reports it to the others, and prints it"
    ALL = "all processes raise the same; the root prints it"
    REMOTE = "another process raised it and reported it; it prints it"


class RunAbortedError(RuntimeError):
    """Raised when a run cannot continue; the message names the agent or process that failed, and why.

    ``status`` is the exit status for a process that ends with this error.
    """

    def __init__(self, message: str, scope: Scope = Scope.ONE, status: int = 1) -> None:
        super().__init__(message)
        self.scope = scope
        self.status = status

    is_printed_once = True
    """The exception hook of an MPI process prints it in one process only."""


def mark_as_common(error: BaseException) -> None:
    """Record that all processes raise this error."""
    error.add_note(_IN_ALL)


def scope_of(error: BaseException) -> Scope:
    """Return the scope of any exception.

    An interrupt during the cleanup after a failure of another process belongs to that failure.
    """
    if isinstance(error, RunAbortedError):
        return error.scope
    if _IN_ALL in getattr(error, "__notes__", ()):
        return Scope.ALL
    interrupt, before = isinstance(error, KeyboardInterrupt | SystemExit), error.__context__
    if interrupt and before is not None and scope_of(before) is Scope.REMOTE:
        return Scope.REMOTE
    return Scope.ONE


def interrupt_status(error: BaseException) -> int | None:
    """Return the exit status if a signal to end raised the error, here or in another process; else None."""
    if isinstance(error, KeyboardInterrupt):
        return 130
    status = error.status if isinstance(error, RunAbortedError) else getattr(error, "code", None)
    return status if isinstance(status, int) and status > 128 else None


def is_printed_here(scope: Scope, is_root: bool) -> bool:
    """Return whether this process prints an error of that scope."""
    return scope is Scope.ONE or (scope is Scope.ALL and is_root)


def printable(text: str) -> str:
    """Return a text for a terminal: characters that would command it are escaped.

    >>> printable("a \\x1b[31mred\\n label")
    'a \\\\x1b[31mred\\n label'
    """
    return "".join(
        c.encode("unicode_escape").decode() if c != "\n" and category(c) in _COMMANDS else c for c in text
    )


def report(error: RunAbortedError, is_root: bool) -> int:
    """Print the error if this process is the one to print it; return the exit status."""
    if is_printed_here(error.scope, is_root) and claim_line():
        print(f"dcgs: error: {printable(str(error))}", file=sys.stderr, flush=True)
    return error.status


def describe(error: BaseException, process: str) -> str:
    """Return a sentence on an error of one process, which names the agent, or else the process."""
    notes = [note for note in getattr(error, "__notes__", ()) if note != _IN_ALL]
    who = next((note.removeprefix(_IN) for note in notes if note.startswith(_IN)), None)
    if isinstance(error, RunAbortedError) or (scope_of(error) is Scope.ALL and who is None):
        return str(error)
    who = who or process
    if isinstance(error, KeyboardInterrupt | SystemExit):
        is_signal = interrupt_status(error) is not None
        return f"{who} was interrupted." if is_signal else f"{who} exited while others wait for it."
    text = str(error) or type(error).__name__
    if re.search(r"\bagents? \[?\d", text):
        return text
    return f"{who} failed: {text if text.endswith('.') else text + '.'}"


# Seconds in which other processes may exit by themselves before they are aborted. A process to
# which a failure was reported waits longer, so that the exit status is that of the process that failed.
_GRACE, _LONG_GRACE = 1.0, 3.0

_status = 1


def run_as_rank(main: Callable[[], int]) -> NoReturn:
    """Run main in a worker process and exit with its status; if it is killed, print which agent it was.

    Of a :class:`RunAbortedError` one process prints the sentence; then all processes end. Without an MPI
    launcher main runs in this process.
    """
    if not started_by_mpi():
        sys.exit(run_worker(main))
    run_supervised(lambda: run_worker(main))


def run_worker(main: Callable[[], int]) -> int:
    """Run main; if it fails, print the error where it must be printed, and end all. Return the exit status.

    After a signal this process prints no other error: what fails then fails because of the signal.
    """
    global _status
    try:
        status = main()
    except RunAbortedError as error:
        root, signaled = is_root(), signal_received()
        if signaled:
            print_interrupted()
        status = 128 + signaled if signaled else report(error, root)
        if signaled or is_printed_here(error.scope, root):
            abort_all(status)
        elif error.scope is Scope.REMOTE and started_by_mpi():
            time.sleep(_LONG_GRACE - _GRACE)
            report(RunAbortedError(str(error)), root)  # unless the process that failed has printed it
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 1 if stop.code else 0
        if status:
            abort_all(status)
    _status = status or 1
    return status


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
    deadline = time.monotonic() + _LONG_GRACE
    while time.monotonic() < deadline and not marks_of_job().is_claimed:
        time.sleep(_GRACE / 20.0)  # until the failure was printed, here or elsewhere
    claim_line()  # who is killed by this has not failed, and is not reported
    if is_worker():  # everything has been printed, and MPICH would add a line
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
    mpi.COMM_WORLD.Abort(_status if status is None else status)
