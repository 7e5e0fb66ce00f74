"""Checks at the door: all that a user may get wrong, found before any work is done."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike, NDArray

from dcgs.front.network import Network
from dcgs.front.parts import Parts
from dcgs.front.stopping import Limits
from dcgs.methods.base import Method
from dcgs.objectives.objective import Objective
from dcgs.points import Point, as_floats, frozen, is_finite, is_whole
from dcgs.runtime import ProcessGroup, Runtime
from dcgs.sets.base import ConvexSet

T = TypeVar("T")

# Errors that keep their kind when another process is told of them.
_KINDS: dict[str, type[Exception]] = {
    kind.__name__: kind
    for kind in (TypeError, ValueError, OSError, ImportError, MemoryError, ArithmeticError, RuntimeError)
}
# x0 may violate the set by this much, relative to the diameter: what rounding leaves of a point
# computed to be on the boundary.
_FEASIBLE = 1e-9


def agreed(group: ProcessGroup, check: Callable[[], T]) -> T:
    """Return what the check returns; where it raises in one process, raise the same in all of them."""
    failed: Exception | None = None
    try:
        value = check()
    except Exception as error:
        failed = error
    told = [bytes(text).decode() for text in group.allgather([_as_text(failed)])]
    first = next((text for text in told if text), None)
    if first is None:
        return value
    with group.common_errors():
        if failed is not None and first == bytes(_as_text(failed)).decode():
            raise failed  # with all that it carries
        kind, _, sentence = first.partition("\n")
        raise _KINDS.get(kind, RuntimeError)(sentence)


def check_same(group: ProcessGroup, given: Mapping[str, str]) -> None:
    """Raise unless all processes were given the same; a value is told by a text."""
    mine = np.frombuffer(json.dumps(dict(given)).encode(), dtype=np.uint8)
    first, *others = (json.loads(bytes(text)) for text in group.allgather([mine]))
    for rank, other in enumerate(others, 1):
        odd = [name for name in first if first[name] != other[name]]
        if odd:
            raise ValueError(
                f"all processes must be given the same {' and '.join(odd)}; process {rank} was given "
                f"{other[odd[0]]}, process 0 {first[odd[0]]}."
            )


def check_parts(
    objectives: Sequence[Objective] | Mapping[int, Objective], hosts: range, network: Network
) -> dict[int, Objective]:
    """Return the objectives of the agents that are run here: all there are, or of what is given those."""
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
    held = {i: objectives[i] for i in hosts}
    for i, f in held.items():
        if not isinstance(f, Objective):
            raise TypeError(f"objectives must be dcgs objectives; agent {i} has a {type(f).__name__}.")
    return held


def check_problem(parts: Parts, X: ConvexSet, method: Method) -> None:
    """Raise unless everyone's objectives are sound, and fit the set and the method; the same in all."""
    reports = [json.loads(text) for text in parts.texts(lambda i, f: json.dumps(_report(f, X)))]
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

    def fit() -> None:
        reason = method.incompatibility(parts.held, X)
        if reason is not None:
            raise ValueError(reason)

    agreed(parts.group, fit)


def check_kinds(X: ConvexSet, method: Method) -> None:
    """Raise unless the set and the method are such."""
    if not isinstance(X, ConvexSet):
        raise TypeError(f"X must be a set such as dcgs.L1Ball; got {type(X).__name__}.")
    if not isinstance(method, Method):
        raise TypeError(f"method must be a method such as dcgs.DCGS(); got {method!r}.")


def check_limits(limits: Limits, method: Method, callback: object) -> None:
    """Raise if a limit would end no run: one on what the method never does, or that nobody looks at."""
    if limits.gap is not None and not limits.every and not method.stops_itself:
        raise ValueError(
            f"a gap can only end a run that is measured on the way; got gap with every={limits.every}. "
            "Use every=1, or leave gap out and give another rule."
        )
    if callback is not None and limits.every is None:
        raise ValueError("a callback is told of measures; got one with every=None. Use every=1, or 0.")
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


def _report(f: Objective, X: ConvexSet) -> dict[str, object]:
    """Return what everyone must know of one agent's objective to say what is wrong."""
    sound = f.shape == X.shape and f.loss.size > 0
    bad = [_first_bad(name, array) for name, array in f.data().items() if not is_finite(_entries(array))]
    return {"shape": [int(side) for side in f.shape], "empty": f.loss.size == 0, "bad": bad if sound else []}


def _as_text(error: Exception | None) -> NDArray[np.uint8]:
    text = "" if error is None else f"{type(error).__name__}\n{error}"
    return np.frombuffer(text.encode(), dtype=np.uint8)


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
