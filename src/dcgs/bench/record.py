"""What benchmarks write: their environment, numbers as JSON, and tables as Markdown."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from threadpoolctl import threadpool_info

from dcgs.files import atomic_write
from dcgs.front import versions

NOT_REACHED = "—"
"""The cell of a level that was not reached."""


def environment(seed: int) -> dict[str, Any]:
    """Return the command, seed, versions and machine."""
    return {
        "command": " ".join(["dcgs", *sys.argv[1:]]),
        "seed": seed,
        "versions": versions(),
        "blas": sorted({f"{lib['internal_api']} {lib['version']}" for lib in threadpool_info()}),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
    }


def check_writable(path: Path) -> None:
    """Raise unless the file can be written; its folder is created if it does not exist."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a"):
            pass
    except OSError as error:
        raise ValueError(
            f"the output must be a writable file; {str(path)!r} cannot be written ({error.strerror})."
        ) from error


def write(path: Path, rows: Sequence[Mapping[str, Any]], seed: int) -> Path:
    """Write rows and environment as JSON; return the path."""
    return atomic_write(path, as_json(rows, seed).encode())


def as_json(rows: Sequence[Mapping[str, Any]], seed: int) -> str:
    """Return rows and environment as JSON."""
    return json.dumps({"environment": environment(seed), "rows": list(rows)}, indent=2) + "\n"


@final
@dataclass(frozen=True)
class TextTable:
    """A table of text; each cell has a flag that says whether it is the best of its row."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[tuple[str, bool]]]

    @classmethod
    def plain(cls, title: str, head: Sequence[str], rows: Iterable[Sequence[str]]) -> TextTable:
        """Return a table without best cells."""
        return cls(title, head, [[(cell, False) for cell in row] for row in rows])

    def markdown(self) -> str:
        """Return it as Markdown; the best cells are bold."""
        rows = [[f"**{text}**" if best else text for text, best in row] for row in self.rows]
        lines = [self.head, ["---", *(["---:"] * (len(self.head) - 1))], *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def bullets(notes: Sequence[str]) -> list[str]:
    """Return notes as a list in Markdown, one paragraph of a page; none if there are no notes."""
    return ["\n".join(f"* {note}" for note in notes)] if notes else []


def _processor() -> str:
    """Return the name of the processor: from /proc/cpuinfo on Linux, else from Python."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
