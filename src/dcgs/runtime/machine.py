"""The processes of one machine that can share memory."""

from __future__ import annotations

import os
from typing import Any

import numpy as np


def sharers(near: Any, rank: int) -> dict[int, int]:
    """Return the system's number of each other process of this machine, by rank; none if they cannot share.

    ``near`` is the communicator of them all, each of which calls this, and ``rank`` this one's number in
    another. They share if they may open each other's files, which on Linux those of one user may.
    """
    card = np.full(4, -1, dtype=np.int64)
    able, token = near.size > 1 and hasattr(os, "memfd_create"), -1
    try:
        if able:
            token = os.memfd_create("dcgs")
            os.write(token, secret := os.urandom(8))
            card[:] = rank, os.getpid(), token, int.from_bytes(secret, "little", signed=True)
    except OSError:  # forbidden here, say; the others must hear of it
        able = False
    cards = np.empty((near.size, card.size), dtype=np.int64)
    near.Allgather(card, cards)
    met = cards.tolist()
    mine = np.array([able and all(_is_open(*told) for _, *told in met)])
    each = np.empty(near.size, dtype=np.bool_)
    near.Allgather(mine, each)
    if token >= 0:
        os.close(token)
    return {other: pid for other, pid, *_ in met if other != rank} if each.all() else {}


def _is_open(pid: int, fd: int, secret: int) -> bool:
    """Return whether a file can be read and written that a process made, and left this in."""
    try:
        with open(f"/proc/{pid}/fd/{fd}", "r+b", buffering=0) as file:
            return os.pread(file.fileno(), 8, 0) == secret.to_bytes(8, "little", signed=True)
    except OSError:  # or whatever else it is, a pipe, say: numbers may be those of another container
        return False
