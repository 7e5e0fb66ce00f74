"""The top singular triple of a matrix, from products with vectors only."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, RankOne
from dcgs.points import norm, read_only
from dcgs.sets.base import Direction, largest_entry
from dcgs.sets.lanczos import Matrix, Vector, dense_top_eigenvector, start_vector, top_eigenvector

DIRECT_SIDE = 64
"""A dense matrix with at most this smaller side is solved directly, which was measured to be faster."""


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
    tolerance·σ, so that σ ≥ (1 − tolerance)·σ₁. :func:`~dcgs.sets.lanczos.top_eigenvector` states the
    assumptions, and what happens without convergence.

    A zero matrix has the triple of the first unit vectors. Products are scaled so that no square over- or
    underflows; entries may have sizes from 1e-290 to 1e290.
    """
    rows, columns = G.shape
    # tall maps the smaller side to the larger one, wide maps back.
    tall, wide = (G, G.T) if columns <= rows else (G.T, G)
    start = start_vector(min(rows, columns), near_vector(near, rows, columns))
    image = tall @ start
    scale = power_scale(image)
    if scale == 0.0:
        return Triple(0.0, first_unit(rows), first_unit(columns))

    if isinstance(G, np.ndarray) and start.size <= DIRECT_SIDE:
        scaled: Matrix = scale * tall
        x = dense_top_eigenvector(scaled.T @ scaled)
    else:
        x = top_eigenvector(lambda x: scale * (wide @ (scale * (tall @ x))), start, tolerance)
    z = scale * (tall @ x)
    size = norm(z)
    z = read_only(z / size)
    return Triple(size / scale, z, x) if columns <= rows else Triple(size / scale, x, z)


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
