"""Signs of life and alarms as tiny messages of a communicator."""

from __future__ import annotations

import time
from typing import Any, final

_NAP = 1e-3


@final
class MessagePulse:
    """What a heart needs of MPI: tiny messages that nobody waits for."""

    def __init__(self, comm: Any, mpi: Any) -> None:
        self.rank: int = comm.rank
        self.size: int = comm.size
        self._comm = comm
        self._mpi = mpi
        self._sent: dict[tuple[int, int], Any] = {}

    def send(self, text: bytes, rank: int, tag: int) -> None:
        """Send, unless the last one of that tag has not yet left."""
        last = self._sent.get((rank, tag))
        if last is None or last[0].Test():
            data = bytearray(text)
            self._sent[rank, tag] = self._comm.Isend([data, self._mpi.BYTE], rank, tag), data

    def receive(self) -> tuple[bytes, int, int] | None:
        """Return a message that has come, who sent it and its tag, if there is one."""
        status = self._mpi.Status()
        any_ = self._mpi.ANY_SOURCE, self._mpi.ANY_TAG, status
        # One look may but bring in what has come, for the next one to see.
        if not (self._comm.Iprobe(*any_) or self._comm.Iprobe(*any_)):
            return None
        data = bytearray(status.Get_count(self._mpi.BYTE))
        self._comm.Recv([data, self._mpi.BYTE], status.source, status.tag)
        return bytes(data), status.source, status.tag

    def flush(self, seconds: float) -> None:
        """Wait a little for what was sent to leave."""
        end = time.monotonic() + seconds
        while time.monotonic() < end and not all(request.Test() for request, _ in self._sent.values()):
            time.sleep(_NAP)
