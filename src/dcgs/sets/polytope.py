"""A polytope given by linear constraints: linear programs by HiGHS, and points inside to rounding."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias, final

import numpy as np
import scipy
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

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
from dcgs.validation import matrix, vector

OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SOLVED = 0  # SciPy's status
RANK_TOLERANCE = 1e-12
# At a vertex of HiGHS, constraints that hold with equality do so up to this fraction of the unit. Their
# solution is the same vertex if it is not farther away than _SAME.
_ACTIVE, _SAME = 1e-9, 1e-6
# A constraint holds up to this multiple of ε times the sum of the sizes of its terms.
_ROUNDINGS = 4.0
# A point is moved by constraints up to this multiple of its largest violation away; more in later passes.
_NEAR, _PASSES = 1e3, 4


@final
@dataclass(frozen=True, eq=False)
class Constraints:
    """Constraints ⟨a, x⟩ ≤ b or ⟨a, x⟩ = b for the rows a of a sparse matrix A."""

    A: sp.csr_array
    b: Point

    def unit(self) -> Constraints:
        """Return the rows scaled to ‖a‖ = 1, since HiGHS's tolerances are absolute; zero rows stay."""
        lengths = np.sqrt(self.A.power(2).sum(axis=1))
        lengths[lengths == 0.0] = 1.0
        return Constraints(sp.csr_array(self.A.multiply((1.0 / lengths)[:, None])), self.b / lengths)

    def excess(self, x: Point) -> Point:
        """Return A x − b."""
        return np.asarray(self.A @ x - self.b)

    def fits(self, excess: Point, x: Point) -> bool:
        """Return True if no excess is larger than the rounding error of A x − b."""
        return bool((excess <= _ROUNDINGS * EPS * (abs(self.A) @ np.abs(x) + np.abs(self.b))).all())


