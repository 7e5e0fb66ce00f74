"""Reports: progress during a run, and tables, figures and a page of the results."""

from __future__ import annotations

from collections.abc import Mapping

from rich.table import Table

from dcgs.front import Result
from dcgs.report.progress import Progress

__all__ = ["Progress", "measures_table"]

_SHOWN = ("rounds", "bytes", "lmo_calls", "local_loss", "worst_loss", "disagreement", "gap", "seconds")


def measures_table(results: Mapping[str, Result], title: str = "") -> Table:
    """Return the measures at the end of each run; the paper's loss never stands alone.

    ``bytes`` and ``lmo_calls`` are the busiest agent's.
    """
    table = Table(title=title, title_justify="left")
    table.add_column("measure")
    for method in results:
        table.add_column(method, justify="right")
    for name in _SHOWN:
        last = (result.history.columns()[name][-1] for result in results.values())
        table.add_row(name, *map(_shown, last))
    return table


def _shown(value: float) -> str:
    """Return counts in full and other numbers to three digits."""
    return f"{value:,}" if float(value).is_integer() and value >= 0 else f"{value:.3g}"
