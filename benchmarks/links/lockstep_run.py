"""The runs in one process that those over real links are compared with, to the bit."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from instances import METHODS, method

import dcgs
from dcgs.bench.entries import entry
from dcgs.bench.instances import Instance
from dcgs.bench.optimum import Optimum
from dcgs.bench.ranking import time_cost
from dcgs.bench.rounds import RoundsStudy, find_optimum, run_entry
from dcgs.front.agent_models import whole
from dcgs.low_rank import LowRank
from dcgs.study import Problem

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


def reference(study: RoundsStudy, chosen: Instance, key: str, problem: Problem) -> Reference:
    """Find the rounds that a method needs, and run these; what is in the study's folder is not repeated."""
    one = entry(METHODS[key])
    if study.optimum(chosen) is None:
        _check(find_optimum(study, chosen.name))
    if not study.has_trial(chosen, one):
        _check(run_entry(study, (chosen.name, one.name)))
    optimum, run = study.optimum(chosen), study.cache.run(chosen.file, one.file, study.key(chosen, one))
    assert optimum is not None
    assert run is not None
    cost = time_cost(run.columns, optimum, LEVEL)
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


def worst_loss(problem: Problem, models: Sequence[Any]) -> float:
    """Return the largest loss of any agent's model on everyone's data."""
    each: dict[str, Any] = {checksum([x]): x for x in whole(models)}
    return max(math.fsum(f.value(x) for f in problem.objectives) for x in each.values())


def checksum(models: Sequence[Any]) -> str:
    """Return the SHA-256 of models; if each agent has its own rows of a matrix, of the whole matrix.

    >>> zero = np.zeros(2)
    >>> checksum([zero]) == checksum([zero.copy()]), checksum([zero]) == checksum([-zero])
    (True, False)
    """
    found = hashlib.sha256()
    for x in whole(models):
        arrays = [x.U, x.V] if isinstance(x, LowRank) else [x]
        for array in arrays:
            found.update(f"{array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def _check(sentence: str | None) -> None:
    if sentence is not None:
        raise RuntimeError(sentence)
