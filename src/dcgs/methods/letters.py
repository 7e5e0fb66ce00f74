"""Letters: messages that carry news, and now and then a parcel, beside a point.

News are a few numbers about every agent. They travel one edge a round, each agent passing on what it
just learned, so that after as many rounds as the graph is wide everyone has the same. A parcel is
one more vector, for all neighbors or for one. Both ride on messages that are sent anyhow.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.memory import Memory, Past, Remembers
from dcgs.points import Point
from dcgs.protocol import Inbox

Row: TypeAlias = tuple[float, ...]
"""What one agent tells everyone."""

ALL = -1
"""The addressee of a parcel that is for all neighbors."""


@final
@dataclass(frozen=True, eq=False)
class Parcel(Remembers):
    """A vector, and the neighbor it is for."""

    point: Point
    to: int = ALL

    def memory(self) -> Memory:
        return {"point": self.point, "to": self.to}


@final
@dataclass(frozen=True, eq=False)
class Letter:
    """A point, the sender's scale, rows of news by the agent they are about, and a parcel or none."""

    point: Point
    scale: float
    rows: Mapping[int, Row]
    parcel: Parcel | None = None

    def packed(self) -> Point:
        """Return the letter as one vector."""
        to = float(ALL if self.parcel is None else self.parcel.to)
        rows = [number for i, row in self.rows.items() for number in (float(i), *row)]
        parts = [self.point.reshape(-1), np.array([self.scale, to, float(len(self.rows)), *rows])]
        return np.concatenate(parts if self.parcel is None else [*parts, self.parcel.point.reshape(-1)])


def letters_in(inbox: Inbox, shape: tuple[int, ...], width: int) -> dict[int, Letter]:
    """Return the letters of all neighbors, or raise an error that names who sent something else."""
    letters = {}
    for j, message in inbox.items():
        try:
            letters[j] = unpacked(message, shape, width)
        except ValueError as error:
            raise ValueError(
                f"a message must be a letter with points of shape {shape}; agent {j} sent one of "
                f"shape {message.shape}, which is none."
            ) from error
    return letters


def unpacked(message: Point, shape: tuple[int, ...], width: int) -> Letter:
    """Return the letter that was packed, its points of ``shape`` and rows of ``width`` numbers."""
    size = int(np.prod(shape))
    (length,) = message.shape
    scale, to, count = message[size : size + 3].tolist()
    end = size + 3 + int(count) * (1 + width)
    if count < 0 or length not in (end, end + size):
        raise ValueError(f"a letter must have {end} or {end + size} numbers; got {length}.")
    rows = _rows(message[size + 3 : end].reshape(int(count), 1 + width))
    parcel = Parcel(message[end:].reshape(shape), int(to)) if len(message) > end else None
    return Letter(message[:size].reshape(shape), scale, rows, parcel)


@final
@dataclass
class News(Remembers):
    """What one agent has heard since the last issue, and what of it its neighbors have not yet."""

    rows: dict[int, Row] = field(default_factory=dict)
    _fresh: dict[int, Row] = field(default_factory=dict)

    @classmethod
    def again(cls, past: Past) -> News:
        """Return the news of a memory."""
        return cls(_rows(past.point("rows")), _rows(past.point("fresh")))

    def memory(self) -> Memory:
        return {"rows": _table(self.rows), "fresh": _table(self._fresh)}

    def begin(self, i: int, row: Row) -> None:
        """Forget the last issue, and start a new one with what agent i has to say."""
        self.rows, self._fresh = {i: row}, {i: row}

    def unsent(self) -> dict[int, Row]:
        """Return what was learned since this was last asked."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def read(self, letters: Iterable[Letter]) -> None:
        """Take note of what neighbors wrote."""
        for letter in letters:
            new = {i: row for i, row in letter.rows.items() if i not in self.rows}
            self.rows |= new
            self._fresh |= new

    def total(self, column: int) -> float:
        """Return the sum of a column over all agents heard of, in their order: the same for everyone."""
        return sum(self.rows[i][column] for i in sorted(self.rows))


def _table(rows: Mapping[int, Row]) -> NDArray[np.float64]:
    """Return the rows, each after the number of the agent it is about."""
    return np.array([(float(i), *row) for i, row in rows.items()], dtype=np.float64)


def _rows(table: NDArray[np.float64]) -> dict[int, Row]:
    return {int(i): tuple(row) for i, *row in table.tolist()}
