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

from collections.abc import Sequence, Sized
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np

from dcgs.datasets import BrokenDataError, read_libsvm
from dcgs.fitting.data import Entries, Indices, Numbers, Samples
from dcgs.fitting.readers.arrays import (
    Npz,
    as_indices,
    matrix,
    read_entries_npz,
    read_npy,
    read_samples_npz,
    vector,
)
from dcgs.fitting.readers.decimals import with_points
from dcgs.fitting.readers.layout import PLAIN_TEXT, Choose, EntriesLayout, Header, SamplesLayout, TextFormat
from dcgs.fitting.readers.parquet import read_parquet, read_parquet_columns
from dcgs.fitting.readers.text import read_cells, read_header, read_text
from dcgs.fitting.tables import Column, Table

__all__ = [
    "EntriesLayout",
    "Npz",
    "SamplesLayout",
    "kind_of",
    "read_entries",
    "read_ids",
    "read_npy",
    "read_samples",
    "read_table",
    "read_words",
]

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
    features, at = layout.split(header)
    names = None if header.names is None else tuple(header.names[feature] for feature in features)
    name = None if header.names is None or at is None else header.names[at]
    target = None if at is None else columns[-1]
    own = tuple(columns[: len(features)])
    table = Table(file, own, target, names, name, at, rows, commas, layout.lacking(header))
    if layout.target_file is not None:
        table = replace(table, target=Column(_targets(layout.target_file)))
    _check_size(file, layout, table.target, (len(table), len(table.columns)))
    return table


def read_ids(file: Path, column: str, layout: SamplesLayout) -> tuple[str, list[str]]:
    """Return the name of a column of a table, and its cells as they are written."""

    def choose(header: Header) -> list[int]:
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


def _text_columns(file: Path, layout: SamplesLayout) -> tuple[Header, list[Column], Indices, bool]:
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
    names = [f"column {at + 1 if header.names is None else repr(header.names[at])}" for at in chosen]
    cells, commas = with_points(file, names, cells, lines, layout.text.decimal)
    return header, [Column.of_texts(texts) for texts in cells], np.array(lines, dtype=np.intp), commas


def read_entries(file: Path, layout: EntriesLayout) -> Entries:
    """Return the entries of a matrix in a file."""
    if kind_of(file) == "npz":
        entries = read_entries_npz(file, layout)
    else:
        _, numbers = read_table(file, layout.choose, layout.header, layout.text)
        rows, cols = (as_indices(numbers[:, at], ("rows", "columns")[at], file) for at in range(2))
        values = numbers[:, 2].copy() if numbers.shape[1] > 2 else None
        entries = Entries(rows, cols, values, layout.base)
    if len(entries) == 0:
        raise BrokenDataError(f"{file} must have at least one entry; it has none.")
    return entries


def read_table(
    file: Path, choose: Choose, has_names: bool | None, form: TextFormat = PLAIN_TEXT
) -> tuple[Header, Numbers]:
    """Return the header of a table and the numbers of the chosen columns."""
    match kind_of(file):
        case "npy":
            table = matrix(read_npy(file), "the array", file)
            header = Header(file, table.shape[1], None)
            return header, np.ascontiguousarray(table[:, list(choose(header))])
        case "parquet":
            return read_parquet(file, choose)
        case "npz":
            raise BrokenDataError(
                f"{file} must be one table, .npy, .csv, .tsv or .parquet; it is an .npz file."
            )
        case _:
            return read_text(file, choose, has_names, form)


def _table_samples(layout: SamplesLayout, header: Header, numbers: Numbers) -> Samples:
    """Return the samples of the chosen columns; the target, if there is one, is the last of them."""
    features, target = layout.split(header)
    names = None if header.names is None else tuple(header.names[at] for at in features)
    if target is None:
        return Samples(numbers, None, names)
    name = None if header.names is None else header.names[target]
    return Samples(np.ascontiguousarray(numbers[:, :-1]), numbers[:, -1].copy(), names, name, target)
