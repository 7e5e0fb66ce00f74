"""Channels between two processes: they split bundles into buffers, and put them together again. No I/O.

The receiver must offer a buffer before it knows the size of a bundle, so both ends agree on a capacity. The
part of a bundle beyond the capacity follows in a second buffer. The capacity then grows to the size of that
bundle, at both ends by this same rule.
"""

from __future__ import annotations

from typing import final

import numpy as np

from dcgs.runtime.encoding import Buffer
from dcgs.runtime.transport import Transfer
from dcgs.runtime.wire import (
    HEADER,
    Header,
    Kind,
    MessageError,
    Received,
    check_header,
    read_header,
    read_messages,
)

# The first capacity of a channel, in bytes after the header.
_CAPACITY = 1 << 16


@final
class SendChannel:
    """Splits the bundles for one process."""

    def __init__(self, rank: int, tag: int) -> None:
        self._rank = rank
        self._tag = tag
        self._capacity = _CAPACITY

    def split(self, bundle: Buffer) -> tuple[list[Transfer], list[Transfer]]:
        """Return what to send first, and what to send after that: the part beyond the capacity."""
        border = HEADER + self._capacity
        self._capacity = max(self._capacity, len(bundle) - HEADER)
        later = [Transfer(bundle[border:], self._rank, self._tag)] if len(bundle) > border else []
        return [Transfer(bundle[:border], self._rank, self._tag)], later


@final
class RecvChannel:
    """Receives the bundles of one process. Each bundle gets a new buffer, which is not reused."""

    def __init__(self, rank: int, tag: int, name: str) -> None:
        self.rank = rank
        self.name = name
        self.header = Header(Kind.END, rank, 0)
        self._tag = tag
        self._capacity = _CAPACITY
        self._buffer: Buffer = np.empty(0, dtype=np.uint8)

    def first(self) -> Transfer:
        """Return the request for the next bundle, up to the capacity."""
        self._buffer = np.empty(HEADER + self._capacity, dtype=np.uint8)
        return Transfer(self._buffer, self.rank, self._tag)

    def read_header(self) -> Header:
        """Read the header of the bundle that was received."""
        self.header = read_header(self._buffer, self.name)
        return self.header

    def rest(self, kind: Kind, round: int) -> list[Transfer]:
        """Check the header; return the request for what did not fit into the capacity, if there is any."""
        check_header(self.header, kind, self.rank, round, self.name)
        if self.header.length <= self._capacity:
            return []
        received, self._capacity = self._buffer, self.header.length
        try:
            self._buffer = np.empty(HEADER + self._capacity, dtype=np.uint8)
        except (MemoryError, ValueError) as error:
            raise MessageError(
                f"a message must fit into memory; {self.name} sent one of {self._capacity} bytes."
            ) from error
        self._buffer[: len(received)] = received
        return [Transfer(self._buffer[len(received) :], self.rank, self._tag)]

    def take(self) -> list[Received]:
        """Return the messages that were received."""
        content = self._buffer[HEADER : HEADER + self.header.length]
        self._buffer = self._buffer[:0]
        return read_messages(content, self.header, self.name)
