"""The starting point of a run."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dcgs.front.answers import Model
from dcgs.low_rank import LowRank
from dcgs.points import Point, frozen
from dcgs.sets.base import ConvexSet
from dcgs.validation import finite, reals

FEASIBLE = 1e-9
"""A point of X may violate it by this fraction of the diameter: rounding error of a point on the boundary."""


def check_start(x0: ArrayLike | LowRank | None, X: ConvexSet, factors: bool = False) -> Model:
    """Return the starting point: the user's, which must be in X, or the default of the set.

    With ``factors`` it is a matrix in factors.
    """
    if x0 is None:
        shape = (X.shape[0], X.shape[-1])
        return LowRank.zeros(shape) if factors else frozen(X.start())
    if factors:
        return _start_in_factors(x0, X)
    return frozen(_dense_start(np.asarray(x0) if isinstance(x0, LowRank) else x0, X))


def _dense_start(x0: ArrayLike, X: ConvexSet) -> Point:
    x = reals(x0, "x0")
    if x.shape != X.shape:
        raise ValueError(f"x0 must have shape {X.shape}, as X; got {x.shape}.")
    _check_violation(X.violation(finite(x, "x0")), X)
    return x


def _check_violation(violation: float, X: ConvexSet) -> None:
    if violation > FEASIBLE * X.diameter:
        raise ValueError(
            f"x0 must be in X, a {type(X).__name__}; it violates it by {violation:.2e}. "
            "Scale it into X, or leave x0 out."
        )


def _start_in_factors(x0: ArrayLike | LowRank, X: ConvexSet) -> LowRank:
    """Return the starting point of a method whose models are matrices in factors."""
    if not isinstance(x0, LowRank):
        u, sigma, vt = np.linalg.svd(_dense_start(x0, X), full_matrices=False)
        rank = int(np.count_nonzero(sigma > FEASIBLE * X.diameter))
        return LowRank(u[:, :rank] * sigma[:rank], vt[:rank].T, (X.shape[0], X.shape[1]))
    if x0.shape != X.shape:
        raise ValueError(f"x0 must have shape {X.shape}, as X; got {x0.shape}.")
    finite(x0.U, "x0.U")
    finite(x0.V, "x0.V")
    _check_violation(2.0 * float(x0.singular_values().sum()) - X.diameter, X)
    # All agents start with all rows, also if some are zero.
    return LowRank(x0.rows_of(np.arange(x0.shape[0])), x0.V, x0.shape)
