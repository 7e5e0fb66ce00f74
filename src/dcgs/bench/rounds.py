"""``dcgs bench rounds``: run every entry on every instance, and find the cost to accuracy of each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib import import_module
from typing import Any, TypeAlias, final

import networkx as nx

from dcgs.bench.entries import GOAL, OURS, Adapted, Entry, entry, observed_sparsely
from dcgs.bench.instances import Instance, instance, problem_of
from dcgs.bench.optimum import TARGET, Optimum, solve
from dcgs.bench.ranking import LEVELS, Stop, TimeCost, Trial, cost_to_accuracy, time_cost
from dcgs.datasets import DataNotFoundError
from dcgs.front import Snapshot, Status, minimize, versions
from dcgs.link import LINKS
from dcgs.methods import FastDCGS, Method
from dcgs.runtime import Lockstep
from dcgs.study import Budget, Problem, ResultCache, execute, run_in_processes
from dcgs.study.run import FAILED

Report: TypeAlias = Callable[[str, str | None], None]
"""Called with the name of every piece of work that is done, and with a sentence if it has no result."""

# Sets and solvers load it at its first use, which takes 70 ms: these are not in the time of a run.
import_module("scipy.optimize")


@final
@dataclass(frozen=True)
class RoundsStudy:
    """The result cache, and what results depend on beside instance and entry.

    A run ends at the error ``level``. With ``patience``, a run also ends when its modeled time is more than
    that multiple of the time of FastDCGS to 1e-3, over each of the links of ``dcgs bench time``. A run whose
    agents stop by themselves has a gap, and the same limits on rounds and seconds; with ``stops_only`` there
    are no other runs.
    """

    cache: ResultCache
    seed: int = 0
    seconds: float = 40.0
    jobs: int = 1
    level: float = LEVELS[-1]
    patience: float | None = None
    stops_only: bool = False

    def gaps(self, one: Entry) -> tuple[float | None, ...]:
        """Return the gap of each run of an entry at which its agents stop; None is the measured run."""
        stops = tuple(gap for gap in one.gaps if gap >= self.level)
        return stops if self.stops_only else (None, *stops)

    def key(self, chosen: Instance, one: Entry | None = None, gap: float | None = None) -> dict[str, Any]:
        """Return all that a run depends on; without an entry, all that f* depends on."""
        key = {"instance": chosen.about, "seed": self.seed, "versions": versions()}
        if one is None:
            return key | {"iterations": chosen.reference, "target": TARGET}
        limits = {
            name: limit for name, limit in asdict(self.budget(chosen, one)).items() if limit is not None
        }
        if gap is not None:
            return key | {"method": repr(one.method), "gap": gap} | limits
        if self.patience is not None and one.name != OURS:
            limits["patience"] = self.patience
        return key | {"method": repr(one.method), "level": self.last_level(one)} | limits

    def last_level(self, one: Entry) -> float:
        """Return the error at which a run ends."""
        return GOAL if one.setting else self.level

    def most_seconds(self, chosen: Instance, one: Entry) -> dict[str, float]:
        """Return for each link the modeled time at which a run ends; empty if there is no such limit."""
        if self.patience is None or one.name == OURS:
            return {}
        optimum, ours = self.optimum(chosen), entry(OURS)
        run = self.cache.run(chosen.file, ours.file, self.key(chosen, ours))
        cost = None if run is None or optimum is None else time_cost(run.columns, optimum, GOAL)
        return {} if cost is None else {n: self.patience * cost.seconds(link) for n, link in LINKS.items()}

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

    def has_run(self, chosen: Instance, one: Entry, gap: float | None = None) -> bool:
        """Return whether a run of an entry on an instance is recorded, and f* with it."""
        record = self.cache.read(record_name(chosen, one, gap), self.key(chosen, one, gap))
        return record is not None and self.optimum(chosen) is not None

    def has_trial(self, chosen: Instance, one: Entry) -> bool:
        """Return whether some run of an entry on an instance is recorded, and f* with it."""
        return any(self.has_run(chosen, one, gap) for gap in self.gaps(one))

    def stop(self, chosen: Instance, one: Entry, gap: float) -> Stop | None:
        """Return the run of which the agents stop at a gap, or None if it is not recorded."""
        record = self.cache.read(record_name(chosen, one, gap), self.key(chosen, one, gap))
        return None if record is None else Stop(**record["result"])

    def trial(self, chosen: Instance, one: Entry) -> Trial | None:
        """Return what an entry spent on an instance, or None if no run of it is recorded."""
        optimum = self.optimum(chosen)
        run = self.cache.run(chosen.file, one.file, self.key(chosen, one))
        stops = {gap: stop for gap in one.gaps if (stop := self.stop(chosen, one, gap)) is not None}
        if optimum is None or (run is None and not stops):
            return None
        work, column = ("projections",) * 2 if one.method.projects else ("oracle calls", "lmo_calls")
        if run is None:
            return Trial(chosen.name, one.name, work, "", 0, 0.0, 1.0, dict.fromkeys(LEVELS), stops=stops)
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
            stops,
        )


def record_name(chosen: Instance, one: Entry, gap: float | None) -> str:
    """Return the name of the record of a run in the result cache."""
    if gap is None:
        return f"runs/{chosen.file}/{one.file}"
    return f"stops/{chosen.file}/{one.file}-{gap:.0e}"


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
    for stage in range(3):  # the rounds of the default settings limit those of the grid, those of ours all
        runs = [
            (_spec(chosen), _spec(one), gap)
            for chosen in known
            for one in entries
            if _stage(one) == stage
            for gap in study.gaps(one)
            if not study.has_run(chosen, one, gap)
        ]
        for (problem, method, gap), sentence in run_in_processes(study.jobs, partial(_run, study), runs):
            until = "" if gap is None else f" until the agents stop at {gap:.0e}"
            report(f"{method} on {problem}{until}", sentence)


def runs_left(study: RoundsStudy, instances: Sequence[Instance], entries: Sequence[Entry]) -> int:
    """Return how many optima and runs are not recorded."""
    optima = sum(study.optimum(chosen) is None for chosen in instances)
    return optima + sum(
        not study.has_run(chosen, one, gap)
        for chosen in instances
        for one in entries
        for gap in study.gaps(one)
    )


def unusable(study: RoundsStudy, instances: Sequence[Instance], entries: Sequence[Entry]) -> list[str]:
    """Return the names of own instances without f*, and of entries that failed on all instances with one."""
    known = [chosen for chosen in instances if study.optimum(chosen) is not None]
    failed = [one.name for one in entries if not any(study.has_trial(chosen, one) for chosen in known)]
    return [chosen.name for chosen in instances if chosen.spec and chosen not in known] + (
        failed if known else []
    )


def find_optimum(study: RoundsStudy, spec: str) -> str | None:
    """Find f* of an instance and record it; return a sentence if it cannot be found."""
    chosen = instance(spec)
    try:
        found = solve(problem_of(spec, study.seed), chosen.reference)
    except DataNotFoundError as error:
        return f"left out, because its data are missing: {error}"
    except Exception as error:
        if not (chosen.spec or isinstance(error, ValueError)):
            raise
        return f"left out, because f* cannot be found: {error}"
    study.cache.write(f"optima/{chosen.file}", study.key(chosen), asdict(found))
    return None


def run_entry(study: RoundsStudy, specs: tuple[str, str]) -> str | None:
    """Run an entry on an instance and record it; return a sentence if the run raised."""
    chosen, one = instance(specs[0]), entry(specs[1])
    optimum = study.optimum(chosen)
    assert optimum is not None

    most = study.most_seconds(chosen, one)

    def is_over(snapshot: Snapshot) -> bool:
        spent = TimeCost(snapshot.computing, snapshot.bytes, snapshot.peak_bytes, snapshot.rounds)
        is_slow = bool(most) and all(spent.seconds(LINKS[name]) > limit for name, limit in most.items())
        return is_slow or bool(optimum.relative(snapshot.worst_loss) <= study.last_level(one))

    method, once = Adapted(one.method, observed_sparsely), Lockstep(threads=1)
    try:
        problem, budget = problem_of(specs[0], study.seed), study.budget(chosen, one)
        result = execute(problem, method, budget, study.seed, is_over, once)
    except Exception as error:
        return f"failed, and is not recorded: {type(error).__name__}: {error}"
    study.cache.save_run(chosen.file, one.file, study.key(chosen, one), result)
    return None


def run_until_stop(study: RoundsStudy, specs: tuple[str, str], gap: float) -> str | None:
    """Run an entry until its agents stop at a gap, and record it; return a sentence if that raised."""
    chosen, one = instance(specs[0]), entry(specs[1])
    optimum = study.optimum(chosen)
    assert optimum is not None
    try:
        problem, budget = problem_of(specs[0], study.seed), study.budget(chosen, one)
        stop = stop_of(problem, one.method, gap, budget, study.seed, optimum)
    except Exception as error:
        return f"failed, and is not recorded: {type(error).__name__}: {error}"
    study.cache.write(record_name(chosen, one, gap), study.key(chosen, one, gap), asdict(stop))
    return None


def stop_of(
    problem: Problem, method: Method, gap: float, budget: Budget, seed: int, optimum: Optimum
) -> Stop:
    """Return the run that ends when the agents have certified the gap, or at its limits.

    Only x⁰ and the model at the end are measured. FastDCGS runs as many rounds again without certificates.
    """
    run = partial(minimize, *problem.parts, seed=seed, runtime=Lockstep(threads=1), every=0)
    diameter = nx.diameter(problem.graph)
    try:
        result = run(method, gap=gap, rounds=budget.rounds, seconds=budget.seconds)
    except FloatingPointError:
        return Stop(FAILED, 0.0, 0, 0, 0, "", None, diameter)
    stopped, history = result.status is Status.AGREED, result.history
    plain = None
    if stopped and isinstance(method, FastDCGS) and result.rounds:
        plain = int(run(replace(method, stops_itself=False), rounds=result.rounds).bytes.max())
    return Stop(
        result.status.name,
        float(history.computing[-1]),
        int(result.bytes.max()),
        int(history.peak_bytes[-1]),
        result.rounds,
        str(result.certificates["kind"][-1]) if stopped else "",
        float(optimum.relative(history.worst_loss[-1])),
        diameter,
        plain,
    )


def _run(study: RoundsStudy, run: tuple[str, str, float | None]) -> str | None:
    """Do a run of an entry on an instance: the measured one, or with a gap the one that ends at it."""
    problem, method, gap = run
    if gap is None:
        return run_entry(study, (problem, method))
    return run_until_stop(study, (problem, method), gap)


def _stage(one: Entry) -> int:
    """Return when an entry is run: first ours, then other methods with default settings, then settings."""
    return 2 if one.setting else int(one.name != OURS)


def _spec(one: Instance | Entry) -> str:
    """Return the name under which another process finds it."""
    return one.spec or one.name
