"""Graphs that change from round to round: a sequence of graphs, or a function of the round."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterator, Sequence
from typing import TypeAlias

import networkx as nx

from dcgs.front.network import check_graph
from dcgs.validation import instance, shown

GraphArgument: TypeAlias = nx.Graph | Sequence[nx.Graph] | Callable[[int], nx.Graph]
EdgesUp: TypeAlias = Callable[[int], Collection[tuple[int, int]]]

# Rounds of a function for which the graph is asked before a run.
_ASKED = 1000


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
