"""What MPI and its launchers leave around a process: environment variables, and files in shared memory.

Only this module knows the variables of launchers. ``mpiexec`` sets the rank, and mostly the size. ``srun``
sets variables of Slurm, and those of an MPI only if it was configured for one. A batch script of Slurm has a
rank (``SLURM_PROCID``), but is no MPI process. The same holds for an interactive shell (``srun --pty bash``).
Both belong to a step of at most one task.

MPICH removes its files in shared memory only when a run ends well. After ``MPI_Init`` all processes of a
machine have mapped the file, and its name is of no more use. Without a name it goes away with the last
process, however that ends. A file of a job that was killed before that is removed when no process uses it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import suppress

# Hydra (MPICH, Intel MPI), Open MPI, PMIx, MVAPICH.
_RANKS = ("PMI_RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "MV2_COMM_WORLD_RANK")
_SIZES = ("PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE", "MV2_COMM_WORLD_SIZE")
_LOCAL_SIZES = ("MPI_LOCALNRANKS", "OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE")
_STEP_RANK, _STEP_SIZE = "SLURM_PROCID", "SLURM_STEP_NUM_TASKS"
VARIABLES = (*_RANKS, *_SIZES, *_LOCAL_SIZES, _STEP_RANK, _STEP_SIZE)
"""All variables that this module reads."""

Variables = Mapping[str, str]

_SHARED = "/dev/shm/"
_MAPPED = "mpich_shm_"
_NAMES = (_MAPPED, "mpich_vci_", "ucx_shm_posix_")


def _int(value: str | None) -> int | None:
    return int(value) if value is not None and value.isdecimal() else None


def _step_size(variables: Variables) -> int | None:
    """Return the number of tasks of a Slurm step with several, None elsewhere."""
    size = _int(variables.get(_STEP_SIZE))
    return size if _STEP_RANK in variables and size is not None and size > 1 else None


def started_by_mpi(variables: Variables = os.environ) -> bool:
    """Return whether ``mpiexec`` or ``srun`` started this process, as one of one or many.

    >>> started_by_mpi({"PMI_RANK": "0", "PMI_SIZE": "4"})
    True
    >>> started_by_mpi({"SLURM_PROCID": "0", "SLURM_NTASKS": "4"})  # a batch script
    False
    """
    return any(name in variables for name in (*_RANKS, *_SIZES)) or _step_size(variables) is not None


def rank(variables: Variables = os.environ) -> int | None:
    """Return the rank of this process, None if no MPI launcher started it or the launcher set none."""
    for name in _RANKS:
        if name in variables:
            return _int(variables[name])
    return _int(variables[_STEP_RANK]) if _step_size(variables) is not None else None


def size(variables: Variables = os.environ) -> int | None:
    """Return the number of processes that the launcher started, None if there is none or it did not say."""
    return _first(_SIZES, variables) or _step_size(variables)


def local_size(variables: Variables = os.environ) -> int | None:
    """Return how many of them the launcher started on this machine, None if it did not say."""
    return _first(_LOCAL_SIZES, variables)


def _first(names: tuple[str, ...], variables: Variables) -> int | None:
    return next((number for name in names if (number := _int(variables.get(name))) is not None), None)


def is_root(variables: Variables = os.environ) -> bool:
    """Return whether this process has rank 0, or was not started by an MPI launcher."""
    return rank(variables) in (None, 0)


def hydra_channel(variables: Variables = os.environ) -> int | None:
    """Return the file descriptor over which Hydra, the ``mpiexec`` of MPICH, takes commands; None elsewhere.

    Slurm uses the same variable ``PMI_FD`` for another protocol.
    """
    return _int(variables.get("PMI_FD")) if "PMI_HOSTNAME" in variables else None


def wrong_size(seen: int, variables: Variables = os.environ) -> tuple[str, int] | None:
    """Return the variable, and its value, that contradicts the number of processes that MPI sees, or None.

    An ``mpiexec`` of another MPI starts processes each of which sees itself only. So does ``srun`` without
    support for the MPI. Inside a Slurm step an ``mpiexec`` may start fewer processes than the step has tasks.
    """
    sizes = {name: size for name in _SIZES if (size := _int(variables.get(name))) is not None}
    step = _step_size(variables)
    if not sizes and step is not None and seen == 1:
        sizes = {_STEP_SIZE: step}
    return next(((name, size) for name, size in sizes.items() if size != seen), None)


def find_mpiexec(python: str | None = None) -> str:
    """Return the path of mpiexec: beside Python, where the wheels of an MPI put it, else on the path."""
    # Imported here, since the command must handle signals before it imports much.
    import shutil
    from pathlib import Path

    folder = Path(python or sys.executable).parent
    names = ("mpiexec", "mpiexec.hydra", "mpirun")
    beside = [str(folder / name) for name in names if os.access(folder / name, os.X_OK)]
    paths = beside or [path for name in names if (path := shutil.which(name))]
    if not paths:
        raise ValueError(
            f"MPI needs mpiexec; it is neither in {folder} nor on the path. Install one with: "
            "pip install 'dcgs[mpi]'; on a cluster load its MPI, and start the command by mpiexec or srun."
        )
    return paths[0]


def unlink_mapped() -> None:
    """Remove the name of the file that MPICH shares between the processes of this machine.

    Call it after ``MPI_Init``, which returns only when all of them have mapped the file.
    """
    for path in _used("self"):
        if path.startswith(_SHARED + _MAPPED):
            with suppress(OSError):
                os.unlink(path)


def remove_unused(since: float) -> None:
    """Remove files of MPI that this user made since a time, and that no process has mapped or open."""
    files = {path for path in _files() if _is_ours(path, since)}
    if not files:
        return
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        files -= _used(pid)
    for path in files:
        with suppress(OSError):
            os.unlink(path)


def _files() -> list[str]:
    try:
        return [_SHARED + name for name in os.listdir(_SHARED) if name.startswith(_NAMES)]
    except OSError:  # not Linux
        return []


def _is_ours(path: str, since: float) -> bool:
    try:
        status = os.stat(path)
    except OSError:
        return False
    return status.st_uid == os.getuid() and status.st_ctime >= since


def _used(pid: str) -> set[str]:
    """Return the files of shared memory that a process has mapped or open."""
    paths = set()
    with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in lines if _SHARED in line}
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                paths.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return paths
