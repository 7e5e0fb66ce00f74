"""What a runtime is: it carries messages between programs, and counts them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.points import Point, frozen, is_finite, vdot
from dcgs.protocol import Program

Array: TypeAlias = NDArray[Any]


@final
@dataclass
class Traffic:
    """What crossed the edges so far: rounds of all, messages and bytes sent by each agent.

    ``computing`` is what lay between: the seconds of the slowest agent of each round, summed, as if
    every agent had a machine of its own; ``steps`` are those seconds one by one. ``worked`` and ``waited``
    are what each agent spent computing, and waiting for others. A process counts for the agents it runs.
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

    def step(self, agents: Sequence[int], seconds: Sequence[float]) -> None:
        """Note what each of these agents spent on its step, all of them on the same one."""
        slowest = max(seconds)
        for i, own in zip(agents, seconds, strict=True):
            self.worked[i] += own
        self.computing += slowest
        self.steps.append(slowest)

    def wait(self, agents: Sequence[int], seconds: float) -> None:
        """Note that these agents waited for others."""
        for i in agents:
            self.waited[i] += seconds

    def send(self, i: int, neighbors: int, size: int) -> None:
        """Note that agent i sent so many bytes to each of its neighbors."""
        self.messages[i] += neighbors
        self.bytes[i] += neighbors * size


@final
@dataclass(frozen=True, eq=False)
class Job:
    """A program for every agent, the graph they talk over, and who is asked after each round.

    ``program(i)`` starts agent i; ``neighbors[i]`` are in increasing order. ``after_round()`` is
    called while all agents stand still; the run ends when it returns False, which it does in all processes
    of a run or in none. ``traffic`` is kept up to date throughout, also when the run ends by an exception.
    ``wide`` says that agents spend their time in products that gain more from threads inside them than
    from agents side by side. ``spent``, where there is one, is asked after every step, the first as well,
    whether an agent anywhere may not go on, given whether one here may not.
    """

    program: Callable[[int], Program[Point]]
    neighbors: Sequence[Sequence[int]]
    traffic: Traffic
    after_round: Callable[[], bool]
    wide: bool = False
    spent: Callable[[bool], bool] | None = None


class ProcessGroup(ABC):
    """All processes of a run, for what the front door needs of them; never counted as traffic.

    Every process must ask the same questions in the same order. The first process leads.
    """

    is_root: bool
    size: int

    @abstractmethod
    def gather(self, mine: Iterable[Array]) -> Iterator[Array]:
        """Return the arrays of all processes, in their order, where this one leads; nothing elsewhere."""

    @abstractmethod
    def broadcast(self, values: Array | None) -> Array:
        """Return what the process that leads has; others give None."""

    @abstractmethod
    def fail(self, error: BaseException) -> bool:
        """Tell everyone why this process cannot go on; return whether it is the first to know."""

    @abstractmethod
    def sentence(self, error: BaseException) -> str:
        """Return what to say of an error of this process; where there are others it names the agent."""

    @abstractmethod
    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the largest of each number over all processes."""

    @contextmanager
    def told_of_failures(self) -> Iterator[None]:
        """Let everyone know of an exception that one process raises in here.

        Of several that fail at a time one keeps its exception; in the others it becomes one that was told.
        """
        try:
            yield
        except BaseException as error:
            if self.fail(error):
                raise
            raise RunAbortedError(str(error), told=True) from error

    @contextmanager
    def in_step(self, kind: type[BaseException] = Exception) -> Iterator[None]:
        """Mark what is raised in here, which all processes raise."""
        try:
            yield
        except RunAbortedError:
            raise
        except kind as error:
            if self.size > 1:
                error.add_note(IN_ALL)
            raise

    def allgather(self, mine: Iterable[Array]) -> list[Array]:
        """Return the arrays of all processes, in their order, in all of them."""
        arrays = list(self.gather(mine))
        count = int(self.broadcast(np.array([len(arrays)]) if self.is_root else None)[0])
        return [self.broadcast(arrays[place] if self.is_root else None) for place in range(count)]

    def decide(self, compute: Callable[[], Array]) -> Array:
        """Return what the process that leads computes."""
        return self.broadcast(compute() if self.is_root else None)

    def any(self, flag: bool) -> bool:
        """Return whether the flag is up in any process."""
        return bool(self.allreduce_max(np.array([float(flag)]))[0])


@final
class SingleProcess(ProcessGroup):
    """One process that runs all agents."""

    is_root = True
    size = 1

    def gather(self, mine: Iterable[Array]) -> Iterator[Array]:
        return iter(mine)

    def broadcast(self, values: Array | None) -> Array:
        assert values is not None
        return values

    def fail(self, error: BaseException) -> bool:
        return True

    def sentence(self, error: BaseException) -> str:
        return str(error)

    def allreduce_max(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        return values


class Runtime(ABC):
    """Runs every agent's program; knows the network and no mathematics."""

    @abstractmethod
    def run(self, job: Job) -> None:
        """Run until every program has returned or ``job.after_round`` returns False."""

    @abstractmethod
    def hosts(self, agents: int) -> range:
        """Return which of so many agents this process runs."""

    @abstractmethod
    def group(self) -> ProcessGroup:
        """Return all processes that take part."""


class RunAbortedError(RuntimeError):
    """Raised in every process of a run that could not go on; says in one sentence who failed, and how.

    ``told`` is True where another process told so, which then has shown the sentence, too.
    """

    def __init__(self, sentence: str, told: bool = False) -> None:
        super().__init__(sentence)
        self.told = told


IN_ALL = "raised in all processes"


def is_in_all(error: BaseException) -> bool:
    """Return whether all processes raise this error, so that none waits for another."""
    return IN_ALL in getattr(error, "__notes__", ())


Reply: TypeAlias = Point | None
"""What a program yields, or None once it has returned."""


def checked(sender: int, message: Reply) -> Point:
    """Return a message to be sent as a frozen copy; it must be an array of finite numbers."""
    sent = frozen(typed(sender, message))
    require_finite(sender, sent, vdot(sent, sent))
    return sent


def typed(sender: int, message: Reply) -> Point:
    """Return a message to be sent; it must be an array of float64."""
    if not isinstance(message, np.ndarray) or message.dtype != np.float64:
        kind = type(message).__name__
        raise TypeError(f"a message must be an array of float64; agent {sender} sent a {kind}.")
    return message


def require_finite(sender: int, message: Point, squares: float) -> None:
    """Raise unless all numbers of a message are finite, given the sum of their squares.

    If that is finite, they are, which is the fastest proof; if it is not, it proves nothing.
    """
    if not math.isfinite(squares) and not is_finite(message):
        where = tuple(np.argwhere(~np.isfinite(message))[0].tolist())
        raise FloatingPointError(
            f"a message must be finite; agent {sender} sent {message[where]} at {where}."
        )


def all_still_send(replies: dict[int, Reply]) -> bool:
    """Return whether these agents go on, and not whether none does; raise if some have returned."""
    returned = [i for i, reply in replies.items() if reply is None]
    if not returned:
        return bool(replies)
    sending = [i for i, reply in replies.items() if reply is not None]
    if sending:
        raise RuntimeError(f"agents {returned} returned while agents {sending} still send.")
    return False
