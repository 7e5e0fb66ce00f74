"""The arguments of a run, as the user gave them and as they are after the checks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, final

import networkx as nx
from numpy.typing import ArrayLike

from dcgs.front.distributed import DistributedObjective
from dcgs.front.history import Callback
from dcgs.front.network import Network
from dcgs.front.stopping import Limits
from dcgs.methods import Method
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.runtime import Runtime
from dcgs.sets.base import ConvexSet

if TYPE_CHECKING:
    from dcgs.front.checkpoint import Checkpoint


@final
@dataclass(frozen=True, eq=False)
class Arguments:
    """The arguments of :func:`~dcgs.minimize`, not yet checked."""

    objectives: Sequence[Objective] | Mapping[int, Objective]
    X: ConvexSet
    graph: nx.Graph
    x0: ArrayLike | None
    method: Method
    limits: Limits
    runtime: Runtime
    seed: int
    callback: Callback | None
    checkpoint: Checkpoint | None


@final
@dataclass(frozen=True, eq=False)
class Problem:
    """What a run solves and how, after the checks.

    ``limits`` has the defaults filled in. ``horizon`` is the number of iterations that the user allowed,
    None if the user set no such limit.
    """

    f: DistributedObjective
    X: ConvexSet
    network: Network
    x0: Point
    method: Method
    limits: Limits
    horizon: int | None
    runtime: Runtime
    seed: int
    callback: Callback | None
    checkpoint: Checkpoint | None
