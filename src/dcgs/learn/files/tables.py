"""Tables as people have them: columns of numbers and of words, with holes.

A column is of numbers if every value that is there is a number. It is of words if none is. A column that has
both is refused, unless the user says that it is a category: a misspelled number must not become a level.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np
from scipy import sparse

from dcgs.datasets import BrokenDataError
from dcgs.learn.files.source import Indices, Numbers, Samples
from dcgs.learn.schema import Note
from dcgs.validation import label_text, listed

MISSING = ("", "?", "NA", "N/A", "n/a", "#N/A", "<NA>", "NaN", "nan", "NULL", "null", "None")
"""The texts that mean that a value is missing."""

_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DAY = r"(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4})"
_DATE = re.compile(_DAY + r"([T ]\d{1,2}:\d{2}(:\d{2}(\.\d+)?)?(Z|[+-]\d{2}:?\d{2})?)?")


@final
@dataclass(frozen=True, eq=False)
class Column:
    """The values of a column: ``numbers``, with NaN where there is none, and ``words``, None for a number.

    ``words`` is None if every value is a number or missing.
    """

    numbers: Numbers
    words: tuple[str | None, ...] | None = None

    @classmethod
    def of_texts(cls, texts: Sequence[str]) -> Column:
        """Return the column of these texts.

        >>> Column.of_texts(["1", "NA", "x"]).words
        (None, None, 'x')
        """
        stripped = [text.strip() for text in texts]
        missing = set(MISSING)
        try:
            numbers = np.array([text if text not in missing else "nan" for text in stripped], np.float64)
            holes = sum(text in missing for text in stripped)
            if np.isfinite(numbers).sum() == len(stripped) - holes:
                return cls(numbers)
        except ValueError:
            pass
        words = tuple(None if text in missing or _is_number(text) else text for text in stripped)
        numbers = np.array([float(text) if _is_number(text) else np.nan for text in stripped])
        return cls(numbers, words if any(word is not None for word in words) else None)

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, chosen: Indices | slice) -> Column:
        """Return these values, in this order."""
        if self.words is None:
            return Column(self.numbers[chosen])
        words: Sequence[str | None] = np.array(self.words, dtype=object)[chosen].tolist()
        return Column(self.numbers[chosen], tuple(words))

    @property
    def has_numbers(self) -> bool:
        """Whether a value is a number."""
        return bool(np.isfinite(self.numbers).any())

    @property
    def has_words(self) -> bool:
        """Whether a value is a word."""
        return self.words is not None and any(word is not None for word in self.words)

    @property
    def texts(self) -> list[str | None]:
        """Every value as a text, None where it is missing; 1, 1.0 and 01 are the same text."""
        words = self.words or (None,) * len(self)
        return [
            word if word is not None else (None if np.isnan(number) else label_text(number))
            for word, number in zip(words, self.numbers.tolist(), strict=True)
        ]

    @property
    def levels(self) -> list[str]:
        """The distinct values as texts, in increasing order."""
        numbers = np.unique(self.numbers[~np.isnan(self.numbers)]).tolist()
        return sorted({*map(label_text, numbers), *(word for word in self.words or () if word is not None)})

    @property
    def missing(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Where a value is missing."""
        hole = np.isnan(self.numbers)
        return hole if self.words is None else hole & np.array([word is None for word in self.words])

    def first(self, words: bool) -> int:
        """Return the place of the first word, or of the first number."""
        if not words:
            return int(np.flatnonzero(np.isfinite(self.numbers))[0])
        return next(index for index, word in enumerate(self.words or ()) if word is not None)


