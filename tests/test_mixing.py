"""Laplacian and average, against the matrices that they multiply by.

The Laplacian enters DCGS twice, so that a sign error in it would not show there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import networkx as nx
import numpy as np
import pytest

from dcgs import L1Ball, LeastSquares, Lockstep
from dcgs.counting import CountedOracle
from dcgs.facts import Facts
from dcgs.methods import Agent
from dcgs.methods.mixing import average, laplacian
from dcgs.protocol import Program
from dcgs.runtime import Job, Traffic
from problems import GRAPHS, Array, neighbors_of

Round: TypeAlias = Callable[[int, Array], Program[Array]]
# Sums of a dozen numbers of size 1, in another order.
ROUNDING = 1e-14


def run_round(graph: nx.Graph, one_round: Round, values: Array) -> tuple[Array, Traffic]:
    """Return what every agent has after one round, and the traffic."""
    found_by: dict[int, Array] = {}

    def program(i: int) -> Program[Array]:
        found_by[i] = yield from one_round(i, values[i])
        return found_by[i]

    traffic = Traffic(len(graph))
    Lockstep().run(Job(program, neighbors_of(graph), traffic, lambda: True))
    return np.stack([found_by[i] for i in range(len(graph))]), traffic


def agent_at(graph: nx.Graph, i: int) -> Agent:
    X = L1Ball(1)
    return Agent(
        index=i,
        f=LeastSquares(np.eye(1), [0.0]),
        X=X,
        lmo=CountedOracle(X),
        x0=np.zeros(1),
        degrees={j: graph.degree[j] for j in neighbors_of(graph)[i]},
        facts=Facts(agents=len(graph), norm_L=1.0, strong_convexity=0.0, set_diameter=2.0, horizon=1),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, answer, dual=None: None,
    )


def metropolis_matrix(graph: nx.Graph) -> Array:
    """Return W with Wᵢⱼ = 1/(1 + max(degreeᵢ, degreeⱼ)) on edges, and what is left of 1 on the diagonal."""
    W = np.zeros((len(graph), len(graph)))
    for i, j in graph.edges:
        W[i, j] = W[j, i] = 1.0 / (1.0 + max(graph.degree[i], graph.degree[j]))
    return W + np.diag(1.0 - W.sum(axis=1))


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("name", GRAPHS)
def test_laplacian_is_the_matrix_of_networkx(name: str, shape: tuple[int, ...]) -> None:
    graph = GRAPHS[name]
    values = np.random.default_rng(41).standard_normal((len(graph), *shape))
    found, traffic = run_round(graph, lambda i, value: laplacian(value), values)
    expected = np.tensordot(nx.laplacian_matrix(graph).toarray(), values, axes=1)
    np.testing.assert_allclose(found, expected, rtol=0.0, atol=ROUNDING)
    assert traffic.rounds == 1


def test_laplacian_of_a_star_is_what_one_works_out_by_hand() -> None:
    values = np.array([[10.0], [1.0], [2.0], [3.0], [4.0]])
    found, _ = run_round(nx.star_graph(4), lambda i, value: laplacian(value), values)
    # The center has 4·10 − (1 + 2 + 3 + 4), a leaf its own value less the center's.
    np.testing.assert_array_equal(found, [[30.0], [-9.0], [-8.0], [-7.0], [-6.0]])


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
@pytest.mark.parametrize("name", GRAPHS)
def test_average_with_metropolis_weights_is_a_doubly_stochastic_matrix(
    name: str, shape: tuple[int, ...]
) -> None:
    graph = GRAPHS[name]
    values = np.random.default_rng(42).standard_normal((len(graph), *shape))
    found, traffic = run_round(graph, lambda i, value: average(value, agent_at(graph, i).metropolis), values)
    np.testing.assert_allclose(
        found, np.tensordot(metropolis_matrix(graph), values, axes=1), rtol=0.0, atol=ROUNDING
    )
    np.testing.assert_allclose(found.sum(axis=0), values.sum(axis=0), rtol=0.0, atol=ROUNDING)
    assert traffic.rounds == 1


def test_metropolis_weights_of_a_path_are_what_one_works_out_by_hand() -> None:
    # On 0 – 1 – 2 the middle has two neighbors, so both edges weigh 1/(1 + 2).
    found, _ = run_round(
        nx.path_graph(3),
        lambda i, value: average(value, agent_at(nx.path_graph(3), i).metropolis),
        np.array([[3.0], [6.0], [12.0]]),
    )
    # 3·2/3 + 6/3; 3/3 + 6/3 + 12/3; 6/3 + 12·2/3
    np.testing.assert_allclose(found, [[4.0], [7.0], [10.0]], rtol=0.0, atol=10.0 * ROUNDING)


@pytest.mark.parametrize("name", GRAPHS)
def test_a_value_that_all_share_stays(name: str) -> None:
    graph = GRAPHS[name]
    values = np.full((len(graph), 2), 0.7)
    differences, _ = run_round(graph, lambda i, value: laplacian(value), values)
    averages, _ = run_round(graph, lambda i, value: average(value, agent_at(graph, i).metropolis), values)
    np.testing.assert_array_equal(differences, 0.0 * values)
    np.testing.assert_allclose(averages, values, rtol=0.0, atol=ROUNDING)


def test_an_agent_alone_sends_and_receives_nothing() -> None:
    values = np.array([[5.0, -1.0]])
    differences, traffic = run_round(nx.empty_graph(1), lambda i, value: laplacian(value), values)
    averages, _ = run_round(nx.empty_graph(1), lambda i, value: average(value, {}), values)
    np.testing.assert_array_equal(differences, [[0.0, 0.0]])
    np.testing.assert_array_equal(averages, values)
    assert traffic.messages.sum() == 0
