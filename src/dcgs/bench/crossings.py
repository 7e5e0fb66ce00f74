"""What a run needed to reach each level of relative error, read off its history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, TypeAlias, final

import numpy as np

from dcgs.bench.optimum import Optimum

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Relative errors of the worst agent, (worst_loss − f*)/(f(x⁰) − f*)."""


class End(Enum):
    """Why a run ended; ``str(end)`` is a sentence."""

    LEVEL = "the last level was reached."
    ROUNDS = "the limit on rounds was reached."
    SECONDS = "the limit on seconds was reached."
    FAILED = "the run failed."

    def __str__(self) -> str:
        return self.value


@final
@dataclass(frozen=True)
class Cost:
    """Rounds, and the busiest agent's bytes and work on the set, up to some level; ``setting`` is whose."""

    rounds: int
    bytes: int
    work: int
    setting: str = ""


Costs: TypeAlias = Mapping[float, Cost | None]
"""By level; None where the level was not reached, or f* is not known well enough to say."""


@final
@dataclass(frozen=True)
class Trial:
    """One contestant on one instance. ``work`` says what is counted: oracle calls or projections.

    ``rounds`` and ``seconds`` are where the run ended, ``reached`` the least relative error on the way.
    """

    instance: str
    contestant: str
    work: str
    end: End
    rounds: int
    seconds: float
    reached: float
    costs: Costs
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it, levels as text."""
        costs = {_label(level): cost and vars(cost) for level, cost in self.costs.items()}
        return vars(self) | {"end": self.end.name, "costs": costs}


def crossings(
    history: Mapping[str, Sequence[float]], optimum: Optimum, work: str
) -> dict[float, Cost | None]:
    """Return the cost at the first entry that is at a level, for each level; ``work`` names its column."""
    relative = optimum.relative(history["worst_loss"])
    found: dict[float, Cost | None] = {}
    for level in LEVELS:
        at = np.flatnonzero(relative <= level)
        known = at.size > 0 and optimum.tells(level)
        found[level] = _cost(history, int(at[0]), work) if known else None
    return found


def best_of(tried: Sequence[tuple[Trial, str]], name: str) -> Trial:
    """Return what the best of several trials, each with its setting, needed: by level, the fewest rounds."""
    costs: dict[float, Cost | None] = {}
    for level in LEVELS:
        reached = [replace(cost, setting=setting) for trial, setting in tried if (cost := trial.costs[level])]
        costs[level] = min(reached, key=lambda cost: cost.rounds, default=None)
    trials = [trial for trial, _ in tried]
    farthest = min(trials, key=lambda trial: (trial.reached, -trial.rounds))
    return Trial(
        farthest.instance,
        name,
        farthest.work,
        farthest.end,
        farthest.rounds,
        sum(trial.seconds for trial in trials),
        farthest.reached,
        costs,
    )


def _cost(history: Mapping[str, Sequence[float]], at: int, work: str) -> Cost:
    return Cost(int(history["rounds"][at]), int(history["bytes"][at]), int(history[work][at]))


def _label(level: float) -> str:
    return f"{level:.0e}"
