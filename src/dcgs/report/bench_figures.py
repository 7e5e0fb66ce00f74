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

from dcgs.bench.entries import ENTRIES
from dcgs.bench.faults import FaultTable
from dcgs.bench.ranking import Ranking, profile
from dcgs.bench.timing import POOL, Times
from dcgs.link import LINKS
from dcgs.report.figures import COLORS, line

_MARKERS = "osD^vP*X<>"
# Panels in a row of the figure of faults, and its largest error.
_COLUMNS, _LARGEST = 3, 10.0
# Measures of completion: labels, and what the numbers are multiplied by.
_MEASURES = {
    "cpu": ("CPU seconds", 1.0),
    "bytes": ("MB sent by an agent", 1e-6),
    "memory": ("MB of memory", 1e-6),
}


def profile_figure(ranking: Ranking) -> Figure:
    """Draw the share of instances on which each method needs at most τ times the fewest rounds."""
    figure = Figure((7.2, 4.6), layout="constrained")
    axes = figure.subplots()
    curves = {name: profile(ranking, name) for name in ranking.names}
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


def time_figure(times: Times) -> Figure:
    """Draw the seconds of every method and of the pool on every instance, a panel for each link."""
    rows = list(times.costs)
    figure = Figure((10.0, 1.4 + 0.26 * len(rows)), layout="constrained")
    panels = figure.subplots(1, len(LINKS), sharex=True, sharey=True)
    places = list(dict.fromkeys([POOL, *(one.name for one in ENTRIES), *times.names]))
    for axes, (name, link) in zip(panels, LINKS.items(), strict=True):
        for method in times.names:
            place = places.index(method)
            drawn = [(times.seconds(chosen, method, link), y) for y, chosen in enumerate(rows)]
            is_pool = method == POOL
            color = "0.4" if is_pool else (*COLORS, "0.55")[(place - 1) % (len(COLORS) + 1)]
            fill = {"facecolors": "none", "edgecolors": color} if is_pool else {"color": color}
            points = [point for point in drawn if point[0] is not None]
            seconds, heights = zip(*points, strict=True) if points else ((), ())
            marker = _MARKERS[place % len(_MARKERS)]
            axes.scatter(seconds, heights, s=26, label=method, marker=marker, **fill)
        axes.set_xscale("log")
        axes.set_title(f"{name}: {link}, {1e3 * link.latency:g} ms a round")
        axes.set_xlabel("seconds")
        _plain(axes)
    panels[0].set_yticks(range(len(rows)), rows)
    panels[0].invert_yaxis()
    figure.suptitle(f"Seconds to a relative error of {times.level:.0e} of the worst agent", fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return figure


def growth_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw wall-clock seconds, bytes and memory against each quantity that grows, one row of panels each."""
    quantities = list(dict.fromkeys(row["grows"] for row in rows))
    measures = {"seconds": "seconds in all", "bytes": "bytes, busiest agent", "memory": "peak memory, MB"}
    figure = Figure((2.7 * len(quantities), 6.0), layout="constrained")
    panels = figure.subplots(len(measures), len(quantities), squeeze=False, sharex="col")
    for column, quantity in enumerate(quantities):
        own = [row for row in rows if row["grows"] == quantity]
        for down, (measure, about) in enumerate(measures.items()):
            axes = panels[down][column]
            for done, marker in ((True, "o"), (False, "x")):
                part = [row for row in own if row["certified"] == done]
                axes.plot(
                    [row["size"] for row in part], [row[measure] for row in part], marker, color=COLORS[0]
                )
            axes.plot([row["size"] for row in own], [row[measure] for row in own], color=COLORS[0])
            axes.set_xscale("log")
            axes.set_yscale("log")
            _plain(axes)
            if column == 0:
                axes.set_ylabel(about)
        panels[-1][column].set_xlabel(quantity)
    figure.suptitle("FastDCGS to a certified gap; × ended at its time limit", fontsize=10)
    return figure


def faults_figure(table: FaultTable) -> Figure:
    """Draw a panel for each fault: error against simulated seconds, on the first instance, first seed."""
    chosen, count = table.instances[0], len(table.conditions)
    rows = math.ceil(count / _COLUMNS)
    figure = Figure((9.0, 2.3 * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, _COLUMNS, sharey=True, squeeze=False).ravel()
    looks = _looks(one.name for one in table.entries)
    for axes, condition in zip(panels, table.conditions, strict=False):
        for one in table.entries:
            trials = table.trials(chosen, one, condition)
            if not trials or not trials[0].curve:
                continue
            seconds = [condition.seconds * rounds for rounds, _ in trials[0].curve]
            errors = [min(error, _LARGEST) for _, error in trials[0].curve]
            axes.plot(seconds, errors, label=one.name, **looks[one.name])
        axes.set_xscale("symlog", linthresh=10.0)
        axes.set_yscale("log")
        axes.set_ylim(5e-4, _LARGEST)
        axes.yaxis.set_major_locator(LogLocator(numticks=6))
        axes.set_title(condition.about, fontsize=9)
        axes.set_xlabel("simulated seconds", fontsize=9)
    for axes in panels[count:]:
        axes.set_visible(False)
    handles = {
        label: handle
        for axes in panels[:count]
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=4, frameon=False)
    figure.suptitle(f"Relative error of the worst agent, {chosen.name}")
    return figure


def completion_growth_figure(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Return a figure with a column for each number that grows, and a row for each measure."""
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


def _looks(names: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return color and dashes of each method.

    A built-in method has the same in every figure; methods outside the package come after them.
    """
    known = dict.fromkeys([*(one.name for one in ENTRIES), *names])
    return {name: line(place, (*COLORS, "0.55")) for place, name in enumerate(known)}


def _plain(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
