"""One run of a study: a method on a problem within a budget, and its result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, final

import networkx as nx

from dcgs.front import Callback, Snapshot, minimize
from dcgs.front.history import as_history
from dcgs.methods import Method
from dcgs.objectives import Objective
from dcgs.runtime import Lockstep
from dcgs.sets import ConvexSet

Metric: TypeAlias = Callable[[Sequence[Any]], float]
"""A measure of the agents' answers that :class:`dcgs.History` does not have, such as a test error."""

FAILED = "FAILED"
"""The ``end`` of a run whose numbers overflowed."""


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """The objectives and the set, the graph of agents, and further metrics by column name."""

    objectives: Sequence[Objective]
    X: ConvexSet
    graph: nx.Graph
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @property
    def parts(self) -> tuple[Sequence[Objective], ConvexSet, nx.Graph]:
        """The first three arguments of :func:`dcgs.minimize`."""
        return self.objectives, self.X, self.graph


@final
@dataclass(frozen=True)
class Budget:
    """The limits of a run, and how often it is measured; :func:`dcgs.minimize` takes the same names."""

    iterations: int | None = None
    rounds: int | None = None
    seconds: float | None = None
    lmo_calls: int | None = None
    every: int = 1


@final
@dataclass(frozen=True, eq=False)
class RunResult:
    """The result of a run.

    ``end`` is the name of its :class:`dcgs.Status`, or FAILED; ``status`` is the sentence. ``rounds``,
    ``lmo_calls`` (maximum over agents) and ``seconds`` are totals. ``columns`` are the recorded measures.
    """

    end: str
    status: str
    method: str
    rounds: int
    lmo_calls: int
    seconds: float
    notes: Sequence[str]
    columns: Mapping[str, Sequence[float]] = field(default_factory=dict)


def execute(
    problem: Problem,
    method: Method,
    budget: Budget,
    seed: int,
    callback: Callback,
    runtime: Lockstep | None = None,
) -> RunResult:
    """Run the method on the problem; a run that diverges is a result, other errors are raised."""
    snapshots: list[Snapshot] = []
    metrics: dict[str, list[float]] = {name: [] for name in problem.metrics}

    def observe(snapshot: Snapshot) -> bool | None:
        snapshots.append(replace(snapshot, agents=()))
        for name, metric in problem.metrics.items():
            metrics[name].append(metric(snapshot.agents))
        return callback(snapshot)

    def columns() -> dict[str, Sequence[float]]:
        measured = as_history(snapshots).columns()
        return {name: column.tolist() for name, column in measured.items()} | metrics

    try:
        result = minimize(
            *problem.parts, method, **asdict(budget), seed=seed, runtime=runtime, callback=observe
        )
    except FloatingPointError as error:
        last = snapshots[-1]
        totals = last.rounds, last.lmo_calls, last.seconds
        return RunResult(FAILED, "the run failed.", repr(method), *totals, [str(error)], columns())
    calls = int(result.lmo_calls.max())
    unfinished = calls - snapshots[-1].lmo_calls
    notes = list(result.notes)
    if unfinished > 0:
        notes.append(f"{unfinished:,} further oracle calls went into an iteration that was not finished.")
    totals = result.rounds, calls, result.seconds
    return RunResult(
        result.status.name, str(result.status), result.about["method"], *totals, notes, columns()
    )
