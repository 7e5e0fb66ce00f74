"""Channels between processes: they turn one sender's messages into buffers, and back. No I/O.

A message is one contiguous buffer: header, then payload. The receiver must offer a buffer before it knows the
size of the message, so both ends agree on a capacity. The part of a payload beyond the capacity follows in a
second buffer. The capacity then grows to the size of that payload, at both ends by this same rule.
"""

from __future__ import annotations

from typing import final

import numpy as np

from dcgs.points import Point, read_only, vdot
from dcgs.runtime.messages import check_finite
from dcgs.runtime.transport import Transfer
from dcgs.runtime.wire import SIZE, Array, Buffer, Header, Kind, check, read

# The first capacity of a channel, in bytes of payload.
_CAPACITY = 1 << 16
# Numbers that are copied at a time: they are still in the cache when their squares are summed.
_CHUNK = 1 << 14


@final
class SendChannel:
    """Packs the messages of one sender, an agent or a process, for all processes that receive them.

    The buffers that it returns must be sent before the next message is packed.
    """

    def __init__(self, sender: int, ranks: list[int], tag: int) -> None:
        self.sender = sender
        self._ranks = ranks
        self._tag = tag
        self._capacity = _CAPACITY
        self._buffer: Buffer = np.empty(SIZE + _CAPACITY, dtype=np.uint8)

    def pack(self, array: Array, kind: Kind, round: int) -> tuple[list[Transfer], list[Transfer]]:
        """Return what to send first, and what to send after that: the part beyond the capacity."""
        header = Header.of(array, kind, round, self.sender)
        end, border = SIZE + header.length, SIZE + self._capacity
        if end > len(self._buffer):
            self._buffer = np.empty(end, dtype=np.uint8)
        header.write(self._buffer)
        payload = self._buffer[SIZE:end].view(array.dtype)
        if kind is Kind.MESSAGE:
            check_finite(self.sender, array, _copy(array.reshape(-1), payload))
        else:
            payload[:] = array.reshape(-1)
        self._capacity = max(self._capacity, header.length)
        rest = self._buffer[border:end]
        return self._sends(self._buffer[: min(border, end)]), self._sends(rest) if rest.size else []

    def _sends(self, buffer: Buffer) -> list[Transfer]:
        return [Transfer(buffer, rank, self._tag) for rank in self._ranks]


@final
class RecvChannel:
    """Receives the messages of one sender. Each message gets a new buffer, which is not reused."""

    def __init__(self, sender: int, rank: int, tag: int, name: str) -> None:
        self.sender = sender
        self.name = name
        self.header = Header(Kind.END, np.dtype(np.float64), (0,), 0, sender)
        self._rank = rank
        self._tag = tag
        self._capacity = _CAPACITY
        self._buffer: Buffer = np.empty(0, dtype=np.uint8)

    def first(self) -> Transfer:
        """Return the request for the next message, up to the capacity."""
        self._buffer = np.empty(SIZE + self._capacity, dtype=np.uint8)
        return Transfer(self._buffer, self._rank, self._tag)

    def read_header(self) -> Header:
        """Read the header of the message that was received."""
        self.header = read(self._buffer, self.name)
        return self.header

    def rest(self, kind: Kind, round: int) -> list[Transfer]:
        """Check the header; return the request for what did not fit into the capacity, if there is any."""
        check(self.header, kind, round, self.sender, self.name)
        if self.header.length <= self._capacity:
            return []
        received, self._capacity = self._buffer, self.header.length
        self._buffer = np.empty(SIZE + self._capacity, dtype=np.uint8)
        self._buffer[: len(received)] = received
        return [Transfer(self._buffer[len(received) :], self._rank, self._tag)]

    def take(self) -> Array:
        """Return the array of the message that was received, read-only."""
        header = self.header
        payload: Array = self._buffer[SIZE : SIZE + header.length].view(header.dtype).reshape(header.shape)
        self._buffer = self._buffer[:0]
        return read_only(payload)


def _copy(source: Point, target: Point) -> float:
    """Copy the numbers, and return the sum of their squares."""
    squares = 0.0
    for start in range(0, source.size, _CHUNK):
        part = target[start : start + _CHUNK]
        part[:] = source[start : start + _CHUNK]
        squares += vdot(part, part)
    return squares
