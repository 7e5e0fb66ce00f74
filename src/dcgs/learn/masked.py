"""Masked reductions: what ``sums`` computes from open messages, from sums of masked words.

A sum that all agents learn is flooded where that takes less time, as an open one is. What the root alone may
read is summed along the tree.

Sums, counts of texts and flags are those of ``dcgs.secure``. An extreme number is found by flags, eight bits
in each of at most eight sums: all agents learn the number, and not whose it is. Sums end where no number that
may be the largest has further bits, which is told by a flag. A bound is the power of two above it.
Unions are of what all sites know once they have agreed, such as names of columns, and are not masked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.methods.reduction import Place, Value, added, answer_for_all, tree_answer
from dcgs.protocol import Program, side_by_side
from dcgs.secure.session import SecureSums
from dcgs.secure.sum import POWERS, Reduce, secure_answer, secure_any, secure_max, secure_powers
from dcgs.secure.union import secure_union
from dcgs.tree import TreeNode

if TYPE_CHECKING:
    from dcgs.learn.sums import Request

Total: TypeAlias = Callable[..., Program[Value]]
"""Returns the sums of arrays over all agents."""
Agreed: TypeAlias = Callable[[Sequence[NDArray[Any]], "TreeNode", Value], Program[tuple[list[Any], Value]]]
"""Returns unions of texts along the tree, and the sums of arrays that go with them."""

SHORT = 1024
"""An array of one dimension with at most this many numbers is wide, or has an exponent for each."""


def network_total(place: Place, secure: SecureSums | None, name: str) -> Total:
    """Return how an agent adds up arrays over the network; masked, unless ``secure`` is None."""

    def total(*arrays: NDArray[np.float64]) -> Program[Value]:
        reduce = partial(answer_for_all, place=place)
        if secure is None:
            return (yield from reduce(arrays, answer=_same))
        yield from secure.begin(reduce)
        names = [f"{name} {array.shape}" for array in arrays]
        return (yield from secure.answer(arrays, reduce, _same, names))

    return total


def masked_results(
    requests: Sequence[Request],
    i: int,
    packed: Mapping[int, NDArray[Any]],
    agreed: Agreed,
    place: Place,
    secure: SecureSums,
) -> Program[list[Any]]:
    """Return the results of requests for agent i; all of them or none are unions of texts.

    ``packed`` has its texts, which ``agreed`` unites. The sums that requests take at the same time are one;
    along the tree if the root alone may read one.
    """
    for_all = partial(answer_for_all, place=place)
    by_root = partial(tree_answer, tree=place.node, combine=added)
    kinds = [request.operation for request in requests]
    if all(kind == "union" for kind in kinds):
        return (yield from _unions([packed[k] for k in range(len(kinds))], agreed, place.node, secure))
    yield from secure.begin(for_all)
    sums = [k for k, kind in enumerate(kinds) if kind == "sum"]
    masked = [k for k, kind in enumerate(kinds) if kind != "sum"]
    programs = [_result(requests[k], i, secure) for k in masked]
    if sums:
        programs.append(_sums([requests[k] for k in sums], i, secure))
    together, totals = side_by_side(*programs), None
    while True:
        try:
            asked: list[_Asked] = together.send(totals)
        except StopIteration as end:
            answers = end.value
            break
        totals = yield from _as_one(asked, by_root if any(some.by_root for some in asked) else for_all)
    results = dict(zip(masked, answers, strict=False))
    results |= dict(zip(sums, answers[-1] if sums else (), strict=True))
    return [results[k] for k in range(len(requests))]


def _unions(
    texts: Sequence[NDArray[Any]], agreed: Agreed, tree: TreeNode, secure: SecureSums
) -> Program[list[Any]]:
    """Return unions; the keys of masked sums, if they are not known, go with the texts."""
    unions = list[Any]()

    def with_texts(value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
        found, total = yield from agreed(texts, tree, value)
        unions.extend(found)
        return answer(total)

    yield from secure.begin(with_texts)
    if not unions:
        unions, _ = yield from agreed(texts, tree, ())
    return unions


@final
@dataclass(frozen=True, eq=False)
class _Asked:
    """A sum that a program waits for; ``by_root`` if the root alone may read the total."""

    value: Value
    answer: Callable[[Value], Value]
    by_root: bool


def _asking(by_root: bool) -> Reduce:
    """Return a reduction that waits for others, to be one with them."""

    def reduce(value: Value, *, answer: Callable[[Value], Value]) -> Any:
        return (yield _Asked(value, answer, by_root))

    return reduce


_FOR_ALL, _BY_ROOT = _asking(False), _asking(True)


def _as_one(asked: Sequence[_Asked], reduce: Reduce) -> Program[list[Value]]:
    """Return the answers of several sums, by one."""

    def answer(totals: Value) -> Value:
        flat = iter(totals)
        answers = [some.answer(tuple(islice(flat, len(some.value)))) for some in asked]
        return np.array([len(given) for given in answers], dtype=float), *chain(*answers)

    value = tuple(array for some in asked for array in some.value)
    lengths, *flat = yield from reduce(value, answer=answer)
    rest = iter(flat)
    return [tuple(islice(rest, length)) for length in lengths.astype(int).tolist()]


def _sums(requests: Sequence[Request], i: int, secure: SecureSums) -> Program[list[Value]]:
    """Return the results of requests for sums."""
    arrays = [[np.asarray(array, dtype=np.float64) for array in request.values[i]] for request in requests]
    names = [
        f"{request.name} {place}"
        for request, local in zip(requests, arrays, strict=True)
        for place in range(len(local))
    ]

    def answer(total: Value) -> Value:
        flat, answered = iter(total), list[Any]()
        for request, local in zip(requests, arrays, strict=True):
            totals = list(islice(flat, len(local)))
            answered += totals if request.answer is None else request.answer(totals)
        return tuple(answered)

    by_root = any(request.answer is not None for request in requests)
    value = tuple(array for local in arrays for array in local)
    total = yield from secure.answer(value, _BY_ROOT if by_root else _FOR_ALL, answer, names)
    rest = iter(total)
    return [tuple(islice(rest, len(local))) for local in arrays]


def _result(request: Request, i: int, secure: SecureSums) -> Program[Any]:
    """Return the result of a request for anything else but a union."""
    if request.operation == "counts":
        floors = request.floors or Floors(1, 1)
        return (yield from secure_union(request.values[i], floors, secure.masked(_BY_ROOT), request.name))
    local = [np.asarray(array, dtype=np.float64) for array in request.values[i]]
    flat = np.concatenate([np.zeros(0), *(array.reshape(-1) for array in local)])
    if request.answer is not None:
        return (yield from _answered(flat, request.answer, secure, _BY_ROOT, request.name))
    totals = yield from _OPERATIONS[request.operation](flat, secure, _FOR_ALL, request.name)
    parts = np.split(totals, np.cumsum([array.size for array in local])[:-1])
    return tuple(part.reshape(array.shape) for part, array in zip(parts, local, strict=True))


def _any(flags: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    raised = yield from secure_any(flags > 0.0, secure.masked(reduce), name)
    return raised.astype(np.float64)


def _max(numbers: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    return secure_max(numbers, secure.masked(reduce), name)


def _min(numbers: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    largest = yield from _max(-numbers, secure, reduce, name)
    return np.asarray(-largest)


def _bound(numbers: NDArray[Any], secure: SecureSums, reduce: Reduce, name: str) -> Program[NDArray[Any]]:
    """Return a power of two that the sizes of all agents' numbers do not reach."""
    powers = yield from secure_powers(np.abs(numbers), POWERS, secure.masked(reduce), name)
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


def _same(total: Value) -> Value:
    return total


_OPERATIONS: dict[str, Callable[..., Program[NDArray[Any]]]] = {
    "any": _any,
    "max": _max,
    "min": _min,
    "bound": _bound,
    "integers": _integers,
}
