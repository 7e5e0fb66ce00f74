"""The sum f = Σ fᵢ, of which each process has the terms of its agents, and the facts that follow from it.

Facts are what all agents know before a run: the sizes and eigenvalues that methods need. Where sums are
masked, the numbers of single agents stay with them: all learn least and largest numbers, and sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from dcgs.facts import Facts, ProjectionFacts, SizeFacts
from dcgs.network import Network, extreme_eigenvalues
from dcgs.objectives.maps import SparseMap, largest_by_lanczos
from dcgs.objectives.objective import Objective
from dcgs.objectives.sampling import Sampling
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import ProcessGroup, SingleProcess
from dcgs.runtime.encoding import Array
from dcgs.secure.session import SecureSums
from dcgs.secure.sum import complete_answer, secure_max
from dcgs.sets.base import ConvexSet

Evaluate: TypeAlias = Callable[[int, Objective], tuple[Array, ...]]
"""What is computed from one agent's number and objective, in the process that has it."""
Combined: TypeAlias = tuple[Point, Point, Point]
"""Numbers of which the least, the largest and the sum over all agents are of use."""

# Columns of a sparse matrix are sparse if no more than this share of them has an entry: if entries are at
# random places, two for each column. With more, edges send fewer bytes on Lassos of `dcgs bench growth`.
_MOST_COLUMNS = 0.85
# One agent's data are a model of all data if mean curvatures of rows of agents differ by no larger factor.
_APART = 10.0
# A matrix with at most this many rows is formed, column by column.
_DENSE_SIDE = 32


@final
@dataclass(frozen=True, eq=False)
class DistributedObjective:
    """The terms of f = Σ fᵢ: those of this process, by agent, and the group that has the others.

    Results are combined in the order of agents, so that a sum has the same bits for any number of processes.
    ``masks`` are the masked sums of the agents of this process, by which facts are found; none if they are
    open.
    """

    local: Mapping[int, Objective]
    group: ProcessGroup
    masks: Mapping[int, SecureSums] = field(default_factory=dict)

    def gather(self, evaluate: Evaluate) -> Iterator[tuple[Array, ...]]:
        """Yield the result of every agent, in order, at the root; yield nothing in other processes."""
        width = 0

        def results() -> Iterator[Array]:
            nonlocal width
            for i, f in self.local.items():
                result = evaluate(i, f)
                width = len(result)
                yield from result

        arrays = self.group.gather(results())
        for first in arrays:
            yield (first, *(next(arrays) for _ in range(width - 1)))

    def reduce(
        self, evaluate: Evaluate, combine: Callable[[Iterator[tuple[Array, ...]]], Sequence[float]]
    ) -> list[float]:
        """Return, in all processes, the numbers that the root combines from all agents' results."""
        results = self.gather(evaluate)
        if self.group.is_root:
            combined = self.group.broadcast(np.array(combine(results), dtype=np.float64))
        else:
            assert list(results) == []  # sends the results of this process
            combined = self.group.broadcast(None)
        return list(combined.tolist())

    def reduce_sums(
        self, evaluate: Evaluate, combine: Callable[[list[float], Point], Sequence[float]]
    ) -> list[float]:
        """Return the numbers that the root combines from sums of all agents, of numbers and gradients."""

        def of_sums(terms: Iterator[tuple[Array, ...]]) -> Sequence[float]:
            numbers, g = np.zeros(1), np.zeros(next(iter(self.local.values())).shape)
            for numbers_i, g_i in terms:
                numbers = numbers + numbers_i
                g += g_i
            return combine(list(numbers.tolist()), g)

        return self.reduce(evaluate, of_sums)

    def numbers(self, evaluate: Callable[[int, Objective], Sequence[float]]) -> NDArray[np.float64]:
        """Return, in all processes, a row of numbers for every agent."""
        local = np.array([evaluate(i, f) for i, f in self.local.items()], dtype=np.float64)
        return np.concatenate(self.group.allgather([local]))

    def combined(self, evaluate: Callable[[int, Objective], Combined]) -> Combined:
        """Return, in all processes, the least of the first numbers, the largest of the second, and sums."""
        local = {i: evaluate(i, f) for i, f in self.local.items()}
        if self.masks:
            return self._masked(local)
        cuts = np.cumsum([len(numbers) for numbers in next(iter(local.values()))])[:-1]
        rows = self.numbers(lambda i, _: np.concatenate(local[i]).tolist())
        least, largest, terms = np.split(rows, cuts, axis=1)
        return least.min(axis=0), largest.max(axis=0), terms.sum(axis=0)

    def _masked(self, local: Mapping[int, Combined]) -> Combined:
        """Return what is combined by masked sums, outside of the rounds: every process tells all others."""

        def program(i: int) -> Program[Combined]:
            least, largest, terms = (np.asarray(numbers, dtype=np.float64) for numbers in local[i])
            secure = self.masks[i]
            yield from secure.begin(complete_answer)
            ends = np.concatenate([-least, largest])
            if len(ends):
                ends = yield from secure_max(ends, secure.masked(complete_answer), "extremes of facts")
            (total,) = yield from secure.answer(
                (terms,), complete_answer, lambda total: total, ["sums of facts"]
            )
            return -ends[: len(least)], ends[len(least) :], total

        programs: dict[int, Any] = {i: program(i) for i in local}
        inboxes: dict[int, Any] = dict.fromkeys(local)
        while True:
            try:
                sent = {i: programs[i].send(inboxes[i]) for i in local}
            except StopIteration as end:  # all have the same number of steps
                answer: Combined = end.value
                return answer
            arrays = self.group.allgather(value for (value,) in sent.values())
            for i in local:
                inboxes[i] = {j: (array,) for j, array in enumerate(arrays) if j != i}

    def texts(self, evaluate: Callable[[int, Objective], str]) -> list[str]:
        """Return, in all processes, a text for every agent."""
        return self.group.allgather_texts(evaluate(i, f) for i, f in self.local.items())


