"""What is odd in ratings before a fit: duplicates, values far outside, ids that look alike or like times."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

from dcgs.ratings.ids import Ids
from dcgs.ratings.offsets import Numbers, Part

# A rating is far outside if it is farther from the quartiles than this number of their differences.
_FAR = 10.0
# Seconds since 1970, of 1979 to 2038, or milliseconds; or a date such as 2024-05-31.
_TIME = re.compile(rb"([3-9]\d{8}|1\d{9}|20\d{8}|21[0-3]\d{7})(\d{3})?(\.\d+)?|\d{4}-\d\d-\d\d([T ].*)?")


def without_duplicates(part: Part, columns: int) -> tuple[Part, str | None]:
    """Return the ratings with one for each entry, the mean where there are several, and a note on these.

    >>> part = Part(np.array([0, 0, 0]), np.array([1, 2, 1]), np.array([3.0, 4.0, 5.0]))
    >>> merged, note = without_duplicates(part, 3)
    >>> merged.values, note
    (array([4., 4.]), '1 ratings repeat a pair, 1 of them with another value: the mean counts')
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
    note = f"{repeated} ratings repeat a pair, {other} of them with another value: the mean counts"
    return Part(part.rows[kept], part.cols[kept], means[order]), note


def values_note(values: Numbers) -> str | None:
    """Return a note on ratings that are far outside the others; None if there are none.

    >>> values_note(np.array([1.0, 3.0, 4.0, 4.0, 5.0, 500.0]))
    '1 ratings are far outside the others, such as 500: half of them are from 3.25 to 4.75'
    """
    low, high = np.quantile(values, [0.25, 0.75]).tolist()
    reach = _FAR * ((high - low) or max(abs(low), 1.0))
    distance = np.maximum(values - high, low - values)
    far = int(np.count_nonzero(distance > reach))
    if far == 0:
        return None
    example = float(values[np.argmax(distance)])
    return (
        f"{far} ratings are far outside the others, such as {example:g}: half of them are from {low:g} to "
        f"{high:g}"
    )


def ids_notes(items: Ids) -> Iterator[str]:
    """Yield notes on the ids of all items: ids that differ only in case or blanks, and ids that are times.

    >>> list(ids_notes(Ids.of(["Film 3", "film 3", "film 4"])))
    ["2 ids of columns differ only in case or blanks, such as 'Film 3' and 'film 3': they are not the same"]
    """
    plain = np.char.lower(np.char.strip(items.texts))
    _, place, counts = np.unique(plain, return_inverse=True, return_counts=True)
    alike = np.flatnonzero(counts[place] > 1)
    if len(alike):
        one, other = items[np.flatnonzero(place == place[alike[0]])[:2]]
        yield (
            f"{len(alike)} ids of columns differ only in case or blanks, such as {one!r} and {other!r}: they "
            "are not the same"
        )
    if len(items) > 1 and all(_TIME.fullmatch(text) for text in items.texts.tolist()):
        yield (
            f"all ids of columns look like times, such as {items[[0]][0]!r}. Choose other columns, if they "
            "are"
        )
