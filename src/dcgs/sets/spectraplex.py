"""The spectraplex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.atoms import Atom, RankOne
from dcgs.points import Point, content_rng, norm
from dcgs.projections import onto_simplex
from dcgs.sets.base import (
    OPTIONAL_RADIUS,
    TOLERANCE,
    Direction,
    LowerBound,
    ProjectableSet,
    matrix_shape,
    set_fields,
)
from dcgs.sets.lanczos import (
    DIRECT_SIDE,
    Vector,
    dense_top_eigenvector,
    first_unit,
    near_vector,
    power_scale,
    probe,
    start_vector,
    top_eigenvector,
)
from dcgs.sets.top_eigenvalue import largest_eigenvalue
from dcgs.validation import COUNT, POSITIVE


@final
@dataclass(frozen=True, init=False)
class Spectraplex(ProjectableSet):
    """{x, n×n, symmetric positive semidefinite : trace = radius}; extreme points radius·vvᵀ, ‖v‖ = 1.

    The oracle finds v by Lanczos steps for the symmetric part S of the direction, which may be dense, sparse
    or a LinearOperator: ⟨S, s⟩ ≤ radius·(λ_min + tolerance·max|λ|) for the eigenvalues λ of S. With n = 1
    the set is one point, and its diameter is 0.

    >>> Spectraplex(2).lmo(np.diag([1.0, 2.0])).dense().round(6) + 0.0
    array([[1., 0.],
           [0., 0.]])
    """

    name = "spectraplex"
    cheap_projection = False
    options = (OPTIONAL_RADIUS,)
    n: int
    radius: float
    tolerance: float
    shape: tuple[int, ...]

    def __init__(self, n: int, radius: float = 1.0, tolerance: float = 1e-8) -> None:
        side = COUNT(n, "n")
        set_fields(self, n=side, shape=(side, side))
        set_fields(self, radius=POSITIVE(radius, "radius"), tolerance=TOLERANCE(tolerance, "tolerance"))

    @property
    def diameter(self) -> float:
        return self.radius * math.sqrt(2.0) if self.n > 1 else 0.0

    @property
    def magnitude(self) -> float:
        return self.radius

    def lmo(self, direction: Direction, near: Atom | None = None) -> RankOne:
        v = self._bottom(direction + direction.T, near)
        return RankOne(self.radius, v, v)

    def lower_bound(self, direction: Direction, s: Atom, slack: float = 0.0) -> LowerBound:
        """Return radius·λ_min: exact to rounding for n up to 2048, else a bound.

        The bound of a larger direction is wrong with probability 1e-10.
        """
        S = direction + direction.T
        image = S @ probe(self.n)
        rng = content_rng(image)
        scale = power_scale(image) or power_scale(S @ rng.standard_normal(self.n))
        if scale == 0.0:
            return LowerBound(0.0)
        vector = near_vector(s, self.n, self.n)
        near = np.zeros((self.n, 0)) if vector is None else vector[:, None]
        unit = 0.5 * self.radius / scale
        allowed = max(slack / unit, self.tolerance * norm(scale * (S @ near)))
        value, error = largest_eigenvalue(lambda B: -scale * (S @ B), near, rng, allowed, 0)
        return LowerBound(-unit * value, unit * error)

    def violation(self, x: Point) -> float:
        lowest = float(np.linalg.eigvalsh(0.5 * (x + x.T))[0])
        return max(0.0, -lowest, abs(float(np.trace(x)) - self.radius), float(np.abs(x - x.T).max()))

    def start(self) -> Point:
        """Return the barycenter, radius/n times the identity."""
        return np.diag(np.full(self.n, self.radius / self.n))

    def nearby(self, x: Point) -> Point:
        return self.project(x)

    def project(self, y: Point) -> Point:
        values, v = np.linalg.eigh(0.5 * (y + y.T))
        root = v * np.sqrt(onto_simplex(values, self.radius))
        return np.asarray(root @ root.T)  # a matrix times its own transpose is symmetric to the last bit

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> Spectraplex:
        return cls(matrix_shape(cls.name, shape, square=True)[0], **options)

    def _bottom(self, S: Direction, near: Atom | None) -> Vector:
        """Return an eigenvector for the smallest eigenvalue of S: the top one of −S."""
        image = S @ probe(self.n)
        start = start_vector(image, self.n, near_vector(near, self.n, self.n))
        scale = power_scale(image) or power_scale(S @ start)
        if scale == 0.0:
            return first_unit(self.n)
        if isinstance(S, np.ndarray) and self.n <= DIRECT_SIDE:
            return dense_top_eigenvector(-scale * S)
        return top_eigenvector(lambda v: -scale * (S @ v), start, self.tolerance)
