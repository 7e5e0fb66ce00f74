"""``dcgs bench faults``: every method under every fault, and what it costs to reach an accuracy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from statistics import median
from typing import Any, final

from dcgs import __version__
from dcgs.runtime import Faults, Lockstep
from dcgs_bench.entries import OURS, Entry
from dcgs_bench.instances import Instance
from dcgs_bench.optimum import Optimum
from dcgs_bench.ranking import TIME_LEVELS, cost_to
from dcgs_bench.rounds import EndRule, GridRun, GridStudy, name_of
from dcgs_bench.study import (
    FAILED,
    NOT_REACHED,
    REFUSED,
    Budget,
    Rows,
    RunRecord,
    StudyTask,
    TextTable,
    environment,
)

# The slow agent takes this many units of time for a step, all others one.
_SLOW = 5
_RELIABLE, _ONE_SLOW = Lockstep(threads=1), Lockstep(threads=1, speeds={0: 1.0 / _SLOW})
# A run has stalled if the lowest error of its last half is at least this share of that of its first half.
_STALLED = 0.9


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


def _faulty(**faults: Any) -> Callable[[int], Lockstep]:
    return lambda seed: Lockstep(threads=1, faults=Faults(**faults, seed=seed), allow_faults=True)


CONDITIONS: tuple[Condition, ...] = (
    Condition("none", "nothing fails", lambda seed: _RELIABLE),
    Condition("loss-10", "10 % of messages are lost", _faulty(loss=0.1)),
    Condition("loss-30", "30 % of messages are lost", _faulty(loss=0.3)),
    Condition("sleep-30", "30 % of agents are asleep in each round", _faulty(sleep=0.3)),
    Condition("both-20", "20 % are lost and 20 % are asleep", _faulty(loss=0.2, sleep=0.2)),
    Condition("up-30", "each edge is up 30 % of the time", _faulty(down=0.7)),
    Condition("delay-3", "messages are up to 3 rounds late", _faulty(delay=3)),
    Condition("slow-wait", "one agent 5 times slower, all wait", lambda seed: _RELIABLE, _SLOW, "none"),
    Condition("slow", "one agent 5 times slower, nobody waits", lambda seed: _ONE_SLOW),
)
"""All faults of the comparison."""
NONE = CONDITIONS[0].name
_ABOUT = {condition.name: condition for condition in CONDITIONS}


@final
@dataclass(frozen=True, eq=False)
class FaultGrid:
    """The runs of some entries on some instances under some conditions, of at most so many rounds."""

    study: GridStudy
    instances: Sequence[Instance]
    entries: Sequence[Entry]
    conditions: Sequence[Condition]
    rounds: int = 1000

    def task(self, chosen: Instance, entry: Entry, condition: Condition, seed: int) -> StudyTask:
        """Return the task of a run."""
        budget = Budget(rounds=self.rounds, seconds=self.study.seconds)
        same = _ABOUT[condition.run or condition.name]
        runtime, optimum = same.make(seed), self.study.optimum(chosen, seed)
        made = {"method": repr(entry.method), "runtime": repr(runtime)}
        key = self.study.key(chosen, seed, **made, **budget.limits)
        end = None if optimum is None else EndRule(optimum, TIME_LEVELS[-1])
        work = end and GridRun(name_of(chosen), name_of(entry), seed, budget, end, runtime)
        title = f"{entry.name} on {chosen.name}, {same.name}, seed {seed}"
        return StudyTask(f"runs/{chosen.file}/{entry.file}-{same.name}-{seed}", key, work, title)

    def optima(self) -> list[StudyTask]:
        """Return the tasks that find f*."""
        return [self.study.optimum_task(*pair) for pair in product(self.instances, self.study.seeds)]

    def tasks(self) -> list[StudyTask]:
        """Return the tasks of all runs, those that several conditions share once."""
        every = product(self.instances, self.entries, self.conditions, self.study.seeds)
        tasks = (self.task(*case) for case in every)
        return list({task.name: task for task in tasks}.values())

    def record(self) -> dict[str, Any]:
        """Return all that is recorded, for JSON."""
        rows, optima = [], {}
        for chosen, seed in product(self.instances, self.study.seeds):
            optimum = self.study.optimum(chosen, seed)
            if optimum is None:
                continue
            optima[f"{chosen.name}, seed {seed}"] = asdict(optimum)
            for entry, condition in product(self.entries, self.conditions):
                run = self.study.run_of(self.task(chosen, entry, condition, seed))
                if run is not None:
                    about = {"instance": chosen.name, "method": entry.name, "fault": condition.name}
                    rows.append(about | {"seed": seed} | _row(run, optimum))
        made = {"environment": environment(self.study.seeds[0]), "rounds": self.rounds}
        about = {chosen.name: chosen.about for chosen in self.instances}
        return made | {"seconds": self.study.seconds, "instances": about, "optima": optima, "rows": rows}


def _row(run: RunRecord, optimum: Optimum) -> dict[str, Any]:
    """Return what a run says: its end, its costs to both levels, and what became of it."""
    pairs = ((level, cost_to(run.columns, optimum, level) if run.columns else None) for level in TIME_LEVELS)
    costs = {f"{level:.0e}": [cost.rounds, cost.bytes] for level, cost in pairs if cost is not None}
    row = {"end": run.end, "status": run.status, "rounds": run.rounds, "costs": costs, "version": __version__}
    return row | {"outcome": "reached" if len(costs) == len(TIME_LEVELS) else outcome(run, optimum)}


def outcome(run: RunRecord, optimum: Optimum) -> str:
    """Return in a word what became of a run that did not reach 1e-3: refuses, diverges, stalls, or slow."""
    if run.end == REFUSED:
        return "refuses"
    errors = optimum.relative(run.columns["worst_loss"])
    if run.end == FAILED or not errors[-1] < 1.0:
        return "diverges"
    half = len(errors) // 2
    stalled = half > 0 and errors[half:].min() >= _STALLED * errors[:half].min()
    return "stalls" if stalled else "slow"


def instance_table(made: Mapping[str, Any], instance: str) -> TextTable:
    """Return rounds, kB and simulated seconds of every method under every condition."""
    rows = []
    for fault, method in product(_names(made, "fault"), _names(made, "method")):
        cells = _cells(_chosen(made, instance=instance, fault=fault, method=method))
        rows.append([_ABOUT[fault].about, method, *cells])
    head = ["fault", "method", "rounds", "kB", "simulated s", ""]
    return TextTable.plain(f"{instance}: {made['instances'][instance]}", head, rows)


def summary_table(made: Mapping[str, Any], instance: str) -> TextTable:
    """Return simulated seconds to 1e-3, faults × methods, or in a word what became of the runs."""
    rows, methods = [], _names(made, "method")
    for fault in _names(made, "fault"):
        cells = [_ABOUT[fault].about]
        for method in methods:
            *_, seconds, became = _cells(_chosen(made, instance=instance, fault=fault, method=method))
            cells.append(became or seconds.rpartition(" / ")[2])
        rows.append(cells)
    title = f"{instance}: simulated seconds to a relative error of 1e-3 of the worst agent"
    return TextTable.plain(title, ["fault", *methods], rows)


def ratio_table(made: Mapping[str, Any], over: str = NONE) -> TextTable:
    """Return FastDCGS's simulated seconds to 1e-3 over those of another condition: median, least and most."""
    rows = []
    for fault in _names(made, "fault"):
        ratios = [
            _seconds(row) / max(1.0, _seconds(first))
            for row in _chosen(made, method=OURS, fault=fault)
            for first in _chosen(made, method=OURS, fault=over, instance=row["instance"], seed=row["seed"])
            if _seconds(row) and _seconds(first)
        ]
        if ratios and fault != over:
            numbers = [f"{number:.2f}" for number in (median(ratios), min(ratios), max(ratios))]
            rows.append([_ABOUT[fault].about, str(len(ratios)), *numbers])
    title = f"{OURS}: simulated seconds to 1e-3 over those of a run in which {_ABOUT[over].about}"
    return TextTable.plain(title, ["fault", "runs", "median", "least", "most"], rows)


