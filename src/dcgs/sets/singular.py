"""The top singular triple of a matrix, from products with vectors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, RankOne
from dcgs.points import norm
from dcgs.sets.base import Direction, largest_entry
from dcgs.sets.lanczos import Matrix, Vector, dense_top_eigenvector, start_vector, top_eigenvector

DIRECT_SIDE = 64
"""A dense matrix whose smaller side is at most this is solved directly: measured, it is faster."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class Triple:
    """σ, u, v with Gv = σu and Gᵀu = σv, where ‖u‖ = ‖v‖ = 1."""

    sigma: float
    u: Vector
    v: Vector


def top_triple(G: Direction, near: Atom | None = None, tolerance: float = 1e-8) -> Triple:
    """Return the top singular triple of G: an array, a sparse matrix or a LinearOperator.

    Golub–Kahan–Lanczos bidiagonalization in the form that holds one basis, that of the smaller
    side: Lanczos for GGᵀ or GᵀG. It ends when ‖Gv − σu‖ and ‖Gᵀu − σv‖ are at most tolerance·σ (one
    of them is 0 but for rounding), so that σ ≥ (1 − tolerance)·σ₁. What that rests on, and what happens
    when it does not end, is said at :func:`~dcgs.sets.lanczos.top_eigenvector`.

    A zero matrix has the triple of the first unit vectors. Entries from 1e-290 to 1e290 in size are
    fine: products are scaled, so that no square over- or underflows.
    """
    rows, columns = G.shape
    # tall @ x leads from the smaller side to the larger one, wide @ z leads back.
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
    z /= size
    z.flags.writeable = False
    return Triple(size / scale, z, x) if columns <= rows else Triple(size / scale, x, z)


def power_scale(image: Vector) -> float:
    """Return a power of two that brings ``image`` to size about 1; 0 for a zero image.

    A start vector without a zero entry shows every entry of the matrix in its image, also the wrong ones.
    """
    size = largest_entry(image)
    if not math.isfinite(size):
        raise ValueError("direction must be finite; a product with it is not.")
    # 2^1000 at most: a larger power of two would be infinite for the smallest sizes.
    return 2.0 ** min(-math.frexp(size)[1], 1000) if size > 0.0 else 0.0


def first_unit(size: int) -> Vector:
    """Return the first unit vector."""
    unit: Vector = np.eye(1, size)[0]
    unit.flags.writeable = False
    return unit


def near_vector(near: Atom | None, rows: int, columns: int) -> Vector | None:
    """Return the smaller side's vector of an earlier answer, where it is one for this shape."""
    if not isinstance(near, RankOne) or (near.u.size, near.v.size) != (rows, columns):
        return None
    return near.v if columns <= rows else near.u
