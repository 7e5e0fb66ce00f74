"""How the cost of matrix completion grows with each of its sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MEASURES = {
    "cpu": ("CPU seconds", 1.0),
    "bytes": ("MB sent by an agent", 1e-6),
    "memory": ("MB of memory", 1e-6),
}


def growth_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Return a figure with a column for each number that grows, and a row for each measure."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import NullFormatter, NullLocator, StrMethodFormatter

    names = list(dict.fromkeys(row["grows"] for row in rows))
    figure = Figure(figsize=(2.6 * len(names), 6.0), layout="constrained")
    axes = figure.subplots(len(_MEASURES), len(names), squeeze=False, sharey="row")
    for across, name in enumerate(names):
        chosen = [row for row in rows if row["grows"] == name]
        for down, (measure, (label, unit)) in enumerate(_MEASURES.items()):
            panel = axes[down][across]
            panel.loglog([row[name] for row in chosen], [unit * row[measure] for row in chosen], marker="o")
            panel.set_xticks([row[name] for row in chosen], [_short(row[name]) for row in chosen])
            panel.xaxis.set_minor_locator(NullLocator())
            panel.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            panel.yaxis.set_minor_formatter(NullFormatter())
            panel.grid(True, which="major", alpha=0.3)
            if across == 0:
                panel.set_ylabel(label)
            if down == len(_MEASURES) - 1:
                panel.set_xlabel(name)
    figure.suptitle("8 iterations of FastDCGS for matrix completion, one number at a time")
    return figure


def _short(value: int) -> str:
    """Return a number with k for thousands and M for millions.

    >>> _short(20_000), _short(8)
    ('20k', '8')
    """
    if value >= 1_000_000:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1_000 else str(value)
