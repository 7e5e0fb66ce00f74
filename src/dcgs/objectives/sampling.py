"""The linear map from a matrix to some of its entries, and sparse matrices of these for points in factors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.atoms import Atom, RankOne
from dcgs.low_rank import Index, LowRank, Matrix, sampled_product
from dcgs.objectives.losses import Image
from dcgs.objectives.maps import LinearMap
from dcgs.points import EPS, Point, norm


@final
@dataclass(frozen=True, eq=False)
class Sampling(LinearMap):
    """x ↦ (x[rowsᵢ, colsᵢ])ᵢ, the observed entries of a matrix; an entry may be observed more than once."""

    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    shape: tuple[int, int]
    orthogonal = True

    @property
    def size(self) -> int:
        return len(self.rows)

    @cached_property
    def distinct(self) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
        """The distinct flat indices, the position of each observation among them, and their counts."""
        flat = self.rows * self.shape[1] + self.cols
        distinct, where, counts = np.unique(flat, return_inverse=True, return_counts=True)
        return distinct, where, counts

    def image(self, x: Point | LowRank) -> Image:
        return np.asarray(x[self.rows, self.cols])

    def image_error(self, x: Point | LowRank) -> Image:
        # Entries of a dense matrix are taken as they are; those of one in factors are inner products.
        if not isinstance(x, LowRank):
            return np.zeros(self.size)
        return EPS * math.sqrt(x.rank) * x.row_products(self.rows, self.cols)

    def adjoint_error(self, r: Image) -> float:
        return EPS * self.largest_eigenvalue * norm(r)  # an entry that was observed k times is a sum of k

    def image_of_atom(self, atom: Atom) -> Image:
        match atom:
            case RankOne():
                z: Image = atom.u[self.rows]
                z *= atom.v[self.cols]
                z *= atom.scale
                return z
            case _:
                return self.image(atom.dense())

    def adjoint(self, r: Image) -> Point:
        distinct, where, _ = self.distinct
        g = np.zeros(self.shape)
        g.reshape(-1)[distinct] = np.bincount(where, weights=r, minlength=len(distinct))
        return g

    def gram(self, weights: Image) -> NDArray[np.float64]:
        return np.diag(self.adjoint(weights).reshape(-1))

    @property
    def norm_bound(self) -> float:
        return float(np.sqrt(self.largest_eigenvalue))

    @property
    def largest_eigenvalue(self) -> float:
        _, _, counts = self.distinct
        return float(counts.max(initial=0))

    @property
    def mean_eigenvalue(self) -> float:
        return self.size / math.prod(self.shape)

    @property
    def column_squares(self) -> Point:
        distinct, _, counts = self.distinct
        squares = np.zeros(self.shape)
        squares.reshape(-1)[distinct] = counts
        return squares

    def largest_eigenvalue_by(self, weights: Point) -> float:
        return float((self.column_squares / weights).max(initial=0.0))

    @property
    def smallest_eigenvalue(self) -> float:
        _, _, counts = self.distinct
        complete = len(counts) == self.shape[0] * self.shape[1]
        return float(counts.min()) if complete else 0.0


@final
class SampledEntries:
    """The observed entries of matrices in factors. Nothing dense is formed.

    ``rows`` are the rows of the matrix with observed entries; with ``all_rows`` all rows. Factors U have
    these rows.
    """

    def __init__(self, A: Sampling, all_rows: bool) -> None:
        self.map = A
        self.rows: Index = np.arange(A.shape[0]) if all_rows else np.unique(A.rows)
        self.places: Index = A.rows if all_rows else np.searchsorted(self.rows, A.rows)

    def image(self, U: Matrix, V: Matrix) -> Image:
        """Return the observed entries of U Vᵀ."""
        if V.shape[1] == 0:
            return np.zeros(self.map.size)
        return sampled_product(U, V, self.places, self.map.cols)

    def adjoint(self, r: Image) -> sp.csr_array:
        """Return Aᵀ r as a sparse matrix. Its arrays are used again by the next call."""
        _, where, _ = self.map.distinct
        self._matrix.data[:] = np.bincount(where, weights=r, minlength=len(self._matrix.data))
        return self._matrix

    @cached_property
    def _matrix(self) -> sp.csr_array:
        distinct, _, _ = self.map.distinct
        rows, cols = np.divmod(distinct, self.map.shape[1])
        starts = np.searchsorted(rows, np.append(self.rows, self.map.shape[0]))
        shape = (len(self.rows), self.map.shape[1])
        small = np.int32 if max(len(distinct), shape[1]) < np.iinfo(np.int32).max else np.int64
        indices: NDArray[np.integer] = cols.astype(small)
        return sp.csr_array((np.zeros(len(distinct)), indices, starts.astype(small)), shape=shape)
