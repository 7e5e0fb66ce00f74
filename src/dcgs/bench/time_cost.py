"""The cost of a run until a level was reached, and its time over a link."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.bench.optimum import Optimum
from dcgs.link import Link


@final
@dataclass(frozen=True)
class TimeCost:
    """Seconds of computing, bytes of the busiest agent and rounds until a level was reached."""

    computing: float
    bytes: int
    rounds: int

    def seconds(self, link: Link) -> float:
        """Return the time over such links."""
        return self.computing + link.seconds(self.bytes, self.rounds)


def time_cost(columns: Mapping[str, Sequence[float]], optimum: Optimum, level: float) -> TimeCost | None:
    """Return the cost at the first recorded point of the level, or None if it was not reached."""
    at = np.flatnonzero(optimum.relative(columns["worst_loss"]) <= level)
    if at.size == 0 or not optimum.resolves(level):
        return None
    k = int(at[0])
    return TimeCost(float(columns["computing"][k]), int(columns["bytes"][k]), int(columns["rounds"][k]))


def time_spent(columns: Mapping[str, Sequence[float]]) -> TimeCost:
    """Return the cost of the whole run, whatever it has reached."""
    return TimeCost(float(columns["computing"][-1]), int(columns["bytes"][-1]), int(columns["rounds"][-1]))
