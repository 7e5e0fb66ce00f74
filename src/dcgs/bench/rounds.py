"""``dcgs bench rounds``: run every entry on every instance, and find the cost to accuracy of each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any, TypeAlias, final

from dcgs.bench.entries import Adapted, Entry, SparseObservation, entry
from dcgs.bench.instances import Instance, instance
from dcgs.bench.optimum import TARGET, Optimum, solve
from dcgs.bench.ranking import LEVELS, Trial, cost_to_accuracy
from dcgs.datasets import DataNotFoundError
from dcgs.front import Snapshot, versions
from dcgs.runtime import Lockstep
from dcgs.study import Budget, Problem, ResultCache, execute, run_in_processes

Report: TypeAlias = Callable[[str, str | None], None]
"""Called with the name of every piece of work that is done, and with a sentence if it has no result."""

GOAL = 1e-3
"""The level that the settings of a grid are tried for."""


@final
@dataclass(frozen=True)
class RoundsStudy:
    """The result cache, and what results depend on beside instance and entry."""

    cache: ResultCache
    seed: int = 0
    seconds: float = 40.0
    jobs: int = 1

    def key(self, chosen: Instance, one: Entry | None = None) -> dict[str, Any]:
        """Return all that a run depends on; without an entry, all that f* depends on."""
        key = {"instance": chosen.about, "seed": self.seed, "versions": versions()}
        if one is None:
            return key | {"iterations": chosen.reference, "target": TARGET}
        limits = {
            name: limit for name, limit in asdict(self.budget(chosen, one)).items() if limit is not None
        }
        return key | {"method": repr(one.method), "level": _last_level(one)} | limits

    def budget(self, chosen: Instance, one: Entry) -> Budget:
        """Return the limits of a run. A setting gets the rounds that its default settings take to 1e-3."""
        default = self.trial(chosen, entry(one.family)) if one.setting else None
        cost = None if default is None else default.costs[GOAL]
        rounds = chosen.rounds if cost is None else max(1, cost.rounds)
        return Budget(rounds=rounds, seconds=self.seconds * chosen.time_factor * one.time_factor)

    def optimum(self, chosen: Instance) -> Optimum | None:
        """Return f*, or None if it is not recorded."""
        record = self.cache.read(f"optima/{chosen.file}", self.key(chosen))
        return None if record is None else Optimum(**record["result"])

    def has_trial(self, chosen: Instance, one: Entry) -> bool:
        """Return whether the run of an entry on an instance is recorded, and f* with it."""
        recorded = self.cache.has_run(chosen.file, one.file, self.key(chosen, one))
        return recorded and self.optimum(chosen) is not None

    def trial(self, chosen: Instance, one: Entry) -> Trial | None:
        """Return what an entry spent on an instance, or None if its run is not recorded."""
        optimum = self.optimum(chosen)
        run = self.cache.run(chosen.file, one.file, self.key(chosen, one))
        if run is None or optimum is None:
            return None
        work, column = ("projections",) * 2 if one.method.projects else ("oracle calls", "lmo_calls")
        return Trial(
            chosen.name,
            one.name,
            work,
            run.end,
            run.rounds,
            run.seconds,
            float(optimum.relative(run.columns["worst_loss"]).min()),
            cost_to_accuracy(run.columns, optimum, column),
            " ".join(run.notes),
        )


def run_study(
    study: RoundsStudy, instances: Sequence[Instance], entries: Sequence[Entry], report: Report
) -> None:
    """Find f* of all instances and run all entries on them, except for what is recorded.

    An instance is left out if its data or f* cannot be found. A run that raises is not recorded, so the next
    call tries it again. ``report`` is called for both.
    """
    missing = [_spec(chosen) for chosen in instances if study.optimum(chosen) is None]
    for spec, sentence in run_in_processes(study.jobs, partial(find_optimum, study), missing):
        report(f"f* of {spec}", sentence)
    known = [chosen for chosen in instances if study.optimum(chosen) is not None]
    for with_setting in (False, True):  # the rounds of the default settings limit those of the grid
        runs = [
            (_spec(chosen), _spec(one))
            for chosen in known
            for one in entries
            if bool(one.setting) == with_setting and not study.has_trial(chosen, one)
        ]
        for (problem, method), sentence in run_in_processes(study.jobs, partial(run_entry, study), runs):
            report(f"{method} on {problem}", sentence)


def runs_left(study: RoundsStudy, instances: Sequence[Instance], entries: Sequence[Entry]) -> int:
    """Return how many optima and runs are not recorded."""
    optima = sum(study.optimum(chosen) is None for chosen in instances)
    return optima + sum(not study.has_trial(chosen, one) for chosen in instances for one in entries)


def find_optimum(study: RoundsStudy, spec: str) -> str | None:
    """Find f* of an instance and record it; return a sentence if it cannot be found."""
    chosen = instance(spec)
    try:
        found = solve(_problem(spec, study.seed), chosen.reference)
    except DataNotFoundError as error:
        return f"left out, because its data are missing: {error}"
    except ValueError as error:
        return f"left out, because f* cannot be found: {error}"
    study.cache.write(f"optima/{chosen.file}", study.key(chosen), asdict(found))
    return None


def run_entry(study: RoundsStudy, specs: tuple[str, str]) -> str | None:
    """Run an entry on an instance and record it; return a sentence if the run raised."""
    chosen, one = instance(specs[0]), entry(specs[1])
    optimum = study.optimum(chosen)
    assert optimum is not None

    def last_level_reached(snapshot: Snapshot) -> bool:
        return bool(optimum.relative(snapshot.worst_loss) <= _last_level(one))

    method, once = Adapted(one.method, SparseObservation()), Lockstep(threads=1)
    try:
        problem, budget = _problem(specs[0], study.seed), study.budget(chosen, one)
        result = execute(problem, method, budget, study.seed, last_level_reached, once)
    except Exception as error:
        return f"failed, and is not recorded: {type(error).__name__}: {error}"
    study.cache.save_run(chosen.file, one.file, study.key(chosen, one), result)
    return None


def _last_level(one: Entry) -> float:
    """Return the level at which a run ends."""
    return GOAL if one.setting else LEVELS[-1]


def _spec(one: Instance | Entry) -> str:
    """Return the name under which another process finds it."""
    return one.spec or one.name


@lru_cache(maxsize=1)
def _problem(spec: str, seed: int) -> Problem:
    return instance(spec).make(seed)
