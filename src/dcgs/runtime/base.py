"""The interface of a runtime: it runs the agents' programs, and sends their messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

from dcgs.protocol import Program
from dcgs.runtime.encoding import Array
from dcgs.runtime.faults import FaultSchedule
from dcgs.runtime.group import ProcessGroup
from dcgs.runtime.in_flight import AgentLinks
from dcgs.runtime.traffic import Traffic


@final
@dataclass(frozen=True, eq=False)
class Job:
    """What a runtime runs: a program for every agent, and the graph.

    ``program(i)`` returns the program of agent i; ``neighbors[i]`` are in increasing order. ``after_round()``
    is called after each round, when all agents have yielded their next message; the run ends when it returns
    False, in all processes at once. ``traffic`` is up to date at any time, also when the
    run ends by an exception. With ``prefers_blas_threads`` agents run one after the other, and each
    matrix product uses all threads. ``spent``, if given, is called after each step. Its argument is whether
    an agent of this process has used up its budget; it returns whether an agent of any process has. An agent
    whose turn comes when ``is_out_of_time`` returns True has used up its budget.
    ``point_nbytes`` is the size of a point, by which a runtime may choose its threads.

    ``edges_up``, if given, returns which edges are there in a round. ``links`` is the state of links that are
    not reliable. With ``repeats``, missing messages are replaced by older ones; ``slots`` is the number of
    rounds in an iteration. Asynchronous runs have no rounds: ``is_over`` returns whether the agents of this
    process have ended, and may stop when those of all others have; ``is_late`` whether a limit was reached,
    at which all stop. ``allgather`` returns the arrays of all processes.
    """

    program: Callable[[int], Program[Any]]
    neighbors: Sequence[Sequence[int]]
    traffic: Traffic
    after_round: Callable[[], bool]
    prefers_blas_threads: bool = False
    spent: Callable[[bool], bool] | None = None
    is_out_of_time: Callable[[], bool] = lambda: False
    point_nbytes: int = 0
    edges_up: Callable[[int], Collection[tuple[int, int]]] | None = None
    links: Mapping[int, AgentLinks] = field(default_factory=dict)
    repeats: bool = False
    slots: int = 1
    is_over: Callable[[], bool] = lambda: False
    is_late: Callable[[], bool] = lambda: False
    allgather: Callable[[Iterable[Array]], list[Array]] = list


class Runtime(ABC):
    """Runs every agent's program. It knows nothing about the optimization problem.

    With ``allow_faults``, a method that cannot bear missing messages gets older ones instead.
    """

    allow_faults: bool = False
    faults: FaultSchedule | None = None

    @property
    def reliable(self) -> bool:
        """Whether every message arrives in the round in which it is sent, and all agents take part in it."""
        return self.faults is None and not self.asynchronous

    @property
    def asynchronous(self) -> bool:
        """Whether agents run at their own pace, without rounds."""
        return False

    @property
    def replays(self) -> bool:
        """Whether it repeats the recorded steps of an asynchronous run."""
        return False

    @property
    def has_noise(self) -> bool:
        """Whether messages may be changed on their way."""
        return self.faults is not None and self.faults.has_noise

    def in_rounds(self) -> Runtime:
        """Return the same runtime with rounds in which every message arrives, as network sums need them."""
        if not self.reliable:
            raise ValueError(
                f"sums over the network need rounds in which every message arrives; {self!r} has none. "
                "Define in_rounds() of this runtime, or use dcgs.Lockstep() or dcgs.MPI()."
            )
        return self

    @abstractmethod
    def run(self, job: Job) -> None:
        """Run until every program has returned or ``job.after_round`` returns False."""

    @abstractmethod
    def hosts(self, agents: int) -> range:
        """Return which of the agents 0, …, agents − 1 this process hosts."""

    @abstractmethod
    def group(self) -> ProcessGroup:
        """Return the group of all processes of the run."""
