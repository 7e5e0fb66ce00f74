"""A polytope given by linear constraints."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dcgs.atoms import Atom, Vertex
from dcgs.points import EPS, Point, frozen, norm, read_only
from dcgs.sets.base import (
    FEASIBLE,
    ROUNDINGS,
    ConvexSet,
    LowerBound,
    Option,
    OptionKind,
    largest_entry,
    set_fields,
    shape_text,
)
from dcgs.sets.linear_program import LinearProgram, Rows
from dcgs.validation import matrix, vector

MatrixLike: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix

# Vertices are rounded to this number of decimals, in units of the size of the set, if they stay in the set.
DECIMALS = 12


@final
@dataclass(frozen=True, init=False, eq=False)
class Polytope(ConvexSet):
    """{x : A_ub x ≤ b_ub, A_eq x = b_eq}, a bounded set of vectors; variables have no other bounds.

    Either pair may be left out. The matrices may be sparse, and stay sparse. The oracle is HiGHS's dual
    simplex method. For it, rows are scaled to length 1, x to the size of the set, and the direction to a
    largest entry of 1; then vertices are optimal to about 1e-10. HiGHS's vertex is feasible to about 1e-10
    of the size of the set; the equations that hold there are solved once more, to rounding error, so that a
    vertex reached in two ways is one atom.

    >>> X = Polytope(A_ub=[[-1.0, 0.0], [0.0, -1.0], [1.0, 2.0]], b_ub=[0.0, 0.0, 4.0])
    >>> X.lmo(np.array([-1.0, -1.0])).dense()
    array([4., 0.])
    """

    name = "polytope"
    options = (Option("polytope", OptionKind.CONSTRAINTS),)
    A_ub: sp.csr_array
    b_ub: Point
    A_eq: sp.csr_array
    b_eq: Point
    shape: tuple[int, ...]
    _program: LinearProgram = field(repr=False)
    polytope = True
    cheap_violation = True

    def __init__(
        self,
        A_ub: MatrixLike | None = None,
        b_ub: ArrayLike | None = None,
        A_eq: MatrixLike | None = None,
        b_eq: ArrayLike | None = None,
    ) -> None:
        ub, eq = _rows(A_ub, b_ub, "ub"), _rows(A_eq, b_eq, "eq")
        known = ub or eq
        if known is None:
            raise ValueError("A_ub or A_eq must be given; got neither.")
        none = Rows(sp.csr_array((0, known.A.shape[1])), np.zeros(0))
        ub, eq = ub or none, eq or none
        if ub.A.shape[1] != eq.A.shape[1]:
            raise ValueError(
                "A_ub and A_eq must have a column for each variable; "
                f"got {ub.A.shape[1]} and {eq.A.shape[1]} columns."
            )
        set_fields(self, A_ub=ub.A, b_ub=ub.b, A_eq=eq.A, b_eq=eq.b, shape=(ub.A.shape[1],))
        set_fields(self, _program=LinearProgram.over(ub, eq).bounded())

    @cached_property
    def diameter(self) -> float:
        """An upper bound: the diagonal of the smallest box around the set, by 2d linear programs, once."""
        low, high = self._box
        return norm(high - low)

    @cached_property
    def magnitude(self) -> float:
        """The largest sum of the sizes of all terms of a constraint, at a point of the set."""
        return float(self._sizes.max(initial=0.0))

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        vertex = self._program.vertex(direction / (largest_entry(direction) or 1.0))
        unit = self._program.unit
        decimal = unit * np.round(vertex / unit, DECIMALS)
        return Vertex(read_only((decimal if self._program.fits(decimal) else vertex) + 0.0))

    def lower_bound(self, direction: Point, s: Atom, slack: float = 0.0) -> LowerBound:
        """Return what multipliers of the constraints at the vertex s prove: HiGHS is not trusted."""
        rows, y = self._program.multipliers(direction, s.dense())
        low, high = self._box
        reach = (1.0 + FEASIBLE) * np.maximum(np.abs(low), np.abs(high))  # HiGHS found the box
        rest = direction + rows.A.T @ y
        value = -float(y @ rows.b) - float(np.abs(rest) @ reach)
        sizes = np.abs(direction) + abs(rows.A).T @ y
        return LowerBound(value, ROUNDINGS * EPS * (float(y @ np.abs(rows.b)) + float(sizes @ reach)))

    def violation(self, x: Point) -> float:
        return float(self._excess(x).max(initial=0.0))

    def holds(self, x: Point) -> bool:
        """Return True if every constraint holds up to its own rounding error."""
        return bool((self._excess(x) <= ROUNDINGS * EPS * self._sizes).all())

    def accepts(self, x: Point) -> bool:
        """Return True if x can be x0: each constraint holds up to 1e-9 of the most that it varies by."""
        low, high = self._box
        width = np.concatenate([abs(A) @ (high - low) for A in (self.A_ub, self.A_eq)])
        return bool((self._excess(x) <= np.maximum(FEASIBLE * width, ROUNDINGS * EPS * self._sizes)).all())

    def start(self) -> Point:
        """Return the center of a largest ball inside the inequalities."""
        return self._program.center()

    def nearby(self, x: Point) -> Point:
        near = self._program.feasible(x)
        return near if self.holds(near) else super().nearby(x)

    def _excess(self, x: Point) -> Point:
        """Return by how much x violates each constraint; not positive for inequalities that hold."""
        return np.concatenate([self.A_ub @ x - self.b_ub, np.abs(self.A_eq @ x - self.b_eq)])

    @cached_property
    def _box(self) -> tuple[Point, Point]:
        """The smallest box around the set, up to the accuracy of the oracle."""
        units = np.eye(self.shape[0])
        low, high = (np.array([self.lmo(sign * unit).dot(unit) for unit in units]) for sign in (1.0, -1.0))
        return low, high

    @cached_property
    def _sizes(self) -> Point:
        """For each constraint, the largest sum of the sizes of its terms at a point of the set."""
        low, high = self._box
        reach = np.maximum(np.abs(low), np.abs(high))
        ub, eq = abs(self.A_ub) @ reach + np.abs(self.b_ub), abs(self.A_eq) @ reach + np.abs(self.b_eq)
        return np.concatenate([ub, eq])

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> Polytope:
        if len(shape) != 1:
            raise ValueError(f"the set polytope must be of vectors; the model has shape {shape_text(shape)}.")
        return cls(**options["polytope"])


def _rows(A: MatrixLike | None, b: ArrayLike | None, kind: str) -> Rows | None:
    """Return checked read-only copies of A and b; None if both are None."""
    if A is None and b is None:
        return None
    if A is None or b is None:
        known, absent = (f"b_{kind}", f"A_{kind}") if A is None else (f"A_{kind}", f"b_{kind}")
        raise ValueError(f"A_{kind} and b_{kind} must be given together; got {known} without {absent}.")
    given = matrix(A, f"A_{kind}")
    if given.shape[1] == 0:
        raise ValueError(f"A_{kind} must be a matrix with a column per variable; got shape {given.shape}.")
    coefficients = sp.coo_array(given).tocsr()  # a copy
    coefficients.data.flags.writeable = False
    numbers = frozen(vector(b, f"b_{kind}") + 0.0)
    rows = coefficients.shape[:1]
    if numbers.shape != rows:
        raise ValueError(
            f"b_{kind} must have shape {rows}, an entry per row of A_{kind}; got {numbers.shape}."
        )
    return Rows(coefficients, numbers)
