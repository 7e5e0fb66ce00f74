"""A rank of an MPI job in which one rank is disturbed, for tests/disturbed_starts.py to start under mpiexec.

``disturbed_rank.py MODE RANK ACTION MOMENT DELAY``: in rank RANK, ACTION happens before ``MPI_Init``, during
it (of raise, return and slow: between it and the first heartbeat) or after all have met. MODE is a plain
script, or the command with its supervisors; ``supervisor`` is the command, of which signals go to the
supervisor.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

RANKS = 3
# Seconds of the two limits, so that a run in which a rank is stopped ends soon, and of a slow rank.
TIMEOUT, START_TIMEOUT, SLOW = 3.0, 60.0, 4.0
FIT = (
    "fit lasso --data site-{agent}.npz --open --agents 3 --radius 2 --graph path --rounds 40 --out model "
    "--no-report"
)


def act(mode: str, action: str) -> None:
    """Do it, in the process that is to be disturbed."""
    if action == "raise":
        raise ValueError("that was wrong.")
    if action == "return":
        sys.exit(0)
    if action == "slow":
        time.sleep(SLOW)
    elif action != "none":
        os.kill(os.getppid() if mode == "supervisor" else os.getpid(), signal.Signals[f"SIG{action}"])
        time.sleep(0.5)  # signals to others take a moment


def act_later(mode: str, action: str, delay: float) -> None:
    """Let a process of its own send the signal after some seconds."""
    target = os.getppid() if mode == "supervisor" else os.getpid()
    if os.fork() == 0:
        if os.fork() == 0:
            nowhere = os.open(os.devnull, os.O_RDWR)
            for number in range(3):
                os.dup2(nowhere, number)
            os.closerange(3, 256)
            time.sleep(delay)
            os.kill(target, signal.Signals[f"SIG{action}"])
        os._exit(0)
    os.wait()


def disturb(mode: str, action: str, moment: str, delay: float) -> None:
    """Act now, or see to it that it happens later."""
    if moment == "before":
        act(mode, action)
        return
    from dcgs.runtime import MPI, mpi_transport

    is_signal = action not in ("raise", "return", "slow", "none")
    owner: Any = mpi_transport if moment == "during" else MPI
    name = "_joined" if is_signal else "_duplicate"
    if moment == "after":
        name = "hosts"
    right = getattr(owner, name)

    def wrong(*arguments: Any) -> Any:
        setattr(owner, name, right)  # once
        if moment == "after":
            result = right(*arguments)
            act(mode, action)
            return result
        if is_signal:
            act_later(mode, action, delay)
        else:
            act(mode, action)
        return right(*arguments)

    setattr(owner, name, wrong)


def script() -> None:
    """Do what a script of docs/mpi.md does."""
    import networkx as nx
    import numpy as np

    import dcgs

    runtime = dcgs.MPI(timeout=TIMEOUT, start_timeout=START_TIMEOUT)
    mine = runtime.hosts(RANKS)
    objectives = {i: dcgs.LeastSquares(np.eye(5), np.full(5, float(i))) for i in mine}
    dcgs.minimize(objectives, dcgs.L1Ball(5), nx.path_graph(RANKS), runtime=runtime, every=None, rounds=40)


def main() -> None:
    mode, rank, action, moment, delay = sys.argv[1:]
    is_disturbed = os.environ["PMI_RANK"] == rank
    if mode == "script":
        from dcgs import MPI

        MPI()  # from its first name on, dcgs watches
        if is_disturbed:
            disturb(mode, action, moment, float(delay))
        script()
        return
    import dcgs.command as command

    right = command._main

    def wrong() -> int:
        if is_disturbed:
            disturb(mode, action, moment, float(delay))
        return right()

    command._main = wrong
    sys.argv[1:] = [*FIT.split(), "--timeout", str(TIMEOUT), "--start-timeout", str(START_TIMEOUT)]
    command.command()


if __name__ == "__main__":
    main()
