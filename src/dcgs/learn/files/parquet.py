"""Read Parquet files, where pyarrow is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import unreadable
from dcgs.learn.files.layout import Choose, TableHeader
from dcgs.learn.files.source import Indices, Numbers
from dcgs.learn.files.tables import Column, dates_error
from dcgs.learn.ratings.ids import Texts, as_texts


def read_parquet(file: Path, choose: Choose) -> tuple[TableHeader, Numbers]:
    """Return the header of a table and the numbers of the chosen columns."""
    header, columns = _read(file, choose)
    return header, np.column_stack([_numbers(file, name, column) for name, column in columns.items()])


def read_parquet_columns(file: Path, choose: Choose) -> tuple[TableHeader, list[Column]]:
    """Return the header of a table and the chosen columns, of numbers or of words, with holes."""
    header, columns = _read(file, choose)
    return header, [_column(file, name, column) for name, column in columns.items()]


def read_parquet_ids(file: Path, choose: Choose) -> tuple[list[tuple[Indices, Texts]], Numbers | None]:
    """Return two columns of ids, and a third column of numbers if it is chosen.

    A column of ids is the place of each among the distinct ones, and these as texts.
    """
    _, columns = _read(file, choose)
    (row, rows), (col, cols), *rest = columns.items()
    values = _numbers(file, *rest[0]) if rest else None
    return [_ids(file, row, rows), _ids(file, col, cols)], values


def _ids(file: Path, name: str, column: Any) -> tuple[Indices, Texts]:
    """Return the place of each id among the distinct ones, and these."""
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = column.type.value_type if kinds.is_dictionary(column.type) else column.type
    is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
    if not is_text and not (kinds.is_integer(kind) or kinds.is_floating(kind)):
        raise BrokenDataError(
            f"column {name!r} of {file} must be of ids, texts or whole numbers; it is of {column.type}. "
            "Turn it into texts."
        )
    plain = column.cast(kind) if kinds.is_dictionary(column.type) else column
    if plain.null_count:
        _refuse_id(file, name, plain.is_null().to_numpy(), "empty")
    coded = pa.chunked_array([pa.concat_arrays(plain.chunks)] if plain.num_chunks else [], type=kind)
    coded = coded.dictionary_encode().combine_chunks()
    coded = coded.chunk(0) if isinstance(coded, pa.ChunkedArray) else coded
    codes = np.asarray(coded.indices.to_numpy(), dtype=np.intp)
    if is_text:
        texts = as_texts(np.array(coded.dictionary.to_pylist(), dtype=object))
        _refuse_id(file, name, (texts == b"")[codes], "empty")
        return codes, texts
    numbers = coded.dictionary.to_numpy()
    _refuse_id(file, name, (numbers != np.floor(numbers))[codes], "no whole number")
    return codes, as_texts(numbers)


def _refuse_id(file: Path, name: str, bad: NDArray[np.bool_], value: str) -> None:
    if bad.any():
        row = int(np.flatnonzero(bad)[0]) + 1
        raise BrokenDataError(
            f"column {name!r} of {file} must have an id in every row; that of row {row} is {value}. "
            "Fill it in, or leave the row out."
        )


def _read(file: Path, choose: Choose) -> tuple[TableHeader, dict[str, Any]]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise ImportError(
            f"reading {file} needs pyarrow, which is not installed. Install it with: "
            "pip install 'dcgs[parquet]'; or write the table as CSV."
        ) from error
    try:
        with file.open("rb") as stream:
            table = pq.ParquetFile(stream)
            names = tuple(table.schema_arrow.names)
            header = TableHeader(file, len(names), names)
            chosen = [names[index] for index in choose(header)]
            read = table.read(columns=chosen)
    except pa.ArrowException as error:
        raise BrokenDataError(
            f"{file} must be a complete Parquet file; it is not: {error}. Write it again."
        ) from error
    except OSError as error:
        raise unreadable(file, error) from error
    return header, {name: read.column(name) for name in chosen}


def _column(file: Path, name: str, column: Any) -> Column:
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if kinds.is_temporal(column.type):
        example = next((value for value in column.to_pylist() if value is not None), column.type)
        raise dates_error(file, f"column {name!r}", example)
    if kinds.is_string(column.type) or kinds.is_large_string(column.type):
        return Column.of_texts([text or "" for text in column.to_pylist()])
    if kinds.is_null(column.type):
        return Column(np.full(len(column), np.nan))
    if not _is_numeric(column.type):
        raise BrokenDataError(
            f"column {name!r} of {file} must be of numbers or of words; it is of {column.type}. "
            "Leave it out, or turn it into numbers."
        )
    numbers = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    if np.isinf(numbers).any():
        row = int(np.flatnonzero(np.isinf(numbers))[0]) + 1
        raise BrokenDataError(f"column {name!r} of {file} must be finite; row {row} is not. Correct it.")
    return Column(numbers)


def _is_numeric(kind: Any) -> bool:
    import pyarrow.types as kinds

    tests = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
    return any(test(kind) for test in tests)


def _numbers(file: Path, name: str, column: Any) -> Numbers:
    import pyarrow as pa

    if not _is_numeric(column.type):
        raise BrokenDataError(
            f"column {name!r} of {file} must be of numbers; it is of {column.type}. "
            "Leave it out, or turn it into numbers."
        )
    numbers = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        value = column[int(bad[0])].as_py()
        raise BrokenDataError(
            f"column {name!r} of {file} must be finite; row {bad[0] + 1} is "
            f"{'empty' if value is None else value}. Fill it in, or leave the row out."
        )
    return numbers
