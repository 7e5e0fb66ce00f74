"""The runs in one process that those over real links are compared with, to the bit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import dcgs
from dcgs.low_rank import LowRank
from dcgs.run.models import form_of
from dcgs_bench.entries import entry_named
from dcgs_bench.instances import Instance
from dcgs_bench.optimum import Optimum
from dcgs_bench.ranking import cost_to
from dcgs_bench.rounds import RoundsGrid
from dcgs_bench.study import StudyProblem, run_tasks
from instances import METHODS, method

LEVEL = 1e-3
"""The relative error of the worst agent at which a run ends."""


@final
@dataclass(frozen=True, eq=False)
class Reference:
    """The rounds to the level, f*, and bytes and models of all agents after these rounds."""

    rounds: int
    optimum: Optimum
    bytes: Sequence[int]
    models: Sequence[Any]


def reference(grid: RoundsGrid, chosen: Instance, key: str, problem: StudyProblem) -> Reference:
    """Find the rounds that a method needs, and run these; what is in the study's folder is not repeated."""
    one, study = entry_named(METHODS[key]), grid.study
    run_tasks(study.records, [study.optimum_task(chosen, grid.seed)], 1, _check)
    run_tasks(study.records, [grid.task(chosen, one)], 1, _check)
    optimum, run = study.optimum(chosen, grid.seed), study.run_of(grid.task(chosen, one))
    assert optimum is not None
    assert run is not None
    cost = cost_to(run.columns, optimum, LEVEL)
    if cost is None or cost.rounds == 0:
        raise RuntimeError(
            f"{one.name} must reach a relative error of {LEVEL:.0e} in {run.rounds} rounds; it does not."
        )
    once = dcgs.Lockstep(threads=1)
    result = dcgs.minimize(
        problem.objectives,
        problem.X,
        problem.graph,
        method(key),
        rounds=cost.rounds,
        runtime=once,
        every=None,
    )
    return Reference(cost.rounds, optimum, result.bytes.tolist(), list(result.agents))


def worst_loss(problem: StudyProblem, models: Sequence[Any]) -> float:
    """Return the largest loss of any agent's model on everyone's data."""
    each: dict[str, Any] = {checksum([x]): x for x in _whole(models)}
    return max(math.fsum(f.value(x) for f in problem.objectives) for x in each.values())


def checksum(models: Sequence[Any]) -> str:
    """Return the SHA-256 of models; if each agent has its own rows of a matrix, of the whole matrix.

    >>> zero = np.zeros(2)
    >>> checksum([zero]) == checksum([zero.copy()]), checksum([zero]) == checksum([-zero])
    (True, False)
    """
    found = hashlib.sha256()
    for x in _whole(models):
        arrays = [x.U, x.V] if isinstance(x, LowRank) else [x]
        for array in arrays:
            found.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _check(title: str, sentence: str | None) -> None:
    if sentence is not None:
        raise RuntimeError(f"{title}: {sentence}")


def _whole(models: Sequence[Any]) -> list[Any]:
    """Return the models of all agents, each with the rows of all agents."""
    form = form_of(models[0])
    return form.whole(models, form.average(models))
