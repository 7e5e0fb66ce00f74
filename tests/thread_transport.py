"""A transport between threads, for tests of what runs over several processes."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.runtime.encoding import Buffer
from dcgs.runtime.heartbeat import Heartbeat
from dcgs.runtime.transport import Transfers, Transport


class NoBeats:
    """A heartbeat that nobody needs."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size

    def send(self, text: bytes, rank: int, tag: int) -> None:
        pass

    def receive(self) -> None:
        return None

    def flush(self, seconds: float) -> None:
        pass


@final
class Threads(Transport):
    """A transport between threads: another one beside MPI."""

    def __init__(self, rank: int, network: Network) -> None:
        self.rank, self.size = rank, network.size
        self.heartbeat = Heartbeat(NoBeats(rank, network.size), timeout=1e6)
        self._network = network

    def transfer(self, sends: Transfers, receives: Transfers, peers: Sequence[int] = ()) -> None:
        for buffer, rank, tag in sends:
            self._network.queue(self.rank, rank, tag).put(buffer.tobytes())
        for buffer, rank, tag in receives:
            data = np.frombuffer(self._network.queue(rank, self.rank, tag).get(timeout=240.0), np.uint8)
            buffer[: len(data)] = data

    def _all(self, value: Any) -> list[Any]:
        self._network.values[self.rank] = value
        self._network.barrier.wait()
        values = list(self._network.values)
        self._network.barrier.wait()
        return values

    def broadcast(self, buffer: Buffer) -> None:
        buffer[:] = self._all(buffer.copy())[0]

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(np.max(self._all(values), axis=0))

    def abandon(self) -> None:
        pass


class Network:
    def __init__(self, size: int) -> None:
        self.size = size
        self.barrier = threading.Barrier(size, timeout=240.0)
        self.values: list[Any] = [None] * size
        self._queues: dict[tuple[int, int, int], SimpleQueue[bytes]] = {}
        self._lock = threading.Lock()

    def queue(self, *ends: int) -> SimpleQueue[bytes]:
        with self._lock:
            return self._queues.setdefault((ends[0], ends[1], ends[2]), SimpleQueue())

    def run(self, main: Callable[[Threads], Any]) -> list[Any]:
        """Run main in every process, each a thread; return what each returns."""
        with ThreadPoolExecutor(self.size) as pool:
            return list(pool.map(main, [Threads(rank, self) for rank in range(self.size)]))
