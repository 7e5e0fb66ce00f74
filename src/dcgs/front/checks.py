"""Checks at the door: all that a user may get wrong, found before any work is done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dcgs.front.network import Network
from dcgs.front.stopping import Limits
from dcgs.methods.base import Method
from dcgs.objectives.objective import Objective
from dcgs.points import Point, as_floats, frozen, is_finite, is_whole
from dcgs.runtime import Runtime
from dcgs.sets.base import ConvexSet

# x0 may violate the set by this much, relative to the diameter: what rounding leaves of a point
# computed to be on the boundary.
_FEASIBLE = 1e-9


def check_problem(objectives: Sequence[Objective], X: ConvexSet, network: Network, method: Method) -> None:
    """Raise unless the objectives are sound, fit the set, the graph and the method."""
    if not isinstance(objectives, Sequence):
        raise TypeError(f"objectives must be a sequence, one per agent; got {type(objectives).__name__}.")
    for i, f in enumerate(objectives):
        if not isinstance(f, Objective):
            raise TypeError(f"objectives must be dcgs objectives; agent {i} has a {type(f).__name__}.")
    if not isinstance(X, ConvexSet):
        raise TypeError(f"X must be a set such as dcgs.L1Ball; got {type(X).__name__}.")
    if not isinstance(method, Method):
        raise TypeError(f"method must be a method such as dcgs.DCGS(); got {method!r}.")
    if len(objectives) != len(network):
        raise ValueError(
            "there must be one objective for each node of the graph; "
            f"got {len(objectives)} objectives and {len(network)} nodes."
        )
    _check_shapes(objectives, X)
    _check_data(objectives)
    reason = method.misfit(objectives, X)
    if reason is not None:
        raise ValueError(reason)


def check_limits(limits: Limits, method: Method) -> None:
    """Raise if a limit would end no run: one on what the method never does, or that nobody looks at."""
    if limits.gap is not None and limits.every == 0 and not method.stops_itself:
        raise ValueError(
            "a gap can only end a run that is measured on the way; got gap with every=0. "
            "Use every=1, or leave gap out and give another rule."
        )
    if method.projects and limits.lmo_calls is not None:
        raise ValueError(
            f"lmo_calls must be None for {type(method).__name__}, which projects and asks no oracle; "
            f"got {limits.lmo_calls!r}. Limit its iterations, rounds or seconds."
        )


def check_running(runtime: Runtime, seed: int, callback: object) -> None:
    """Raise unless the run can be made, repeated and told of."""
    if not isinstance(runtime, Runtime):
        raise TypeError(f"runtime must be a runtime such as dcgs.Lockstep(); got {runtime!r}.")
    if not is_whole(seed, 0):
        raise ValueError(f"seed must be a whole number of at least 0; got {seed!r}.")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of a Snapshot, or None; got {callback!r}.")


def check_start(x0: ArrayLike | None, X: ConvexSet) -> Point:
    """Return the starting point: the user's, if it is in X, or the set's own."""
    if x0 is None:
        return frozen(X.start())
    x = as_floats(x0, "x0")
    if x.shape != X.shape:
        raise ValueError(f"x0 must have shape {X.shape}, as X; got {x.shape}.")
    if not is_finite(x):
        raise ValueError(f"x0 must be finite; {_first_bad('x0', x)}.")
    violation = X.violation(x)
    if violation > _FEASIBLE * X.diameter:
        raise ValueError(
            f"x0 must be in X, a {type(X).__name__}; it violates it by {violation:.2e}. "
            "Scale it into X, or leave x0 out."
        )
    return frozen(x)


def _check_shapes(objectives: Sequence[Objective], X: ConvexSet) -> None:
    odd = {i: f.shape for i, f in enumerate(objectives) if f.shape != X.shape}
    if odd:
        listed = ", ".join(f"agent {i} takes {shape}" for i, shape in odd.items())
        raise ValueError(f"all objectives must take points of shape {X.shape}, as X; {listed}.")


def _check_data(objectives: Sequence[Objective]) -> None:
    empty = [i for i, f in enumerate(objectives) if f.loss.size == 0]
    if empty:
        raise ValueError(
            f"every agent must have data; agents {empty} have none. "
            "Give them some, or leave them out of the graph."
        )
    bad = [
        f"agent {i}: {_first_bad(name, array)}"
        for i, f in enumerate(objectives)
        for name, array in f.data().items()
        if not is_finite(_entries(array))
    ]
    if bad:
        raise ValueError(f"data must be finite; {'; '.join(bad)}.")


def _entries(array: Any) -> NDArray[np.float64]:
    """Return the numbers that are stored, of a sparse matrix or an array."""
    return np.asarray(array.data if sp.issparse(array) else array)


def _first_bad(name: str, array: Any) -> str:
    bad = np.argwhere(~np.isfinite(_entries(array)))
    if sp.issparse(array):
        bad = np.column_stack(array.tocoo().coords)[bad[:, 0]]
    where = ", ".join(map(str, bad[0].tolist()))
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{name}[{where}] is {array[tuple(bad[0])]}{more}"
