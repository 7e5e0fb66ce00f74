"""The nuclear-norm ball, and the projection onto it from products with blocks of vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.atoms import Atom, RankOne
from dcgs.points import EPS, Point, norm, vdot
from dcgs.projections import onto_simplex
from dcgs.sets.base import (
    RADIUS,
    TOLERANCE,
    Ball,
    Direction,
    LowerBound,
    matrix_shape,
    set_fields,
)
from dcgs.sets.lanczos import Matrix, Vector, near_vector, norm_bound, top_triple
from dcgs.validation import MATRIX_SHAPE, POSITIVE


@final
@dataclass(frozen=True, init=False)
class NuclearNormBall(Ball):
    """{x, a matrix : the sum of its singular values ≤ radius}; extreme points −radius·uvᵀ.

    The oracle finds u and v by Lanczos steps, so that ⟨G, s⟩ ≤ −(1 − tolerance)·radius·σ₁ for the largest
    singular value σ₁ of the direction G. The number of steps grows with log(1/tolerance). If σ₂ is well
    below σ₁, the error is only of the size of tolerance². :func:`~dcgs.sets.lanczos.top_eigenvector` states
    the assumptions. :meth:`lower_bound` needs none of them. The direction may be dense, sparse or a
    LinearOperator.

    >>> s = NuclearNormBall((2, 2), radius=3.0).lmo(np.diag([1.0, 2.0]))
    >>> np.abs(s.dense().round(6))
    array([[0., 0.],
           [0., 3.]])
    """

    name = "nuclear"
    cheap_projection = False
    options = (RADIUS,)
    shape: tuple[int, ...]
    radius: float
    tolerance: float

    def __init__(self, shape: tuple[int, int], radius: float = 1.0, tolerance: float = 1e-8) -> None:
        set_fields(self, shape=MATRIX_SHAPE(shape, "shape"), radius=POSITIVE(radius, "radius"))
        set_fields(self, tolerance=TOLERANCE(tolerance, "tolerance"))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    def lmo(self, direction: Direction, near: Atom | None = None) -> RankOne:
        top = top_triple(direction, near, self.tolerance)
        return RankOne(-self.radius, top.u, top.v)

    def lower_bound(self, direction: Direction, s: Atom, slack: float = 0.0) -> LowerBound:
        """Return −radius·σ₁: exact to rounding for up to 2048 rows or columns, else a bound.

        The bound of a larger direction is wrong with probability 1e-10.
        """
        sigma, error = norm_bound(direction, s, self.tolerance, slack / self.radius)
        return LowerBound(-self.radius * sigma, self.radius * error)

    def violation(self, x: Point) -> float:
        return max(0.0, float(np.linalg.norm(x, "nuc")) - self.radius)

    def project(self, y: Point) -> Point:
        u, sigma, vt = np.linalg.svd(y, full_matrices=False)
        if float(sigma.sum()) <= self.radius:
            return y
        sigma = onto_simplex(sigma, self.radius)
        rank = int(np.count_nonzero(sigma))
        return np.asarray((u[:, :rank] * sigma[:rank]) @ vt[:rank])

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> NuclearNormBall:
        return cls(matrix_shape(cls.name, shape), **options)

    def surely_holds(self, M: Point) -> bool:
        """Return True if a bound without singular values proves that M is in the set."""
        return math.sqrt(min(self.shape)) * norm(M) <= self.radius

    def nearest(self, M: Point, basis: Matrix, tolerance: float) -> Nearest:
        """Return the nearest point to M from as many top singular triples as ``basis`` has columns."""
        return nearest_in_ball(M, self.radius, basis, tolerance)


SWEEPS = 30
"""The largest number of products with the matrix and its transpose, for one block."""
SPARE = 4
"""Triples beyond the rank r of the last point: SPARE + r // SHARE, since the rank may grow."""
SHARE = 8

_SEED = 2012


@final
@dataclass(frozen=True, eq=False)
class Nearest:
    """The point of a set nearest to a matrix M, among those made of a block of singular triples of M.

    ``whole`` is True if a larger block would give no nearer point. For the next matrix, start from ``basis``
    with ``wanted`` columns.
    """

    point: Point
    basis: Matrix
    wanted: int
    whole: bool


def extended(basis: Matrix, columns: int) -> Matrix:
    """Return an orthonormal basis with this number of columns: add random ones, or drop the last ones.

    The columns that are kept do not change. Random columns have a component along every singular vector of
    most matrices. Steps are made with them; a certificate does not depend on them.
    """
    side, have = basis.shape
    if columns <= have:
        return basis[:, :columns]
    noise = np.random.default_rng(_SEED).standard_normal((side, columns - have))
    for _ in range(2):  # twice, because one pass leaves rounding errors
        noise = np.linalg.qr(noise - basis @ (basis.T @ noise))[0]
    return np.hstack([basis, noise])


def with_atom(basis: Matrix, atom: Atom, shape: tuple[int, ...]) -> Matrix:
    """Return the basis with its last column replaced by the atom's vector, unless the basis is square."""
    vector = near_vector(atom, *shape)
    if vector is None or basis.shape[0] == basis.shape[1]:
        return basis
    return np.asarray(np.linalg.qr(np.column_stack([basis[:, :-1], vector]))[0])


