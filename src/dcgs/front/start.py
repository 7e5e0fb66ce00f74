"""Where agents start: the user's point, which must be in the set, or the default of the set."""

from __future__ import annotations

from hashlib import sha256

import numpy as np
from numpy.typing import ArrayLike

from dcgs.front.answers import Model
from dcgs.low_rank import LowRank
from dcgs.objectives.objective import Objective
from dcgs.objectives.sampling import Sampling
from dcgs.points import Point, frozen
from dcgs.runtime import ProcessGroup
from dcgs.sets.base import ConvexSet
from dcgs.validation import finite, reals

FEASIBLE = 1e-9
"""A point of X may violate it by this fraction of the diameter: rounding error of a point on the boundary."""


def same_bytes(x: Model) -> bytes:
    """Return what must be the same in all processes; the rows of a matrix in factors may differ."""
    if not isinstance(x, LowRank):
        return x.tobytes()
    return x.V.tobytes() + (x.U.tobytes() if x.rows is None else b"")


def check_start(
    x0: ArrayLike | LowRank | None, X: ConvexSet, factors: bool = False, several: bool = False
) -> Model:
    """Return the starting point: the user's, which must be in X, or the default of the set.

    With ``factors`` it is a matrix in factors. If there are ``several`` processes, it may have some rows
    only: those of the agents of this process.
    """
    if x0 is None:
        shape = (X.shape[0], X.shape[-1])
        return LowRank.zeros(shape) if factors else frozen(X.start())
    if factors:
        return _start_in_factors(x0, X, several)
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


def _start_in_factors(x0: ArrayLike | LowRank, X: ConvexSet, several: bool) -> LowRank:
    """Return the starting point of a method whose models are matrices in factors."""
    if not isinstance(x0, LowRank):
        u, sigma, vt = np.linalg.svd(_dense_start(x0, X), full_matrices=False)
        rank = int(np.count_nonzero(sigma > FEASIBLE * X.diameter))
        return LowRank(u[:, :rank] * sigma[:rank], vt[:rank].T, (X.shape[0], X.shape[1]))
    if x0.shape != X.shape:
        raise ValueError(f"x0 must have shape {X.shape}, as X; got {x0.shape}.")
    finite(x0.U, "x0.U")
    finite(x0.V, "x0.V")
    if several and x0.rows is not None:
        return x0
    _check_violation(2.0 * float(x0.singular_values().sum()) - X.diameter, X)
    return _with_all_rows(x0)


def _with_all_rows(x: LowRank) -> LowRank:
    return LowRank(x.rows_of(np.arange(x.shape[0])), x.V, x.shape)


def start_of_all(start: Model, X: ConvexSet, group: ProcessGroup) -> Model:
    """Return the starting point after a check with the rows of all processes.

    If all processes have the same rows, they have the same matrix; else each has those of its agents.
    """
    if not isinstance(start, LowRank) or start.rows is None or start.rank == 0:
        return start
    digest = sha256(start.rows.tobytes() + start.U.tobytes()).hexdigest()
    same = len(set(group.allgather_texts([digest]))) == 1
    # Nothing but a triangle of rank × rank numbers leaves a process.
    triangles = [np.linalg.qr(start.U)[1]] if same else group.allgather([np.linalg.qr(start.U)[1]])
    small = LowRank(np.concatenate(triangles), start.V, (sum(map(len, triangles)), start.shape[1]))
    _check_violation(2.0 * float(small.singular_values().sum()) - X.diameter, X)
    return _with_all_rows(start) if same else start


def with_rows_of(x: LowRank, f: Objective) -> LowRank:
    """Return a matrix with the rows only in which an objective has entries."""
    assert isinstance(f.map, Sampling)
    rows = np.unique(f.map.rows)
    return LowRank(x.rows_of(rows), x.V, x.shape, rows)
