"""The Euclidean ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, Vertex
from dcgs.points import Point, norm
from dcgs.sets.base import ProjectableSet, largest_entry, set_fields
from dcgs.sets.options import RADIUS
from dcgs.validation import POSITIVE, SHAPE


@final
@dataclass(frozen=True, init=False)
class L2Ball(ProjectableSet):
    """{x : ‖x‖ ≤ radius} (Frobenius for matrices); every point of its sphere is extreme.

    >>> L2Ball(2, radius=5.0).lmo(np.array([3.0, 4.0])).dense()
    array([-3., -4.])
    """

    name = "l2"
    options = (RADIUS,)
    shape: tuple[int, ...]
    radius: float
    polytope = False

    def __init__(self, shape: int | tuple[int, ...], radius: float = 1.0) -> None:
        set_fields(self, shape=SHAPE(shape, "shape"), radius=POSITIVE(radius, "radius"))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        size = largest_entry(direction)
        if size == 0.0:
            array = np.zeros(self.shape)
            array.flat[0] = -self.radius
        else:
            # Dividing by the largest entry first keeps the squares from under- and overflow.
            array = direction / size
            array *= -self.radius / norm(array)
            array += 0.0  # −0 becomes 0, since atoms compare by their bytes
        array.flags.writeable = False
        return Vertex(array)

    def violation(self, x: Point) -> float:
        return max(0.0, norm(x) - self.radius)

    def start(self) -> Point:
        return np.zeros(self.shape)

    def project(self, y: Point) -> Point:
        size = norm(y)
        return y if size <= self.radius else (self.radius / size) * y
