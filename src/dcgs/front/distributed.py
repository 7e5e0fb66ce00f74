"""What all processes of a run compute or decide together: the sum f = Σ fᵢ, common errors and arguments.

Each fᵢ is in the process that runs agent i.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.objectives.objective import Objective
from dcgs.runtime import ProcessGroup, SingleProcess
from dcgs.runtime.encoding import Array

T = TypeVar("T")

Evaluate: TypeAlias = Callable[[int, Objective], tuple[Array, ...]]
"""What is computed from one agent's number and objective, in the process that has it."""

# Errors of these types keep their type in other processes.
_TYPES: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (TypeError, ValueError, OSError, ImportError, MemoryError, ArithmeticError, RuntimeError)
}


@final
@dataclass(frozen=True, eq=False)
class DistributedObjective:
    """The terms of f = Σ fᵢ: those of this process, by agent, and the group that has the others.

    Results are combined in the order of agents, so that a sum has the same bits for any number of processes.
    """

    local: Mapping[int, Objective]
    group: ProcessGroup

    def gather(self, evaluate: Evaluate) -> Iterator[tuple[Array, ...]]:
        """Yield the result of every agent, in order, at the root; yield nothing in other processes."""
        width = 0

        def results() -> Iterator[Array]:
            nonlocal width
            for i, f in self.local.items():
                result = evaluate(i, f)
                width = len(result)
                yield from result

        arrays = self.group.gather(results())
        for first in arrays:
            yield (first, *(next(arrays) for _ in range(width - 1)))

    def reduce(
        self, evaluate: Evaluate, combine: Callable[[Iterator[tuple[Array, ...]]], Sequence[float]]
    ) -> list[float]:
        """Return, in all processes, the numbers that the root combines from all agents' results."""
        results = self.gather(evaluate)
        if self.group.is_root:
            combined = self.group.broadcast(np.array(combine(results), dtype=np.float64))
        else:
            assert list(results) == []  # sends the results of this process
            combined = self.group.broadcast(None)
        return list(combined.tolist())

    def numbers(self, evaluate: Callable[[int, Objective], Sequence[float]]) -> NDArray[np.float64]:
        """Return, in all processes, a row of numbers for every agent."""
        local = np.array([evaluate(i, f) for i, f in self.local.items()], dtype=np.float64)
        return np.concatenate(self.group.allgather([local]))

    def texts(self, evaluate: Callable[[int, Objective], str]) -> list[str]:
        """Return, in all processes, a text for every agent."""
        return self.group.allgather_texts(evaluate(i, f) for i, f in self.local.items())


def as_distributed(objectives: Sequence[Objective] | DistributedObjective) -> DistributedObjective:
    """Return the sum of objectives that are all in this process."""
    if isinstance(objectives, DistributedObjective):
        return objectives
    return DistributedObjective(dict(enumerate(objectives)), SingleProcess())


def agreed(group: ProcessGroup, check: Callable[[], T]) -> T:
    """Return what the check returns; if it raises in one process, raise the same error in all processes."""
    own: Exception | None = None
    text = ""
    try:
        value = check()
    except Exception as error:
        own, text = error, f"{type(error).__name__}\n{error}"
    texts = group.allgather_texts([text])
    first = next(filter(None, texts), None)
    if first is None:
        return value
    with group.common_errors():
        kind, _, sentence = first.partition("\n")
        common = own if own is not None and first == text else _TYPES.get(kind, RuntimeError)(sentence)
        if not all(texts):
            common.add_note(f"raised in rank {texts.index(first)}")
        raise common  # its own with its traceback and notes


def check_same(group: ProcessGroup, arguments: Mapping[str, str]) -> None:
    """Raise unless all processes have the same arguments; each argument is given as a text."""
    first, *others = map(json.loads, group.allgather_texts([json.dumps(dict(arguments))]))
    for rank, other in enumerate(others, 1):
        odd = [name for name in first if first[name] != other[name]]
        if odd:
            raise ValueError(
                f"all processes must be given the same {' and '.join(odd)}; process {rank} was given "
                f"{other[odd[0]]}, process 0 {first[odd[0]]}."
            )
