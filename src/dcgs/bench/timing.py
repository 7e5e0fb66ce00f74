"""``dcgs bench time``: what the runs of ``dcgs bench rounds`` take in seconds over a link, and the pool.

The time of a run is the time of the slowest agent of each round, one core for each agent, plus the bytes of
the busiest agent of each round over its link, plus the latency of each round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

from dcgs.bench.entries import GOAL, Entry
from dcgs.bench.instances import Instance, instance
from dcgs.bench.pooled import Pooled, pool
from dcgs.bench.ranking import TimeCost, count_ratios, time_cost, time_spent
from dcgs.bench.rounds import Report, RoundsStudy, run_study
from dcgs.link import Link
from dcgs.study import run_in_processes

LEVELS = (1e-2, 1e-3)
"""Relative errors of the worst agent."""
POOL = "pool"
_ROUNDS_OF_POOL = 2  # the data go in, a model comes back


@final
@dataclass(frozen=True)
class Times:
    """The cost of every method, and of the pool, on every instance, at one level; None if not reached.

    ``spent`` is what runs that did not reach the level have spent. ``by_stops``: the costs are those until
    the agents stop at a certified gap of that level.
    """

    level: float
    costs: Mapping[str, Mapping[str, TimeCost | None]]
    spent: Mapping[tuple[str, str], TimeCost] = field(default_factory=dict)
    by_stops: bool = False

    @property
    def until(self) -> str:
        """What the time goes up to, as in "seconds to 1e-03"."""
        return f"{'until the agents stop at' if self.by_stops else 'to'} {self.level:.0e}"

    @property
    def names(self) -> list[str]:
        """All methods, and the pool, in the order in which they first appear."""
        return list(dict.fromkeys(name for row in self.costs.values() for name in row))

    def seconds(self, chosen: str, name: str, link: Link) -> float | None:
        """Return the time of a method on an instance."""
        cost = self.costs[chosen].get(name)
        return None if cost is None else cost.seconds(link)

    def least(self, chosen: str, link: Link) -> float | None:
        """Return the least time of all methods; the pool is not one of them."""
        found = (self.seconds(chosen, name, link) for name in self.names if name != POOL)
        return min((time for time in found if time is not None), default=None)

    def counts(self, name: str, link: Link) -> tuple[int, int, int]:
        """Return on how many instances it takes the least time, at most 20 % more, or reaches the level."""
        ratios = []
        for chosen in self.costs:
            own, least = self.seconds(chosen, name, link), self.least(chosen, link)
            if own is not None and least is not None:
                ratios.append(own / least)
        return count_ratios(ratios)


def times(study: RoundsStudy, instances: Sequence[Instance], entries: Sequence[Entry], level: float) -> Times:
    """Return the costs of all recorded runs at a level."""
    costs: dict[str, dict[str, TimeCost | None]] = {}
    spent: dict[tuple[str, str], TimeCost] = {}
    for chosen in instances:
        optimum = study.optimum(chosen)
        if optimum is None:
            continue
        row: dict[str, TimeCost | None] = {}
        for one in entries:
            run = study.cache.run(chosen.file, one.file, study.key(chosen, one))
            if run is not None:
                row[one.name] = time_cost(run.columns, optimum, level)
                if row[one.name] is None and optimum.resolves(level):
                    spent[chosen.name, one.name] = time_spent(run.columns)
        pooled = recorded_pool(study, chosen)
        if pooled is not None:
            row[POOL] = pool_cost(pooled, level)
        if row:
            costs[chosen.name] = row
    return Times(level, costs, spent)


def times_until_stop(study: RoundsStudy, instances: Sequence[Instance], entries: Sequence[Entry]) -> Times:
    """Return the costs of all recorded runs until their agents stop at a certified gap of 1e-3."""
    costs: dict[str, dict[str, TimeCost | None]] = {}
    spent: dict[tuple[str, str], TimeCost] = {}
    for chosen in instances:
        stops = {one.name: stop for one in entries if (stop := study.stop(chosen, one, GOAL)) is not None}
        row = {name: stop.cost if stop.stopped else None for name, stop in stops.items()}
        spent |= {(chosen.name, name): stop.cost for name, stop in stops.items() if not stop.stopped}
        pooled = recorded_pool(study, chosen)
        if pooled is not None:
            row[POOL] = pool_cost(pooled, GOAL)
        if row:
            costs[chosen.name] = row
    return Times(GOAL, costs, spent, by_stops=True)


def pool_cost(pooled: Pooled, level: float) -> TimeCost | None:
    """Return the cost of pooling: all data cross the link of one site, which solves alone."""
    seconds = pooled.seconds[f"{level:.0e}"]
    return None if seconds is None else TimeCost(seconds, pooled.bytes, pooled.bytes, _ROUNDS_OF_POOL)


def recorded_pool(study: RoundsStudy, chosen: Instance) -> Pooled | None:
    """Return what pooling takes on an instance, or None if it is not recorded."""
    record = study.cache.read(f"pool/{chosen.file}", _pool_key(study, chosen))
    return None if record is None else Pooled(**record["result"])


def run_times(
    study: RoundsStudy, instances: Sequence[Instance], entries: Sequence[Entry], report: Report
) -> None:
    """Do all runs that are not recorded, the pool's included unless only those until the agents stop."""
    run_study(study, instances, entries, report)
    missing = [
        chosen.spec or chosen.name
        for chosen in instances
        if not study.stops_only and study.optimum(chosen) is not None and recorded_pool(study, chosen) is None
    ]
    for spec, sentence in run_in_processes(study.jobs, partial(run_pool, study), missing):
        report(f"the pool of {spec}", sentence)


def run_pool(study: RoundsStudy, spec: str) -> str | None:
    """Solve an instance on the pooled data and record the times; return a sentence if that raised."""
    chosen = instance(spec)
    optimum = study.optimum(chosen)
    assert optimum is not None
    try:
        found = pool(chosen.make(study.seed), optimum, LEVELS, study.seconds * chosen.time_factor)
    except Exception as error:
        return f"failed, and is not recorded: {type(error).__name__}: {error}"
    study.cache.write(f"pool/{chosen.file}", _pool_key(study, chosen), found.to_json())
    return None


def times_left(study: RoundsStudy, instances: Sequence[Instance]) -> int:
    """Return how many pools are to be done."""
    return 0 if study.stops_only else sum(recorded_pool(study, chosen) is None for chosen in instances)


def _pool_key(study: RoundsStudy, chosen: Instance) -> dict[str, Any]:
    return study.key(chosen) | {"levels": [f"{level:.0e}" for level in LEVELS], "seconds": study.seconds}
