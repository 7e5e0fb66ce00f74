"""The problem that a run solves, and how the run is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.front.answers import Model
from dcgs.front.checkpoint import Checkpoint
from dcgs.front.distributed import DistributedObjective
from dcgs.front.fingerprint import settings_of
from dcgs.front.history import Callback
from dcgs.front.network import Network
from dcgs.front.stopping import Limits
from dcgs.front.varying import EdgesUp
from dcgs.methods.base import Method
from dcgs.runtime import Runtime
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True, eq=False)
class Settings:
    """How a run is made; ``limits`` are as the user gave them, without defaults."""

    method: Method
    limits: Limits
    runtime: Runtime
    seed: int
    callback: Callback | None
    checkpoint: Checkpoint | None


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

    @property
    def method(self) -> Method:
        """The method that all agents run."""
        return self.settings.method

    @property
    def limits(self) -> Limits:
        """The limits, with defaults."""
        return self.settings.limits.with_defaults(self.method.stops_itself)