@final
@dataclass(frozen=True, eq=False)
class LinearProgram:
    """Linear programs over free z = x/unit with these constraints, of rows of length 1; ``reach`` bounds ‖z‖.

    HiGHS's tolerances are absolute, and large numbers are infinite to it. So the constraints are those of z,
    which is of size about 1.
    """

    ub: Constraints
    eq: Constraints
    unit: float = 1.0
    reach: float = np.inf

    @classmethod
    def over(cls, ub: Constraints, eq: Constraints) -> LinearProgram:
        """Return the program of x with these constraints; the unit is a power of two near the largest b."""
        ub, eq = ub.unit(), eq.unit()
        largest = max(float(np.abs(rows.b).max(initial=0.0)) for rows in (ub, eq))
        unit = 2.0 ** round(math.log2(largest)) if largest > 0.0 else 1.0
        return cls(Constraints(ub.A, ub.b / unit), Constraints(eq.A, eq.b / unit), unit)

    def vertex(self, costs: Point) -> Point:
        """Return the vertex x with the least ⟨costs, x⟩, to rounding error; the reach must be finite.

        HiGHS's answer says which constraints hold with equality. They are solved once more: the vertex then
        depends on these constraints alone, and not on the way by which HiGHS came there.
        """
        z = self._minimizer(costs)
        active = np.flatnonzero(self.ub.excess(z) >= -_ACTIVE)
        A = np.vstack([self.eq.A.toarray(), self.ub.A[active].toarray()])
        exact = _solution(A, np.concatenate([self.eq.b, self.ub.b[active]]))
        if exact is not None and norm(exact - z) <= _SAME and self.fits(self.unit * exact):
            return self.unit * exact
        return self.feasible(self.unit * z)

    def fits(self, x: Point) -> bool:
        """Return True if x meets all constraints to rounding error."""
        z = x / self.unit
        return self.ub.fits(self.ub.excess(z), z) and self.eq.fits(np.abs(self.eq.excess(z)), z)

    def feasible(self, x: Point) -> Point:
        """Return the nearest point to x that meets all constraints to rounding error; x if none is found."""
        z = x / self.unit
        for k in range(1, _PASSES + 1):
            if self.fits(self.unit * z):
                return self.unit * z
            move = self._least_move(z, _NEAR**k)
            if move is None:
                break
            z = z + move
        return self.unit * z

    def multipliers(self, costs: Point, x: Point) -> tuple[Constraints, Point]:
        """Return constraints ⟨a, x⟩ ≤ b that hold with equality at x, and y ≥ 0 with −Σ y a near costs.

        Every x of the set has ⟨costs, x⟩ ≥ ⟨costs + Σ y a, x⟩ − Σ y b: weak duality. Rows a have length 1.
        """
        active = np.flatnonzero(self.ub.excess(x / self.unit) >= -_ACTIVE)
        A = np.vstack([self.eq.A.toarray(), -self.eq.A.toarray(), self.ub.A[active].toarray()])
        b = self.unit * np.concatenate([self.eq.b, -self.eq.b, self.ub.b[active]])
        try:
            y, _ = scipy.optimize.nnls(A.T, -costs, maxiter=30 * max(A.shape))
        except RuntimeError:  # too many steps: any y ≥ 0 gives a bound
            y = np.zeros(len(b))
        return Constraints(sp.csr_array(A), b), y

    def bounded(self) -> LinearProgram:
        """Return the program with its reach; raise if the set is empty or unbounded.

        If A has full column rank, ‖z‖ ≤ (‖b‖ + ‖slacks‖) / σ_min(A). One linear program finds the largest
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
        return replace(self, reach=reach)

    def center(self) -> Point:
        """Return the center x of a largest ball inside the inequalities, on the equations."""
        # One more variable, the radius r of the ball: ⟨a, z⟩ + r‖a‖ ≤ b.
        ub = Constraints(_with_column(self.ub.A, 1.0), self.ub.b)
        eq = Constraints(_with_column(self.eq.A, 0.0), self.eq.b)
        costs = np.zeros(ub.A.shape[1])
        costs[-1] = -1.0
        return self.feasible(self.unit * LinearProgram(ub, eq, self.unit, self.reach)._minimizer(costs)[:-1])

    def _minimizer(self, costs: Point) -> Point:
        """Return z with the least ⟨costs, z⟩; it is a vertex if the reach is finite.

        HiGHS may leave a variable without bounds at 0, inside an optimal face. Finite bounds that the set
        does not touch prevent that, so that rows alone determine z.
        """
        outcome = self._solve(costs)
        if outcome.status != SOLVED:
            raise RuntimeError(f"HiGHS must find a minimizer over the polytope; it says: {outcome.message}")
        return np.asarray(outcome.x)

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

    def _least_move(self, z: Point, near: float) -> Point | None:
        """Return the shortest d for which z + d meets the constraints that z violates or almost meets.

        This is Lawson and Hanson's least distance programming, by nonnegative least squares. Lengths are in
        units of the largest violation, so that the error of d is small beside d. None if there is no such d.
        """
        above, off = self.ub.excess(z), self.eq.excess(z)
        largest = max(float(above.max(initial=0.0)), float(np.abs(off).max(initial=0.0)))
        if not 0.0 < largest < np.inf:
            return None
        kept = np.flatnonzero(above >= -near * largest)
        equations = self.eq.A.toarray()
        G = np.vstack([-self.ub.A[kept].toarray(), -equations, equations])
        g = np.concatenate([above[kept], off, -off]) / largest  # G d ≥ g
        lifted = np.vstack([G.T, g])
        goal = np.eye(1, len(lifted), len(lifted) - 1)[0]
        u, _ = scipy.optimize.nnls(lifted, goal, maxiter=30 * len(g))
        rest = lifted @ u - goal
        return None if rest[-1] >= -EPS else np.asarray(-largest * rest[:-1] / rest[-1])


def _solution(A: NDArray[np.float64], b: Point) -> Point | None:
    """Return the x with A x = b, refined once; None if it is not the only one."""
    rows, columns = A.shape
    if rows < columns:
        return None
    if rows == columns:
        try:
            x = np.linalg.solve(A, b)
            return np.asarray(x + np.linalg.solve(A, b - A @ x))
        except np.linalg.LinAlgError:
            return None
    x, _, rank, _ = np.linalg.lstsq(A, b, rcond=None)
    return np.asarray(x + np.linalg.lstsq(A, b - A @ x, rcond=None)[0]) if rank == columns else None


def _with_column(A: sp.csr_array, value: float) -> sp.csr_array:
    return sp.hstack([A, np.full((A.shape[0], 1), value)], format="csr")


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
        none = Constraints(sp.csr_array((0, known.A.shape[1])), np.zeros(0))
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


def _rows(A: MatrixLike | None, b: ArrayLike | None, kind: str) -> Constraints | None:
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
    return Constraints(coefficients, numbers)
