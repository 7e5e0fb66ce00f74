"""Reductions of masked values: the root reads the total of all agents, and nothing else.

An agent sends one array of words, masked as a whole:

    1 | a word for each flag | check of the flags | values | four words of check of the values

A value is a word, or the five limbs of a wide number. Sums of limbs would tell more than their total: what
was carried. So each agent first adds pads to its wide numbers that cancel mod 2²⁴⁰. Their limbs, which are
masked as all words are, are then those of random numbers with the right total.

*Agents.* The first words must add up to the number of agents. If keys differ, a pad does not cancel and the
total is random: it is noticed with the probability 1 − 2⁻⁶⁴.

*Flags.* The word of a flag is 0, or random and known to its agent only. The total is 0 if no agent has raised
the flag, and otherwise a random word, which does not tell which agents, nor how many; it is 0 as well
with the probability 2⁻⁶⁴. So flags are a logical or. For sums of numbers a flag says that an agent's array is
too large for the exponent. That agent then sends random words in place of all values: the total of the others
must not be readable, since the next attempt gives the total of all. All agents repeat the sum with a smaller
exponent. So rounds are spent only if the first guess of the exponent was too large. Flags of magnitudes tell
how large values are, and hide none.

*Checks.* Let rₖ be random words that all agents derive from the transcript, the counter and the name of the
sum, and qₖ the values. Every agent sends Σₖ rₖ qₖ mod 2¹²⁸, as four numbers of 32 bits. Totals of values do
not exceed 2⁶³, so that their integers Qₖ are known, and the total of the checks must be Σₖ rₖ Qₖ. Let δ be
the errors of the totals, and δₖ = 2ᵃ · odd with a < 64 one that is not 0. Then rₖ δₖ mod 2¹²⁸ is different
for all 2⁶⁴ words rₖ, and at most one of them hides the errors: errors that do not depend on r are missed with
a probability of at most 2⁻⁶⁴. Totals of flags are known mod 2⁶⁴ only, and so is their check. It misses an
error whose lowest wrong bit is bit a with the probability 2^(a − 64), which is ½ for the highest bit. A
missed error raises a flag that nobody has raised: a sum is repeated in vain, or a magnitude is too large. No
total of values is wrong. Checks find accidents: other keys, other names or shapes, a bit that changed on its
way. They do not stop an agent that wants to send a wrong value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Protocol, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.secure.fixed_point import (
    LEAST_EXPONENT,
    LIMBS,
    MOST_EXPONENT,
    Exponent,
    Integers,
    Words,
    decode,
    decode_wide,
    encode_some,
    encode_wide,
    entry_error,
    entry_errors,
    fits_wide,
    largest_integer,
    wide_errors,
)
from dcgs.secure.masks import Masks

Value: TypeAlias = tuple[NDArray[Any], ...]
Flags: TypeAlias = NDArray[np.bool_]

EXPONENT_STEP = 16
"""By so much an exponent is lowered if a value is too large for it."""
MAGNITUDE_STEP = 8
"""Magnitudes are multiples of this number."""
POWERS = np.array([-1072, *range(-128, 265, 8), 512, 1024])
"""The powers of two as which magnitudes are told."""
# The bits, from a power of two that an array does not reach: eight more than its largest number has.
LEAST_BITS = 48
_CHECK_WORDS = 4
# The bits of a maximum that one sum finds.
_BITS = 8
# Products of 16-bit numbers, of which so many are added up exactly in float64.
_CHUNK = 1 << 20
# All |float64| are below 2^1024; those below 2^−1072 are told as that.
_MAGNITUDES = np.arange(-1072, 1025, MAGNITUDE_STEP)


class SecureSumError(RuntimeError):
    """Raised when a total is not that of all agents: masks did not cancel, or a message was changed."""


class Reduce(Protocol):
    """A reduction that adds up arrays of words, such as one along a tree.

    ``partial(tree_answer, tree=tree, combine=added)`` and ``partial(network_answer, agent=agent)`` are such.
    """

    def __call__(self, value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
        """Return at all agents what the root computes from the sum of all agents' values."""


@final
@dataclass(frozen=True, eq=False)
class MaskedReduction:
    """How one agent masks its words, and how the words of all agents are added up."""

    masks: Masks
    reduce: Reduce


