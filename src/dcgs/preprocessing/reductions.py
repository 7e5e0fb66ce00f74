"""Reductions over the network, with a record of what was sent."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, TypeAlias, TypeVar, final

import networkx as nx
import numpy as np
from numpy.typing import ArrayLike, NDArray

from dcgs.front.allreduce import agree_on_texts, allreduce
from dcgs.front.network import as_network
from dcgs.runtime import Lockstep, Runtime
from dcgs.validation import instance

Arrays: TypeAlias = tuple[NDArray[np.float64], ...]
Answer = TypeVar("Answer")


@final
@dataclass(frozen=True, eq=False)
class ReductionRequest:
    """Arrays of the agents of this process; a program that yields them gets their sums over all agents.

    ``operation`` may be ``"min"`` in place of ``"sum"``.
    """

    name: str
    values: Mapping[int, Sequence[ArrayLike]]
    operation: str = "sum"


Steps: TypeAlias = Generator[ReductionRequest, Arrays, Answer]
"""A program that yields what is to be summed, is resumed with the sums, and returns its answer."""


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
    ('rows', 2)
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

    They are made in rounds, and every message arrives, whatever the faults and the pace of the runtime.

    >>> network = Reductions(nx.path_graph(2))
    >>> network.sum("rows", {0: [3.0], 1: [4.0]})
    (array(7.),)
    >>> print(network.sent[0])
    rows: sum of 1, 2 rounds, 240 bytes
    """

    graph: nx.Graph
    runtime: Runtime = field(default_factory=Lockstep)
    sent: list[Sent] = field(default_factory=list)

    def __post_init__(self) -> None:
        as_network(self.graph)  # raises unless it is connected
        instance(self.runtime, Runtime, "runtime", "be a runtime such as dcgs.Lockstep()")
        instance(self.sent, list, "sent", "be a list, to which records are added")

    @property
    def hosts(self) -> range:
        """The agents of this process."""
        return self.runtime.hosts(len(self.graph))

    @property
    def rounds(self) -> int:
        """The rounds of all reductions so far."""
        return sum(one.rounds for one in self.sent)

    @property
    def bytes(self) -> int:
        """What the agents of this process have sent so far."""
        return sum(one.bytes for one in self.sent)

    def sum(self, name: str, values: Mapping[int, Sequence[ArrayLike]]) -> Arrays:
        """Return the sums of the arrays of all agents; ``name`` says in the record what they are."""
        return self._reduce(name, values, "sum")

    def min(self, name: str, values: Mapping[int, Sequence[ArrayLike]]) -> Arrays:
        """Return the elementwise minima of the arrays of all agents."""
        return self._reduce(name, values, "min")

    def max(self, name: str, values: Mapping[int, Sequence[ArrayLike]]) -> Arrays:
        """Return the elementwise maxima of the arrays of all agents."""
        return self._reduce(name, values, "max")

    def union(self, name: str, texts: Mapping[int, Iterable[str]]) -> tuple[str, ...]:
        """Return all texts of all agents, each once, in increasing order."""
        own = {i: sorted(set(some)) for i, some in texts.items()}
        agreed = agree_on_texts(own, self.graph, self.runtime.in_rounds())
        most = max(map(len, own.values()))
        self.sent.append(Sent(name, "union", most, agreed.rounds, int(agreed.bytes.sum())))
        return agreed.texts

    def run(self, *programs: Steps[Answer]) -> list[Answer]:
        """Run programs side by side, and return their answers.

        What all of them yield in one step is in one sum: together they take the rounds of the longest one.

        >>> def twice(value: float) -> Steps[float]:
        ...     (once,) = yield ReductionRequest("values", {0: [value], 1: [value]})
        ...     (again,) = yield ReductionRequest("sums of values", {0: [once], 1: [once]})
        ...     return float(again)
        >>> network = Reductions(nx.path_graph(2))
        >>> network.run(twice(1.0), twice(3.0)), network.rounds
        ([4.0, 12.0], 4)
        """
        answers: dict[int, Answer] = {}
        sums: dict[int, Any] = dict.fromkeys(range(len(programs)))
        while sums:
            asked: dict[int, ReductionRequest] = {}
            for k, own in sums.items():
                try:
                    asked[k] = programs[k].send(own)
                except StopIteration as end:
                    answers[k] = end.value
            kinds = sorted({one.operation for one in asked.values()})
            shared = [self._shared({k: a for k, a in asked.items() if a.operation == kind}) for kind in kinds]
            sums = {k: own for each in shared for k, own in each.items()}
        return [answers[k] for k in range(len(programs))]

    def _shared(self, asked: Mapping[int, ReductionRequest]) -> dict[int, Arrays]:
        """Return the sums for each program, by one reduction over the network."""
        name = "; ".join(dict.fromkeys(one.name for one in asked.values()))
        values = {i: [array for one in asked.values() for array in one.values[i]] for i in self.hosts}
        operation, first = next(iter(asked.values())).operation, self.hosts[0]
        sums = iter(self._reduce(name, values, operation))
        return {k: tuple(islice(sums, len(one.values[first]))) for k, one in asked.items()}

    def _reduce(self, name: str, values: Mapping[int, Sequence[ArrayLike]], operation: str) -> Arrays:
        arrays = {i: [np.asarray(array, dtype=np.float64) for array in own] for i, own in values.items()}
        total = allreduce(arrays, self.graph, self.runtime.in_rounds(), operation)
        numbers = sum(array.size for array in total.arrays)
        self.sent.append(Sent(name, operation, numbers, total.rounds, int(total.bytes.sum())))
        return total.arrays