@final
@dataclass(frozen=True, eq=False)
class Table:
    """Columns of features, by name, and the column to predict, if the file has it.

    ``names`` are None if the file has none. ``rows`` are the lines of the file, from 1, for error messages.
    ``commas`` says that the file has decimal commas. ``lacking`` are columns to drop that it does not have.
    ``subjects`` say whose row it is; None if every row is another person.
    """

    file: Path
    columns: tuple[Column, ...]
    target: Column | None
    names: tuple[str, ...] | None
    target_name: str | None
    target_at: int | None
    rows: Indices
    commas: bool = False
    lacking: tuple[str, ...] = ()
    subjects: tuple[str, ...] | None = None

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, chosen: Indices | slice) -> Table:
        """Return these rows, in this order."""
        return replace(
            self,
            columns=tuple(column.take(chosen) for column in self.columns),
            target=None if self.target is None else self.target.take(chosen),
            rows=self.rows[chosen],
            subjects=None if self.subjects is None else tuple(np.array(self.subjects)[chosen].tolist()),
        )

    @property
    def people(self) -> Indices | None:
        """A number for the person of each row; None if every row is another person."""
        return None if self.subjects is None else np.unique(self.subjects, return_inverse=True)[1]

    def in_order(self, names: tuple[str, ...]) -> Table:
        """Return the table with its columns in the order of these names."""
        local = dict(zip(self.names or (), self.columns, strict=False))
        return replace(self, names=names, columns=tuple(local[name] for name in names))

    def column(self, name: str) -> Column:
        """Return a column of features by its name, or by its number from 1 if the file has no names."""
        return self.columns[int(name) - 1 if self.names is None else self.names.index(name)]

    def sort_key(self) -> Numbers:
        """Return the target, by which ``--split sorted`` sorts; words in the order of the alphabet."""
        if self.target is None:
            return np.zeros(len(self))
        if not self.target.has_words:
            return np.nan_to_num(self.target.numbers)
        return np.unique([text or "" for text in self.target.texts], return_inverse=True)[1].astype(float)

    def name(self, index: int) -> str:
        """Return the name of a column of features, or its number."""
        return f"column {index + 1}" if self.names is None else f"column {self.names[index]!r}"

    def check_dates(self) -> None:
        """Raise if a column has dates: neither a number nor a level."""
        for index, column in enumerate(self.columns):
            date = _first_date(column)
            if date is not None:
                raise dates_error(self.file, self.name(index), date)


def dates_error(file: Path, column: str, example: object) -> BrokenDataError:
    """Return the error of a column of dates."""
    option = f" with --drop {column.partition(' ')[2]}" if column.startswith("column '") else ""
    return BrokenDataError(
        f"{column} of {file} must be of numbers or of words; it has dates, such as {str(example)!r}. Turn "
        f"them into numbers, such as days since an event, or leave the column out{option}."
    )


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None and np.isfinite(float(text))


def _first_date(column: Column) -> str | None:
    """Return a date if most words of a column are dates."""
    words = [word for word in column.words or () if word is not None]
    dates = [word for word in words if _DATE.fullmatch(word)]
    return dates[0] if 2 * len(dates) > len(words) else None


_CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0)
"""Numbers that stand for a missing value in many data sets."""
_HUGE = 1e15
_FEWEST_ROWS = 10
"""The rows that a note on values needs; with fewer, much is chance."""
_FEWEST_IDS = 30


def odd_facts(
    columns: Sequence[tuple[str, Column]],
    target: Column | None,
    of_classes: bool,
    categories: Container[str] = (),
    fewest: int = 1,
) -> Iterator[tuple[str, str]]:
    """Yield what is odd about columns, by the names of notes; with ``of_classes`` targets are classes.

    A number of rows below ``fewest`` is not told.
    """
    numeric = [(name, column) for name, column in columns if name not in categories]
    odd = [(name, *odd_value) for name, column in numeric for odd_value in odd_values(column).items()]
    if odd:
        counts = [
            (f"{count} × {value:g}" if count >= fewest else "a code such as -999") + f" in {name!r}"
            for name, value, count in odd[:8]
        ]
        yield Note.CODES.name, ", ".join(dict.fromkeys(counts))
    ids = [name for name, column in numeric if looks_like_id(column)]
    if ids:
        yield Note.IDS.name, f"another whole number in each row of {listed(ids)}"
    copies = []
    if target is not None:
        copies = [name for name, column in columns if copies_target(column, target, of_classes)]
    if copies:
        yield Note.COPIES.name, f"a copy of the target in {listed(copies)}"
    empty = [name for name, column in columns if column.missing.all()]
    if empty:
        yield Note.EMPTY.name, f"no value in {listed(empty)}"


