"""Reductions over the network: the same bits for all agents, counted, on every runtime."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.learn.sums import Request

# A graph, the rounds of a short sum, and those of a long one.
GRAPHS = [
    (nx.path_graph(1), 1, 1),
    (nx.path_graph(2), 1, 1),
    (nx.complete_graph(5), 1, 2),
    (nx.cycle_graph(7), 3, 6),
    (nx.star_graph(5), 2, 2),
    (nx.barbell_graph(3, 2), 5, 6),
]


@pytest.mark.parametrize(("graph", "short", "long"), GRAPHS)
def test_short_sums_are_flooded_where_that_takes_fewer_rounds(graph: nx.Graph, short: int, long: int) -> None:
    for numbers, rounds in ((4, short), (100_000, long)):
        values = np.random.default_rng(0).integers(-9, 9, (len(graph), numbers)).astype(float)
        total = dcgs.allreduce([[own[1:], own[0]] for own in values], graph)
        assert total.arrays[0].tolist() == values[:, 1:].sum(axis=0).tolist()
        assert float(total.arrays[1]) == values[:, 0].sum()
        assert total.rounds == rounds
        # Along a tree every agent but the root sends one message up, and every agent one to each child.
        is_flooded = rounds < 2 * nx.radius(graph)
        sent = 2 * (len(graph) - 1)
        assert total.messages.sum() >= sent if is_flooded else total.messages.sum() == sent


@pytest.mark.parametrize("secure", [False, True], ids=["open", "masked"])
def test_what_the_root_alone_reads_and_texts_go_along_the_tree(secure: bool) -> None:
    network, values = dcgs.Reductions(nx.cycle_graph(6), secure=secure), {i: [[1.0]] for i in range(6)}
    network.sum("all", values)  # keys and the magnitude
    for request, rounds in (
        (Request("all", values), 3),
        (Request("root", values, "integers", answer=lambda totals: [np.ones(1)]), 6),
        (Request("texts", {i: ["a"] for i in range(6)}, "union"), 6),
    ):
        network.sent.clear()
        network.run(iter_of(request))
        assert network.rounds == rounds


def iter_of(request: Request) -> Any:
    return (yield request)


@pytest.mark.parametrize("operation", ["min", "max"])
def test_extremes_are_those_of_all_agents(operation: str) -> None:
    values = np.random.default_rng(1).standard_normal((6, 3))
    reduced = dcgs.allreduce([[own] for own in values], nx.cycle_graph(6), operation=operation)
    assert reduced.arrays[0].tolist() == getattr(values, operation)(axis=0).tolist()
    assert reduced.rounds == 3  # flooded, as sums are


def test_texts_are_agreed_on_in_order_whatever_their_alphabet() -> None:
    agreed = dcgs.agree_on_texts([["straße", "a"], [], ["b\n", "a", ""]], nx.path_graph(3))
    assert agreed.texts == ("", "a", "b\n", "straße")
    assert agreed.bytes.sum() > 0


def test_agents_with_arrays_of_different_shapes_are_named() -> None:
    with pytest.raises(
        ValueError, match=r"same shapes for all agents; agent 0 has \[\(\)\], agent 1 has \[\(2,\)\]"
    ):
        dcgs.allreduce([[1.0], [[1.0, 2.0]]], nx.path_graph(2))


def test_values_for_other_agents_than_those_of_the_graph_are_refused() -> None:
    with pytest.raises(ValueError, match=r"for the agents \[0, 1\]; got them for \[0\]"):
        dcgs.allreduce([[1.0]], nx.path_graph(2))


def test_an_unknown_operation_is_refused() -> None:
    with pytest.raises(ValueError, match="operation must be"):
        dcgs.allreduce([[1.0]], nx.path_graph(1), operation="mean")
