"""How the numbers lie in a file: which column is which, as the user says it or as names tell."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias, final

from dcgs.datasets import BrokenDataError

_WHOLE = re.compile(r"[+-]?\d+")

USERS = ("user", "userid", "row", "rows")
ITEMS = ("item", "itemid", "movie", "movieid", "col", "cols", "column", "product", "productid")
RATINGS = ("rating", "ratings", "value", "values", "stars", "score")


@final
@dataclass(frozen=True)
class Head:
    """The columns of a table: how many, and their names where it has some."""

    file: Path
    width: int
    names: tuple[str, ...] | None

    def place(self, wanted: str) -> int:
        """Return the place, from 0, of a column named so, or of that number (from 1; from −1 at the end)."""
        if self.names is not None and wanted in self.names:
            return self.names.index(wanted)
        if _WHOLE.fullmatch(wanted):
            number = int(wanted)
            if 1 <= number <= self.width:
                return number - 1
            if -self.width <= number <= -1:
                return self.width + number
            raise BrokenDataError(
                f"a column of {self.file} must be a number from 1 to {self.width}, or from -1 at the end; "
                f"got {wanted}."
            )
        if self.names is None:
            raise BrokenDataError(
                f"{self.file} must have names in its first line, for a column {wanted!r}; it has none. "
                "Give the number of the column, from 1."
            )
        raise BrokenDataError(
            f"{self.file} must have a column {wanted!r}; its columns are {listed(self.names)}."
        )


Choose: TypeAlias = Callable[[Head], Sequence[int]]
"""Which columns of a table to read, in which order."""


@final
@dataclass(frozen=True)
class SamplesLayout:
    """What the user says of files of samples.

    ``target`` is the column that is to be predicted: a name, or a number from 1; None is the last. It may
    also be a file of its own (.npy), and then no column is. ``targets`` says whether there must be
    targets at all; ``features`` how many columns there are without them. For new data, ``names`` are those of
    the features in the fit, and ``target_at`` the place of its target, from 0.
    """

    target: str | None = None
    header: bool | None = None
    features: int | None = None
    targets: bool = True
    names: tuple[str, ...] | None = None
    target_at: int | None = None

    @property
    def target_file(self) -> str | None:
        """The file of targets, where they are in one of their own."""
        return self.target if self.target is not None and self.target.endswith(".npy") else None

    def choose(self, head: Head) -> list[int]:
        """Return the columns to read: the features, and then the target where there is one."""
        features, target = self.parted(head)
        return features if target is None else [*features, target]

    def parted(self, head: Head) -> tuple[list[int], int | None]:
        """Return the columns of features, and the target's where there is one."""
        if head.names is not None:
            self._check_names(head)
        if self.names is not None and head.names is not None:
            features = [head.place(name) for name in self.names]
            return features, self._target_place(head) if self._is_asked(head) else None
        if not self._has_target(head.width):
            return list(range(head.width)), None
        target = self._target_place(head)
        return [at for at in range(head.width) if at != target], target

    def _has_target(self, width: int) -> bool:
        """Return whether a table so wide has a column of targets."""
        if self.target_file is not None:
            return False
        return self.targets or self.features is None or width == self.features + 1

    def _is_asked(self, head: Head) -> bool:
        """Return whether the target is asked for, or is there under the name it had in the fit."""
        if self.target is None or self.target_file is not None:
            return False
        return self.targets or self.target in (head.names or ())

    def _target_place(self, head: Head) -> int:
        if self.target is not None and self._is_asked(head):
            return head.place(self.target)
        return head.width - 1 if self.target_at is None else min(self.target_at, head.width - 1)

    def _check_names(self, head: Head) -> None:
        names = head.names or ()
        unnamed = [at for at, name in enumerate(names, 1) if not name]
        if unnamed and self.names is None:
            raise BrokenDataError(
                f"every column of {head.file} must have a name; column {unnamed[0]} has none, like the row "
                "numbers that pandas writes. Leave that column out (index=False), or name it."
            )
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise BrokenDataError(
                f"names of columns of {head.file} must differ; {listed(twice)} are there twice."
            )


@final
@dataclass(frozen=True)
class EntriesLayout:
    """What the user says of files of entries: their columns (row, column, value), and the first number."""

    columns: tuple[str, ...] | None = None
    header: bool | None = None
    base: int | None = None
    values: bool = True

    def choose(self, head: Head) -> list[int]:
        """Return the columns of rows, columns and, where there are any, values."""
        if self.columns is not None:
            wanted = (
                self.columns if self.values else self.columns[: max(2, min(len(self.columns), head.width))]
            )
            return self._checked(head, [head.place(name) for name in wanted])
        by_name = self._by_name(head)
        if by_name is not None:
            return by_name
        least = 3 if self.values else 2
        if head.width < least:
            raise BrokenDataError(
                f"{head.file} must have {'row, column and value' if self.values else 'row and column'} "
                f"on each line; it has {head.width} column{'s' if head.width > 1 else ''}."
            )
        return list(range(min(3, head.width)))

    def _by_name(self, head: Head) -> list[int] | None:
        plain = [re.sub("[^a-z]", "", name.lower()) for name in head.names or ()]
        found = [next((plain.index(name) for name in known if name in plain), None) for known in _KNOWN]
        places = [at for at in found if at is not None]
        if found[0] is None or found[1] is None or (found[2] is None and self.values):
            return None
        return places

    def _checked(self, head: Head, places: list[int]) -> list[int]:
        if len(places) < (3 if self.values else 2) or len(set(places)) < len(places):
            raise BrokenDataError(
                f"columns must name three different columns, of rows, columns and values; "
                f"got {','.join(self.columns or ())} for {head.file}."
            )
        return places


_KNOWN = (USERS, ITEMS, RATINGS)


def listed(names: Sequence[str], limit: int = 8) -> str:
    """Return names for a sentence, the first of them if there are many."""
    shown = ", ".join(map(repr, names[:limit]))
    return shown if len(names) <= limit else f"{shown} and {len(names) - limit} more"
