"""``dcgs`` under mpiexec with a fault at a chosen moment, for the tests to start.

``fit_with_fault.py RANK CALL COUNT ACTION ARGUMENTS...``: at call number COUNT of CALL, process RANK does
ACTION. Moments that are chosen this way do not depend on how fast the machine is.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dcgs.command import command
from dcgs.counting import CountedOracle
from dcgs.processes import supervisor

CALLS: dict[str, tuple[Any, str]] = {
    "lmo": (CountedOracle, "__call__"),  # once per iteration of DFW
    "fsync": (os, "fsync"),  # once for each file and each folder that is written
    "replace": (os, "replace"),  # once for each file that gets its name
}


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def act(action: str) -> None:
    """Do it: ``full`` is a full disk, any other action is a signal and the process that gets it."""
    if action == "full":
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    name, _, target = action.partition("-")
    worker, supervisor = os.getpid(), os.getppid()
    # Above a supervisor is the proxy of mpiexec, and above that mpiexec.
    mpiexec = parent(parent(supervisor))
    pids = {"worker": worker, "supervisor": supervisor, "mpiexec": mpiexec}
    os.kill(pids[target], signal.Signals[name])


def with_fault(call: Callable[..., Any], count: int, action: str) -> Callable[..., Any]:
    calls = 0

    def wrapper(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == count or (calls > count and action == "full"):
            act(action)
        elif calls > count:
            time.sleep(0.05)  # the run must not end before the signal arrives, however busy the machine is
        return call(*arguments)

    return wrapper


if __name__ == "__main__":
    # A process that was told to end gets the time that it needs for its last checkpoint.
    supervisor._RANK_DEADLINE = 240.0
    _, rank, name, count, action, *arguments = sys.argv
    sys.argv[1:] = arguments
    if os.environ["PMI_RANK"] == rank:
        owner, attribute = CALLS[name]
        setattr(owner, attribute, with_fault(getattr(owner, attribute), int(count), action))
    command()
