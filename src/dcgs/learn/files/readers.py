"""Readers of users' files. The name of a file determines its format; nothing is ever unpickled.

=============================  =====================================================================
.npz                           A and b (or X and y), A dense, or sparse in the parts of scipy.sparse;
                               rows, cols and values for completion
.npy                           a matrix, a column of it the target; three columns for completion
.parquet, .pq                  a table with names; needs pyarrow
.csv, .tsv                     a table of text, with names in the first line or without
any other                      LIBSVM text; for completion a table of text
=============================  =====================================================================

Text may be compressed (.gz, .bz2, .xz).
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.datasets import BrokenDataError, read_libsvm
from dcgs.datasets.base import Matrix
from dcgs.datasets.store import unreadable
from dcgs.files import NpzReader
from dcgs.learn.files.layout import PLAIN_TEXT, Choose, EntriesLayout, SamplesLayout, TableHeader, TextFormat
from dcgs.learn.files.parquet import read_parquet, read_parquet_columns
from dcgs.learn.files.source import Entries, Indices, Numbers, Samples
from dcgs.learn.files.tables import Column, Table
from dcgs.learn.files.text import read_cells, read_header, read_text, with_points
from dcgs.validation import listed

_COMPRESSED = (".gz", ".bz2", ".xz")
_KINDS = {
    ".npz": "npz",
    ".npy": "npy",
    ".parquet": "parquet",
    ".pq": "parquet",
    ".csv": "text",
    ".tsv": "text",
}


def kind_of(file: Path) -> str:
    """Return the format of a file by its name: npz, npy, parquet, text (a table), or other.

    >>> kind_of(Path("ratings.csv.gz")), kind_of(Path("a1a.bz2"))
    ('text', 'other')
    """
    suffixes = [suffix.lower() for suffix in file.suffixes]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return _KINDS.get(suffixes[-1], "other") if suffixes else "other"


def read_samples(file: Path, layout: SamplesLayout) -> Samples:
    """Return the samples in a file."""
    kind = kind_of(file)
    if kind == "npz":
        samples = read_samples_npz(file, layout)
    elif kind == "other":
        A, b = read_libsvm(file, layout.features)
        samples = Samples(A, b, open=layout.features is None)
    else:
        samples = _table_samples(layout, *read_table(file, layout.choose, layout.header, layout.text))
    if layout.target_file is not None:
        samples = replace(samples, b=_targets(layout.target_file))
    _check_size(file, layout, samples.b, samples.A.shape)
    return samples


def read_words(file: Path, layout: SamplesLayout) -> Table:
    """Return a table whose columns may be of words and may have holes: text or Parquet."""
    columns: Sequence[Column]
    commas = False
    if kind_of(file) == "parquet":
        header, columns = read_parquet_columns(file, layout.choose)
        rows = np.arange(1, 1 + max(map(len, columns), default=0))
    else:
        header, columns, rows, commas = _text_columns(file, layout)
    features, place = layout.split(header)
    names = None if header.names is None else tuple(header.names[feature] for feature in features)
    name = None if header.names is None or place is None else header.names[place]
    target = None if place is None else columns[-1]
    local = tuple(columns[: len(features)])
    table = Table(file, local, target, names, name, place, rows, commas, layout.lacking(header))
    if layout.target_file is not None:
        table = replace(table, target=Column(_targets(layout.target_file)))
    _check_size(file, layout, table.target, (len(table), len(table.columns)))
    if layout.subject is None:
        return table
    return replace(table, subjects=tuple(read_ids(file, layout.subject, layout)[1]))


def read_ids(file: Path, column: str, layout: SamplesLayout) -> tuple[str, list[str]]:
    """Return the name of a column of a table, and its cells as they are written."""

    def choose(header: TableHeader) -> list[int]:
        return [header.index(column)]

    kind = kind_of(file)
    if kind == "parquet":
        header, (ids,) = read_parquet_columns(file, choose)
        texts = ["" if text is None else text for text in ids.texts]
    elif kind == "text":
        has_names = read_header(file, layout.choose, layout.header, layout.text).names is not None
        header, (cells,), _ = read_cells(file, choose, has_names, layout.text)
        texts = [cell.strip() for cell in cells]
    else:
        raise ValueError(f"--id is for tables with such a column; {file} is not one. Leave it out.")
    return "id" if header.names is None else header.names[header.index(column)], texts


def _targets(name: str) -> Numbers:
    """Return the targets in a file of their own."""
    file = Path(name).expanduser()
    return vector(read_npy(file), "the array", file)


def _check_size(file: Path, layout: SamplesLayout, targets: Sized | None, shape: tuple[int, int]) -> None:
    """Raise unless there are rows and features, and a target for each row."""
    if targets is not None and len(targets) != shape[0]:
        raise BrokenDataError(
            f"{layout.target_file or file} must have a target for each of the {shape[0]} rows of {file}; "
            f"it has {len(targets)}."
        )
    if 0 in shape:
        raise BrokenDataError(f"{file} must have at least one row and one feature; it has shape {shape}.")


def _text_columns(file: Path, layout: SamplesLayout) -> tuple[TableHeader, list[Column], Indices, bool]:
    """Return the columns of a table of text, its lines, and whether it has decimal commas.

    A table of numbers alone is read as such, which is faster.
    """
    how = layout.choose, layout.header, layout.text
    if layout.text.decimal != ",":
        with suppress(BrokenDataError):  # there are words or holes
            header, numbers = read_text(file, *how)
            first = 1 + (header.names is not None)  # blank lines and comments are not counted in such a table
            rows = np.arange(first, first + len(numbers))
            return header, [Column(column) for column in numbers.T], rows, False
    header, cells, lines = read_cells(file, *how)
    if not lines:
        raise BrokenDataError(f"{file} must have a line below its names; it has none.")
    chosen = layout.choose(header)
    names = [f"column {place + 1 if header.names is None else repr(header.names[place])}" for place in chosen]
    cells, commas = with_points(file, names, cells, lines, layout.text.decimal)
    return header, [Column.of_texts(texts) for texts in cells], np.array(lines, dtype=np.intp), commas


def read_entries(file: Path, layout: EntriesLayout) -> Entries:
    """Return the entries of a matrix in a file."""
    if kind_of(file) == "npz":
        entries = read_entries_npz(file, layout)
    else:
        _, numbers = read_table(file, layout.choose, layout.header, layout.text)
        rows, cols = (as_indices(numbers[:, place], ("rows", "columns")[place], file) for place in range(2))
        values = numbers[:, 2].copy() if numbers.shape[1] > 2 else None
        entries = Entries(rows, cols, values, layout.base)
    if len(entries) == 0:
        raise BrokenDataError(f"{file} must have at least one entry; it has none.")
    return entries


def read_table(
    file: Path, choose: Choose, has_names: bool | None, form: TextFormat = PLAIN_TEXT
) -> tuple[TableHeader, Numbers]:
    """Return the header of a table and the numbers of the chosen columns."""
    match kind_of(file):
        case "npy":
            table = matrix(read_npy(file), "the array", file)
            header = TableHeader(file, table.shape[1], None)
            return header, np.ascontiguousarray(table[:, list(choose(header))])
        case "parquet":
            return read_parquet(file, choose)
        case "npz":
            raise BrokenDataError(
                f"{file} must be one table, .npy, .csv, .tsv or .parquet; it is an .npz file."
            )
        case _:
            return read_text(file, choose, has_names, form)


def _table_samples(layout: SamplesLayout, header: TableHeader, numbers: Numbers) -> Samples:
    """Return the samples of the chosen columns; the target, if there is one, is the last of them."""
    features, target = layout.split(header)
    names = None if header.names is None else tuple(header.names[place] for place in features)
    if target is None:
        return Samples(numbers, None, names)
    name = None if header.names is None else header.names[target]
    return Samples(np.ascontiguousarray(numbers[:, :-1]), numbers[:, -1].copy(), names, name, target)


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
        data, candidate, two, shape = (self.array(f"{prefix}{part}") for part in ("data", *places, "shape"))
        finite(data, f"{prefix}data", self.file)
        with _reading(self.file, "the sparse matrix"):
            parts = (data, (candidate, two)) if kind == "coo" else (data, candidate, two)
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
        rows, cols = (place.astype(np.intp) for place in coo.coords)
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
        place = ", ".join(map(str, bad[0]))
        more = f", and {len(bad) - 1} more are not" if len(bad) > 1 else ""
        raise BrokenDataError(
            f"{name}[{place}] in {file} must be finite; it is {numbers[tuple(bad[0])]}{more}. "
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
