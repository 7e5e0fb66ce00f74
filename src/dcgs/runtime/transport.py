"""The interface of a transport, which sends buffers between the processes of a run. MPI implements it.

A new transport implements :class:`Transport` and, for failures, :class:`HeartbeatTransport`. Rounds, checks,
collective operations and failure reports are built on these two, once for all transports.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcgs.runtime.encoding import Buffer
from dcgs.runtime.heartbeat import Heartbeat


class Transfer(NamedTuple):
    """A buffer to be sent to a process, or to receive a message from it, which may be shorter."""

    buffer: Buffer
    rank: int
    tag: int


Transfers: TypeAlias = Sequence[Transfer]


class Transport(ABC):
    """Sends buffers between processes 0, 1, …, size − 1, of which this one is ``rank``.

    Messages between two processes with the same tag arrive in the order in which they were sent. All methods
    raise :class:`RunAbortedError` instead of waiting for a process that has failed. ``failure`` is the error
    of this process that was reported, if there was one.
    """

    rank: int
    size: int
    heartbeat: Heartbeat
    failure: BaseException | None = None

    @abstractmethod
    def transfer(self, sends: Transfers, receives: Transfers, peers: Sequence[int] = ()) -> None:
        """Do all these transfers, and return when they are complete.

        ``peers`` are the processes that this one waits for, by default all that it watches.
        """

    @abstractmethod
    def broadcast(self, buffer: Buffer) -> None:
        """Copy the buffer of process 0 to the buffers of all, which have the same size."""

    @abstractmethod
    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the elementwise maximum over all processes."""

    @abstractmethod
    def abandon(self) -> None:
        """Cancel all pending transfers after a failure."""


def hosted_by(rank: int, size: int, agents: int) -> range:
    """Return the agents that a process hosts: consecutive ones, as evenly distributed as possible.

    >>> [list(hosted_by(rank, 3, 7)) for rank in range(3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    return range(agents * rank // size, agents * (rank + 1) // size)