@final
@dataclass(frozen=True, eq=False)
class Total:
    """What the root reads: the total of every array, and a bound of the error of each of its entries.

    The bound is a number, or an array where each entry has its own exponent.
    """

    arrays: tuple[NDArray[np.float64], ...]
    errors: tuple[Any, ...]


def secure_answer(
    value: Value,
    reduction: MaskedReduction,
    answer: Callable[[Total], Value],
    exponents: Sequence[Exponent],
    name: str,
) -> Program[tuple[Value, tuple[Any, ...]]]:
    """Return at all agents what the root computes from the total, and the exponents that were used.

    There is one exponent for each array of float64, or an array with one for each of its numbers; all agents
    have the same ones. An exponent that is too large for some agent is lowered, and the sum repeated. Begin
    the next sum of this kind with the exponents that are returned. Only the root calls ``answer``.
    """
    tried = tuple(exponents)
    if not all(np.all((np.asarray(e) >= LEAST_EXPONENT) & (np.asarray(e) <= MOST_EXPONENT)) for e in tried):
        raise ValueError(
            f"exponents must be between {LEAST_EXPONENT} and {MOST_EXPONENT}; got {list(tried)}."
        )
    while True:
        summed = yield from sum_once(value, reduction, answer, tried, name)
        if summed.answered is not None:
            return summed.answered, tried
        tried = tuple(lowered(e, high) for e, high in zip(tried, summed.too_large, strict=True))


@final
@dataclass(frozen=True, eq=False)
class Summed:
    """What all agents know after a sum: the answer, or None, and what was too large for its exponent.

    There are flags for each array, one, or one for each number where each has an exponent. ``powers`` are
    those of the arrays for which they were asked: for each one of ``POWERS`` that the sizes of all
    numbers do not reach.
    """

    answered: Value | None
    too_large: tuple[Flags, ...]
    powers: tuple[int, ...]


def sum_once(
    value: Value,
    reduction: MaskedReduction,
    answer: Callable[[Total], Value],
    exponents: Sequence[Exponent | None],
    name: str,
    told: Sequence[int] = (),
) -> Program[Summed]:
    """Add up the values of all agents by one sum; the exponents of wide arrays are None.

    A wide array counts as too large also where its numbers are too small for wide ones. ``told`` are the
    places of arrays whose magnitude all agents are to know. If one of them has fewer than 40 bits with the
    exponent that is given, there is no answer either.
    """
    agents, shapes = reduction.masks.agents, [array.shape for array in value]
    narrow, flags = list[Words](), list[Flags]()
    for array, e in zip(value, exponents, strict=True):
        if e is None:
            encode_some(array, 0, agents)  # raises unless all are finite
            flags.append(np.array([not fits_wide(array, agents)]))
        else:
            integers, large = encode_some(array, e, agents)
            narrow.append(integers.reshape(-1))
            flags.append(np.array([large.any()]) if np.ndim(e) == 0 else large.reshape(-1))
    wide = [array.reshape(-1) for array, e in zip(value, exponents, strict=True) if e is None]
    limbs = encode_wide(np.where(any(f.any() for f in flags), 0.0, np.concatenate([np.zeros(0), *wide])))

    def powers_of(magnitudes: Flags) -> list[int]:
        powers: list[int] = POWERS[magnitudes.reshape(above.shape).sum(axis=1)].tolist()
        return powers

    def is_rough(powers: Sequence[int]) -> bool:
        """Return True if an exponent is too small for its array; zeros have any."""
        pairs = zip((exponents[k] for k in told), powers, strict=True)
        return any(isinstance(e, int) and POWERS[0] < b < LEAST_BITS - e for e, b in pairs)

    def opened(totals: Words, magnitudes: Flags) -> Value:
        if is_rough(powers_of(magnitudes)):
            return ()
        arrays, errors, cut = list[Point](), list[Any](), sum(map(len, narrow))
        words, numbers = totals[:cut], decode_wide(totals[cut:].reshape(-1, LIMBS))
        for shape, e in zip(shapes, exponents, strict=True):
            size = math.prod(shape)
            if e is None:
                arrays.append(numbers[:size].reshape(shape))
                bounds = wide_errors(arrays[-1], agents)
                errors.append(bounds if len(shape) <= 1 else float(bounds.max(initial=0.0)))
                numbers = numbers[size:]
            else:
                arrays.append(decode(words[:size].reshape(shape), e))
                errors.append(
                    entry_error(arrays[-1], e, agents)
                    if isinstance(e, int)
                    else entry_errors(arrays[-1], e, agents)
                )
                words = words[size:]
        return answer(Total(tuple(arrays), tuple(errors)))

    largest = np.array([np.abs(value[k]).max(initial=0.0) for k in told])
    above = _above(largest, POWERS)
    used = [None if e is None else np.asarray(e).tolist() for e in exponents]
    label = f"{name} of shapes {shapes} with exponents {used}"
    sent = _Sent(
        np.concatenate([np.zeros(0, dtype=np.bool_), *flags]),
        _joined([_NONE, *narrow]),
        limbs,
        above.reshape(-1),
    )
    raised, answered = yield from _masked_sum(sent, reduction, label, opened)
    cuts = np.cumsum([len(some) for some in flags])
    *too_large, magnitudes = np.split(raised, cuts) if flags else [raised]
    powers = powers_of(magnitudes)
    is_done = not any(some.any() for some in too_large) and not is_rough(powers)
    return Summed(answered if is_done else None, tuple(too_large), tuple(powers))


