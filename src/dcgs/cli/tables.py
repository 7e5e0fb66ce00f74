"""Tables of a fit on the screen."""

from __future__ import annotations

import math
from typing import Any

from rich.table import Table

from dcgs.learn.summary import FitTable
from dcgs.report.numbers import size

_FORMATS: dict[str, Any] = {
    "text": str,
    "number": lambda value: f"{value:.4g}",
    "loss": lambda value: f"{value:.5g}",
    "amount": lambda value: f"{value:.3g}",
    "count": str,
    "size": size,
    "seconds": lambda value: f"{value:.2f}",
    "share": lambda value: f"{value:.4g}",
}


def screen_table(table: FitTable, most: int | None = None) -> Table:
    """Return a table for the screen, with the first rows of a long one and those that are apart."""
    made = Table(title=table.title or None)
    for name, kind in table.columns.items():
        made.add_column(name, justify="left" if kind == "text" else "right")
    first = len(table.rows) - table.last
    for number, row in enumerate(table.rows):
        if most is not None and most <= number < first:
            continue
        if table.last and number == first:
            made.add_section()
        cells = zip(row, table.columns.values(), strict=True)
        made.add_row(*("" if _is_unknown(value) else _FORMATS[kind](value) for value, kind in cells))
    return made


def _is_unknown(value: Any) -> bool:
    return value is None or (isinstance(value, float) and math.isnan(value))
