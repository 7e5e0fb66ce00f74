"""What floors mean for a fit: what is about too few people is merged, left out, or refused.

People are counted over all sites, in the rows to fit to; a person at two sites counts twice. Names come from
counts by text (``Request(operation="counts")``), of which only those above the floors are told. Whether a
site has anything that is not told is a logical or over all sites. So nobody learns who has it, nor how much.

A level below the floors becomes "other" before any design exists. If all levels below the floors are
together about too few people, the rarest level above them is merged into "other" as well. A missing value of
a category counts as a level here: filled with shares, the products of its row would be sums about one person.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.learn.sites import Remedy, Rows, SitesError
from dcgs.learn.sums import Request, Steps
from dcgs.validation import listed

Indices = NDArray[np.intp]
Numbers = NDArray[np.float64]

OTHER = "other"
"""The level of all that is rare, and in prediction of all that the fit has not seen."""


@final
@dataclass(frozen=True, eq=False)
class SiteCells:
    """What people of a site are counted by: ``texts`` gives the values of a category in the rows to fit to.

    ``labels`` are those of the rows to fit to, as JSON, and ``held_out`` those of all other rows.
    ``subjects`` are the persons of the rows to fit to; None if every row is another person.
    """

    rows: int
    texts: Callable[[str], Sequence[str | None]] = lambda name: ()
    labels: Sequence[str] = ()
    held_out: Sequence[str] = ()
    subjects: Indices | None = None

    @property
    def people(self) -> int:
        """The number of people in the rows to fit to."""
        return self.rows if self.subjects is None else len(np.unique(self.subjects))

    def counts(self, categories: Sequence[str]) -> dict[str, int]:
        """Return how many people each class and each level of these categories is about, by its text."""
        found = {
            json.dumps(["level", column, text]): count
            for column in categories
            for text, count in people_by_text(self.texts(column), self.subjects).items()
        }
        labels = people_by_text(self.labels, self.subjects).items()
        return found | {json.dumps(["class", label]): count for label, count in labels}

    def people_without(self, column: str, told: Sequence[str | None]) -> int:
        """Return how many people have a value of a category that is not told."""
        texts, known = self.texts(column), set(told)
        return people_of(np.array([text not in known for text in texts], dtype=np.bool_), self.subjects)


@final
@dataclass(frozen=True)
class Told:
    """What sites learn of classes and categories: what is above the floors.

    ``others`` has the categories with a level "other"; True if a missing value counts as that.
    """

    labels: tuple[str, ...] = ()
    levels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    others: Mapping[str, bool] = field(default_factory=dict)


def people_of(chosen: NDArray[np.bool_], subjects: Indices | None) -> int:
    """Return how many people have a row that is chosen.

    >>> people_of(np.array([True, True, False]), np.array([7, 7, 8]))
    1
    """
    return int(np.count_nonzero(chosen)) if subjects is None else len(np.unique(subjects[chosen]))


def people_by_text(texts: Sequence[str | None], subjects: Indices | None) -> dict[str | None, int]:
    """Return how many people have each text.

    >>> people_by_text(["a", None, "a"], None)
    {'a': 2, None: 1}
    """
    counted: dict[str | None, Any] = {}
    for row, text in enumerate(texts):
        counted.setdefault(text, []).append(row)
    if subjects is None:
        return {text: len(rows) for text, rows in counted.items()}
    return {text: len(np.unique(subjects[rows])) for text, rows in counted.items()}


def check_sites(agents: int, floors: Floors) -> None:
    """Raise unless there are enough sites for a sum to be about enough of them."""
    if agents < floors.min_sites:
        raise SitesError(
            f"with floors a sum must be over at least {floors.min_sites} sites; there are {agents}.",
            Remedy.NO_FLOORS,
        )


def told_cells(
    cells: Mapping[int, SiteCells], categories: Sequence[str], names: Mapping[int, str], floors: Floors
) -> Steps[Told]:
    """Find the classes and levels above the floors; raise if a site or a class is about too few people."""
    small = {}
    for i, site in cells.items():
        flags = np.zeros(len(names))
        flags[i] = site.people < floors.min_count
        small[i] = [flags]
    counts = {i: site.counts(categories) for i, site in cells.items()}
    above, (small_sites,) = yield [
        Request("people of each class and level", counts, "counts", floors),
        Request("sites with too few people", small, "any"),
    ]
    refuse_small([names[i] for i in np.flatnonzero(small_sites).tolist()], floors)
    known = dict(zip(map(_key, above.texts), above.counts, strict=True))
    labels = tuple(key[1] for key in known if key[0] == "class")
    levels = {column: [key[2] for key in known if key[:2] == ("level", column)] for column in categories}
    rest = {
        i: {column: site.people_without(column, levels[column]) for column in categories}
        for i, site in cells.items()
    }
    many = {i: [*local.values()] for i, local in rest.items()}
    below = {
        i: [[*map(bool, rest[i].values()), bool({*site.labels, *site.held_out} - {*labels})]]
        for i, site in cells.items()
    }
    (enough,), (flagged,) = yield [
        above_floors("people of levels below the floors", many, floors),
        Request("whether there are levels, or classes, below the floors", below, "any"),
    ]
    if flagged[-1]:
        _refuse_class(labels, floors)
    merged, missing = {}, {}
    for column, has_rest, is_enough in zip(categories, flagged[:-1], enough, strict=True):
        kept = [level for level in levels[column] if level is not None]
        if has_rest:
            missing[column] = None not in levels[column]
            if kept and OTHER not in kept and not is_enough:
                kept.remove(min(kept, key=lambda level: known["level", column, level]))
            kept = [level for level in kept if level != OTHER] + [OTHER]
        merged[column] = tuple(kept)
    return Told(labels, merged, missing)


def above_floors(name: str, people: Mapping[int, Sequence[int]], floors: Floors) -> Request:
    """Return the request for flags: which of some cells, that all sites know, are above the floors.

    ``people`` has for each agent of this process how many are in each cell. The root alone reads how many of
    all sites are.
    """

    def answer(totals: Sequence[Any]) -> list[Any]:
        counts, sites = np.split(totals[0], 2)
        return [np.array([floors.allow(*pair) for pair in zip(counts, sites, strict=True)], dtype=float)]

    values = {i: [[*local, *(count > 0 for count in local)]] for i, local in people.items()}
    return Request(name, values, "integers", answer=answer)


def _key(text: str) -> tuple[Any, ...]:
    return tuple(json.loads(text))


def refuse_small(names: Sequence[str], floors: Floors) -> None:
    """Raise if there are sites with too few people."""
    if names:
        raise SitesError(
            f"every site must have at least {floors.min_count} people to fit to; there are fewer at "
            f"{', '.join(names)}.",
            Remedy.SMALL_SITE,
        )


def _refuse_class(labels: Sequence[str], floors: Floors) -> None:
    told = [str(json.loads(label)) for label in labels]
    have = f"{listed(told)} {'has' if len(told) == 1 else 'have'}" if told else "none has"
    raise SitesError(
        f"every class must have at least {floors.min_count} people to fit to, at {floors.min_sites} sites or "
        f"more; of the classes {have}, and there is a class with fewer.",
        Remedy.SMALL_CLASS,
    )


def rare_columns(
    matrices: Mapping[int, Any], subjects: Mapping[int, Indices | None], floors: Floors
) -> Steps[NDArray[np.bool_]]:
    """Find the columns of numbers that are like a rare level; of each site the rows to fit to.

    A column with two values, such as a flag, is rare if one of them is below the floors; any other column if
    its values other than 0 are. NaN is no value.
    """
    local = {i: ColumnValues.of(A, subjects[i]) for i, A in matrices.items()}
    is_many = {i: [site.many.astype(float)] for i, site in local.items()}
    (many,) = yield Request("which columns have more than two values", is_many, "any")
    counts = {i: site.counts(many > 0.0) for i, site in local.items()}
    above = yield Request("people of each value of a column", counts, "counts", floors)
    known = set(above.texts)
    flags = {i: [site.untold(counts[i], known)] for i, site in local.items()}
    (rare,) = yield Request("which columns have a value below the floors", flags, "any")
    return np.asarray(rare > 0.0)


def without_rare(
    rows: Mapping[int, Rows], floors: Floors, held_out: Mapping[int, Indices] | None = None
) -> Steps[tuple[dict[int, Rows], list[str]]]:
    """Return the rows with 0 in columns that are about too few people, and a note on these.

    People are counted in the rows that are not held out.
    """
    out = {i: np.zeros(0, dtype=np.intp) for i in rows} if held_out is None else held_out
    rest = {i: np.setdiff1d(np.arange(len(local)), out[i]) for i, local in rows.items()}
    fitted = {i: local.some(rest[i]) for i, local in rows.items()}
    values = {i: local.A for i, local in fitted.items()}
    rare = yield from rare_columns(values, {i: local.subjects for i, local in fitted.items()}, floors)
    names = next(iter(rows.values())).columns
    left_out = [str(k + 1) if names is None else names[k] for k in np.flatnonzero(rare)]
    return {i: local.without(rare) for i, local in rows.items()}, left_out_note(left_out, floors)


def left_out_note(names: Sequence[str], floors: Floors) -> list[str]:
    """Return a note on columns that are left out, if there are any; raise if they are to be refused."""
    if not names:
        return []
    few = f"fewer than {floors.min_count} people, or fewer than {floors.min_sites} sites"
    if floors.rare_columns == "refuse":
        raise SitesError(
            f"every column must be about at least {floors.min_count} people at {floors.min_sites} sites; "
            f"{listed(names)} {'is' if len(names) == 1 else 'are'} about fewer.",
            Remedy.LEAVE_OUT_COLUMN,
            listed(names),
        )
    return [f"left out, since {'it is' if len(names) == 1 else 'they are'} about {few}: {listed(names)}."]


@final
@dataclass(frozen=True, eq=False)
class ColumnValues:
    """How many people at a site have the least and the largest value of each column, and a value but 0.

    ``many`` says which columns have more than two values.
    """

    many: NDArray[np.bool_]
    ends: NDArray[np.float64]
    people: NDArray[np.int64]
    other_than_zero: NDArray[np.int64]

    @classmethod
    def of(cls, A: Any, subjects: Indices | None) -> ColumnValues:
        """Return the values of a matrix, dense with NaN or sparse; a sparse one has no subjects."""
        if sp.issparse(A):
            return cls._of_sparse(sp.csc_array(A))
        there = ~np.isnan(A)
        low = np.where(there, A, np.inf).min(axis=0, initial=np.inf)
        high = np.where(there, A, -np.inf).max(axis=0, initial=-np.inf)
        many = (there & (low != A) & (high != A)).any(axis=0)
        ends = np.array([low, high])
        people = np.array([[people_of(column, subjects) for column in (end == A).T] for end in ends])
        people[1, low == high] = 0
        nonzero = np.array([people_of(column, subjects) for column in (there & (A != 0.0)).T], dtype=np.int64)
        return cls(many, ends, people.astype(np.int64), nonzero)

    @classmethod
    def _of_sparse(cls, A: sp.csc_array) -> ColumnValues:
        A.eliminate_zeros()
        rows, d = A.shape
        place, stored = np.repeat(np.arange(d), np.diff(A.indptr)), np.diff(A.indptr)
        low, high = np.full(d, np.inf), np.full(d, -np.inf)
        np.minimum.at(low, place, A.data)
        np.maximum.at(high, place, A.data)
        has_zero = stored < rows
        low, high = (
            np.where(has_zero, np.minimum(low, 0.0), low),
            np.where(has_zero, np.maximum(high, 0.0), high),
        )
        between = (A.data != low[place]) & (A.data != high[place])
        many = np.bincount(place[between], minlength=d) > 0
        many |= has_zero & (low != 0.0) & (high != 0.0)
        people = np.array([np.bincount(place[A.data == end[place]], minlength=d) for end in (low, high)])
        people[0] += np.where(low == 0.0, rows - stored, 0)
        people[1] += np.where((high == 0.0) & (low != high), rows - stored, 0)
        people[1, low == high] = 0
        return cls(many, np.array([low, high]), people, stored.astype(np.int64))

    def counts(self, many: NDArray[np.bool_]) -> dict[str, int]:
        """Return what is counted: each value of a column of two, or the people with a value but 0."""
        found = {
            f"{k} {self.ends[side, k]!r}": int(self.people[side, k])
            for side, k in np.argwhere((self.people > 0) & ~many).tolist()
        }
        places = np.flatnonzero(many & (self.other_than_zero > 0)).tolist()
        return found | {f"{k} not 0": int(self.other_than_zero[k]) for k in places}

    def untold(self, counts: Mapping[str, int], known: set[str]) -> Numbers:
        """Return which columns have something that is counted and not told."""
        flags = np.zeros(len(self.many))
        flags[[int(text.split()[0]) for text in counts if text not in known]] = 1.0
        return flags


def effective_people(squares: Numbers, subjects: Indices | None) -> Numbers:
    """Return Σ cₚ² of each column, for the sums cₚ of the squares over the rows of each person.

    If the squares add up to 1 over all people, 1 / Σ cₚ² is how many people share them: n if all have the
    same, 1 if one has all.

    >>> float(effective_people(np.array([[0.5], [0.5]]), None)[0])
    0.5
    """
    if subjects is not None:
        codes = np.unique(subjects, return_inverse=True)[1]
        summed = np.zeros((codes.max(initial=-1) + 1, squares.shape[1]))
        np.add.at(summed, codes, squares)
        squares = summed
    return np.asarray((squares**2).sum(axis=0))
