"""What benchmarks write: how they were made, numbers as JSON, and tables as Markdown."""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from string import Formatter
from typing import Any, TypeAlias, final

from threadpoolctl import threadpool_info

from dcgs.run.minimize import versions

Rows: TypeAlias = Sequence[Mapping[str, Any]]

NOT_REACHED = "—"
"""The cell of a level that was not reached."""


def environment(seed: int) -> dict[str, Any]:
    """Return the command, seed, versions and machine."""
    return {
        "command": shlex.join(["dcgs", *sys.argv[1:]]),
        "seed": seed,
        "versions": versions(),
        "blas": sorted({f"{lib['internal_api']} {lib['version']}" for lib in threadpool_info()}),
        "machine": {"system": platform.platform(), "processor": _processor(), "cores": os.cpu_count()},
    }


def as_json(numbers: Mapping[str, Any]) -> str:
    """Return the numbers of a benchmark as JSON."""
    return json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"


def as_markdown(made: Mapping[str, Any], tables: Sequence[TextTable], notes: Sequence[str]) -> str:
    """Return how numbers were made, tables under their titles, and notes, as Markdown."""
    about = made["environment"]
    machine = f"{about['machine']['processor']}, {about['machine']['cores']} cores"
    parts = [f"`{about['command']}`, seed {about['seed']}, dcgs {about['versions']['dcgs']}, {machine}."]
    for table in tables:
        parts += [f"## {table.title}"] * bool(table.title) + [table.markdown()]
    return "\n\n".join([*parts, *(f"* {note}" for note in notes)]) + "\n"


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

    @classmethod
    def formatted(
        cls, title: str, columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]
    ) -> TextTable:
        """Return a table of the rows that have all its values, which format its headings and cells.

        >>> TextTable.formatted("", {"{n} runs": "{x:.1f}"}, [{"n": 2, "x": 0.25}, {}]).rows
        [[('0.2', False)]]
        """
        fields = {name for form in columns.values() for _, name, _, _ in Formatter().parse(form) if name}
        words = {True: "yes", False: "NO"}
        shown = [
            {name: words[value] if isinstance(value, bool) else value for name, value in row.items()}
            for row in rows
            if fields <= row.keys()
        ]
        head = [name.format_map(shown[0]) if shown else name for name in columns]
        return cls.plain(title, head, [[form.format_map(row) for form in columns.values()] for row in shown])

    def markdown(self) -> str:
        """Return it as Markdown; the best cells are bold."""
        rows = [[f"**{text}**" if best else text for text, best in row] for row in self.rows]
        lines = [self.head, ["---", *(["---:"] * (len(self.head) - 1))], *rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _processor() -> str:
    """Return the name of the processor: from /proc/cpuinfo on Linux, else from Python."""
    file = Path("/proc/cpuinfo")
    names = re.findall(r"^model name\s*: (.*)$", file.read_text() if file.exists() else "", re.MULTILINE)
    return names[0] if names else platform.processor()
