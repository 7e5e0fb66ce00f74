"""Curves of histories: every measure of a run against what it cost. Matplotlib is imported when one draws."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcgs.validation import one_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""The columns of a history by name, and perhaps ``relative``."""

COSTS = {
    "rounds": "rounds of communication",
    "bytes": "bytes sent, largest of any agent",
    "lmo_calls": "oracle calls, largest of any agent",
    "seconds": "seconds",
    "iterations": "iterations",
    "messages": "messages sent, largest of any agent",
    "computing": "seconds of computing, slowest agent",
}
MEASURES = {
    "relative": "relative error of the worst agent\n(maxᵢ f(xᵢ) − f*) / (f(x⁰) − f*)",
    "worst_loss": "worst agent on all data\nmaxᵢ f(xᵢ)",
    "gap": "certified gap at the average\nmax ⟨∇f(x̄), x̄ − s⟩",
    "disagreement": "disagreement\nmaxᵢ ‖xᵢ − x̄‖",
    "mean_loss": "network average on all data\nf(x̄)",
    "local_loss": "each agent on its own data\nΣᵢ fᵢ(xᵢ)",
}
# Distinct also for the color-blind (Okabe and Ito), and by line style in black and white.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
DASHES = ("-", "--", "-.", ":")
STYLE: dict[str, Any] = {
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.labelsize": 9.0,
    "legend.fontsize": 9.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.6,
    "pdf.fonttype": 42,  # text stays text
    "svg.fonttype": "none",
}
_PANEL = (2.7, 2.5)  # inches
_FEW = 25  # curves with fewer points get markers


def draw(
    runs: Mapping[str, Columns],
    x: str,
    y: str | Sequence[str],
    labels: Mapping[str, str] = MEASURES,
    title: str = "",
) -> Figure:
    """Return a figure with a panel for each measure of ``y``, each run a curve against the cost ``x``."""
    measures = [y] if isinstance(y, str) else list(y)
    _check(runs, x, measures)
    plt = pyplot()
    with plt.rc_context(STYLE):
        size = (_PANEL[0] * len(measures), _PANEL[1] + (0.4 if len(runs) > 1 else 0.0))
        figure: Figure = plt.figure(figsize=size, layout="constrained")
        panels = figure.subplots(1, len(measures), sharex=True, squeeze=False)[0]
        for axes, measure in zip(panels, measures, strict=True):
            for place, (name, columns) in enumerate(runs.items()):
                _curve(axes, columns[x], columns[measure], label=name, place=place)
            axes.set_title(labels[measure])
            axes.set_xlabel(COSTS[x])
            _thousands(axes, x)
            axes.set_xlim(left=0)
            if any((columns[measure] > 0.0).any() for columns in runs.values()):
                axes.set_yscale("log")
        if len(runs) > 1:
            curves, names = panels[0].get_legend_handles_labels()
            figure.legend(curves, names, loc="outside lower center", ncols=2 * len(measures), frameon=False)
        if title:
            figure.suptitle(title, fontsize=10)
    return figure


def pyplot() -> Any:
    """Return matplotlib.pyplot; raise a sentence if it is not installed."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            f"a figure needs matplotlib; {error.name} is not installed. "
            "Install it with: pip install 'dcgs[plot]'."
        ) from error
    return plt


def _check(runs: Mapping[str, Columns], x: str, measures: Sequence[str]) -> None:
    one_of(*COSTS)(x, "x")
    known = [name for name in MEASURES if all(name in columns for columns in runs.values())]
    for measure in measures:
        one_of(*known)(measure, "y")
    if "local_loss" in measures and not {"relative", "worst_loss"} & set(measures):
        raise ValueError(
            "local_loss must stand beside worst_loss or relative: alone it says nothing about agreement; "
            f"got y={list(measures)!r}."
        )


def _curve(axes: Axes, x: NDArray[Any], y: NDArray[Any], label: str, place: int) -> None:
    shown = np.where(y > 0.0, y, np.nan)  # a logarithmic axis has no zero
    look: dict[str, Any] = {"color": COLORS[place % len(COLORS)], "linestyle": DASHES[place % len(DASHES)]}
    axes.plot(x, shown, label=label, marker="." if len(x) < _FEW else "", markersize=4.0, **look)


def _thousands(axes: Axes, x: str) -> None:
    """Label large counts with k, M and G."""
    if x in ("bytes", "lmo_calls", "messages"):
        from matplotlib.ticker import EngFormatter

        axes.xaxis.set_major_formatter(EngFormatter(sep=""))
