"""The rules for what a user gives: what they take, what they return, and what they say."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dcgs.validation import (
    COUNT,
    FLAG,
    PATH,
    POSITIVE,
    SHAPE,
    Rule,
    matrix,
    one_of,
    reals,
    shown,
    vector,
    whole,
)


@pytest.mark.parametrize("value", [2, 2.0, np.int8(2), np.float32(2.0), Fraction(4, 2)], ids=repr)
def test_a_number_may_be_pythons_or_numpys_and_becomes_a_float(value: Any) -> None:
    assert POSITIVE(value, "radius") == 2.0
    assert type(POSITIVE(value, "radius")) is float


@pytest.mark.parametrize(
    "value", [True, np.True_, "2", None, 2j, math.nan, math.inf, 0, 10**400, np.array(2.0), [2.0]], ids=shown
)
def test_a_number_is_no_flag_no_text_no_array_and_finite(value: Any) -> None:
    with pytest.raises(ValueError, match=r"^radius must be a positive finite number; got .*\.$"):
        POSITIVE(value, "radius")


@pytest.mark.parametrize(
    ("rule", "value", "read"),
    [
        (COUNT, np.uint16(3), 3),
        (whole(1, 5), 5, 5),
        (FLAG, np.False_, False),
        (one_of("a", "b"), "b", "b"),
        (PATH, Path("a") / "b", Path("a/b")),
        (SHAPE, np.int64(3), (3,)),
        (SHAPE, [2, 3], (2, 3)),
    ],
)
def test_a_rule_returns_the_value_in_the_type_that_is_computed_with(
    rule: Rule[object], value: object, read: object
) -> None:
    assert rule(value, "it") == read
    assert rule.or_none(None, "it") is None


@pytest.mark.parametrize(
    ("rule", "value", "message"),
    [
        (whole(1, 5, "the rows"), 6, "it must be a whole number between 1 and 5, the rows; got 6."),
        (FLAG, 1, "it must be True or False; got 1."),
        (one_of("a", "b", also=("None",)), [1], "it must be 'a', 'b' or None; got [1]."),
        (PATH, "a\0b", r"it must be a path; got 'a\x00b'."),
    ],
)
def test_a_message_says_what_must_hold_and_what_was_given(
    rule: Rule[object], value: object, message: str
) -> None:
    with pytest.raises(ValueError, match=r"^it must be ") as caught:
        rule(value, "it")
    assert str(caught.value) == message


def test_a_shape_that_cannot_be_addressed_is_refused_before_memory_is_taken() -> None:
    with pytest.raises(
        ValueError, match=r"with at most 2\*\*60 entries; got \(1099511627776, 1099511627776\)"
    ):
        SHAPE((2**40, 2**40), "shape")


def test_arrays_of_float64_are_not_copied() -> None:
    A, b = np.ones((2, 3)), np.ones(3)
    assert matrix(A, "A") is A
    assert np.shares_memory(vector(b, "b"), b)
    assert not vector(b, "b").flags.writeable
    sparse = sp.csr_array(A)
    assert np.shares_memory(matrix(sparse, "A").data, sparse.data)


def test_a_mask_without_masked_entries_hides_nothing() -> None:
    assert reals(np.ma.array([1.0, 2.0]), "b").tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.ones((2, 3)), "an array of float64 and shape (2, 3)"),
        (sp.csr_array((2, 3)), "a sparse matrix of float64 and shape (2, 3)"),
        (10**5000, "<int>"),
        (list(range(10**5)), "[0, 1, 2, 3, 4, 5, ...]"),
        (type("Long", (), {"__repr__": lambda _: "a\nb"})(), "<Long>"),
    ],
    ids=["array", "sparse", "digits", "list", "lines"],
)
def test_a_value_is_quoted_in_one_short_line(value: object, text: str) -> None:
    assert shown(value) == text
