"""The models of agents in their two forms: arrays, or one matrix in factors of which an agent may have rows.

All that depends on the form is here: where agents start, their average, distances, membership of the set,
the value and the gap of f, and the arrays by which models are sent and saved.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Generic, TypeAlias, TypeVar, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import ArrayLike

from dcgs.atoms import RankOne
from dcgs.low_rank import LowRank, inner, stacked
from dcgs.objectives.objective import Objective
from dcgs.objectives.sampling import Sampling
from dcgs.points import EPS, Point, frozen, is_finite, norm, vdot
from dcgs.run.distributed import DistributedObjective
from dcgs.runtime import ProcessGroup
from dcgs.runtime.encoding import Array
from dcgs.sets.base import FEASIBLE, ROUNDINGS, ConvexSet, LowerBound
from dcgs.validation import finite, reals

Model: TypeAlias = Point | LowRank
M = TypeVar("M", Point, LowRank)


@final
@dataclass(frozen=True)
class Evaluation:
    """f(x), the Wolfe gap of f at x, and the rounding error of the bound that it was found with."""

    value: float
    gap: float
    error: float


class ModelForm(ABC, Generic[M]):
    """What is done with the models of a run, all of which have one form."""

    is_common: bool
    """True if all agents have one model, or rows of it; else each has a model of its own."""

    @abstractmethod
    def start(self, x0: ArrayLike | LowRank | None, X: ConvexSet, is_alone: bool = True) -> M:
        """Return the starting point: the user's, which X must accept, or the default of the set.

        A point that is slightly outside, as one with few decimals is, is moved onto the set. If this process
        ``is_alone``, the point must have all rows; else it may have those of the agents of this process.
        """

    @abstractmethod
    def checked_start(self, start: M, X: ConvexSet, group: ProcessGroup) -> M:
        """Return the starting point after a check with what other processes have of it."""

    @abstractmethod
    def common_bytes(self, start: M) -> bytes:
        """Return what of the starting point must be the same in all processes."""

    @abstractmethod
    def start_of(self, start: M, f: Objective) -> M:
        """Return the starting point of an agent with this objective, as it is measured."""

    @abstractmethod
    def agent_start(self, start: M, f: Objective, own_rows: bool) -> tuple[Point, LowRank | None]:
        """Return ``x0`` and ``low_rank_start`` of an agent; with ``own_rows`` the rows in its data only."""

    @abstractmethod
    def average(self, models: Sequence[M]) -> M:
        """Return the average of all agents' models; with rows of one matrix, that matrix."""

    @abstractmethod
    def whole(self, models: Sequence[M], x_bar: M) -> list[M]:
        """Return the models of all agents, each with the rows of all; ``x_bar`` is their average."""

    @abstractmethod
    def distance(self, x: M, x_bar: M) -> float:
        """Return the norm of the difference of an agent's model and the average."""

    @abstractmethod
    def norm(self, x: M) -> float:
        """Return ‖x‖."""

    @abstractmethod
    def outside_by(self, x: M, X: ConvexSet) -> float:
        """Return by how much a model violates X: 0 if X holds it, and infinity if that is not a number."""

    @abstractmethod
    def is_accepted(self, x: M, X: ConvexSet, violation: float) -> bool:
        """Return True if a model with this violation is outside of X by rounding error only."""

    @abstractmethod
    def nearby(self, x: M, X: ConvexSet, violation: float) -> M:
        """Return a point of X close to a model with this violation."""

    @abstractmethod
    def evaluate(self, f: DistributedObjective, X: ConvexSet, x: M, slack: float | None) -> Evaluation:
        """Return f(x) and the Wolfe gap at x, by the oracle if ``slack`` is None.

        Else the gap is an upper bound, whatever the oracle finds; it may be too large by the slack.
        """

    @abstractmethod
    def to_arrays(self, x: M) -> tuple[Array, ...]:
        """Return a model as arrays, which processes send and checkpoints save."""

    @abstractmethod
    def from_arrays(self, arrays: Sequence[Array], shape: tuple[int, ...]) -> M:
        """Return the model of a shape with these arrays."""

    @abstractmethod
    def to_file(self, x: M, agents: Any) -> dict[str, Array]:
        """Return the arrays of the file of a result, by name: the average, and the models of all agents."""

    def allgather(self, group: ProcessGroup, models: Mapping[int, M], shape: tuple[int, ...]) -> dict[int, M]:
        """Return the models of all agents, in all processes."""
        if group.size == 1:
            return dict(models)
        arrays = group.allgather(array for x in models.values() for array in self.to_arrays(x))
        width = len(self.to_arrays(next(iter(models.values()))))
        pieces = [arrays[first : first + width] for first in range(0, len(arrays), width)]
        return {i: self.from_arrays(piece, shape) for i, piece in enumerate(pieces)}


