"""The cost to accuracy: what a run spent until it reached each level of relative error."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from dcgs.bench.optimum import Optimum

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Relative errors of the worst agent, (worst_loss − f*)/(f(x⁰) − f*)."""


@final
@dataclass(frozen=True)
class LevelCost:
    """Rounds, bytes and oracle calls or projections (maximum over agents) until a level was reached.

    ``setting`` is the best setting of a grid, if there was a grid.
    """

    rounds: int
    bytes: int
    work: int
    setting: str = ""


@final
@dataclass(frozen=True)
class Trial:
    """One entry on one instance.

    ``work`` names what LevelCost counts: oracle calls or projections. ``end`` says why the run ended, after
    ``rounds`` and ``seconds``; ``reached`` is its lowest relative error. ``costs`` has None for a level that
    was not reached, or for which f* is not known accurately enough.
    """

    instance: str
    entry: str
    work: str
    end: str
    rounds: int
    seconds: float
    reached: float
    costs: Mapping[float, LevelCost | None]
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the trial as a JSON object, with levels as text."""
        costs = {f"{level:.0e}": cost and vars(cost) for level, cost in self.costs.items()}
        return vars(self) | {"costs": costs}


def cost_to_accuracy(
    columns: Mapping[str, Sequence[float]], optimum: Optimum, work: str
) -> dict[float, LevelCost | None]:
    """Return the cost at the first recorded point of each level; ``work`` names its column."""
    relative = optimum.relative(columns["worst_loss"])

    def cost(level: float) -> LevelCost | None:
        at = np.flatnonzero(relative <= level)
        if at.size == 0 or not optimum.resolves(level):
            return None
        rounds, sent, spent = (int(columns[name][at[0]]) for name in ("rounds", "bytes", work))
        return LevelCost(rounds, sent, spent)

    return {level: cost(level) for level in LEVELS}


def best_of(tried: Sequence[tuple[Trial, str]], name: str) -> Trial:
    """Return the best of several trials, each with its setting: at every level the fewest rounds."""
    costs = {}
    for level in LEVELS:
        reached = [replace(cost, setting=setting) for trial, setting in tried if (cost := trial.costs[level])]
        costs[level] = min(reached, key=lambda cost: cost.rounds, default=None)
    trials = [trial for trial, _ in tried]
    farthest = min(trials, key=lambda trial: (trial.reached, -trial.rounds))
    return replace(farthest, entry=name, seconds=sum(trial.seconds for trial in trials), costs=costs, note="")
