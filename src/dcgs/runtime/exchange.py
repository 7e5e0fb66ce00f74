"""The exchange of messages between neighbors: what is sent to which process, and what is expected. No I/O.

An exchange is a generator. It yields the transfers to do next, is resumed when they are done, and returns
the received messages. So it works with any transport, and tests need none.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from typing import TypeAlias, TypeVar, final

import numpy as np

from dcgs.points import Point
from dcgs.protocol import Inbox
from dcgs.runtime.channels import RecvChannel, SendChannel
from dcgs.runtime.messages import checked_copy, early_return
from dcgs.runtime.transport import Transfer, Transfers, Transport, hosted_by
from dcgs.runtime.wire import Kind

T = TypeVar("T")


Exchange: TypeAlias = Generator[tuple[Transfers, Transfers], None, T]
"""Yields what must be sent and what must be received next."""


def carry_out(exchange: Exchange[T], transport: Transport, peers: Sequence[int]) -> T:
    """Carry out an exchange over a transport; return its result."""
    try:
        while True:
            transport.transfer(*next(exchange), peers)
    except StopIteration as end:
        result: T = end.value
        return result


@final
class NeighborExchange:
    """The messages between the agents that process ``rank`` of ``size`` hosts and all their neighbors.

    A message is sent once to each process that hosts neighbors of its sender. ``peers`` are the processes
    that host neighbors of the agents here.
    """

    def __init__(self, neighbors: Sequence[Sequence[int]], rank: int, size: int) -> None:
        agents = len(neighbors)
        home = {i: process for process in range(size) for i in hosted_by(process, size, agents)}
        self.hosted = list(hosted_by(rank, size, agents))
        self._neighbors = neighbors
        remote = sorted({j for i in self.hosted for j in neighbors[i] if home[j] != rank})
        self.peers = sorted({home[j] for j in remote})
        targets = {i: sorted({home[j] for j in neighbors[i]} - {rank}) for i in self.hosted}
        # Tag 0 is that of collective operations.
        self._sends = [SendChannel(i, ranks, i + 1) for i, ranks in targets.items() if ranks]
        self._receives = [RecvChannel(j, home[j], j + 1, f"agent {j} (rank {home[j]})") for j in remote]
        # Agents with neighbors in this process; and without neighbors, for the check of their messages.
        self._local = [i for i in self.hosted if not targets[i] or any(home[j] == rank for j in neighbors[i])]
        self._round = 0

    def round(self, messages: Mapping[int, Point]) -> Exchange[dict[int, Inbox]]:
        """Exchange one message of each agent; return every agent's inbox, neighbors in increasing order."""
        received = yield from self._swap(messages.__getitem__, Kind.MESSAGE)
        received |= {i: checked_copy(i, messages[i]) for i in self._local}
        return {i: {j: received[j] for j in self._neighbors[i]} for i in self.hosted}

    def end(self) -> Exchange[None]:
        """Check that the neighbors of all agents here have returned as well."""
        yield from self._swap(lambda _: np.empty(0), Kind.END)

    def _swap(self, message_of: Callable[[int], Point], kind: Kind) -> Exchange[dict[int, Point]]:
        self._round += 1
        sends: list[Transfer] = []
        later: list[Transfer] = []
        for sender in self._sends:
            first, rest = sender.pack(message_of(sender.sender), kind, self._round)
            sends += first
            later += rest
        yield sends, [receiver.first() for receiver in self._receives]
        rests: list[Transfer] = []
        for receiver in self._receives:
            self._check_end(receiver, kind)
            rests += receiver.rest(kind, self._round)
        if later or rests:
            yield later, rests
        return {receiver.sender: receiver.take() for receiver in self._receives}

    def _check_end(self, receiver: RecvChannel, kind: Kind) -> None:
        """Raise if the sender has returned while its neighbors here still send, or the other way round."""
        j, theirs = receiver.sender, receiver.read_header().kind
        if {theirs, kind} == {Kind.MESSAGE, Kind.END}:
            here = [i for i in self.hosted if j in self._neighbors[i]]
            raise early_return(*(([j], here) if theirs is Kind.END else (here, [j])))
