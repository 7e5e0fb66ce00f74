"""One file of a checkpoint: plain values and arrays, sealed by a checksum; nothing is pickled.

    magic and format      8 bytes: "dcgs-ck" and the number of the format
    length of the head    8 bytes, little-endian
    head                  JSON in UTF-8: the values, with a number in place of each array, and for each array
                          its dtype, shape, strides and whether it may be written to
    arrays                the bytes of each in turn
    seal                  32 bytes: SHA-256 of all before

Arrays come back with the same bits in the same memory layout, for sums depend on both. One that is in the
memory twice is stored once, and is one array again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, final

import numpy as np
from numpy.typing import NDArray

from dcgs.memory import Memory

FORMAT = 1
_MAGIC = b"dcgs-ck" + bytes([FORMAT])
_LENGTH, _SEAL = 8, 32
# In the head an array is a dictionary with this one key, which no dictionary of a memory has.
_ARRAY = "@"
_KINDS = "fiu"


class DamagedError(ValueError):
    """A file that is no whole checkpoint."""


def write(path: Path, memory: dict[str, Memory]) -> None:
    """Write the memory to a file that appears whole or not at all, also if the machine goes down."""
    part = path.with_name(path.name + ".part")
    shelf = _Shelf()
    head = json.dumps({"memory": shelf.put(memory), "arrays": shelf.labels}).encode()
    seal = hashlib.sha256()
    try:
        with part.open("wb") as file:
            length = len(head).to_bytes(_LENGTH, "little")
            pieces: Iterable[bytes | memoryview] = (_MAGIC, length, head, *map(_bytes_of, shelf.arrays))
            for piece in pieces:
                seal.update(piece)
                file.write(piece)
            file.write(seal.digest())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        sync_folder(path.parent)
    except BaseException:
        with suppress(OSError):
            part.unlink(missing_ok=True)
        raise


def read(path: Path) -> dict[str, Memory]:
    """Return the memory of a file; raise a DamagedError where it is not whole."""
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        head = _checked_head(file, size)
        arrays = [_array(label, file) for label in head["arrays"]]
    memory = _taken(head["memory"], arrays)
    assert isinstance(memory, dict)
    return memory


def is_whole(path: Path) -> bool:
    """Return whether the file has the right seal."""
    try:
        with path.open("rb") as file:
            _checked_head(file, os.fstat(file.fileno()).st_size)
    except (DamagedError, FileNotFoundError):
        return False
    return True


def sync_folder(folder: Path) -> None:
    """See to it that new names in the folder outlast a power failure, where the system can."""
    if os.name == "posix":
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


@final
class _Shelf:
    """Takes the arrays out of a memory, each once."""

    def __init__(self) -> None:
        self.arrays: list[NDArray[Any]] = []
        self.labels: list[dict[str, Any]] = []
        self._places: dict[int, int] = {}

    def put(self, memory: Memory) -> Any:
        """Return the memory as JSON has it, with numbers in place of arrays."""
        match memory:
            case np.ndarray():
                return {_ARRAY: self._place(memory)}
            case dict():
                return {name: self.put(value) for name, value in memory.items()}
            case list():
                return [self.put(value) for value in memory]
            case _ if memory is None or type(memory) in (bool, int, float, str):
                return memory
        raise TypeError(f"a memory must hold plain values and arrays; got a {type(memory).__name__}.")

    def _place(self, array: NDArray[Any]) -> int:
        if id(array) not in self._places:
            if array.dtype.kind not in _KINDS:
                raise TypeError(f"arrays of a memory must hold numbers; got one of {array.dtype}.")
            self._places[id(array)] = len(self.arrays)
            self.arrays.append(array)
            self.labels.append(
                {
                    "dtype": array.dtype.str,
                    "shape": list(array.shape),
                    "strides": list(array.strides),
                    "order": "F" if array.flags.f_contiguous else "C",
                    "writeable": array.flags.writeable,
                }
            )
        return self._places[id(array)]


def _taken(value: Any, arrays: list[NDArray[Any]]) -> Memory:
    """Return what was put."""
    if isinstance(value, dict):
        if value.keys() == {_ARRAY}:
            return arrays[value[_ARRAY]]
        return {name: _taken(each, arrays) for name, each in value.items()}
    if isinstance(value, list):
        return [_taken(each, arrays) for each in value]
    plain: Memory = value
    return plain


def _bytes_of(array: NDArray[Any]) -> memoryview:
    """Return the entries, column by column where they lie so without holes, else row by row."""
    straight = array.T if array.flags.f_contiguous else np.ascontiguousarray(array)
    return straight.reshape(-1).view(np.uint8).data


def _array(label: dict[str, Any], file: BinaryIO) -> NDArray[Any]:
    """Return the next array of the file, laid out as it was."""
    dtype, shape, strides = np.dtype(label["dtype"]), tuple(label["shape"]), tuple(label["strides"])
    entries = np.empty(math.prod(shape), dtype)
    entries.view(np.uint8)[:] = np.frombuffer(file.read(entries.nbytes), np.uint8)
    array = entries.reshape(shape, order=label["order"])
    if array.strides != strides and array.size and min(strides) > 0:  # rows with holes between them
        reach = sum((side - 1) * stride for side, stride in zip(shape, strides, strict=True))
        holes = np.zeros(reach // dtype.itemsize + 1, dtype)
        array = np.lib.stride_tricks.as_strided(holes, shape, strides)
        array[...] = entries.reshape(shape, order=label["order"])
    if not label["writeable"]:
        array.flags.writeable = False
    return array


def _checked_head(file: BinaryIO, size: int) -> dict[str, Any]:
    """Return the head of a file with the right seal, and leave the file at its first array."""
    start = len(_MAGIC) + _LENGTH
    opening = file.read(start)
    if len(opening) < start or opening[:7] != _MAGIC[:7]:
        raise DamagedError("it does not begin as a checkpoint does")
    seal = hashlib.sha256(opening)
    for piece in _pieces(file, size - start - _SEAL):
        seal.update(piece)
    if file.read(_SEAL) != seal.digest():
        raise DamagedError("its checksum is wrong")
    if opening[7] != FORMAT:
        raise ValueError(
            f"a checkpoint must be of format {FORMAT}; {file.name!r} has {opening[7]}. "
            "Go on with the version of dcgs that wrote it."
        )
    file.seek(start)
    head: dict[str, Any] = json.loads(file.read(int.from_bytes(opening[len(_MAGIC) :], "little")))
    return head


def _pieces(file: BinaryIO, length: int) -> Iterator[bytes]:
    while length > 0:
        piece = file.read(min(length, 1 << 20))
        if not piece:
            return
        length -= len(piece)
        yield piece
