"""A polytope given by linear constraints; its linear programs are solved by SciPy's HiGHS."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np
import scipy
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dcgs.atoms import Atom, Vertex
from dcgs.points import Point, frozen, norm, read_only
from dcgs.sets.base import ConvexSet, largest_entry, set_fields, shape_text
from dcgs.sets.options import Kind, Option
from dcgs.validation import matrix, vector

MatrixLike: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix

DECIMALS = 12
OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SOLVED = 0  # SciPy's status
RANK_TOLERANCE = 1e-12


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


@final
@dataclass(frozen=True, eq=False)
class Rows:
    """Constraints ⟨a, x⟩ ≤ b or ⟨a, x⟩ = b for the rows a of a sparse matrix A."""

    A: sp.csr_array
    b: Point

    def unit(self) -> Rows:
        """Return the rows scaled to ‖a‖ = 1, since HiGHS's tolerances are absolute; zero rows stay."""
        lengths = np.sqrt(self.A.power(2).sum(axis=1))
        lengths[lengths == 0.0] = 1.0
        return Rows(sp.diags_array(1.0 / lengths) @ self.A, self.b / lengths)


@final
@dataclass(frozen=True, eq=False)
class Program:
    """Linear programs over free x with these constraints, of rows of length 1; ``reach`` bounds ‖x‖."""

    ub: Rows
    eq: Rows
    reach: float = np.inf

    def minimizer(self, costs: Point) -> Point:
        """Return x with the least ⟨costs, x⟩; it is a vertex if the reach is finite.

        HiGHS may leave a variable without bounds at 0, inside an optimal face. Finite bounds that the set
        does not touch prevent that, so that rows alone determine x.
        """
        outcome = self._solve(costs)
        if outcome.status != SOLVED:
            raise RuntimeError(f"HiGHS must find a minimizer over the polytope; it says: {outcome.message}")
        return np.asarray(outcome.x)

    def bounded(self) -> Program:
        """Return the program with its reach; raise if the set is empty or unbounded.

        If A has full column rank, ‖x‖ ≤ (‖b‖ + ‖slacks‖) / σ_min(A). One linear program finds the largest
        weighted sum of the slacks; it is unbounded exactly if the set is.
        """
        if self._solve(np.zeros(self.ub.A.shape[1])).status != SOLVED:
            raise ValueError("the polytope must not be empty; HiGHS finds no x that meets its constraints.")
        spectrum = np.linalg.eigvalsh((self.ub.A.T @ self.ub.A + self.eq.A.T @ self.eq.A).toarray())
        # Weights from 1 to 2: with equal weights opposite rows cancel up to rounding error, and HiGHS fails
        # for costs that are rounding errors. Rounding removes the rest.
        weights = np.linspace(1.0, 2.0, len(self.ub.b))
        outcome = self._solve(np.round(weights @ self.ub.A, 10))
        if spectrum[0] <= RANK_TOLERANCE * spectrum[-1] or outcome.status != SOLVED:
            raise ValueError(
                "the polytope must be bounded; its constraints let x grow without end. "
                "Add bounds of the variables as rows of A_ub: they are free otherwise."
            )
        slacks = float(weights @ self.ub.b) - float(outcome.fun)
        reach = (norm(self.ub.b) + norm(self.eq.b) + slacks) / float(np.sqrt(spectrum[0]))
        return Program(self.ub, self.eq, reach)

    def center(self) -> Point:
        """Return the center of a largest ball inside the inequalities, on the equations."""
        # One more variable, the radius r of the ball: ⟨a, x⟩ + r‖a‖ ≤ b.
        ub = Rows(_with_column(self.ub.A, 1.0), self.ub.b)
        eq = Rows(_with_column(self.eq.A, 0.0), self.eq.b)
        costs = np.zeros(ub.A.shape[1])
        costs[-1] = -1.0
        return Program(ub, eq, self.reach).minimizer(costs)[:-1]

    def _solve(self, costs: Point) -> Any:
        return scipy.optimize.linprog(
            costs,
            A_ub=self.ub.A,
            b_ub=self.ub.b,
            A_eq=self.eq.A,
            b_eq=self.eq.b,
            bounds=(-2.0 * self.reach, 2.0 * self.reach),
            method="highs-ds",
            options=OPTIONS,
        )


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


def _with_column(A: sp.csr_array, value: float) -> sp.csr_array:
    return sp.hstack([A, np.full((A.shape[0], 1), value)], format="csr")