def suspects(samples: Samples) -> list[tuple[str, Column]]:
    """Return the columns of an array that may be odd, by name; sparse ones are not filled in to see that.

    A column is left out if it has no value that may be a code, zeros in more than one row, and not as many as
    a copy of the target has.
    """
    A, rows = samples.A, len(samples)
    stored: Any = sparse.csc_array(A) if sparse.issparse(A) else A
    data = stored.data if sparse.issparse(A) else A
    odd = (np.abs(data) >= _HUGE) | np.logical_or.reduce([data == code for code in _CODES])
    if sparse.issparse(A):
        ends = np.cumsum(np.append(0, odd))[stored.indptr]
        has_odd, filled = np.diff(ends) > 0, np.diff(stored.indptr)
    else:
        has_odd, filled = odd.any(axis=0), np.count_nonzero(A, axis=0)
    counts = [rows] if samples.b is None else np.unique(samples.b, return_counts=True)[1]
    may_be = has_odd | (filled >= rows - 1) | np.isin(filled, rows - np.asarray(counts))
    places = np.flatnonzero(may_be).tolist()
    return [
        (f"feature {k + 1}", Column(stored[:, [k]].toarray()[:, 0] if sparse.issparse(A) else A[:, k]))
        for k in places
    ]


def odd_values(column: Column) -> dict[float, int]:
    """Return values that look like codes of a missing value, and huge ones, with how often they occur.

    >>> odd_values(Column(np.array([3.0, 5.0, -999.0, 4.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, -999.0])))
    {-999.0: 2}
    """
    numbers = column.numbers[np.isfinite(column.numbers)]
    is_odd = np.isin(numbers, _CODES) | (np.abs(numbers) >= _HUGE)
    rest = numbers[~is_odd]
    if not is_odd.any() or len(rest) < max(_FEWEST_ROWS - 1, len(numbers) // 2):
        return {}
    values, counts = np.unique(numbers[is_odd], return_counts=True)
    low, high = float(rest.min()), float(rest.max())
    occurrences = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return {value: count for value, count in occurrences.items() if _is_outside(value, low, high)}


def _is_outside(value: float, low: float, high: float) -> bool:
    """Return True if a value is farther from a range than the range is wide, or alone below 0."""
    return max(low - value, value - high) > high - low or value < 0.0 <= low


def looks_like_id(column: Column) -> bool:
    """Return True if every row has another whole number."""
    numbers = column.numbers[np.isfinite(column.numbers)]
    is_whole = len(numbers) >= _FEWEST_IDS and bool((numbers == np.floor(numbers)).all())
    return is_whole and len(np.unique(numbers)) == len(numbers)


def copies_target(column: Column, target: Column, labels: bool) -> bool:
    """Return True if a column is the target, or with ``labels`` tells its classes by other names."""
    known = ~(column.missing | target.missing)
    if known.sum() < _FEWEST_ROWS:
        return False
    if not labels:
        numbers, wanted = column.numbers[known], target.numbers[known]
        return bool(np.ptp(wanted) > 0.0 and np.array_equal(numbers, wanted))
    rows = np.flatnonzero(known)
    for some in (rows[:_FEWEST_ROWS], rows):  # most columns are none after a few rows
        values, classes = column.take(some).texts, target.take(some).texts
        pairs = set(zip(values, classes, strict=True))
        if not len(pairs) == len(set(values)) == len(set(classes)):
            return False
    return len(pairs) > 1
