"""The top eigenvector of a symmetric operator, from products with vectors only.

SciPy's ARPACK shares state between calls, behind a lock in most versions. This code has no state: threads may
call it at the same time, and the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.lapack import dsyevr

from dcgs.points import norm, read_only

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

SUBSPACE = 32
"""The largest number of basis vectors; then the search restarts from its KEPT best Ritz vectors."""
KEPT = 12
MARGIN = 0.1
"""The residual at the end, as a fraction of the tolerance."""
STEPS = 600
"""The largest number of products."""
DENSE_SIDE = 2048
"""The largest side of an operator that is formed as a matrix if STEPS products were not enough."""
NOISE = 0.1
"""The length of the random part of a warm start; the other part has length 1."""
SEED = 2012


def start_vector(size: int, near: Vector | None) -> Vector:
    """Return a seeded Gaussian vector; with ``near``, of length 1, return near plus a small one.

    A start that is orthogonal to the top eigenvector stays orthogonal, and another eigenvector looks
    converged at once. The random part has a component along every eigenvector.
    """
    noise = np.random.default_rng(SEED).standard_normal(size)
    return noise if near is None else near + (NOISE / norm(noise)) * noise


def top_eigenvector(apply: Callable[[Vector], Vector], start: Vector, tolerance: float) -> Vector:
    """Return v, ‖v‖ = 1, for the largest eigenvalue of the symmetric operator B = ``apply``.

    Lanczos with full reorthogonalization and thick restarts, until ‖Bv − θv‖ ≤ MARGIN·tolerance·‖B‖ with
    θ = ⟨v, Bv⟩. Then an eigenvalue lies within this distance of θ. No eigenvalue exceeds θ by more than
    c·MARGIN·tolerance·‖B‖, where c is the component of v in the start over that of the top eigenvector. For
    a random start c is about 1 and rarely above 1/MARGIN, so the largest eigenvalue is at most
    θ + tolerance·‖B‖. A warm start makes c smaller, except if ``near`` was another eigenvector of the same
    B; then c is about √size/NOISE.

    After STEPS products an operator of up to DENSE_SIDE rows is solved as a dense matrix. For a larger one
    the best vector so far is returned, and only θ ≥ ⟨start, B start⟩/‖start‖² is guaranteed.
    """
    width = min(SUBSPACE, start.size)
    basis, T = np.empty((width, start.size)), np.zeros((width, width))  # T = basis · B · basisᵀ, lower half
    v, count, size = start / norm(start), 0, 0.0
    for _ in range(STEPS):
        basis[count] = v
        count += 1
        w = apply(v)
        size = max(size, norm(w))  # a lower bound of ‖B‖, soon a close one
        T[count - 1, :count], w = _split(w, basis[:count])
        beta = norm(w)
        ritz = _small_top(T[:count, :count])
        if beta * abs(ritz.item(-1)) <= MARGIN * tolerance * size:
            return _unit(ritz @ basis[:count])
        if count == width:
            count = _restart(basis, T)
        v = w / beta
    if start.size <= DENSE_SIDE:
        return dense_top_eigenvector(np.array([apply(e) for e in np.eye(start.size)]))
    return _unit(_small_top(T[:count, :count]) @ basis[:count])


def dense_top_eigenvector(B: Matrix) -> Vector:
    """Return v, ‖v‖ = 1, for the largest eigenvalue of the symmetric matrix B (its lower half)."""
    last = len(B) - 1
    vectors: Matrix = eigh(B, subset_by_index=[last, last], check_finite=False)[1]
    return _unit(vectors[:, 0])


def _split(w: Vector, Q: Matrix) -> tuple[Vector, Vector]:
    """Return the coefficients of w in the orthonormal rows of Q, and the remainder of w."""
    first = Q @ w
    w = w - first @ Q
    second = Q @ w  # a second pass, since the first leaves rounding errors of the size of ‖w‖
    w -= second @ Q
    return first + second, w


def _small_top(T: Matrix) -> Vector:
    """Return the top eigenvector of a small matrix; SciPy's wrappers would cost more than LAPACK."""
    result: tuple[Any, ...] = dsyevr(T, range="I", il=len(T), iu=len(T), lower=1)
    vector: Vector = result[1][:, 0]
    return vector


def _restart(basis: Matrix, T: Matrix) -> int:
    """Replace the full basis by its best Ritz vectors; return their number."""
    kept = min(KEPT, len(T) - 1)
    values, vectors = np.linalg.eigh(T)
    basis[:kept] = vectors[:, -kept:].T @ basis
    T[:] = 0.0
    np.fill_diagonal(T[:kept, :kept], values[-kept:])
    return kept


def _unit(v: Vector) -> Vector:
    return read_only(v / norm(v))
