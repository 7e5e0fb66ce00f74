"""The ℓ₁ ball."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, Spike
from dcgs.points import Point, onto_l1_ball
from dcgs.sets.base import ProjectableSet, lowest, set_fields
from dcgs.sets.options import RADIUS
from dcgs.validation import POSITIVE, SHAPE


@final
@dataclass(frozen=True, init=False)
class L1Ball(ProjectableSet):
    """{x : Σ|xⱼ| ≤ radius}, which makes x sparse; its extreme points are ±radius times a unit vector.

    >>> L1Ball(3, radius=2.0).lmo(np.array([1.0, -3.0, 0.0]))
    Spike(index=1, height=2.0, shape=(3,))
    """

    name = "l1"
    options = (RADIUS,)
    shape: tuple[int, ...]
    radius: float
    polytope = True

    def __init__(self, shape: int | tuple[int, ...], radius: float = 1.0) -> None:
        set_fields(self, shape=SHAPE(shape, "shape"), radius=POSITIVE(radius, "radius"))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Spike:
        # Two searches without a temporary are faster than one over np.abs(direction).
        low, high = int(direction.argmin()), int(direction.argmax())
        down, up = -float(direction.item(low)), float(direction.item(high))
        if down > up or (down == up and low < high):
            return Spike(low, self.radius, self.shape)
        return Spike(high, -self.radius, self.shape)

    def more(self, direction: Point, level: float, most: int) -> list[Spike]:
        flat = direction.reshape(-1)
        indices = lowest(-self.radius * np.abs(flat), level, most)
        return [Spike(j, -math.copysign(self.radius, flat.item(j)), self.shape) for j in indices]

    def violation(self, x: Point) -> float:
        return max(0.0, float(np.abs(x).sum()) - self.radius)

    def start(self) -> Point:
        return np.zeros(self.shape)

    def project(self, y: Point) -> Point:
        return onto_l1_ball(y, self.radius)
