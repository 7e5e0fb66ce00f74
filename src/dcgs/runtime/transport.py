"""The interface of a transport, which sends buffers between the processes of a run. MPI implements it.

A new transport implements :class:`Transport`; for failures ``HeartbeatTransport`` of ``heartbeat.py``; and
for asynchronous runs :class:`MailTransport`. Rounds, checks, collective operations and failure reports are
built on these three, once for all transports. A ``Runtime`` as in ``mpi.py`` makes the transport and runs the
programs over it. It also sets ``heartbeat.name``, which names a process by its agents in errors, and tells it
to the supervisor: ``name_by_agents`` in ``mpi_transport.py``. That is no part of :class:`Transport`, because
only the runtime calls it. ``tests/thread_transport.py`` and ``tests/thread_runtime.py`` are a small working
example.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol, TypeAlias

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


class MailTransport(Protocol):
    """What asynchronous runs need from a transport: buffers that are sent and received without waiting."""

    rank: int
    size: int

    def begin(self, peers: Sequence[int]) -> None:
        """Begin a run, in all processes, in which this one waits for these peers."""

    def send(self, buffer: Buffer, rank: int) -> None:
        """Start to send a buffer, which does not change any more."""

    def receive(self) -> tuple[Buffer, int] | None:
        """Return a buffer that has arrived, and its sender; None if there is none."""

    def is_sent(self) -> bool:
        """Return whether all buffers have been sent."""

    def check(self, is_idle: bool, senders: Collection[int] = ()) -> None:
        """Raise if another process has failed; if there is nothing to do, sleep for a moment.

        ``senders`` are the processes for whose messages this one waits.
        """


def hosted_by(rank: int, size: int, agents: int) -> range:
    """Return the agents that a process hosts: consecutive ones, as evenly distributed as possible.

    >>> [list(hosted_by(rank, 3, 7)) for rank in range(3)]
    [[0, 1], [2, 3], [4, 5, 6]]
    """
    return range(agents * rank // size, agents * (rank + 1) // size)
