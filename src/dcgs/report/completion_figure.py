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

    names = list(dict.fromkeys(row["grows"] for row in rows))
    figure = Figure(figsize=(2.6 * len(names), 6.0), layout="constrained")
    axes = figure.subplots(len(_MEASURES), len(names), squeeze=False, sharey="row")
    for across, name in enumerate(names):
        chosen = [row for row in rows if row["grows"] == name]
        for down, (measure, (label, unit)) in enumerate(_MEASURES.items()):
            panel = axes[down][across]
            panel.loglog([row[name] for row in chosen], [unit * row[measure] for row in chosen], marker="o")
            panel.grid(True, which="major", alpha=0.3)
            if across == 0:
                panel.set_ylabel(label)
            if down == len(_MEASURES) - 1:
                panel.set_xlabel(name)
    figure.suptitle("8 iterations of FastDCGS for matrix completion, one number at a time")
    return figure
