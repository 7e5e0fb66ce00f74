"""The performance profile of a comparison of methods."""

from __future__ import annotations

import math

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator, PercentFormatter

from dcgs.bench.contestants import CONTESTANTS
from dcgs.bench.standings import Standings, profile
from dcgs.report.figure import COLORS, STYLES

# A method has its color whoever else is shown; after the colors comes a gray.
_PLACES = [entrant.name for entrant in CONTESTANTS]


def profile_figure(standings: Standings) -> Figure:
    """Draw the share of instances on which each method needs at most τ times the fewest rounds."""
    figure = Figure(figsize=(7.2, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    curves = {name: profile(standings, name) for name in standings.names}
    farthest = max((float(tau[-1]) for tau, _ in curves.values() if tau.size), default=1.0)
    end = 10.0 ** math.ceil(math.log10(1.2 * farthest))
    for name, (tau, share) in curves.items():
        place = _PLACES.index(name)
        axes.step(
            [1.0, *tau, end],
            [0.0, *share, share[-1] if share.size else 0.0],
            where="post",
            label=name,
            color=(*COLORS, "0.55")[place],
            linestyle=STYLES[place % len(STYLES)],
            linewidth=2.0,
        )
    _dress(axes, end)
    of = len(standings.decided())
    axes.set_title(
        f"Rounds to a relative error of {standings.level:.0e} of the worst agent, {of} instances", fontsize=11
    )
    figure.legend(loc="outside right center", frameon=False, fontsize=10)
    return figure


def _dress(axes: Axes, end: float) -> None:
    axes.set_xscale("log")
    axes.set_xlim(0.95, end)  # a line up at τ = 1 is seen beside the axis
    axes.set_ylim(-0.02, 1.02)
    axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=20))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda tau, _: f"{tau:g}"))
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    axes.set_xlabel("τ: at most so many times the fewest rounds", fontsize=11)
    axes.set_ylabel("share of instances", fontsize=11)
    axes.tick_params(labelsize=10)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
