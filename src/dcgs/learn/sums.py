"""Sums, extremes and unions over the network outside of a run, in counted rounds, and what was sent for them.

Agents add up counts, means or tables: short ones by flooding, where that takes less time, and long ones along
the spanning tree of the graph. What is flooded all agents see, of each single agent. Along the tree they see
the partial results that their neighbors in the tree send. Masked sums show neither. All that leaves an agent
before or after a run passes through :func:`_reduce` or :func:`run_programs`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from operator import itemgetter
from typing import Any, Literal, Protocol, TypeAlias, TypeVar, final

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcgs.floors import Floors
from dcgs.learn.masked import SHORT, Total, masked_results, network_total
from dcgs.methods.reduction import Combine, Place, Value, answer_for_all, tree_answer
from dcgs.network import Network, as_network
from dcgs.protocol import Program
from dcgs.protocol import side_by_side as side_by_side
from dcgs.run.checks import OPEN, check_agents, sums_of
from dcgs.runtime import Job, Lockstep, Runtime, Traffic
from dcgs.secure.session import SecureSums
from dcgs.secure.union import SecureUnion
from dcgs.tree import TreeNode
from dcgs.validation import finite, instance, one_of, reals, shown, takes

Arrays: TypeAlias = tuple[NDArray[np.float64], ...]
Answer = TypeVar("Answer")

_UNION, _COUNTS = "union", "counts"


class Named(Protocol):
    """Told what the next messages are for; ``size`` is the number of unknowns of a model."""

    def __call__(self, name: str, size: int = 0) -> object: ...


class Counted(Protocol):
    """What has been counted of a reduction or a run."""

    @property
    def rounds(self) -> int:
        """Communication rounds."""

    @property
    def bytes(self) -> NDArray[np.int64]:
        """Bytes that each agent sent."""


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

    arrays: Arrays
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
    mapping with those of the agents of this process. All agents get the same bits. Short arrays are flooded
    where that takes less time: in as many rounds as the graph has diameter, and every agent sees those of all
    others. Along a spanning tree it takes twice its height.

    >>> total = allreduce([[1.0, [2.0, 3.0]], [10.0, [20.0, 30.0]]], nx.path_graph(2))
    >>> [array.tolist() for array in total.arrays], total.rounds
    ([11.0, [22.0, 33.0]], 1)
    """
    one_of("sum", "min", "max")(operation, "operation")
    request = Request("values", dict(_items(values, "values", graph)), operation)
    (arrays,), traffic = _reduce([request], graph, runtime)
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
    given = dict(_items(texts, "texts", graph))
    odd = [text for some in given.values() for text in some if not isinstance(text, str)]
    if odd:
        raise TypeError(f"texts must be of type str; got {shown(odd[0])}.")
    (agreed,), traffic = _reduce([Request("texts", given, _UNION)], graph, runtime)
    return AgreedTexts(agreed, traffic.rounds, traffic.messages, traffic.bytes)


@final
@dataclass(frozen=True, eq=False)
class Request:
    """What the agents of this process put into a reduction; a program that yields it gets the result.

    ``values`` has for each agent its arrays or, for the operation ``"union"``, its texts. For ``"counts"`` it
    has texts with the number of people that each is about: the result has those above ``floors``, with their
    counts. The other operations are ``"sum"``, ``"min"``, ``"max"``, for flags of 0 and 1 ``"any"``, and
    ``"bound"``: numbers that are at least the maxima, which they are where sums are open. ``"integers"`` are
    sums of whole numbers, which are exact also where sums are masked.
    With ``answer`` all agents get what the root of the tree makes of the results: as many arrays as there are
    results, of one dimension. It is called in the process that runs the root, and nowhere else.
    """

    name: str
    values: Mapping[int, Any]
    operation: str = "sum"
    floors: Floors | None = None
    answer: Callable[[Sequence[Any]], Sequence[Any]] | None = None


Steps: TypeAlias = Generator["Request | list[Any]", Any, Answer]
"""A program that yields a request, is resumed with its result, and returns its answer.

If it yields a list of requests, which are reduced together, it gets a list of results.
"""


