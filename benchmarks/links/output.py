"""The results as tables and as a figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from dcgs.curves import COLORS, DASHES
from dcgs.report.numbers import short_number

MEGA = 1e6
_KILO = 1e3
_COLORS = (*COLORS, "#882255", "#999933")


def tables(results: Mapping[str, Any]) -> str:
    """Return all tables in Markdown."""
    runs = results["runs"]
    parts = [
        "Bare exchange with all neighbors:",
        table(
            ["message", "seconds", "ideal", "ratio", "bytes on the wire over bytes sent"],
            [_exchange(row) for row in results["exchange"]],
        ),
        "Time and bytes:",
        table(
            [
                "method",
                "seconds",
                "rounds",
                "waiting, mean (most)",
                "predicted seconds",
                "with a core each: seconds",
                "waiting",
                "MB an agent",
                "on the wire",
            ],
            [_time(run) for run in runs],
        ),
        "Losses at the end, on everyone's ratings, but for local_loss, each agent's on its own:",
        table(
            ["method", "iterations", "oracle calls or projections", "worst_loss", "mean_loss", "local_loss"],
            [_loss(run) for run in runs],
        ),
    ]
    return "\n\n".join(parts) + "\n"


def figure(results: Mapping[str, Any]) -> Figure:
    """Draw the worst agent's loss (lines) and the paper's (dots) against seconds, measured and derived."""
    drawn = Figure(figsize=(11.0, 5.6), layout="constrained")
    FigureCanvasAgg(drawn)
    left, right = drawn.subplots(1, 2, sharey=True)
    for axes, across in ((left, "seconds"), (right, "own_core")):
        for place, run in enumerate(results["runs"]):
            _draw(axes, run["history"], across, place, _name(run))
        axes.set_yscale("log")
        axes.set_xlim(left=0)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    cores = results["environment"]["machine"]["cores"]
    left.set_title(f"as measured: {results['agents']} agents on {cores} cores", fontsize=10)
    right.set_title("derived: every agent with a core of its own", fontsize=10)
    left.set_xlabel("seconds")
    right.set_xlabel("CPU seconds of the slowest agent, and bytes over the speed of the uplink")
    left.set_ylabel("loss")
    drawn.legend(*left.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    drawn.suptitle(
        f"{results['problem']}, {results['link']} uplinks\n"
        "lines: worst_loss, the worst agent's model on everyone's data; "
        "thin dots: local_loss, each agent's on its own (the paper's)",
        fontsize=10,
    )
    return drawn


def _name(run: Mapping[str, Any]) -> str:
    return str(run["label"] if run["iterations"] else f"{run['label']} (no iteration finished)")


def _draw(axes: Axes, history: Mapping[str, Sequence[float]], across: str, place: int, label: str) -> None:
    color, style = _COLORS[place % len(_COLORS)], DASHES[place % len(DASHES)]
    xs = history[across]
    axes.plot(xs, history["worst_loss"], label=label, color=color, linestyle=style, marker="o", markersize=3)
    axes.plot(xs, history["local_loss"], color=color, linestyle=":", linewidth=0.9, marker=".", markersize=2)


def _exchange(row: Mapping[str, Any]) -> list[str]:
    return [
        f"{row['bytes'] / MEGA:.3g} MB",
        f"{row['seconds']:.3f}",
        f"{row['ideal']:.3f}",
        f"{row['ratio']:.2f}",
        f"{row['wire_over_bytes']:.4f}",
    ]


def _time(run: Mapping[str, Any]) -> list[str]:
    share, alone = run["waiting_share"], run["own_core"]
    return [
        run["label"],
        f"{run['seconds']:.1f}",
        str(run["rounds"]),
        f"{share['mean']:.0%} ({share['most']:.0%})",
        f"{run['predicted']['seconds']:.1f}",
        f"{alone['seconds']:.1f}",
        f"{alone['waiting_share']:.1%}",
        f"{max(run['bytes']) / MEGA:,.0f}",
        overhead(run["bytes"], run["wire"]),
    ]


def overhead(counted: Sequence[int], wire: Sequence[int]) -> str:
    """Return by how much more crossed the wire than was counted, least and most of all agents.

    It is a share, or kilobytes if it is more than all that was counted: heartbeat messages of an agent that
    sends next to nothing.

    >>> overhead([1000, 1000], [1002, 1010]), overhead([0], [5]), overhead([352, 352], [45_000, 84_000])
    ('+0.2 to 1.0%', '–', '+45 to 84 kB')
    """
    if not all(counted):
        return "–"
    extra = [on - of for on, of in zip(wire, counted, strict=True)]
    if any(on > of for on, of in zip(extra, counted, strict=True)):
        return f"+{min(extra) / _KILO:.0f} to {max(extra) / _KILO:.0f} kB"
    more = [100.0 * (on / of - 1.0) for on, of in zip(wire, counted, strict=True)]
    return f"+{min(more):.1f} to {max(more):.1f}%"


def _loss(run: Mapping[str, Any]) -> list[str]:
    last = {name: column[-1] for name, column in run["history"].items()}
    return [
        run["label"],
        str(run["iterations"]),
        f"{max(run['lmo_calls'], run['projections']):,}",
        *(short_number(last[name]) for name in ("worst_loss", "mean_loss", "local_loss")),
    ]


def save(figure: Figure, path: Path) -> Path:
    """Write the figure and return its path; the folder is created if it does not exist."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=130)
    return path


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown; all columns but the first are numbers."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
