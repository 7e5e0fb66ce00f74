"""A semismooth Newton step: its linear system, Gram matrices of the data, and three ways to solve it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from dcgs.inner.base import Subproblem
from dcgs.objectives.centered import CenteredMap, CenteredMatrix
from dcgs.objectives.losses import Image
from dcgs.objectives.maps import DenseMap, MatrixMap, SparseMap
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.projections import Derivative, ProjectedPoint

# The conjugate gradient method takes at most _MOST steps, to this residual.
_MOST, _TOLERANCE = 25, 0.1
# The system of a Newton step is factorized if that takes less time than about this number of passes over the
# data. Else it is solved by some conjugate gradient steps.
_PASSES = 40.0
# The speed of dense products, relative to sparse ones.
_DENSE_SPEED = 20.0
# An approximate step is used for at most _MOST_ROWS rows, if x has more than _MANY times as many nonzeros as
# there are rows.
_MOST_ROWS, _MANY = 1500, 4
# If x has fewer nonzeros than this share of all entries, their columns of A are gathered; for A x only if A
# has more than _SMALL entries.
_FEW, _SMALL = 0.25, 1 << 14


@final
@dataclass(frozen=True, eq=False)
class TrialPoint:
    """A dual variable u with Aᵀu, its point x(u), A x, and the residual F = u − ∇ℓ(A x)."""

    u: Image
    adjoint: Point
    projected: ProjectedPoint
    image: Image
    F: Image

    @property
    def x(self) -> Point:
        """The point x(u)."""
        return self.projected.point

    @cached_property
    def derivative(self) -> Derivative:
        """The derivative of the projection, which only a further step needs."""
        return self.projected.derivative()


@final
@dataclass(frozen=True, eq=False)
class Step:
    """A change Δu of the dual variable, and Aᵀ Δu."""

    u: Image
    adjoint: Point


@final
class Columns:
    """Products with some columns of A, gathered if they are few."""

    def __init__(self, f: Objective) -> None:
        assert isinstance(f.map, MatrixMap)
        self.map = f.map
        self.is_small = isinstance(f.map, DenseMap) and math.prod(f.map.shape) * f.map.size <= _SMALL

    def image(self, x: Point) -> Image:
        """Return A x."""
        flat = x.reshape(-1)
        if self.is_small or int(np.count_nonzero(flat)) > _FEW * flat.size:
            return self.map.image(x)
        support = np.flatnonzero(flat)
        return np.asarray(self.some(support) @ flat[support])

    def some(self, support: NDArray[np.intp]) -> Any:
        """Return the columns of A of this support, dense or sparse as A is."""
        match self.map:
            case DenseMap():
                return self.map.A[:, support]
            case SparseMap():
                return self.map.columns[:, support]
            case CenteredMap():
                return self.map.A.some(support)
        raise AssertionError(self.map)

    def factorizes(self, n: int, s: int) -> bool:
        """Return True if a system with n rows and s columns of A is to be solved by a factorization."""
        least = min(n, s)
        if isinstance(self.map, DenseMap):
            return least * s <= _PASSES * math.prod(self.map.shape)
        # A sparse Gram matrix is cheap, and only the factorization counts.
        return least**3 <= _DENSE_SPEED * _PASSES * self.map.entries

    def has_good_mean(self, phi: Subproblem, trial: TrialPoint) -> bool:
        """Return True if A K Aᵀ is about mean(k) A Aᵀ: if x has many more nonzeros than A has rows."""
        n = len(trial.u)
        if n > _MOST_ROWS or trial.x.size <= _MANY * n:
            return False
        hess = phi.f.loss.hess(trial.image)
        is_flat = float(hess.min()) == float(hess.max())
        return is_flat and int(np.count_nonzero(trial.derivative.k)) > _MANY * n

    def approximate_step(self, phi: Subproblem, trial: TrialPoint) -> Step:
        """Return a step with mean(k) A Aᵀ in place of A K Aᵀ, which costs one pass over the data."""
        values, vectors = self.spectrum
        mean, hess = float(trial.derivative.k.mean()), phi.f.loss.hess(trial.image)
        u = -(vectors @ ((vectors.T @ trial.F) / (1.0 + (hess[0] * mean / phi.eta) * values)))
        return Step(u, self.map.adjoint(u))

    @cached_property
    def spectrum(self) -> tuple[Image, NDArray[np.float64]]:
        """The eigenvalues and eigenvectors of A Aᵀ."""
        values, vectors = np.linalg.eigh(self.gram)
        return np.maximum(values, 0.0), vectors

    @cached_property
    def gram(self) -> NDArray[np.float64]:
        """A Aᵀ."""
        if isinstance(self.map, DenseMap):
            return self.map.row_gram
        return weighted_gram(self.map.A, np.ones(self.map.A.shape[1]))


def newton_step(phi: Subproblem, trial: TrialPoint, change: Point, columns: Columns) -> Step:
    """Return Δu with (I + D A K Aᵀ/η) Δu = −F, up to the tolerance of an inexact Newton step.

    With R = √D and Δu = −F + R q it is (I + B K Bᵀ/η) q = B K Aᵀ F/η for B = R A, which is symmetric.
    ``change`` is Aᵀ F.
    """
    R = np.sqrt(phi.f.loss.hess(trial.image))
    K = trial.derivative
    support = np.flatnonzero(K.k)
    n, s, d = len(R), len(support), len(K.k)
    factorizes = s > 0 and columns.factorizes(n, s)
    A, slope = columns.map.A, change.reshape(-1)
    if s < d and (factorizes or s <= _FEW * d):
        A, slope = columns.some(support), slope[support]
        K = Derivative(K.k[support], None if K.q is None else K.q[support])
    if factorizes and s < n:
        solution = solve_by_columns(A, R, K, phi.eta, slope)
    else:
        rhs = R * (A @ K.times(slope)) / phi.eta
        if factorizes:
            full = s == d and float(K.k.min()) == float(K.k.max())
            gram = float(K.k[0]) * columns.gram if full else weighted_gram(A, np.sqrt(K.k))
            p = None if K.q is None else R[:, None] * (A @ K.columns)
            solution = solve_by_rows(R, gram, p, phi.eta, rhs)
        else:
            solution = conjugate_gradient(lambda v: v + R * (A @ K.times(A.T @ (R * v))) / phi.eta, rhs)
    moved = R * solution
    return Step(moved - trial.F, columns.map.adjoint(moved) - change)


def weighted_gram(A: Any, roots: Point) -> NDArray[np.float64]:
    """Return A diag(roots²) Aᵀ."""
    if isinstance(A, CenteredMatrix):
        return A.scaled(roots).row_gram()
    if sp.issparse(A):
        scaled = A @ sp.diags_array(roots)
        return np.asarray((scaled @ scaled.T).toarray())
    scaled = A * roots
    return np.asarray(scaled @ scaled.T)


def column_gram(A: Any, R: Image) -> NDArray[np.float64]:
    """Return Aᵀ diag(R²) A."""
    if isinstance(A, CenteredMatrix):
        return A.column_gram(R * R)
    if sp.issparse(A):
        A = A.tocsc()  # scaling its entries takes less time than a product with a diagonal matrix
        scaled = sp.csc_array((A.data * R[A.indices], A.indices, A.indptr), shape=A.shape)
        return np.asarray((scaled.T @ scaled).toarray())
    scaled = R[:, None] * A
    return np.asarray(scaled.T @ scaled)


def solve_by_rows(
    R: Image, gram: NDArray[np.float64], p: NDArray[np.float64] | None, eta: float, rhs: Image
) -> Image:
    """Solve (I + (R gram R − p pᵀ)/η) q = rhs by a Cholesky factorization; p is a matrix."""
    M = gram * (R[:, None] * (R / eta))
    if p is not None:
        M -= p @ p.T / eta
    M.flat[:: len(R) + 1] += 1.0
    return _solved(M, rhs)


def solve_by_columns(A: Any, R: Image, K: Derivative, eta: float, change: Point) -> Image:
    """Solve the same system by one of as many unknowns as A has columns, for entries k > 0.

    Let K/η = S (I − Q Qᵀ) S with a diagonal S, C = R A S, M = I + CᵀC and r = S · ``change``. The system is
    (I + C (I − Q Qᵀ) Cᵀ) q = C (I − Q Qᵀ) r, and is solved by q = C z with z = a − b t, a = M⁻¹ r, b = M⁻¹ Q
    and (I − QᵀQ + Qᵀb) t = Qᵀa.
    """
    S = np.sqrt(K.k / eta)
    M = column_gram(A, R) * (S[:, None] * S)
    M.flat[:: len(M) + 1] += 1.0
    z = S * change
    if K.q is None:
        z = _solved(M, z)
    else:
        Q = K.columns / np.sqrt(K.k)[:, None]
        solved = _solved(M, np.column_stack([z, Q]))
        z, b = solved[:, 0], solved[:, 1:]
        small = Q.T @ b - Q.T @ Q
        small.flat[:: len(small) + 1] += 1.0
        t = Q.T @ z
        z = z - b @ (t / small[0] if len(small) == 1 else np.linalg.solve(small, t))
    return np.asarray(R * (A @ (S * z)))


def _solved(M: NDArray[np.float64], sides: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return M⁻¹ sides for a positive definite M, which is overwritten."""
    _, solved, info = dposv(M, sides, overwrite_a=True)
    if info != 0:
        raise np.linalg.LinAlgError(f"the matrix of a Newton step is not positive definite; info is {info}.")
    return np.asarray(solved)


def conjugate_gradient(product: Any, rhs: Image) -> Image:
    """Return an approximate solution of product(x) = rhs, for a symmetric matrix with eigenvalues ≥ 1."""
    x = np.zeros_like(rhs)
    r, p = rhs, rhs
    size = float(r @ r)
    goal = _TOLERANCE**2 * size
    for _ in range(_MOST):
        if size <= goal:
            break
        Mp = product(p)
        alpha = size / float(p @ Mp)
        x, r = x + alpha * p, r - alpha * Mp
        before, size = size, float(r @ r)
        p = r + (size / before) * p
    return x
