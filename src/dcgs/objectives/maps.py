"""Linear maps from points to images, and those by a dense or a sparse matrix.

Inner solvers apply a map to an atom at every step, which is cheap: a column of A, or u[rows]·v[cols]. They
apply it to a dense point only at the start and for measurements. Bounds of the extreme eigenvalues of AᵀA
give smoothness and strong convexity.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, eigsh

from dcgs.atoms import Atom, Sparse, Spike
from dcgs.objectives.losses import Image
from dcgs.parallel import is_wide, product
from dcgs.points import EPS, Point, content_rng, norm

Matrix: TypeAlias = NDArray[np.float64] | sp.csr_array

DENSE_SIDE = 2000
"""Up to this side the spectrum of the Gram matrix is computed densely, in about a second."""
# The relative accuracy of the iterative solver; its answer is raised by as much.
_SLACK = 1e-6


def largest_eigenvalue(A: Matrix) -> float:
    """Return an upper bound of the largest eigenvalue of AᵀA.

    Exact to rounding if the smaller side of A is at most 2000, else to 1e-6.
    """
    if min(A.shape) <= DENSE_SIDE:
        return max(0.0, float(_gram_spectrum(A)[-1]))
    n, d = A.shape
    operator = LinearOperator(
        (min(n, d), min(n, d)),
        matvec=(lambda v: A @ (A.T @ v)) if n < d else (lambda v: A.T @ (A @ v)),
        dtype=np.float64,
    )
    return largest_by_lanczos(operator)


def largest_of_gram(gram: NDArray[np.float64]) -> float:
    """Return the largest eigenvalue of a Gram matrix."""
    return max(0.0, float(np.linalg.eigvalsh(gram)[-1]))


def largest_by_lanczos(operator: LinearOperator) -> float:
    """Return an upper bound of the largest eigenvalue of a positive semidefinite operator, tight to 1e-6.

    The start of the iteration is a Gaussian vector seeded with the image of a fixed one: nobody can choose an
    operator for which it is a bad start.
    """
    image = operator.matvec(np.random.default_rng(0).standard_normal(operator.shape[0]))
    start = content_rng(image).standard_normal(operator.shape[0])
    if not (image.any() or operator.matvec(start).any()):
        return 0.0
    (largest,) = eigsh(operator, k=1, tol=_SLACK, v0=start, return_eigenvectors=False)
    return float(largest) * (1.0 + _SLACK)


def smallest_eigenvalue(A: Matrix) -> float:
    """Return a lower bound of the smallest eigenvalue of AᵀA; 0 for more than 2000 columns."""
    n, d = A.shape
    if n < d or d > DENSE_SIDE:
        return 0.0
    spectrum = _gram_spectrum(A)
    # An eigenvalue below the rounding error of the Gram matrix is no evidence of convexity.
    rounding = n * EPS * float(spectrum[-1])
    return max(0.0, float(spectrum[0] - rounding))


def _gram_spectrum(A: Matrix) -> NDArray[np.float64]:
    n, d = A.shape
    gram: Any = A @ A.T if n < d else A.T @ A
    return np.asarray(np.linalg.eigvalsh(gram.toarray() if sp.issparse(gram) else gram))


Shape: TypeAlias = tuple[int, ...]

# If points have fewer nonzero entries than this share of all, only those columns of a sparse matrix are used.
_FEW = 0.1


def _sum_error(x: Point) -> float:
    """Return the rounding error of an inner product of x with a vector of length 1."""
    return EPS * math.sqrt(np.count_nonzero(x)) * norm(x)


class LinearMap(ABC):
    """A: points of ``shape`` → ℝⁿ, n = ``size``.

    >>> import dcgs, numpy as np
    >>> A = dcgs.matrix_map(np.array([[1.0, 2.0], [0.0, 1.0]]))
    >>> isinstance(A, dcgs.LinearMap), A.shape, A.size, A.image(np.ones(2))
    (True, (2,), 2, array([3., 1.]))
    """

    shape: Shape
    """The shape of the points it takes."""

    @property
    @abstractmethod
    def size(self) -> int:
        """The length n of the images it gives."""

    @abstractmethod
    def image(self, x: Any) -> Image:
        """Return A x. A map of matrices may also take one in factors (LowRank)."""

    @abstractmethod
    def adjoint(self, r: Image) -> Point:
        """Return Aᵀ r, as a new array."""

    def images(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A x for each row x, a flat point; one image per row."""
        return np.stack([self.image(x.reshape(self.shape)) for x in points])

    def image_error(self, x: Any) -> Image:
        """Return a bound of the rounding error of each entry of A x.

        Rounding errors of a sum of k terms grow as √k (Higham and Mary, *A new approach to probabilistic
        rounding error analysis*, 2019); EPS is twice the error of one operation.
        """
        return np.full(self.size, _sum_error(x) * self.norm_bound)

    def adjoint_error(self, r: Image) -> float:
        """Return a bound of the length of the rounding error of Aᵀ r."""
        return _sum_error(r) * self.norm_bound

    def spread(self, r: Image) -> float:
        """Return a bound of ‖Aᵀ r‖ that holds for all signs of the entries of r."""
        return math.sqrt(self.largest_eigenvalue) * norm(r)

    def image_of_atom(self, atom: Atom) -> Image:
        """Return A·atom; a map that knows the form of the atom can be much faster than this."""
        return self.image(atom.dense())

    @property
    def entries(self) -> int:
        """The number of entries of A that are stored; a product reads each once."""
        return self.size

    orthogonal: bool = False
    """True if AᵀA is diagonal: different coordinates have orthogonal images."""

    @property
    def prefers_blas_threads(self) -> bool:
        """Whether the adjoint is one large dense product, which is faster with several BLAS threads."""
        return False

    @property
    @abstractmethod
    def norm_bound(self) -> float:
        """An upper bound of the largest singular value, found in one pass over the data."""

    @property
    @abstractmethod
    def largest_eigenvalue(self) -> float:
        """An upper bound of the largest eigenvalue of AᵀA, tight to 1e-6."""

    @property
    @abstractmethod
    def mean_eigenvalue(self) -> float:
        """The mean of all eigenvalues of AᵀA, which is the mean of the squared lengths of A's columns."""

    @property
    @abstractmethod
    def column_squares(self) -> Point:
        """The diagonal of AᵀA, the squared lengths of A's columns, in the shape of points."""

    @abstractmethod
    def largest_eigenvalue_by(self, weights: Point) -> float:
        """Return the largest eigenvalue of W^(−½) AᵀA W^(−½) for a positive W = diag(weights)."""

    def gram(self, weights: Image) -> NDArray[np.float64]:
        """Return Aᵀ diag(weights) A as a dense matrix, for maps of points with few entries."""
        entries = math.prod(self.shape)
        A = self.images(np.eye(entries)).T
        return np.asarray(A.T @ (weights[:, None] * A))

    @property
    def smallest_eigenvalue(self) -> float:
        """A lower bound of the smallest eigenvalue of AᵀA; 0 if computing it would take too long."""
        return 0.0

    def data(self) -> dict[str, NDArray[np.float64] | sp.csr_array]:
        """Return the arrays of the map that must be finite, by the names that the user knows."""
        return {}


