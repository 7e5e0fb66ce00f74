"""The convex hull of the k-sparse vectors with bounded entries."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, Sparse
from dcgs.points import Point, read_only
from dcgs.projections import ProjectedPoint, free_derivative, mask_derivative, onto_capped_l1_ball
from dcgs.sets.base import DiagonallyProjectableSet, largest_entry, set_fields, shortened
from dcgs.sets.options import RADIUS, Kind, Option
from dcgs.validation import POSITIVE, SHAPE, whole


@final
@dataclass(frozen=True, init=False)
class KSparseBall(DiagonallyProjectableSet):
    """The convex hull of the vectors with at most k nonzero entries, each of size at most radius.

    That is {x : Σ|xⱼ| ≤ k·radius, max|xⱼ| ≤ radius}; its extreme points have k entries ±radius.
    If fewer than k entries of the direction are nonzero, the oracle takes −radius at zero entries.

    >>> KSparseBall(4, k=2).lmo(np.array([1.0, -3.0, 0.0, 2.0])).dense()
    array([ 0.,  1.,  0., -1.])
    """

    name = "k-sparse"
    options = (Option("k", Kind.COUNT, "how many entries of an extreme point are nonzero"), RADIUS)
    shape: tuple[int, ...]
    k: int
    radius: float
    polytope = True
    cheap_violation = True

    def __init__(self, shape: int | tuple[int, ...], k: int, radius: float = 1.0) -> None:
        dims = SHAPE(shape, "shape")
        size = whole(1, math.prod(dims), "the number of entries")(k, "k")
        set_fields(self, shape=dims, k=size, radius=POSITIVE(radius, "radius"))

    @property
    def diameter(self) -> float:
        return 2.0 * self.radius * math.sqrt(self.k)

    @property
    def magnitude(self) -> float:
        return self.k * self.radius

    def lmo(self, direction: Point, near: Atom | None = None) -> Sparse:
        flat = direction.reshape(-1)
        sizes = np.abs(flat)
        # argpartition breaks ties arbitrarily, so the k-th largest size is found first.
        threshold = np.partition(sizes, -self.k)[-self.k]
        above = np.flatnonzero(sizes > threshold)
        level = np.flatnonzero(sizes == threshold)[: self.k - above.size]
        indices = np.sort(np.concatenate([above, level]))
        values = np.where(flat[indices] < 0.0, self.radius, -self.radius)
        return Sparse(read_only(indices), read_only(values), self.shape)

    def violation(self, x: Point) -> float:
        sum_excess = float(np.abs(x).sum()) - self.k * self.radius
        return max(0.0, sum_excess, largest_entry(x) - self.radius)

    def start(self) -> Point:
        return np.zeros(self.shape)

    def nearby(self, x: Point) -> Point:
        inside = np.clip(x, -self.radius, self.radius)
        return shortened(inside, float(np.abs(inside).sum()), self.k * self.radius)

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        total = self.k * self.radius
        x = onto_capped_l1_ball(y, total, self.radius, h)
        if np.array_equal(x, np.clip(y, -self.radius, self.radius)):
            return ProjectedPoint(x, lambda: mask_derivative(x == y, h))
        return ProjectedPoint(x, lambda: free_derivative(x, self.radius, h))
