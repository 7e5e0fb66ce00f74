"""The interface of a runtime: it runs the agents' programs, and sends and counts their messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime.group import ProcessGroup


@final
@dataclass
class Traffic:
    """Counters of a run: rounds of all agents, messages and bytes that each agent sent.

    ``steps`` holds, for each step, the seconds of the slowest agent; ``computing`` is their sum, which is the
    time that a run takes if every agent has its own machine and messages take no time. ``worked`` and
    ``waited`` are the seconds that each agent spent computing and waiting for messages. A process counts for
    the agents that it hosts.
    """

    agents: int
    rounds: int = field(default=0, init=False)
    computing: float = field(default=0.0, init=False)
    steps: list[float] = field(default_factory=list, init=False)
    messages: NDArray[np.int64] = field(init=False)
    bytes: NDArray[np.int64] = field(init=False)
    worked: NDArray[np.float64] = field(init=False)
    waited: NDArray[np.float64] = field(init=False)

    def __post_init__(self) -> None:
        self.messages = np.zeros(self.agents, dtype=np.int64)
        self.bytes = np.zeros(self.agents, dtype=np.int64)
        self.worked = np.zeros(self.agents)
        self.waited = np.zeros(self.agents)

    def count_step(self, seconds: Mapping[int, float]) -> None:
        """Count one step of each of these agents, with its seconds."""
        for i, own in seconds.items():
            self.worked[i] += own
        slowest = max(seconds.values())
        self.computing += slowest
        self.steps.append(slowest)

    def count_wait(self, agents: Sequence[int], seconds: float) -> None:
        """Count the seconds that these agents waited for messages."""
        for i in agents:
            self.waited[i] += seconds

    def count_round(self, messages: Mapping[int, Point], neighbors: Sequence[Sequence[int]]) -> None:
        """Count a round, in which each of these agents sent its message to all its neighbors."""
        self.rounds += 1
        for i, message in messages.items():
            self.messages[i] += len(neighbors[i])
            self.bytes[i] += len(neighbors[i]) * message.nbytes


@final
@dataclass(frozen=True, eq=False)
class Job:
    """What a runtime runs: a program for every agent, and the graph.

    ``program(i)`` returns the program of agent i; ``neighbors[i]`` are in increasing order. ``after_round()``
    is called after each round, when all agents have yielded their next message; the run ends when it returns
    False, in all processes at once. ``traffic`` is up to date at any time, also when the
    run ends by an exception. With ``prefers_blas_threads`` agents run one after the other, and each
    matrix product uses all threads. ``spent``, if given, is called after each step. Its argument is whether
    an agent of this process has used up its budget; it returns whether an agent of any process has.
    """

    program: Callable[[int], Program[Point]]
    neighbors: Sequence[Sequence[int]]
    traffic: Traffic
    after_round: Callable[[], bool]
    prefers_blas_threads: bool = False
    spent: Callable[[bool], bool] | None = None


class Runtime(ABC):
    """Runs every agent's program. It knows nothing about the optimization problem."""

    @abstractmethod
    def run(self, job: Job) -> None:
        """Run until every program has returned or ``job.after_round`` returns False."""

    @abstractmethod
    def hosts(self, agents: int) -> range:
        """Return which of the agents 0, …, agents − 1 this process hosts."""

    @abstractmethod
    def group(self) -> ProcessGroup:
        """Return the group of all processes of the run."""
