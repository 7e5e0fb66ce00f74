"""Newton steps over columns, for dense, sparse and centered matrices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dcgs.inner.newton_system import solve_by_columns
from dcgs.objectives.centered import CenteredMatrix
from dcgs.projections import Derivative

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("columns", [None, 1, 2])
@pytest.mark.parametrize("kind", ["dense", "sparse", "centered"])
def test_steps_over_columns_solve_the_system_of_all_rows(kind: str, columns: int | None) -> None:
    """(I + B K Bᵀ/η) q = B K Aᵀ F/η with B = R A, for the filled in A."""
    S = sp.random_array((30, 6), density=0.4, rng=RNG, format="csr")
    centered = CenteredMatrix.of(S, np.ones(30), np.asarray(S.mean(axis=0)).ravel())
    A: Any = {"dense": S.toarray(), "sparse": S, "centered": centered}[kind]
    R, F, eta = RNG.random(30), RNG.standard_normal(30), 0.7
    q = None if columns is None else 0.3 * RNG.standard_normal((6, columns))
    k = 0.1 + RNG.random(6) + (0.0 if q is None else (q**2).sum(axis=1))
    matrix = A if kind == "dense" else A.toarray()
    B, K = R[:, None] * matrix, np.diag(k) - (0.0 if q is None else q @ q.T)
    found = solve_by_columns(A, R, Derivative(k, q), eta, matrix.T @ F)
    expected = np.linalg.solve(np.eye(30) + B @ K @ B.T / eta, B @ K @ matrix.T @ F / eta)
    # Rounding errors, times a condition number of at most 1e3.
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-12)
