"""Messages of FastDCGS: a point, with flooded scalars and sometimes an attached vector.

Flooded scalars are a few numbers about every agent. An agent forwards the scalars that it has just
received. After as many rounds as the diameter of the graph, all agents have the scalars of all. An attached
vector is a second vector, for all neighbors or for one. Both are part of a message that is sent anyway, and
cost no round.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np

from dcgs.points import Point
from dcgs.protocol import Inbox

Row: TypeAlias = tuple[float, ...]
"""The scalars of one agent."""

ALL = -1
"""The receiver of an attached vector that is for all neighbors."""


@final
@dataclass(frozen=True, eq=False)
class AttachedVector:
    """A vector, and the neighbor it is for."""

    vector: Point
    to: int = ALL


@final
@dataclass(frozen=True, eq=False)
class Message:
    """A point, the sender's edge step, rows of flooded scalars by agent, and an optional attached vector."""

    point: Point
    edge_step: float
    rows: Mapping[int, Row]
    attached: AttachedVector | None = None

    def packed(self) -> Point:
        """Return the message as one vector."""
        to = float(ALL if self.attached is None else self.attached.to)
        rows = [number for i, row in self.rows.items() for number in (float(i), *row)]
        parts = [self.point.reshape(-1), np.array([self.edge_step, to, float(len(self.rows)), *rows])]
        return np.concatenate(parts if self.attached is None else [*parts, self.attached.vector.reshape(-1)])


def unpacked_all(inbox: Inbox, shape: tuple[int, ...], width: int) -> dict[int, Message]:
    """Return the messages of all neighbors; an error names the sender of a malformed one."""
    messages = {}
    for j, packed in inbox.items():
        try:
            messages[j] = unpacked(packed, shape, width)
        except ValueError as error:
            raise ValueError(
                f"a message must hold a point of shape {shape} with scalars; agent {j} sent one of "
                f"shape {packed.shape}, which does not."
            ) from error
    return messages


def unpacked(packed: Point, shape: tuple[int, ...], width: int) -> Message:
    """Return the message of a vector; its points have ``shape`` and its rows ``width`` scalars."""
    size = int(np.prod(shape))
    (length,) = packed.shape
    edge_step, to, count = packed[size : size + 3].tolist()
    end = size + 3 + int(count) * (1 + width)
    if count < 0 or length not in (end, end + size):
        raise ValueError(f"a message must have {end} or {end + size} numbers; got {length}.")
    table = packed[size + 3 : end].reshape(int(count), 1 + width)
    rows: dict[int, Row] = {int(i): tuple(row) for i, *row in table.tolist()}
    attached = AttachedVector(packed[end:].reshape(shape), int(to)) if len(packed) > end else None
    return Message(packed[:size].reshape(shape), edge_step, rows, attached)


@final
@dataclass(eq=False)
class FloodedScalars:
    """The scalars of all agents that one agent has received in this epoch, and those not yet forwarded."""

    rows: dict[int, Row] = field(default_factory=dict)
    unsent: dict[int, Row] = field(default_factory=dict)

    def start(self, i: int, row: Row) -> None:
        """Start a new epoch with the scalars of agent i itself."""
        self.rows, self.unsent = {i: row}, {i: row}

    def take_unsent(self) -> dict[int, Row]:
        """Return what was received since the last call."""
        unsent, self.unsent = self.unsent, {}
        return unsent

    def receive(self, messages: Iterable[Message]) -> None:
        """Store the rows that are new."""
        for message in messages:
            new = {i: row for i, row in message.rows.items() if i not in self.rows}
            self.rows |= new
            self.unsent |= new

    def total(self, column: int) -> float:
        """Return the sum of a column over agents, in their order: the same bits at every agent."""
        return sum(self.rows[i][column] for i in sorted(self.rows))
