"""How long a large file of ratings takes to read, and how much memory."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from dcgs.bench import completion
from dcgs.fitting.readers import EntriesLayout
from dcgs.fitting.readers.ratings import read_rated


def measure(size: dict[str, int], seed: int) -> dict[str, Any]:
    """Write synthetic ratings to a file of text, and read it in a process of its own."""
    case = completion.Case("synthetic", "", 1.0, 1.0, seed, **size)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        completion.alone(_write, case, path)
        return {"seed": seed, **size, **completion.alone(_read, path)}


def _write(case: completion.Case, path: Path) -> None:
    """Write the ratings of a case as CSV, some at a time."""
    train, _ = completion.synthetic(case)
    with path.open("w") as file:
        file.write("user,item,rating\n")
        for start in range(0, len(train), 1 << 20):
            part = slice(start, start + (1 << 20))
            columns = (column[part].tolist() for column in (train.rows, train.cols, train.values))
            file.writelines(f"u{row},i{col},{value:.3f}\n" for row, col, value in zip(*columns, strict=True))


def _read(path: Path) -> dict[str, Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    rated = read_rated(path, EntriesLayout())
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {
        "method": "reading a file of text",
        "fitted": len(rated),
        "shape": [len(rated.rows.ids), len(rated.cols.ids)],
        "file": path.stat().st_size,
        "seconds": seconds,
        "cpu": cpu,
        "memory": completion.peak_memory(),
    }
