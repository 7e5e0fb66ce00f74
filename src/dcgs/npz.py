"""Read NumPy's .npz files: sizes are checked before memory is taken, and nothing is unpickled."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar, final

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")

_SUFFIX = ".npy"
_LONGEST_HEADER = 10_000


@final
@dataclass(frozen=True)
class ArrayHeader:
    """What the file says of an array: its shape, its type, and its bytes in memory."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @property
    def nbytes(self) -> int:
        """Bytes of the array in memory."""
        return math.prod(self.shape) * self.dtype.itemsize


@final
class NpzReader:
    """The arrays of an open .npz file. ``headers`` has all of them by name; each array is read on demand.

    A damaged file can raise almost anything: errors of zip, of NumPy, EOFError, KeyError.
    """

    def __init__(self, file: IO[bytes]) -> None:
        if not zipfile.is_zipfile(file):
            raise ValueError("it is not a zip archive")
        self._archive = zipfile.ZipFile(file)
        self.names = [name.removesuffix(_SUFFIX) for name in self._archive.namelist()]

    def header(self, name: str) -> ArrayHeader:
        """Return what the file says of an array, if its sizes agree and it fits into the memory."""
        info = self._archive.getinfo(name + _SUFFIX)
        with self._archive.open(info) as stream:
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream, max_header_size=_LONGEST_HEADER)
            header = ArrayHeader(shape, dtype)
            if dtype.hasobject:
                raise ValueError("object arrays are never unpickled")
            if header.nbytes != info.file_size - stream.tell():
                raise ValueError(f"the size of {name!r} is not that of shape {shape}")
        if header.nbytes > memory_size():
            raise ValueError(f"{name!r} needs {header.nbytes:,} bytes, more than the memory of this machine")
        return header

    def array(self, name: str) -> NDArray[Any]:
        """Return one array."""
        self.header(name)
        with self._archive.open(name + _SUFFIX) as stream:
            array: NDArray[Any] = np.lib.format.read_array(stream, allow_pickle=False)
        return array


def read_npz(path: Path, must: str, read: Callable[[NpzReader], T]) -> T:
    """Return what ``read`` makes of the file; errors of a damaged one say what it must be."""
    try:
        with open(path, "rb") as file:
            return read(NpzReader(file))
    except OSError as error:
        raise FileNotFoundError(f"path must be a file to read; {str(path)!r}: {error.strerror}.") from error
    except Exception as error:  # a damaged file can fail anywhere
        raise ValueError(f"{str(path)!r} must be {must}; it cannot be read as one.") from error


def memory_size() -> float:
    """Return the bytes of memory of this machine; infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (AttributeError, OSError, ValueError):
        return math.inf
