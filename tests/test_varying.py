"""Graphs that change from round to round: a sequence of graphs, or a function of the round."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.network import edges_up, union_of
from problems import random_fits

FITS = random_fits(4, rows=6, columns=5, seed=4)
HALVES = [nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2), (0, 3)])]
X = dcgs.L1Ball(5, 2.0)


def test_a_sequence_is_repeated_and_a_function_is_called_with_the_round() -> None:
    up = edges_up(HALVES, range(4))
    assert up is not None
    assert [sorted(up(round)) for round in (1, 2, 3)] == [
        [(0, 1), (2, 3)],
        [(0, 3), (1, 2)],
        [(0, 1), (2, 3)],
    ]
    asked: list[int] = []

    def graph(round: int) -> nx.Graph:
        asked.append(round)
        return HALVES[round % 2]

    assert {frozenset(edge) for edge in union_of(graph).edges} == set(map(frozenset, nx.cycle_graph(4).edges))
    assert asked == list(range(1, 1001))


def test_a_graph_that_does_not_change_has_all_edges_in_all_rounds() -> None:
    assert edges_up(nx.path_graph(3), range(3)) is None
    assert union_of(nx.path_graph(3)).number_of_edges() == 2


def test_nodes_with_names_are_agents_in_their_order() -> None:
    graphs = [nx.Graph([("a", "b"), ("b", "c")]), nx.Graph([("a", "c"), ("b", "c")])]
    up = edges_up(graphs, ("a", "b", "c"))
    assert up is not None
    assert {frozenset(edge) for edge in up(2)} == {frozenset((0, 2)), frozenset((1, 2))}


@pytest.mark.parametrize("as_function", [True, False])
def test_a_run_on_a_graph_that_changes_certifies_its_gap(as_function: bool) -> None:
    """No round connects all agents; all rounds together do."""
    graph = (lambda round: HALVES[(round - 1) % 2]) if as_function else HALVES
    result = dcgs.minimize(FITS.objectives(), X, graph, gap=1e-3, every=0)
    best = dcgs.minimize(FITS.objectives(), X, nx.cycle_graph(4), gap=1e-9, every=0)
    start, optimum = result.history.worst_loss[0], best.history.worst_loss[-1]
    assert result.status is dcgs.Status.AGREED
    assert result.history.worst_loss[-1] - optimum <= 1e-3 * (start - optimum)


def test_a_sequence_and_the_function_that_says_the_same_give_the_same_bits() -> None:
    one = dcgs.minimize(FITS.objectives(), X, HALVES, rounds=30)
    other = dcgs.minimize(FITS.objectives(), X, lambda round: HALVES[(round - 1) % 2], rounds=30)
    assert one.agents.tobytes() == other.agents.tobytes()
    assert one.bytes.tolist() == other.bytes.tolist()


def test_the_same_graph_in_all_rounds_is_a_run_in_which_nothing_is_lost() -> None:
    """Vectors for each neighbor are another way to write the same iteration."""
    cycle, method = nx.cycle_graph(4), dcgs.FastDCGS(form="edges", eta=3.0)
    one = dcgs.minimize(FITS.objectives(), X, [cycle], method, rounds=40)
    other = dcgs.minimize(FITS.objectives(), X, cycle, method, rounds=40)
    # Inner solves end at another point within their accuracy, which tightens as the run converges.
    np.testing.assert_allclose(one.x, other.x, atol=1e-3)


@pytest.mark.parametrize(
    "method", [dcgs.DCGS(), dcgs.DFW(), dcgs.NIDS(), dcgs.FastDCGS(form="sums")], ids=repr
)
def test_a_method_that_needs_all_messages_is_refused(method: dcgs.Method) -> None:
    with pytest.raises(
        ValueError, match=r"^a method must tolerate missing messages .* Use dcgs.FastDCGS\(\)"
    ):
        dcgs.minimize(FITS.objectives(), X, HALVES, method, rounds=4)
