"""Fixed point: sums have the same bits in any order, and errors within their bound."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcgs.secure.fixed_point import (
    LEAST_EXPONENT,
    LIMBS,
    MOST_EXPONENT,
    WIDE_AGENTS,
    WIDE_EXPONENT,
    Words,
    carried,
    decode,
    decode_wide,
    encode,
    encode_wide,
    entry_error,
    exponent_for,
    fits_wide,
    largest_integer,
    wide_errors,
)


def encoded(values: NDArray[np.float64], exponent: int, agents: int) -> Words:
    words = encode(values, exponent, agents)
    assert words is not None
    return words


@pytest.mark.parametrize(
    ("value", "exponent", "integer"),
    [
        (0.75, 2, 3),
        (-0.75, 2, -3),
        (0.5, 0, 0),
        (1.5, 0, 2),
        (2.5, 0, 2),
        (0.3, 4, 5),
        (1000.0, -3, 125),
        (-0.0, 9, 0),
    ],
)
def test_a_value_becomes_the_nearest_integer_and_ties_the_even_one(
    value: float, exponent: int, integer: int
) -> None:
    assert encoded(np.array([value]), exponent, 3).view(np.int64).tolist() == [integer]


@given(
    values=st.lists(st.floats(-1e6, 1e6), min_size=3, max_size=12),
    exponent=st.integers(-10, 38),
    seed=st.integers(0, 1000),
)
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_sum_has_the_same_bits_in_any_order_and_an_error_within_its_bound(
    values: list[float], exponent: int, seed: int
) -> None:
    agents = len(values)
    words = [encoded(np.array([value]), exponent, agents) for value in values]
    order = np.random.default_rng(seed).permutation(agents)
    cut = seed % agents
    total = sum(words[1:], start=words[0])
    groups = [[words[k] for k in part] for part in (order[:cut], order[cut:])]
    regrouped = sum(
        (sum(group, start=np.zeros(1, dtype=np.uint64)) for group in groups), start=np.zeros(1, np.uint64)
    )
    assert total.tobytes() == regrouped.tobytes()
    decoded = decode(total, exponent)
    error = abs(Fraction(float(decoded[0])) - sum(map(Fraction, values)))
    assert error <= Fraction(entry_error(decoded, exponent, agents))


def test_the_error_bound_is_that_worked_out_by_hand_and_is_reached() -> None:
    # Four agents round 0.25 · 2¹ = 0.5 to 0: the total 1 becomes 0, and 4/2 · 2⁻¹ = 1 is the bound.
    total = sum((encoded(np.array([0.25]), 1, 4) for _ in range(4)), start=np.zeros(1, dtype=np.uint64))
    decoded = decode(total, 1)
    assert decoded.tolist() == [0.0]
    assert entry_error(decoded, 1, 4) == pytest.approx(1.0, rel=1e-15)  # and the rounding of the bound itself


def test_the_conversion_of_a_large_total_is_in_the_bound() -> None:
    # 2⁵³ + 1 is no float64: the conversion is off by 1, half a unit in the last place.
    odd = np.array([2**53 + 1], dtype=np.uint64)
    decoded = decode(odd, 0)
    assert abs(int(decoded[0]) - (2**53 + 1)) == 1
    assert entry_error(decoded, 0, 3) >= 1.0 + 1.5


@pytest.mark.parametrize("agents", [3, 4, 7, 50, 10_000])
def test_all_agents_at_the_largest_value_do_not_overflow_and_one_more_is_refused(agents: int) -> None:
    near = float(largest_integer(agents))
    limit = max(f for f in (near, math.nextafter(near, 0.0)) if int(f) <= largest_integer(agents))
    for sign in (1.0, -1.0):
        words = encoded(np.array([sign * limit]), 0, agents)
        total = words * np.uint64(agents)
        assert int(total.view(np.int64)[0]) == int(sign * limit) * agents
        above = max(limit + 1.0, math.nextafter(limit, math.inf))
        assert encode(np.array([sign * above]), 0, agents) is None


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(wrong: float) -> None:
    with pytest.raises(FloatingPointError, match=rf"must be finite; got {wrong} at \(1, 0\)\.$"):
        encode(np.array([[1.0], [wrong]]), 0, 3)


def test_the_smallest_and_the_largest_numbers_have_an_exponent() -> None:
    tiny = np.array([5e-324, -1.5e-323])
    assert decode(encoded(tiny, MOST_EXPONENT, 3), MOST_EXPONENT).tolist() == tiny.tolist()
    huge = np.array([2.0**1020])
    total = encoded(huge, LEAST_EXPONENT, 3) * np.uint64(3)
    assert decode(total, LEAST_EXPONENT).tolist() == [3.0 * 2.0**1020]
    assert encode(np.array([2.0**1023]), LEAST_EXPONENT, 3) is None
    assert encode(np.array([1e300]), MOST_EXPONENT, 3) is None


@given(magnitude=st.integers(-1000, 1000), agents=st.integers(3, 10_000) | st.sampled_from([4, 64, 2048]))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_exponent_for_a_magnitude_is_the_largest_that_is_safe(magnitude: int, agents: int) -> None:
    exponent = exponent_for(magnitude, agents)
    largest = np.array([2.0**magnitude])
    assert encode(largest, exponent, agents) is not None
    assert exponent == MOST_EXPONENT or encode(largest, exponent + 1, agents) is None


def integer(limbs: NDArray[np.int64]) -> int:
    """Return the integer that limbs stand for, from −2²³⁹ to 2²³⁹."""
    total = sum(int(limb) << 48 * k for k, limb in enumerate(limbs)) % 2**240
    return total - 2**240 if total >= 2**239 else total


usual = st.floats(2.0**-59, 2.0**117) | st.floats(-(2.0**117), -(2.0**-59)) | st.just(0.0)


@given(values=st.lists(usual, min_size=1, max_size=20))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_a_wide_number_is_exact_and_its_sums_are_to_their_bound(values: list[float]) -> None:
    limbs = encode_wide(np.array(values))
    assert limbs.max(initial=0) < 2**48
    exact = [Fraction(value) * 2**WIDE_EXPONENT for value in values]
    assert [integer(own) for own in limbs.view(np.int64)] == exact
    total = decode_wide(limbs.sum(axis=0, keepdims=True, dtype=np.uint64))
    error = abs(Fraction(float(total[0])) - sum(map(Fraction, values)))
    assert error <= Fraction(float(wide_errors(total, len(values))[0]))


def test_a_small_wide_number_is_rounded_to_the_nearest() -> None:
    unit = 2.0**-WIDE_EXPONENT
    limbs = encode_wide(unit * np.array([0.49, 0.51, -0.51, 1.6, 0.0]) * np.ones(5))
    assert [integer(own) for own in limbs.view(np.int64)] == [0, 1, -1, 2, 0]


@pytest.mark.parametrize("agents", [3, 1000, WIDE_AGENTS - 1])
def test_the_largest_wide_numbers_of_all_agents_add_up_and_larger_ones_do_not_fit(agents: int) -> None:
    limit = 2.0 ** (127 - agents.bit_length())
    largest = np.array([np.nextafter(limit, 0.0), -np.nextafter(limit, 0.0)])
    assert fits_wide(largest, agents)
    assert not fits_wide(np.array([limit]), agents)
    total = encode_wide(largest) * np.uint64(agents)
    np.testing.assert_allclose(decode_wide(total), agents * largest, rtol=1e-15)
    assert agents * (2**48 - 1) < 2**63


def test_numbers_that_are_all_too_small_for_wide_ones_are_told() -> None:
    assert not fits_wide(np.array([0.0, 2.0**-71]), 3)
    assert fits_wide(np.array([1.0, 2.0**-71]), 3)
    assert fits_wide(np.zeros(2), 3)


def test_limbs_are_carried_mod_two_to_the_240() -> None:
    top = np.zeros((1, LIMBS), dtype=np.int64)
    top[0] = [-1, 0, 0, 0, 5 << 48]
    assert carried(top).tolist() == [[2**48 - 1] * LIMBS]
