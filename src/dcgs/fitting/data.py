"""What is read from a user's files: samples of a regression, or entries of a matrix."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets.base import Matrix

Numbers: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.intp]


@final
@dataclass(frozen=True, eq=False)
class Samples:
    """Rows of A and what is to be predicted from each; ``b`` is None where the file has no targets.

    ``names`` are the features', where the file has names; ``target`` is the name of b, where it has one, and
    ``target_at`` its place among the columns, from 0. ``open``: the file does not say how many columns A has,
    so that it may have more.
    """

    A: Matrix
    b: Numbers | None
    names: tuple[str, ...] | None = None
    target: str | None = None
    target_at: int | None = None
    open: bool = False

    def __len__(self) -> int:
        return int(self.A.shape[0])

    def take(self, places: Places | slice) -> Samples:
        """Return these samples, in this order."""
        return replace(self, A=self.A[places], b=None if self.b is None else self.b[places])

    def copied(self) -> Samples:
        """Return samples that keep nothing else in memory."""
        A: Any = self.A.copy()
        return replace(self, A=A, b=None if self.b is None else self.b.copy())

    def key(self) -> Numbers:
        """Return what ``--split sorted`` sorts by: the target."""
        return np.zeros(len(self)) if self.b is None else self.b


@final
@dataclass(frozen=True, eq=False)
class Entries:
    """Places in a matrix and what is observed there; ``values`` is None where the file has none.

    ``base`` is the number of the first row and column, 0 or 1; None where the file does not say. ``shape`` is
    that of the matrix, where the file does.
    """

    rows: Places
    cols: Places
    values: Numbers | None
    base: int | None = None
    shape: tuple[int, int] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, places: Places | slice) -> Entries:
        """Return these entries, in this order."""
        values = None if self.values is None else self.values[places]
        return replace(self, rows=self.rows[places], cols=self.cols[places], values=values)

    def from_zero(self, base: int) -> Entries:
        """Return the entries with rows and columns counted from 0; ``base`` is for those that do not say."""
        first = base if self.base is None else self.base
        return replace(self, rows=self.rows - first, cols=self.cols - first, base=0)

    def copied(self) -> Entries:
        """Return entries that keep nothing else in memory."""
        values = None if self.values is None else self.values.copy()
        return replace(self, rows=self.rows.copy(), cols=self.cols.copy(), values=values)

    def key(self) -> Numbers:
        """Return what ``--split sorted`` sorts by: the row, so that an agent has whole rows."""
        return self.rows.astype(np.float64)
