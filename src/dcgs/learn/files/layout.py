"""Which column of a table is which: by the user's options, or by the names of the columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from dcgs.datasets import BrokenDataError
from dcgs.validation import listed

_WHOLE = re.compile(r"[+-]?\d+")
_ROLES = ("user", "item", "rating")
_KNOWN = (
    ("user", "userid", "row", "rows", "customer", "customerid", "cust", "custid", "client", "clientid"),
    ("item", "itemid", "movie", "movieid", "col", "cols", "column", "product", "productid", "sku", "film"),
    ("rating", "ratings", "value", "values", "stars", "score"),
)
# A column of such a name is never taken for one of users, items or ratings.
_TIMES = ("time", "timestamp", "datetime", "date", "when", "ts", "day", "unixtime", "createdat", "ratedat")


@final
@dataclass(frozen=True)
class TableHeader:
    """The columns of a table: how many, and their names if it has names."""

    file: Path
    width: int
    names: tuple[str, ...] | None

    def index(self, column: str) -> int:
        """Return the index, from 0, of a column given by its name or number (from 1; −1 is the last)."""
        if self.names is not None and column in self.names:
            return self.names.index(column)
        if _WHOLE.fullmatch(column):
            number = int(column)
            if 1 <= abs(number) <= self.width:
                return number - 1 if number > 0 else self.width + number
            raise BrokenDataError(
                f"a column of {self.file} must be a number from 1 to {self.width}, or from -1 at the end; "
                f"got {column}."
            )
        if self.names is None:
            raise BrokenDataError(
                f"{self.file} must have names in its first line, for a column {column!r}; it has none. "
                "Give the number of the column, from 1."
            )
        raise BrokenDataError(
            f"{self.file} must have a column {column!r}; its columns are {listed(self.names)}."
        )


@final
@dataclass(frozen=True)
class TextFormat:
    """How a table of text is written: its encoding, and its decimal mark; None: found from the file."""

    encoding: str = "utf-8"
    decimal: str | None = None


PLAIN_TEXT = TextFormat()
Choose: TypeAlias = Callable[[TableHeader], Sequence[int]]
"""Returns the columns of a table to read, in their order."""


@final
@dataclass(frozen=True)
class SamplesLayout:
    """How files of samples are read.

    ``target`` is the column to predict: a name, or a number from 1; None is the last column. It may also be
    an .npy file of targets; then all columns are features. ``features`` is the number of features.
    ``use`` are the columns of features, None for all; ``drop`` are columns to leave out. ``subject`` is the
    column that says whose row it is, which is no feature.
    For new data, ``targets`` is False: the file may have no targets; ``names`` are the columns of the
    fit, and ``target_at`` is the column of its target, from 0.
    """

    target: str | None = None
    header: bool | None = None
    features: int | None = None
    targets: bool = True
    names: tuple[str, ...] | None = None
    target_at: int | None = None
    use: tuple[str, ...] | None = None
    drop: tuple[str, ...] = ()
    text: TextFormat = PLAIN_TEXT
    subject: str | None = None

    @property
    def target_file(self) -> str | None:
        """The file of targets, if they have their own file."""
        return self.target if self.target is not None and self.target.endswith(".npy") else None

    def choose(self, header: TableHeader) -> list[int]:
        """Return the columns to read: the features, then the target if there is one."""
        features, target = self.split(header)
        return features if target is None else [*features, target]

    def split(self, header: TableHeader) -> tuple[list[int], int | None]:
        """Return the columns of the features, and the column of the target if there is one."""
        if header.names is not None:
            self._check_names(header.file, header.names)
            if self.names is not None:
                features = [header.index(name) for name in self.names]
                return features, self._target(header) if self._is_named(header) else None
        widths = (None, header.width - 1)  # a table of this width has a target beside its features
        if self.target_file is not None or not (self.targets or self.features in widths):
            return self._features(header, None), None
        target = self._target(header)
        return self._features(header, target), target

    def _features(self, header: TableHeader, target: int | None) -> list[int]:
        """Return the columns of features: those of ``use``, or all but the target; without ``drop``."""
        used = range(header.width) if self.use is None else [header.index(name) for name in self.use]
        dropped = {header.index(name) for name in self.drop if name not in self.lacking(header)}
        dropped |= set() if self.subject is None else {header.index(self.subject)}
        if target in dropped or (self.use is not None and target in used):
            raise BrokenDataError(
                f"the target of {header.file} must be neither in --use, nor in --drop, nor --subject; column "
                f"{(target or 0) + 1} is. Name another target with --target, or another column."
            )
        return [place for place in used if place != target and place not in dropped]

    def lacking(self, header: TableHeader) -> tuple[str, ...]:
        """Return the names to drop that a table with names does not have; another site may have them."""
        if header.names is None:
            return ()
        return tuple(name for name in self.drop if name not in header.names and not _WHOLE.fullmatch(name))

    def _is_named(self, header: TableHeader) -> bool:
        """Return True if the target must be in the table, or is there under the name it had in the fit."""
        if self.target is None or self.target_file is not None:
            return False
        return self.targets or self.target in (header.names or ())

    def _target(self, header: TableHeader) -> int:
        if self.target is not None and self._is_named(header):
            return header.index(self.target)
        return header.width - 1 if self.target_at is None else min(self.target_at, header.width - 1)

    def _check_names(self, file: Path, names: Sequence[str]) -> None:
        unnamed = [place for place, name in enumerate(names, 1) if not name]
        if unnamed and self.names is None:
            raise BrokenDataError(
                f"every column of {file} must have a name; column {unnamed[0]} has none, like the row "
                "numbers that pandas writes. Leave that column out (index=False), or name it."
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BrokenDataError(f"names of columns of {file} must differ; {listed(twice)} occur twice.")


@final
@dataclass(frozen=True)
class EntriesLayout:
    """How files of matrix entries are read: their columns (row, column, value), and the first index."""

    columns: tuple[str, ...] | None = None
    header: bool | None = None
    base: int | None = None
    values: bool = True
    text: TextFormat = PLAIN_TEXT

    def finds_names(self, names: Sequence[str]) -> bool:
        """Return True if these are known names of columns of rows, columns and, if there must be, values."""
        plain = [re.sub("[^a-z]", "", name.lower()) for name in names]
        needed = _KNOWN if self.values else _KNOWN[:2]
        return all(any(name in plain for name in known) for known in needed)

    def choose(self, header: TableHeader) -> list[int]:
        """Return the columns of rows, columns and, if there are any, values."""
        least = 3 if self.values else 2
        if self.columns is not None:
            given = self.columns if self.values else self.columns[: max(2, min(3, header.width))]
            chosen = [header.index(name) for name in given]
            if len(chosen) < least or len(set(chosen)) < len(chosen):
                raise BrokenDataError(
                    "columns must name three different columns, of rows, columns and values; "
                    f"got {','.join(self.columns)} for {header.file}."
                )
            return chosen
        plain = [re.sub("[^a-z]", "", name.lower()) for name in header.names or ()]
        places = [next((plain.index(name) for name in known if name in plain), None) for known in _KNOWN]
        if None not in places[:least]:
            return [place for place in places if place is not None]
        if header.names is not None and header.width >= least:
            return self._filled(header, plain, places[: max(least, min(3, header.width))])
        if header.width < least:
            raise BrokenDataError(
                f"{header.file} must have {'row, column and value' if self.values else 'row and column'} "
                f"on each line; it has {header.width} column{'s' if header.width > 1 else ''}."
            )
        return list(range(min(3, header.width)))

    def _filled(self, header: TableHeader, plain: Sequence[str], places: Sequence[int | None]) -> list[int]:
        """Return the columns found by name, and for the others those that are left, if it is clear which."""
        left = [place for place in range(header.width) if place not in places and plain[place] not in _TIMES]
        unknown = [role for role, place in zip(_ROLES, places, strict=False) if place is None]
        if len(left) != len(unknown):
            raise BrokenDataError(
                f"the names of the columns of {header.file} must tell which are of users, items and ratings; "
                f"they are {listed(header.names or ())}, and {' and '.join(unknown)} could be any. Give "
                "--columns with three names, of user, item and rating."
            )
        return [left.pop(0) if place is None else place for place in places]


def used_columns(header: TableHeader, chosen: Sequence[int]) -> str:
    """Return which columns of a table are those of users, items and ratings."""
    names = [f"column {place + 1}" if header.names is None else repr(header.names[place]) for place in chosen]
    return ", ".join(f"{name} ({role})" for role, name in zip(_ROLES, names, strict=False))
