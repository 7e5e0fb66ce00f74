"""The problem that a run solves, and how the run is made."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from dcgs.front.agent_models import Model, with_rows_of
from dcgs.front.checkpoint import Checkpoint
from dcgs.front.distributed import DistributedObjective
from dcgs.front.fingerprint import settings_of
from dcgs.front.history import Callback
from dcgs.front.network import EdgesUp, Network
from dcgs.front.stopping import Limits, Stopwatch
from dcgs.low_rank import LowRank
from dcgs.methods.base import Method
from dcgs.runtime import Runtime
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True, eq=False)
class Settings:
    """How a run is made; ``limits`` are as the user gave them, without defaults.

    ``setup`` counts the time until the run is built.
    """

    method: Method
    limits: Limits
    runtime: Runtime
    seed: int
    callback: Callback | None
    checkpoint: Checkpoint | None
    setup: Stopwatch = field(default_factory=Stopwatch)


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """Minimize f over X on a network of agents that start at x0."""

    f: DistributedObjective
    X: ConvexSet
    network: Network
    x0: Model
    settings: Settings
    edges_up: EdgesUp | None = None

    @property
    def reliable(self) -> bool:
        """Whether every message arrives in the round in which it is sent."""
        return self.settings.runtime.reliable and self.edges_up is None

    @property
    def faults(self) -> dict[str, str]:
        """What a checkpoint must have been made with: the faults, and the edges of a graph that changes."""
        if self.reliable:
            return {}
        varying = "a graph that changes, " if self.edges_up is not None else ""
        return {"faults": varying + settings_of((self.settings.runtime.faults, self.edges_up))}

    def start_of(self, i: int) -> Model:
        """Return the starting point of agent i: its own rows, if this process does not have all rows."""
        x0, part = self.x0, self.f.local[i]
        if not isinstance(x0, LowRank) or x0.rows is None or x0.rank == 0:
            return x0
        return with_rows_of(x0, part)

    def low_rank_start(self, i: int, own_rows: bool) -> LowRank | None:
        """Return the starting point of agent i in factors; with ``own_rows`` its own rows."""
        x0 = self.x0
        if not isinstance(x0, LowRank):
            return None
        if own_rows and x0.rank > 0:
            return with_rows_of(x0, self.f.local[i])
        if x0.rows is not None and x0.rank > 0:
            raise ValueError(
                "x0 must have all rows in all processes where entries of a row are with several agents; "
                f"it has {len(x0.rows)} of {x0.shape[0]}."
            )
        return x0

    @property
    def method(self) -> Method:
        """The method that all agents run."""
        return self.settings.method

    @property
    def limits(self) -> Limits:
        """The limits, with defaults."""
        return self.settings.limits.with_defaults(self.method.stops_itself)
