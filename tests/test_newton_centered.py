"""Newton steps over columns: a centered sparse matrix gives the steps of the matrix filled in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dcgs.inner.newton_system import solve_by_columns
from dcgs.objectives.centered import CenteredMatrix

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("low_rank", [None, 0.01 * RNG.standard_normal((30, 2))], ids=["alone", "with p"])
def test_a_centered_matrix_is_solved_as_if_it_were_filled_in(low_rank: Any) -> None:
    S = sp.random_array((30, 6), density=0.4, rng=RNG, format="csr")
    A = CenteredMatrix.of(S, np.ones(30), np.asarray(S.mean(axis=0)).ravel())
    R, roots, rhs = RNG.random(30), RNG.random(6), RNG.standard_normal(30)
    found = solve_by_columns(A, R, roots, low_rank, 0.7, rhs)
    expected = solve_by_columns(A.toarray(), R, roots, low_rank, 0.7, rhs)
    # Rounding of sums in another order.
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