class MatrixMap(LinearMap):
    """A map by a matrix A with n rows; points are flattened in C order."""

    A: Any

    @property
    def size(self) -> int:
        return int(self.A.shape[0])

    @property
    def entries(self) -> int:
        return int(self.A.size if isinstance(self.A, np.ndarray) else self.A.nnz)

    @abstractmethod
    def row_norms_by(self, factors: Point) -> Image:
        """Return the lengths of the rows that a product adds up, with columns multiplied by these factors.

        They are the rows of A, if it is stored as one matrix.
        """

    @property
    def column_lengths(self) -> Point:
        """The lengths of the columns that a product adds up, flat."""
        return np.sqrt(self.column_squares).reshape(-1)

    @cached_property
    def row_norms(self) -> Image:
        """The lengths of the rows that a product adds up."""
        return self.row_norms_by(np.ones(math.prod(self.shape)))

    @cached_property
    def _even(self) -> tuple[Point, Image]:
        """The lengths of the columns, and those of the rows if all columns have length 1."""
        lengths = self.column_lengths
        return lengths, self.row_norms_by(np.divide(1.0, lengths, where=lengths > 0.0, out=0.0 * lengths))

    def image_error(self, x: Point) -> Image:
        # |⟨a, x⟩| ≤ ‖a/l‖ ‖l x‖ for the lengths l of columns: columns may differ by many orders of magnitude
        lengths, rows = self._even
        return _sum_error(lengths * x.reshape(-1)) * rows

    def adjoint_error(self, r: Image) -> float:
        return EPS * math.sqrt(np.count_nonzero(r)) * float(np.abs(r) @ self.row_norms)

    def spread(self, r: Image) -> float:
        return min(float(np.abs(r) @ self.row_norms), math.sqrt(self.largest_eigenvalue) * norm(r))

    @cached_property
    def norm_bound(self) -> float:
        return float(np.linalg.norm(self.A.data if sp.issparse(self.A) else self.A))

    @cached_property
    def largest_eigenvalue(self) -> float:
        return largest_eigenvalue(self.A)

    @property
    def mean_eigenvalue(self) -> float:
        return self.norm_bound**2 / math.prod(self.shape)

    @cached_property
    def smallest_eigenvalue(self) -> float:
        return smallest_eigenvalue(self.A)

    def data(self) -> dict[str, NDArray[np.float64] | sp.csr_array]:
        return {"A": self.A}


