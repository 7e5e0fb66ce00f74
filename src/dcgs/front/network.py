"""The graph of agents: neighbors, degrees, the spanning tree, and the eigenvalues that methods need.

A graph may change from round to round: a sequence of graphs, or a function of the round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from numbers import Integral
from typing import TypeAlias, final

import networkx as nx

from dcgs.front.spectrum import (
    Neighbors,
    Weights,
    extreme_eigenvalues,
    laplacian_norm,
    mixing_eigenvalues,
    normalized_spectrum,
    resistances,
)
from dcgs.parallel import blas_threads
from dcgs.tree import TreeNode, center, spanning_tree
from dcgs.validation import instance, shown

GraphArgument: TypeAlias = nx.Graph | Sequence[nx.Graph] | Callable[[int], nx.Graph]
EdgesUp: TypeAlias = Callable[[int], Collection[tuple[int, int]]]

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
        return mixing_eigenvalues(self.neighbors)

    def extreme_eigenvalues(self) -> tuple[float, float]:
        """Return the smallest and the second largest eigenvalue of the Metropolis matrix, by Lanczos."""
        return extreme_eigenvalues(self.neighbors)


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
    for round, each in _rounds(graph):
        instance(each, nx.Graph, f"the graph of round {round}", "be a networkx.Graph")
        check_graph(each)
        if union is None:
            union = nx.Graph(each)
            continue
        if set(each) != set(union):
            odd = sorted(set(each) ^ set(union), key=str)
            raise ValueError(
                f"graphs of all rounds must have the same nodes; that of round {round} differs in {odd}."
            )
        union.add_edges_from(each.edges)
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
