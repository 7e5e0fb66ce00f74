"""Memory: what a run must know to go on as if it had never stopped, as plain values and nothing else.

Whoever has a state says by ``memory()`` what it is, and takes it up again from a :class:`Past`. Arrays are
handed over as they are, not copied: the memory is good until the state changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

Memory: TypeAlias = "bool | int | float | str | NDArray[Any] | list[Memory] | dict[str, Memory] | None"
"""Plain values, arrays of numbers, and lists and dictionaries of such."""

T = TypeVar("T")


class Remembers(ABC):
    """Something with a state that a run goes on with."""

    @abstractmethod
    def memory(self) -> Memory:
        """Return the state as plain values; arrays in it may be the object's own."""


State: TypeAlias = "Memory | Remembers"
"""One variable of a program."""


class Keep(Protocol):
    """What an agent offers its state to, after each iteration."""

    def __call__(self, k: int, /, **state: State) -> None:
        """Take note of the variables after the k-th iteration, or do nothing."""


def keep_nothing(k: int, /, **state: State) -> None:
    """Do nothing: nobody asked for checkpoints."""


def plain(state: State) -> Memory:
    """Return the variable as plain values."""
    return state.memory() if isinstance(state, Remembers) else state


@final
@dataclass(frozen=True, eq=False)
class Past:
    """The memory of a state, read by the names it was written with.

    An array is handed over to the first who asks for it, so that nothing is held that a run has replaced.
    """

    values: dict[str, Memory]

    def __contains__(self, name: str) -> bool:
        return self.values.get(name) is not None

    def number(self, name: str) -> float:
        """Return a float."""
        return self._of(name, float)

    def numbers(self, *names: str) -> list[float]:
        """Return several floats."""
        return [self.number(name) for name in names]

    def whole(self, name: str) -> int:
        """Return an integer."""
        return self._of(name, int)

    def word(self, name: str) -> str:
        """Return a text."""
        return self._of(name, str)

    def array(self, name: str) -> NDArray[Any]:
        """Return an array, once."""
        found: NDArray[Any] = self._of(name, np.ndarray)
        del self.values[name]
        return found

    def point(self, name: str) -> NDArray[np.float64]:
        """Return an array of floats, once."""
        return self.array(name)

    def points(self, *names: str) -> list[NDArray[np.float64]]:
        """Return several arrays of floats."""
        return [self.point(name) for name in names]

    def part(self, name: str) -> Past:
        """Return the memory of a part."""
        return Past(self._of(name, dict))

    def parts(self, name: str) -> list[Past]:
        """Return the memories of a list of parts."""
        return [Past(value) for value in self._of(name, list) if isinstance(value, dict)]

    def _of(self, name: str, kind: type[T]) -> T:
        value = self.values.get(name)
        if not isinstance(value, kind):
            raise ValueError(
                f"a checkpoint must hold {name!r}, a {kind.__name__}; it has a {type(value).__name__}."
            )
        return value
