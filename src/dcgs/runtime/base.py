"""What a runtime is: it carries messages between programs, and counts them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.points import Point
from dcgs.protocol import Program


@final
@dataclass
class Traffic:
    """What crossed the edges so far: rounds of all, messages and bytes sent by each agent.

    ``computing`` is what lay between: the seconds of the slowest agent of each round, summed, as if
    every agent had a machine of its own.
    """

    agents: int
    rounds: int = field(default=0, init=False)
    computing: float = field(default=0.0, init=False)
    messages: NDArray[np.int64] = field(init=False)
    bytes: NDArray[np.int64] = field(init=False)

    def __post_init__(self) -> None:
        self.messages = np.zeros(self.agents, dtype=np.int64)
        self.bytes = np.zeros(self.agents, dtype=np.int64)


@final
@dataclass(frozen=True, eq=False)
class Job:
    """A program for every agent, the graph they talk over, and who is asked after each round.

    ``program(i)`` starts agent i; ``neighbors[i]`` are in increasing order. ``after_round()`` is
    called while all agents stand still; the run ends when it returns False. ``traffic`` is kept up
    to date throughout, also when the run ends by an exception. ``wide`` says that agents spend their
    time in products that gain more from threads inside them than from agents side by side.
    """

    program: Callable[[int], Program[Point]]
    neighbors: Sequence[Sequence[int]]
    traffic: Traffic
    after_round: Callable[[], bool]
    wide: bool = False


class Runtime(ABC):
    """Runs every agent's program; knows the network and no mathematics."""

    @abstractmethod
    def run(self, job: Job) -> None:
        """Run until every program has returned or ``job.after_round`` returns False."""


Reply: TypeAlias = Point | None
"""What a program yields, or None once it has returned."""
