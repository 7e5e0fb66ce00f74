"""Reductions over the network: the same bits for all agents, counted, on every runtime."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import dcgs

GRAPHS = [nx.path_graph(1), nx.path_graph(2), nx.cycle_graph(7), nx.star_graph(5), nx.barbell_graph(3, 2)]


@pytest.mark.parametrize("graph", GRAPHS, ids=lambda graph: f"{len(graph)} agents")
def test_a_sum_is_that_of_all_agents_after_twice_the_radius_rounds(graph: nx.Graph) -> None:
    values = np.random.default_rng(0).integers(-9, 9, (len(graph), 4)).astype(float)
    total = dcgs.allreduce([[own[:3], own[3]] for own in values], graph)
    assert total.arrays[0].tolist() == values[:, :3].sum(axis=0).tolist()
    assert float(total.arrays[1]) == values[:, 3].sum()
    assert total.rounds == max(1, 2 * nx.radius(graph))
    # Along a tree every agent but the root sends one message up, and every agent one to each child.
    assert total.messages.sum() == 2 * (len(graph) - 1)


@pytest.mark.parametrize("operation", ["min", "max"])
def test_extremes_are_those_of_all_agents(operation: str) -> None:
    values = np.random.default_rng(1).standard_normal((6, 3))
    reduced = dcgs.allreduce([[own] for own in values], nx.cycle_graph(6), operation=operation)
    assert reduced.arrays[0].tolist() == getattr(values, operation)(axis=0).tolist()


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
