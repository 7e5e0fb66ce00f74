"""Start a command again as several MPI processes, by the mpiexec that belongs to this Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from types import FrameType

from dcgs.processes.environment import find_mpiexec
from dcgs.processes.supervisor import SIGNALS

_MARK = "DCGS_LAUNCHED"
# Seconds within which a second signal counts as the first one: the terminal and the supervisor both send it,
# and mpiexec would abort all processes for a second Ctrl-C.
_REPEATED = 0.5
# Seconds from a signal to the end of an mpiexec that does not exit by itself.
_DEADLINE = 4.0


def launch(argv: Sequence[str], ranks: int) -> int:
    """Run ``dcgs argv`` in this number of MPI processes; return their exit status.

    Linear algebra gets one thread per process unless the environment says otherwise. Ctrl-C and SIGTERM are
    forwarded to the processes, and their end is waited for.
    """
    if os.environ.get(_MARK):
        raise RuntimeError(
            f"mpiexec must be of the MPI that mpi4py uses; {find_mpiexec()} started processes that do not "
            "know of each other. Install one MPI only, or start the command with the mpiexec of your MPI."
        )
    if find_spec("mpi4py") is None:
        raise ImportError(
            "--runtime mpi needs mpi4py, which is not installed. Install it with: pip install 'dcgs[mpi]'"
        )
    command = [find_mpiexec(), "-n", str(ranks), sys.executable, "-m", "dcgs", *argv]
    environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ) | {_MARK: "1"}

    def start() -> subprocess.Popen[bytes]:
        # In a process group of their own they get a Ctrl-C of the terminal once: forwarded, as any other
        # signal.
        return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)

    return _run(start)


def _run(start: Callable[[], subprocess.Popen[bytes]]) -> int:
    """Start a process and wait for it while forwarding signals; return its exit status as a shell does.

    Signals are handled before the process starts, so that none ends this process and leaves the other.
    """
    forwarded: list[tuple[int, float]] = []
    process: subprocess.Popen[bytes] | None = None
    is_sent = False

    def forward(number: int, _: FrameType | None) -> None:
        nonlocal is_sent
        now = time.monotonic()
        if not forwarded:
            signal.setitimer(signal.ITIMER_REAL, _DEADLINE)
        if not forwarded or now - forwarded[-1][1] > _REPEATED:
            forwarded.append((number, now))
            if process is not None:
                is_sent = True
                process.send_signal(number)

    def kill(*_: object) -> None:
        if process is not None:
            process.kill()

    handlers = {number: signal.getsignal(number) for number in (*SIGNALS, signal.SIGALRM)}
    signal.signal(signal.SIGALRM, kill)
    for number, handler in handlers.items():
        if number in SIGNALS and handler is not signal.SIG_IGN:  # as nohup sets it
            signal.signal(number, forward)
    try:
        process = start()
        if forwarded and not is_sent:
            process.send_signal(forwarded[0][0])
        code = process.wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if code and forwarded:
        return 128 + forwarded[0][0]
    return code if code >= 0 else 128 - code
