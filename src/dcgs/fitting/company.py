"""Which agents a process hosts, and how all processes come to know one number."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import final

import numpy as np

from dcgs.runtime import ProcessGroup, Runtime


class Company(ABC):
    """The processes that fit one model together, as one of them sees them."""

    @property
    @abstractmethod
    def size(self) -> int:
        """How many processes there are."""

    @abstractmethod
    def hosts(self, agents: int) -> Sequence[int]:
        """Return which of so many agents this process hosts; the first process hosts agent 0."""

    @abstractmethod
    def allreduce_max(self, numbers: Sequence[float]) -> list[float]:
        """Return the largest of each number over all processes; all of them call this in the same order."""

    def meet(self) -> None:
        """Wait until all processes are here."""
        self.allreduce_max([0.0])

    def leads(self, agents: int) -> bool:
        """Return whether this process is the one that speaks."""
        return 0 in self.hosts(agents)


@final
class Alone(Company):
    """One process that hosts all agents."""

    @property
    def size(self) -> int:
        return 1

    def hosts(self, agents: int) -> Sequence[int]:
        return range(agents)

    def allreduce_max(self, numbers: Sequence[float]) -> list[float]:
        return list(numbers)


@final
class Together(Company):
    """The processes of a runtime, each with the agents it runs."""

    def __init__(self, runtime: Runtime, group: ProcessGroup) -> None:
        self._runtime = runtime
        self._group = group

    @property
    def size(self) -> int:
        return self._group.size

    def hosts(self, agents: int) -> Sequence[int]:
        return self._runtime.hosts(agents)

    def allreduce_max(self, numbers: Sequence[float]) -> list[float]:
        return list(self._group.allreduce_max(np.array(numbers, dtype=np.float64)).tolist())
