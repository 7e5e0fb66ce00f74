"""What ``dcgs bench time`` writes: tables of seconds for each link, and all numbers as JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

from dcgs.bench import record
from dcgs.bench.instances import Instance
from dcgs.bench.ranking import TimeCost
from dcgs.bench.record import NOT_REACHED, TextTable
from dcgs.bench.rounds import RoundsStudy
from dcgs.bench.timing import POOL, Times, recorded_pool
from dcgs.link import LINKS, Link

_COUNTED = ("least", "within 20 %", "reached")
LEGEND = (
    "Seconds until the agents stop by themselves at a certified gap of 1e-3; then, from another run, seconds "
    "until the worst agent's model has this relative error on everyone's data. The time of a run is "
    "the computing of the slowest agent of each round, measured with one core for each agent, plus the bytes "
    "of the busiest agent of each round over one link, plus the latency of each round. `pool` sends all "
    "data to one site over such a link and solves there: by FISTA, or by scikit-learn's coordinate descent "
    "where that is faster. The least time of all methods is bold, and that of the pool where it is less "
    "than all of them. > is a run that did not reach the level within its limits, and the time that it took "
    "so far: a run ends at its limit of seconds or rounds, or when it has taken more than a multiple of the "
    "time of FastDCGS to 1e-3 over each link; the last does not hold for runs until the agents stop. — is a "
    "run that failed, or a level for which f* is not known accurately enough."
)


def time_table(times: Times, name: str, link: Link) -> TextTable:
    """Return seconds over a link, instances × methods."""
    title = f"{name} ({_about(link)}): seconds {times.until}"
    rows = []
    for chosen in times.costs:
        least = times.least(chosen, link)
        cells = []
        for method in times.names:
            own = times.seconds(chosen, method, link)
            best = own is not None and (least is None or own <= least)
            spent = times.spent.get((chosen, method))
            missed = NOT_REACHED if spent is None else f">{_seconds(spent.seconds(link))}"
            cells.append((missed if own is None else _seconds(own), best))
        rows.append([(chosen, False), *cells])
    return TextTable(title, [f"{name}: s {times.until}", *times.names], rows)


def work_table(times: Times) -> TextTable:
    """Return the computing and the bytes of every method, instances × methods; they hold for every link."""
    rows = []
    for chosen, row in times.costs.items():
        costs = map(row.get, times.names)
        texts = (cost and f"{_seconds(cost.computing)} s, {_size(cost.bytes)}" for cost in costs)
        rows.append([chosen, *(text or NOT_REACHED for text in texts)])
    title = f"computing of the slowest agent and bytes of the busiest, {times.until}"
    return TextTable.plain(title, [f"computing and bytes {times.until}", *times.names], rows)


def counts_table(times: Times) -> TextTable:
    """Return how often each method takes the least time, nearly the least, and reaches the level."""
    rows = []
    for name in times.names:
        if name != POOL:
            each = [times.counts(name, link) for link in LINKS.values()]
            rows.append([name, *(f"{a} / {b} / {c}" for a, b, c in each)])
    head = [f"of {len(times.costs)} instances: least / within 20 % / reached", *LINKS]
    return TextTable.plain(f"how often a method takes the least time {times.until}", head, rows)


def markdown(
    study: RoundsStudy, all_times: Sequence[Times], instances: Sequence[Instance], notes: Sequence[str]
) -> str:
    """Return the report: until agents stop, and to each level, the counts, each link's table and the work."""
    made = record.environment(study.seed)
    machine = made["machine"]
    parts = [
        "# Seconds to an accuracy",
        f"`{made['command']}`, seed {study.seed}, dcgs {made['versions']['dcgs']}, {machine['processor']}, "
        f"{machine['cores']} cores, {study.jobs} runs at a time; at most {study.seconds:g} seconds a run, "
        "times the `time_factor` in `bench/instances.py` and `bench/entries.py`, and at most "
        f"{study.patience or math.inf:g} times the time of FastDCGS over each link.",
        LEGEND,
        "![Seconds to an accuracy, for each link](time.png)",
    ]
    for times in all_times:
        tables = [counts_table(times), *(time_table(times, *each) for each in LINKS.items())]
        until = times.until
        parts += [
            f"## {until[0].upper()}{until[1:]}",
            *(table.markdown() for table in (*tables, work_table(times))),
        ]
    parts += ["## Instances", "\n".join(f"* `{chosen.name}`: {chosen.about}" for chosen in instances)]
    return "\n\n".join([*parts, *record.bullets(notes)]) + "\n"


def as_json(
    study: RoundsStudy, all_times: Sequence[Times], instances: Sequence[Instance], notes: Sequence[str]
) -> str:
    """Return all numbers."""

    def cost(found: TimeCost | None) -> dict[str, float] | None:
        return found and vars(found) | {key: found.seconds(link) for key, link in LINKS.items()}

    def counts(times: Times, link: Link) -> dict[str, dict[str, int]]:
        methods = (name for name in times.names if name != POOL)
        return {name: dict(zip(_COUNTED, times.counts(name, link), strict=True)) for name in methods}

    def costs(times: Times) -> dict[str, Any]:
        return {chosen: {name: cost(x) for name, x in row.items()} for chosen, row in times.costs.items()}

    def all_counts(times: Times) -> dict[str, Any]:
        return {key: counts(times, link) for key, link in LINKS.items()}

    def by_level(numbers: Callable[[Times], dict[str, Any]], stopped: bool) -> dict[str, Any]:
        return {f"{times.level:.0e}": numbers(times) for times in all_times if times.by_stops == stopped}

    pools = {chosen.name: found.to_json() for chosen in instances if (found := recorded_pool(study, chosen))}
    numbers = {
        "environment": record.environment(study.seed),
        "links": {name: vars(link) for name, link in LINKS.items()},
        "seconds": study.seconds,
        "patience": study.patience,
        "jobs": study.jobs,
        "notes": list(notes),
        "stops": by_level(costs, stopped=True),
        "stop_counts": by_level(all_counts, stopped=True),
        "levels": by_level(costs, stopped=False),
        "counts": by_level(all_counts, stopped=False),
        "pool": pools,
    }
    return json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"


def _about(link: Link) -> str:
    return f"{link}, {1e3 * link.latency:g} ms a round"


def _seconds(value: float) -> str:
    return f"{value:.3g}" if value < 100.0 else f"{value:,.0f}"


def _size(count: int) -> str:
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"
