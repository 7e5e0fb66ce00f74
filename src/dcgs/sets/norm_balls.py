"""Balls of the ℓ₁, the Euclidean and the ℓ∞ norm."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, Spike, Vertex
from dcgs.points import Point, norm, read_only
from dcgs.projections import (
    ProjectedPoint,
    l2_derivative,
    mask_derivative,
    onto_l1_ball,
    onto_l2_ball,
    simplex_derivative,
)
from dcgs.sets.base import DiagonallyProjectableSet, largest_entry, lowest, set_fields, shortened
from dcgs.sets.options import RADIUS
from dcgs.validation import POSITIVE, SHAPE


@dataclass(frozen=True, init=False)
class NormBall(DiagonallyProjectableSet):
    """{x : the norm of x ≤ radius}."""

    options = (RADIUS,)
    shape: tuple[int, ...]
    radius: float
    cheap_violation = True

    def __init__(self, shape: int | tuple[int, ...], radius: float = 1.0) -> None:
        set_fields(self, shape=SHAPE(shape, "shape"), radius=POSITIVE(radius, "radius"))

    @property
    def magnitude(self) -> float:
        return self.radius

    def start(self) -> Point:
        return np.zeros(self.shape)

    def nearby(self, x: Point) -> Point:
        return shortened(x, self.radius + self.violation(x), self.radius)


@final
@dataclass(frozen=True, init=False)
class L1Ball(NormBall):
    """{x : Σ|xⱼ| ≤ radius}, which makes x sparse; its extreme points are ±radius times a unit vector.

    >>> L1Ball(3, radius=2.0).lmo(np.array([1.0, -3.0, 0.0]))
    Spike(index=1, height=2.0, shape=(3,))
    """

    name = "l1"
    polytope = True

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

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        x = onto_l1_ball(y, self.radius, h)
        if x is y:
            return ProjectedPoint(x, lambda: mask_derivative(np.ones(y.shape), h))
        return ProjectedPoint(x, lambda: simplex_derivative(x, h))


@final
@dataclass(frozen=True, init=False)
class L2Ball(NormBall):
    """{x : ‖x‖ ≤ radius} (Frobenius for matrices); every point of its sphere is extreme.

    >>> L2Ball(2, radius=5.0).lmo(np.array([3.0, 4.0])).dense()
    array([-3., -4.])
    """

    name = "l2"

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
        return Vertex(read_only(array))

    def violation(self, x: Point) -> float:
        return max(0.0, norm(x) - self.radius)

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        x, mu = onto_l2_ball(y, self.radius, h)
        if x is y:
            return ProjectedPoint(x, lambda: mask_derivative(np.ones(y.shape), h))
        return ProjectedPoint(x, lambda: l2_derivative(x, mu, h))


@final
@dataclass(frozen=True, init=False)
class LInfBall(NormBall):
    """{x : max|xⱼ| ≤ radius}; its extreme points have ±radius everywhere.

    Where the direction is zero the oracle takes −radius.

    >>> LInfBall(3, radius=2.0).lmo(np.array([1.0, -3.0, 0.0])).dense()
    array([-2.,  2., -2.])
    """

    name = "linf"
    polytope = True

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius * math.sqrt(math.prod(self.shape))

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        return Vertex(read_only(np.where(direction < 0.0, self.radius, -self.radius)))

    def violation(self, x: Point) -> float:
        return max(0.0, largest_entry(x) - self.radius)

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        inside = np.clip(y, -self.radius, self.radius)
        return ProjectedPoint(inside, lambda: mask_derivative(inside == y, h))
