"""Masked reductions: what ``sums`` computes from open messages, from sums of masked words.

On a complete graph a sum that all agents learn takes one round: each sends its masked words to all others.
What the root alone may read is summed along the tree, as are long arrays, whose words would be many.

Sums, counts of texts and flags are those of ``dcgs.secure``. An extreme number is found by flags, eight bits
in each of eight sums: all agents learn the number, and not whose it is. A bound is the power of two above it.
Unions are of what all sites know once they have agreed, such as names of columns, and are not masked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.methods.reduction import Value, added, tree_answer
from dcgs.protocol import Program
from dcgs.secure.session import SecureSums
from dcgs.secure.sum import Reduce, complete_answer, secure_answer, secure_any, secure_powers
from dcgs.secure.union import secure_union
from dcgs.tree import TreeNode

if TYPE_CHECKING:
    from dcgs.learn.sums import Request

Total: TypeAlias = Callable[..., Program[Value]]
"""Returns the sums of arrays over all agents."""

SHORT = 1024
"""An array of one dimension with at most this many numbers has an exponent for each."""
# A sum on a complete graph whose messages have at most so many bytes in all takes one round.
_ONE_ROUND = 1 << 20
_BITS = 8
_POWERS = np.array([-1072, *range(-128, 265, 8), 512, 1024])


def along(tree: TreeNode) -> Reduce:
    """Return the reduction along the spanning tree."""
    return partial(tree_answer, tree=tree, combine=added)


def for_all(tree: TreeNode, is_complete: bool, agents: int) -> Reduce:
    """Return the reduction of words whose total all agents learn."""

    def reduce(value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
        sent = agents * (agents - 1) * sum(array.nbytes for array in value)
        if is_complete and sent <= _ONE_ROUND:
            return complete_answer(value, answer=answer)
        return along(tree)(value, answer=answer)

    return reduce


def network_total(tree: TreeNode, is_complete: bool, secure: SecureSums | None, name: str) -> Total:
    """Return how an agent adds up arrays over the network; masked, unless ``secure`` is None."""

    def total(*arrays: NDArray[np.float64]) -> Program[Value]:
        if secure is None:
            return (yield from along(tree)(arrays, answer=_same))
        reduce = for_all(tree, is_complete, secure.agents)
        yield from secure.begin(reduce)
        names = [f"{name} {array.shape}" for array in arrays]
        return (yield from secure.answer(arrays, reduce, _same, names))

    return total


def masked_results(
    requests: Sequence[Request],
    i: int,
    packed: Mapping[int, Any],
    tree: TreeNode,
    is_complete: bool,
    secure: SecureSums,
) -> Program[list[Any]]:
    """Return the results of requests for agent i; ``packed`` has its texts of unions as one array."""
    by_root, reduce = along(tree), for_all(tree, is_complete, secure.agents)
    results: list[Any] = [None] * len(requests)
    yield from secure.begin(reduce)
    sums = [k for k, request in enumerate(requests) if request.operation == "sum"]
    arrays = {k: [np.asarray(array, dtype=np.float64) for array in requests[k].values[i]] for k in sums}
    if sums:
        names = [f"{requests[k].name} {place}" for k in sums for place in range(len(arrays[k]))]
        value = tuple(array for k in sums for array in arrays[k])

        def answer(total: Value) -> Value:
            flat, answered = iter(total), list[Any]()
            for k in sums:
                totals, compute = [next(flat) for _ in arrays[k]], requests[k].answer
                answered += totals if compute is None else compute(totals)
            return tuple(answered)

        computes = any(requests[k].answer is not None for k in sums)
        rest = iter((yield from secure.answer(value, by_root if computes else reduce, answer, names)))
        for k in sums:
            results[k] = tuple(next(rest) for _ in arrays[k])
    for k, request in enumerate(requests):
        if request.operation in _OPERATIONS:
            local = [np.asarray(array, dtype=np.float64) for array in request.values[i]]
            flat = np.concatenate([np.zeros(0), *(array.reshape(-1) for array in local)])
            if request.answer is not None:
                results[k] = yield from _answered(flat, request.answer, secure, by_root, request.name)
                continue
            totals = yield from _OPERATIONS[request.operation](flat, secure, reduce, request.name)
            parts = np.split(totals, np.cumsum([array.size for array in local])[:-1])
            results[k] = tuple(part.reshape(a.shape) for part, a in zip(parts, local, strict=True))
        elif request.operation == "counts":
            floors = request.floors or Floors(1, 1)
            masked = secure.masked(by_root)
            results[k] = yield from secure_union(request.values[i], floors, masked, request.name)
        elif request.operation == "union":
            results[k] = yield from packed[k](tree)
    return results


def _any(flags: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    raised = yield from secure_any(flags > 0.0, secure.masked(reduce), name)
    return raised.astype(np.float64)


def _max(numbers: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    """Return the largest number of all agents, entry by entry."""
    keys, known = _ordered(numbers), np.zeros(len(numbers), dtype=np.uint64)
    steps, is_ahead = np.arange(1 << _BITS, dtype=np.uint64), np.ones(len(numbers), dtype=bool)
    for shift in range(64 - _BITS, -1, -_BITS):
        digits = (keys >> np.uint64(shift)) & np.uint64((1 << _BITS) - 1)
        flags = is_ahead[:, None] & (digits[:, None] >= steps)  # tells the largest digit alone
        raised = yield from secure_any(flags.reshape(-1), secure.masked(reduce), f"{name}, bits {shift}")
        largest = raised.reshape(flags.shape).sum(axis=1).astype(np.uint64) - np.uint64(1)
        known |= largest << np.uint64(shift)
        is_ahead &= digits == largest
    return _number(known)


def _min(numbers: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    largest = yield from _max(-numbers, secure, reduce, name)
    return np.asarray(-largest)


def _bound(numbers: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    """Return a power of two that the sizes of all agents' numbers do not reach."""
    powers = yield from secure_powers(np.abs(numbers), _POWERS, secure.masked(reduce), name)
    return np.ldexp(1.0, np.minimum(powers, 1023))


def _integers(numbers: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    """Return the sums of whole numbers, exactly. No sum of magnitudes comes first: noise may be in them."""
    program = secure_answer((numbers,), secure.masked(reduce), lambda total: total.arrays, (0,), name)
    (total,), _ = yield from program
    return total


def _answered(
    numbers: NDArray[Any], answer: Callable[[Any], Any], secure: SecureSums, reduce: Reduce, name: str
) -> Program[Value]:
    """Return what the root makes of the sums of whole numbers, which nobody else reads."""
    masked = secure.masked(reduce)
    answered, _ = yield from secure_answer(
        (numbers,), masked, lambda total: tuple(answer([*total.arrays])), (0,), name
    )
    return answered


def _ordered(numbers: NDArray[np.float64]) -> NDArray[np.uint64]:
    """Return integers in the order of the numbers."""
    bits = (numbers + 0.0).view(np.uint64)
    sign = np.uint64(1 << 63)
    return np.where(bits & sign, ~bits, bits | sign)


def _number(keys: NDArray[np.uint64]) -> NDArray[np.float64]:
    sign = np.uint64(1 << 63)
    return np.where(keys & sign, keys & ~sign, ~keys).view(np.float64)


def _same(total: Value) -> Value:
    return total


_OPERATIONS: dict[str, Callable[..., Program[NDArray[Any]]]] = {
    "any": _any,
    "max": _max,
    "min": _min,
    "bound": _bound,
    "integers": _integers,
}
