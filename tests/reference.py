"""Optima from an independent solver, for the tests only: CVXPY with Clarabel.

It shares nothing with the library but the sets' parameters: each set is written down again, as
constraints.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.sets import ConvexSet
from set_cases import CONSTRAINTS
from set_cases import cp as cp

Point: TypeAlias = NDArray[np.float64]

# Clarabel's tolerances, tightest first: cones other than the half-line may stall before the first.
TOLERANCES = (1e-11, 1e-10, 1e-9)


def optimum(objectives: Sequence[tuple[Any, Any]], X: ConvexSet) -> tuple[Point, float]:
    """Return a minimizer of f(x) = Σ ‖A vec(x) − b‖² over X, and f there; vec runs in C order.

    f is least up to about 1e-9, relative or absolute, whichever is larger.
    """
    stack = sp.vstack if any(sp.issparse(A) for A, _ in objectives) else np.vstack
    A, b = stack([A for A, _ in objectives]), np.concatenate([b for _, b in objectives])
    variable = cp.Variable(X.shape)
    loss = cp.sum_squares(A @ cp.vec(variable, order="C") - b)
    problem = cp.Problem(cp.Minimize(loss), constraints(X, variable))
    solve(problem)
    x = np.asarray(variable.value, dtype=np.float64).reshape(X.shape)
    return x, float(np.sum(np.square(A @ x.reshape(-1) - b)))


def solve(problem: Any) -> None:
    for tolerance in TOLERANCES:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", message="Solution may be inaccurate")
            problem.solve(
                solver=cp.CLARABEL, tol_gap_abs=tolerance, tol_gap_rel=tolerance, tol_feas=tolerance
            )
        if problem.status == cp.OPTIMAL:
            return
    raise RuntimeError(f"the reference must be solved to {TOLERANCES[-1]}; Clarabel says {problem.status!r}.")


def constraints(X: ConvexSet, x: Any) -> list[Any]:
    """Return what x ∈ X means to CVXPY."""
    return CONSTRAINTS[type(X)](X, x, cp.vec(x, order="C"))
