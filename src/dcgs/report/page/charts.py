"""The data of charts: few enough points, as JSON that a page may hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

MOST_POINTS = 400
"""The most points of a curve that are embedded."""


def as_json(data: Any) -> str:
    """Return data as JSON that is safe inside a script element."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def thinned(measures: Iterable[Sequence[float]], length: int) -> list[int]:
    """Return the indices of the points to show, at most MOST_POINTS of ``length``, in order.

    The first, the last, and each measure's smallest and largest value are among them. Half of the others are
    spaced evenly and half logarithmically, so that both kinds of axis look smooth.
    """
    if length <= MOST_POINTS:
        return list(range(length))
    places = {0, length - 1, *_extremes(measures)}
    room = MOST_POINTS - len(places)
    even = np.linspace(0, length - 1, room // 2)
    early = np.geomspace(1, length, room - room // 2) - 1
    return sorted(places | {round(place) for place in (*even, *early)})


def _extremes(measures: Iterable[Sequence[float]]) -> set[int]:
    columns = [np.asarray(column, dtype=float) for column in measures]
    known = [np.where(np.isfinite(column), column, np.nan) for column in columns if np.isfinite(column).any()]
    return {int(place(column)) for column in known for place in (np.nanargmin, np.nanargmax)}


def plain(value: float) -> float | None:
    """Return a whole number exactly, others to seven digits, and None if it is not finite."""
    value = float(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.7g}")
