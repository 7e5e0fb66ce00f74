"""The simplex."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, Spike
from dcgs.points import Point
from dcgs.projections import ProjectedPoint, onto_simplex, simplex_derivative
from dcgs.sets.base import OPTIONAL_RADIUS, DiagonallyProjectableSet, lowest, set_fields
from dcgs.validation import POSITIVE, SHAPE


@final
@dataclass(frozen=True, init=False)
class Simplex(DiagonallyProjectableSet):
    """{x ≥ 0 : Σxⱼ = radius}; its extreme points are radius times a unit vector.

    With a single entry the set is one point, and its diameter is 0.

    >>> Simplex(3).lmo(np.array([1.0, -3.0, 0.0]))
    Spike(index=1, height=1.0, shape=(3,))
    """

    name = "simplex"
    options = (OPTIONAL_RADIUS,)
    shape: tuple[int, ...]
    radius: float
    polytope = True
    cheap_violation = True

    def __init__(self, shape: int | tuple[int, ...], radius: float = 1.0) -> None:
        set_fields(self, shape=SHAPE(shape, "shape"), radius=POSITIVE(radius, "radius"))

    @property
    def diameter(self) -> float:
        return self.radius * math.sqrt(2.0) if math.prod(self.shape) > 1 else 0.0

    @property
    def magnitude(self) -> float:
        return self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Spike:
        return Spike(int(direction.argmin()), self.radius, self.shape)

    def more(self, direction: Point, level: float, most: int) -> list[Spike]:
        indices = lowest(self.radius * direction.reshape(-1), level, most)
        return [Spike(j, self.radius, self.shape) for j in indices]

    def violation(self, x: Point) -> float:
        return max(0.0, -float(x.min()), abs(float(x.sum()) - self.radius))

    def start(self) -> Point:
        """Return the barycenter."""
        return np.full(self.shape, self.radius / math.prod(self.shape))

    def nearby(self, x: Point) -> Point:
        """Return x without its negative entries, scaled to the sum that it must have."""
        y = np.maximum(x, 0.0)
        total = float(y.sum())
        return y * (self.radius / total) if total > 0.0 else self.start()

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        x = onto_simplex(y, self.radius, h)
        return ProjectedPoint(x, lambda: simplex_derivative(x, h))