def _names(made: Mapping[str, Any], part: str) -> list[str]:
    return list(dict.fromkeys(row[part] for row in made["rows"]))


def _chosen(made: Mapping[str, Any], **wanted: Any) -> Rows:
    return [row for row in made["rows"] if all(row[name] == value for name, value in wanted.items())]


def _seconds(row: Mapping[str, Any]) -> float:
    """Return the simulated seconds to 1e-3; 0 if that was not reached."""
    cost = row["costs"].get(f"{TIME_LEVELS[-1]:.0e}")
    return _ABOUT[row["fault"]].seconds * cost[0] if cost else 0.0


def _cells(rows: Rows) -> list[str]:
    """Return the cells of runs: rounds, kB and simulated seconds at both levels, and what became of them."""
    columns: list[list[str]] = [[], [], []]
    for level in TIME_LEVELS:
        costs = [row["costs"].get(f"{level:.0e}") for row in rows]
        if not rows or None in costs:
            numbers: list[float] = []
        else:
            rounds, sent = (median(cost[place] for cost in costs) for place in (0, 1))
            numbers = [rounds, sent / 1e3, _ABOUT[rows[0]["fault"]].seconds * rounds]
        for column, text in zip(columns, [f"{x:,.0f}" for x in numbers] or [NOT_REACHED] * 3, strict=True):
            column.append(text)
    became = sorted({row["outcome"] for row in rows} - {"reached"})
    return [*map(" / ".join, columns), ", ".join(became)]
