"""Floors of ratings: items with few raters get no offset and no factor, and the range of ratings is no one's.

People are the rows (users). Ratings of an item below the floors are left out of the fit: predictions of it
are the mean plus the offset of the user.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.learn.floors import people_by_text, refuse_small
from dcgs.learn.ratings.offsets import Part, RatingsFacts
from dcgs.learn.sites import Remedy, SitesError
from dcgs.learn.sums import Request, Steps
from dcgs.secure.union import SecureUnion

# A site with more distinct ratings than this counts none of them: they are no stars.
_MOST_VALUES = 100
# Ratings without common values are clipped this many deviations from their mean.
_DEVIATIONS = 4.0


def raters(part: Part, names: Any = None) -> dict[str, int]:
    """Return how many rows have a rating in each column, by its number or its name.

    >>> raters(Part(np.array([0, 1, 1]), np.array([4, 4, 4]), np.ones(3)))
    {'4': 2}
    """
    pairs = np.unique(np.column_stack([part.rows, part.cols]), axis=0)
    cols, counts = np.unique(pairs[:, 1], return_counts=True)
    texts = map(str, cols.tolist()) if names is None else names[cols]
    return dict(zip(texts, counts.tolist(), strict=True))


def count_items(parts: Mapping[int, Part], names: Mapping[int, Any], floors: Floors) -> Steps[SecureUnion]:
    """Find the items with enough raters, by their ids; ``names`` are the ids of each site's columns."""
    counts = {i: raters(part, names[i]) for i, part in parts.items()}
    told: SecureUnion = yield Request("raters of each item", counts, "counts", floors)
    return told


def without_rare_items(
    parts: Mapping[int, Part], kept: Mapping[int, Part], columns: int, floors: Floors
) -> Steps[NDArray[np.bool_]]:
    """Find the columns with enough raters in the ratings that are kept.

    Raise if too few people have given the ratings that are not kept, of which errors are summed up.
    """
    counts = {i: raters(part) for i, part in kept.items()}
    for i, part in parts.items():
        out = len(np.unique(part.rows)) if len(part.values) > len(kept[i].values) else 0
        counts[i] |= {"held out": out} if out else {}
    told = yield Request("raters of each item, by its number", counts, "counts", floors)
    allowed = np.zeros(columns, dtype=np.bool_)
    allowed[[int(text) for text in told.texts if text != "held out"]] = True
    if not allowed.any():
        raise no_items(floors)
    return allowed


def no_items(floors: Floors) -> SitesError:
    """Return the error if no item has enough raters."""
    many = f"at least {floors.min_count} people, at {floors.min_sites} sites or more"
    alike = "under an id that is written alike at all sites"
    return SitesError(f"some item must have ratings of {many}, {alike}; none has.", Remedy.FEWER_FLOORS)


def facts_above(parts: Mapping[int, Part], names: Mapping[int, str], floors: Floors) -> Steps[RatingsFacts]:
    """Find mean and range of ratings; the ends of the range are ratings that enough people have given."""
    counts = {}
    for i, part in parts.items():
        values = list(map(repr, part.values.tolist()))
        counts[i] = people_by_text(values, part.rows) if len(set(values)) <= _MOST_VALUES else {}
    sums = {i: [[part.values.sum(), float(len(part.values))]] for i, part in parts.items()}
    few = {i: [np.zeros(len(names))] for i in parts}
    for i, part in parts.items():
        few[i][0][i] = len(np.unique(part.rows)) < floors.min_count
    told, (total,), (small,) = yield [
        Request("people who have given a rating, by its value", counts, "counts", floors),
        Request("mean of ratings", sums),
        Request("sites with too few people", few, "any"),
    ]
    refuse_small([names[i] for i in np.flatnonzero(small).tolist()], floors)
    mean, count = float(total[0] / total[1]), float(total[1])
    if told.texts:
        ends = sorted(map(float, told.texts))
        return RatingsFacts(ends[0], ends[-1], mean, count)
    squares = {i: [[float(np.square(part.values - mean).sum())]] for i, part in parts.items()}
    (square,) = yield Request("squared differences of ratings from their mean", squares)
    reach = _DEVIATIONS * float(np.sqrt(square[0] / count))
    return RatingsFacts(mean - reach, mean + reach, mean, count)


def clipped(parts: Mapping[int, Part], facts: RatingsFacts) -> dict[int, Part]:
    """Return ratings outside the range as the nearest end of it: no sum shows one that is far outside."""
    return {i: replace(part, values=np.clip(part.values, facts.low, facts.high)) for i, part in parts.items()}
