"""The header of a message between processes: small, typed, versioned; nothing here sends anything.

A message is a header of fixed size and a payload of plain numbers. Nothing is ever pickled, so what comes in
can be wrong but cannot run.
"""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias, final

import numpy as np

from dcgs.runtime.base import Array

Buffer: TypeAlias = bytearray | memoryview

_MAGIC = b"dcgs"
VERSION = 2
_MOST_SIDES = 8
# Magic, version, kind, type, dimensions, sender, length, sides; last what changes as a rule: the round, and
# where the payload lies if it does not come along.
_LAYOUT = struct.Struct(f"<4sHBBBxxxiQ{_MOST_SIDES}Q")
_CHANGING = struct.Struct("<Qii")
SIZE = _LAYOUT.size + _CHANGING.size
"""Bytes of a header."""

_DTYPES: dict[int, np.dtype[Any]] = {1: np.dtype(np.float64), 2: np.dtype(np.int64), 3: np.dtype(np.uint8)}
_CODES = {dtype: code for code, dtype in _DTYPES.items()}


class MessageError(RuntimeError):
    """Raised when a message is not what was due; names its sender."""


class Kind(IntEnum):
    """What a message is."""

    MESSAGE = 1
    """What an agent tells its neighbors in a round."""
    END = 2
    """That an agent has returned, and says no more."""
    PART = 3
    """What the front door asked for; not of the agents' conversation."""


@final
@dataclass(frozen=True)
class Header:
    """What a payload is, who sent it, and in which round; and where it lies, if in memory that is shared."""

    kind: Kind
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    round: int
    sender: int
    folio: int = -1
    sheet: int = -1

    @property
    def length(self) -> int:
        """Bytes of the payload."""
        return math.prod(self.shape) * self.dtype.itemsize


def write(
    header: Buffer, kind: Kind, array: Array, round: int, sender: int, folio: int = -1, sheet: int = -1
) -> None:
    """Write the header of an array that is sent, or that lies on a sheet of a folio."""
    if array.ndim > _MOST_SIDES:
        raise MessageError(
            f"a message must have at most {_MOST_SIDES} dimensions; agent {sender} sent {array.ndim}."
        )
    sides = (*array.shape, *(0,) * (_MOST_SIDES - array.ndim))
    code = _CODES[array.dtype]
    _LAYOUT.pack_into(header, 0, _MAGIC, VERSION, kind, code, array.ndim, sender, array.nbytes, *sides)
    rewrite(header, round, folio, sheet)


def rewrite(header: Buffer, round: int, folio: int, sheet: int) -> None:
    """Write what has changed in the header of an array like the one before."""
    _CHANGING.pack_into(header, _LAYOUT.size, round, folio, sheet)


def read(header: Buffer, who: str) -> Header:
    """Return what a header says; ``who`` is its sender in words."""
    magic, version, kind, code, ndim, sender, length, *sides = _LAYOUT.unpack_from(header)
    round_, folio, sheet = _CHANGING.unpack_from(header, _LAYOUT.size)
    if magic != _MAGIC:
        raise MessageError(
            f"a message must begin with {_MAGIC!r}; {who} sent one that begins with {magic!r}."
        )
    if version != VERSION:
        raise MessageError(
            f"messages must be of version {VERSION}; {who} sent one of version {version}. "
            "Install the same version of dcgs everywhere."
        )
    if kind not in list(Kind) or code not in _DTYPES or ndim > _MOST_SIDES:
        raise MessageError(f"{who} sent a message of unknown kind {kind}, type {code} or dimension {ndim}.")
    if (folio, sheet) != (-1, -1) and min(folio, sheet) < 0:
        raise MessageError(f"{who} sent a message that lies on no sheet: {sheet} of folio {folio}.")
    told = Header(Kind(kind), _DTYPES[code], tuple(sides[:ndim]), round_, sender, folio, sheet)
    if told.length != length:
        raise MessageError(
            f"the payload must have the size that its shape says; {who} announced {length} bytes "
            f"for shape {told.shape} of {told.dtype}."
        )
    return told


def if_next(header: memoryview, before: bytes, round: int) -> tuple[int, int] | None:
    """Return folio and sheet of a header that is like one that was read before, but of this round."""
    told, folio, sheet = _CHANGING.unpack_from(header, _LAYOUT.size)
    if told != round or header[: _LAYOUT.size] != before:
        return None
    return folio, sheet


def lasting(header: memoryview) -> bytes:
    """Return what of a header does not change from round to round, as a rule."""
    return bytes(header[: _LAYOUT.size])


def check(header: Header, kind: Kind, round: int, sender: int, who: str) -> None:
    """Raise unless a message is the one that is due."""
    if header.kind is not kind:
        raise MessageError(
            f"a message of kind {kind.name} was due; {who} sent one of kind {header.kind.name}."
        )
    if header.round != round:
        raise MessageError(f"a message of round {round} was due; {who} sent one of round {header.round}.")
    if header.sender != sender:
        raise MessageError(f"a message of number {sender} was due; {who} sent one of {header.sender}.")
    if kind is Kind.MESSAGE and header.dtype != np.float64:
        raise MessageError(f"a message must be an array of float64; {who} sent one of {header.dtype}.")
