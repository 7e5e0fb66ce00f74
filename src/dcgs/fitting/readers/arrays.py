"""Read NumPy's files: .npz with named arrays, .npy with one. Nothing is ever unpickled."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets import BrokenDataError
from dcgs.datasets.base import Matrix
from dcgs.datasets.store import unreadable
from dcgs.fitting.data import Entries, Indices, Numbers, Samples
from dcgs.fitting.readers.layout import EntriesLayout, SamplesLayout, listed
from dcgs.npz import NpzReader

_DAMAGE = (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, RuntimeError)
_FORMATS = {"csr": sparse.csr_array, "csc": sparse.csc_array, "coo": sparse.coo_array}


class Npz:
    """The arrays of an .npz file; each is read on demand."""

    def __init__(self, file: Path) -> None:
        self.file = file
        with _reading(file, "the archive"), file.open("rb") as stream:
            self.names = NpzReader(stream).names

    def first_of(self, *names: str) -> str | None:
        """Return the first of these names that the file has."""
        return next((name for name in names if name in self.names), None)

    def array(self, name: str) -> NDArray[Any]:
        """Return one array of numbers."""
        return _real(self._load(name), f"array {name!r} of {self.file}")

    def vector(self, name: str) -> Numbers:
        """Return one array that must be a vector of finite numbers."""
        return vector(self.array(name), name, self.file)

    def matrix(self, *names: str) -> Matrix | None:
        """Return a matrix under one of these names, dense or sparse; None if there is none.

        The parts of a sparse matrix are those of scipy.sparse: data, indices, indptr and shape (coo: row and
        col), each after the name of the matrix and an underscore, or alone as scipy.sparse.save_npz writes.
        """
        dense = self.first_of(*names)
        if dense is not None:
            return matrix(self.array(dense), dense, self.file)
        prefixes = (*(f"{name}_" for name in names), "")
        prefix = next((prefix for prefix in prefixes if f"{prefix}data" in self.names), None)
        return None if prefix is None else self._sparse(prefix)

    def _load(self, name: str) -> NDArray[Any]:
        with _reading(self.file, f"array {name!r}"), self.file.open("rb") as stream:
            return NpzReader(stream).array(name)

    def _sparse(self, prefix: str) -> sparse.csr_array:
        kind = self._load(f"{prefix}format").item() if f"{prefix}format" in self.names else "csr"
        kind = kind.decode("ascii", "replace") if isinstance(kind, bytes) else str(kind)
        if kind not in _FORMATS:
            raise BrokenDataError(
                f"a sparse matrix in {self.file} must be in format csr, csc or coo; it is {kind!r}. "
                "Convert it with .tocsr() and save it again."
            )
        places = ("row", "col") if kind == "coo" else ("indices", "indptr")
        missing = [f"{prefix}{part}" for part in (*places, "shape") if f"{prefix}{part}" not in self.names]
        if missing:
            raise BrokenDataError(
                f"a sparse matrix in {self.file} must have all its parts; {listed(missing)} are missing."
            )
        data, one, two, shape = (self.array(f"{prefix}{part}") for part in ("data", *places, "shape"))
        finite(data, f"{prefix}data", self.file)
        with _reading(self.file, "the sparse matrix"):
            parts = (data, (one, two)) if kind == "coo" else (data, one, two)
            made = _FORMATS[kind](parts, shape=tuple(map(int, shape)))
            if kind != "coo":
                made.check_format(full_check=True)
            return sparse.csr_array(made, dtype=np.float64)


def read_samples_npz(file: Path, layout: SamplesLayout) -> Samples:
    """Return A and b, or X and y; A may be sparse."""
    npz = Npz(file)
    A = npz.matrix("A", "X")
    if A is None:
        raise BrokenDataError(
            f"{file} must have an array A (or X), or a sparse matrix as scipy.sparse.save_npz writes it; "
            f"it has {listed(npz.names)}."
        )
    if layout.target_file is not None:
        return Samples(A, None)
    name = npz.first_of("b", "y")
    if name is None and layout.targets:
        raise BrokenDataError(
            f"{file} must have an array b (or y) with a target for each row of A; "
            f"it has {listed(npz.names)}. Add it, or give a file of targets with --target y.npy."
        )
    return Samples(A, None if name is None else npz.vector(name))


def read_entries_npz(file: Path, layout: EntriesLayout) -> Entries:
    """Return rows, cols and values, counted from 0; or the stored entries of a sparse matrix."""
    npz = Npz(file)
    if "rows" not in npz.names and npz.first_of("data", "A_data") is not None:
        coo = sparse.coo_array(npz.matrix("A"))
        rows, cols = (at.astype(np.intp) for at in coo.coords)
        return Entries(rows, cols, coo.data, 0, (int(coo.shape[0]), int(coo.shape[1])))
    needed = ("rows", "cols", "values") if layout.values else ("rows", "cols")
    missing = [name for name in needed if name not in npz.names]
    if missing:
        raise BrokenDataError(
            f"{file} must have arrays {', '.join(needed)}, or a sparse matrix as scipy.sparse.save_npz "
            f"writes it; {listed(missing)} are missing."
        )
    rows, cols = (as_indices(npz.vector(name), name, file) for name in ("rows", "cols"))
    values = npz.vector("values") if "values" in npz.names else None
    lengths = {len(array) for array in (rows, cols, values) if array is not None}
    if len(lengths) > 1:
        raise BrokenDataError(
            f"rows, cols and values in {file} must have one length; they have {sorted(lengths)}."
        )
    return Entries(rows, cols, values, layout.base or 0)


def read_npy(file: Path) -> NDArray[Any]:
    """Return the array of an .npy file."""
    with _reading(file, "the array"):
        array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise BrokenDataError(f"{file} must be an .npy file with one array; it is an archive. Name it .npz.")
    return _real(array, f"the array in {file}")


@contextmanager
def _reading(file: Path, what: str) -> Iterator[None]:
    """Turn the errors of a missing or damaged file into sentences."""
    try:
        yield
    except (OSError, *_DAMAGE) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise unreadable(file, error) from error
        if "pickle" in str(error).lower() or "object array" in str(error).lower():
            raise BrokenDataError(
                f"{what} in {file} must be plain numbers; it is not, and files are never unpickled. "
                "Save it as an array of floats."
            ) from error
        raise BrokenDataError(
            f"{what} in {file} must be readable; it is not: {error}. Write the file again."
        ) from error


def _real(array: NDArray[Any], what: str) -> NDArray[Any]:
    if array.dtype.kind not in "fiub":
        raise BrokenDataError(f"{what} must be of real numbers; it is of {array.dtype}.")
    return array


def matrix(array: NDArray[Any], name: str, file: Path) -> Numbers:
    """Return a matrix of finite numbers."""
    if array.ndim != 2:
        raise BrokenDataError(f"{name} in {file} must be a matrix; it has shape {array.shape}.")
    return finite(array, name, file)


def vector(array: NDArray[Any], name: str, file: Path) -> Numbers:
    """Return a vector of finite numbers; a matrix of one column is one."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise BrokenDataError(f"{name} in {file} must be a vector; it has shape {array.shape}.")
    return finite(array, name, file)


def finite(array: NDArray[Any], name: str, file: Path) -> Numbers:
    """Return the array as floats, all of them finite."""
    numbers = array.astype(np.float64, copy=False)
    bad = np.argwhere(~np.isfinite(numbers))
    if len(bad):
        at = ", ".join(map(str, bad[0]))
        more = f", and {len(bad) - 1} more are not" if len(bad) > 1 else ""
        raise BrokenDataError(
            f"{name}[{at}] in {file} must be finite; it is {numbers[tuple(bad[0])]}{more}. "
            "Fill it in, or leave its row out."
        )
    return numbers


def as_indices(numbers: Numbers, name: str, file: Path) -> Indices:
    """Return indices of rows or columns, if they are whole and not negative."""
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= 2**31))
    if len(bad):
        raise BrokenDataError(
            f"{name} in {file} must be whole numbers, from 0 or from 1 on; entry {bad[0] + 1} is "
            f"{numbers[bad[0]]:.12g}. Number rows and columns that way."
        )
    return numbers.astype(np.intp)
