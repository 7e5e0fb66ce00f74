"""Fixed point: arrays of float64 as integers mod 2⁶⁴, with one exponent for all agents and entries.

A value v is sent as q = round(v · 2^e), to the nearest integer. Integers commute: a sum has the same bits in
any order. With m agents |q| ≤ (2⁶³ − 1) / m, so that the sum of all agents' integers is known exactly from
its residue mod 2⁶⁴.

Where no exponent is known, a number is *wide*: an integer mod 2²⁴⁰, with one exponent for all numbers of
usual size. It is five limbs of 48 bits, each in a word. Limbs of up to 2¹⁵ agents add up without a carry; the
total is carried.
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


LIMBS = 5
"""The words of a wide number."""
WIDE_EXPONENT = 112
"""The exponent of wide numbers: all float64 from 2^−59 to 2^127 divided by the number of agents are exact."""
WIDE_AGENTS = 2**15
"""The number of agents whose limbs add up to less than 2⁶³."""
LIMB_BITS = 48
_LIMB = (1 << LIMB_BITS) - 1
# Numbers below are wide with few digits. Where all are, or some are too large, an exponent must be found.
_LEAST_WIDE = 2.0**-70


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


def fits_wide(values: Point, agents: int) -> bool:
    """Return True if wide numbers have the digits of these."""
    largest = float(np.abs(values).max(initial=0.0))
    return largest == 0.0 or _LEAST_WIDE <= largest < 2.0 ** (127 - agents.bit_length())


def encode_wide(values: Point) -> Words:
    """Return the limbs of the integers nearest to values · 2^112, a row for each, the lowest first.

    >>> encode_wide(np.array([2.0**-60])).tolist()
    [[0, 16, 0, 0, 0]]
    """
    mantissas, exponents = np.frexp(values.reshape(-1))
    shifts = exponents.astype(np.int64) - 53 + WIDE_EXPONENT
    lowest = np.minimum(shifts, 0)  # below the last place numbers are rounded
    integers = np.rint(np.ldexp(mantissas, 53 + lowest)).astype(np.int64)
    sizes, shifts = np.abs(integers).view(np.uint64), shifts - lowest
    limbs = np.zeros((len(sizes), LIMBS), dtype=np.uint64)
    for k in range(LIMBS):
        right = LIMB_BITS * k - shifts
        down = sizes >> np.clip(right, 0, 63).astype(np.uint64)
        up = sizes << np.clip(-right, 0, 63).astype(np.uint64)
        limbs[:, k] = np.where(right >= 0, down, np.where(right > -LIMB_BITS, up, 0)) & np.uint64(_LIMB)
    return carried(np.where(integers[:, None] < 0, -limbs.view(np.int64), limbs.view(np.int64)))


def carried(limbs: Integers) -> Words:
    """Return limbs from 0 to 2⁴⁸ − 1 of the same integers mod 2²⁴⁰."""
    limbs = limbs.copy()
    for k in range(LIMBS):
        carry = limbs[:, k] >> LIMB_BITS
        limbs[:, k] &= _LIMB
        if k + 1 < LIMBS:
            limbs[:, k + 1] += carry
    return limbs.view(np.uint64)


def decode_wide(totals: Words) -> Point:
    """Return the numbers that sums of limbs stand for.

    >>> decode_wide(encode_wide(np.array([0.75, 1e20])) + encode_wide(np.array([-1.0, 1e-3])))
    array([-2.5e-01,  1.0e+20])
    """
    limbs = carried(totals.view(np.int64))
    negative = limbs[:, -1] >> np.uint64(LIMB_BITS - 1) > 0
    sizes = carried(np.where(negative[:, None], -limbs.view(np.int64), limbs.view(np.int64)))
    numbers: Point = np.zeros(len(limbs))
    for k in reversed(range(LIMBS)):
        numbers = numbers * 2.0**LIMB_BITS + sizes[:, k]
    return np.ldexp(np.where(negative, -numbers, numbers), -WIDE_EXPONENT)


def wide_errors(total: Point, agents: int) -> Point:
    """Return bounds of the errors of decoded wide totals: of four additions, half a unit each at most."""
    return entry_errors(total, WIDE_EXPONENT, agents) + 2.0 * np.spacing(np.abs(total))


def exponent_for(magnitude: int, agents: int) -> int:
    """Return the largest exponent with which values up to 2^magnitude fit.

    >>> e = exponent_for(3, agents=10)
    >>> encode(np.array([8.0]), e, agents=10) is None, encode(np.array([8.0]), e + 1, agents=10) is None
    (False, True)
    """
    exponent = 63 - agents.bit_length() - magnitude
    return min(MOST_EXPONENT, max(LEAST_EXPONENT, exponent))
