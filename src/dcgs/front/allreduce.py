"""Reductions over the network before or after a run: sums, extremes and unions, in counted rounds.

Agents add up counts, means or tables along the spanning tree of the graph. Nobody sees what another agent
has, but for the partial results that its neighbors in the tree send.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar, final

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcgs.front.network import as_network
from dcgs.methods.reduction import Combine, Value, added, tree_answer
from dcgs.protocol import Program
from dcgs.runtime import Job, Lockstep, Runtime, Traffic
from dcgs.tree import TreeNode
from dcgs.validation import finite, instance, one_of, reals, shown

Arrays: TypeAlias = Sequence[NDArray[Any]]
Answer = TypeVar("Answer")


@final
@dataclass(frozen=True, eq=False)
class Reduced:
    """What all agents know after a reduction, and what it cost.

    ``arrays`` are the combined arrays. ``messages`` and ``bytes`` count what each agent of this process sent;
    agents of other processes have 0 there.

    >>> import dcgs, networkx as nx
    >>> total = dcgs.allreduce([[1.0], [2.0], [3.0]], nx.path_graph(3))
    >>> total.arrays[0].item(), total.rounds
    (6.0, 2)
    """

    arrays: tuple[NDArray[np.float64], ...]
    rounds: int
    messages: NDArray[np.int64]
    bytes: NDArray[np.int64]


@final
@dataclass(frozen=True, eq=False)
class AgreedTexts:
    """The texts that all agents agreed on, in increasing order, and what that cost.

    >>> import dcgs, networkx as nx
    >>> levels = dcgs.agree_on_texts([["f"], ["m", "f"]], nx.path_graph(2))
    >>> levels.texts
    ('f', 'm')
    """

    texts: tuple[str, ...]
    rounds: int
    messages: NDArray[np.int64]
    bytes: NDArray[np.int64]


def allreduce(
    values: Sequence[Sequence[ArrayLike]] | Mapping[int, Sequence[ArrayLike]],
    graph: nx.Graph,
    runtime: Runtime | None = None,
    operation: str = "sum",
) -> Reduced:
    """Return the sum, or the elementwise ``"min"`` or ``"max"``, of the arrays of all agents.

    ``values`` has a sequence of arrays for each agent, of the same number and shapes for all; over MPI a
    mapping with those of the agents of this process. All agents get the same bits, after as many rounds as
    twice the height of a spanning tree.

    >>> total = allreduce([[1.0, [2.0, 3.0]], [10.0, [20.0, 30.0]]], nx.path_graph(2))
    >>> [array.tolist() for array in total.arrays], total.rounds
    ([11.0, [22.0, 33.0]], 2)
    """
    combine = _OPERATIONS[one_of(*_OPERATIONS)(operation, "operation")]
    numbers = {
        i: tuple(finite(reals(array, "values"), "values") for array in own)
        for i, own in _items(values, "values", graph)
    }
    shapes = {i: [array.shape for array in own] for i, own in numbers.items()}
    first = next(iter(shapes))
    for i, own in shapes.items():
        if own != shapes[first]:
            raise ValueError(
                f"values must have the same shapes for all agents; agent {first} has {shapes[first]}, "
                f"agent {i} has {own}."
            )
    flat = {i: tuple(array.reshape(-1) for array in own) for i, own in numbers.items()}
    total, traffic = _reduce(flat, graph, runtime, combine)
    arrays = tuple(array.reshape(shape) for array, shape in zip(total, shapes[first], strict=True))
    return Reduced(arrays, traffic.rounds, traffic.messages, traffic.bytes)


def agree_on_texts(
    texts: Sequence[Iterable[str]] | Mapping[int, Iterable[str]],
    graph: nx.Graph,
    runtime: Runtime | None = None,
) -> AgreedTexts:
    """Return the union of the texts of all agents, such as the levels of a category or the ids of items.

    >>> agree_on_texts([["b", "a"], ["c", "b"]], nx.path_graph(2)).texts
    ('a', 'b', 'c')
    """
    given = _items(texts, "texts", graph)
    odd = [text for _, own in given for text in own if not isinstance(text, str)]
    if odd:
        raise TypeError(f"texts must be of type str; got {shown(odd[0])}.")
    packed = {i: (_packed(own),) for i, own in given}
    (total,), traffic = _reduce(packed, graph, runtime, _union)
    return AgreedTexts(tuple(_unpacked(total)), traffic.rounds, traffic.messages, traffic.bytes)


def _items(values: Any, name: str, graph: nx.Graph) -> list[tuple[int, Any]]:
    """Return the agents and what each gives; raise unless each gives a sequence."""
    agents = len(as_network(graph))
    each = list(values.values()) if isinstance(values, Mapping) else values
    few = _is_collection(each) and 0 < len(each) <= agents
    if not few or not all(_is_collection(own) for own in each):
        raise TypeError(
            f"{name} must have a sequence for each of {agents} agents, such as a list of lists; "
            f"got {shown(values)}."
        )
    return list(values.items() if isinstance(values, Mapping) else enumerate(values))


def _is_collection(own: Any) -> bool:
    """Return True for a list and the like; False for a text and for an array without dimensions."""
    plain = isinstance(own, Collection) and not isinstance(own, str | bytes | Mapping)
    return plain and getattr(own, "ndim", 1) > 0


def _reduce(
    values: Mapping[int, Value], graph: nx.Graph, runtime: Runtime | None, combine: Combine
) -> tuple[Value, Traffic]:
    """Run one reduction; return its result and the traffic."""
    runtime = Lockstep() if runtime is None else runtime
    instance(runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
    hosted = list(runtime.hosts(len(graph)))
    if sorted(values) != hosted:
        raise ValueError(f"values must be given for the agents {hosted}; got them for {sorted(values)}.")

    def program(i: int, tree: TreeNode) -> Program[Value]:
        return tree_answer(values[i], tree, combine, lambda total: total, same_shapes=combine is not _union)

    results, traffic = run_programs(program, graph, runtime)
    return results[hosted[0]], traffic


def run_programs(
    program: Callable[[int, TreeNode], Program[Answer]], graph: nx.Graph, runtime: Runtime | None = None
) -> tuple[dict[int, Answer], Traffic]:
    """Run a program for every agent; return the answers of the agents of this process, and the traffic.

    ``program`` takes the number of an agent and its place in the spanning tree of the graph.
    """
    network, runtime = as_network(graph), (runtime or Lockstep()).in_rounds()
    results: dict[int, Answer] = {}
    traffic = Traffic(len(network))

    def recorded(i: int) -> Program[None]:
        results[i] = yield from program(i, network.tree[i])

    with runtime.group().reporting_failures():
        runtime.run(Job(recorded, network.neighbors, traffic, after_round=lambda: True))
    return dict(sorted(results.items())), traffic


def _elementwise(function: Callable[[Any, Any], Any]) -> Combine:
    return lambda a, b: tuple(function(one, other) for one, other in zip(a, b, strict=True))


_OPERATIONS: dict[str, Combine] = {
    "sum": added,
    "min": _elementwise(np.minimum),
    "max": _elementwise(np.maximum),
}


def _packed(texts: Iterable[str]) -> NDArray[Any]:
    """Return distinct texts in increasing order as bytes: UTF-8, each with its length before it."""
    parts = []
    for text in sorted(set(texts)):
        encoded = text.encode()
        parts += [len(encoded).to_bytes(4, "little"), encoded]
    return np.frombuffer(b"".join(parts), dtype=np.uint8)


def _unpacked(data: NDArray[Any]) -> list[str]:
    content, texts, start = data.tobytes(), [], 0
    while start < len(content):
        size = int.from_bytes(content[start : start + 4], "little")
        start += 4 + size
        texts.append(content[start - size : start].decode())
    return texts


def _union(a: Value, b: Value) -> Value:
    return (_packed([*_unpacked(a[0]), *_unpacked(b[0])]),)
