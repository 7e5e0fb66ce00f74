"""The models of agents, arrays or matrices in factors: where agents start, and what they answer with."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from dcgs.low_rank import LowRank, inner, stacked
from dcgs.objectives import Objective
from dcgs.objectives.sampling import Sampling
from dcgs.points import EPS, Point, frozen, norm
from dcgs.runtime import ProcessGroup
from dcgs.runtime.encoding import Array
from dcgs.sets import ConvexSet
from dcgs.sets.base import FEASIBLE, ROUNDINGS
from dcgs.validation import finite, reals

Model: TypeAlias = Point | LowRank


def same_bytes(x: Model) -> bytes:
    """Return what must be the same in all processes; the rows of a matrix in factors may differ."""
    if not isinstance(x, LowRank):
        return x.tobytes()
    return x.V.tobytes() + (x.U.tobytes() if x.rows is None else b"")


def check_start(
    x0: ArrayLike | LowRank | None, X: ConvexSet, factors: bool = False, several: bool = False
) -> Model:
    """Return the starting point: the user's, which X must accept, or the default of the set.

    A point that is slightly outside, as one with few decimals is, is moved onto the set.

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
    if not X.accepts(finite(x, "x0")):
        raise _outside(X.violation(x), X)
    return X.restore(x)


def _outside(violation: float, X: ConvexSet) -> ValueError:
    return ValueError(
        f"x0 must be in X, a {type(X).__name__}; it violates it by {violation:.2e}. "
        "Scale it into X, or leave x0 out."
    )


def _shortened(x: LowRank, length: float, X: ConvexSet) -> LowRank:
    """Return a starting point in factors with a nuclear norm of at most that of X, given its own."""
    excess = length - X.magnitude
    if excess > FEASIBLE * X.diameter:
        raise _outside(excess, X)
    if excess <= ROUNDINGS * EPS * X.magnitude:
        return x
    return LowRank(x.U * (X.magnitude / length), x.V, x.shape, x.rows)


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
    return _with_all_rows(_shortened(x0, float(x0.singular_values().sum()), X))


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
    start = _shortened(start, float(small.singular_values().sum()), X)
    return _with_all_rows(start) if same else start


def with_rows_of(x: LowRank, f: Objective) -> LowRank:
    """Return a matrix with the rows only in which an objective has entries."""
    assert isinstance(f.map, Sampling)
    rows = np.unique(f.map.rows)
    return LowRank(x.rows_of(rows), x.V, x.shape, rows)


def average(answers: Sequence[Model]) -> Model:
    """Return the average of all agents' models.

    Models in factors have one right factor. If each agent has only its own rows, their average is the matrix
    with all rows.
    """
    first = answers[0]
    if isinstance(first, LowRank):
        return stacked([answer for answer in answers if isinstance(answer, LowRank)])
    if all(x is first or np.array_equal(x, first) for x in answers):
        return np.array(first)  # a sum would have rounding error
    x_bar: Point = 0.0 * first
    for x in answers:
        assert isinstance(x, np.ndarray)
        x_bar += x
    x_bar /= len(answers)
    return x_bar


def whole(answers: Sequence[Model], x_bar: Model | None = None) -> list[Model]:
    """Return the models of all agents, each with the rows of all agents; ``x_bar`` is their average."""
    if isinstance(answers[0], LowRank):
        return [average(answers) if x_bar is None else x_bar] * len(answers)
    return list(answers)


def distance(x: Model, x_bar: Model) -> float:
    """Return the norm of the difference of an agent's model and the average."""
    if isinstance(x, LowRank) and isinstance(x_bar, LowRank):
        if x.V is x_bar.V or np.array_equal(x.V, x_bar.V):
            return 0.0
        if x.V.shape != x_bar.V.shape:
            return float("inf")
        a, b = LowRank(x_bar.U, x.V, x.shape), LowRank(x_bar.U, x_bar.V, x.shape)
        return float(np.sqrt(max(0.0, inner(a, a) - 2.0 * inner(a, b) + inner(b, b))))
    return norm(np.asarray(x) - np.asarray(x_bar))


def allgather_answers(group: ProcessGroup, answers: Mapping[int, Model]) -> dict[int, Model]:
    """Return the models of all agents, in all processes."""
    if group.size == 1:
        return dict(answers)
    arrays = group.allgather(_arrays(answers.values()))
    return dict(enumerate(_models(arrays, next(iter(answers.values())))))


def _arrays(answers: Iterable[Model]) -> Iterator[Array]:
    for answer in answers:
        if isinstance(answer, LowRank):
            rows = np.arange(len(answer.U)) if answer.rows is None else answer.rows
            yield from (answer.U, answer.V, rows.astype(np.int64), np.array([answer.rows is None], np.int64))
        else:
            yield answer


def _models(arrays: Sequence[Array], like: Model) -> Iterator[Model]:
    if not isinstance(like, LowRank):
        yield from arrays
        return
    for start in range(0, len(arrays), 4):
        U, V, rows, has_all = arrays[start : start + 4]
        yield LowRank(U, V, like.shape, None if has_all[0] else rows.astype(np.intp))
