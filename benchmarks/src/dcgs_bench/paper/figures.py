"""Figures of the experiments of a study: the paper's panels, and measures on all data."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogFormatterSciNotation, LogLocator, NullLocator
from numpy.typing import NDArray

from dcgs.link import Link
from dcgs.report.figures import STYLE
from dcgs_bench.figures import line
from dcgs_bench.paper.results import Curve, Findings, Measure, PaperStudy

_PANEL = (2.6, 2.1)  # inches
_FEW = 30  # curves with fewer points get markers
_DECADE = 10.0

_ACROSS = {
    "lmo_calls": "oracle calls, maximum over agents",
    "rounds": "rounds of communication",
    "bytes": "bytes sent, maximum over agents",
    "time": "modeled seconds, links of {link}",
}


def study_figures(study: PaperStudy) -> dict[str, Figure]:
    """Return all figures of a study by the name of their file, without its ending."""
    drawn = {}
    for findings in study.findings:
        drawn[f"{findings.name}-paper"] = paper_figure(findings, study.link)
        drawn[f"{findings.name}-all-data"] = all_data_figure(findings, study.link)
    return drawn


def paper_figure(findings: Findings, link: Link) -> Figure:
    """Draw the paper's two panels, and under each the same with the worst agent's loss on all data."""
    losses, across = findings.measures[:2], ("lmo_calls", "rounds")
    return _panels(findings, link, [[(x, loss) for x in across] for loss in losses], same_y=True)


def all_data_figure(findings: Findings, link: Link) -> Figure:
    """Draw every measure on all data against oracle calls, rounds, bytes and modeled time."""
    return _panels(findings, link, [[(x, measure) for x in _ACROSS] for measure in findings.measures[1:]])


def _panels(
    findings: Findings, link: Link, panels: Sequence[Sequence[tuple[str, Measure]]], same_y: bool = False
) -> Figure:
    with rc_context(STYLE):
        rows, columns = len(panels), len(panels[0])
        figure = Figure((_PANEL[0] * columns, _PANEL[1] * rows + 0.9), layout="constrained")
        grid = figure.subplots(rows, columns, sharex="col", sharey="all" if same_y else "row", squeeze=False)
        for row, row_axes in zip(panels, grid, strict=True):
            for (across, measure), axes in zip(row, row_axes, strict=True):
                _draw(axes, findings, link, across, measure.key)
            paper = " (the paper's loss)" if measure.key == "local_loss" else ""
            row_axes[0].set_ylabel(fill(measure.label + paper, 30) + f"\n{measure.symbol}")
            alike = panels if same_y else [row]
            _scale(row_axes[0], _span(findings, [drawn.key for row in alike for _, drawn in row]))
        for (across, _), axes in zip(panels[-1], grid[-1], strict=True):
            axes.set_xlabel(_ACROSS[across].format(link=link))
        # The last column has all curves; that of oracle calls lacks the methods that make none.
        handles, labels = grid[0, -1].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(panels[0]), frameon=False)
        figure.suptitle("\n".join(filter(None, (findings.title, findings.banner))), fontsize=9.5)
        if findings.banner is not None:
            _watermark(grid.ravel())
        # Laid out once, not for each file: the layout takes most of the time.
        figure.draw_without_rendering()
        figure.set_layout_engine("none")
    return figure


def _draw(axes: Axes, findings: Findings, link: Link, across: str, measure: str) -> None:
    for place, curve in enumerate(findings.curves):
        y = np.asarray(curve.columns[measure], dtype=float)
        shown = np.where(y > 0.0, y, np.nan)  # a logarithmic axis has no zero
        marker = "." if len(y) < _FEW else ""
        x = _x(findings, curve, across, link)
        if across != "lmo_calls" or x.any():  # without oracle calls there is no curve against them
            axes.plot(x, shown, label=curve.label, marker=marker, markersize=4.0, **line(place))
    axes.set_xscale("symlog", linthresh=_first_step(findings, link, across), linscale=1.5)
    axes.set_xlim(left=0)
    axes.xaxis.minorticks_off()


def _scale(axes: Axes, span: float) -> None:
    """Choose a logarithmic y-axis for values over a decade, with enough labels to read them."""
    if span < _DECADE:
        return
    axes.set_yscale("log")
    subs = (1.0, 2.0, 5.0) if span < _DECADE**2 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axes.yaxis.set_major_formatter(LogFormatterSciNotation(minor_thresholds=(np.inf, np.inf)))
    axes.yaxis.set_minor_locator(NullLocator())


def _span(findings: Findings, measures: Iterable[str]) -> float:
    """Return the ratio of the largest to the smallest positive value, over all curves."""
    drawn = np.concatenate([np.ravel(curve.columns[key]) for curve in findings.curves for key in measures])
    positive = drawn[drawn > 0.0]
    return float(positive.max() / positive.min()) if positive.size else 1.0


def _x(findings: Findings, curve: Curve, across: str, link: Link) -> NDArray[np.float64]:
    return findings.time(curve, link) if across == "time" else np.asarray(curve.columns[across], dtype=float)


def _first_step(findings: Findings, link: Link, across: str) -> float:
    """Return the smallest positive x of all curves; below it the axis is linear, so that it shows 0."""
    steps = (_x(findings, curve, across, link) for curve in findings.curves)
    return float(min((x[x > 0.0].min() for x in steps if (x > 0.0).any()), default=1.0))


def _watermark(panels: Iterable[Axes]) -> None:
    """Mark every panel as not showing the real data."""
    centered: dict[str, Any] = {"ha": "center", "va": "center", "rotation": 20.0, "fontsize": 13.0}
    pale: dict[str, Any] = {"color": "0.5", "alpha": 0.35, "zorder": 0}
    for axes in panels:
        axes.text(0.5, 0.5, "look-alike\nnot the real data", transform=axes.transAxes, **centered, **pale)