def as_distributed(objectives: Sequence[Objective] | DistributedObjective) -> DistributedObjective:
    """Return the sum of objectives that are all in this process."""
    if isinstance(objectives, DistributedObjective):
        return objectives
    return DistributedObjective(dict(enumerate(objectives)), SingleProcess())


def facts_of(
    objectives: Sequence[Objective] | DistributedObjective,
    X: ConvexSet,
    network: Network,
    smoothness: bool,
    sizes: bool = False,
) -> Facts:
    """Return the facts of a problem; mixing, smoothness and sizes take time, so they are optional."""
    f = as_distributed(objectives)
    numbers = _Numbers(X.start() if sizes else None)
    least, largest, total = f.combined(lambda _, part: numbers.of(part))
    known = Facts(
        len(network),
        network.norm_L,
        float(least[0]),
        X.diameter,
        network.is_complete,
        network.normalized_norm,
        network.connectivity,
        network.hub,
        bool(least[1]) and _has_separate_rows(f),
        float(largest[0]) if least[1] else 0.0,
        int(total[0]) if least[2] else 0,
        sizes=numbers.sizes(least[4:], largest[1:], total[1:], network),
        mean_degree=2.0 * network.edges / len(network) or 1.0,
        sparse_columns=bool(least[3]),
    )
    if not smoothness:
        return known
    smoothnesses = f.numbers(lambda _, part: [part.smoothness])[:, 0].tolist()
    eigenvalues = network.mixing_eigenvalues()
    extremes = (eigenvalues[0], eigenvalues[-1]) if eigenvalues else extreme_eigenvalues(network.neighbors)
    projection = ProjectionFacts(
        extreme_eigenvalues=extremes,
        mixing_eigenvalues=eigenvalues,
        smoothness=max(smoothnesses),
        mean_smoothness=min(sum(smoothnesses), sum_smoothness(f)) / len(smoothnesses),
    )
    return replace(known, projection=projection)


@final
@dataclass(frozen=True, eq=False)
class _Numbers:
    """What is combined of the numbers of agents; also sizes, if X starts at ``start``."""

    start: Point | None

    def of(self, part: Objective) -> Combined:
        """Return the numbers of one agent: for the least, the largest, and sums."""
        lower, upper = part.loss.curvature
        is_sampling, is_quadratic = isinstance(part.map, Sampling), lower == upper > 0.0
        of_entries = is_sampling and is_quadratic
        least = [part.strong_convexity, is_sampling, of_entries, _is_sparse(part)]
        largest = [part.smoothness if is_sampling else 0.0]
        sums = [float(part.map.size) if of_entries else 0.0]
        if self.start is not None:
            curved = float(part.loss.hess(part.map.image(self.start)).mean()) / (upper or 1.0)
            of_a_row = part.mean_curvature / part.map.size
            least += [part.map.size, of_a_row]
            largest += [part.map.entries, part.uneven_curvatures is not None, upper - lower, of_a_row]
            sums += [part.map.size, part.smoothness, part.mean_curvature, curved]
        return np.array(least, float), np.array(largest, float), np.array(sums, float)

    def sizes(self, least: Point, largest: Point, total: Point, network: Network) -> SizeFacts:
        """Return the sizes by which FastDCGS chooses its form."""
        if self.start is None:
            return SizeFacts()
        samples, smoothness, mean, share = (total / len(network)).tolist()
        random = (1.0 + math.sqrt(self.start.size / samples)) ** 2  # Marchenko and Pastur 1967
        return SizeFacts(
            max(map(len, network.neighbors)),
            int(largest[0]),
            bool(largest[1] > 0.0),
            bool(largest[2] == 0.0),
            smoothness / (mean or 1.0) / random,
            share,
            int(least[0]),
            bool(largest[3] <= _APART * least[1]),
        )


