"""Start a command again as several MPI processes, by the mpiexec that belongs to this Python."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from types import FrameType

_MARK = "DCGS_LAUNCHED"
_NAMES = ("mpiexec", "mpiexec.hydra", "mpirun")
# How launchers tell a process how many there are: Hydra (MPICH, Intel MPI), Open MPI, PMIx.
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")
# PMIx tells a process its rank only. With srun, a step has a number of tasks; the batch script has none.
_RANKS = ("PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK")
_STEP_RANK, _STEP_SIZE = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"


def under_mpi(environment: Mapping[str, str] | None = None) -> bool:
    """Return whether a launcher of MPI started this process, as one of one or many.

    >>> under_mpi({"PMI_RANK": "0", "PMI_SIZE": "4"}), under_mpi({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})
    (True, False)
    """
    known = os.environ if environment is None else environment
    if any(name in known for name in (*_SIZES, *_RANKS)):
        return True
    return _STEP_RANK in known and known.get(_STEP_SIZE, "1") not in ("", "0", "1")


def find_mpiexec(python: str | None = None) -> str:
    """Return the mpiexec to use: the one beside Python, as the wheels of an MPI put it, else on the path."""
    beside = Path(python or sys.executable).parent
    for name in _NAMES:
        if os.access(beside / name, os.X_OK):
            return str(beside / name)
    found = next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found is None:
        raise ValueError(
            f"--runtime mpi needs mpiexec; it is neither in {beside} nor on the path. Install one with: "
            "pip install 'dcgs[mpi]'; on a cluster load its MPI, and start the command by mpiexec or srun."
        )
    return found


def command_line(mpiexec: str, argv: Sequence[str], ranks: int) -> list[str]:
    """Return the command that runs ``dcgs argv`` as so many processes.

    >>> command_line("/bin/mpiexec", ["fit", "lasso"], 4)[:3]
    ['/bin/mpiexec', '-n', '4']
    """
    return [mpiexec, "-n", str(ranks), sys.executable, "-m", "dcgs", *argv]


def launch(argv: Sequence[str], ranks: int) -> int:
    """Run ``dcgs argv`` as so many MPI processes; return their exit status.

    Linear algebra gets one thread a process unless the environment says otherwise. Ctrl-C and SIGTERM reach
    the processes, and are waited for.
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
    environment = {"OMP_NUM_THREADS": "1"} | dict(os.environ) | {_MARK: "1"}
    # In a group of their own, a terminal's Ctrl-C reaches processes once: by us, as any other signal does.
    command = command_line(find_mpiexec(), argv, ranks)
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0)
    return _waited(process)


def _waited(process: subprocess.Popen[bytes]) -> int:
    """Return how the process ended, as a shell would tell it; pass signals to end on."""
    passed: list[int] = []

    def pass_on(number: int, _: FrameType | None) -> None:
        passed.append(number)
        process.send_signal(number)

    heard = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = {
        number: signal.signal(number, pass_on)
        for number in heard
        if signal.getsignal(number) is not signal.SIG_IGN  # by nohup, say
    }
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if code and passed:
        return 128 + passed[0]
    return code if code >= 0 else 128 - code
