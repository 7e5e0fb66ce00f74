"""What ``dcgs bench faults`` writes: tables in Markdown, and all numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from dcgs.bench import record
from dcgs.bench.entries import OURS
from dcgs.bench.faults import LEVELS, NONE, Condition, FaultTable, FaultTrial
from dcgs.bench.instances import Instance
from dcgs.bench.record import NOT_REACHED, TextTable

LEGEND = (
    "Relative error is (worst_loss − f*)/(f(x⁰) − f*), for the worst agent's model on everyone's data. "
    "Each cell has the numbers to 1e-2 and to 1e-3; with several seeds they are medians. kB are those of "
    "the busiest agent. A step of an agent takes one simulated second, that of the slow agent five; "
    "messages take none. Methods that need all messages run with allow_faults=True: a message that is "
    "missing is replaced by the last one. The last column has what became of a run that did not reach "
    "1e-3. slow: the error still falls at the limit. stalls: it no longer does. diverges: it is above that "
    "of the start. refuses: there is no such run."
)


def instance_table(table: FaultTable, chosen: Instance) -> TextTable:
    """Return rounds, kB and simulated seconds of every method under every condition."""
    head = ["fault", "method", "rounds", "kB", "simulated s", ""]
    rows = []
    for condition in table.conditions:
        for place, one in enumerate(table.entries):
            trials = table.trials(chosen, one, condition)
            if trials:
                first = condition.about if place == 0 else ""
                rows.append([first, one.name, *_cells(trials, condition)])
    return TextTable.plain(f"{chosen.name}: {chosen.about}", head, rows)


def summary_table(table: FaultTable, chosen: Instance) -> TextTable:
    """Return simulated seconds to 1e-3, faults × methods, or in a word what became of the runs."""
    rows = []
    for condition in table.conditions:
        cells = [condition.about]
        for one in table.entries:
            *_, seconds, outcome = _cells(table.trials(chosen, one, condition), condition)
            cells.append(outcome or seconds.rpartition(" / ")[2])
        rows.append(cells)
    title = f"{chosen.name}: simulated seconds to a relative error of 1e-3 of the worst agent"
    return TextTable.plain(title, ["fault", *(one.name for one in table.entries)], rows)


def ratio_table(table: FaultTable) -> TextTable:
    """Return FastDCGS's simulated seconds to 1e-3 over those without faults: median, least and most."""
    head = ["fault", "runs", "median", "least", "most"]
    rows = []
    ours = [one for one in table.entries if one.name == OURS]
    for condition in table.conditions:
        ratios = [ratio for one in ours for ratio in table.ratios(one, condition)]
        if ratios and condition.name != NONE:
            numbers = [f"{number:.2f}" for number in (median(ratios), min(ratios), max(ratios))]
            rows.append([condition.about, str(len(ratios)), *numbers])
    return TextTable.plain(
        f"{OURS}: simulated seconds to 1e-3 over those of a run without faults", head, rows
    )


def markdown(table: FaultTable, notes: Sequence[str]) -> str:
    """Return the report."""
    made = record.environment(table.study.seeds[0])
    parts = [
        "# Methods under faults",
        f"`{made['command']}`, seeds {list(table.study.seeds)}, dcgs {made['versions']['dcgs']}; at most "
        f"{table.study.rounds} rounds and {table.study.seconds:g} seconds a run.",
        LEGEND,
        ratio_table(table).markdown(),
        "![Error of the worst agent under every fault](faults.png)",
    ]
    for chosen in table.instances:
        parts += [f"## {chosen.name}", chosen.about, summary_table(table, chosen).markdown()]
        parts += [instance_table(table, chosen).markdown()]
    return "\n\n".join([*parts, *record.bullets(notes)]) + "\n"


def as_json(table: FaultTable) -> str:
    """Return all numbers."""
    trials = [
        {"instance": c.name, "method": e.name, "fault": f.name, "seed": seed, "outcome": trial.outcome}
        | {name: value for name, value in asdict(trial).items() if name != "curve"}
        for c in table.instances
        for e in table.entries
        for f in table.conditions
        for seed in table.study.seeds
        if (trial := table.study.trial(c, e, f, seed)) is not None
    ]
    optima = {
        f"{c.name}, seed {seed}": asdict(optimum)
        for c in table.instances
        for seed in table.study.seeds
        if (optimum := table.study.optimum(c, seed)) is not None
    }
    ratios = {
        f"{e.name}, {f.name}": {"runs": len(found), "median": median(found)}
        for e in table.entries
        for f in table.conditions
        if (found := table.ratios(e, f))
    }
    numbers: dict[str, Any] = {
        "environment": record.environment(table.study.seeds[0]),
        "rounds": table.study.rounds,
        "seconds": table.study.seconds,
        "optima": optima,
        "ratios to 1e-3": ratios,
        "trials": trials,
    }
    return json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"


def _cells(trials: Sequence[FaultTrial], condition: Condition) -> list[str]:
    """Return the cells of a row: rounds, kB and simulated seconds at both levels, and what became of it."""
    found = [[trial.cost(level) for trial in trials] for level in LEVELS]
    known = [[cost for cost in costs if cost is not None] for costs in found]
    all_there = [costs if len(costs) == len(trials) else [] for costs in known]
    rounds = [median(cost[0] for cost in costs) if costs else None for costs in all_there]
    kilobytes = [median(cost[1] for cost in costs) / 1e3 if costs else None for costs in all_there]
    seconds = [None if number is None else condition.seconds * number for number in rounds]
    if not trials:
        return [NOT_REACHED] * 3 + [""]
    outcomes = sorted({trial.outcome for trial in trials} - {"reached"})
    columns = (rounds, kilobytes, seconds)
    return [*(" / ".join(map(_number, column)) for column in columns), ", ".join(outcomes)]


def _number(value: float | None) -> str:
    return NOT_REACHED if value is None else f"{value:,.0f}"
