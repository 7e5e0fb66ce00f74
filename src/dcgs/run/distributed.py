"""The sum f = Σ fᵢ, of which each process has the terms of its agents, and the facts that follow from it.

Facts are what all agents know before a run: the sizes and eigenvalues that methods need.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator

from dcgs.facts import Facts, ProjectionFacts, SizeFacts
from dcgs.network import Network, extreme_eigenvalues
from dcgs.objectives.maps import SparseMap, largest_by_lanczos
from dcgs.objectives.objective import Objective
from dcgs.objectives.sampling import Sampling
from dcgs.points import Point
from dcgs.runtime import ProcessGroup, SingleProcess
from dcgs.runtime.encoding import Array
from dcgs.sets.base import ConvexSet

Evaluate: TypeAlias = Callable[[int, Objective], tuple[Array, ...]]
"""What is computed from one agent's number and objective, in the process that has it."""

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
    """

    local: Mapping[int, Objective]
    group: ProcessGroup

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
    known = Facts(
        len(network),
        network.norm_L,
        float(f.numbers(lambda _, part: [part.strong_convexity]).min()),
        X.diameter,
        network.is_complete,
        network.normalized_norm,
        network.connectivity,
        network.hub,
        *_sampling_facts(f),
        sizes=_sizes(f, X, network) if sizes else SizeFacts(),
        mean_degree=2.0 * network.edges / len(network) or 1.0,
        sparse_columns=_has_sparse_columns(f),
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


def _sizes(f: DistributedObjective, X: ConvexSet, network: Network) -> SizeFacts:
    """Return the sizes by which FastDCGS chooses its form."""
    start = X.start()

    def numbers(_: int, part: Objective) -> list[float]:
        lower, upper = part.loss.curvature
        curved = float(part.loss.hess(part.map.image(start)).mean()) / (upper or 1.0)
        uneven = part.uneven_curvatures is not None
        sizes = part.map.entries, uneven, upper - lower, part.map.size
        return [*map(float, sizes), part.smoothness, part.mean_curvature, curved]

    rows = f.numbers(numbers)
    entries, uneven, curved = rows[:, :3].max(axis=0).tolist()
    samples, smoothness, mean, share = rows[:, 3:].mean(axis=0).tolist()
    fewest, of_a_row = rows[:, 3].min(), rows[:, 5] / rows[:, 3]
    random = (1.0 + math.sqrt(start.size / samples)) ** 2  # Marchenko and Pastur 1967
    return SizeFacts(
        max(map(len, network.neighbors)),
        int(entries),
        uneven > 0.0,
        curved == 0.0,
        smoothness / (mean or 1.0) / random,
        share,
        int(fewest),
        bool(of_a_row.max() <= _APART * of_a_row.min()),
    )


def _has_sparse_columns(f: DistributedObjective) -> bool:
    """Return True if every agent has a sparse matrix with even columns, of which some are empty."""

    def numbers(_: int, part: Objective) -> list[bool]:
        if not isinstance(part.map, SparseMap):
            return [False]
        used = np.count_nonzero(np.diff(part.map.columns.indptr))
        return [bool(used <= _MOST_COLUMNS * part.map.A.shape[1]) and part.uneven_curvatures is None]

    return bool(f.numbers(numbers).all())


def _sampling_facts(f: DistributedObjective) -> tuple[bool, float, int]:
    """Return whether agents have entries in separate intervals of rows, and the largest smoothness.

    The last number is that of all entries, if all losses are quadratic. For objectives of other maps, return
    False and 0.
    """

    def numbers(_: int, part: Objective) -> tuple[float, float, float, float]:
        if not isinstance(part.map, Sampling):
            return 0.0, 0.0, -1.0, 0.0
        lower, upper = part.loss.curvature
        entries = part.map.size if lower == upper > 0.0 else -math.inf
        return float(part.map.rows.min()), float(part.map.rows.max()), part.smoothness, entries

    first, last, smoothness, entries = f.numbers(numbers).T
    if smoothness.min() < 0.0:
        return False, 0.0, 0
    order = np.argsort(first, kind="stable")
    separate = bool((first[order][1:] > last[order][:-1]).all())
    return separate, float(smoothness.max()), int(max(0.0, entries.sum()))


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
