"""One MPI process of a command: how it ends, and with it all others, if it fails."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import NoReturn

from dcgs.environment import is_root, started_by_mpi
from dcgs.marks import marks_of_job
from dcgs.runtime.errors import RunAbortedError, Scope, is_printed_here, report
from dcgs.supervisor import is_worker, print_interrupted, run_supervised, signal_received
from dcgs.watchdog import claim_line

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
