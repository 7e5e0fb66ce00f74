"""The messages of asynchronous runs over MPI."""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence
from typing import Any, final

import numpy as np

from dcgs.runtime.encoding import Buffer
from dcgs.runtime.mpi_transport import CHECK, FIRST_SLEEP, GROWTH, LONGEST_SLEEP, MPITransport

# Tags 0 and 1 are those of collective operations and of rounds.
_TAG = 2


@final
class MPIMailTransport:
    """The messages of an asynchronous run: none of its methods waits for another process."""

    def __init__(self, transport: MPITransport) -> None:
        self.rank, self.size = transport.rank, transport.size
        self._transport = transport
        self._sends: list[tuple[Any, Buffer]] = []
        self._receives: list[tuple[Any, Buffer, int]] = []
        self._sleep, self._next_check = FIRST_SLEEP, 0.0

    def begin(self, peers: Sequence[int]) -> None:
        self._transport.heartbeat.watch(peers)
        self._transport.allreduce_max(np.zeros(1))  # from here on all processes watch their neighbors

    def send(self, buffer: Buffer, rank: int) -> None:
        request = self._transport.comm.Isend([buffer, self._transport.mpi.BYTE], rank, _TAG)
        self._sends.append((request, buffer))

    def receive(self) -> tuple[Buffer, int] | None:
        comm, mpi = self._transport.comm, self._transport.mpi
        status = mpi.Status()
        while (message := comm.Improbe(mpi.ANY_SOURCE, _TAG, status)) is not None:
            buffer: Buffer = np.empty(status.Get_count(mpi.BYTE), dtype=np.uint8)
            self._receives.append((message.Irecv([buffer, mpi.BYTE]), buffer, status.source))
        for place, (request, buffer, rank) in enumerate(self._receives):
            if request.Test():
                del self._receives[place]
                self._sleep = FIRST_SLEEP
                return buffer, rank
        return None

    def is_sent(self) -> bool:
        self._sends = [each for each in self._sends if not each[0].Test()]
        return not self._sends

    def check(self, is_idle: bool, senders: Collection[int] = ()) -> None:
        now = time.monotonic()
        if now >= self._next_check:
            self._next_check = now + CHECK
            is_waiting = self.is_sent() and is_idle
            self._transport.pending = [request for request, _ in self._sends]
            self._transport.heartbeat.await_from(senders if is_waiting else ())
            self._transport.heartbeat.check(())
        if is_idle:
            time.sleep(self._sleep)
            self._sleep = min(self._sleep * GROWTH, LONGEST_SLEEP)
