"""The observed entries of a matrix that one agent has, for points in factors. Nothing dense is formed."""

from __future__ import annotations

from functools import cached_property
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.low_rank import Index, Matrix, sampled_product
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.objectives.sampling import Sampling


@final
class SampledEntries:
    """An objective of observed entries, and products of its sparse gradient with thin matrices.

    ``rows`` are the rows of the matrix in which it has entries; with ``all_rows`` all rows. Factors U have
    these rows.
    """

    def __init__(self, f: Objective, all_rows: bool) -> None:
        assert isinstance(f.map, Sampling)
        self.f = f
        self.map = f.map
        self.rows: Index = np.arange(f.shape[0]) if all_rows else np.unique(f.map.rows)
        self.places: Index = f.map.rows if all_rows else np.searchsorted(self.rows, f.map.rows)

    def image(self, U: Matrix, V: Matrix) -> Image:
        """Return the observed entries of U Vᵀ."""
        if V.shape[1] == 0:
            return np.zeros(self.map.size)
        return sampled_product(U, V, self.places, self.map.cols)

    def gradient(self, image: Image) -> sp.csr_array:
        """Return ∇f as a sparse matrix, given the image. Its arrays are used again by the next call."""
        _, where, _ = self.map.distinct
        self._matrix.data[:] = np.bincount(
            where, weights=self.f.loss.grad(image), minlength=len(self._matrix.data)
        )
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
