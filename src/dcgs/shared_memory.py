"""Files of MPI in shared memory: MPICH removes its own only when a run ends well.

After ``MPI_Init`` all processes of a machine have mapped the file, and its name is of no more use. Without
a name it goes away with the last process, however that ends. A file of a job that was killed before that is
removed when no process uses it.
"""

from __future__ import annotations

import os
from contextlib import suppress

_FOLDER = "/dev/shm/"
_MAPPED = "mpich_shm_"
_KINDS = (_MAPPED, "mpich_vci_", "ucx_shm_posix_")


def unlink_mapped() -> None:
    """Remove the name of the file that MPICH shares between the processes of this machine.

    Call it after ``MPI_Init``, which returns only when all of them have mapped the file.
    """
    for path in _used("self"):
        if path.startswith(_FOLDER + _MAPPED):
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
        return [_FOLDER + name for name in os.listdir(_FOLDER) if name.startswith(_KINDS)]
    except OSError:  # not Linux
        return []


def _is_ours(path: str, since: float) -> bool:
    try:
        found = os.stat(path)
    except OSError:
        return False
    return found.st_uid == os.getuid() and found.st_ctime >= since


def _used(pid: str) -> set[str]:
    """Return the files of shared memory that a process has mapped or open."""
    paths = set()
    with suppress(OSError), open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as lines:
        paths = {line.split(maxsplit=5)[5].rstrip("\n") for line in lines if _FOLDER in line}
    with suppress(OSError):
        for number in os.listdir(f"/proc/{pid}/fd"):
            with suppress(OSError):
                paths.add(os.readlink(f"/proc/{pid}/fd/{number}"))
    return paths