def _is_sparse(part: Objective) -> bool:
    """Return True if an agent has a sparse matrix with even columns, of which some are empty."""
    if not isinstance(part.map, SparseMap):
        return False
    used = np.count_nonzero(np.diff(part.map.columns.indptr))
    return bool(used <= _MOST_COLUMNS * part.map.A.shape[1]) and part.uneven_curvatures is None


def _has_separate_rows(f: DistributedObjective) -> bool:
    """Return True if agents have entries in separate intervals of rows: no row is in two of them."""
    if not f.masks:
        first, last = f.numbers(lambda _, part: [*map(float, _interval(part))]).T
        order = np.argsort(first, kind="stable")
        return bool((first[order][1:] > last[order][:-1]).all())

    def interval(_: int, part: Objective) -> Combined:
        (first, last), marks = _interval(part), np.zeros(part.shape[0])
        marks[first : last + 1] = 1.0
        return np.zeros(0), np.zeros(0), marks

    *_, agents = f.combined(interval)
    return bool(agents.max() <= 1.0)


def _interval(part: Objective) -> tuple[int, int]:
    assert isinstance(part.map, Sampling)
    return int(part.map.rows.min()), int(part.map.rows.max())


def sum_smoothness(objectives: Sequence[Objective] | DistributedObjective) -> float:
    """Return an l with ‖∇f(x) − ∇f(y)‖ ≤ l ‖x − y‖ for f = Σ fᵢ: the largest eigenvalue of Σ cᵢ AᵢᵀAᵢ.

    cᵢ bounds the curvature of agent i's loss. The eigenvalue is that of the smaller of two Gram matrices: in
    the space of points, or in the space of all images.
    """
    f = as_distributed(objectives)
    group = f.group
    gram = _Gram(f)
    if not group.is_root:
        while (v := group.broadcast(None)).size:
            gram.product(v)
        return float(group.broadcast(None)[0])
    # The root runs the eigensolver. Other processes take part in products until they receive an empty vector.
    operator = LinearOperator(
        (gram.side,) * 2, matvec=lambda v: gram.product(group.broadcast(np.ravel(v))), dtype=np.float64
    )
    if gram.side <= _DENSE_SIDE:
        largest = max(0.0, float(np.linalg.eigvalsh(operator @ np.eye(gram.side))[-1]))
    else:
        largest = largest_by_lanczos(operator)
    group.broadcast(np.empty(0))
    return float(group.broadcast(np.array([largest]))[0])


@final
class _Gram:
    """Products with Σ cᵢ AᵢᵀAᵢ, or with the Gram matrix of all images; all processes take part in each."""

    def __init__(self, f: DistributedObjective) -> None:
        self.f = f
        self.shape = next(iter(f.local.values())).shape
        self.sizes = f.numbers(lambda _, part: [part.map.size])[:, 0].astype(np.intp)
        self.points, self.images = int(np.prod(self.shape)), int(self.sizes.sum())
        self.side = min(self.points, self.images)

    def product(self, v: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the product, at the root."""
        if self.points <= self.images:
            return self._sum(
                lambda i, f: f.map.adjoint(_root(f) * (_root(f) * f.map.image(v.reshape(self.shape))))
            )
        cuts = np.cumsum(self.sizes)[:-1]
        pieces = dict(enumerate(np.split(v, cuts)))
        total = self._sum(lambda i, f: f.map.adjoint(_root(f) * pieces[i]))
        group = self.f.group
        x = group.broadcast(total if group.is_root else None).reshape(self.shape)
        images = [image for (image,) in self.f.gather(lambda _, f: (_root(f) * f.map.image(x),))]
        return np.concatenate(images) if images else v

    def _sum(self, evaluate: Callable[[int, Objective], Point]) -> NDArray[np.float64]:
        total = np.zeros(self.shape)
        for (part,) in self.f.gather(lambda i, f: (evaluate(i, f),)):
            total += part
        return total.reshape(-1)


def _root(f: Objective) -> float:
    return float(np.sqrt(f.loss.curvature[1]))
