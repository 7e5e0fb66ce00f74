"""The protocol between an agent and its runtime: a generator, and nothing else.

An agent's program yields the message to its neighbors, is resumed with their messages, and returns its
result. A ``yield`` is one round of communication.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping
from typing import TypeAlias, TypeVar

from dcgs.points import Point

T = TypeVar("T")

Inbox: TypeAlias = Mapping[int, Point]
"""The message of each neighbor, in increasing order of neighbors: floating-point sums depend on it."""

Program: TypeAlias = Generator[Point, Inbox, T]
