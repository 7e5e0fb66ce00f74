"""What a run solves, and how: the arguments of ``minimize`` after the checks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, final

from dcgs.front.distributed import DistributedObjective
from dcgs.front.history import Callback
from dcgs.front.network import Network
from dcgs.front.stopping import Limits
from dcgs.methods import Method
from dcgs.points import Point
from dcgs.runtime import Runtime
from dcgs.sets.base import ConvexSet

if TYPE_CHECKING:
    from dcgs.front.checkpoint import Checkpoint


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
    x0: Point
    settings: Settings

    @property
    def method(self) -> Method:
        """The method that all agents run."""
        return self.settings.method

    @property
    def limits(self) -> Limits:
        """The limits, with defaults."""
        return self.settings.limits.with_defaults(self.method.stops_itself)
