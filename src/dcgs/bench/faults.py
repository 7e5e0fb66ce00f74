"""``dcgs bench faults``: every method under every fault, and what it costs to reach an accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import product
from typing import Any, final

import numpy as np

from dcgs.bench.entries import Entry, entry
from dcgs.bench.instances import Instance, instance, problem_of
from dcgs.bench.optimum import TARGET, Optimum, solve
from dcgs.bench.rounds import Report
from dcgs.front import Snapshot, versions
from dcgs.runtime import Faults, Lockstep
from dcgs.study import Budget, ResultCache, RunResult, execute, run_in_processes
from dcgs.study.run import FAILED

LEVELS = (1e-2, 1e-3)
"""Relative errors of the worst agent, (worst_loss − f*)/(f(x⁰) − f*)."""
REFUSED = "REFUSED"
"""The ``end`` of a run that was refused at the door."""
# The slow agent takes this many units of time for a step, all others one.
_SLOW = 5
# A run has stalled if the lowest error of its last half is at least this share of that of its first half.
_STALLED = 0.9
# The most points of a curve that are recorded.
_POINTS = 150


@final
@dataclass(frozen=True)
class Condition:
    """A fault by name. ``make(seed)`` returns the runtime; a round takes ``seconds`` simulated seconds.

    ``run`` is the name of the condition whose runs are the same, but for the seconds.
    """

    name: str
    about: str
    make: Callable[[int], Lockstep]
    seconds: float = 1.0
    run: str = ""

    @property
    def file(self) -> str:
        """The name of its files."""
        return self.run or self.name


def _faulty(**faults: Any) -> Callable[[int], Lockstep]:
    return lambda seed: Lockstep(threads=1, faults=Faults(**faults, seed=seed), allow_faults=True)


CONDITIONS: tuple[Condition, ...] = (
    Condition("none", "nothing fails", lambda seed: Lockstep(threads=1)),
    Condition("loss-10", "10 % of messages are lost", _faulty(loss=0.1)),
    Condition("loss-30", "30 % of messages are lost", _faulty(loss=0.3)),
    Condition("sleep-30", "30 % of agents are asleep in each round", _faulty(sleep=0.3)),
    Condition("both-20", "20 % are lost and 20 % are asleep", _faulty(loss=0.2, sleep=0.2)),
    Condition("up-30", "each edge is up 30 % of the time", _faulty(down=0.7)),
    Condition("delay-3", "messages are up to 3 rounds late", _faulty(delay=3)),
    Condition(
        "slow-wait", "one agent 5 times slower, all wait", lambda seed: Lockstep(threads=1), _SLOW, "none"
    ),
    Condition(
        "slow",
        "one agent 5 times slower, nobody waits",
        lambda seed: Lockstep(threads=1, speeds={0: 1.0 / _SLOW}),
    ),
)
"""All faults of the comparison."""
NONE = CONDITIONS[0].name


@final
@dataclass(frozen=True)
class FaultTrial:
    """One entry on one instance under one condition, from one seed.

    ``end`` and ``status`` say why the run ended. ``costs`` has rounds and bytes of the busiest agent at each
    level that was reached. ``curve`` has rounds and relative errors.
    """

    end: str
    status: str
    rounds: int
    costs: Mapping[str, Sequence[int]]
    curve: Sequence[Sequence[float]]

    def cost(self, level: float) -> Sequence[int] | None:
        """Return rounds and bytes at a level, or None if it was not reached."""
        return self.costs.get(f"{level:.0e}")

    @property
    def outcome(self) -> str:
        """What became of the run: ``reached``, ``refuses``, ``diverges``, ``stalls``, or ``slow``."""
        if self.cost(LEVELS[-1]) is not None:
            return "reached"
        if self.end == REFUSED:
            return "refuses"
        errors = np.array([error for _, error in self.curve])
        if self.end == FAILED or not errors[-1] < 1.0:
            return "diverges"
        half = len(errors) // 2
        stalled = half > 0 and errors[half:].min() >= _STALLED * errors[:half].min()
        return "stalls" if stalled else "slow"


@final
@dataclass(frozen=True)
class FaultStudy:
    """The result cache, and what results depend on beside instance, entry and condition."""

    cache: ResultCache
    seeds: Sequence[int] = (0,)
    rounds: int = 1000
    seconds: float = 30.0
    jobs: int = 1

    def key(self, chosen: Instance, seed: int) -> dict[str, Any]:
        """Return all that f* depends on."""
        about = {"instance": chosen.about, "seed": seed, "versions": versions()}
        return about | {"iterations": chosen.reference, "target": TARGET}

    def trial_key(self, chosen: Instance, one: Entry, condition: Condition, seed: int) -> dict[str, Any]:
        """Return all that a run depends on."""
        limits = {"rounds": self.rounds, "seconds": self.seconds}
        made = {"method": repr(one.method), "runtime": repr(condition.make(seed))}
        return self.key(chosen, seed) | limits | made

    def optimum(self, chosen: Instance, seed: int) -> Optimum | None:
        """Return f*, or None if it is not recorded."""
        record = self.cache.read(f"optima/{chosen.file}-{seed}", self.key(chosen, seed))
        return None if record is None else Optimum(**record["result"])

    def trial(self, chosen: Instance, one: Entry, condition: Condition, seed: int) -> FaultTrial | None:
        """Return the trial, or None if it is not recorded."""
        record = self.cache.read(
            _file(chosen, one, condition, seed), self.trial_key(chosen, one, condition, seed)
        )
        return None if record is None else FaultTrial(**record["result"])


@final
@dataclass(frozen=True, eq=False)
class FaultTable:
    """Some instances, entries and conditions, and their recorded trials."""

    study: FaultStudy
    instances: Sequence[Instance]
    entries: Sequence[Entry]
    conditions: Sequence[Condition]

    def missing_optima(self) -> list[tuple[str, int]]:
        """Return the name and the seed of every instance whose f* is not recorded."""
        every = ((chosen, seed) for chosen in self.instances for seed in self.study.seeds)
        return [(chosen.name, seed) for chosen, seed in every if self.study.optimum(chosen, seed) is None]

    def missing_runs(self) -> list[tuple[str, str, str, int]]:
        """Return instance, entry, condition and seed of every run that is not recorded."""
        files = {condition.file for condition in self.conditions}
        distinct = [condition for condition in CONDITIONS if condition.name in files]
        every = product(self.instances, self.study.seeds, self.entries, distinct)
        return [
            (chosen.name, one.name, condition.name, seed)
            for chosen, seed, one, condition in every
            if self.study.trial(chosen, one, condition, seed) is None
        ]

    def trials(self, chosen: Instance, one: Entry, condition: Condition) -> list[FaultTrial]:
        """Return the recorded trials, one of each seed."""
        found = (self.study.trial(chosen, one, condition, seed) for seed in self.study.seeds)
        return [trial for trial in found if trial is not None]

    def ratios(self, one: Entry, condition: Condition) -> list[float]:
        """Return simulated seconds to 1e-3 over those without faults, for every instance and seed."""
        ratios = []
        for chosen, seed in product(self.instances, self.study.seeds):
            trials = (self.study.trial(chosen, one, each, seed) for each in (condition, CONDITIONS[0]))
            ours, first = (trial and trial.cost(LEVELS[-1]) for trial in trials)
            if ours and first:
                ratios.append(condition.seconds * ours[0] / max(1, first[0]))
        return ratios


def run_study(table: FaultTable, report: Report) -> None:
    """Run all entries on all instances under all conditions, except for what is recorded."""
    study = table.study
    optima = run_in_processes(study.jobs, partial(_find_optimum, study), table.missing_optima())
    for (name, seed), _ in optima:
        report(f"f* of {name}, seed {seed}", None)
    for item, sentence in run_in_processes(study.jobs, partial(_run_trial, study), table.missing_runs()):
        report(", ".join(map(str, item)), sentence)


def _find_optimum(study: FaultStudy, item: tuple[str, int]) -> None:
    chosen = instance(item[0])
    found = solve(problem_of(*item), chosen.reference)
    study.cache.write(f"optima/{chosen.file}-{item[1]}", study.key(chosen, item[1]), asdict(found))


def _run_trial(study: FaultStudy, item: tuple[str, str, str, int]) -> str | None:
    """Run and record one trial; return a sentence if it was refused."""
    name, method, fault, seed = item
    chosen, one = instance(name), entry(method)
    condition = next(each for each in CONDITIONS if each.name == fault)
    optimum = study.optimum(chosen, seed)
    assert optimum is not None

    def last_level_reached(snapshot: Snapshot) -> bool:
        return bool(optimum.relative(snapshot.worst_loss) <= LEVELS[-1])

    budget, runtime = Budget(rounds=study.rounds, seconds=study.seconds), condition.make(seed)
    sentence = None
    try:
        trial = _trial(
            execute(problem_of(name, seed), one.method, budget, seed, last_level_reached, runtime), optimum
        )
    except ValueError as error:
        sentence = f"refused: {error}"
        trial = FaultTrial(REFUSED, str(error), 0, {}, [])
    key = study.trial_key(chosen, one, condition, seed)
    study.cache.write(_file(chosen, one, condition, seed), key, asdict(trial))
    return sentence


def _trial(run: RunResult, optimum: Optimum) -> FaultTrial:
    """Return what a run says of an entry."""
    rounds, relative = run.columns["rounds"], optimum.relative(run.columns["worst_loss"])
    costs = {}
    for level in LEVELS:
        at = optimum.first_at(run.columns["worst_loss"], level)
        if at is not None:
            costs[f"{level:.0e}"] = [int(run.columns[name][at]) for name in ("rounds", "bytes")]
    shown = np.unique(np.linspace(0, len(rounds) - 1, min(_POINTS, len(rounds))).astype(int))
    curve = [[float(rounds[k]), float(relative[k])] for k in shown]
    return FaultTrial(run.end, run.status, run.rounds, costs, curve)


def _file(chosen: Instance, one: Entry, condition: Condition, seed: int) -> str:
    return f"trials/{chosen.file}/{one.file}-{condition.file}-{seed}"