def lowered(exponent: Exponent, too_large: Flags) -> Exponent:
    """Return the exponent, or exponents, lowered where a number was too large."""
    if isinstance(exponent, int):
        return int(lowered(np.array([exponent]), too_large)[0]) if too_large.any() else exponent  # type: ignore[index]
    if (too_large & (exponent.reshape(-1) == LEAST_EXPONENT)).any():
        raise OverflowError(
            "values of a secure sum must be less than 2^1023 divided by the number of agents; those of some "
            "agent are not. Scale the data."
        )
    lower = np.maximum(LEAST_EXPONENT, exponent - EXPONENT_STEP)
    return np.where(too_large.reshape(exponent.shape), lower, exponent)


def secure_integers(
    values: Integers, reduction: MaskedReduction, answer: Callable[[Integers], Value], name: str
) -> Program[Value]:
    """Return at all agents what the root computes from the exact total of vectors of integers."""
    largest = largest_integer(reduction.masks.agents)
    if max(-int(values.min(initial=0)), int(values.max(initial=0))) > largest:
        # An error may be printed elsewhere: it has no value in it.
        raise OverflowError(
            f"integers of a secure sum of {reduction.masks.agents} agents must be between −{largest} and "
            f"{largest}; some of {name!r} are not."
        )
    sent = _Sent(np.zeros(0, dtype=np.bool_), values.view(np.uint64))
    label = f"{name} of {len(values)} integers"
    _, answered = yield from _masked_sum(
        sent, reduction, label, lambda total, _: answer(total.view(np.int64))
    )
    return answered


def secure_any(flags: Flags, reduction: MaskedReduction, name: str) -> Program[Flags]:
    """Return for each flag of a vector whether some agent has raised it; nobody learns who, nor how many."""
    sent = _Sent(flags, np.zeros(0, dtype=np.uint64))
    raised, _ = yield from _masked_sum(sent, reduction, f"{name} of {len(flags)} flags", lambda *_: ())
    return raised


def secure_max_exponent(value: Value, reduction: MaskedReduction, name: str) -> Program[tuple[int, ...]]:
    """Return for each array the least multiple b of 8 for which all entries of all agents are below 2^b.

    It is the maximum over all agents, from a logical or over thresholds: nobody learns another agent's b.
    ``exponent_for`` makes an exponent of it. The least b is −1072, also of zeros.
    """
    largest = np.array([np.abs(array).max(initial=0.0) for array in value])
    told = yield from secure_powers(largest, _MAGNITUDES, reduction, name)
    return tuple(told.tolist())


def secure_powers(sizes: Point, powers: Integers, reduction: MaskedReduction, name: str) -> Program[Integers]:
    """Return for each entry the least b of ``powers`` for which the sizes of all agents are below 2^b.

    The powers increase up to 1024; the first also stands for a size of 0.
    """
    above = _above(sizes, powers)
    raised = yield from secure_any(above.reshape(-1), reduction, name)
    return np.asarray(powers[raised.reshape(above.shape).sum(axis=1)])


