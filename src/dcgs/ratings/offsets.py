"""Offsets of ratings: their mean, and what each row (user) and column (item) adds to it.

The offsets a of rows and b of columns minimize Σ (value − mean − a[row] − b[column])² + ridge (‖a‖² + ‖b‖²)
over the ratings of all agents. Every agent eliminates the offsets of its rows; what remains is a linear
system for b, with a positive definite matrix. The agents solve it by conjugate gradients. A product with the
matrix is one sum over the network, of as many numbers as there are columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.low_rank import Index
from dcgs.methods.reduction import Value, added, tree_answer
from dcgs.protocol import Program
from dcgs.ratings.ids import places_in
from dcgs.tree import TreeNode

Numbers = NDArray[np.float64]

# Conjugate gradients end when the residual, relative to the right side, is this small. Ratings have few
# digits, so offsets with eight are exact for them.
_ACCURACY = 1e-8
_MOST_STEPS = 200


@final
@dataclass(frozen=True, eq=False)
class Part:
    """The ratings of one agent, with the numbers of their rows and columns."""

    rows: Index
    cols: Index
    values: Numbers


@final
@dataclass(frozen=True, eq=False)
class Offsets:
    """The mean of all ratings, the offsets of an agent's rows and of all columns, and the range of ratings.

    ``rows`` are the numbers of the rows, in increasing order, that ``row_offsets`` belong to.
    """

    mean: float
    low: float
    high: float
    rows: Index
    row_offsets: Numbers
    col_offsets: Numbers

    @classmethod
    def none(cls, low: float, high: float, columns: int) -> Offsets:
        """Return offsets that are all zero."""
        return cls(0.0, low, high, np.empty(0, dtype=np.intp), np.empty(0), np.zeros(columns))

    def of(self, rows: Index, cols: Index) -> Numbers:
        """Return mean plus offsets; a row or a column that is not known, such as −1, has the offset 0."""
        known = (cols >= 0) & (cols < len(self.col_offsets))
        return self.mean + self.of_rows(rows) + np.where(known, self.col_offsets[np.where(known, cols, 0)], 0)

    def of_rows(self, rows: Index) -> Numbers:
        """Return the offsets of rows; 0 for a row that is not known."""
        return np.append(self.row_offsets, 0.0)[places_in(self.rows, rows)]  # the place −1 is the last


@final
@dataclass(frozen=True)
class OffsetsTask:
    """What all agents know beforehand.

    With ``separate_rows`` the ratings of every row are with one agent, and no message has a dimension of
    rows. ``ridge`` None means no offsets: only the range of ratings is found.
    """

    shape: tuple[int, int]
    separate_rows: bool
    ridge: float | None = 5.0


def offsets_program(part: Part, tree: TreeNode, task: OffsetsTask) -> Program[Offsets]:
    """Find the offsets, for one agent."""
    sides = np.array([part.values.min(), -part.values.max()])
    (sides,) = yield from tree_answer((sides,), tree, _smaller, _same)
    low, high = float(sides[0]), -float(sides[1])
    if task.ridge is None:
        return Offsets.none(low, high, task.shape[1])
    total = np.array([part.values.sum(), float(len(part.values))])
    (total,) = yield from tree_answer((total,), tree, added, _same)
    mean = float(total[0] / total[1])
    system = _System(part, mean, tree, task)
    b = yield from system.solve()
    a = yield from system.row_offsets(b)
    return Offsets(mean, low, high, system.rows, a, b)


@final
class _System:
    """One agent's part of the linear system for the offsets of columns.

    A is the number of ratings of each entry. ``counts`` are those of rows, plus the ridge.
    """

    def __init__(self, part: Part, mean: float, tree: TreeNode, task: OffsetsTask) -> None:
        assert task.ridge is not None
        self.tree, self.task, self.ridge = tree, task, task.ridge
        self.rows: Index = np.unique(part.rows) if task.separate_rows else np.arange(task.shape[0])
        places = np.searchsorted(self.rows, part.rows)
        shape = len(self.rows), task.shape[1]
        self.A = sp.csr_array((np.ones(len(places)), (places, part.cols)), shape=shape)
        rest = part.values - mean
        self.row_sums = _sums(places, rest, shape[0])
        self.col_sums = _sums(part.cols, rest, shape[1])
        self.row_counts = np.asarray(self.A.sum(axis=1), dtype=np.float64)
        self.col_counts = np.asarray(self.A.sum(axis=0), dtype=np.float64)

    def solve(self) -> Program[Numbers]:
        """Return the offsets of columns, by conjugate gradients with a diagonal preconditioner."""
        if not self.task.separate_rows:
            self.row_sums, self.row_counts = yield from self._total(self.row_sums, self.row_counts)
        counts = self.row_counts + self.ridge
        # Where all agents have all rows, every agent adds the columns of its own ratings.
        right, col_counts = yield from self._total(
            self.col_sums - self.A.T @ (self.row_sums / counts), self.col_counts
        )
        diagonal = col_counts + self.ridge
        b = np.zeros(len(right))
        r = right
        z = r / diagonal
        p, rz = z, float(r @ z)
        enough = _ACCURACY**2 * rz
        for _ in range(_MOST_STEPS):
            if rz <= enough:
                break
            from_rows = yield from self._row_totals(p)
            (product,) = yield from self._total(self.A.T @ (from_rows / counts))
            Sp = diagonal * p - product
            step = rz / float(p @ Sp)
            b, r = b + step * p, r - step * Sp
            z = r / diagonal
            rz, before = float(r @ z), rz
            p = z + (rz / before) * p
        return b

    def row_offsets(self, b: Numbers) -> Program[Numbers]:
        """Return the offsets of this agent's rows, given those of the columns."""
        from_rows = yield from self._row_totals(b)
        return np.asarray((self.row_sums - from_rows) / (self.row_counts + self.ridge))

    def _row_totals(self, p: Numbers) -> Program[Numbers]:
        """Return A p, summed over all agents unless every row is with one."""
        own = np.asarray(self.A @ p)
        if self.task.separate_rows:
            return own
        (total,) = yield from self._total(own)
        return total

    def _total(self, *arrays: Numbers) -> Program[Value]:
        return (yield from tree_answer(arrays, self.tree, added, _same))


def _same(total: Value) -> Value:
    return total


def _smaller(a: Value, b: Value) -> Value:
    return tuple(np.minimum(one, other) for one, other in zip(a, b, strict=True))


def _sums(places: Index, values: Numbers, count: int) -> Numbers:
    return np.asarray(np.bincount(places, weights=values, minlength=count), dtype=np.float64)
