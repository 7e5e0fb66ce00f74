"""The doubly stochastic matrices."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy

from dcgs.atoms import Atom, Sparse
from dcgs.points import Point, read_only
from dcgs.sets.base import ConvexSet, matrix_shape, set_fields
from dcgs.validation import COUNT


@final
@dataclass(frozen=True, init=False)
class BirkhoffPolytope(ConvexSet):
    """{x ≥ 0, n×n : every row and every column sums to 1}; its extreme points are the permutations.

    Ties are broken by SciPy's assignment solver, the same way each time; a constant direction gives the
    identity. With n = 1 the set is one point, and its diameter is 0.

    >>> BirkhoffPolytope(2).lmo(np.array([[1.0, 0.0], [0.0, 1.0]])).dense()
    array([[0., 1.],
           [1., 0.]])
    """

    name = "birkhoff"
    options = ()
    n: int
    shape: tuple[int, ...]
    polytope = True
    cheap_violation = True
    magnitude = 1.0

    def __init__(self, n: int) -> None:
        side = COUNT(n, "n")
        set_fields(self, n=side, shape=(side, side))

    @property
    def diameter(self) -> float:
        return math.sqrt(2.0 * self.n) if self.n > 1 else 0.0

    def lmo(self, direction: Point, near: Atom | None = None) -> Sparse:
        # SciPy takes +∞ for a forbidden pair, and may then find no permutation.
        if not np.isfinite(direction).all():
            raise ValueError("direction must be finite; it holds NaN or ∞.")
        rows, columns = scipy.optimize.linear_sum_assignment(direction)
        indices = np.asarray(rows * self.n + columns, dtype=np.intp)
        return Sparse(read_only(indices), read_only(np.ones(self.n)), self.shape)

    def violation(self, x: Point) -> float:
        sums = np.concatenate([x.sum(axis=0), x.sum(axis=1)])
        return max(0.0, -float(x.min()), float(np.abs(sums - 1.0).max()))

    def start(self) -> Point:
        """Return the barycenter, 1/n everywhere."""
        return np.full(self.shape, 1.0 / self.n)

    def nearby(self, x: Point) -> Point:
        """Return x without negative entries, shortened, and with what rows and columns lack as a product.

        After Altschuler, Weed and Rigollet, "Near-linear time approximation algorithms for optimal transport
        via Sinkhorn iteration" (2017), Algorithm 2.
        """
        y = np.maximum(x, 0.0)
        y /= max(1.0, float(y.sum(axis=0).max()), float(y.sum(axis=1).max()))
        rows, columns = (np.maximum(1.0 - y.sum(axis=axis), 0.0) for axis in (1, 0))
        missing = 0.5 * float(rows.sum() + columns.sum())
        return np.asarray(y + np.outer(rows, columns / missing)) if missing > 0.0 else y

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> BirkhoffPolytope:
        return cls(matrix_shape(cls.name, shape, square=True)[0])
