"""Losses for tests of certificates: as the library has them, and once more for CVXPY."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

import dcgs
from dcgs import LeastSquares, Logistic, Objective
from dcgs.sets import ConvexSet
from problems import Array
from reference import constraints, cp, solve


@final
@dataclass(frozen=True, eq=False)
class LogCosh(dcgs.Loss):
    """Σ log cosh(zᵢ − bᵢ): a loss that does not know its least value."""

    target: Array
    curvature = (0.0, 1.0)

    def value(self, z: Array) -> float:
        return float(np.sum(np.log(np.cosh(z - self.target))))

    def grad(self, z: Array) -> Array:
        return np.asarray(np.tanh(z - self.target))

    def hess(self, z: Array) -> Array:
        return np.asarray(1.0 - np.tanh(z - self.target) ** 2)

    def data(self) -> dict[str, Array]:
        return {"b": self.target}


LOSSES: dict[str, tuple[Callable[[Array, Array, ConvexSet], Objective], Callable[[Any, Array], Any]]] = {
    "squares": (
        lambda A, b, X: LeastSquares(A, b, shape=X.shape),
        lambda z, b: cp.sum_squares(z - b),
    ),
    "logistic": (
        lambda A, b, X: Logistic(A, np.sign(b), shape=X.shape),
        lambda z, b: cp.sum(cp.logistic(-cp.multiply(np.sign(b), z))),
    ),
    "Huber": (
        lambda A, b, X: Objective(dcgs.HuberLoss(b, delta=0.5), dcgs.matrix_map(A, X.shape)),
        lambda z, b: cp.sum(cp.huber(z - b, 0.5)),
    ),
    "log cosh": (
        lambda A, b, X: Objective(LogCosh(b), dcgs.matrix_map(A, X.shape)),
        lambda z, b: cp.sum(cp.logistic(-2.0 * (z - b)) + z - b) - len(b) * np.log(2.0),
    ),
}


def least_value(kind: str, A: Array, b: Array, X: ConvexSet) -> float:
    """Return the least value over X of the loss of all data, up to 1e-9, relative or absolute."""
    x = cp.Variable(X.shape)
    problem = cp.Problem(cp.Minimize(LOSSES[kind][1](A @ cp.vec(x, order="C"), b)), constraints(X, x))
    solve(problem)
    return float(problem.value)
