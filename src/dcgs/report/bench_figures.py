"""Figures of benchmarks: seconds of every method over three links, and how cost grows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure

from dcgs.bench.entries import ENTRIES
from dcgs.bench.timing import POOL, Times
from dcgs.link import LINKS
from dcgs.report.figures import COLORS

_MARKERS = "osD^vP*X<>"


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
            look: dict[str, Any] = {"marker": _MARKERS[place % len(_MARKERS)]}
            look |= {"facecolors": "none"} if method == POOL else {}
            color = "0.4" if method == POOL else (*COLORS, "0.55")[(place - 1) % (len(COLORS) + 1)]
            points = [(x, y) for x, y in drawn if x is not None]
            axes.scatter(
                [x for x, _ in points],
                [y for _, y in points],
                s=26,
                label=method,
                edgecolors=color,
                **(look if method == POOL else look | {"color": color}),
            )
        axes.set_xscale("log")
        axes.set_title(f"{name}: {link}, {1e3 * link.latency:g} ms a round")
        axes.set_xlabel("seconds")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
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
        for line, (measure, about) in enumerate(measures.items()):
            axes = panels[line][column]
            for done, marker in ((True, "o"), (False, "x")):
                part = [row for row in own if row["certified"] == done]
                axes.plot(
                    [row["size"] for row in part], [row[measure] for row in part], marker, color=COLORS[0]
                )
            axes.plot([row["size"] for row in own], [row[measure] for row in own], color=COLORS[0])
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.grid(alpha=0.25)
            axes.spines[["top", "right"]].set_visible(False)
            if column == 0:
                axes.set_ylabel(about)
        panels[-1][column].set_xlabel(quantity)
    figure.suptitle("FastDCGS to a certified gap; × ended at its time limit", fontsize=10)
    return figure
