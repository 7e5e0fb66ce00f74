"""Fixed point: arrays of float64 as integers mod 2⁶⁴, with one exponent for all agents and entries.

A value v is sent as q = round(v · 2^e), to the nearest integer. Integers commute: a sum has the same bits in
any order. With m agents |q| ≤ (2⁶³ − 1) / m, so that the sum of all agents' integers is known exactly from
its residue mod 2⁶⁴.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcgs.points import Point, is_finite

Words: TypeAlias = NDArray[np.uint64]
"""Integers mod 2⁶⁴."""
Integers: TypeAlias = NDArray[np.int64]

LEAST_EXPONENT = -960
"""With this exponent the decoded total of any integers is below 2^1023, and so is finite."""
MOST_EXPONENT = 1074
"""With this exponent every float64 is an integer."""


def largest_integer(agents: int) -> int:
    """Return the largest |q| that each of so many agents may send.

    >>> largest_integer(3) * 3 < 2**63 <= (largest_integer(3) + 1) * 3
    True
    """
    return (2**63 - 1) // agents


Exponent: TypeAlias = "int | NDArray[np.int64]"
"""One exponent of all numbers of an array, or one for each of them."""


def encode(values: Point, exponent: Exponent, agents: int) -> Words | None:
    """Return the integers nearest to values · 2^exponent; None if one of them is too large.

    >>> encode(np.array([0.75, -1.0]), 2, agents=3).astype(np.int64)
    array([ 3, -4])
    >>> encode(np.array([2.0]), 61, agents=3) is None
    True
    """
    words, too_large = encode_some(values, exponent, agents)
    return None if too_large.any() else words


def encode_some(values: Point, exponent: Exponent, agents: int) -> tuple[Words, NDArray[np.bool_]]:
    """Return the integers nearest to values · 2^exponent, and which are too large; those are 0."""
    if not is_finite(values):
        where = tuple(np.argwhere(~np.isfinite(values))[0].tolist())
        raise FloatingPointError(f"values of a secure sum must be finite; got {values[where]} at {where}.")
    with np.errstate(over="ignore", under="ignore"):
        scaled = np.rint(np.ldexp(values, exponent))
    largest = float(largest_integer(agents))
    if int(largest) > largest_integer(agents):
        largest = math.nextafter(largest, 0.0)
    too_large = np.abs(scaled) > largest
    words: Words = np.where(too_large, 0.0, scaled).astype(np.int64).view(np.uint64)
    return words, too_large


def decode(total: Words, exponent: Exponent) -> Point:
    """Return the numbers that a sum of encoded values stands for.

    >>> total = encode(np.array([0.75]), 2, agents=3) + encode(np.array([-1.0]), 2, agents=3)
    >>> decode(total, 2)
    array([-0.25])
    """
    numbers: Point = np.asarray(np.ldexp(total.view(np.int64).astype(np.float64), -np.asarray(exponent)))
    return numbers


def entry_error(total: Point, exponent: int, agents: int) -> float:
    """Return a bound of the error of every entry of a decoded total.

    Every agent rounds by at most 2^−exponent / 2. The conversion of the total to float64 adds half a unit in
    its last place.

    >>> entry_error(np.zeros(1), 10, agents=4) >= 4 * 2.0**-11
    True
    """
    return float(entry_errors(np.abs(total).max(initial=0.0), exponent, agents))


def entry_errors(total: Point | float, exponent: Exponent, agents: int) -> Point:
    """Return such bounds for every entry, where each has an exponent."""
    rounding = np.ldexp(float(agents), -np.asarray(exponent) - 1)
    return np.asarray(np.nextafter(rounding + 0.5 * np.spacing(np.abs(total)), np.inf))


def exponent_for(magnitude: int, agents: int) -> int:
    """Return the largest exponent with which values up to 2^magnitude fit.

    >>> e = exponent_for(3, agents=10)
    >>> encode(np.array([8.0]), e, agents=10) is None, encode(np.array([8.0]), e + 1, agents=10) is None
    (False, True)
    """
    exponent = 63 - agents.bit_length() - magnitude
    return min(MOST_EXPONENT, max(LEAST_EXPONENT, exponent))
