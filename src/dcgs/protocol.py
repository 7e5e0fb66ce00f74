"""The protocol between an agent and its runtime: a generator, and nothing else.

An agent's program yields what it sends to its neighbors, is resumed with their messages, and returns its
result. A ``yield`` is one round of communication.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import Any, TypeAlias, TypeVar

from dcgs.points import Point

T = TypeVar("T")

Message: TypeAlias = Point | tuple[Point, ...]
"""An array of float64, or several arrays."""

Outbox: TypeAlias = Message | Mapping[int, Message]
"""One message for all neighbors, or a message for each of some neighbors."""

Inbox: TypeAlias = Mapping[int, Any]
"""The messages of neighbors, in increasing order of neighbors: floating-point sums depend on it.

Each value is the array or the tuple of arrays that the neighbor sent. A neighbor that sent nothing to this
agent is missing.
"""

Program: TypeAlias = Generator[Outbox, Inbox, T]


def side_by_side(*programs: Generator[Any, Any, Any]) -> Generator[list[Any], Any, list[Any]]:
    """Return the answers of several generators; what all of them yield in one step is yielded as one list.

    >>> def doubled(number):
    ...     twice = yield number
    ...     return twice
    >>> both = side_by_side(doubled(1), doubled(2))
    >>> next(both)
    [1, 2]
    """
    answers: dict[int, Any] = {}
    results: dict[int, Any] = dict.fromkeys(range(len(programs)))
    while results:
        asked: dict[int, Any] = {}
        for k, result in results.items():
            try:
                asked[k] = programs[k].send(result)
            except StopIteration as end:
                answers[k] = end.value
        results = dict(zip(asked, (yield [*asked.values()]), strict=True)) if asked else {}
    return [answers[k] for k in range(len(programs))]
