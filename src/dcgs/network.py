"""The graph of agents: neighbors, degrees, the spanning tree, and the eigenvalues that methods need.

A graph may change from round to round: a sequence of graphs, or a function of the round. Eigenvalues and
resistances are dense computations for up to 1,000 agents, sparse ones for more. Time and memory of the sparse
ones grow about linearly with the edges: 10,000 agents take a second or two.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import TypeAlias, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, splu

from dcgs.parallel import blas_threads
from dcgs.tree import TreeNode, center, spanning_tree
from dcgs.validation import instance, shown

GraphArgument: TypeAlias = nx.Graph | Sequence[nx.Graph] | Callable[[int], nx.Graph]
EdgesUp: TypeAlias = Callable[[int], Collection[tuple[int, int]]]
Neighbors: TypeAlias = tuple[tuple[int, ...], ...]
Weights: TypeAlias = tuple[tuple[float, ...], ...]
"""For each agent a number for each of its neighbors."""

# Up to this number of agents the spectra of the graph are computed densely.
_DENSE_AGENTS = 1000
# Eigenvalues of a matrix of norm 1 that differ by less count as equal; rounding error is far smaller.
_SAME = 1e-10
# The relative accuracy of a norm that is found iteratively, and by how much it is raised: the first, or the
# second if the largest eigenvalues differ by so little, as on long cycles, that the first would take long.
_SLACK, _LOOSE_SLACK = 1e-6, 1e-3
# Restarts of the Lanczos method before another way is taken: half a second for 10,000 agents.
_RESTARTS = 100
# Rounds of a function for which the graph is asked before a run.
_ASKED = 1000


@final
@dataclass(frozen=True)
class Network:
    """Agents 0 … m−1: their nodes in the user's graph, their neighbors in increasing order, and ‖L‖.

    ``resistances`` are the effective resistances of the edges, divided by their mean. ``normalized_norm`` is
    the largest eigenvalue of the normalized Laplacian D^(−1/2) L D^(−1/2) with the resistances as edge
    weights. ``connectivity`` is its smallest positive eigenvalue divided by the largest. ``tree`` is a
    spanning tree whose root is a center of the graph; see :func:`dcgs.tree.center` for large graphs.
    """

    nodes: tuple[Hashable, ...]
    neighbors: Neighbors
    norm_L: float
    resistances: Weights
    normalized_norm: float
    connectivity: float
    tree: tuple[TreeNode, ...]

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def edges(self) -> int:
        """The number of edges."""
        return sum(map(len, self.neighbors)) // 2

    @property
    def is_complete(self) -> bool:
        """Whether all agents are neighbors of each other."""
        return all(len(near) == len(self) - 1 for near in self.neighbors)

    @property
    def hub(self) -> int | None:
        """The first agent that is a neighbor of all others; None if there is none, or a single agent."""
        others = len(self) - 1
        return next((i for i, near in enumerate(self.neighbors) if len(near) == others > 0), None)

    def degrees(self, i: int) -> dict[int, int]:
        """Return the number of neighbors of each neighbor of agent i."""
        return {j: len(self.neighbors[j]) for j in self.neighbors[i]}

    def resistances_of(self, i: int) -> dict[int, float]:
        """Return the resistance between agent i and each of its neighbors."""
        return dict(zip(self.neighbors[i], self.resistances[i], strict=True))

    def mixing_eigenvalues(self) -> tuple[float, ...]:
        """Return the distinct eigenvalues of the Metropolis matrix except the largest, in increasing order.

        A single agent has the eigenvalue 0. For more than 1,000 agents the result is empty: computing them
        would take too long.
        """
        if len(self) == 1:
            return (0.0,)
        if len(self) > _DENSE_AGENTS:
            return ()
        spectrum = np.linalg.eigvalsh(_metropolis(self.neighbors).toarray())[:-1]
        distinct = np.diff(spectrum, prepend=-2.0) > _SAME
        return tuple(float(value) for value in spectrum[distinct])


def check_graph(graph: nx.Graph) -> None:
    """Raise unless the graph is undirected, with at least one node and without loops."""
    instance(graph, nx.Graph, "graph", "be a networkx.Graph")
    if graph.is_directed() or graph.is_multigraph():
        raise ValueError(
            "the graph must be undirected, with one edge between two nodes; "
            f"got a {type(graph).__name__}. Use nx.Graph(graph)."
        )
    if len(graph) == 0:
        raise ValueError("the graph must have at least one node; it has none.")
    loops = list(nx.nodes_with_selfloops(graph))
    if loops:
        raise ValueError(f"the graph must have no loops; nodes {loops} are their own neighbors.")


def as_network(graph: nx.Graph) -> Network:
    """Return the network of a connected undirected graph.

    Agent i is node i if the nodes are the integers 0 … m−1, else the i-th node in the order of the graph.
    Edge weights are not used.
    """
    check_graph(graph)
    if not nx.is_connected(graph):
        ordered = sorted(graph) if all(isinstance(node, Integral) for node in graph) else list(graph)
        components = [[node for node in ordered if node in part] for part in nx.connected_components(graph)]
        raise ValueError(f"the graph must be connected; it has {len(components)} components: {components}.")
    numbered = set(graph) == set(range(len(graph)))
    nodes = tuple(sorted(graph) if numbered else graph)
    place = {node: i for i, node in enumerate(nodes)}
    neighbors = tuple(tuple(sorted(place[other] for other in graph[node])) for node in nodes)
    return _network(nodes, neighbors)


@lru_cache(maxsize=64)
def _network(nodes: tuple[Hashable, ...], neighbors: Neighbors) -> Network:
    """Return the network; many small runs over one graph compute its eigenvalues once."""
    with blas_threads(1):  # the same bits wherever it is computed first
        weights = resistances(neighbors)
        norm, connectivity = normalized_spectrum(neighbors, weights)
        norm_L = laplacian_norm(neighbors)
    tree = spanning_tree(neighbors, center(neighbors))
    return Network(nodes, neighbors, norm_L, weights, norm, connectivity, tree)


def union_of(graph: GraphArgument) -> nx.Graph:
    """Return the graph with all edges that are there in some round; of a function, in the first 1000 rounds.

    >>> union_of([nx.Graph([(0, 1)]), nx.Graph([(1, 0)])]).number_of_edges()
    1
    """
    if isinstance(graph, nx.Graph):
        return graph
    union: nx.Graph | None = None
    for round, now in _rounds(graph):
        instance(now, nx.Graph, f"the graph of round {round}", "be a networkx.Graph")
        check_graph(now)
        if union is None:
            union = nx.Graph(now)
            continue
        if set(now) != set(union):
            odd = sorted(set(now) ^ set(union), key=str)
            raise ValueError(
                f"graphs of all rounds must have the same nodes; that of round {round} differs in {odd}."
            )
        union.add_edges_from(now.edges)
    assert union is not None
    return union


def _rounds(graph: Sequence[nx.Graph] | Callable[[int], nx.Graph]) -> Iterator[tuple[int, nx.Graph]]:
    if isinstance(graph, Sequence) and len(graph) > 0:
        yield from enumerate(graph, 1)
    elif callable(graph) and not isinstance(graph, type):
        for round in range(1, _ASKED + 1):
            yield round, graph(round)
    else:
        raise TypeError(
            "graph must be a networkx.Graph, a sequence of such graphs, or a function of the round; "
            f"got {shown(graph)}."
        )


def edges_up(graph: GraphArgument, nodes: Sequence[Hashable]) -> EdgesUp | None:
    """Return which edges between agents are there in a round, for a graph that changes; else None.

    A sequence of graphs is repeated.
    """
    if isinstance(graph, nx.Graph):
        return None
    agent = {node: i for i, node in enumerate(nodes)}

    def up(round: int) -> set[tuple[int, int]]:
        now = graph[(round - 1) % len(graph)] if isinstance(graph, Sequence) else graph(round)
        return {(agent[a], agent[b]) for a, b in now.edges if a in agent and b in agent}

    return up


def laplacian_norm(neighbors: Neighbors) -> float:
    """Return ‖L‖; for more than 1,000 agents an upper bound, tight to 1e-3."""
    if len(neighbors) == 1:
        return 0.0
    L = _laplacian(neighbors, _ones(neighbors))
    if len(neighbors) <= _DENSE_AGENTS:
        return float(np.linalg.eigvalsh(L.toarray())[-1])
    return _largest(L)


def resistances(neighbors: Neighbors) -> Weights:
    """Return the effective resistance of every edge over the mean of all; 1 for more than 1,000 agents.

    Every edge is a unit resistor. A bridge has resistance 1. Other paths between its ends lower it.
    """
    m = len(neighbors)
    if not 1 < m <= _DENSE_AGENTS:
        return _ones(neighbors)
    L = _laplacian(neighbors, _ones(neighbors)).toarray()
    inverse = np.linalg.inv(L + 1.0 / m)
    inverse = 0.5 * (inverse + inverse.T)  # symmetric to the last bit
    mean = 2.0 * (m - 1) / sum(map(len, neighbors))  # Foster's theorem
    return tuple(
        tuple(float((inverse[i, i] + inverse[j, j] - 2.0 * inverse[i, j]) / mean) for j in near)
        for i, near in enumerate(neighbors)
    )


def normalized_spectrum(neighbors: Neighbors, weights: Weights) -> tuple[float, float]:
    """Return the largest eigenvalue of D^(−1/2) L D^(−1/2) and the smallest positive one over it.

    For more than 1,000 agents the first is an upper bound, tight to 1e-3.
    """
    m = len(neighbors)
    if m == 1:
        return 2.0, 1.0
    L = _laplacian(neighbors, weights)
    roots = np.sqrt(L.diagonal())
    scaling = sp.diags_array(1.0 / roots)
    N = sp.csr_array(scaling @ L @ scaling)
    if m <= _DENSE_AGENTS:
        spectrum = np.linalg.eigvalsh(N.toarray())
        return float(spectrum[-1]), float(spectrum[1] / spectrum[-1])
    high = min(2.0, _largest(N))
    return high, _smallest_positive(N, roots, high) / high


def extreme_eigenvalues(neighbors: Neighbors) -> tuple[float, float]:
    """Return the smallest and the second largest eigenvalue of the Metropolis matrix W.

    The first is a lower bound. Its distance from 1 is tight to 1e-3, that of the second to 1e-6.
    """
    m = len(neighbors)
    M = sp.csr_array(sp.eye_array(m) - _metropolis(neighbors))
    high = min(2.0, _largest(M))
    return 1.0 - high, 1.0 - _smallest_positive(M, np.ones(m), high)


def _smallest_positive(M: sp.csr_array, null: NDArray[np.float64], high: float) -> float:
    """Return the second smallest eigenvalue of M, whose eigenvalues are from 0, of the vector null, to high.

    The Lanczos method finds it quickly if it is apart from the next ones. If not, as on cycles, grids and
    trees, the graph falls apart where few agents are removed, so that M has sparse triangular factors.
    """
    z = null / np.linalg.norm(null)

    def shifted(v: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.asarray(high * v - M @ v - (high * (z @ v)) * z)

    reversed_order = LinearOperator(M.shape, matvec=shifted, dtype=np.float64)
    try:
        return high - _lanczos(reversed_order, 1e-9, _RESTARTS)
    except ArpackNoConvergence:
        return 1.0 / _lanczos(_pseudoinverse(M, z), _SLACK)


def _largest(M: sp.csr_array) -> float:
    """Return an upper bound of the largest eigenvalue of M, tight to 1e-6, or to 1e-3 if that takes long."""
    try:
        return _lanczos(M, _SLACK, _RESTARTS) * (1.0 + _SLACK)
    except ArpackNoConvergence:
        return _lanczos(M, _LOOSE_SLACK) * (1.0 + _LOOSE_SLACK)


def _lanczos(M: sp.csr_array | LinearOperator, accuracy: float, restarts: int | None = None) -> float:
    """Return the largest eigenvalue of a symmetric matrix, from below."""
    start = np.random.default_rng(0).standard_normal(M.shape[0])
    options = {"tol": accuracy, "maxiter": restarts, "v0": start, "return_eigenvectors": False}
    return float(eigsh(M, k=1, which="LA", **options)[0])


def _pseudoinverse(M: sp.csr_array, z: NDArray[np.float64]) -> LinearOperator:
    """Return M⁺ for a positive semidefinite M with the null vector z, by factors of M without agent 0."""
    factors = splu(sp.csc_array(M[1:, 1:]), permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0)

    def solve(b: NDArray[np.float64]) -> NDArray[np.float64]:
        x = np.append(0.0, factors.solve((b - (z @ b) * z)[1:]))
        return np.asarray(x - (z @ x) * z)

    return LinearOperator(M.shape, matvec=lambda b: solve(np.ravel(b)), dtype=np.float64)


def _ones(neighbors: Neighbors) -> Weights:
    return tuple((1.0,) * len(near) for near in neighbors)


def _laplacian(neighbors: Neighbors, weights: Weights) -> sp.csr_array:
    """Return the Laplacian of the graph with these weights on edges."""
    off = _off_diagonal(neighbors, np.concatenate(weights))
    return sp.csr_array(sp.diags_array(off.sum(axis=1)) - off)


def _metropolis(neighbors: Neighbors) -> sp.csr_array:
    """Return W with Wᵢⱼ = 1 / (1 + max(degreeᵢ, degreeⱼ)) for neighbors, and rows that sum to 1."""
    degree = np.array([len(near) for near in neighbors])
    i, j = np.repeat(np.arange(len(neighbors)), degree), np.concatenate(neighbors).astype(np.intp)
    off = _off_diagonal(neighbors, 1.0 / (1.0 + np.maximum(degree[i], degree[j])))
    return sp.csr_array(off + sp.diags_array(1.0 - off.sum(axis=1)))


def _off_diagonal(neighbors: Neighbors, values: NDArray[np.float64]) -> sp.csr_array:
    """Return the matrix with these values at the edges, neighbor by neighbor."""
    m = len(neighbors)
    i = np.repeat(np.arange(m), [len(near) for near in neighbors])
    return sp.csr_array((values, (i, np.concatenate(neighbors).astype(np.intp))), shape=(m, m))
