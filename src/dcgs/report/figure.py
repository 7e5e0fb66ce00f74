"""Figures of runs, in a plain style that prints well."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dcgs.front import Result

# Distinct also for the color-blind (Okabe and Ito), and by line style in black and white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
STYLES = ("-", "--", "-.", ":")

_LABELS = {
    "local_loss": "Σ fᵢ(xᵢ): each agent on its own data\n(the paper's loss)",
    "worst_loss": "maxᵢ f(xᵢ): the worst agent\non everyone's data",
    "rounds": "rounds of communication",
    "lmo_calls": "oracle calls per agent",
}


def losses_figure(results: Mapping[str, Result], title: str, optimum: float | None = None) -> Figure:
    """Draw the paper's loss and the honest one, against rounds and against oracle calls.

    ``optimum`` is f*, drawn as a thin line where it is known.
    """
    figure = Figure(figsize=(9.0, 6.2), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 2, sharex="row", sharey=True)
    for row, across in zip(panels, ("rounds", "lmo_calls"), strict=True):
        for axes, loss in zip(row, ("local_loss", "worst_loss"), strict=True):
            _draw(axes, results, across, loss)
            if optimum is not None:
                axes.axhline(optimum, color="0.5", linewidth=0.8, zorder=0)
    for axes, loss in zip(panels[0], ("local_loss", "worst_loss"), strict=True):
        axes.set_title(_LABELS[loss], fontsize=10)
    if optimum is not None:
        panels[0, 1].annotate(
            "f*",
            (1.0, optimum),
            xycoords=("axes fraction", "data"),
            xytext=(3, -3),
            textcoords="offset points",
        )
    figure.legend(
        *panels[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False
    )
    figure.suptitle(title, fontsize=11)
    return figure


def save(figure: Figure, path: Path) -> Path:
    """Write the figure and return where it is; the folder is made if need be."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def _draw(axes: Axes, results: Mapping[str, Result], across: str, loss: str) -> None:
    for place, (name, result) in enumerate(results.items()):
        columns = result.history.columns()
        axes.plot(
            columns[across],
            columns[loss],
            label=name,
            color=COLORS[place % len(COLORS)],
            linestyle=STYLES[place % len(STYLES)],
            linewidth=1.8,
        )
    axes.set_yscale("log")
    axes.set_xscale("symlog", linthresh=1.0)
    axes.set_xlim(left=0)
    axes.set_xlabel(_LABELS[across])
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
