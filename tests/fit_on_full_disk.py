"""``dcgs`` under mpiexec, where the disk of rank 1 is full from some file on, for the tests to start."""

from __future__ import annotations

import errno
import os
import sys
from typing import Any

from dcgs.cli import command

if __name__ == "__main__":
    left = int(sys.argv.pop(1))
    sync = os.fsync

    def full(handle: Any) -> None:
        """Sync so many files and folders, then no more."""
        global left
        left -= 1
        if left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(handle)

    if os.environ["PMI_RANK"] == "1":
        vars(os)["fsync"] = full
    command()
