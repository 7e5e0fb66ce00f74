"""Ids of users and items: texts or numbers, sorted, found by bisection; and what is odd in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcgs.low_rank import Index

# Seconds since 1970, of 1979 to 2038, or milliseconds; or a date such as 2024-05-31.
_TIME = re.compile(rb"([3-9]\d{8}|1\d{9}|20\d{8}|21[0-3]\d{7})(\d{3})?(\.\d+)?|\d{4}-\d\d-\d\d([T ].*)?")
Texts = NDArray[np.bytes_]
"""Texts in UTF-8, as an array of fixed width; the order of the bytes is that of the characters."""


@final
@dataclass(frozen=True, eq=False)
class Ids:
    """Distinct ids in increasing order.

    >>> ids = Ids.of(["u7", "u12", "u7"])
    >>> ids.tolist(), ids.places(["u7", "u9"])
    (['u12', 'u7'], array([ 1, -1]))
    """

    texts: Texts

    @classmethod
    def of(cls, ids: ArrayLike) -> Ids:
        """Return the distinct ones of these ids."""
        return cls(np.unique(as_texts(ids)))

    def __len__(self) -> int:
        return len(self.texts)

    def places(self, ids: ArrayLike) -> Index:
        """Return the places of ids; −1 for an id that is not here."""
        return places_in(self.texts, as_texts(ids))

    def tolist(self) -> list[str]:
        """Return the ids as strings."""
        return [text.decode() for text in self.texts.tolist()]

    def __getitem__(self, places: Any) -> list[str]:
        """Return the ids at these places, as strings."""
        return [text.decode() for text in self.texts[np.asarray(places)].tolist()]


def places_in(ordered: NDArray[Any], wanted: NDArray[Any]) -> Index:
    """Return the places of values among distinct ones in increasing order; −1 for one that is not there."""
    if len(ordered) == 0:
        return np.full(len(wanted), -1, dtype=np.intp)
    index = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
    return np.where(ordered[index] == wanted, index, -1)


def as_texts(ids: ArrayLike) -> Texts:
    """Return ids as texts in UTF-8; whole numbers are written in decimal digits."""
    array = np.asarray(ids)
    if array.dtype.kind == "S":
        return array.reshape(-1)
    if array.dtype.kind in "iu":
        return array.reshape(-1).astype("S20")
    if array.dtype.kind == "f" and bool((array == np.floor(array)).all()):
        return array.reshape(-1).astype(np.int64).astype("S20")
    if array.dtype.kind in "UO":
        given = array.reshape(-1).tolist()
        missing = [place for place, text in enumerate(given) if text is None or text != text]
        if missing:
            raise ValueError(f"no id may be missing; {len(missing)} of {len(given)} are, first {missing[0]}.")
        encoded = [str(text).encode() for text in given]
        return np.array(encoded, dtype=np.bytes_) if encoded else np.empty(0, dtype="S1")
    raise ValueError(f"ids must be texts or whole numbers; got an array of {array.dtype}.")


def ids_notes(items: Ids) -> Iterator[str]:
    """Yield notes on the ids of all items: ids that differ only in case or blanks, and ids that are times.

    >>> list(ids_notes(Ids.of(["Film 3", "film 3", "film 4"])))
    ["2 ids of columns differ only in case or blanks, such as 'Film 3' and 'film 3': they are not the same"]
    """
    plain = np.char.lower(np.char.strip(items.texts))
    _, place, counts = np.unique(plain, return_inverse=True, return_counts=True)
    alike = np.flatnonzero(counts[place] > 1)
    if len(alike):
        first, second = items[np.flatnonzero(place == place[alike[0]])[:2]]
        yield (
            f"{len(alike)} ids of columns differ only in case or blanks, such as {first!r} and {second!r}: "
            "they are not the same"
        )
    if len(items) > 1 and all(_TIME.fullmatch(text) for text in items.texts.tolist()):
        yield (
            f"all ids of columns look like times, such as {items[[0]][0]!r}. Choose other columns, if they "
            "are"
        )
