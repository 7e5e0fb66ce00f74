"""Checks of all arguments, before any work is done."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dcgs.front.agreement import agreed, check_same
from dcgs.front.checkpoint import check_checkpoint
from dcgs.front.distributed import DistributedObjective
from dcgs.front.network import Network, as_network
from dcgs.front.problem import Problem, Settings
from dcgs.methods.base import Method
from dcgs.objectives.objective import Objective
from dcgs.points import Point, as_floats, frozen, is_finite, is_whole
from dcgs.runtime import Runtime
from dcgs.sets.base import ConvexSet

# Products of four numbers of at most this size, or of at least its reciprocal, do not overflow or underflow.
_LARGEST = 1e70
# x0 may violate the set by this fraction of the diameter: rounding error of a point on the boundary.
_FEASIBLE = 1e-9


def check(
    objectives: Sequence[Objective] | Mapping[int, Objective],
    X: ConvexSet,
    graph: nx.Graph,
    x0: ArrayLike | None,
    settings: Settings,
) -> Problem:
    """Return the problem that the arguments describe; raise, in all processes, if one of them is wrong."""
    method, limits, runtime = settings.method, settings.limits, settings.runtime
    check_running(runtime, settings.seed, settings.callback)
    group = runtime.group()

    def check_locally() -> Problem:
        limits.check()
        network = as_network(graph)
        local = check_objectives(objectives, runtime.hosts(len(network)), network)
        check_types(X, method)
        limits.check_method(method, settings.callback)
        check_checkpoint(settings.checkpoint, local, X, method)
        return Problem(DistributedObjective(local, group), X, network, check_start(x0, X), settings)

    problem = agreed(group, check_locally)
    with group.common_errors():
        check_same(group, _identity(problem))
        check_compatible(problem.f, X, method)
        check_certifiable(problem)
    return problem


def _identity(problem: Problem) -> dict[str, str]:
    """Return a text for each argument that must be the same in all processes."""
    X, checkpoint = problem.X, problem.settings.checkpoint
    edges = _digest(repr(problem.network.neighbors).encode())
    return {
        "graph": f"{len(problem.network)} agents with edges {edges}",
        "method": type(problem.method).__name__,
        "set": f"{type(X).__name__} of shape {X.shape}, {X.diameter:.6e} wide",
        "limits": repr(problem.limits),
        "seed": repr(int(problem.settings.seed)),
        "x0": f"a point {_digest(problem.x0.tobytes())}",
        "checkpoint": "none" if checkpoint is None else f"every={checkpoint.every}, {checkpoint.resume!r}",
    }


def _digest(data: bytes) -> str:
    return sha256(data).hexdigest()[:8]


def check_objectives(
    objectives: Sequence[Objective] | Mapping[int, Objective], hosts: range, network: Network
) -> dict[int, Objective]:
    """Return the objectives of the agents of this process."""
    if not isinstance(objectives, Sequence | Mapping):
        raise TypeError(f"objectives must be a sequence, one per agent; got {type(objectives).__name__}.")
    if isinstance(objectives, Sequence) and len(objectives) != len(network):
        raise ValueError(
            "there must be one objective for each node of the graph; "
            f"got {len(objectives)} objectives and {len(network)} nodes."
        )
    given = range(len(objectives)) if isinstance(objectives, Sequence) else objectives
    missing = [i for i in hosts if i not in given]
    if missing:
        raise ValueError(
            f"objectives must hold those of all agents that this process runs, {list(hosts)}; "
            f"agents {missing} have none."
        )
    local = {i: objectives[i] for i in hosts}
    for i, f in local.items():
        if not isinstance(f, Objective):
            raise TypeError(f"objectives must be dcgs objectives; agent {i} has a {type(f).__name__}.")
    return local


def check_compatible(f: DistributedObjective, X: ConvexSet, method: Method) -> None:
    """Raise unless all objectives have finite data, and go with the set and the method."""
    reports = [json.loads(text) for text in f.texts(lambda _, part: json.dumps(_report(part, X)))]
    odd = {i: tuple(report["shape"]) for i, report in enumerate(reports) if report["shape"] != list(X.shape)}
    if odd:
        listed = ", ".join(f"agent {i} takes {shape}" for i, shape in odd.items())
        raise ValueError(f"all objectives must take points of shape {X.shape}, as X; {listed}.")
    empty = [i for i, report in enumerate(reports) if report["empty"]]
    if empty:
        raise ValueError(
            f"every agent must have data; agents {empty} have none. "
            "Give them some, or leave them out of the graph."
        )
    bad = [f"agent {i}: {words}" for i, report in enumerate(reports) for words in report["bad"]]
    if bad:
        raise ValueError(f"data must be finite; {'; '.join(bad)}.")
    sizes = [f"agent {i}: {words}" for i, report in enumerate(reports) for words in report["sizes"]]
    if sizes:
        raise ValueError(
            f"the largest number of each array, and that of A times the diameter of X, must be 0 or between "
            f"{1.0 / _LARGEST:.0e} and {_LARGEST:.0e}, so that losses do not overflow; {'; '.join(sizes)}. "
            "Measure the data or X in other units."
        )

    def check_method() -> None:
        reason = method.incompatibility(f.local, X)
        if reason is not None:
            raise ValueError(reason)

    agreed(f.group, check_method)


def check_certifiable(problem: Problem) -> None:
    """Raise if a gap is to be certified of losses that are not convex: a Wolfe gap says nothing of them."""
    lowest = problem.f.numbers(lambda _, part: [part.loss.curvature[0]])[:, 0].tolist()
    bent = [i for i, curvature in enumerate(lowest) if curvature < 0.0]
    if bent and problem.limits.target is not None:
        raise ValueError(
            f"a gap can be certified only of convex losses; those of agents {bent} have a negative "
            "curvature. Give iterations, rounds, seconds or lmo_calls, and no gap."
        )


def check_types(X: ConvexSet, method: Method) -> None:
    """Raise unless X is a set and the method is a method."""
    if not isinstance(X, ConvexSet):
        raise TypeError(f"X must be a set such as dcgs.L1Ball; got {type(X).__name__}.")
    if not isinstance(method, Method):
        raise TypeError(f"method must be a method such as dcgs.DCGS(); got {method!r}.")


def check_running(runtime: Runtime, seed: int, callback: object) -> None:
    """Raise unless the runtime, the seed and the callback are valid."""
    if not isinstance(runtime, Runtime):
        raise TypeError(f"runtime must be a runtime such as dcgs.Lockstep(); got {runtime!r}.")
    if not is_whole(seed, 0):
        raise ValueError(f"seed must be a whole number of at least 0; got {seed!r}.")
    if callback is not None and not callable(callback):
        raise TypeError(f"callback must be a function of a Snapshot, or None; got {callback!r}.")


def check_start(x0: ArrayLike | None, X: ConvexSet) -> Point:
    """Return the starting point: the user's, which must be in X, or the default of the set."""
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


