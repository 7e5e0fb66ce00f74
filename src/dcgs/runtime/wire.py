"""The format of a message between processes: a header of fixed size, then the numbers. No I/O.

The header is small, typed and versioned. Nothing is ever pickled, so a received message can be wrong but
cannot run code.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]
Buffer: TypeAlias = NDArray[np.uint8]
"""Plain bytes, as a transport sends them."""

_MAGIC = b"dcgs"
VERSION = 3
_MAX_DIMENSIONS = 8
# Magic, version, kind, type, dimensions, sender, round, bytes of the payload, shape.
_LAYOUT = struct.Struct(f"<4sHBBBxxxiQQ{_MAX_DIMENSIONS}Q")
SIZE = _LAYOUT.size
"""Bytes of a header."""

_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype(np.float64), 2: np.dtype(np.int64), 3: np.dtype(np.uint8)}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class MessageError(RuntimeError):
    """Raised when a received message is not the expected one; names its sender."""


class Kind(IntEnum):
    """What a message is."""

    MESSAGE = 1
    """The message of an agent to its neighbors in one round."""
    END = 2
    """The agent has returned, and sends no more."""
    COLLECTIVE = 3
    """Part of a collective operation of all processes, such as a gather."""


@final
@dataclass(frozen=True)
class Header:
    """What a payload is, which agent (or process) sent it, and in which round."""

    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    round: int
    sender: int

    @property
    def length(self) -> int:
        """Bytes of the payload."""
        return math.prod(self.shape) * self.dtype.itemsize

    @staticmethod
    def of(array: Array, kind: Kind, round: int, sender: int) -> Header:
        """Return the header for an array."""
        return Header(kind, array.dtype, array.shape, round, sender)

    def write(self, buffer: Buffer) -> None:
        """Write the header to the first bytes of a buffer."""
        dimensions = len(self.shape)
        if dimensions > _MAX_DIMENSIONS:
            raise MessageError(
                f"a message must have at most {_MAX_DIMENSIONS} dimensions; agent {self.sender} sent "
                f"{dimensions}."
            )
        shape = (*self.shape, *(0,) * (_MAX_DIMENSIONS - dimensions))
        code = _CODES[self.dtype]
        numbers = (self.kind, code, dimensions, self.sender, self.round, self.length, *shape)
        _LAYOUT.pack_into(buffer.data, 0, _MAGIC, VERSION, *numbers)


def read(buffer: Buffer, sender: str) -> Header:
    """Return the header at the start of a buffer; ``sender`` names its sender in errors."""
    magic, version, kind, code, dimensions, number, round, length, *shape = _LAYOUT.unpack_from(buffer.data)
    if magic != _MAGIC:
        raise MessageError(
            f"a message must begin with {_MAGIC!r}; {sender} sent one that begins with {magic!r}."
        )
    if version != VERSION:
        raise MessageError(
            f"messages must be of version {VERSION}; {sender} sent one of version {version}. "
            "Install the same version of dcgs everywhere."
        )
    if kind not in list(Kind) or code not in _DTYPES or dimensions > _MAX_DIMENSIONS:
        raise MessageError(
            f"a message must have a known kind, type and number of dimensions; {sender} sent one of kind "
            f"{kind}, type {code} and {dimensions} dimensions. Install the same version of dcgs everywhere."
        )
    header = Header(Kind(kind), _DTYPES[code], tuple(shape[:dimensions]), round, number)
    if header.length != length:
        raise MessageError(
            f"the payload must have the size that its shape implies; {sender} announced {length} bytes "
            f"for shape {header.shape} of {header.dtype}."
        )
    return header


def check(header: Header, kind: Kind, round: int, number: int, sender: str) -> None:
    """Raise unless a message is the expected one: its kind, its round and the number of its sender."""
    expected = {"kind": kind.name, "round": round, "number": number}
    given = {"kind": header.kind.name, "round": header.round, "number": header.sender}
    for name, value in expected.items():
        if given[name] != value:
            raise MessageError(
                f"a message of {name} {value} was expected; {sender} sent one of {name} {given[name]}."
            )
    if kind is Kind.MESSAGE and header.dtype != np.float64:
        raise MessageError(f"a message must be an array of float64; {sender} sent one of {header.dtype}.")
