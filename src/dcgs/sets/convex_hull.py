"""The convex hull of given points."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy
from numpy.typing import ArrayLike

from dcgs.atoms import Atom, Vertex
from dcgs.points import Point, norm
from dcgs.sets.base import ConvexSet, Option, OptionKind, as_data, largest_entry, set_fields
from dcgs.validation import reals

EXACT_COUNT = 4096
CHUNK = 512
# Passes over the points of nonnegative least squares, which takes a few; a bound against loops.
_MOST_PASSES = 30


@final
@dataclass(frozen=True, init=False, eq=False)
class ConvexHull(ConvexSet):
    """The convex hull of ``points``, an array of shape (count, *shape).

    The oracle returns one of the points; ties go to the first. Points inside the hull of the others are
    allowed.

    >>> ConvexHull([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0]]).lmo(np.array([1.0, -1.0])).dense()
    array([0., 1.])
    """

    name = "hull"
    options = (Option("points", OptionKind.POINTS),)
    points: Point
    shape: tuple[int, ...]
    polytope = True

    def __init__(self, points: ArrayLike) -> None:
        array = reals(points, "points")
        if array.ndim < 2 or array.size == 0:
            raise ValueError(
                "points must be an array of shape (count, *shape) with at least one point; "
                f"got shape {array.shape}."
            )
        set_fields(self, points=as_data(array, "points"), shape=array.shape[1:])

    @cached_property
    def diameter(self) -> float:
        """The largest distance of two points.

        For more than 4,096 points it is an upper bound, twice the largest distance from their mean.
        """
        # Centered points keep the digits of ‖p‖² + ‖q‖² − 2⟨p, q⟩: no term exceeds the squared diameter.
        rows = self._rows - self._rows.mean(axis=0)
        squares = np.einsum("ij,ij->i", rows, rows)
        if len(rows) > EXACT_COUNT:
            return 2.0 * math.sqrt(float(squares.max()))
        chunks = [slice(i, i + CHUNK) for i in range(0, len(rows), CHUNK)]
        largest = max(float((squares[c, None] + squares - 2.0 * rows[c] @ rows.T).max()) for c in chunks)
        return math.sqrt(max(0.0, largest))

    @cached_property
    def magnitude(self) -> float:
        """The largest norm of a point."""
        return math.sqrt(float(np.einsum("ij,ij->i", self._rows, self._rows).max()))

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        values = self._rows @ direction.reshape(-1)
        return Vertex(self.points[int(values.argmin())])

    def violation(self, x: Point) -> float:
        """Return the Euclidean distance from x to the hull."""
        return norm(self._nearest(x) @ (self._rows - x.reshape(-1)))

    def nearby(self, x: Point) -> Point:
        """Return the nearest point of the hull."""
        return np.asarray(self._nearest(x) @ self._rows).reshape(self.shape)

    def _nearest(self, x: Point) -> Point:
        """Return the weights of the points whose sum is nearest to x."""
        rows = self._rows - x.reshape(-1)
        scale = largest_entry(rows) or 1.0
        # Nonnegative least squares finds the point of the hull nearest to 0 (Lawson and Hanson): for
        # w = s·λ with λ in the simplex, ‖Σwᵢpᵢ‖² + (Σwᵢ − 1)² is least where ‖Σλᵢpᵢ‖ is, for every s.
        lifted = np.vstack([rows.T / scale, np.ones(len(rows))])
        goal = np.eye(1, len(lifted), len(lifted) - 1)[0]
        weights, _ = scipy.optimize.nnls(lifted, goal, maxiter=_MOST_PASSES * len(rows))
        return np.asarray(weights / weights.sum())

    def start(self) -> Point:
        """Return the mean of the points."""
        return np.asarray(self.points.mean(axis=0))

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> ConvexHull:
        return cls(**options)

    @property
    def _rows(self) -> Point:
        return self.points.reshape(len(self.points), -1)