@final
@dataclass(frozen=True)
class Sent:
    """One thing that the agents computed together: what it was, and what it cost.

    ``numbers`` is how many numbers (or texts) an agent put in. ``rounds`` is the number of communication
    rounds, ``bytes`` what the agents of this process sent, in all.

    >>> import dcgs, networkx as nx
    >>> network = dcgs.Reductions(nx.path_graph(2))
    >>> total = network.sum("rows", {0: [3.0], 1: [4.0]})
    >>> network.sent[0].name, network.sent[0].rounds
    ('rows', 1)
    """

    name: str
    operation: str
    numbers: int
    rounds: int
    bytes: int

    def to_dict(self) -> dict[str, Any]:
        """Return the record as values that JSON takes."""
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.operation} of {self.numbers:,}, {self.rounds} rounds, {self.bytes:,} bytes"
        )


@final
@dataclass(eq=False)
class Reductions:
    """Sums, extremes and unions over the agents of a graph; ``sent`` lists what they sent for it.

    ``agent_bytes`` is what each agent of this process has sent, in all. ``named`` is told what the next
    messages are for, and the number of unknowns of a model. Reductions are made in rounds, and every message
    arrives, whatever the faults and the pace of the runtime. With ``secure`` sums are masked, those of runs
    too (docs/privacy.md).

    >>> network = Reductions(nx.path_graph(2))
    >>> network.sum("rows", {0: [3.0], 1: [4.0]})
    (array(7.),)
    >>> print(network.sent[0])
    rows: sum of 1, 1 rounds, 208 bytes
    """

    graph: nx.Graph
    runtime: Runtime = field(default_factory=Lockstep)
    sent: list[Sent] = field(default_factory=list)
    named: Named = field(default=lambda name, size=0: None, repr=False)
    secure: bool | Literal["unmasked"] = False
    agent_bytes: NDArray[np.int64] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        as_network(self.graph)  # raises unless it is connected
        self.agent_bytes = np.zeros(len(self.graph), dtype=np.int64)
        instance(self.runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
        instance(self.sent, list, "sent", "be a list, to which records are added")
        if not takes(self.named, "a sum", 1):
            raise TypeError(f"named must be a function of a name and a size; got {shown(self.named)}.")
        self._masks = self._masked_sums() if sums_of(self.secure) != OPEN else {}

    def _masked_sums(self) -> dict[int, SecureSums]:
        """Return how the agents of this process mask their sums."""
        agents = len(self.graph)
        check_agents(agents)
        is_masked, journal, signed = self.secure is True, self.runtime.journal(), self.runtime.signatures()
        return {
            i: SecureSums(
                i, agents, is_masked, journal, SHORT, replays=journal is not None, signatures=signed
            )
            for i in self.hosts
        }

    def on(self, runtime: Runtime) -> Reductions:
        """Return the same network with another runtime of the same agents, with the same record and keys."""
        other = replace(self, runtime=runtime)
        other._masks = self._masks
        return other

    def secure_run(self) -> bool | Literal["unmasked"] | dict[int, SecureSums]:
        """Return what ``secure`` of a run of these agents is: masked sums with keys that follow from theirs.

        Before keys are known, the run exchanges its own.
        """
        if not self._masks or any(masks.sums == 0 for masks in self._masks.values()):
            return self.secure
        return {i: masks.inside(f"run {masks.runs}") for i, masks in self._masks.items()}

    def close(self) -> None:
        """Close the journals of masked sums."""
        for masks in self._masks.values():
            masks.close()

    @property
    def hosts(self) -> range:
        """The agents of this process."""
        return self.runtime.hosts(len(self.graph))

    @property
    def root(self) -> int:
        """The agent at the root of the tree along which sums are taken."""
        return next(i for i, node in enumerate(as_network(self.graph).tree) if node.parent is None)

    @property
    def rounds(self) -> int:
        """The rounds of all reductions so far."""
        return sum(record.rounds for record in self.sent)

    @property
    def bytes(self) -> int:
        """What the agents of this process have sent so far."""
        return sum(record.bytes for record in self.sent)

    def sum(self, name: str, values: Mapping[int, Sequence[ArrayLike]]) -> Arrays:
        """Return the sums of the arrays of all agents; ``name`` says in the record what they are."""
        return self.reduced(Request(name, values))

    def min(self, name: str, values: Mapping[int, Sequence[ArrayLike]]) -> Arrays:
        """Return the elementwise minima of the arrays of all agents."""
        return self.reduced(Request(name, values, "min"))

    def max(self, name: str, values: Mapping[int, Sequence[ArrayLike]]) -> Arrays:
        """Return the elementwise maxima of the arrays of all agents."""
        return self.reduced(Request(name, values, "max"))

    def union(self, name: str, texts: Mapping[int, Iterable[str]]) -> tuple[str, ...]:
        """Return all texts of all agents, each once, in increasing order."""
        given = {i: [*some] for i, some in texts.items()}
        (agreed,) = self._all_reduced([Request(name, given, _UNION)])
        return tuple(agreed)

    def run(self, *programs: Steps[Answer]) -> list[Answer]:
        """Run programs side by side, and return their answers.

        What all of them yield in one step is in one reduction: together they take the rounds of the longest.

        >>> def twice(value: float) -> Steps[float]:
        ...     (once,) = yield Request("values", {0: [value], 1: [value]})
        ...     (again,) = yield Request("sums of values", {0: [once], 1: [once]})
        ...     return float(again)
        >>> network = Reductions(nx.path_graph(2))
        >>> network.run(twice(1.0), twice(3.0)), network.rounds
        ([4.0, 12.0], 2)
        """
        program, results = side_by_side(*programs), None
        while True:
            try:
                asked = program.send(results)
            except StopIteration as end:
                return list(end.value)
            results = _nested(asked, iter(self._all_reduced(_flat(asked))))

    def run_programs(
        self, name: str, numbers: int, program: Callable[[int, Total], Program[Answer]]
    ) -> dict[int, Answer]:
        """Run a program for every agent, and record what was sent.

        ``program`` takes the number of an agent, and how it adds up arrays over the network.
        """
        self.named(name)
        masks, places = self._masks, _places(as_network(self.graph))
        answers, traffic = run_programs(
            lambda i, tree: program(i, network_total(places[i], masks.get(i), name)),
            self.graph,
            self.runtime,
        )
        self.record(Sent(name, "fit", numbers, traffic.rounds, 0), traffic)
        return answers

    def record(self, sent: Sent, counted: Counted) -> None:
        """Add a record of what the agents of this process have sent for a run."""
        hosts = list(self.hosts)  # a result has the bytes of all processes
        self.agent_bytes[hosts] += counted.bytes[hosts]
        self.sent.append(replace(sent, bytes=int(counted.bytes[hosts].sum())))

    def sent_by_all(self) -> tuple[Sent, ...]:
        """Return what the agents of all processes sent; what has one name is added up."""
        table = np.array([(record.bytes, record.numbers) for record in self.sent], float).reshape(-1, 2)
        everyone = self.runtime.group().allgather([table])
        sent, numbers = np.sum(everyone, axis=0)[:, 0], np.max(everyone, axis=0)[:, 1]
        merged: dict[tuple[str, str], Sent] = {}
        for record, more, most in zip(self.sent, sent.tolist(), numbers.tolist(), strict=True):
            before = merged.setdefault((record.name, record.operation), replace(record, rounds=0, bytes=0))
            merged[record.name, record.operation] = replace(
                before,
                numbers=max(before.numbers, int(most)),
                rounds=before.rounds + record.rounds,
                bytes=before.bytes + int(more),
            )
        return tuple(merged.values())

    def reduced(self, request: Request) -> Arrays:
        """Return the arrays that all agents get for a request."""
        (arrays,) = self._all_reduced([request])
        return tuple(arrays)

    def _all_reduced(self, requests: Sequence[Request]) -> list[Any]:
        """Return the results of several requests, by one reduction.

        Where sums are masked, unions are not: they take rounds, and a name in the ledger, of their own.
        """
        if not requests:
            return []
        unions = {k for k, request in enumerate(requests) if request.operation == _UNION}
        if self._masks and 0 < len(unions) < len(requests):
            parts = [[k for k in range(len(requests)) if (k in unions) is own] for own in (True, False)]
            some = [zip(part, self._all_reduced([requests[k] for k in part]), strict=True) for part in parts]
            return [
                result for _, result in sorted((pair for pairs in some for pair in pairs), key=itemgetter(0))
            ]
        names, operations = (
            dict.fromkeys(parts)
            for parts in ([entry.name for entry in requests], [entry.operation for entry in requests])
        )
        self.named("; ".join(names))
        results, traffic = _reduce(requests, self.graph, self.runtime.in_rounds(), self._masks)
        sent = Sent("; ".join(names), ", ".join(operations), sum(map(_size, requests)), traffic.rounds, 0)
        self.record(sent, traffic)
        return results


def _flat(asked: Any) -> list[Request]:
    return [asked] if isinstance(asked, Request) else [request for some in asked for request in _flat(some)]


def _nested(asked: Any, results: Iterator[Any]) -> Any:
    return next(results) if isinstance(asked, Request) else [_nested(some, results) for some in asked]


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


def _reduce(
    requests: Sequence[Request],
    graph: nx.Graph,
    runtime: Runtime | None,
    masks: Mapping[int, SecureSums] | None = None,
) -> tuple[list[Any], Traffic]:
    """Return the results of requests, by one reduction, and the traffic.

    It goes along the tree if the root alone may read one of them, and for texts, which have no size that all
    agents know. With ``masks``, which are those of the agents of this process, it is masked.
    """
    runtime = Lockstep() if runtime is None else runtime
    instance(runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
    hosts = list(runtime.hosts(len(graph)))
    for request in requests:
        if sorted(request.values) != hosts:
            given = sorted(request.values)
            raise ValueError(f"values must be given for the agents {hosts}; got them for {given}.")
    arrays = {i: [_arrays(request, i) for request in requests] for i in hosts}
    shapes = {i: [[array.shape for array in local] for local in arrays[i]] for i in hosts}
    has_texts = any(request.operation in (_UNION, _COUNTS) for request in requests)
    for i in hosts:
        if not has_texts and shapes[i] != shapes[hosts[0]]:
            raise ValueError(
                f"values must have the same shapes for all agents; agent {hosts[0]} has "
                f"{shapes[hosts[0]][0]}, agent {i} has {shapes[i][0]}."
            )
    places = _places(as_network(graph))
    if masks:
        packed = {i: {k: own[0] for k, own in enumerate(arrays[i]) if own} for i in hosts}
        answers, traffic = run_programs(
            lambda i, tree: masked_results(requests, i, packed[i], _open_unions, places[i], masks[i]),
            graph,
            runtime,
        )
        return answers[hosts[0]], traffic
    values = {i: tuple(array.reshape(-1) for local in arrays[i] for array in local) for i in hosts}
    pairs = zip(requests, shapes[hosts[0]], strict=True)
    combine = _combined([_COMBINE[request.operation] for request, local in pairs for _ in local])

    def answer(totals: Value) -> Value:
        flat, answered = iter(totals), list[Any]()
        for request, local in zip(requests, shapes[hosts[0]], strict=True):
            total = list(islice(flat, len(local)))
            answered += total if request.answer is None else request.answer(_shaped(total, local))
        return tuple(answered)

    by_root = has_texts or any(request.answer is not None for request in requests)

    def program(i: int, tree: TreeNode) -> Program[Value]:
        if by_root:
            return tree_answer(values[i], tree, combine, answer, same_shapes=not has_texts)
        return answer_for_all(values[i], place=places[i], answer=answer, combine=combine)

    totals, traffic = run_programs(program, graph, runtime)
    flat, results = iter(totals[hosts[0]]), list[Any]()
    for request, local in zip(requests, shapes[hosts[0]], strict=True):
        total = list(islice(flat, len(local)))
        if request.operation == _UNION:
            results.append(tuple(_unpacked(total[0])))
        elif request.operation == _COUNTS:
            results.append(SecureUnion.above(_counts(total[0]), request.floors or Floors(1, 1)))
        else:
            results.append(_shaped(total, local) if request.answer is None else tuple(total))
    return results, traffic


def _places(network: Network) -> list[Place]:
    """Return the place of each agent."""
    most, is_complete = max(map(len, network.neighbors)), network.is_complete
    pairs = enumerate(zip(network.neighbors, network.tree, strict=True))
    return [Place(i, near, node, len(network), most, is_complete) for i, (near, node) in pairs]


def _open_unions(
    texts: Sequence[NDArray[Any]], tree: TreeNode, beside: Value
) -> Program[tuple[list[tuple[str, ...]], Value]]:
    """Return unions of texts, which are what sites agree on and not masked, and sums of arrays beside."""
    combine = _combined([*[np.add] * len(beside), *[_union] * len(texts)])
    value = (*beside, *texts)
    total = yield from tree_answer(value, tree, combine, lambda total: total, same_shapes=False)
    return [tuple(_unpacked(union)) for union in total[len(beside) :]], total[: len(beside)]


def _shaped(arrays: Sequence[Any], shapes: Sequence[tuple[int, ...]]) -> tuple[Any, ...]:
    return tuple(array.reshape(shape) for array, shape in zip(arrays, shapes, strict=True))


def _arrays(request: Request, i: int) -> list[NDArray[Any]]:
    """Return what an agent sends: its arrays, or its texts as bytes."""
    if request.operation == _UNION:
        return [_packed(request.values[i])]
    if request.operation == _COUNTS:
        return [_packed_counts({text: (count, 1) for text, count in request.values[i].items()})]
    return [np.asarray(finite(reals(array, "values"), "values")) for array in request.values[i]]


def _size(request: Request) -> int:
    """Return how many numbers, or distinct texts, an agent of this process puts in at most."""
    if request.operation in (_UNION, _COUNTS):
        return max(len(set(texts)) for texts in request.values.values())
    return max(sum(np.size(array) for array in arrays) for arrays in request.values.values())


def _combined(operations: Sequence[Callable[[Any, Any], Any]]) -> Combine:
    return lambda a, b: tuple(
        operation(mine, theirs) for operation, mine, theirs in zip(operations, a, b, strict=True)
    )


def _items(values: Any, name: str, graph: nx.Graph) -> list[tuple[int, Any]]:
    """Return the agents and what each gives; raise unless each gives a sequence."""
    agents = len(as_network(graph))
    of_agents = list(values.values()) if isinstance(values, Mapping) else values
    few = _is_collection(of_agents) and 0 < len(of_agents) <= agents
    if not few or not all(_is_collection(some) for some in of_agents):
        raise TypeError(
            f"{name} must have a sequence for each of {agents} agents, such as a list of lists; "
            f"got {shown(values)}."
        )
    return list(values.items() if isinstance(values, Mapping) else enumerate(values))


def _is_collection(some: Any) -> bool:
    """Return True for a list and the like; False for a text and for an array without dimensions."""
    plain = isinstance(some, Collection) and not isinstance(some, str | bytes | Mapping)
    return plain and getattr(some, "ndim", 1) > 0


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


def _union(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    return _packed([*_unpacked(a), *_unpacked(b)])


def _packed_counts(counts: Mapping[str, tuple[int, int]]) -> NDArray[Any]:
    return _packed(json.dumps([text, *numbers]) for text, numbers in counts.items())


def _counts(data: NDArray[Any]) -> dict[str, tuple[int, int]]:
    """Return texts with their counts and the number of agents that have them."""
    return {text: (count, agents) for text, count, agents in map(json.loads, _unpacked(data))}


def _added_counts(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    counts = _counts(a)
    for text, (count, agents) in _counts(b).items():
        known = counts.get(text, (0, 0))
        counts[text] = known[0] + count, known[1] + agents
    return _packed_counts(counts)


_COMBINE: dict[str, Callable[[Any, Any], Any]] = {
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "any": np.maximum,
    "bound": np.maximum,
    "integers": np.add,
    _UNION: _union,
    _COUNTS: _added_counts,
}
