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
from dcgs.fitting.data import Entries, Numbers, Places, Samples
from dcgs.fitting.readers.layout import EntriesLayout, SamplesLayout, listed

_DAMAGE = (ValueError, EOFError, KeyError, zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError)


class Npz:
    """The arrays of an .npz file, each read when it is asked for."""

    def __init__(self, file: Path) -> None:
        self.file = file
        try:
            with zipfile.ZipFile(file) as archive:
                self.names = [name.removesuffix(".npy") for name in archive.namelist()]
        except OSError as error:
            raise unreadable(file, error) from error
        except zipfile.BadZipFile as error:
            raise BrokenDataError(
                f"{file} must be a whole .npz file; it is not: {error}. Write it again."
            ) from error

    def first_of(self, *names: str) -> str | None:
        """Return the first of these names that the file has."""
        return next((name for name in names if name in self.names), None)

    def array(self, name: str) -> NDArray[Any]:
        """Return one array of numbers."""
        with reading(self.file, f"array {name!r}"), np.load(self.file, allow_pickle=False) as npz:
            return as_real(npz[name], f"array {name!r} of {self.file}")

    def text(self, name: str) -> str:
        """Return one array that holds a word."""
        with reading(self.file, f"array {name!r}"), np.load(self.file, allow_pickle=False) as npz:
            word = npz[name].item()
        return word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)

    def matrix(self, *names: str) -> Matrix | None:
        """Return a matrix under one of these names, dense or in parts; None if there is none.

        Parts are those of scipy.sparse, data, indices, indptr and shape, each behind the name of the matrix
        and an underscore, or alone, as scipy.sparse.save_npz writes them.
        """
        dense = self.first_of(*names)
        if dense is not None:
            return self._dense(dense)
        for prefix in (*(f"{name}_" for name in names), ""):
            if f"{prefix}data" in self.names:
                return self._sparse(prefix)
        return None

    def _dense(self, name: str) -> Numbers:
        matrix = self.array(name)
        if matrix.ndim != 2:
            raise BrokenDataError(f"{name} in {self.file} must be a matrix; it has shape {matrix.shape}.")
        return finite(matrix.astype(np.float64, copy=False), name, self.file)

    def _sparse(self, prefix: str) -> sparse.csr_array:
        kind = self.text(f"{prefix}format") if f"{prefix}format" in self.names else "csr"
        parts = {"csr": ("indices", "indptr"), "csc": ("indices", "indptr"), "coo": ("row", "col")}.get(kind)
        if parts is None:
            raise BrokenDataError(
                f"a sparse matrix in {self.file} must be in format csr, csc or coo; it is {kind!r}. "
                "Convert it with .tocsr() and save it again."
            )
        missing = [f"{prefix}{part}" for part in (*parts, "shape") if f"{prefix}{part}" not in self.names]
        if missing:
            raise BrokenDataError(
                f"a sparse matrix in {self.file} must have all its parts; {listed(missing)} are not there."
            )
        data, one, two = (self.array(f"{prefix}{part}") for part in ("data", *parts))
        shape = tuple(int(side) for side in self.array(f"{prefix}shape"))
        finite(data.astype(np.float64, copy=False), f"{prefix}data", self.file)
        with reading(self.file, "the sparse matrix"):
            if kind == "coo":
                return sparse.csr_array(sparse.coo_array((data, (one, two)), shape=shape), dtype=np.float64)
            made = (sparse.csr_array if kind == "csr" else sparse.csc_array)((data, one, two), shape=shape)
            made.check_format(full_check=True)
            return sparse.csr_array(made, dtype=np.float64)


def read_samples_npz(file: Path, layout: SamplesLayout) -> Samples:
    """Return A and b, or X and y; A may be sparse, in the parts of scipy.sparse."""
    npz = Npz(file)
    A = npz.matrix("A", "X")
    if A is None:
        raise BrokenDataError(
            f"{file} must have an array A (or X), or a sparse matrix as scipy.sparse.save_npz writes it; "
            f"it has {listed(npz.names)}."
        )
    name = None if layout.target_file is not None else npz.first_of("b", "y")
    if name is None and layout.targets and layout.target_file is None:
        raise BrokenDataError(
            f"{file} must have an array b (or y) with a target for each row of A; "
            f"it has {listed(npz.names)}. Add it, or give a file of targets with --target y.npy."
        )
    return Samples(A, None if name is None else vector(npz.array(name), name, file))


