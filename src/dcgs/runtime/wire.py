"""The format of what a process sends to another in one round: a header, then the messages. No I/O.

A bundle holds all messages between two processes. It has a header of fixed size, small, typed and versioned.
Each message in it has a short header of its own, with its sender and its receiver. Nothing is ever pickled,
so a received bundle can be wrong but cannot run code. The header of a bundle has a checksum: with a wrong
length the receiver would wait for bytes that never come.

Channels split bundles into buffers, and put them together again. The receiver must offer a buffer before it
knows the size of a bundle, so both ends agree on a capacity. The part of a bundle beyond the capacity follows
in a second buffer. The capacity then grows to the size of that bundle, at both ends by this same rule.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, final
from zlib import crc32

import numpy as np

from dcgs.points import read_only
from dcgs.protocol import Message
from dcgs.runtime.encoding import Buffer, EncodedArray, EncodingError, NotFiniteError, read_all
from dcgs.runtime.transport import Transfer

MAGIC = b"dcgs"
"""The first bytes of a bundle."""
VERSION = 5
# Magic, version, kind, number of messages, sending process, number of the round, checksum, bytes that follow.
_HEADER = struct.Struct("<4sHBxIiIIQ")
_CHECKSUM_START, _CHECKSUM_END = 20, 24
HEADER = _HEADER.size
"""Bytes of the header of a bundle."""
# Sender, receiver, number of arrays, whether they are a tuple, bytes that follow.
_FRAME = struct.Struct("<iiHBxxxxxQ")
FRAME = _FRAME.size
"""Bytes of the header of one message."""

ALL = -1
"""The receiver of a message for all neighbors of the sender."""
# The first capacity of a channel, in bytes after the header.
_CAPACITY = 1 << 16


class MessageError(RuntimeError):
    """Raised when what was received is not what was expected; names its sender."""


class BundleKind(IntEnum):
    """What a bundle contains."""

    MESSAGE = 1
    """The messages of agents to their neighbors in one round."""
    END = 2
    """Nothing: the agents have returned, and send no more."""
    COLLECTIVE = 3
    """Part of a collective operation of all processes, such as a gather."""
    LAST = 4
    """Nothing: of an asynchronous run all messages have been sent; the round is their number."""


_KINDS = {int(kind): kind for kind in BundleKind}


@final
class Header(NamedTuple):
    """What a bundle is, which process sent it, and in which round."""

    kind: BundleKind
    rank: int
    round: int
    messages: int = 0
    length: int = 0

    def write(self, buffer: Buffer) -> None:
        """Write the header to the first bytes of a buffer."""
        numbers = (self.kind, self.messages, self.rank, self.round, 0, self.length)
        _HEADER.pack_into(buffer.data, 0, MAGIC, VERSION, *numbers)
        struct.pack_into("<I", buffer.data, _CHECKSUM_START, _checksum(buffer))


@final
@dataclass(frozen=True, eq=False)
class Frame:
    """One message in a bundle: its sender, its receiver (or ALL), and its arrays."""

    sender: int
    receiver: int
    parts: Sequence[EncodedArray]
    is_tuple: bool = False

    @property
    def nbytes(self) -> int:
        """The bytes that it takes, its header included."""
        return FRAME + sum(part.nbytes for part in self.parts)

    def write(self, buffer: Buffer) -> None:
        """Write it to a buffer of ``nbytes`` bytes."""
        numbers = (self.sender, self.receiver, len(self.parts), self.is_tuple, len(buffer) - FRAME)
        _FRAME.pack_into(buffer.data, 0, *numbers)
        start = FRAME
        for part in self.parts:
            end = start + part.nbytes
            part.write(buffer[start:end])
            start = end


@final
@dataclass(frozen=True, eq=False)
class Received:
    """A message that was received; its arrays are read-only."""

    sender: int
    receiver: int
    message: Message


def bundle_size(frames: Sequence[Frame]) -> int:
    """Return the bytes of a bundle of these messages."""
    return HEADER + sum(frame.nbytes for frame in frames)


def write_bundle(frames: Sequence[Frame], header: Header, buffer: Buffer) -> None:
    """Write messages to a buffer of their :func:`bundle_size`; the header gets their number and size."""
    header._replace(messages=len(frames), length=len(buffer) - HEADER).write(buffer)
    start = HEADER
    for frame in frames:
        end = start + frame.nbytes
        frame.write(buffer[start:end])
        start = end


def bundle(frames: Sequence[Frame], header: Header) -> Buffer:
    """Return these messages as a bundle in a buffer of its own."""
    buffer: Buffer = np.empty(bundle_size(frames), dtype=np.uint8)
    write_bundle(frames, header, buffer)
    return buffer


def read_header(buffer: Buffer, sender: str) -> Header:
    """Return the header at the start of a buffer; ``sender`` names the sending process in errors."""
    if len(buffer) < HEADER:
        raise MessageError(
            f"a message must have at least {HEADER} bytes; {sender} sent one of {len(buffer)} bytes."
        )
    magic, version, kind, count, rank, round, checksum, length = _HEADER.unpack_from(buffer.data)
    if magic != MAGIC:
        raise MessageError(
            f"a message must begin with {MAGIC!r}; {sender} sent one that begins with {magic!r}."
        )
    if version != VERSION:
        raise MessageError(
            f"messages must be of version {VERSION}; {sender} sent one of version {version}. "
            "Install the same version of dcgs everywhere."
        )
    if checksum != _checksum(buffer):
        raise MessageError(
            f"the header of a message must match its checksum; that of {sender} does not: it was changed on "
            "its way. See whether memory and network are in order, and start again."
        )
    if kind not in _KINDS:
        raise MessageError(
            f"a message must be of a known kind; {sender} sent one of kind {kind}. "
            "Install the same version of dcgs everywhere."
        )
    return Header(_KINDS[kind], rank, round, count, length)


def _checksum(buffer: Buffer) -> int:
    """Return the checksum of a header: of all its bytes but those of the checksum itself."""
    return crc32(buffer.data[_CHECKSUM_END:HEADER], crc32(buffer.data[:_CHECKSUM_START]))


def check_header(header: Header, kind: BundleKind, rank: int, round: int, sender: str) -> None:
    """Raise unless a bundle is the expected one: its kind, its round and the number of its sender."""
    if (header.kind, header.round, header.rank) == (kind, round, rank):
        return
    expected = {"kind": kind.name, "round": round, "process": rank}
    given = {"kind": header.kind.name, "round": header.round, "process": header.rank}
    for name, value in expected.items():
        if given[name] != value:
            raise MessageError(
                f"a message of {name} {value} was expected; {sender} sent one of {name} {given[name]}."
            )


def read_messages(buffer: Buffer, header: Header, sender: str) -> list[Received]:
    """Return the messages of a bundle, given the bytes after its header."""
    messages, start = [], 0
    try:
        for _ in range(header.messages):
            if start + FRAME > len(buffer):
                raise EncodingError("it ends within the header of a message")
            i, j, parts, is_tuple, length = _FRAME.unpack_from(buffer.data, start)
            start += FRAME + length
            # Collective operations may gather losses that are not finite; agents must not send such numbers.
            is_checked = header.kind is BundleKind.MESSAGE
            read = read_all(buffer[start - length : start], parts, is_checked)
            arrays = [read_only(array) for array in read]
            if not (is_tuple or len(arrays) == 1):
                raise EncodingError(f"a message of {len(arrays)} arrays is not a tuple")
            messages.append(Received(i, j, tuple(arrays) if is_tuple else arrays[0]))
        if start != len(buffer):
            raise EncodingError(f"{len(buffer) - start} bytes are left over")
    except NotFiniteError as error:
        raise MessageError(f"a message must be finite; agent {i} sent {error}.") from error
    except EncodingError as error:
        raise MessageError(
            f"messages must be encoded as by dcgs {VERSION}; what {sender} sent is not: {error}. "
            "Install the same version of dcgs everywhere."
        ) from error
    return messages


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
        self.header = Header(BundleKind.END, rank, 0)
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

    def rest(self, kind: BundleKind, round: int) -> list[Transfer]:
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
