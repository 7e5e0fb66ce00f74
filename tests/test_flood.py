"""What agents flood is known to all after as many rounds as the diameter; nothing is sent twice."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from dcgs.methods.reduction import Flood
from dcgs.network import as_network
from problems import Array

GRAPHS = {
    "cycle": nx.cycle_graph(7),
    "path": nx.path_graph(6),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)),
    "complete": nx.complete_graph(5),
    "random": nx.random_regular_graph(3, 12, seed=2),
}


def spread(graph: nx.Graph, rounds: int) -> tuple[dict[int, Flood], dict[tuple[int, int], int]]:
    """Let all agents flood two numbers; return what they have, and how many rows crossed each edge."""
    floods, crossed = {i: Flood() for i in graph}, dict[tuple[int, int], int]()
    for i, flood in floods.items():
        flood.add(i, numbers_of(i), graph[i])
    for _ in range(rounds):
        outboxes = [(i, floods[i].outgoing()) for i in graph]
        for i, j, message in [(i, j, message) for i, sent in outboxes for j, message in sent.items()]:
            crossed[i, j] = crossed.get((i, j), 0) + int(message[0])
            floods[j].receive(i, message, graph[j])
    return floods, crossed


def numbers_of(i: int) -> Array:
    return np.array([0.1 * i, np.pi**i])


@pytest.mark.parametrize("name", GRAPHS)
def test_all_know_all_after_the_diameter_and_not_before(name: str) -> None:
    graph = GRAPHS[name]
    diameter = nx.diameter(graph)
    assert as_network(graph).tree[0].diameter == diameter
    expected = np.stack([numbers_of(i) for i in sorted(graph)])
    for flood in spread(graph, diameter)[0].values():
        assert flood.in_order().tobytes() == expected.tobytes()
    assert min(len(flood.known) for flood in spread(graph, diameter - 1)[0].values()) < len(graph)


@pytest.mark.parametrize("name", GRAPHS)
def test_no_number_crosses_an_edge_twice_in_one_direction_and_then_there_is_silence(name: str) -> None:
    graph = GRAPHS[name]
    floods, crossed = spread(graph, len(graph))
    assert max(crossed.values()) <= len(graph) - 1
    assert all(not flood.outgoing() for flood in floods.values())
    # Along the edges of a tree each number crosses once, in one direction.
    assert sum(crossed.values()) >= len(graph) * (len(graph) - 1)
    assert name != "path" or sum(crossed.values()) == len(graph) * (len(graph) - 1)


def test_what_is_new_is_sent_to_all_but_its_sender() -> None:
    flood = Flood()
    flood.receive(1, np.array([1.0, 7.0, 0.5]), (1, 2, 3))
    sent = flood.outgoing()
    assert sorted(sent) == [2, 3]
    assert sent[2] is sent[3]
    assert sent[2].tolist() == [1.0, 7.0, 0.5]


@pytest.mark.parametrize(
    "wrong", [np.zeros(0), np.zeros(3), np.array([2.0, 1.0, 1.0, 1.0]), np.zeros((1, 2))]
)
def test_a_wrong_message_names_its_sender(wrong: Array) -> None:
    with pytest.raises(ValueError, match=r"a message must have shape \(1 \+ n · w,\): .*; agent 4 sent"):
        Flood().receive(4, wrong, (4,))


def test_rows_of_another_width_than_the_own_are_refused() -> None:
    with pytest.raises(ValueError, match=r"must have shape \(1 \+ n · 4,\): .*; agent 4 sent .* \(4,\)"):
        Flood(3).receive(4, np.array([1.0, 4.0, 0.5, 0.5]), (4,))
    Flood(2).receive(4, np.array([1.0, 4.0, 0.5, 0.5]), (4,))