def read_entries_npz(file: Path, layout: EntriesLayout) -> Entries:
    """Return rows, cols and values, counted from 0; or the stored entries of a sparse matrix."""
    npz = Npz(file)
    if "rows" not in npz.names and npz.first_of("data", "A_data") is not None:
        coo = npz.matrix("A").tocoo()  # type: ignore[union-attr]
        shape = (int(coo.shape[0]), int(coo.shape[1]))
        rows, cols = (at.astype(np.intp) for at in coo.coords)
        return Entries(rows, cols, coo.data, 0, shape)
    needed = ("rows", "cols", "values") if layout.values else ("rows", "cols")
    missing = [name for name in needed if name not in npz.names]
    if missing:
        raise BrokenDataError(
            f"{file} must have arrays {', '.join(needed)}, or a sparse matrix as scipy.sparse.save_npz "
            f"writes it; {listed(missing)} are not there."
        )
    rows, cols = (whole(vector(npz.array(name), name, file), name, file) for name in ("rows", "cols"))
    values = vector(npz.array("values"), "values", file) if "values" in npz.names else None
    lengths = {len(rows), len(cols), *(() if values is None else (len(values),))}
    if len(lengths) > 1:
        raise BrokenDataError(
            f"rows, cols and values in {file} must have one length; they have {sorted(lengths)}."
        )
    base = 0 if layout.base is None else layout.base
    return Entries(rows, cols, values, base)


def read_npy(file: Path) -> NDArray[Any]:
    """Return the array of an .npy file."""
    with reading(file, "the array"):
        array = np.load(file, allow_pickle=False)
    if not isinstance(array, np.ndarray):
        array.close()
        raise BrokenDataError(f"{file} must be an .npy file with one array; it is an archive. Name it .npz.")
    return as_real(array, f"the array in {file}")


def read_npy_table(file: Path) -> Numbers:
    """Return the matrix of an .npy file."""
    array = read_npy(file)
    if array.ndim != 2:
        raise BrokenDataError(
            f"{file} must hold a matrix, a row for each sample; its array has shape {array.shape}."
        )
    return finite(array.astype(np.float64, copy=False), "entry", file)


def read_targets(file: Path) -> Numbers:
    """Return the vector of an .npy file."""
    return vector(read_npy(file), "the array", file)


@contextmanager
def reading(file: Path, what: str) -> Iterator[None]:
    """Turn what a damaged file raises into a sentence."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise BrokenDataError(
                f"{what} in {file} cannot be read: {error}. Write the file again."
            ) from error
        raise unreadable(file, error) from error
    except BrokenDataError:
        raise
    except _DAMAGE as error:
        if "pickle" in str(error).lower() or "object array" in str(error).lower():
            raise BrokenDataError(
                f"{what} in {file} must be plain numbers; it is not, and files are never unpickled. "
                "Save it as an array of floats."
            ) from error
        raise BrokenDataError(f"{what} in {file} cannot be read: {error}. Write the file again.") from error


def as_real(array: NDArray[Any], what: str) -> NDArray[Any]:
    """Return the array if it is of real numbers."""
    if array.dtype.kind not in "fiub":
        raise BrokenDataError(f"{what} must be of real numbers; it is of {array.dtype}.")
    return array


def vector(array: NDArray[Any], name: str, file: Path) -> Numbers:
    """Return a vector of finite numbers; a matrix of one column is one."""
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.ndim != 1:
        raise BrokenDataError(f"{name} in {file} must be a vector; it has shape {array.shape}.")
    return finite(array.astype(np.float64, copy=False), name, file)


def finite(array: Numbers, name: str, file: Path) -> Numbers:
    """Return the array if all of it is finite."""
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        at = ", ".join(map(str, bad[0]))
        more = f", and {len(bad) - 1} more are not" if len(bad) > 1 else ""
        raise BrokenDataError(
            f"{name}[{at}] in {file} must be finite; it is {array[tuple(bad[0])]}{more}. "
            "Fill it in, or leave its row out."
        )
    return array


def whole(numbers: Numbers, name: str, file: Path) -> Places:
    """Return numbers of rows or columns, if they are whole and not negative."""
    bad = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers >= 2**31))
    if len(bad):
        raise BrokenDataError(
            f"{name} in {file} must be whole numbers, from 0 or from 1 on; entry {bad[0] + 1} is "
            f"{numbers[bad[0]]:.12g}. Number rows and columns so."
        )
    return numbers.astype(np.intp)