def nearest_in_ball(M: Point, radius: float, basis: Matrix, tolerance: float) -> Nearest:
    """Return the nearest matrix to M of nuclear norm ≤ radius made of a block of its singular triples.

    There are as many triples as ``basis`` has columns. The search starts from the basis, which is orthonormal
    on the smaller side of M; a square basis asks for all triples. If the point is whole, it is the projection
    of a matrix at distance at most ``tolerance`` from M, unless that takes more than SWEEPS sweeps.

    Subspace iteration with Rayleigh–Ritz on the smaller side. U is orthonormal and rotated so that the
    columns of P = MᵀU are orthogonal. Then σᵢ = ‖Pᵢ‖, uᵢ and Pᵢ/σᵢ are approximate triples with residual
    (M Pᵢ − σᵢ² uᵢ)/σᵢ. Let c be the projection of σ onto {c ≥ 0, Σ c ≤ radius}. The point Σ (cᵢ/σᵢ) uᵢ Pᵢᵀ
    is feasible for any error of the triples, since its nuclear norm is at most Σ c.
    """
    wide = M if M.shape[0] <= M.shape[1] else M.T
    if basis.shape[0] == basis.shape[1]:
        return _from_all(M, wide, radius)
    size, U = vdot(M, M), basis
    for sweep in range(SWEEPS):
        U, P, sigma = _ritz(wide, U)
        enough = _enough(sigma, size, len(U), radius)
        if enough is not None:
            return Nearest(M, U, _with_spare(enough), True)
        c = onto_ball(sigma, radius)
        rank = int(np.count_nonzero(c))
        back = wide @ P
        residual = norm(back[:, :rank] / sigma[:rank] - U[:, :rank] * sigma[:rank])
        U, before = np.linalg.qr(back)[0], U
        if residual <= tolerance or (rank == len(c) and sweep > 0):
            break
    return Nearest(_point(before, P, c, M), U, _with_spare(rank), rank < len(c))


def onto_ball(sigma: Vector, radius: float) -> Vector:
    """Return the nearest c to σ ≥ 0, given in decreasing order, with c ≥ 0 and Σ c ≤ radius."""
    excess = np.cumsum(sigma) - radius
    if excess[-1] <= 0.0:
        return sigma
    tau = float((excess / np.arange(1, len(sigma) + 1)).max())
    c = np.maximum(sigma - tau, 0.0)
    # If σ and τ are far larger than the radius, rounding may cancel their difference.
    c[0] = max(c.item(0), EPS * sigma.item(0))
    c *= radius / c.sum()
    return c


def _from_all(M: Point, wide: Point, radius: float) -> Nearest:
    """Return the nearest point from all singular triples, found as eigenvectors of M Mᵀ."""
    U: Matrix = np.linalg.eigh(wide @ wide.T)[1]
    U, P, sigma = _sorted(U, wide.T @ U)
    enough = _enough(sigma, vdot(M, M), len(U), radius)
    if enough is not None:
        return Nearest(M, U, _with_spare(enough), True)
    c = onto_ball(sigma, radius)
    return Nearest(_point(U, P, c, M), U, _with_spare(int(np.count_nonzero(c))), True)


def _ritz(wide: Point, U: Matrix) -> tuple[Matrix, Matrix, Vector]:
    """Return U rotated so that P = MᵀU has orthogonal columns, P, and their norms in decreasing order."""
    P = wide.T @ U
    W = np.linalg.eigh(P.T @ P)[1]
    return _sorted(U @ W, P @ W)


def _sorted(U: Matrix, P: Matrix) -> tuple[Matrix, Matrix, Vector]:
    sigma = np.sqrt(np.einsum("ij,ij->j", P, P))
    order = np.argsort(-sigma, kind="stable")
    return U[:, order], P[:, order], sigma[order]


def _enough(sigma: Vector, size: float, side: int, radius: float) -> int | None:
    """Return how many of the triples prove that ‖M‖_* ≤ radius, None if all do not; ‖M‖² = size.

    M minus its first k triples has rank ≤ side − k. Its nuclear norm is at most √(side − k) times its
    Frobenius norm, which is known up to the rounding error of ‖M‖².
    """
    known = np.concatenate([[0.0], np.cumsum(sigma**2)])
    rest = np.maximum(0.0, size - known) + 100.0 * EPS * size
    left = side - np.arange(len(known))
    enough = np.flatnonzero(np.concatenate([[0.0], np.cumsum(sigma)]) + np.sqrt(left * rest) <= radius)
    return int(enough[0]) if enough.size else None


def _with_spare(rank: int) -> int:
    return rank + rank // SHARE + SPARE


def _point(U: Matrix, P: Matrix, c: Vector, M: Point) -> Point:
    """Return Σ (cᵢ/σᵢ) uᵢ Pᵢᵀ in the shape of M."""
    rank = int(np.count_nonzero(c))
    P = P[:, :rank]
    left = U[:, :rank] * (c[:rank] / np.sqrt(np.einsum("ij,ij->j", P, P)))
    return np.asarray(left @ P.T if M.shape[0] <= M.shape[1] else P @ left.T)
