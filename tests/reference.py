"""Optima from an independent solver, for the tests only: CVXPY with Clarabel.

It shares nothing with the library but the sets' parameters: each set is written down again, as
constraints.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from importlib import import_module
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.sets import (
    BirkhoffPolytope,
    Box,
    ConvexHull,
    ConvexSet,
    GroupL1Ball,
    KSparseBall,
    L1Ball,
    L2Ball,
    LInfBall,
    NuclearNormBall,
    Polytope,
    Simplex,
    Spectraplex,
)

Point: TypeAlias = NDArray[np.float64]

# Imported so, as CVXPY is annotated only in part, which strict mypy refuses.
cp: Any = import_module("cvxpy")

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
    _solve(problem)
    x = np.asarray(variable.value, dtype=np.float64).reshape(X.shape)
    return x, float(np.sum(np.square(A @ x.reshape(-1) - b)))


def _solve(problem: Any) -> None:
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
    flat = cp.vec(x, order="C")
    match X:
        case L1Ball():
            return [cp.norm1(flat) <= X.radius]
        case L2Ball():
            return [cp.norm2(flat) <= X.radius]
        case LInfBall():
            return [cp.abs(flat) <= X.radius]
        case KSparseBall():
            return [cp.norm1(flat) <= X.k * X.radius, cp.abs(flat) <= X.radius]
        case GroupL1Ball():
            return [sum(cp.norm2(flat[list(group)]) for group in X.groups) <= X.radius]
        case NuclearNormBall():
            return [cp.normNuc(x) <= X.radius]
        case Simplex():
            return [flat >= 0, cp.sum(flat) == X.radius]
        case Box():
            return [x >= X.lower, x <= X.upper]
        case BirkhoffPolytope():
            return [x >= 0, cp.sum(x, axis=0) == 1, cp.sum(x, axis=1) == 1]
        case Spectraplex():
            return [x >> 0, x == x.T, cp.trace(x) == X.radius]
        case ConvexHull():
            weights = cp.Variable(len(X.points), nonneg=True)
            return [flat == X.points.reshape(len(X.points), -1).T @ weights, cp.sum(weights) == 1]
        case Polytope():
            return _rows(X, x)
        case _:
            raise TypeError(f"the reference must know the set; it does not know {type(X).__name__}.")


def _rows(X: Polytope, x: Any) -> list[Any]:
    inequalities = [X.A_ub @ x <= X.b_ub] if X.b_ub.size else []
    equations = [X.A_eq @ x == X.b_eq] if X.b_eq.size else []
    return inequalities + equations
