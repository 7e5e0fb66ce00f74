"""Data read from a user's files: samples of a regression, or entries of a matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.base import Matrix

Numbers: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class Samples:
    """Rows of A and their targets; ``b`` is None where the file has no targets.

    ``names`` are the names of the features, ``target`` is the name of b, where the file has names.
    ``target_at`` is the column of b, from 0. ``open`` says that A may have more columns than were read:
    LIBSVM text does not say how many there are.
    """

    A: Matrix
    b: Numbers | None
    names: tuple[str, ...] | None = None
    target: str | None = None
    target_at: int | None = None
    open: bool = False

    def __len__(self) -> int:
        return int(self.A.shape[0])

    def take(self, chosen: Indices | slice) -> Samples:
        """Return these samples, in this order."""
        return replace(self, A=self.A[chosen], b=None if self.b is None else self.b[chosen])

    def sort_key(self) -> Numbers:
        """Return the target, by which ``--split sorted`` sorts."""
        return np.zeros(len(self)) if self.b is None else self.b


@final
@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries of a matrix; ``values`` is None where the file has none.

    ``base`` is the index of the first row and column, 0 or 1; ``shape`` is the shape of the matrix. Both are
    None where the file does not say.
    """

    rows: Indices
    cols: Indices
    values: Numbers | None
    base: int | None = None
    shape: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Indices | slice) -> Entries:
        """Return these entries, in this order."""
        values = None if self.values is None else self.values[chosen]
        return replace(self, rows=self.rows[chosen], cols=self.cols[chosen], values=values)

    def from_zero(self, base: int) -> Entries:
        """Return the entries counted from 0; ``base`` is used if the file does not say its own."""
        first = base if self.base is None else self.base
        return replace(self, rows=self.rows - first, cols=self.cols - first, base=0)

    def first_outside(self, shape: tuple[int, int]) -> tuple[str, int, int, int] | None:
        """Return the first entry outside a matrix: row or column, which entry, its index, and the side."""
        for name, indices, side in (("row", self.rows, shape[0]), ("column", self.cols, shape[1])):
            outside = np.flatnonzero((indices < 0) | (indices >= side))
            if len(outside):
                return name, int(outside[0]), int(indices[outside[0]]), side
        return None

    def sort_key(self) -> Numbers:
        """Return the row, by which ``--split sorted`` sorts: an agent then has whole rows."""
        return self.rows.astype(np.float64)
