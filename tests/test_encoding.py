"""Encoded arrays: no bit is lost in any form, the shortest form is taken, damage never goes unnoticed."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dcgs.runtime.encoding import Array, Buffer, EncodedArray, EncodingError, read_all
from dcgs.runtime.messages import Packet

# What one could take for zero, or for a number that need not be exact.
ODD = [-0.0, math.inf, -math.inf, math.nan]
# The types that are written by their nonzero entries: the least and the largest numbers, and all others.
FLOATING: list[Any] = [
    (np.float64, [5e-324, -5e-324, float(np.finfo(np.float64).max)], st.floats(width=64)),
    (np.float32, [2.0**-149, -(2.0**-149), float(np.finfo(np.float32).max)], st.floats(width=32)),
]
# The description of a vector: form, type, dimensions and number of entries in 16 bytes, then one side.
HEAD = 16 + 8


def encoded(array: Array) -> Buffer:
    """Return the bytes of an array, written into a buffer that has been used before."""
    one = EncodedArray(array)
    buffer: Buffer = np.full(one.nbytes, 0xAB, dtype=np.uint8)
    one.write(buffer)
    return buffer


def described(buffer: Buffer, count: int, *sides: int, form: int = 1) -> Buffer:
    """Return the buffer with another description at its start."""
    numbers = np.array([count, *sides], dtype=np.uint64).view(np.uint8)
    start = np.array([form, 1, len(sides), 0, 0, 0, 0, 0], dtype=np.uint8)
    return np.concatenate([start, numbers, buffer])


@st.composite
def sparse_arrays(draw: st.DrawFn) -> Array:
    """Return arrays of any shape, of which some share of entries is zero, in any memory order."""
    shape = draw(array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=9))
    dtype, limits, numbers = draw(st.sampled_from(FLOATING))
    entries = st.sampled_from(ODD) | st.sampled_from(limits) | numbers
    made: Array = draw(arrays(dtype, shape, elements=entries, fill=st.just(0.0)))
    return made.T if draw(st.booleans()) else made


@settings(max_examples=80, deadline=None, derandomize=True)
@given(array=sparse_arrays())
def test_an_array_is_read_as_it_was_written_to_the_bit(array: Array) -> None:
    (back,) = read_all(encoded(array), 1)
    assert (back.shape, back.dtype) == (array.shape, array.dtype)
    assert back.tobytes() == array.tobytes()


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8, np.uint64])
@pytest.mark.parametrize("size", [0, 1, 5, 15, 16, 17, 100])
def test_arrays_of_every_type_and_size_follow_each_other(dtype: Any, size: int) -> None:
    first, second = np.arange(size).astype(dtype), np.eye(3)
    buffer = np.concatenate([encoded(first), encoded(second)])
    back = read_all(buffer, 2)
    assert [each.tobytes() for each in back] == [first.tobytes(), second.tobytes()]
    assert len(buffer) % 8 == 0  # all numbers are aligned


@pytest.mark.parametrize(
    ("nonzeros", "nbytes"),
    [
        (0, HEAD),
        (1, HEAD + 8 + 8),  # a position and padding, a value
        (2, HEAD + 8 + 16),
        (31, HEAD + 128 + 31 * 8),  # 1,000 bits are shorter than 31 positions
        (30, HEAD + 120 + 30 * 8),  # 30 positions are shorter than 1,000 bits
        (983, HEAD + 128 + 983 * 8),
        (984, HEAD + 8000),  # all of them
        (1000, HEAD + 8000),
    ],
)
def test_the_shortest_form_is_taken(nonzeros: int, nbytes: int) -> None:
    array = np.zeros(1000)
    array[:nonzeros] = 1.0
    assert EncodedArray(array).nbytes == len(encoded(array)) == nbytes


def test_the_shortest_form_of_short_numbers_is_taken() -> None:
    for nonzeros, nbytes in ((1, HEAD + 8 + 8), (31, HEAD + 128 + 128), (33, HEAD + 128 + 136)):
        array = np.zeros(1000, dtype=np.float32)
        array[:nonzeros] = 1.0
        assert EncodedArray(array).nbytes == len(encoded(array)) == nbytes
        assert read_all(encoded(array), 1)[0].dtype == np.float32


def test_a_negative_zero_is_not_taken_for_nothing() -> None:
    array = np.zeros(100)
    array[7] = -0.0
    (back,) = read_all(encoded(array), 1)
    assert math.copysign(1.0, back[7]) == -1.0
    assert EncodedArray(array).nbytes == HEAD + 8 + 8


@pytest.mark.parametrize("array", [np.eye(5), np.eye(9)[0], np.r_[np.ones(3), np.zeros(60)], np.zeros(0)])
def test_the_same_array_is_the_same_bytes_whatever_the_buffer_held(array: Array) -> None:
    """What is left of an older message, for another neighbor, must not travel in the padding."""
    one = EncodedArray(array)
    fresh: Buffer = np.zeros(one.nbytes, dtype=np.uint8)
    one.write(fresh)
    assert encoded(array).tobytes() == fresh.tobytes()
    text = np.frombuffer(b"text!", np.uint8)
    assert encoded(text).tobytes() == encoded(text.copy())[:].tobytes()
    assert encoded(text)[-3:].tolist() == [0, 0, 0]


SAMPLES: dict[str, Array] = {
    "dense": np.arange(1.0, 21.0),
    "indexed": np.r_[np.zeros(90), np.ones(3)],
    "bitmap": np.tile([0.0, 0.0, 1.0, 2.0], 20),
}


@settings(max_examples=150, deadline=None, derandomize=True)
@given(name=st.sampled_from(list(SAMPLES)), place=st.integers(0, 10**4), change=st.integers(1, 255))
def test_a_damaged_array_is_refused_or_read_and_never_crashes(name: str, place: int, change: int) -> None:
    buffer = encoded(SAMPLES[name])
    buffer[place % len(buffer)] ^= change
    with suppress(EncodingError):
        (back,) = read_all(buffer, 1)
        assert back.nbytes <= 1 << 40  # of zeros that take no memory


@settings(max_examples=100, deadline=None, derandomize=True)
@given(data=st.binary(max_size=200), count=st.integers(0, 3))
def test_any_bytes_are_refused_or_read_and_never_crash(data: bytes, count: int) -> None:
    with suppress(EncodingError):
        assert len(read_all(np.frombuffer(data, np.uint8), count)) == count


EMPTY: Buffer = np.empty(0, dtype=np.uint8)
HUGE = (1 << 64) - 1


@pytest.mark.parametrize(
    ("buffer", "words"),
    [
        (encoded(np.ones(3))[:10], "ends within the description"),
        (encoded(np.ones(3))[:-8], r"size of an array of shape \(3,\) is not that of its 3 entries"),
        (np.append(encoded(np.ones(3)), EMPTY.dtype.type(0)), "1 bytes are left over"),
        (described(EMPTY, 0, form=7), "of form 7, type 1 and 0 dimensions is not known"),
        (described(EMPTY, 0, *[1] * 9), "9 dimensions is not known"),
        (described(EMPTY, 2, 3), "not that of its 2 entries"),
        (described(EMPTY, 0, 0, HUGE), "cannot be in memory"),
        (described(EMPTY, 0, 0, 1 << 40, 1 << 40), "cannot be in memory"),
        (described(EMPTY, 0, HUGE, form=2), "cannot be in memory"),
        (described(EMPTY, 0, 1 << 40, form=2), "cannot be in memory"),
        (described(np.zeros(24, dtype=np.uint8), 2, 40, form=2), "not in increasing order"),
        (described(np.zeros(16, dtype=np.uint8), 1, 40, form=3), "do not mark 1 entries"),
    ],
)
def test_bytes_that_are_no_array_are_refused_with_the_reason(buffer: Buffer, words: str) -> None:
    with pytest.raises(EncodingError, match=words):
        read_all(buffer, 1)


def test_a_position_beyond_the_array_is_refused() -> None:
    buffer = encoded(SAMPLES["indexed"])
    buffer[HEAD + 8 : HEAD + 12].view(np.uint32)[:] = 93
    with pytest.raises(EncodingError, match="not in increasing order within the array"):
        read_all(buffer, 1)


@pytest.mark.parametrize("size", [3, 100, 40_000])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused_with_the_senders_name(bad: float, size: int) -> None:
    array = np.zeros(size)
    array[size - 2] = bad
    with pytest.raises(FloatingPointError, match=rf"finite; agent 4 sent {bad} at \({size - 2},\)\.$"):
        Packet(4, array)
    with pytest.raises(FloatingPointError, match=rf"finite; agent 4 sent {bad} at \({size - 2},\)\.$"):
        Packet(4, (np.zeros(2), array))


def test_numbers_whose_squares_overflow_are_finite() -> None:
    assert Packet(0, np.full(30, 1e300)).parts[0].is_finite
