"""ProcessGroup's objectives, each in the process that runs its agent."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.objectives.objective import Objective
from dcgs.runtime import ProcessGroup, SingleProcess
from dcgs.runtime.wire import Array


@final
@dataclass(frozen=True, eq=False)
class Parts:
    """The parts of f = Σ fᵢ: those held here, by agent, and the processes that hold the others.

    What is asked of all parts is asked where they are, and comes together in the agents' order: so a sum is
    the same to the bit, however many processes there are.
    """

    held: Mapping[int, Objective]
    group: ProcessGroup

    def each(self, ask: Callable[[int, Objective], tuple[Array, ...]]) -> Iterator[tuple[Array, ...]]:
        """Yield what every agent's objective gives, in the process that leads, and nothing elsewhere."""
        width = 0

        def answers() -> Iterator[Array]:
            nonlocal width
            for i, f in self.held.items():
                given = ask(i, f)
                width = len(given)
                yield from given

        arrays = self.group.gather(answers())
        for first in arrays:
            yield (first, *(next(arrays) for _ in range(width - 1)))

    def settle(
        self,
        ask: Callable[[int, Objective], tuple[Array, ...]],
        combine: Callable[[Iterator[tuple[Array, ...]]], Sequence[float]],
    ) -> list[float]:
        """Return what the process that leads makes of every agent's answers; the same for all."""
        answers = self.each(ask)
        if not self.group.is_root:
            assert list(answers) == []  # given, and not had
            return list(self.group.broadcast(None).tolist())
        return list(self.group.broadcast(np.array(combine(answers), dtype=np.float64)).tolist())

    def numbers(self, ask: Callable[[int, Objective], Sequence[float]]) -> NDArray[np.float64]:
        """Return the numbers that every agent gives, a row each, in all processes."""
        mine = np.array([ask(i, f) for i, f in self.held.items()], dtype=np.float64)
        return np.concatenate(self.group.allgather([mine]))

    def texts(self, ask: Callable[[int, Objective], str]) -> list[str]:
        """Return what every agent says, in all processes."""
        said = [np.frombuffer(ask(i, f).encode(), dtype=np.uint8) for i, f in self.held.items()]
        return [bytes(text).decode() for text in self.group.allgather(said)]


def as_parts(objectives: Sequence[Objective] | Parts) -> Parts:
    """Return the parts of a sum that is all in this process."""
    if isinstance(objectives, Parts):
        return objectives
    return Parts(dict(enumerate(objectives)), SingleProcess())
