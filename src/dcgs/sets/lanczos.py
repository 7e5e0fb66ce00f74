"""The top eigenvector and the top singular triple of an operator, from products with vectors only.

SciPy's ARPACK shares state between calls, behind a lock in most versions. This code has no state: threads may
call it at the same time, and the same input gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.linalg.lapack import dsyevr

from dcgs.atoms import Atom, RankOne
from dcgs.points import content_rng, norm, read_only
from dcgs.sets.base import Direction, largest_entry
from dcgs.sets.top_eigenvalue import DENSE_SIDE, largest_eigenvalue

Vector: TypeAlias = NDArray[np.float64]
Matrix: TypeAlias = NDArray[np.float64]

SUBSPACE = 32
"""The largest number of basis vectors; then the search restarts from its KEPT best Ritz vectors."""
KEPT = 12
MARGIN = 0.1
"""The residual at the end, as a fraction of the tolerance."""
STEPS = 600
"""The largest number of products."""
NOISE = 0.1
"""The length of the random part of a warm start; the other part has length 1."""
PROBE_SEED = 2012
DIRECT_SIDE = 64
"""A dense matrix with at most this smaller side is solved directly, which was measured to be faster."""


def probe(size: int) -> Vector:
    """Return the fixed vector whose image stands for the content of a matrix; it has no zero."""
    return np.random.default_rng(PROBE_SEED).standard_normal(size)


def start_vector(image: Vector, size: int, near: Vector | None) -> Vector:
    """Return a Gaussian vector; with ``near``, of length 1, return near plus a small one.

    A start that is orthogonal to the top eigenvector stays orthogonal, and another eigenvector looks
    converged at once. The random part has a component along every eigenvector. It is seeded with the image of
    the :func:`probe`: nobody can choose a matrix for which it is a bad start.
    """
    noise = content_rng(image).standard_normal(size)
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
    if vectors.size == 0:  # LAPACK's search for one of several nearly equal eigenvalues may find none
        vectors = eigh(B, check_finite=False)[1][:, -1:]
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


@final
@dataclass(frozen=True, slots=True, eq=False)
class Triple:
    """σ, u, v with Gv = σu and Gᵀu = σv, where ‖u‖ = ‖v‖ = 1."""

    sigma: float
    u: Vector
    v: Vector


def top_triple(G: Direction, near: Atom | None = None, tolerance: float = 1e-8) -> Triple:
    """Return the top singular triple of G: an array, a sparse matrix or a LinearOperator.

    Lanczos for GGᵀ or GᵀG, whichever is smaller. It ends when ‖Gv − σu‖ and ‖Gᵀu − σv‖ are at most
    tolerance·σ, so that σ ≥ (1 − tolerance)·σ₁. :func:`top_eigenvector` states the
    assumptions, and what happens without convergence.

    A zero matrix has the triple of the first unit vectors. Products are scaled so that no square over- or
    underflows; entries may have sizes from 1e-290 to 1e290.
    """
    rows, columns = G.shape
    # tall maps the smaller side to the larger one, wide maps back.
    tall, wide = (G, G.T) if columns <= rows else (G.T, G)
    side = min(rows, columns)
    image = tall @ probe(side)
    start = start_vector(image, side, near_vector(near, rows, columns))
    scale = power_scale(image) or power_scale(tall @ start)
    if scale == 0.0:
        return Triple(0.0, first_unit(rows), first_unit(columns))

    if isinstance(G, np.ndarray) and side <= DIRECT_SIDE:
        scaled: Matrix = scale * tall
        x = dense_top_eigenvector(scaled.T @ scaled)
    else:
        x = top_eigenvector(lambda x: scale * (wide @ (scale * (tall @ x))), start, tolerance)
    z = scale * (tall @ x)
    size = norm(z)
    z = read_only(z / size)
    return Triple(size / scale, z, x) if columns <= rows else Triple(size / scale, x, z)


def norm_bound(G: Direction, near: Atom, tolerance: float, slack: float) -> tuple[float, float]:
    """Return an upper bound of the largest singular value of G, and its rounding error, which is not in it.

    Up to 2048 rows or columns the bound is the singular value itself. Else it is within ``slack``, or within
    ``tolerance`` relative to it, if few products are enough for that. It then holds with probability
    1 − 1e-10; see :func:`~dcgs.sets.top_eigenvalue.largest_eigenvalue`. ``near`` is the oracle's answer.
    """
    rows, columns = G.shape
    tall, wide = (G, G.T) if columns <= rows else (G.T, G)
    side = min(rows, columns)
    image = tall @ probe(side)
    rng = content_rng(image)
    scale = power_scale(image) or power_scale(tall @ rng.standard_normal(side))
    if scale == 0.0:
        return 0.0, 0.0
    vector = near_vector(near, rows, columns)
    block = np.zeros((side, 0)) if vector is None else vector[:, None]
    size = 0.0 if vector is None else norm(scale * (tall @ vector))
    allowed = max(scale * slack, tolerance * size)
    square, error = largest_eigenvalue(
        lambda B: scale * (wide @ (scale * (tall @ B))),
        block,
        rng,
        allowed * (2.0 * size + allowed),
        max(rows, columns),
    )
    sigma = math.sqrt(max(0.0, square))
    return sigma / scale, (math.sqrt(max(0.0, square) + error) - sigma) / scale


def power_scale(image: Vector) -> float:
    """Return a power of two that scales ``image`` to size about 1; 0 for a zero image.

    The image of a start vector without zeros depends on every entry of the matrix, also on NaN and ∞.
    """
    size = largest_entry(image)
    if not math.isfinite(size):
        raise ValueError("direction must be finite; a product with it is not.")
    # At most 2^1000: for the smallest sizes a larger power of two would be infinite.
    return 2.0 ** min(-math.frexp(size)[1], 1000) if size > 0.0 else 0.0


def first_unit(size: int) -> Vector:
    """Return the first unit vector."""
    return read_only(np.eye(1, size)[0])


def near_vector(near: Atom | None, rows: int, columns: int) -> Vector | None:
    """Return the vector of an earlier answer on the smaller side; None if it has another shape."""
    if not isinstance(near, RankOne) or (near.u.size, near.v.size) != (rows, columns):
        return None
    return near.v if columns <= rows else near.u
