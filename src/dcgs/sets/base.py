"""What a feasible set must offer: a linear oracle, a diameter, a violation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike
from scipy.sparse.linalg import LinearOperator

from dcgs.atoms import Atom
from dcgs.points import Point, frozen

Direction: TypeAlias = Point | sp.sparray | sp.spmatrix | LinearOperator


class ConvexSet(ABC):
    """A compact convex set known through its linear minimization oracle.

    ``polytope`` says whether it has finitely many extreme points, which pairwise steps need.
    """

    shape: tuple[int, ...]
    polytope: bool

    @property
    @abstractmethod
    def diameter(self) -> float:
        """An upper bound of ‖x − y‖ over x, y in the set; tight unless the class says otherwise."""

    @abstractmethod
    def lmo(self, direction: Point, near: Atom | None = None) -> Atom:
        """Return an extreme point s minimizing ⟨direction, s⟩.

        Also for a zero direction; ties go to the lowest index. ``near`` is an earlier answer that
        an iterative oracle may start from; it changes the work, not what is promised.
        """

    def more(self, direction: Point, level: float, most: int) -> Sequence[Atom]:
        """Return up to ``most`` extreme points s with ⟨direction, s⟩ ≤ level, the best if there are more.

        None where they take more work than one pass over the direction. Those with ⟨direction, s⟩ > 0 may
        be left out.
        """
        return ()

    @abstractmethod
    def violation(self, x: Point) -> float:
        """Return how far x is from satisfying the set's constraints; 0 inside.

        In the units of the constraint (excess of the norm, largest excess of an inequality); the
        caller chooses the tolerance.
        """

    @abstractmethod
    def start(self) -> Point:
        """Return the point of the set from which a run starts when no x0 is given."""


def as_shape(shape: int | tuple[int, ...]) -> tuple[int, ...]:
    """Return a checked shape; one integer d means (d,)."""
    dims = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if not dims or any(not isinstance(d, int | np.integer) or d < 1 for d in dims):
        raise ValueError(f"shape must be a positive integer or a tuple of them; got {shape!r}.")
    return tuple(int(d) for d in dims)


def check_side(n: int) -> int:
    """Return the number of rows and columns of square matrices if it is a positive integer."""
    if not isinstance(n, int | np.integer) or n < 1:
        raise ValueError(f"n must be a positive integer; got {n!r}.")
    return int(n)


def check_radius(radius: float) -> float:
    """Return the radius as a float if it is positive and finite."""
    value = float(radius)
    if not (0.0 < value < float("inf")):
        raise ValueError(f"radius must be a positive finite number; got {radius!r}.")
    return value


def check_tolerance(tolerance: float) -> float:
    """Return the tolerance of an iterative oracle if rounding errors allow it."""
    if not 1e-12 <= tolerance < 1.0:
        raise ValueError(f"tolerance must be at least 1e-12 and less than 1; got {tolerance!r}.")
    return float(tolerance)


def as_data(values: ArrayLike, name: str) -> Point:
    """Return the user's numbers as a read-only copy if all are finite.

    −0 becomes 0: atoms compare by their bytes, and the two zeros differ in theirs.
    """
    array = np.array(values, dtype=np.float64) + 0.0
    nonfinite = np.argwhere(~np.isfinite(array)).tolist()
    if nonfinite:
        raise ValueError(f"{name} must be finite; it is not at {listed(map(tuple, nonfinite))}.")
    return frozen(array)


def largest_entry(x: Point) -> float:
    """Return max |xⱼ|, without a temporary of the size of x."""
    return max(float(x.max()), -float(x.min()))


def listed(items: Iterable[object], limit: int = 5) -> str:
    """Return the first items as a list for a message, with … for the rest."""
    it = iter(items)
    head = [repr(item) for item in islice(it, limit)]
    rest = ["…"] if next(it, None) is not None else []
    return f"[{', '.join(head + rest)}]"


def set_fields(instance: ConvexSet, **values: object) -> None:
    """Set fields of a frozen set, from its own ``__init__`` only."""
    for name, value in values.items():
        object.__setattr__(instance, name, value)


def lowest(values: Point, level: float, most: int) -> list[int]:
    """Return the places of entries ≤ level, at most so many: the lowest, ties at the lowest places."""
    places = np.flatnonzero(values <= level)
    if len(places) > most:
        places = places[np.argsort(values[places], kind="stable")[:most]]
    return list(map(int, places))