def _report(f: Objective, X: ConvexSet) -> dict[str, object]:
    """Return what other processes must know of an objective to report an error in it."""
    usable = f.shape == X.shape and f.loss.size > 0
    bad = [_first_bad(name, array) for name, array in f.data().items() if not is_finite(_entries(array))]
    return {
        "shape": [int(side) for side in f.shape],
        "empty": f.loss.size == 0,
        "bad": bad if usable else [],
        "sizes": _extreme_sizes(f, X) if usable and not bad else [],
    }


def _extreme_sizes(f: Objective, X: ConvexSet) -> list[str]:
    """Return which numbers of the data are so large or small that squares of losses over- or underflow."""
    sizes = {name: _largest_entry(array) for name, array in f.data().items()}
    sizes |= {f"{name} × diameter": sizes[name] * float(X.diameter) for name in f.map.data()}
    if not f.map.data():
        sizes["the diameter"] = float(X.diameter)
    extreme = {name: size for name, size in sizes.items() if size > _LARGEST or 0.0 < size < 1.0 / _LARGEST}
    return [f"{name} is up to {size:.2e}" for name, size in extreme.items()]


def _largest_entry(array: Any) -> float:
    entries = _entries(array)
    return max(float(entries.max()), -float(entries.min())) if entries.size else 0.0


def _entries(array: Any) -> NDArray[np.float64]:
    """Return the stored numbers of a sparse matrix or an array."""
    return np.asarray(array.data if sp.issparse(array) else array)


def _first_bad(name: str, array: Any) -> str:
    bad = np.argwhere(~np.isfinite(_entries(array)))
    if sp.issparse(array):
        bad = np.column_stack(array.tocoo().coords)[bad[:, 0]]
    where = ", ".join(map(str, bad[0].tolist()))
    more = f" and {len(bad) - 1} more" if len(bad) > 1 else ""
    return f"{name}[{where}] is {array[tuple(bad[0])]}{more}"