@final
class ArrayForm(ModelForm[Point]):
    """Arrays: every agent has a model of its own."""

    is_common = False

    def start(self, x0: ArrayLike | LowRank | None, X: ConvexSet, is_alone: bool = True) -> Point:
        return frozen(X.start() if x0 is None else _array_start(x0, X))

    def checked_start(self, start: Point, X: ConvexSet, group: ProcessGroup) -> Point:
        return start

    def common_bytes(self, start: Point) -> bytes:
        return start.tobytes()

    def start_of(self, start: Point, f: Objective) -> Point:
        return start

    def agent_start(self, start: Point, f: Objective, own_rows: bool) -> tuple[Point, None]:
        return start, None

    def average(self, models: Sequence[Point]) -> Point:
        first = models[0]
        if all(x is first or np.array_equal(x, first) for x in models):
            return np.array(first)  # a sum would have rounding error
        x_bar: Point = 0.0 * first
        for x in models:
            x_bar += x
        x_bar /= len(models)
        return x_bar

    def whole(self, models: Sequence[Point], x_bar: Point) -> list[Point]:
        return list(models)

    def distance(self, x: Point, x_bar: Point) -> float:
        return norm(x - x_bar)

    def norm(self, x: Point) -> float:
        return norm(x)

    def outside_by(self, x: Point, X: ConvexSet) -> float:
        if not is_finite(x):
            return math.inf
        if X.holds(x):
            return 0.0
        violation = X.violation(x)
        return math.inf if math.isnan(violation) else violation

    def is_accepted(self, x: Point, X: ConvexSet, violation: float) -> bool:
        return X.accepts(x)

    def nearby(self, x: Point, X: ConvexSet, violation: float) -> Point:
        return X.nearby(x)

    def evaluate(self, f: DistributedObjective, X: ConvexSet, x: Point, slack: float | None) -> Evaluation:
        def value_and_gradient(_: int, part: Objective) -> tuple[Array, Array]:
            image = part.map.image(x)
            return np.array([part.loss.value(image)]), part.map.adjoint(part.loss.grad(image))

        def value_and_gap(sums: list[float], g: Point) -> tuple[float, ...]:
            s = X.lmo(g)
            bound = LowerBound(s.dot(g)) if slack is None else X.lower_bound(g, s, slack)
            return sums[0], vdot(g, x) - bound.value, bound.error

        return Evaluation(*f.reduce_sums(value_and_gradient, value_and_gap))

    def to_arrays(self, x: Point) -> tuple[Array, ...]:
        return (x,)

    def from_arrays(self, arrays: Sequence[Array], shape: tuple[int, ...]) -> Point:
        return arrays[0]

    def to_file(self, x: Point, agents: Any) -> dict[str, Array]:
        return {"x": x, "agents": agents}


