"""Curious neighbors: they read recorded messages of a fit, and look for patients in them.

An attacker knows what all sites know after a fit: columns with their levels, means and deviations. A patient
is what the numeric columns of a row have. Each attacker returns the rows that it finds, given candidates: so
that one that finds nothing has not been told what to find, tests give it others, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dcgs.runtime.recording import SentArrays

Numbers = NDArray[np.float64]


@final
@dataclass(frozen=True, eq=False)
class Sites:
    """What all sites know: the features in order, and how each is scaled; which columns are numbers."""

    features: Sequence[str]
    means: Numbers
    deviations: Numbers
    numeric: Sequence[str]

    @classmethod
    def of(cls, features: Sequence[str], tables: Sequence[pd.DataFrame], target: str) -> Sites:
        """Return what the sums before a fit tell all sites."""
        pooled = pd.get_dummies(pd.concat(tables).drop(columns=target), dtype=float, prefix_sep="=")
        numeric = list(tables[0].drop(columns=target).select_dtypes("number"))
        pooled = pooled.reindex(columns=list(features), fill_value=0.0)  # levels may be merged
        return cls(features, pooled.mean().to_numpy(), pooled.std(ddof=0).to_numpy(), numeric)


def plain_arrays(messages: Iterable[SentArrays], sender: int) -> Iterator[Numbers]:
    """Yield what can be read as numbers of what an agent sent; also words, as if they were fixed point."""
    for message in messages:
        if message.sender == sender:
            for array in message.arrays:
                flat = array.reshape(-1)
                yield flat.view(np.int64).astype(float) if array.dtype == np.uint64 else flat


def class_sums(messages: Iterable[SentArrays], sender: int, patients: pd.DataFrame) -> list[int]:
    """Return the patients whose numbers, to the last digit, are in one message: the only one of a class."""
    found = set()
    for array in plain_arrays(messages, sender):
        for row, numbers in zip(patients.index, patients.to_numpy(), strict=True):
            # A number of the sums of a class is a sum in the units of the file.
            if array.size >= len(numbers) and (np.abs(array[:, None] - numbers) < 1e-9).any(axis=0).all():
                found.add(row)
    return sorted(found)


def level_rows(
    messages: Iterable[SentArrays], sender: int, patients: pd.DataFrame, level: str, sites: Sites
) -> list[int]:
    """Return the patients that a row of a Hessian shows: those of a level that has one patient."""
    d, found = len(sites.features), set()
    scale = np.diag(np.r_[sites.deviations, 1.0])
    scale[:d, d] = sites.means
    place = sites.features.index(level)
    for array in plain_arrays(messages, sender):
        if array.shape != ((d + 1) * (d + 2) // 2,):
            continue
        H = np.zeros((d + 1, d + 1))
        H[np.triu_indices(d + 1)] = array
        row = (scale @ (H + np.triu(H, 1).T) @ scale.T)[place]
        if row[place] == 0.0:
            continue
        known = row[[sites.features.index(name) for name in sites.numeric]] / row[place]
        matches = np.isclose(patients[list(sites.numeric)], known, rtol=1e-3).all(axis=1)
        found |= set(patients.index[matches])
    return sorted(found)


def column_rows(
    messages: Iterable[SentArrays], sender: int, patients: pd.DataFrame, column: str, sites: Sites
) -> list[int]:
    """Return the patients that a row of a Hessian shows: one of them dominates this column."""
    d, found = len(sites.features), set()
    scale = np.diag(np.r_[sites.deviations, 1.0])
    scale[:d, d] = sites.means
    place, others = sites.features.index(column), [name for name in sites.numeric if name != column]
    for array in plain_arrays(messages, sender):
        if array.shape != ((d + 1) * (d + 2) // 2,):
            continue
        H = np.zeros((d + 1, d + 1))
        H[np.triu_indices(d + 1)] = array
        row = (scale @ (H + np.triu(H, 1).T) @ scale.T)[place]
        if row[d] == 0.0:
            continue
        known = row[[sites.features.index(name) for name in others]] / row[d]
        matches = np.isclose(patients[others], known, rtol=5e-3).all(axis=1)
        found |= set(patients.index[matches])
    return sorted(found)


def fold_differences(
    messages: Iterable[SentArrays], receiver: int, patients: pd.DataFrame, level: str, sites: Sites
) -> list[int]:
    """Return the patients that differences of the first Hessians of folds show: held out alone of a level.

    They are at one model, and each row is held out in one fold: together they are so many times less one the
    Hessian of all rows. All sites receive them from the root.
    """
    d, found = len(sites.features), set()
    scale = np.diag(np.r_[sites.deviations, 1.0])
    scale[:d, d] = sites.means
    place = sites.features.index(level)
    size = (d + 1) * (d + 2) // 2
    folds = (
        array.reshape(-1, size)
        for message in messages
        if message.receiver == receiver
        for array in message.arrays
        if array.dtype == np.float64 and array.size in range(2 * size, 11 * size, size)
    )
    first = next(folds, np.zeros((0, size)))
    for held_out in first.sum(axis=0) / max(1, len(first) - 1) - first:
        H = np.zeros((d + 1, d + 1))
        H[np.triu_indices(d + 1)] = held_out
        row = (scale @ (H + np.triu(H, 1).T) @ scale.T)[place]
        if abs(row[place]) < 1e-9:
            continue
        known = row[[sites.features.index(name) for name in sites.numeric]] / row[place]
        matches = np.isclose(patients[list(sites.numeric)], known, rtol=1e-3).all(axis=1)
        found |= set(patients.index[matches])
    return sorted(found)


def ratings(messages: Iterable[SentArrays], sender: int, mean: float, ridge: float) -> dict[int, int]:
    """Return the ratings that the counts and sums of items before a fit show, by the place of the item.

    Items of one rater leave rating − mean − offset of the rater. These differ by whole numbers for one rater,
    whose offset follows from their sum.
    """
    found: dict[int, int] = {}
    for message in messages:
        shapes = [array.shape for array in message.arrays]
        if message.sender != sender or len(shapes) != 2 or shapes[0] != (1, *shapes[1]):
            continue
        rest, counts = message.arrays[0][0], message.arrays[1]
        if rest.dtype == np.uint64:
            rest, counts = rest.view(np.int64).astype(float), counts.view(np.int64).astype(float)
        single = np.flatnonzero(counts == 1.0)
        part = np.round(rest[single] % 1.0, 7) % 1.0
        for value in np.unique(part):
            places = single[np.abs(part - value) < 1e-6]
            n, total = len(places), float(rest[places].sum())
            offset = total / ridge
            guessed = rest[places] + mean + offset
            is_whole = np.abs(guessed - np.round(guessed)).max() < 1e-5
            if n > 1 and is_whole and guessed.min() > 0.5 and guessed.max() < 5.5:
                found |= dict(zip(places.tolist(), np.round(guessed).astype(int).tolist(), strict=True))
    return found


def score_cells(messages: Iterable[SentArrays], sender: int, cells: int) -> int:
    """Return how many histograms an agent sent in which a cell is one person."""
    arrays = plain_arrays(messages, sender)
    return sum(bool(array.shape == (cells,) and ((array == 0.0) | (array == 1.0)).all()) for array in arrays)
