"""The box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike

from dcgs.atoms import Atom, Vertex
from dcgs.points import Point, norm, read_only
from dcgs.projections import ProjectedPoint, mask_derivative
from dcgs.sets.base import (
    DiagonallyProjectableSet,
    Option,
    OptionKind,
    as_data,
    largest_entry,
    listed,
    set_fields,
)
from dcgs.validation import reals


@final
@dataclass(frozen=True, init=False, eq=False)
class Box(DiagonallyProjectableSet):
    """{x : lower ≤ x ≤ upper}, entry by entry; its extreme points are the corners.

    Where the direction is zero the oracle takes the lower bound.

    >>> Box([0.0, 0.0, 0.0], [1.0, 2.0, 3.0]).lmo(np.array([1.0, -3.0, 0.0])).dense()
    array([0., 2., 0.])
    """

    name = "box"
    options = (Option("lower", OptionKind.BOUND), Option("upper", OptionKind.BOUND))
    lower: Point
    upper: Point
    shape: tuple[int, ...]
    polytope = True
    cheap_violation = True

    def __init__(self, lower: ArrayLike, upper: ArrayLike) -> None:
        low, high = reals(lower, "lower"), reals(upper, "upper")
        if low.shape != high.shape or low.size == 0 or low.ndim == 0:
            raise ValueError(
                f"lower and upper must be nonempty arrays of one shape; got {low.shape} and {high.shape}."
            )
        low, high = as_data(low, "lower"), as_data(high, "upper")
        crossed = [tuple(position) for position in np.argwhere(low > high).tolist()]
        if crossed:
            raise ValueError(f"lower must not exceed upper; it does at {listed(crossed)}.")
        set_fields(self, lower=low, upper=high, shape=low.shape)

    @property
    def diameter(self) -> float:
        return norm(self.upper - self.lower)

    @property
    def magnitude(self) -> float:
        return max(largest_entry(self.lower), largest_entry(self.upper))

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        return Vertex(read_only(np.where(direction < 0.0, self.upper, self.lower)))

    def violation(self, x: Point) -> float:
        return max(0.0, float((self.lower - x).max()), float((x - self.upper).max()))

    def start(self) -> Point:
        """Return the midpoint."""
        # Each bound is halved first, since their sum may overflow.
        return 0.5 * self.lower + 0.5 * self.upper

    def projected(self, y: Point, h: Point | None = None) -> ProjectedPoint:
        inside = np.clip(y, self.lower, self.upper)
        return ProjectedPoint(inside, lambda: mask_derivative(inside == y, h))

    def nearby(self, x: Point) -> Point:
        return np.asarray(np.clip(x, self.lower, self.upper))

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> Box:
        return cls(**options)
