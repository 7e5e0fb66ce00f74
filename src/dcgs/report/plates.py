"""Print-ready figures of a study: for every experiment one with the losses, one with the other measures."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullLocator
from numpy.typing import NDArray

from dcgs.experiments.link import Link
from dcgs.experiments.study import Curve, Findings, Measure, Study
from dcgs.report.figure import COLORS, STYLES

_STYLE: dict[Any, Any] = {
    "font.size": 8.0,
    "axes.titlesize": 8.5,
    "axes.labelsize": 8.0,
    "legend.fontsize": 8.0,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.25,
    "grid.linewidth": 0.5,
    "lines.linewidth": 1.5,
    "pdf.fonttype": 42,  # text stays text
}
_PANEL = (2.6, 2.1)  # inches

_FEW = 30
_DECADE = 10.0

_ACROSS = {
    "lmo_calls": "oracle calls, busiest agent",
    "rounds": "rounds of communication",
    "bytes": "bytes sent, busiest agent",
    "time": "modeled seconds, links of {link}",
}


def plates(study: Study) -> dict[str, Figure]:
    """Return all figures of a study by the name of their file, without its ending."""
    drawn = {}
    for findings in study.findings:
        drawn[f"{findings.name}-paper"] = losses_plate(findings, study.link)
        drawn[f"{findings.name}-honest"] = honest_plate(findings, study.link)
    return drawn


def losses_plate(findings: Findings, link: Link) -> Figure:
    """Draw the paper's two panels, and under each the same with the worst agent's loss on all data."""
    losses, across = findings.measures[:2], ("lmo_calls", "rounds")
    return _plate(findings, link, [[(x, loss) for x in across] for loss in losses], same_y=True)


def honest_plate(findings: Findings, link: Link) -> Figure:
    """Draw every honest measure against oracle calls, rounds, bytes and modeled time."""
    across = ("lmo_calls", "rounds", "bytes", "time")
    return _plate(findings, link, [[(x, measure) for x in across] for measure in findings.measures[1:]])


def encoded(figure: Figure, kind: str) -> bytes:
    """Return the figure as a PNG or PDF that has no date in it."""
    buffer = io.BytesIO()
    metadata = {"CreationDate": None} if kind == "pdf" else None
    with rc_context(_STYLE):
        figure.savefig(buffer, format=kind, dpi=200, metadata=metadata)
    return buffer.getvalue()


def _plate(
    findings: Findings, link: Link, panels: Sequence[Sequence[tuple[str, Measure]]], same_y: bool = False
) -> Figure:
    with rc_context(_STYLE):
        rows, columns = len(panels), len(panels[0])
        figure = Figure(figsize=(_PANEL[0] * columns, _PANEL[1] * rows + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.subplots(rows, columns, sharex="col", sharey="all" if same_y else "row", squeeze=False)
        for line, line_axes in zip(panels, grid, strict=True):
            for (across, measure), axes in zip(line, line_axes, strict=True):
                _draw(axes, findings, link, across, measure.key)
            line_axes[0].set_ylabel(fill(_named(measure), 30) + f"\n{measure.symbol}")
            alike = panels if same_y else [line]
            _scale(line_axes[0], _span(findings, [drawn.key for row in alike for _, drawn in row]))
        for (across, _), axes in zip(panels[-1], grid[-1], strict=True):
            axes.set_xlabel(_ACROSS[across].format(link=link))
        handles, labels = grid[0, 0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(panels[0]), frameon=False)
        figure.suptitle("\n".join(filter(None, (findings.title, findings.banner))), fontsize=9.5)
        if findings.banner is not None:
            _stamp(grid.ravel())
        # Laid out once, not for each file: finding room for all labels is what takes the time.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def _named(measure: Measure) -> str:
    return f"{measure.label} (the paper's loss)" if measure.key == "local_loss" else measure.label


def _draw(axes: Axes, findings: Findings, link: Link, across: str, measure: str) -> None:
    for place, curve in enumerate(findings.curves):
        y = np.asarray(curve.columns[measure], dtype=float)
        axes.plot(
            _x(findings, curve, across, link),
            np.where(y > 0.0, y, np.nan),  # a logarithmic axis has no zero, and a linear one here needs none
            label=curve.label,
            color=COLORS[place % len(COLORS)],
            linestyle=STYLES[place % len(STYLES)],
            marker="." if len(y) < _FEW else "",  # else the line alone shows where it was measured
            markersize=4.0,
        )
    axes.set_xscale("symlog", linthresh=_first_step(findings, link, across), linscale=1.5)
    axes.set_xlim(left=0)
    axes.xaxis.minorticks_off()


def _scale(axes: Axes, span: float) -> None:
    """Scale a y-axis, and those that share it, so that it has labels enough to read values off."""
    if span < _DECADE:
        return
    axes.set_yscale("log")
    subs = (1.0, 2.0, 5.0) if span < _DECADE**2 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))
    axes.yaxis.set_minor_locator(NullLocator())


def _span(findings: Findings, measures: Iterable[str]) -> float:
    """Return how many times the smallest positive value the largest is, over all curves."""
    drawn = np.concatenate([np.ravel(curve.columns[key]) for curve in findings.curves for key in measures])
    positive = drawn[drawn > 0.0]
    return float(positive.max() / positive.min()) if positive.size else 1.0


def _x(findings: Findings, curve: Curve, across: str, link: Link) -> NDArray[np.float64]:
    return findings.time(curve, link) if across == "time" else np.asarray(curve.columns[across], dtype=float)


def _first_step(findings: Findings, link: Link, across: str) -> float:
    """Return the smallest positive x of all curves: below it the axis is linear, so that 0 has a place."""
    steps = (_x(findings, curve, across, link) for curve in findings.curves)
    return float(min((x[x > 0.0].min() for x in steps if (x > 0.0).any()), default=1.0))


def _stamp(axes: Iterable[Axes]) -> None:
    """Write over every panel that these are not the real data."""
    for panel in axes:
        panel.text(
            0.5,
            0.5,
            "look-alike\nnot the real data",
            transform=panel.transAxes,
            ha="center",
            va="center",
            rotation=20.0,
            fontsize=13.0,
            color="0.5",
            alpha=0.35,
            zorder=0,
        )
