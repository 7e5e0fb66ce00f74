"""Rows and columns of ratings by the names that people use: ids of users and items, or numbers.

A naming turns names into the numbers of rows and columns, from 0, and back; −1 is a name that is not known.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.fitting.data import Indices
from dcgs.fitting.readers.ratings import Coded
from dcgs.ratings.ids import Ids


@final
@dataclass(frozen=True, eq=False)
class Labels:
    """Ids of users, with the row of each, and ids of items, whose places are the columns."""

    users: Ids
    numbers: Indices
    items: Ids

    def rows_of(self, names: Coded) -> Indices:
        places = self.users.places(names.ids.texts)
        numbers = np.append(self.numbers, -1)  # the place −1 is the last
        return numbers[places][names.codes]

    def cols_of(self, names: Coded) -> Indices:
        return self.items.places(names.ids.texts)[names.codes]

    def row_names(self, rows: Indices) -> list[Any]:
        order = np.argsort(self.numbers, kind="stable")
        return self.users[order[np.searchsorted(self.numbers[order], rows)]]

    def col_names(self, cols: Indices) -> list[Any]:
        return self.items[cols]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays that a model file needs."""
        return {"users": self.users.texts, "numbers": self.numbers, "items": self.items.texts}


@final
@dataclass(frozen=True, eq=False)
class Numbering:
    """Rows and columns with numbers; the first has the number ``base``, 0 or 1."""

    base: int
    shape: tuple[int, int]

    def rows_of(self, names: Coded) -> Indices:
        return self.within(_numbers(names) - self.base, 0)

    def cols_of(self, names: Coded) -> Indices:
        return self.within(_numbers(names) - self.base, 1)

    def within(self, numbers: Indices, axis: int) -> Indices:
        """Return numbers from 0, with −1 for those outside the matrix."""
        return np.where((numbers >= 0) & (numbers < self.shape[axis]), numbers, -1)

    def row_names(self, rows: Indices) -> list[Any]:
        return list((rows + self.base).tolist())

    def col_names(self, cols: Indices) -> list[Any]:
        return list((cols + self.base).tolist())

    def arrays(self) -> dict[str, NDArray[Any]]:
        return {}


Naming: TypeAlias = Labels | Numbering


def _numbers(names: Coded) -> Indices:
    """Return the numbers that ids are; −1 for an id that is none."""
    texts = names.ids.texts.tolist()
    numbers = [int(text) if text.isdigit() and len(text) < 18 else -1 for text in texts]
    return np.array(numbers, dtype=np.intp)[names.codes]
