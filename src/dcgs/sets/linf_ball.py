"""The ℓ∞ ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, Vertex
from dcgs.points import Point
from dcgs.sets.base import ProjectableSet, largest_entry, set_fields
from dcgs.sets.options import RADIUS
from dcgs.validation import POSITIVE, SHAPE


@final
@dataclass(frozen=True, init=False)
class LInfBall(ProjectableSet):
    """{x : max|xⱼ| ≤ radius}; its extreme points have ±radius everywhere.

    Where the direction is zero the oracle takes −radius.

    >>> LInfBall(3, radius=2.0).lmo(np.array([1.0, -3.0, 0.0])).dense()
    array([-2.,  2., -2.])
    """

    name = "linf"
    options = (RADIUS,)
    shape: tuple[int, ...]
    radius: float
    polytope = True

    def __init__(self, shape: int | tuple[int, ...], radius: float = 1.0) -> None:
        set_fields(self, shape=SHAPE(shape, "shape"), radius=POSITIVE(radius, "radius"))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius * math.sqrt(math.prod(self.shape))

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        array = np.where(direction < 0.0, self.radius, -self.radius)
        array.flags.writeable = False
        return Vertex(array)

    def violation(self, x: Point) -> float:
        return max(0.0, largest_entry(x) - self.radius)

    def start(self) -> Point:
        return np.zeros(self.shape)

    def project(self, y: Point) -> Point:
        return np.clip(y, -self.radius, self.radius)