def secure_max(numbers: Point, reduction: MaskedReduction, name: str) -> Program[Point]:
    """Return the largest number of all agents, entry by entry; nobody learns whose it is.

    Flags tell eight bits of it at a time, until no number that may be the largest has further bits.
    """
    keys, known = _ordered(numbers), np.zeros(len(numbers), dtype=np.uint64)
    steps, is_ahead = np.arange(1 << _BITS, dtype=np.uint64), np.ones(len(numbers), dtype=bool)
    for shift in range(64 - _BITS, -1, -_BITS):
        digits = (keys >> np.uint64(shift)) & np.uint64((1 << _BITS) - 1)
        flags = is_ahead[:, None] & (digits[:, None] >= steps)  # tells the largest digit alone
        lower = np.uint64((1 << shift) - 1)
        has_more = is_ahead & (_with_zeros(keys, lower) != keys)
        together = np.append(flags.reshape(-1), has_more)
        raised = yield from secure_any(together, reduction, f"{name}, bits {shift}")
        largest = raised[: flags.size].reshape(flags.shape).sum(axis=1).astype(np.uint64) - np.uint64(1)
        known |= largest << np.uint64(shift)
        is_ahead &= digits == largest
        if not raised[flags.size :].any():
            break
    return _number(_with_zeros(known, lower))


