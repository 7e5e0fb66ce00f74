"""Read Parquet files, where pyarrow is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import unreadable
from dcgs.fitting.data import Numbers
from dcgs.fitting.readers.layout import Choose, Head


def read_parquet(file: Path, choose: Choose) -> tuple[Head, Numbers]:
    """Return the columns of a table and, of those that are chosen, the numbers."""
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
            head = Head(file, len(names), names)
            wanted = [names[at] for at in choose(head)]
            read = table.read(columns=wanted)
    except pa.ArrowException as error:
        raise BrokenDataError(
            f"{file} must be a whole Parquet file; it is not: {error}. Write it again."
        ) from error
    except OSError as error:
        raise unreadable(file, error) from error
    return head, np.column_stack([_column(file, name, read.column(name)) for name in wanted])


def _column(file: Path, name: str, column: Any) -> Numbers:
    import pyarrow as pa
    import pyarrow.types as kinds

    kind = column.type
    if not (
        kinds.is_integer(kind) or kinds.is_floating(kind) or kinds.is_boolean(kind) or kinds.is_decimal(kind)
    ):
        raise BrokenDataError(
            f"column {name!r} of {file} must be of numbers; it is of {kind}. "
            "Leave it out, or turn it into numbers."
        )
    numbers = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        raise BrokenDataError(
            f"column {name!r} of {file} must be finite; row {bad[0] + 1} is {_told(column[int(bad[0])])}. "
            "Fill it in, or leave the row out."
        )
    return numbers


def _told(scalar: Any) -> str:
    return "empty" if scalar.as_py() is None else str(scalar.as_py())
