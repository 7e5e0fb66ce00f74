"""Only one process at a time takes part for a site: two would answer for each other, and miss what came."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dcgs.files import flock

_LOCK, _TRIES, _PAUSE = "lock", 10, 0.1


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep other processes out of the folder of a study; raise if there is one. A kill ends the lock."""
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        for _ in range(_TRIES):  # dcgs site status has it for a moment
            if taken := flock(lock):
                break
            time.sleep(_PAUSE)
        if not taken:
            raise ValueError(
                f"one process at a time must run for a site; process {_holder(lock)} does, in {folder}. See "
                "dcgs site status, and end that process first, also if a service such as systemd started it."
            )
        os.ftruncate(lock, 0)
        os.write(lock, str(os.getpid()).encode())
        yield
    finally:
        os.close(lock)


def runs_in(folder: Path) -> str | None:
    """Return the number of the process that runs in the folder of a study, None if there is none."""
    with suppress(FileNotFoundError):
        lock = os.open(folder / _LOCK, os.O_RDWR)
        try:
            return None if flock(lock) else _holder(lock)
        finally:
            os.close(lock)
    return None


def _holder(lock: int) -> str:
    os.lseek(lock, 0, os.SEEK_SET)
    return os.read(lock, 20).decode(errors="replace") or "of unknown number"
