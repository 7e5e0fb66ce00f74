"""The cost of a run until a level was reached, and its time over a link."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.bench.optimum import Optimum
from dcgs.link import Link
from dcgs.study.cache import Columns


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


def time_cost(columns: Columns, optimum: Optimum, level: float) -> TimeCost | None:
    """Return the cost at the first recorded point of the level, or None if it was not reached."""
    at = optimum.first_at(columns["worst_loss"], level)
    return None if at is None else time_spent(columns, at)


def time_spent(columns: Columns, at: int = -1) -> TimeCost:
    """Return the cost up to a recorded point; by default that of the whole run."""
    return TimeCost(float(columns["computing"][at]), int(columns["bytes"][at]), int(columns["rounds"][at]))
