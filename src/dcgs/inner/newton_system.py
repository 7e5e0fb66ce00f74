"""The linear system of a semismooth Newton step: Gram matrices of the data, and three ways to solve it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.linalg.lapack import dposv

from dcgs.objectives.centered import CenteredMatrix
from dcgs.objectives.losses import Image
from dcgs.points import Point

# The conjugate gradient method takes at most _MOST steps, to this residual.
_MOST, _TOLERANCE = 25, 0.1


def weighted_gram(A: Any, roots: Point) -> NDArray[np.float64]:
    """Return A diag(roots²) Aᵀ."""
    if isinstance(A, CenteredMatrix):
        return A.scaled(roots).row_gram()
    if sp.issparse(A):
        scaled = A @ sp.diags_array(roots)
        return np.asarray((scaled @ scaled.T).toarray())
    scaled = A * roots
    return np.asarray(scaled @ scaled.T)


def column_gram(A: Any, weights: Image) -> NDArray[np.float64]:
    """Return Aᵀ diag(weights) A."""
    if isinstance(A, CenteredMatrix):
        return A.column_gram(weights)
    if sp.issparse(A):
        A = A.tocsc()  # scaling its entries takes less time than a product with a diagonal matrix
        scaled = sp.csc_array((A.data * weights[A.indices], A.indices, A.indptr), shape=A.shape)
        return np.asarray((A.T @ scaled).toarray())
    return np.asarray((weights[:, None] * A).T @ A)


def solve_by_rows(
    R: Image, gram: NDArray[np.float64], p: NDArray[np.float64] | None, eta: float, rhs: Image
) -> Image:
    """Solve (I + (R gram R − p pᵀ)/η) q = rhs by a Cholesky factorization; p is a matrix."""
    M = gram * (R[:, None] * (R / eta))
    if p is not None:
        M -= p @ p.T / eta
    M.flat[:: len(R) + 1] += 1.0
    return np.asarray(scipy.linalg.solve(M, rhs, assume_a="pos", check_finite=False, overwrite_a=True))


def solve_by_columns(
    A: Any, R: Image, roots: Point, p: NDArray[np.float64] | None, eta: float, rhs: Image
) -> Image:
    """Solve the same system by one of as many unknowns as A has columns (Woodbury's identity)."""
    scale = roots / math.sqrt(eta)  # the matrix is I + C Cᵀ − p pᵀ/η for C = diag(R) A diag(scale)
    M = column_gram(A, R * R) * np.outer(scale, scale)
    M.flat[:: len(M) + 1] += 1.0
    sides = rhs[:, None] if p is None else np.column_stack([rhs, p])
    _, solved, info = dposv(M, scale[:, None] * (A.T @ (R[:, None] * sides)), overwrite_a=True)
    if info != 0:
        raise np.linalg.LinAlgError(f"the matrix of a Newton step is not positive definite; info is {info}.")
    inverse = sides - R[:, None] * (A @ (scale[:, None] * solved))  # (I + C Cᵀ)⁻¹ times both sides
    x = np.asarray(inverse[:, 0])
    if p is None:
        return x
    turned = inverse[:, 1:] / eta
    small = np.eye(p.shape[1]) - p.T @ turned
    return np.asarray(x + turned @ np.linalg.solve(small, p.T @ x))


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
