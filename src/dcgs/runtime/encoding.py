"""How an array is written into a message: all entries, or the nonzero ones, whichever is shorter. No I/O.

All forms are lossless, to the bit: an entry counts as zero if all its bits are zero, so that −0 is kept.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.points import is_finite, vdot

Array: TypeAlias = NDArray[Any]
Buffer: TypeAlias = NDArray[np.uint8]
"""Plain bytes, as a transport sends them."""

MAX_DIMENSIONS = 8
# Form, type, dimensions, number of entries that are stored; the sides follow.
_LAYOUT = struct.Struct("<BBBxxxxxQ")
_DTYPES: dict[int, np.dtype[Any]] = {
    1: np.dtype(np.float64),
    2: np.dtype(np.int64),
    3: np.dtype(np.uint8),
    4: np.dtype(np.uint64),
    5: np.dtype(np.float32),
}
FLOATS = (np.dtype(np.float64), np.dtype(np.float32))
"""The types of arrays whose entries must be finite."""
_CODES = {dtype: code for code, dtype in _DTYPES.items()}
# Arrays with fewer entries are always written in full.
_SMALL = 16
# Numbers that are read at a time: they are still in the cache when they are read again.
_CHUNK = 1 << 16
# Arrays with more stored entries are not checked on arrival: one more pass over the memory would take a third
# of the time of a round.
_MOST_CHECKED = 1 << 17
# Larger arrays are written in full: positions are 32-bit numbers.
_MOST_INDEXED = 1 << 32
# NumPy has no larger arrays, also not of no entries: the product of all positive sides counts.
_MOST_ENTRIES = (1 << 60) - 1


class Form(IntEnum):
    """How the entries of an array are stored."""

    DENSE = 1
    """All entries."""
    INDEXED = 2
    """The positions of nonzero entries, 4 bytes each, then these entries."""
    BITMAP = 3
    """One bit for each entry that says whether it is nonzero, then the nonzero entries."""


_FORMS = {int(form): form for form in Form}


class EncodingError(ValueError):
    """Raised when bytes are not an encoded array."""


class NotFiniteError(ValueError):
    """Raised when an array has an entry that is not finite; says which, and where."""


@final
class EncodedArray:
    """An array and the shortest form in which it can be written. ``nbytes`` are the bytes that it takes."""

    __slots__ = ("_count", "_flat", "_form", "_squares", "array", "nbytes")

    def __init__(self, array: Array) -> None:
        self.array = array
        self._flat: Array = np.ascontiguousarray(array).reshape(-1)
        self._form, self._count, self._squares = Form.DENSE, array.size, 0.0
        if array.dtype in FLOATS:
            nonzeros, self._squares = _scan(self._flat)
            self._form = _shortest(array.size, nonzeros, array.dtype.itemsize)
            self._count = array.size if self._form is Form.DENSE else nonzeros
        self.nbytes = _size(self._form, array.dtype, array.shape, self._count)

    @property
    def is_finite(self) -> bool:
        """Whether all entries are finite.

        A finite sum of squares proves it. A sum that overflows proves nothing.
        """
        return self.array.dtype not in FLOATS or math.isfinite(self._squares) or is_finite(self.array)

    def write(self, buffer: Buffer) -> None:
        """Write it to a buffer of ``nbytes`` bytes."""
        form, count, shape, dtype = self._form, self._count, self.array.shape, self.array.dtype
        start, end = _LAYOUT.size + 8 * len(shape), len(buffer) - _padded(count * dtype.itemsize)
        if form is not Form.DENSE or dtype.itemsize < 8:
            buffer[start:end][-8:] = 0  # buffers are used again: no byte of an older message in the padding
            buffer[-8:] = 0
        _LAYOUT.pack_into(buffer.data, 0, form, _CODES[dtype], len(shape), count)
        struct.pack_into(f"<{len(shape)}Q", buffer.data, _LAYOUT.size, *shape)
        values = buffer[end : end + count * dtype.itemsize].view(dtype)
        if form is Form.DENSE:
            values[:] = self._flat
            return
        nonzero = _bits(self._flat) != 0
        if form is Form.BITMAP:
            packed = np.packbits(nonzero)
            buffer[start : start + len(packed)] = packed
            values[:] = self._flat[nonzero]
        else:
            positions = np.flatnonzero(nonzero)
            buffer[start : start + 4 * count].view(np.uint32)[:] = positions
            values[:] = self._flat[positions]


def _bits(numbers: Array) -> Array:
    """Return the bits of floating-point numbers, as integers of the same size."""
    return numbers.view(np.int64 if numbers.itemsize == 8 else np.int32)


def _scan(flat: Array) -> tuple[int, float]:
    """Return the number of nonzero entries and the sum of all squares, from one pass over the memory."""
    count, squares = 0, 0.0
    for start in range(0, len(flat), _CHUNK):
        part = flat[start : start + _CHUNK]
        count += int(np.count_nonzero(_bits(part)))
        squares += vdot(part, part)
    return count, squares


def _shortest(n: int, nonzeros: int, itemsize: int) -> Form:
    """Return the form in which n numbers, of which some are not zero, take the fewest bytes."""
    if n < _SMALL or n > _MOST_INDEXED:
        return Form.DENSE
    sizes = {
        Form.DENSE: itemsize * n,
        Form.INDEXED: _padded(4 * nonzeros) + itemsize * nonzeros,
        Form.BITMAP: _padded((n + 7) // 8) + itemsize * nonzeros,
    }
    return min(sizes, key=lambda form: (sizes[form], form))


def where_not_finite(array: Array) -> str:
    """Return the first entry that is not finite, and its place."""
    where = tuple(np.argwhere(~np.isfinite(array))[0].tolist())
    return f"{array[where]} at {where}"


def read_all(buffer: Buffer, count: int, must_be_finite: bool = False) -> list[Array]:
    """Return the arrays that a buffer contains, one after another."""
    arrays = []
    for _ in range(count):
        array, size = _read(buffer, must_be_finite)
        arrays.append(array)
        buffer = buffer[size:]
    if len(buffer):
        raise EncodingError(f"{len(buffer)} bytes are left over")
    return arrays


def _read(buffer: Buffer, must_be_finite: bool) -> tuple[Array, int]:
    """Return the first array of a buffer, and the bytes that it takes."""
    if len(buffer) < _LAYOUT.size:
        raise EncodingError("it ends within the description of an array")
    form, code, dimensions, count = _LAYOUT.unpack_from(buffer.data)
    start = _LAYOUT.size + 8 * dimensions
    if form not in _FORMS or code not in _DTYPES or dimensions > MAX_DIMENSIONS or len(buffer) < start:
        raise EncodingError(f"an array of form {form}, type {code} and {dimensions} dimensions is not known")
    form, dtype = _FORMS[form], _DTYPES[code]
    shape = struct.unpack_from(f"<{dimensions}Q", buffer.data, _LAYOUT.size)
    n, size = math.prod(shape), _size(form, dtype, shape, count)
    largest = n or math.prod(side or 1 for side in shape)
    if len(buffer) < size or (count != n if form is Form.DENSE else count > n or dtype not in FLOATS):
        raise EncodingError(f"the size of an array of shape {shape} is not that of its {count} entries")
    if largest > _MOST_ENTRIES or (form is not Form.DENSE and n > _MOST_INDEXED):
        raise EncodingError(f"an array of shape {shape} cannot be in memory")
    end = size - _padded(count * dtype.itemsize)
    values = buffer[end : end + count * dtype.itemsize].view(dtype)
    entries = values if form is Form.DENSE else _filled(form, n, buffer[start:size], values)
    array = entries.reshape(shape)
    if must_be_finite and dtype in FLOATS and count <= _MOST_CHECKED and not _is_finite(values):
        raise NotFiniteError(where_not_finite(array))
    return array, size


def _is_finite(values: Array) -> bool:
    """Return whether all entries are finite: a finite sum of squares proves it, in one pass."""
    return math.isfinite(vdot(values, values)) or is_finite(values)


def _filled(form: Form, n: int, places: Buffer, values: Array) -> Array:
    """Return n entries, of which those at the given places have these values and the others are 0."""
    count = len(values)
    try:
        array = np.zeros(n, dtype=values.dtype)
    except MemoryError as error:
        raise EncodingError(f"an array of {n} entries cannot be in memory") from error
    if form is Form.BITMAP:
        nonzero = np.unpackbits(places[: (n + 7) // 8], count=n).view(np.bool_)
        if np.count_nonzero(nonzero) != count:
            raise EncodingError(f"the bits of an array do not mark {count} entries")
        array[nonzero] = values
    else:
        positions = places[: 4 * count].view(np.uint32)
        if count and (positions[-1] >= n or (positions[1:] <= positions[:-1]).any()):
            raise EncodingError("the positions of entries are not in increasing order within the array")
        array[positions] = values
    return array


def _size(form: Form, dtype: np.dtype[Any], shape: Sequence[int], count: int) -> int:
    """Return the bytes of an array in this form, its description included."""
    positions = 0
    if form is Form.INDEXED:
        positions = _padded(4 * count)
    elif form is Form.BITMAP:
        positions = _padded((math.prod(shape) + 7) // 8)
    return _LAYOUT.size + 8 * len(shape) + positions + _padded(count * dtype.itemsize)


def _padded(size: int) -> int:
    """Return the size rounded up to whole words of 8 bytes, so that all numbers are aligned."""
    return (size + 7) // 8 * 8