@final
@dataclass(frozen=True, eq=False)
class DenseMap(MatrixMap):
    """A dense matrix."""

    A: NDArray[np.float64]
    shape: Shape

    def image(self, x: Point) -> Image:
        return self.A @ x.reshape(-1)

    def images(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(points @ self.A.T)  # reads the data once for all points

    def image_of_atom(self, atom: Atom) -> Image:
        match atom:
            case Spike():
                return self.A[:, atom.index] * atom.height
            case Sparse():
                return self.A[:, atom.indices] @ atom.values
            case _:
                return self.image(atom.dense())

    def adjoint(self, r: Image) -> Point:
        return product(r, self.A).reshape(self.shape)

    def gram(self, weights: Image) -> NDArray[np.float64]:
        if weights.min(initial=0.0) < 0.0:  # a loss that is not convex
            return np.asarray(self.A.T @ (weights[:, None] * self.A))
        scaled = np.sqrt(weights)[:, None] * self.A
        return np.asarray(scaled.T @ scaled)  # half the work of another product

    @cached_property
    def row_gram(self) -> NDArray[np.float64]:
        """A Aᵀ, from which both the smoothness and Newton steps are computed."""
        return np.asarray(self.A @ self.A.T)

    @cached_property
    def largest_eigenvalue(self) -> float:
        n, d = self.A.shape
        return largest_of_gram(self.row_gram) if n < d and n <= DENSE_SIDE else largest_eigenvalue(self.A)

    @property
    def prefers_blas_threads(self) -> bool:
        return is_wide(self.A)

    def row_norms_by(self, factors: Point) -> Image:
        return np.asarray(np.sqrt(np.square(self.A) @ np.square(factors)))

    @property
    def column_squares(self) -> Point:
        squares: Point = np.einsum("ij,ij->j", self.A, self.A)
        return squares.reshape(self.shape)

    def largest_eigenvalue_by(self, weights: Point) -> float:
        return largest_eigenvalue(self.A / np.sqrt(weights.reshape(-1)))


@final
@dataclass(frozen=True, eq=False)
class SparseMap(MatrixMap):
    """A sparse matrix, stored twice: by rows for products, by columns for the images of atoms."""

    A: sp.csr_array
    columns: sp.csc_array
    shape: Shape

    @cached_property
    def _transposed(self) -> sp.csc_array:
        return self.A.T  # shares the arrays of A, and its product is twice as fast as that of columns.T

    def image(self, x: Point) -> Image:
        return np.asarray(self.A @ x.reshape(-1))

    def images(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        support = np.flatnonzero(points.any(axis=0))
        if len(support) <= _FEW * points.shape[1]:
            return np.asarray((self.columns[:, support] @ points[:, support].T).T)
        return np.asarray((self.A @ points.T).T)

    def image_of_atom(self, atom: Atom) -> Image:
        match atom:
            case Spike():
                column = slice(*self.columns.indptr[atom.index : atom.index + 2])
                z = np.zeros(self.size)
                z[self.columns.indices[column]] = self.columns.data[column] * atom.height
                return z
            case Sparse():
                return np.asarray(self.columns[:, atom.indices] @ atom.values)
            case _:
                return self.image(atom.dense())

    def adjoint(self, r: Image) -> Point:
        return np.asarray(self._transposed @ r).reshape(self.shape)

    def with_columns(self, used: NDArray[np.intp], count: int) -> SparseMap:
        """Return the map of ``count`` coordinates: the columns ``used``, with all entries, then zeros."""
        place = np.zeros(self.A.shape[1], dtype=self.A.indices.dtype)
        place[used] = np.arange(len(used), dtype=place.dtype)
        shape = self.size, count
        A = sp.csr_array((self.A.data, place[self.A.indices], self.A.indptr), shape=shape)
        ends = self.columns.indptr[np.concatenate([used, np.full(count - len(used) + 1, self.A.shape[1])])]
        columns = sp.csc_array((self.columns.data, self.columns.indices, ends), shape=shape)
        small = SparseMap(A, columns, (count,))
        small.__dict__["largest_eigenvalue"] = self.largest_eigenvalue  # zeros do not change it
        return small

    def gram(self, weights: Image) -> NDArray[np.float64]:
        data = self.A.data * np.repeat(weights, np.diff(self.A.indptr))
        weighted = sp.csr_array((data, self.A.indices, self.A.indptr), shape=self.A.shape)
        return np.asarray((self._transposed @ weighted).toarray())

    def row_norms_by(self, factors: Point) -> Image:
        return np.asarray(np.sqrt(self.A.power(2) @ np.square(factors)))

    @property
    def column_squares(self) -> Point:
        sums = np.bincount(self.A.indices, weights=self.A.data**2, minlength=self.A.shape[1])
        return np.asarray(sums, dtype=np.float64).reshape(self.shape)

    def largest_eigenvalue_by(self, weights: Point) -> float:
        scaled = self.A.copy()
        scaled.data /= np.sqrt(weights.reshape(-1))[scaled.indices]
        return largest_eigenvalue(scaled)
