"""Centered sparse matrices, S − u vᵀ, which are never filled in.

If u is 1 and v the means of the columns of S, each column of S − u vᵀ has mean zero. It is dense, but its
products cost as much as those of S, and an inner product.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from dcgs.atoms import Atom, Sparse, Spike
from dcgs.objectives.losses import Image
from dcgs.objectives.maps import MatrixMap, Shape, largest_by_lanczos, largest_of_gram
from dcgs.points import Point, norm

Matrix = NDArray[np.float64]

# Up to this side the spectrum of the Gram matrix is computed densely. Beyond it some dozen products with the
# sparse matrix take far less time.
_DENSE_SIDE = 200


@final
@dataclass(frozen=True, eq=False)
class CenteredMatrix:
    """S − u vᵀ, for a sparse S with its copy by columns; it has the operations that solvers need.

    >>> A = CenteredMatrix.of(sp.csr_array([[2.0, 0.0], [0.0, 4.0]]), np.ones(2), np.array([1.0, 2.0]))
    >>> A @ np.array([1.0, 1.0]), A.toarray().tolist()
    (array([-1.,  1.]), [[1.0, -2.0], [-1.0, 2.0]])
    """

    S: Any
    columns: Any
    u: Image
    v: Point

    @classmethod
    def of(cls, S: sp.csr_array, u: Image, v: Point) -> CenteredMatrix:
        """Return S − u vᵀ."""
        return cls(S, S.tocsc(), u, v)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return int(self.S.shape[0]), int(self.S.shape[1])

    @cached_property
    def T(self) -> CenteredMatrix:
        """The transpose, which shares all arrays."""
        return CenteredMatrix(self.S.T, self.S, self.v, self.u)

    @property
    def nnz(self) -> int:
        """The number of stored entries."""
        return int(self.S.nnz)

    def __matmul__(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        if x.ndim == 1:
            return np.asarray(self.S @ x - self.u * float(self.v @ x))
        return np.asarray(self.S @ x - np.outer(self.u, self.v @ x))

    def some(self, support: NDArray[np.intp]) -> CenteredMatrix:
        """Return the columns with these numbers."""
        picked = self.columns[:, support]
        return CenteredMatrix(picked, picked, self.u, self.v[support])

    def scaled(self, factors: Point) -> CenteredMatrix:
        """Return the matrix with its columns multiplied by these factors."""
        scaled = sp.csr_array(self.S @ sp.diags_array(factors))
        return CenteredMatrix.of(scaled, self.u, self.v * factors)

    def row_gram(self) -> Matrix:
        """Return A Aᵀ as a dense matrix."""
        Sv = self.S @ self.v
        cross = np.outer(Sv, self.u)
        outer = np.outer(self.u, self.u) * float(self.v @ self.v)
        return np.asarray((self.S @ self.S.T).toarray() - cross - cross.T + outer)

    def column_gram(self, weights: Image) -> Matrix:
        """Return Aᵀ diag(weights) A as a dense matrix."""
        weighted = sp.diags_array(weights) @ self.S
        cross = np.outer(weighted.T @ self.u, self.v)
        outer = np.outer(self.v, self.v) * float(weights @ self.u**2)
        return np.asarray((self.S.T @ weighted).toarray() - cross - cross.T + outer)

    def toarray(self) -> Matrix:
        """Return the matrix filled in."""
        return np.asarray(self.S.toarray() - np.outer(self.u, self.v))


@final
@dataclass(frozen=True, eq=False)
class CenteredMap(MatrixMap):
    """A map by a centered sparse matrix."""

    A: CenteredMatrix
    shape: Shape

    def image(self, x: Point) -> Image:
        return self.A @ x.reshape(-1)

    def image_of_atom(self, atom: Atom) -> Image:
        match atom:
            case Spike():
                return self.A.some(np.array([atom.index])) @ np.array([atom.height])
            case Sparse():
                return self.A.some(atom.indices) @ atom.values
            case _:
                return self.image(atom.dense())

    def adjoint(self, r: Image) -> Point:
        return (self.A.T @ r).reshape(self.shape)

    def gram(self, weights: Image) -> Matrix:
        return self.A.column_gram(weights)

    @property
    def column_lengths(self) -> Point:
        S, u, v = self.A.S, self.A.u, self.A.v
        return np.asarray(np.sqrt(S.power(2).sum(axis=0)) + np.abs(v) * norm(u))

    def row_norms_by(self, factors: Point) -> Image:
        # A product subtracts u vᵀ x from S x, and has the rounding error of both.
        S, u, v = self.A.S, self.A.u, self.A.v
        return np.asarray(np.sqrt(S.power(2) @ np.square(factors)) + np.abs(u) * norm(v * factors))

    @cached_property
    def norm_bound(self) -> float:
        return math.sqrt(float(self.column_squares.sum()))

    @cached_property
    def column_squares(self) -> Point:
        S, u, v = self.A.S, self.A.u, self.A.v
        stored = np.bincount(S.indices, weights=S.data**2, minlength=S.shape[1])
        squares = stored - 2.0 * v * (S.T @ u) + v**2 * float(u @ u)
        return np.asarray(np.maximum(squares, 0.0).reshape(self.shape))

    @cached_property
    def largest_eigenvalue(self) -> float:
        n, d = self.A.shape
        if min(n, d) <= _DENSE_SIDE:
            return largest_of_gram(self.A.row_gram() if n < d else self.A.column_gram(np.ones(n)))
        A = self.A if d <= n else self.A.T
        side = min(n, d)
        operator = LinearOperator((side, side), matvec=lambda x: A.T @ (A @ x.reshape(-1)), dtype=np.float64)
        return largest_by_lanczos(operator)

    def largest_eigenvalue_by(self, weights: Point) -> float:
        scaled = self.A.scaled(1.0 / np.sqrt(weights.reshape(-1)))
        return CenteredMap(scaled, self.shape).largest_eigenvalue

    @cached_property
    def smallest_eigenvalue(self) -> float:
        return 0.0

    def data(self) -> dict[str, NDArray[np.float64] | sp.csr_array]:
        return {"A": self.A.S}
