"""The exchange of messages between neighbors: what is sent to which process, and what is expected. No I/O.

An exchange is a generator. It yields the transfers to do next, is resumed when they are done, and returns
the received messages. So it works with any transport, and tests need none.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import TypeAlias, TypeVar, final

import numpy as np

from dcgs.protocol import Inbox, Message
from dcgs.runtime.encoding import Buffer
from dcgs.runtime.messages import Packets, early_return
from dcgs.runtime.transport import Transfer, Transfers, Transport, hosted_by
from dcgs.runtime.wire import (
    ALL,
    BundleKind,
    Frame,
    Header,
    MessageError,
    Received,
    RecvChannel,
    SendChannel,
    bundle_size,
    write_bundle,
)

T = TypeVar("T")

# The tag of agents' messages; tag 0 is that of collective operations.
_TAG = 1

Exchange: TypeAlias = Generator[tuple[Transfers, Transfers], None, T]
"""Yields what must be sent and what must be received next."""


def carry_out(exchange: Exchange[T], transport: Transport, peers: Sequence[int]) -> T:
    """Carry out an exchange over a transport; return its result."""
    transport.heartbeat.begin_step()
    try:
        while True:
            transport.transfer(*next(exchange), peers)
    except StopIteration as end:
        result: T = end.value
        return result


@final
class NeighborExchange:
    """The messages between the agents that process ``rank`` of ``size`` hosts and all their neighbors.

    All messages for one process are sent in one bundle. ``hosted`` are the agents here, ``home`` has the
    process of every agent, and ``peers`` are the processes that host neighbors of the agents here.
    """

    def __init__(self, neighbors: Sequence[Sequence[int]], rank: int, size: int) -> None:
        agents = len(neighbors)
        self.hosted = list(hosted_by(rank, size, agents))
        self.home = {i: process for process in range(size) for i in hosted_by(process, size, agents)}
        self._neighbors = neighbors
        self._rank = rank
        self.peers = sorted({self.home[j] for i in self.hosted for j in neighbors[i]} - {rank})
        self._at = {
            p: {i: [j for j in neighbors[i] if self.home[j] == p] for i in self.hosted} for p in self.peers
        }
        self._here = [[j for j in near if self.home[j] == rank] for near in neighbors]
        self._sends = {peer: SendChannel(peer, _TAG) for peer in self.peers}
        self._receives = [RecvChannel(peer, _TAG, self.name(peer)) for peer in self.peers]
        self._buffers: list[Buffer] = []
        self._round = 0

    def round(self, packets: Mapping[int, Packets]) -> Exchange[dict[int, Inbox]]:
        """Exchange the messages of all agents; return every agent's inbox, neighbors in increasing order."""
        frames = {peer: self.frames(packets, peer) for peer in self.peers}
        received = yield from self._swap(frames, BundleKind.MESSAGE)
        for i, sent in packets.items():
            received |= {(i, j): packet.copy for j, packet in sent.items() if self.home[j] == self._rank}
        return {i: {j: received[j, i] for j in self._neighbors[i] if (j, i) in received} for i in self.hosted}

    def end(self) -> Exchange[None]:
        """Check that the neighbors of all agents here have returned as well."""
        yield from self._swap({peer: [] for peer in self.peers}, BundleKind.END)

    def frames(self, packets: Mapping[int, Packets], peer: int) -> list[Frame]:
        """Return the messages for a process; one that is for all neighbors there is sent once."""
        frames = []
        for i, sent in packets.items():
            there = [j for j in self._at[peer][i] if j in sent]
            distinct = {id(sent[j]): sent[j] for j in there}
            if len(distinct) == 1 and len(there) == len(self._at[peer][i]):
                (packet,) = distinct.values()
                frames.append(Frame(i, ALL, packet.parts, packet.is_tuple))
            else:
                frames += [Frame(i, j, sent[j].parts, sent[j].is_tuple) for j in there]
        return frames

    def _swap(
        self, frames: Mapping[int, list[Frame]], kind: BundleKind
    ) -> Exchange[dict[tuple[int, int], Message]]:
        """Exchange bundles with all peers; return the messages by sender and receiver."""
        self._round += 1
        sends: list[Transfer] = []
        later: list[Transfer] = []
        for peer, bundle in self._bundles(frames, kind).items():
            first, rest = self._sends[peer].split(bundle)
            sends += first
            later += rest
        yield sends, [receiver.first() for receiver in self._receives]
        rests: list[Transfer] = []
        for receiver in self._receives:
            self._check_end(receiver, kind)
            rests += receiver.rest(kind, self._round)
        if later or rests:
            yield later, rests
        messages: dict[tuple[int, int], Message] = {}
        for receiver in self._receives:
            messages |= self.delivered(receiver.take(), receiver.rank)
        return messages

    def _bundles(self, frames: Mapping[int, list[Frame]], kind: BundleKind) -> dict[int, Buffer]:
        """Return the bundle for each process; processes that get the same messages share a buffer."""
        made: dict[tuple[tuple[int, int, int], ...], Buffer] = {}
        bundles = {}
        for peer, to_peer in frames.items():
            key = tuple((frame.sender, frame.receiver, id(frame.parts)) for frame in to_peer)
            if key not in made:
                made[key] = self._buffer(len(made), bundle_size(to_peer))
                write_bundle(to_peer, Header(kind, self._rank, self._round), made[key])
            bundles[peer] = made[key]
        return bundles

    def _buffer(self, place: int, size: int) -> Buffer:
        """Return a buffer; those of the last round are used again, as all of it was sent."""
        if place == len(self._buffers):
            self._buffers.append(np.empty(size, dtype=np.uint8))
        elif len(self._buffers[place]) < size:
            self._buffers[place] = np.empty(size, dtype=np.uint8)
        return self._buffers[place][:size]

    def delivered(self, received: Sequence[Received], rank: int) -> dict[tuple[int, int], Message]:
        """Return the messages of one process by sender and receiver; raise unless they are of neighbors."""
        delivered: dict[tuple[int, int], Message] = {}
        for item in received:
            i = item.sender
            to = [] if self.home.get(i) != rank else self._here[i]
            if item.receiver != ALL:
                to = [j for j in to if j == item.receiver]
            if not to:
                raise MessageError(
                    f"messages must be between neighbors; {self.name(rank)} sent one from agent {i} to agent "
                    f"{item.receiver}."
                )
            twice = [j for j in to if (i, j) in delivered]
            if twice:
                raise MessageError(
                    f"an agent must send a neighbor one message in a round; {self.name(rank)} sent two from "
                    f"agent {i} to agents {twice}."
                )
            delivered |= {(i, j): item.message for j in to}
        return delivered

    def _check_end(self, receiver: RecvChannel, kind: BundleKind) -> None:
        """Raise if the agents of a peer have returned while those here still send, or the other way round."""
        theirs = receiver.read_header().kind
        if {theirs, kind} == {BundleKind.MESSAGE, BundleKind.END}:
            there = [j for j, home in self.home.items() if home == receiver.rank]
            remote = [j for j in there if any(j in self._neighbors[i] for i in self.hosted)]
            here = [i for i in self.hosted if any(j in self._neighbors[i] for j in remote)]
            raise early_return(*((remote, here) if theirs is BundleKind.END else (here, remote)))

    def name(self, peer: int) -> str:
        """Return the name of a process in errors: that of its agent, if it hosts one."""
        agents = [j for j, home in self.home.items() if home == peer]
        return f"agent {agents[0]} (rank {peer})" if len(agents) == 1 else f"rank {peer}"
