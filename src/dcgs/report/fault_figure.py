"""The figure of ``dcgs bench faults``: the error of the worst agent under every fault."""

from __future__ import annotations

import math

from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from dcgs.bench.entries import ENTRIES
from dcgs.bench.faults_report import FaultTable
from dcgs.report.figures import COLORS, line

_COLUMNS = 3
_LARGEST = 10.0


def faults_figure(table: FaultTable) -> Figure:
    """Draw a panel for each fault: error against simulated seconds, on the first instance, first seed."""
    chosen, count = table.instances[0], len(table.conditions)
    rows = math.ceil(count / _COLUMNS)
    figure = Figure((9.0, 2.3 * rows + 0.8), layout="constrained")
    panels = figure.subplots(rows, _COLUMNS, sharey=True, squeeze=False).ravel()
    places = list(dict.fromkeys([*(one.name for one in ENTRIES), *(one.name for one in table.entries)]))
    for axes, condition in zip(panels, table.conditions, strict=False):
        for one in table.entries:
            trials = table.trials(chosen, one, condition)
            if not trials or not trials[0].curve:
                continue
            seconds = [condition.seconds * rounds for rounds, _ in trials[0].curve]
            errors = [min(error, _LARGEST) for _, error in trials[0].curve]
            axes.plot(seconds, errors, label=one.name, **line(places.index(one.name), (*COLORS, "0.55")))
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
