"""Read Parquet files, where pyarrow is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import unreadable
from dcgs.fitting.data import Numbers
from dcgs.fitting.readers.layout import Choose, Header


def read_parquet(file: Path, choose: Choose) -> tuple[Header, Numbers]:
    """Return the header of a table and the numbers of the chosen columns."""
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
            header = Header(file, len(names), names)
            chosen = [names[at] for at in choose(header)]
            read = table.read(columns=chosen)
    except pa.ArrowException as error:
        raise BrokenDataError(
            f"{file} must be a complete Parquet file; it is not: {error}. Write it again."
        ) from error
    except OSError as error:
        raise unreadable(file, error) from error
    return header, np.column_stack([_numbers(file, name, read.column(name)) for name in chosen])


def _numbers(file: Path, name: str, column: Any) -> Numbers:
    import pyarrow as pa
    import pyarrow.types as kinds

    is_number = (kinds.is_integer, kinds.is_floating, kinds.is_boolean, kinds.is_decimal)
    if not any(test(column.type) for test in is_number):
        raise BrokenDataError(
            f"column {name!r} of {file} must be of numbers; it is of {column.type}. "
            "Leave it out, or turn it into numbers."
        )
    numbers = np.asarray(column.cast(pa.float64()).to_numpy(), dtype=np.float64)
    bad = np.flatnonzero(~np.isfinite(numbers))
    if len(bad):
        found = column[int(bad[0])].as_py()
        raise BrokenDataError(
            f"column {name!r} of {file} must be finite; row {bad[0] + 1} is "
            f"{'empty' if found is None else found}. Fill it in, or leave the row out."
        )
    return numbers
