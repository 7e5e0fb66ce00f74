"""The lock of an output folder: one fit writes to a folder at a time.

The lock is held on a file in the folder, and is free as soon as its process ends, however that ends. A file
that is left by a process that was killed locks nothing.
"""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from dcgs.front import agreed
from dcgs.runtime import ProcessGroup

NAME = ".dcgs-fit.lock"
_PATIENCE = 2.0  # seconds in which a process that has the lock has written its name


@contextmanager
def locked(folder: Path, group: ProcessGroup) -> Iterator[bool]:
    """Keep other fits out of a folder; raise in all processes if one is writing to it.

    Yield True in one of the processes that share the folder, in the root if it is one of them.
    """
    fit = group.allgather_texts([uuid4().hex if group.is_root else ""])[0]
    lock = agreed(group, lambda: take_lock(folder / NAME, fit) if group.is_root else None)
    lock = agreed(group, lambda: lock if group.is_root else take_lock(folder / NAME, fit))
    try:
        yield lock is not None
    finally:
        if lock is not None:
            (folder / NAME).unlink(missing_ok=True)
            os.close(lock)


def take_lock(file: Path, fit: str) -> int | None:
    """Return the descriptor of the locked file, None if another process of this fit has the lock."""
    while True:
        lock = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
        holder = _content(lock)
        if not holder.startswith(fit):  # a file system may not tell one machine what another has locked
            holder = "" if _is_free(lock) else _holder(lock)
        if holder:
            os.close(lock)
            if holder.startswith(fit):
                return None
            raise ValueError(
                f"{file.parent} must be written by one fit at a time; {holder.partition(' ')[2]} is writing "
                "to it. Wait for its end, or choose another folder with --out."
            )
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(lock), os.stat(file)):
                os.truncate(lock, 0)
                os.lseek(lock, 0, os.SEEK_SET)
                os.write(lock, f"{fit} process {os.getpid()} on {platform.node()}".encode())
                return lock
        os.close(lock)  # the fit that had the lock has removed the file: there may be a new one


def _is_free(lock: int) -> bool:
    """Lock a file; return False if another process has locked it."""
    if os.name != "posix":
        return True
    import fcntl

    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: nothing is kept out, and nothing is lost
        return True
    return True


def _content(lock: int) -> str:
    os.lseek(lock, 0, os.SEEK_SET)
    return os.read(lock, 1000).decode(errors="replace")


def _holder(lock: int) -> str:
    """Return the fit and the process that have the lock."""
    end = time.monotonic() + _PATIENCE
    while True:
        text = _content(lock)
        if text or time.monotonic() > end:
            return text or " another process"
        time.sleep(0.01)