@final
class FactorForm(ModelForm[LowRank]):
    """A matrix in factors with one right factor; each agent may have only its rows of the left one."""

    is_common = True

    def start(self, x0: ArrayLike | LowRank | None, X: ConvexSet, is_alone: bool = True) -> LowRank:
        if x0 is None:
            return LowRank.zeros((X.shape[0], X.shape[-1]))
        if not isinstance(x0, LowRank):
            u, sigma, vt = np.linalg.svd(_array_start(x0, X), full_matrices=False)
            rank = int(np.count_nonzero(sigma > FEASIBLE * X.diameter))
            return LowRank(u[:, :rank] * sigma[:rank], vt[:rank].T, (X.shape[0], X.shape[1]))
        _check_shape(x0.shape, X)
        finite(x0.U, "x0.U")
        finite(x0.V, "x0.V")
        if not is_alone and x0.rows is not None:
            return x0
        return _with_all_rows(_shortened(x0, float(x0.singular_values().sum()), X))

    def checked_start(self, start: LowRank, X: ConvexSet, group: ProcessGroup) -> LowRank:
        # If all processes have the same rows, they have the same matrix; else each has those of its agents.
        if not _has_some_rows(start):
            return start
        assert start.rows is not None
        digest = sha256(start.rows.tobytes() + start.U.tobytes()).hexdigest()
        same = len(set(group.allgather_texts([digest]))) == 1
        # Nothing but a triangle of rank × rank numbers leaves a process.
        triangles = [np.linalg.qr(start.U)[1]] if same else group.allgather([np.linalg.qr(start.U)[1]])
        small = LowRank(np.concatenate(triangles), start.V, (sum(map(len, triangles)), start.shape[1]))
        start = _shortened(start, float(small.singular_values().sum()), X)
        return _with_all_rows(start) if same else start

    def common_bytes(self, start: LowRank) -> bytes:
        return start.V.tobytes() + (start.U.tobytes() if start.rows is None else b"")

    def start_of(self, start: LowRank, f: Objective) -> LowRank:
        return _with_rows_of(start, f) if _has_some_rows(start) else start

    def agent_start(self, start: LowRank, f: Objective, own_rows: bool) -> tuple[Point, LowRank]:
        if own_rows and start.rank > 0:
            start = _with_rows_of(start, f)
        elif start.rows is not None and start.rank > 0:
            raise ValueError(
                "x0 must have all rows in all processes where entries of a row are with several agents; "
                f"it has {len(start.rows)} of {start.shape[0]}."
            )
        return np.empty((0, 0)), start

    def average(self, models: Sequence[LowRank]) -> LowRank:
        return stacked(list(models))

    def whole(self, models: Sequence[LowRank], x_bar: LowRank) -> list[LowRank]:
        return [x_bar] * len(models)

    def distance(self, x: LowRank, x_bar: LowRank) -> float:
        if x.V is x_bar.V or np.array_equal(x.V, x_bar.V):
            return 0.0
        if x.V.shape != x_bar.V.shape:
            return math.inf
        a, b = LowRank(x_bar.U, x.V, x.shape), LowRank(x_bar.U, x_bar.V, x.shape)
        return float(np.sqrt(max(0.0, inner(a, a) - 2.0 * inner(a, b) + inner(b, b))))

    def norm(self, x: LowRank) -> float:
        return x.norm()

    def outside_by(self, x: LowRank, X: ConvexSet) -> float:
        violation = float(x.singular_values().sum()) - X.magnitude
        return 0.0 if violation <= ROUNDINGS * EPS * X.magnitude else violation

    def is_accepted(self, x: LowRank, X: ConvexSet, violation: float) -> bool:
        return violation <= FEASIBLE * X.diameter

    def nearby(self, x: LowRank, X: ConvexSet, violation: float) -> LowRank:
        return LowRank(x.U * (X.magnitude / (X.magnitude + violation)), x.V, x.shape, x.rows)

    def evaluate(self, f: DistributedObjective, X: ConvexSet, x: LowRank, slack: float | None) -> Evaluation:
        # The gradient is sparse: it has the entries of all agents.
        def value_and_entries(_: int, part: Objective) -> tuple[Array, ...]:
            assert isinstance(part.map, Sampling)
            image = part.map.image(x)
            r = part.loss.grad(image)
            numbers = np.array([part.loss.value(image), float(r @ image)])
            return numbers, r, part.map.rows.astype(np.int64), part.map.cols.astype(np.int64)

        def value_and_gap(terms: Iterator[tuple[Array, ...]]) -> tuple[float, ...]:
            value, slope, entries, rows, cols = 0.0, 0.0, [], [], []
            for numbers, r, i, j in terms:
                value, slope = value + float(numbers[0]), slope + float(numbers[1])
                entries.append(r)
                rows.append(i)
                cols.append(j)
            places = np.concatenate(rows), np.concatenate(cols)
            G: Any = sp.csr_array((np.concatenate(entries), places), shape=X.shape)
            s = X.lmo(G)
            assert isinstance(s, RankOne)
            by_oracle = LowerBound(s.scale * float(s.u @ (G @ s.v)))
            bound = by_oracle if slack is None else X.lower_bound(G, s, slack)
            return value, slope - bound.value, bound.error

        return Evaluation(*f.reduce(value_and_entries, value_and_gap))

    def to_arrays(self, x: LowRank) -> tuple[Array, ...]:
        rows = np.arange(len(x.U)) if x.rows is None else x.rows
        return x.U, x.V, rows.astype(np.int64), np.array([x.rows is None], np.int64)

    def from_arrays(self, arrays: Sequence[Array], shape: tuple[int, ...]) -> LowRank:
        U, V, rows, has_all = arrays
        return LowRank(U, V, (shape[0], shape[1]), None if has_all[0] else rows.astype(np.intp))

    def to_file(self, x: LowRank, agents: Any) -> dict[str, Array]:
        rows = {} if x.rows is None else {"x.rows": x.rows}
        return {"x.U": x.U, "x.V": x.V, "x.shape": np.array(x.shape), **rows}


