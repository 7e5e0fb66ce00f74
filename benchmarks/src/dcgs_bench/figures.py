"""Figures of benchmarks: profiles, seconds over links, errors under faults, and how cost grows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import (
    FuncFormatter,
    LogLocator,
    NullFormatter,
    NullLocator,
    PercentFormatter,
    StrMethodFormatter,
)

from dcgs.curves import COLORS, DASHES
from dcgs_bench.entries import ENTRIES
from dcgs_bench.ranking import Ranking


def line(place: int, colors: Sequence[str] = COLORS) -> dict[str, Any]:
    """Return color and dashes of the curve at that place; four times as many curves as colors differ."""
    turn, color = divmod(place, len(colors))
    shift = turn if len(colors) % len(DASHES) == 0 else 0
    return {"color": colors[color], "linestyle": DASHES[(place + shift) % len(DASHES)]}


def profile_figure(ranking: Ranking) -> Figure:
    """Draw the share of instances on which each method needs at most τ times the fewest rounds."""
    figure = Figure((7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    curves = {name: ranking.profile(name) for name in ranking.names}
    farthest = max((float(tau[-1]) for tau, _ in curves.values() if tau.size), default=1.0)
    end = 10.0 ** math.ceil(math.log10(1.2 * farthest))
    looks = _looks(curves)
    for name, (tau, share) in curves.items():
        steps = [1.0, *tau, end], [0.0, *share, share[-1] if share.size else 0.0]
        axes.step(*steps, where="post", label=name, linewidth=2.0, **looks[name])
    axes.set_xscale("log")
    axes.set_xlim(0.95, end)  # a step at τ = 1 is visible beside the axis
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tau, _: f"{tau:g}"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("τ: rounds, as a multiple of the fewest", fontsize=11)
    axes.set_ylabel("share of instances", fontsize=11)
    axes.tick_params(labelsize=10)
    _plain(axes)
    level, of = f"{ranking.level:.0e}", len(ranking.decided())
    axes.set_title(f"Rounds to a relative error of {level} of the worst agent, {of} instances", fontsize=11)
    figure.legend(loc="outside right center", frameon=False, fontsize=10)
    return figure


def growth_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw wall-clock seconds, bytes and memory against each quantity that grows, one row of panels each."""
    texts = {"seconds": "seconds in all", "bytes": "bytes, busiest agent", "memory": "peak memory, MB"}
    measures = {name: (text, 1.0) for name, text in texts.items()}
    return _growth(rows, measures, "FastDCGS to a certified gap; × ended at its time limit")


def completion_growth_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the cost of matrix completion against each number that grows, one row of panels each."""
    measures = {"cpu": ("CPU seconds", 1.0), "bytes": ("MB sent by an agent", 1e-6)}
    measures["memory"] = ("MB of memory", 1e-6)
    sized = [{**row, "size": row[row["grows"]], "certified": True} for row in rows]
    return _growth(sized, measures, "8 iterations of FastDCGS for matrix completion, one number at a time")


def _growth(
    rows: Sequence[Mapping[str, Any]], measures: Mapping[str, tuple[str, float]], title: str
) -> Figure:
    """Draw a column of panels for each quantity that grows; × are runs that were not certified."""
    quantities = list(dict.fromkeys(row["grows"] for row in rows))
    figure = Figure((2.7 * len(quantities), 6.0), layout="constrained")
    panels = figure.subplots(len(measures), len(quantities), squeeze=False, sharex="col", sharey="row")
    for column, quantity in enumerate(quantities):
        grown = [row for row in rows if row["grows"] == quantity]
        sizes = [row["size"] for row in grown]
        for down, (measure, (about, unit)) in enumerate(measures.items()):
            axes, values = panels[down][column], [unit * row[measure] for row in grown]
            axes.loglog(sizes, values, color=COLORS[0])
            for row, value in zip(grown, values, strict=True):
                axes.plot(row["size"], value, "o" if row["certified"] else "x", color=COLORS[0])
            axes.set_xticks(sizes, list(map(_short, sizes)))
            axes.xaxis.set_minor_locator(NullLocator())
            axes.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axes.yaxis.set_minor_formatter(NullFormatter())
            _plain(axes)
            if column == 0:
                axes.set_ylabel(about)
        panels[-1][column].set_xlabel(quantity)
    figure.suptitle(title, fontsize=10)
    return figure


def _short(value: int) -> str:
    """Return a number with k for thousands and M for millions.

    >>> _short(20_000), _short(8)
    ('20k', '8')
    """
    if value >= 1_000_000:
        return f"{value / 1e6:g}M"
    return f"{value / 1e3:g}k" if value >= 1_000 else str(value)


def _looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return color and dashes of each method.

    A built-in method has the same in every figure; methods outside the package come after them.
    """
    known = dict.fromkeys([*(entry.name for entry in ENTRIES), *names])
    return {name: line(place, (*COLORS, "0.55")) for place, name in enumerate(known)}


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
