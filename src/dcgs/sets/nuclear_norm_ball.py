"""The nuclear-norm ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.atoms import Atom, RankOne
from dcgs.points import Point, norm
from dcgs.projections import onto_simplex
from dcgs.sets.base import (
    TOLERANCE,
    Direction,
    LowerBound,
    ProjectableSet,
    matrix_shape,
    set_fields,
    shortened,
)
from dcgs.sets.block import Nearest, nearest_in_ball
from dcgs.sets.lanczos import Matrix, norm_bound, top_triple
from dcgs.sets.options import RADIUS
from dcgs.validation import MATRIX_SHAPE, POSITIVE


@final
@dataclass(frozen=True, init=False)
class NuclearNormBall(ProjectableSet):
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

    @property
    def magnitude(self) -> float:
        return self.radius

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

    def start(self) -> Point:
        return np.zeros(self.shape)

    def nearby(self, x: Point) -> Point:
        return shortened(x, self.radius + self.violation(x), self.radius)

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
