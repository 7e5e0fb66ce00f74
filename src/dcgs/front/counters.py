"""What is counted during a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.counting import CountedOracle, Tally
from dcgs.front.stopping import Stopwatch
from dcgs.runtime import Traffic


@final
@dataclass(frozen=True, eq=False)
class Counters:
    """The counters of a run, for the agents of this process; bytes are counted in ``traffic``."""

    traffic: Traffic
    oracles: Mapping[int, CountedOracle]
    projections: Mapping[int, Tally]
    clock: Stopwatch

    @property
    def calls(self) -> int:
        """The largest number of oracle calls of an agent in this process."""
        return max(oracle.calls for oracle in self.oracles.values())

    @property
    def work(self) -> tuple[int, int]:
        """The largest numbers of oracle calls and of projections of an agent in this process."""
        return self.calls, max(tally.count for tally in self.projections.values())
