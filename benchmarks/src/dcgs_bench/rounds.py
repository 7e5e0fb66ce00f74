"""``dcgs bench rounds``, ``forms`` and ``time``: every entry on every instance, and what it spends.

Each entry is run until the worst agent's error is small enough, which only an observer of all data knows, and
until its agents stop by themselves at a certified gap. f* is found by another solver on the pooled data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, final

import networkx as nx

from dcgs import __version__
from dcgs.methods import FastDCGS, Method
from dcgs.run.minimize import versions
from dcgs.run.result import Callback, Snapshot
from dcgs.run.stopping import LIMITS
from dcgs.runtime import Lockstep
from dcgs_bench.entries import GOAL, Adapted, Entry, entry_named, observed_sparsely
from dcgs_bench.instances import Instance, problem_of
from dcgs_bench.optimum import TARGET, Optimum, solve
from dcgs_bench.pooled import pool
from dcgs_bench.ranking import LEVELS, TIME_LEVELS, RunCost, Stop, Trial, best_of, cost_at, cost_to
from dcgs_bench.study import (
    FAILED,
    REFUSED,
    Budget,
    Records,
    RunRecord,
    Stages,
    StudyProblem,
    StudyTask,
    environment,
    execute,
)

# Sets and solvers load it at its first use, which takes 70 ms: these are not in the time of a run.
import_module("scipy.optimize")
# A run of fewer seconds is done so many times, because short times vary.
_SHORT, _REPEATS = 1.0, 3


@final
@dataclass(frozen=True)
class EndRule:
    """End a run at a relative error of the worst agent."""

    optimum: Optimum
    level: float

    def __call__(self, snapshot: Snapshot) -> bool:
        """Return whether the run is over."""
        return bool(self.optimum.relative(snapshot.worst_loss) <= self.level)


@final
@dataclass(frozen=True)
class GridRun:
    """The work of one run. Instance and entry are given by the names under which another process finds them.

    Without a rule for its end, a run ends when the agents stop at the gap of its budget. FastDCGS then runs
    as many iterations again without certificates. Short runs of both kinds are repeated, and the fastest
    count. With a runtime, every iteration is observed, and a run that is refused has a record; else runs have
    one thread, and late iterations are observed sparsely.
    """

    instance: str
    entry: str
    seed: int
    budget: Budget
    end: EndRule | None
    runtime: Lockstep | None = None

    def __call__(self) -> dict[str, Any]:
        """Do the run; return its record."""
        problem, method = problem_of(self.instance, self.seed), entry_named(self.entry).method
        if self.end is None:
            record = self._fastest(problem, method, self.budget)
            more: dict[str, Any] = {"diameter": nx.diameter(problem.graph), "plain": None}
            if record.certified and record.rounds and isinstance(method, FastDCGS):
                again = Budget(iterations=int(record.columns["iterations"][-1]), every=0)
                plain = self._fastest(problem, replace(method, stops_itself=False), again)
                more["plain"] = asdict(total_cost(plain))
            return vars(replace(record, more=more))
        if self.runtime is None:
            return vars(self._fastest(problem, Adapted(method, observed_sparsely), self.budget, self.end))
        try:
            return vars(execute(problem, method, self.budget, self.seed, self.end, self.runtime))
        except ValueError as error:
            return vars(RunRecord(REFUSED, str(error), repr(method)))

    def _fastest(
        self, problem: StudyProblem, method: Method, budget: Budget, end: Callback = lambda snapshot: None
    ) -> RunRecord:
        """Return the record of a run, and of _REPEATS runs that with the least computing if it is short."""
        once, tried = Lockstep(threads=1), list[RunRecord]()
        while len(tried) < (_REPEATS if not tried or tried[0].seconds < _SHORT else 1):
            tried.append(execute(problem, method, budget, self.seed, end, once))
        return min(tried, key=lambda record: record.columns["computing"][-1])


def total_cost(record: RunRecord) -> RunCost:
    """Return what a run spent in all."""
    spent = cost_at(record.columns)
    return replace(spent, rounds=record.rounds, bytes=record.bytes, all_bytes=record.all_bytes)


@final
@dataclass(frozen=True)
class GridStudy:
    """The records of a grid, the limit on seconds of a run, and the seeds."""

    records: Records
    seconds: float = 40.0
    seeds: Sequence[int] = (0,)

    def key(self, chosen: Instance, seed: int, **more: Any) -> dict[str, Any]:
        """Return all that a result depends on: the instance, the seed, the versions, and what is given."""
        return {"instance": chosen.about, "seed": seed, "versions": versions()} | more

    def optimum_task(self, chosen: Instance, seed: int) -> StudyTask:
        """Return the task that finds f* of an instance."""
        key = self.key(chosen, seed, iterations=chosen.reference, target=TARGET)
        work = partial(_find_optimum, name_of(chosen), seed, chosen.reference)
        return StudyTask(f"optima/{chosen.file}-{seed}", key, work, f"f* of {name_of(chosen)}, seed {seed}")

    def optimum(self, chosen: Instance, seed: int) -> Optimum | None:
        """Return f*, or None if it is not recorded."""
        result = self.records.result(self.optimum_task(chosen, seed))
        return None if result is None else Optimum(**result)

    def run_of(self, task: StudyTask) -> RunRecord | None:
        """Return the record of a run, or None if it was not done."""
        result = self.records.result(task)
        return None if result is None else RunRecord(**result)


def name_of(named: Instance | Entry) -> str:
    """Return the name under which another process finds it."""
    return named.spec or named.name


def _find_optimum(name: str, seed: int, iterations: int) -> dict[str, Any]:
    return asdict(solve(problem_of(name, seed), iterations))


@final
@dataclass(frozen=True)
class RoundsGrid:
    """The runs of entries on instances, from one seed.

    A run ends at the error ``level``. A run whose agents stop by themselves has a gap, and the same limits on
    rounds and seconds; with ``stops_only`` there are no others.
    """

    study: GridStudy
    level: float = LEVELS[-1]
    stops_only: bool = False
    with_pool: bool = False

    @property
    def seed(self) -> int:
        """The seed of data and graphs."""
        return self.study.seeds[0]

    def gaps(self, entry: Entry) -> tuple[float | None, ...]:
        """Return the gap of each run of an entry at which its agents stop; None is the measured run."""
        stops = tuple(gap for gap in entry.gaps if gap >= self.level)
        return stops if self.stops_only else (None, *stops)

    def budget(self, chosen: Instance, entry: Entry, gap: float | None = None) -> Budget:
        """Return the limits of a run. A setting gets the rounds that its default settings take to 1e-3."""
        default = self.trial(chosen, entry_named(entry.family)) if entry.setting else None
        cost = None if default is None else default.costs[GOAL]
        rounds = chosen.rounds if cost is None else max(1, cost.rounds)
        seconds = self.study.seconds * chosen.time_factor * entry.time_factor
        return Budget(rounds=rounds, seconds=seconds, gap=gap, every=1 if gap is None else 0)

    def task(self, chosen: Instance, entry: Entry, gap: float | None = None) -> StudyTask:
        """Return the task of a run of an entry on an instance: the measured one, or until the agents stop."""
        budget, title = self.budget(chosen, entry, gap), f"{name_of(entry)} on {name_of(chosen)}"
        key = self.study.key(chosen, self.seed, method=repr(entry.method), **budget.limits)
        optimum = self.study.optimum(chosen, self.seed)
        run = partial(GridRun, name_of(chosen), name_of(entry), self.seed, budget)
        if gap is not None:
            name = f"stops/{chosen.file}/{entry.file}-{gap:.0e}"
            return StudyTask(name, key, optimum and run(None), f"{title} until the agents stop at {gap:.0e}")
        level = GOAL if entry.setting else self.level
        work = None if optimum is None else run(EndRule(optimum, level))
        return StudyTask(f"runs/{chosen.file}/{entry.file}", key | {"level": level}, work, title)

    def pool_task(self, chosen: Instance) -> StudyTask:
        """Return the task that solves an instance on the pooled data."""
        limit, optimum = self.study.seconds * chosen.time_factor, self.study.optimum(chosen, self.seed)
        key = self.study.key(chosen, self.seed, levels=list(TIME_LEVELS), seconds=limit)
        work = None if optimum is None else partial(_solve_pooled, name_of(chosen), self.seed, optimum, limit)
        return StudyTask(f"pool/{chosen.file}", key, work, f"the pool of {name_of(chosen)}")

    def stages(self, instances: Sequence[Instance], entries: Sequence[Entry]) -> Stages:
        """Return functions that return tasks, each of which may need results of those before.

        f* ends all runs, and the rounds of default settings those of other settings.
        """

        def runs(some: Sequence[Entry]) -> list[StudyTask]:
            return [
                self.task(chosen, entry, gap)
                for chosen in instances
                for entry in some
                for gap in self.gaps(entry)
                if entry.name not in chosen.without
            ]

        return [
            lambda: [self.study.optimum_task(chosen, self.seed) for chosen in instances],
            lambda: runs([entry for entry in entries if not entry.setting]),
            lambda: runs([entry for entry in entries if entry.setting]),
            lambda: [
                self.pool_task(chosen) for chosen in instances if self.with_pool and not self.stops_only
            ],
        ]

    def trial(self, chosen: Instance, entry: Entry) -> Trial | None:
        """Return what an entry spent on an instance, or None if no run of it is recorded."""
        optimum = self.study.optimum(chosen, self.seed)
        if optimum is None:
            return None
        run = self.study.run_of(self.task(chosen, entry))
        stops = {
            gap: stop for gap in entry.gaps if (stop := self._stop(chosen, entry, gap, optimum)) is not None
        }
        if run is None and not stops:
            return None
        work, column = ("projections",) * 2 if entry.method.projects else ("oracle calls", "lmo_calls")
        if run is None:
            return Trial(entry.name, work, costs=dict.fromkeys(LEVELS), stops=stops)
        return Trial(
            entry.name,
            work,
            run.end,
            replace(cost_at(run.columns, column), rounds=run.rounds),
            run.seconds,
            float(optimum.relative(run.columns["worst_loss"]).min()),
            {level: cost_to(run.columns, optimum, level, column) for level in LEVELS},
            " ".join(run.notes),
            stops,
            __version__,
        )

    def record(
        self, instances: Sequence[Instance], entries: Sequence[Entry], settings: Sequence[Entry] = ()
    ) -> dict[str, Any]:
        """Return all that is recorded of these entries and of the best of the settings, for JSON."""
        by_instance = {}
        for chosen in instances:
            optimum, trials = self.study.optimum(chosen, self.seed), self._trials(chosen, entries, settings)
            if optimum is not None and trials:
                by_instance[chosen.name] = {
                    "about": chosen.about,
                    "optimum": asdict(optimum) | {"uncertainty": optimum.uncertainty},
                    "rounds": chosen.rounds,
                    "trials": [trial.to_json() for trial in trials],
                }
        made = {"environment": environment(self.seed), "seconds": self.study.seconds}
        return made | {"instances": by_instance}

    def unusable(self, instances: Sequence[Instance], entries: Sequence[Entry]) -> list[str]:
        """Return the names of own instances without f*, and of entries that failed on all others."""
        known = [chosen for chosen in instances if self.study.optimum(chosen, self.seed) is not None]
        lost = [chosen.name for chosen in instances if chosen.spec and chosen not in known]
        done = {entry.name for entry in entries if any(self.trial(chosen, entry) for chosen in known)}
        return lost + [entry.name for entry in entries if known and entry.name not in done]

    def _trials(self, chosen: Instance, entries: Sequence[Entry], settings: Sequence[Entry]) -> list[Trial]:
        by_entry = {entry: trial for entry in entries if (trial := self.trial(chosen, entry)) is not None}
        trials = list(by_entry.values())
        for family in dict.fromkeys(entry.family for entry in settings):
            settings_of = (entry for entry in settings if entry.family == family)
            tried = [trial for entry in settings_of if (trial := self.trial(chosen, entry)) is not None]
            if tried:
                trials.append(best_of([*(t for t in trials if t.entry == family), *tried], family))
        pooled = self.study.records.result(self.pool_task(chosen))
        return trials if pooled is None else [*trials, Trial.from_json(pooled)]

    def _stop(self, chosen: Instance, entry: Entry, gap: float, optimum: Optimum) -> Stop | None:
        run = self.study.run_of(self.task(chosen, entry, gap))
        if run is None:
            return None
        failed = run.end == FAILED
        error = None if failed else float(optimum.relative(run.columns["worst_loss"][-1]))
        plain = run.more["plain"] and RunCost(**run.more["plain"])
        return Stop(
            run.end, total_cost(run), run.kind, error, run.more["diameter"], plain, version=__version__
        )


def remarks(made: dict[str, Any]) -> list[str]:
    """Return a sentence for every f* that is not known to the target, and every run that failed."""
    sentences, usual = [], {"AGREED", *(status.name for status in LIMITS)}
    for name, made_of in made["instances"].items():
        known, tried = made_of["optimum"], f"after {made_of['optimum']['iterations']} iterations"
        if known["uncertainty"] > TARGET:
            told = (
                f"known to {known['uncertainty']:.1e} only, {tried}; levels below ten times that are left out"
            )
            sentences.append(f"f* of {name}: {told}.")
        for trial in made_of["trials"]:
            about = f"{trial['entry']} on {name}"
            sentences += [f"{about}: the run failed: {trial['note']}"] * (trial["end"] == FAILED)
            odd = {gap: stop["end"] for gap, stop in trial["stops"].items() if stop["end"] not in usual}
            sentences += [
                f"{about}: the agents did not stop at {gap}; status {end}." for gap, end in odd.items()
            ]
    return sentences


def _solve_pooled(name: str, seed: int, optimum: Optimum, limit: float) -> dict[str, Any]:
    return pool(problem_of(name, seed), optimum, limit).to_json()
