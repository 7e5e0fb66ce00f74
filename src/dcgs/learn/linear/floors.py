"""Floors of a fit of rows: columns that few people dominate, folds with few people, and too few rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.learn.floors import ColumnValues, Indices, effective_people, left_out_note, people_of
from dcgs.learn.linear.design import Statistics, statistics
from dcgs.learn.radius.folds import HoldOut, fold_numbers, held_out_rows
from dcgs.learn.sites import Remedy, Rows, SitesError
from dcgs.learn.sums import Request, Steps
from dcgs.methods import FastDCGS, Method
from dcgs.validation import listed

# With at most this number of unknowns, Hessians may be sent.
_HESSIANS = 64
# With at least this number of columns, people of values are not counted in each fold.
_MOST_COLUMNS = 1000
# A value is far from the mean if its square is above this number of variances, and above twice what one of
# ``min_count`` people would have of the squares of a fifth of the rows.
_REACH, _PARTS = 9.0, 5
# So often rows are taken from those that are held out, until no value of the others is rare.
_PASSES = 6


def without_dominated(rows: Mapping[int, Rows], floors: Floors) -> Steps[tuple[dict[int, Rows], list[str]]]:
    """Return the rows with 0 in columns that few people dominate, and a note on these.

    The squared differences of a column from its mean are shared by as many people as (Σ cₚ)² / Σ cₚ², with cₚ
    the part of one person. A sum of products with a column that one person dominates is that person's row.
    Raise if few people dominate the target, or if there are fewer rows than unknowns of a Hessian.
    """
    found = yield from statistics(rows)
    _check_rows(found, next(iter(rows.values())).features)
    parts = {i: _dominance(local, found) for i, local in rows.items()}
    squares, (whole, target) = yield Request("how many people a column is about", parts)
    dominated = (found.deviation > 0.0) & (found.weight**2 < floors.min_count * squares)
    if whole > 0.0 and whole**2 < floors.min_count * target:
        raise SitesError(
            f"the target must not be dominated by fewer than {floors.min_count} people; the squares of its "
            "differences from the mean are. See whether some values are wrong, or far outside."
        )
    names = next(iter(rows.values())).columns
    left_out = [str(k + 1) if names is None else names[k] for k in np.flatnonzero(dominated)]
    notes = left_out_note(left_out, floors)
    return {i: local.without(dominated) for i, local in rows.items()}, notes


def _check_rows(found: Statistics, features: int) -> None:
    if found.rows < features + 1 <= _HESSIANS:
        raise SitesError(
            f"the rows of all sites must be at least as many as the unknowns of a Hessian, {features + 1}; "
            f"there are {found.rows}, which sums of Hessians would show. Leave columns out.",
        )


def without_hessians(method: Method | None, unknowns: int) -> Method:
    """Return a method that sums gradients: a Hessian of fewer rows than unknowns shows their span."""
    chosen = FastDCGS() if method is None else method
    if not isinstance(chosen, FastDCGS) or chosen.form not in ("auto", "newton"):
        return chosen
    if chosen.form == "newton":
        raise SitesError(
            f"the rows of all sites must be at least as many as the unknowns of a Hessian, {unknowns}; there "
            "are fewer, which sums of Hessians would show. Use another form, or leave columns out."
        )
    return replace(chosen, form="sums")


def _dominance(rows: Rows, found: Statistics) -> list[Any]:
    """Return Σ cₚ² of the columns, in units of the variance; Σ cₚ and Σ cₚ² of the target."""
    variance = np.where(found.deviation > 0.0, found.deviation, 1.0) ** 2
    if rows.is_sparse:
        columns = _sparse_fourth(rows, found.mean, variance)
    else:
        squares = rows.counts[:, None] * (rows.A - found.mean) ** 2 / variance
        columns = effective_people(squares, rows.subjects)
    target = rows.counts * (rows.targets - found.target_mean) ** 2
    return [columns, [target.sum(), effective_people(target[:, None], rows.subjects).sum()]]


def _sparse_fourth(rows: Rows, mean: NDArray[np.float64], variance: NDArray[np.float64]) -> Any:
    """Return Σ (wᵢ (aᵢⱼ − μⱼ)² / σⱼ²)² for each column of a sparse matrix; every row is another person."""
    A, squares = sp.csc_array(rows.A), rows.counts**2
    place = np.repeat(np.arange(A.shape[1]), np.diff(A.indptr))
    stored = squares[A.indices] * ((A.data - mean[place]) ** 2 / variance[place]) ** 2
    weight = np.bincount(place, weights=squares[A.indices], minlength=A.shape[1])
    left = np.maximum(squares.sum() - weight, 0.0) * (mean**2 / variance) ** 2
    return np.bincount(place, weights=stored, minlength=A.shape[1]) + left


@final
@dataclass(frozen=True, eq=False)
class FoldCells:
    """What people are counted by in each part of the rows: values of columns and of the target, or classes.

    A column of two values has both, another one the values far from its mean: no person of a part has much
    more than a fair share of the squares then. ``many`` says which columns have more than two values. The
    last place but one of ``few`` is that of the target, the last one of the classes or, of numbers, everyone.
    """

    rows: Mapping[int, Rows]
    found: Statistics
    target_deviation: float
    many: NDArray[np.bool_]
    classes: Sequence[float]
    floors: Floors

    @classmethod
    def of(
        cls, rows: Mapping[int, Rows], found: Statistics, classes: Sequence[float], floors: Floors
    ) -> Steps[FoldCells]:
        """Find which columns have more than two values, and how far targets are from their mean."""
        is_many = {i: [_has_many(local)] for i, local in rows.items()}
        squares = {
            i: [[local.counts @ (local.targets - found.target_mean) ** 2]] for i, local in rows.items()
        }
        (many,), (total,) = yield [
            Request("which columns have more than two values", is_many, "any"),
            Request("squared differences of targets from their mean", squares),
        ]
        deviation = float(np.sqrt(total[0] / found.weight))
        return cls(rows, found, deviation, many > 0.0, classes, floors)

    def few(self, how: HoldOut, numbers: Mapping[int, Indices]) -> Steps[NDArray[np.bool_]]:
        """Find the columns of which some part of the rows, or the rest, has few people of a value, not 0."""
        counts = {i: self._counts(i, how, numbers[i]) for i in self.rows}
        people = {i: {text: count for text, (_, count) in some.items()} for i, some in counts.items()}
        told = yield Request("people of each value in each fold", people, "counts", self.floors)
        size = len(self.many) + 2
        sides = "held out", "trained on"
        needed = {
            f"{fold} {side} {label}" for fold in range(how.folds) for side in sides for label in self._all
        }
        few, known = np.zeros(size, dtype=np.bool_), set(told.texts)
        if told.rest != 0:
            flags = {i: [np.zeros(size)] for i in self.rows}
            for i, some in counts.items():
                flags[i][0][[place for text, (place, _) in some.items() if text not in known]] = 1.0
            (raised,) = yield Request("which columns have few people of a value in a fold", flags, "any")
            few = np.asarray(raised > 0.0)
        few[-1] |= not needed <= known
        return few

    def names(self, few: NDArray[np.bool_]) -> list[str]:
        """Return what these columns are called."""
        known = next(iter(self.rows.values())).columns or range(1, len(self.many) + 1)
        return [
            str(name) for name, is_few in zip([*known, "the target", "a class"], few, strict=True) if is_few
        ]

    def rare(self, i: int, few: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return the rows of an agent that have a rare value, or one far away, of one of these columns."""
        rows, found = self.rows[i], np.zeros(len(self.rows[i]), dtype=np.bool_)
        for place, values in self._columns(i):
            if few[place]:
                far = self._far(place, values)
                found |= far if self._is_many(place) else self._squares(place, values) > 1.0
        if rows.subjects is not None:
            found = np.isin(rows.subjects, rows.subjects[found])
        return found

    @property
    def _all(self) -> list[str]:
        return [f"class {label}" for label in self.classes] or ["rows"]

    def _counts(self, i: int, how: HoldOut, numbers: Indices) -> dict[str, tuple[int, int]]:
        """Return for each text its place, and how many people of a site it is about."""
        cells = {text: (len(self.many) + 1, chosen) for text, chosen in self._everyone(i)}
        for place, values in self._columns(i):
            if self._is_many(place):
                cells[f"{place} far"] = place, self._far(place, values)
            else:
                cells |= {
                    f"{place} {value!r}": (place, values == value) for value in np.unique(values).tolist()
                }
        counts = {}
        for fold in range(how.folds):
            out = held_out_rows(numbers, fold)
            for text, (place, chosen) in cells.items():
                # Of values far away all rows may have few, so that those trained on may, too.
                sides = {"held out": out} if text.endswith("far") else {"held out": out, "trained on": ~out}
                for side, rows in sides.items():
                    if count := people_of(chosen & rows, self.rows[i].subjects):
                        counts[f"{fold} {side} {text}"] = place, count
        return counts

    def _everyone(self, i: int) -> list[tuple[str, NDArray[np.bool_]]]:
        targets = self.rows[i].targets
        chosen = [targets == label for label in self.classes] or [np.ones(len(targets), dtype=np.bool_)]
        return list(zip(self._all, chosen, strict=True))

    def _columns(self, i: int) -> Iterator[tuple[int, NDArray[np.float64]]]:
        """Yield the columns of a site that vary, unless there are very many, and a target of numbers."""
        rows = self.rows[i]
        if rows.features < _MOST_COLUMNS:
            A = sp.csc_array(rows.A) if rows.is_sparse else rows.A
            for place in np.flatnonzero(self.found.deviation > 0.0).tolist():
                yield place, A[:, [place]].toarray()[:, 0] if sp.issparse(A) else A[:, place]
        if not self.classes and self.target_deviation > 0.0:
            yield len(self.many), rows.targets

    def _is_many(self, place: int) -> bool:
        return place == len(self.many) or bool(self.many[place])

    def _squares(self, place: int, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the squared differences from the mean, in units of the variance."""
        if place == len(self.many):
            return np.asarray(((values - self.found.target_mean) / self.target_deviation) ** 2)
        return np.asarray(((values - self.found.mean[place]) / self.found.deviation[place]) ** 2)

    def _far(self, place: int, values: NDArray[np.float64]) -> NDArray[np.bool_]:
        reach = max(_REACH, 2.0 * self.found.rows / (_PARTS * self.floors.min_count))
        return self._squares(place, values) > reach


def _has_many(rows: Rows) -> NDArray[np.float64]:
    if rows.is_sparse:
        return ColumnValues.of(rows.A, None).many.astype(float)
    low, high = rows.A.min(axis=0, initial=np.inf), rows.A.max(axis=0, initial=-np.inf)
    return np.asarray(((low < rows.A) & (high > rows.A)).any(axis=0).astype(float))


def held_out_above(cells: FoldCells, how: HoldOut) -> Steps[tuple[HoldOut, list[str]]]:
    """Find how rows are held out: of each value, sums over two parts differ by nobody or by enough people.

    If some of several parts have few people of a value, one part is held out. If that has few as well, people
    with that value are not held out. Raise if there are too few others.
    """
    numbers = {i: fold_numbers(local, how) for i, local in cells.rows.items()}
    few = yield from cells.few(how, numbers)
    if not few.any():
        return replace(how, numbers=numbers), []
    names = cells.names(few)
    note = (
        "one part of the rows is held out to find the radius, if need be without those with rare values: "
        f"of {listed(names)}, {how.folds} parts would have fewer than {cells.floors.min_count} people."
    )
    if how.folds > 1:
        how = HoldOut.in_folds(1, how.seed, how.by_class)
        numbers = {i: fold_numbers(local, how) for i, local in cells.rows.items()}
        few = yield from cells.few(how, numbers)
    for _ in range(_PASSES):
        if few[-1] or not few.any():
            break
        numbers = {i: np.where(cells.rare(i, few), -1, own) for i, own in numbers.items()}
        few = yield from cells.few(how, numbers)
    if not few.any():
        return replace(how, numbers=numbers), [note]
    of_classes = " of each class" if cells.classes else ""
    raise SitesError(
        "each part of the rows that is held out to find the radius must have at least "
        f"{cells.floors.min_count} people{of_classes}, at {cells.floors.min_sites} sites or more; one has "
        "fewer.",
        Remedy.COARSER,
    )
