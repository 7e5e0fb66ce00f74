"""The polytope of given inequalities and equations."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dcgs.atoms import Atom, Vertex
from dcgs.points import Point, norm, read_only
from dcgs.sets.base import ConvexSet, largest_entry, set_fields, shape_text
from dcgs.sets.linear_program import MatrixLike, Program, Rows, as_rows
from dcgs.sets.options import Kind, Option

DECIMALS = 12


@final
@dataclass(frozen=True, init=False, eq=False)
class Polytope(ConvexSet):
    """{x : A_ub x ≤ b_ub, A_eq x = b_eq}, a bounded set of vectors; variables have no other bounds.

    Either pair may be left out. The matrices may be sparse, and stay sparse. The oracle is HiGHS's dual
    simplex method. Rows are scaled to length 1 and the direction to a largest entry of 1; then vertices
    are feasible and optimal to about 1e-10. Choose units in which x is of size about 1. Vertices are
    rounded to 12 decimals, so that a vertex reached in two ways is one atom.

    >>> X = Polytope(A_ub=[[-1.0, 0.0], [0.0, -1.0], [1.0, 2.0]], b_ub=[0.0, 0.0, 4.0])
    >>> X.lmo(np.array([-1.0, -1.0])).dense()
    array([4., 0.])
    """

    name = "polytope"
    options = (Option("polytope", Kind.CONSTRAINTS),)
    A_ub: sp.csr_array
    b_ub: Point
    A_eq: sp.csr_array
    b_eq: Point
    shape: tuple[int, ...]
    _program: Program = field(repr=False)
    polytope = True

    def __init__(
        self,
        A_ub: MatrixLike | None = None,
        b_ub: ArrayLike | None = None,
        A_eq: MatrixLike | None = None,
        b_eq: ArrayLike | None = None,
    ) -> None:
        ub, eq = as_rows(A_ub, b_ub, "ub"), as_rows(A_eq, b_eq, "eq")
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
        set_fields(self, _program=Program(ub.unit(), eq.unit()).bounded())

    @cached_property
    def diameter(self) -> float:
        """An upper bound: the diagonal of the smallest box around the set, by 2d linear programs, once."""
        units = np.eye(self.shape[0])
        widths = [-self.lmo(-unit).dot(-unit) - self.lmo(unit).dot(unit) for unit in units]
        return norm(np.array(widths))

    def lmo(self, direction: Point, near: Atom | None = None) -> Vertex:
        vertex = self._program.minimizer(direction / (largest_entry(direction) or 1.0))
        return Vertex(read_only(np.round(vertex, DECIMALS) + 0.0))

    def violation(self, x: Point) -> float:
        above = self.A_ub @ x - self.b_ub
        off = np.abs(self.A_eq @ x - self.b_eq)
        return max(0.0, float(above.max(initial=0.0)), float(off.max(initial=0.0)))

    def start(self) -> Point:
        """Return the center of a largest ball inside the inequalities."""
        return self._program.center()

    @classmethod
    def from_options(cls, shape: tuple[int, ...], **options: Any) -> Polytope:
        if len(shape) != 1:
            raise ValueError(f"the set polytope must be of vectors; the model has shape {shape_text(shape)}.")
        return cls(**options["polytope"])
