"""What is odd about a column of a site: codes of missing values, ids, copies of the target, another unit.

Nothing here is sent or refused: sites note it.
"""

from __future__ import annotations

import numpy as np

from dcgs.fitting.data import Numbers
from dcgs.fitting.tables import Column

_CODES = (-9.0, -99.0, -999.0, -9999.0, -99999.0, 999.0, 9999.0, 99999.0, 999999.0)
"""Numbers that stand for a missing value in many data sets."""
_HUGE = 1e15
_FEWEST_ROWS = 10
"""The rows that a note on values needs; with fewer, much is chance."""
_FEWEST_IDS = 30


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
    found = dict(zip(values.tolist(), counts.tolist(), strict=True))
    return {value: count for value, count in found.items() if _is_outside(value, low, high)}


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
        own, wanted = column.numbers[known], target.numbers[known]
        return bool(np.ptp(wanted) > 0.0 and np.array_equal(own, wanted))
    rows = np.flatnonzero(known)
    for some in (rows[:_FEWEST_ROWS], rows):  # most columns are none after a few rows
        values, classes = column.take(some).texts, target.take(some).texts
        pairs = set(zip(values, classes, strict=True))
        if not len(pairs) == len(set(values)) == len(set(classes)):
            return False
    return len(pairs) > 1


def has_other_scale(own: tuple[float, float], others: tuple[float, float, float]) -> bool:
    """Return True if the mean of a column is so far from that of the other sites that units may differ.

    ``own`` has the count and the sum of the values, ``others`` also the sum of their squares. The means
    differ by over ten deviations of the others, or by over one deviation and a power of ten.
    """
    (count, total), (rest, total_rest, squares) = own, others
    if min(count, rest) < _FEWEST_ROWS:
        return False
    mean, mean_rest = total / count, total_rest / rest
    square = mean_rest * mean_rest
    variance = squares / rest - square
    if variance <= 1e-10 * square:  # rounding error, or a constant column
        return False
    difference, sizes = abs(mean - mean_rest), sorted((abs(mean), abs(mean_rest)))
    return difference > 10.0 * variance**0.5 or (difference > variance**0.5 and sizes[1] > 10.0 * sizes[0])


def is_flag(numbers: Numbers) -> bool:
    """Return True if a column has no values but 0 and 1, whose mean is a share."""
    return bool(np.isin(numbers[np.isfinite(numbers)], (0.0, 1.0)).all())