ARRAYS, FACTORS = ArrayForm(), FactorForm()


def form_of(x: Model) -> ModelForm[Any]:
    """Return the form of a model."""
    return FACTORS if isinstance(x, LowRank) else ARRAYS


def pop_models(arrays: dict[str, Any]) -> dict[str, Any]:
    """Remove the models from the arrays of the file of a result, and return them: ``x`` and ``agents``."""
    if "x.U" not in arrays:
        return {name: arrays.pop(name) for name in ("x", "agents")}
    rows, shape = arrays.pop("x.rows", None), arrays.pop("x.shape").tolist()
    x = LowRank(arrays.pop("x.U"), arrays.pop("x.V"), (shape[0], shape[1]), rows)
    return {"x": x, "agents": (x,) * len(arrays["hosted"])}  # all agents have the same matrix


def _array_start(x0: ArrayLike | LowRank, X: ConvexSet) -> Point:
    x = reals(x0, "x0")
    _check_shape(x.shape, X)
    if not X.accepts(finite(x, "x0")):
        raise _outside(X.violation(x), X)
    return X.restore(x)


def _check_shape(shape: tuple[int, ...], X: ConvexSet) -> None:
    if shape != X.shape:
        raise ValueError(f"x0 must have shape {X.shape}, as X; got {shape}.")


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


def _has_some_rows(x: LowRank) -> bool:
    return x.rows is not None and x.rank > 0


def _with_all_rows(x: LowRank) -> LowRank:
    return LowRank(x.rows_of(np.arange(x.shape[0])), x.V, x.shape)


def _with_rows_of(x: LowRank, f: Objective) -> LowRank:
    """Return a matrix with the rows only in which an objective has entries."""
    assert isinstance(f.map, Sampling)
    rows = np.unique(f.map.rows)
    return LowRank(x.rows_of(rows), x.V, x.shape, rows)
