"""Linear programs over {x : A_ub x ≤ b_ub, A_eq x = b_eq}, x free, by SciPy's HiGHS."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import scipy
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dcgs.points import Point, frozen, norm
from dcgs.validation import matrix, vector

MatrixLike: TypeAlias = ArrayLike | sp.sparray | sp.spmatrix

OPTIONS = {"primal_feasibility_tolerance": 1e-10, "dual_feasibility_tolerance": 1e-10}
SOLVED = 0  # SciPy's status
RANK_TOLERANCE = 1e-12


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
    """Constraints with rows of length 1, and a bound ``reach`` of ‖x‖."""

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


def as_rows(A: MatrixLike | None, b: ArrayLike | None, kind: str) -> Rows | None:
    """Return checked read-only copies of A and b; None if both are None."""
    if A is None and b is None:
        return None
    if A is None or b is None:
        given, absent = (f"b_{kind}", f"A_{kind}") if A is None else (f"A_{kind}", f"b_{kind}")
        raise ValueError(f"A_{kind} and b_{kind} must be given together; got {given} without {absent}.")
    coefficients = _as_matrix(A, f"A_{kind}")
    numbers = frozen(vector(b, f"b_{kind}") + 0.0)
    rows = coefficients.shape[:1]
    if numbers.shape != rows:
        raise ValueError(
            f"b_{kind} must have shape {rows}, an entry per row of A_{kind}; got {numbers.shape}."
        )
    return Rows(coefficients, numbers)


def _as_matrix(A: MatrixLike, name: str) -> sp.csr_array:
    given = matrix(A, name)
    if given.shape[1] == 0:
        raise ValueError(f"{name} must be a matrix with a column per variable; got shape {given.shape}.")
    rows = sp.coo_array(given).tocsr()  # a copy
    rows.data.flags.writeable = False
    return rows


def _with_column(A: sp.csr_array, value: float) -> sp.csr_array:
    return sp.hstack([A, np.full((A.shape[0], 1), value)], format="csr")
