"""The ratings of agents, and their offsets: the mean, and what each row (user) and column (item) adds to it.

The offsets a of rows and b of columns minimize Σ (value − mean − a[row] − b[column])² + ridge (‖a‖² + ‖b‖²)
over the ratings of all agents. Every agent eliminates the offsets of its rows; what remains is a linear
system for b, with a positive definite matrix. The agents solve it by conjugate gradients. A product with the
matrix is one sum over the network, of as many numbers as there are columns. Where the ridge is to be found,
systems of several ridges are solved side by side, in the same sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.learn.masked import Total
from dcgs.learn.ratings.ids import places_in
from dcgs.learn.sums import Reductions, Request, Steps
from dcgs.low_rank import Index
from dcgs.objectives import MatrixCompletion, Objective
from dcgs.protocol import Program

Numbers = NDArray[np.float64]

RIDGE = 5.0
"""The ridge of offsets where it is not found: a row with this many ratings gets half of its mean."""

# A rating is far outside if it is farther from the quartiles than this number of their differences.
_FAR = 10.0
# Conjugate gradients end when the residual, relative to the right side, is this small. Ratings have few
# digits, so offsets with six are exact for them.
_ACCURACY = 1e-6
_MOST_STEPS = 200
# The ridges of which the best is found on ratings that are held out, and the accuracy that this needs.
_RIDGES, _ROUGH = (1.0, 2.5, 5.0, 10.0, 25.0), 1e-2


@final
@dataclass(frozen=True, eq=False)
class Part:
    """The ratings of one agent, with the numbers of their rows and columns."""

    rows: Index
    cols: Index
    values: Numbers

    def some(self, chosen: NDArray[np.bool_]) -> Part:
        """Return the ratings where a mask is True."""
        return Part(self.rows[chosen], self.cols[chosen], self.values[chosen])


def without_duplicates(part: Part, columns: int) -> tuple[Part, str | None]:
    """Return the ratings with one for each entry, the mean where there are several, and a note on these.

    >>> part = Part(np.array([0, 0, 0]), np.array([1, 2, 1]), np.array([3.0, 4.0, 5.0]))
    >>> merged, note = without_duplicates(part, 3)
    >>> merged.values, note
    (array([4., 4.]), '1 rating that repeats a pair, 1 of them with another value')
    """
    entries = part.rows * columns + part.cols
    ordered = np.sort(entries)
    repeated = int(np.count_nonzero(ordered[1:] == ordered[:-1]))
    if repeated == 0:
        return part, None
    _, first, place = np.unique(entries, return_index=True, return_inverse=True)
    # The mean of equal values is exact: it is the first one, plus the mean of differences from it.
    differences = part.values - part.values[first][place]
    sums = np.bincount(place, weights=differences, minlength=len(first))
    means = part.values[first] + sums / np.bincount(place, minlength=len(first))
    order = np.argsort(first)
    kept = first[order]
    other = int(np.count_nonzero(differences))
    many = "rating that repeats" if repeated == 1 else "ratings that repeat"
    note = f"{repeated} {many} a pair, {other} of them with another value"
    return Part(part.rows[kept], part.cols[kept], means[order]), note


def values_note(values: Numbers) -> str | None:
    """Return a note on ratings that are far outside the others; None if there are none.

    >>> values_note(np.array([1.0, 3.0, 4.0, 4.0, 5.0, 500.0]))
    '1 rating far outside the others, such as 500; half of all are from 3.25 to 4.75'
    """
    low, high = np.quantile(values, [0.25, 0.75]).tolist()
    reach = _FAR * ((high - low) or max(abs(low), 1.0))
    distance = np.maximum(values - high, low - values)
    far = int(np.count_nonzero(distance > reach))
    if far == 0:
        return None
    example = float(values[np.argmax(distance)])
    many = "1 rating" if far == 1 else f"{far} ratings"
    return f"{many} far outside the others, such as {example:g}; half of all are from {low:g} to {high:g}"


@final
@dataclass(frozen=True, eq=False)
class Offsets:
    """The mean of all ratings, the offsets of an agent's rows and of all columns, and the range of ratings.

    ``rows`` are the numbers of the rows, in increasing order, that ``row_offsets`` belong to.
    """

    mean: float
    low: float
    high: float
    rows: Index
    row_offsets: Numbers
    col_offsets: Numbers

    @classmethod
    def none(cls, low: float, high: float, columns: int) -> Offsets:
        """Return offsets that are all zero."""
        return cls(0.0, low, high, np.empty(0, dtype=np.intp), np.empty(0), np.zeros(columns))

    def of(self, rows: Index, cols: Index) -> Numbers:
        """Return mean plus offsets; a row or a column that is not known, such as −1, has the offset 0."""
        known = (cols >= 0) & (cols < len(self.col_offsets))
        return self.mean + self.of_rows(rows) + np.where(known, self.col_offsets[np.where(known, cols, 0)], 0)

    def of_rows(self, rows: Index) -> Numbers:
        """Return the offsets of rows; 0 for a row that is not known."""
        return np.append(self.row_offsets, 0.0)[places_in(self.rows, rows)]  # the place −1 is the last


@final
@dataclass(frozen=True)
class OffsetsTask:
    """What all agents know beforehand.

    With ``separate_rows`` the ratings of every row are with one agent, and no message has a dimension of
    rows. ``ridge`` None means no offsets: only the range of ratings is found.
    """

    shape: tuple[int, int]
    separate_rows: bool
    ridge: float | None = RIDGE


@final
@dataclass(frozen=True)
class RatingsFacts:
    """The least, the largest and the mean rating of all agents, and how many ratings there are."""

    low: float
    high: float
    mean: float
    count: float


def facts_steps(parts: Mapping[int, Part]) -> Steps[RatingsFacts]:
    """Find the facts on the ratings of all agents, by one reduction."""
    sides = {i: [[part.values.min(), -part.values.max()]] for i, part in parts.items()}
    sums = {i: [[part.values.sum(), float(len(part.values))]] for i, part in parts.items()}
    (least,), (total,) = yield [Request("range of ratings", sides, "min"), Request("mean of ratings", sums)]
    return RatingsFacts(float(least[0]), -float(least[1]), float(total[0] / total[1]), float(total[1]))


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """Objectives of what the offsets leave of the ratings of each agent of this process."""

    objectives: Mapping[int, Objective]
    offsets: Mapping[int, Offsets]


def prepare(
    parts: Mapping[int, Part],
    task: OffsetsTask,
    facts: RatingsFacts,
    network: Reductions,
    name: str = "offsets of ratings",
) -> Prepared:
    """Fit the offsets over the network, and return objectives of what they leave."""
    offsets = network.run_programs(
        name, task.shape[1], lambda i, total: offsets_program(parts[i], total, task, facts)
    )
    return _prepared(parts, task, offsets)


def prepare_with(parts: Mapping[int, Part], task: OffsetsTask, known: Mapping[int, Offsets]) -> Prepared:
    """Return objectives of what the known offsets of columns leave; agents find the offsets of their rows."""
    return _prepared(parts, task, {i: _with_rows(part, known[i], task.ridge) for i, part in parts.items()})


def _with_rows(part: Part, known: Offsets, ridge: float | None) -> Offsets:
    if ridge is None:
        return known
    rows, places = np.unique(part.rows, return_inverse=True)
    rest = part.values - known.mean - known.col_offsets[part.cols]
    a = _sums(places, rest, len(rows)) / (np.bincount(places, minlength=len(rows)) + ridge)
    return replace(known, rows=rows, row_offsets=a)


def _prepared(parts: Mapping[int, Part], task: OffsetsTask, offsets: Mapping[int, Offsets]) -> Prepared:
    left = {i: part.values - offsets[i].of(part.rows, part.cols) for i, part in parts.items()}
    objectives = {i: MatrixCompletion(p.rows, p.cols, left[i], task.shape) for i, p in parts.items()}
    return Prepared(objectives, offsets)


def best_ridge(
    kept: Mapping[int, Part],
    left: Mapping[int, Part],
    task: OffsetsTask,
    facts: RatingsFacts,
    network: Reductions,
) -> float:
    """Return the ridge whose offsets of the ratings that were kept are best on the others."""

    def program(i: int, total: Total) -> Program[list[Offsets]]:
        return solved(kept[i], total, task, facts, _RIDGES, _ROUGH)

    name = f"offsets with {len(_RIDGES)} ridges"
    offsets = network.run_programs(name, task.shape[1] * len(_RIDGES), program)
    errors = {
        i: [
            [
                float(np.sum((part.values - candidate.of(part.rows, part.cols)) ** 2))
                for candidate in offsets[i]
            ]
        ]
        for i, part in left.items()
    }
    (sums,) = network.sum("held-out errors of offsets", errors)
    return _RIDGES[int(np.argmin(sums))]


def offsets_program(part: Part, total: Total, task: OffsetsTask, facts: RatingsFacts) -> Program[Offsets]:
    """Find the offsets, for one agent."""
    if task.ridge is None:
        yield from ()  # nothing is sent
        return Offsets.none(facts.low, facts.high, task.shape[1])
    (offsets,) = yield from solved(part, total, task, facts, (task.ridge,), _ACCURACY)
    return offsets


def solved(
    part: Part,
    total: Total,
    task: OffsetsTask,
    facts: RatingsFacts,
    ridges: Sequence[float],
    accuracy: float,
) -> Program[list[Offsets]]:
    """Find the offsets of several ridges, for one agent."""
    system = _System(part, facts.mean, total, task, np.array(ridges)[:, None])
    columns = yield from system.solve(accuracy)
    rows = yield from system.row_offsets(columns)
    pairs = zip(rows, columns, strict=True)
    return [Offsets(facts.mean, facts.low, facts.high, system.rows, a, b) for a, b in pairs]


@final
class _System:
    """One agent's part of the linear systems for the offsets of columns; arrays have a line for each ridge.

    A is the number of ratings of each entry. ``row_counts`` and ``col_counts`` are its sums.
    """

    def __init__(self, part: Part, mean: float, total: Total, task: OffsetsTask, ridges: Numbers) -> None:
        self.total, self.task, self.ridges = total, task, ridges
        self.rows: Index = np.unique(part.rows) if task.separate_rows else np.arange(task.shape[0])
        places = np.searchsorted(self.rows, part.rows)
        shape = len(self.rows), task.shape[1]
        self.A = sp.csr_array((np.ones(len(places)), (places, part.cols)), shape=shape)
        rest = part.values - mean
        self.row_sums = _sums(places, rest, shape[0])
        self.col_sums = _sums(part.cols, rest, shape[1])
        self.row_counts = np.asarray(self.A.sum(axis=1), dtype=np.float64)
        self.col_counts = np.asarray(self.A.sum(axis=0), dtype=np.float64)

    def solve(self, accuracy: float) -> Program[Numbers]:
        """Return the offsets of columns, by conjugate gradients with a diagonal preconditioner."""
        if not self.task.separate_rows:
            self.row_sums, self.row_counts = yield from self.total(self.row_sums, self.row_counts)
        counts = self.row_counts + self.ridges
        # Where all agents have all rows, every agent adds the columns of its own ratings.
        right, col_counts = yield from self.total(
            self.col_sums - self._to_columns(self.row_sums / counts), self.col_counts
        )
        diagonal = col_counts + self.ridges
        b = np.zeros_like(right)
        r = right
        z = r / diagonal
        p, rz = z, _dots(r, z)
        enough = accuracy**2 * rz
        for _ in range(_MOST_STEPS):
            if (rz <= enough).all():
                break
            from_rows = yield from self._row_totals(p)
            (product,) = yield from self.total(self._to_columns(from_rows / counts))
            Sp = diagonal * p - product
            step = _ratios(rz, _dots(p, Sp))
            b, r = b + step * p, r - step * Sp
            z = r / diagonal
            rz, before = _dots(r, z), rz
            p = z + _ratios(rz, before) * p
        return b

    def row_offsets(self, b: Numbers) -> Program[Numbers]:
        """Return the offsets of this agent's rows, given those of the columns."""
        from_rows = yield from self._row_totals(b)
        return np.asarray((self.row_sums - from_rows) / (self.row_counts + self.ridges))

    def _to_columns(self, values: Numbers) -> Numbers:
        return np.array([self.A.T @ line for line in values])

    def _row_totals(self, p: Numbers) -> Program[Numbers]:
        """Return A p, summed over all agents unless every row is with one."""
        local = np.array([self.A @ line for line in p])
        if self.task.separate_rows:
            return local
        (total,) = yield from self.total(local)
        return total


def _dots(a: Numbers, b: Numbers) -> Numbers:
    """Return the inner product of each line of a with that of b, in a column."""
    return np.array([[line @ other] for line, other in zip(a, b, strict=True)])


def _ratios(a: Numbers, b: Numbers) -> Numbers:
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0.0)


def _sums(places: Index, values: Numbers, count: int) -> Numbers:
    return np.asarray(np.bincount(places, weights=values, minlength=count), dtype=np.float64)