def _ordered(numbers: Point) -> Words:
    """Return integers in the order of the numbers."""
    bits = (numbers + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _with_zeros(keys: Words, lower: np.uint64) -> Words:
    """Return the keys of the numbers whose lower bits are 0; those of negative numbers are inverted."""
    return np.where(keys >> np.uint64(63) > 0, keys & ~lower, keys | lower)


def _number(keys: Words) -> Point:
    sign = np.uint64(1 << 63)
    return np.where(keys & sign, keys & ~sign, ~keys).view(np.float64)


def _above(sizes: Point, powers: Integers) -> Flags:
    """Return for each size which powers of two it reaches; a size of 0 reaches none."""
    own = np.where(sizes > 0.0, np.frexp(sizes)[1], powers[0])
    return np.asarray(own[:, None] > powers)


def complete_answer(value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
    """Return what every agent computes from the sum of all agents' words on a complete graph, in one round.

    Every agent reads the total here, not only a root.
    """
    inbox = yield value
    shapes = [array.shape for array in value]
    for j, theirs in inbox.items():
        if not isinstance(theirs, tuple) or [array.shape for array in theirs] != shapes:
            raise ValueError(
                f"a message must be a tuple of arrays of shapes {shapes}; that of agent {j} is not."
            )
    return answer(
        tuple(sum(arrays[1:], start=arrays[0]) for arrays in zip(value, *inbox.values(), strict=True))
    )


_NONE: Words = np.zeros(0, dtype=np.uint64)


@final
@dataclass(frozen=True, eq=False)
class _Sent:
    """What an agent sends, before masks: flags, values as words, and limbs of wide ones.

    A flag that is raised hides the values; flags of magnitudes do not.
    """

    flags: Flags
    values: Words
    limbs: Words = field(default_factory=lambda: np.zeros((0, LIMBS), dtype=np.uint64))
    magnitudes: Flags = field(default_factory=lambda: np.zeros(0, dtype=np.bool_))

    @property
    def counts(self) -> tuple[int, int]:
        """The number of words of flags, and of values."""
        return len(self.flags) + len(self.magnitudes), len(self.values) + self.limbs.size

    @property
    def size(self) -> int:
        return 1 + self.counts[0] + 1 + self.counts[1] + _CHECK_WORDS

    def words(self, masks: Masks, weights: Words) -> Words:
        """Return all words in their order; random values if a flag is raised."""
        flags, raised = np.zeros(self.counts[0], dtype=np.uint64), np.append(self.flags, self.magnitudes)
        values = _with_check(_joined([self.values, masks.hide(self.limbs, self.size).reshape(-1)]), weights)
        if raised.any():
            noise = masks.noise(len(flags) + len(values))
            flags = np.where(raised, noise[: len(flags)], flags)
            values = noise[len(flags) :] if self.flags.any() else values
        return _joined([np.ones(1, dtype=np.uint64), flags, _flag_check(flags, weights), values])


def _masked_sum(
    sent: _Sent, reduction: MaskedReduction, name: str, answer: Callable[[Words, Flags], Value]
) -> Program[tuple[Flags, Value]]:
    """Return which flags some agent has raised, and what the root computes from the values if none has."""
    masks, counter = reduction.masks, reduction.masks.counter
    weights = _weights(masks, name, sum(sent.counts))

    def opened(totals: Value) -> Value:
        error = f"in sum {counter}, {name!r}, of {masks.agents} agents"
        flags, values = _checked(totals, sent, masks.agents, weights, error)
        raised = flags != 0
        hiding, magnitudes = np.split(raised, [len(sent.flags)])
        return (raised.astype(np.uint8), *(() if hiding.any() else answer(values, magnitudes)))

    masked = masks.seal(sent.words(masks, weights), name)
    raised, *answered = yield from reduction.reduce((masked,), answer=opened)
    return raised != 0, tuple(answered)


def _checked(totals: Value, sent: _Sent, agents: int, weights: Words, error: str) -> tuple[Words, Words]:
    """Return the totals of flags and of values; raise unless they are those of all agents."""
    (total,) = totals
    if total.dtype != np.uint64 or total.shape != (sent.size,):
        raise SecureSumError(
            f"all agents must send {sent.size} words; {error} the total is an array of {total.dtype} and "
            f"shape {total.shape}."
        )
    if total[0] != agents:
        raise SecureSumError(
            f"masks must cancel; {error} they do not: the number of agents came out as {total[0]}. An agent "
            "has other keys, takes part in another sum, or is missing. Exchange keys anew."
        )
    flags, check, values = np.split(total[1:], [sent.counts[0], sent.counts[0] + 1])
    is_right = _flag_check(flags, weights) == check
    if not flags[: len(sent.flags)].any():
        is_right &= _check(values[:-_CHECK_WORDS], weights) == _from_limbs(values[-_CHECK_WORDS:])
    if not is_right:
        raise SecureSumError(
            f"the check of a total must be that of its values; {error} it is not. An agent takes part in "
            "another sum, or a message was changed on its way. See whether memory and network are in order."
        )
    return flags, values[:-_CHECK_WORDS]


def _weights(masks: Masks, name: str, size: int) -> Words:
    """Return random words that all agents know; another counter, name or transcript gives other ones."""
    content = masks.transcript + masks.counter.to_bytes(8, "little") + name.encode()
    key = int.from_bytes(sha256(content).digest()[:16], "little")
    words: Words = np.random.Philox(key=key).random_raw(size)
    return words


def _flag_check(flags: Words, weights: Words) -> Words:
    """Return Σ rₖ fₖ mod 2⁶⁴, as a vector of one word."""
    return np.array([(weights[: len(flags)] * flags).sum(dtype=np.uint64)])


def _with_check(values: Words, weights: Words) -> Words:
    check = _check(values, weights)
    limbs = [check >> 32 * k & 0xFFFFFFFF for k in range(_CHECK_WORDS)]
    return _joined([values, np.array(limbs, dtype=np.uint64)])


def _from_limbs(limbs: Words) -> int:
    return sum(int(limb) << 32 * k for k, limb in enumerate(limbs)) % 2**128


def _check(values: Words, weights: Words) -> int:
    """Return Σ rₖ qₖ mod 2¹²⁸, for signed values q.

    Words are cut into numbers of 16 bits, whose products are added up exactly in float64. A negative number
    is its word minus 2⁶⁴.
    """
    total, weights = 0, weights[len(weights) - len(values) :]
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        negative = part.view(np.int64) < 0
        digits = np.column_stack([_digits(part), negative])
        products = _digits(weights[start : start + _CHUNK]).T @ digits
        for (a, b), product in np.ndenumerate(products):
            total += (int(product) << 16 * (a + b)) * (-1 if b == 4 else 1)
    return total % 2**128


def _digits(words: Words) -> NDArray[np.float64]:
    """Return the four digits of 16 bits of each word, the lowest first."""
    return words.astype("<u8", copy=False).view("<u2").reshape(-1, 4).astype(np.float64)


def _joined(words: Sequence[Words]) -> Words:
    joined: Words = np.concatenate(words, dtype=np.uint64)
    return joined
