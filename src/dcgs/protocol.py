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
