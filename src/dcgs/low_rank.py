"""A matrix by its factors: U Vᵀ, with as many columns as its rank."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.validation import MATRIX_SHAPE, reals, shown
from dcgs.validation import indices as whole_numbers

Matrix = NDArray[np.float64]
Index = NDArray[np.intp]

# Entries that are computed at a time: their factors are in the cache.
_CHUNK = 1 << 13


@final
@dataclass(frozen=True, eq=False)
class LowRank:
    """The matrix U Vᵀ of some shape. It is never formed, except by ``np.asarray``.

    ``rows`` are the numbers of the rows that U has, in increasing order; None means all rows. A row that U
    does not have is zero.

    >>> x = LowRank(np.array([[1.0], [2.0]]), np.array([[3.0], [0.0], [5.0]]), (2, 3))
    >>> x.rank, x.entries([1, 0], [2, 0]), x.row(1)
    (1, array([10.,  3.]), array([ 6.,  0., 10.]))
    >>> np.asarray(x)
    array([[ 3.,  0.,  5.],
           [ 6.,  0., 10.]])
    """

    U: Matrix
    V: Matrix
    shape: tuple[int, int]
    rows: Index | None = None

    def __post_init__(self) -> None:
        shape = MATRIX_SHAPE(self.shape, "shape")
        U, V = reals(self.U, "U", 2), reals(self.V, "V", 2)
        rows = None if self.rows is None else whole_numbers(self.rows, "rows")
        if rows is not None and ((np.diff(rows, prepend=-1) <= 0).any() or (rows >= shape[0]).any()):
            raise ValueError(
                f"rows must be increasing whole numbers from 0 to {shape[0] - 1}; got {shown(self.rows)}."
            )
        count = shape[0] if rows is None else len(rows)
        if len(U) != count:
            raise ValueError(f"U must have a row for each of {count} rows; got shape {U.shape}.")
        if V.shape != (shape[1], U.shape[1]):
            raise ValueError(
                f"V must have shape {(shape[1], U.shape[1])}, as many columns as U has; got {V.shape}."
            )
        for name, value in (("U", U), ("V", V), ("shape", shape), ("rows", rows)):
            object.__setattr__(self, name, value)

    @classmethod
    def zeros(cls, shape: tuple[int, int]) -> LowRank:
        """Return the zero matrix, of rank 0 and without any row."""
        return cls(np.zeros((0, 0)), np.zeros((shape[1], 0)), shape, np.zeros(0, dtype=np.intp))

    @property
    def rank(self) -> int:
        """The number of columns of U and V."""
        return int(self.V.shape[1])

    @property
    def nbytes(self) -> int:
        """Bytes of the factors."""
        return self.U.nbytes + self.V.nbytes

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        dense = np.zeros(self.shape)
        if self.rank:
            dense[slice(None) if self.rows is None else self.rows] = self.U @ self.V.T
        return dense if dtype is None else dense.astype(dtype)

    def __getitem__(self, key: tuple[Any, Any]) -> Any:
        """Return entries, by their rows and columns."""
        return self.entries(*key)

    def entries(self, rows: Any, cols: Any) -> NDArray[np.float64]:
        """Return the entries at these rows and columns."""
        r, c = np.broadcast_arrays(self._checked(rows, 0), self._checked(cols, 1))
        flat_rows, known = self._places(r.reshape(-1))
        values = sampled_product(self.U, self.V, flat_rows, c.reshape(-1)) if self.rank else np.zeros(r.size)
        return np.where(known, values, 0.0).reshape(r.shape)

    def row_products(self, rows: Index, cols: Index) -> NDArray[np.float64]:
        """Return ‖U[i]‖ ‖V[j]‖ for each pair of a row i and a column j: a bound of the size of that entry."""
        left, right = np.linalg.norm(self.U, axis=1), np.linalg.norm(self.V, axis=1)
        places, known = self._places(rows)
        return left[places] * known * right[cols] if len(left) else np.zeros(len(rows))

    def rows_of(self, rows: Index) -> Matrix:
        """Return the rows of U with these numbers; a row that U does not have is zero."""
        places, known = self._places(rows)
        return self.U[places] * known[:, None] if len(self.U) else np.zeros((len(rows), self.rank))

    def row(self, i: int) -> NDArray[np.float64]:
        """Return one row."""
        place, known = self._places(self._checked([i], 0))
        return self.V @ self.U[place[0]] if known[0] and self.rank else np.zeros(self.shape[1])

    def top(self, i: int, count: int, without: Iterable[int] = ()) -> Index:
        """Return the columns with the ``count`` largest entries of row i, largest first.

        The columns ``without`` are left out.
        """
        row = self.row(i)
        row[list(without)] = -np.inf
        order = np.argsort(-row, kind="stable")[:count]
        return order[np.isfinite(row[order])]

    def norm(self) -> float:
        """Return the Frobenius norm."""
        return float(np.sqrt(max(0.0, inner(self, self))))

    def singular_values(self) -> NDArray[np.float64]:
        """Return the nonzero singular values, largest first."""
        if self.rank == 0:
            return np.zeros(0)
        left, right = np.linalg.qr(self.U)[1], np.linalg.qr(self.V)[1]
        return np.asarray(np.linalg.svd(left @ right.T, compute_uv=False))

    def _checked(self, numbers: Any, axis: int) -> Index:
        """Return the numbers of rows or columns; raise unless all are in the matrix."""
        name, given = ("rows", "columns")[axis], np.asarray(numbers)
        if given.dtype.kind not in "iu" and given.size:
            raise IndexError(f"{name} must be whole numbers; got {shown(numbers)}.")
        outside = (given < 0) | (given >= self.shape[axis])
        if outside.any():
            raise IndexError(f"{name} must be from 0 to {self.shape[axis] - 1}; got {given[outside][0]}.")
        return given.astype(np.intp, copy=False)

    def _places(self, rows: Index) -> tuple[Index, NDArray[np.bool_]]:
        """Return the places of rows in U, and which of them U has."""
        if self.rows is None:
            return rows, np.ones(len(rows), dtype=np.bool_)
        if len(self.rows) == 0:
            return np.zeros(len(rows), dtype=np.intp), np.zeros(len(rows), dtype=np.bool_)
        places = np.minimum(np.searchsorted(self.rows, rows), len(self.rows) - 1)
        return places, self.rows[places] == rows


def inner(a: LowRank, b: LowRank) -> float:
    """Return the sum of products of all entries of two matrices with the same rows."""
    return float(np.sum((a.U.T @ b.U) * (a.V.T @ b.V))) if a.rank and b.rank else 0.0


def sampled_product(U: Matrix, V: Matrix, rows: Index, cols: Index) -> NDArray[np.float64]:
    """Return Σₖ U[rows, k] V[cols, k] for each pair, without an array of pairs × rank."""
    values, size = np.empty(len(rows)), min(_CHUNK, len(rows))
    left, right = np.empty((size, U.shape[1])), np.empty((size, U.shape[1]))
    for start in range(0, len(rows), _CHUNK):
        part = slice(start, start + _CHUNK)
        count = len(values[part])
        # With mode="clip" take writes to the buffer directly; all numbers are in range.
        np.take(U, rows[part], axis=0, out=left[:count], mode="clip")
        np.take(V, cols[part], axis=0, out=right[:count], mode="clip")
        np.einsum("nk,nk->n", left[:count], right[:count], out=values[part])
    return values


def stacked(parts: list[LowRank]) -> LowRank:
    """Return the matrix whose rows are those of all parts, which have the same V and different rows."""
    if any(part.rows is None for part in parts):
        return parts[0]
    rows = np.concatenate([part.rows for part in parts if part.rows is not None])
    order = np.argsort(rows, kind="stable")
    U = np.concatenate([part.U for part in parts])[order]
    return LowRank(U, parts[0].V, parts[0].shape, rows[order])
