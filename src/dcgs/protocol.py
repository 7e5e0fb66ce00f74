"""The protocol between an agent and whoever runs it: a generator, and nothing else.

An agent's program yields what it tells its neighbors, is resumed with what they told it, and
returns its answer. A ``yield`` is one round of communication.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TypeAlias, TypeVar

from dcgs.points import Point

T = TypeVar("T")

Inbox: TypeAlias = Mapping[int, Point]
"""What each neighbor sent, neighbors in increasing order: floating-point sums depend on it."""

Program: TypeAlias = Generator[Point, Inbox, T]
