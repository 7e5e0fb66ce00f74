"""Graphs of ten thousand agents: what is computed before the first round, and the limit on seconds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.testing import assert_allclose

import dcgs
from dcgs import Status, tree
from dcgs.counting import BudgetSpentError
from dcgs.network import as_network, extreme_eigenvalues, laplacian_norm, normalized_spectrum, resistances
from dcgs.objectives.objective import Objective
from dcgs.protocol import Program
from dcgs.run import checks
from dcgs.runtime import Job, Lockstep, Traffic

MANY = 10_000
GRAPHS = {
    "single": nx.empty_graph(1),
    "path": nx.path_graph(12),
    "cycle": nx.cycle_graph(17),
    "star": nx.star_graph(9),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(5, 6)),
    "tree": nx.random_labeled_tree(60, seed=1),
    "small world": nx.connected_watts_strogatz_graph(80, 4, 0.1, seed=2),
    "regular": nx.random_regular_graph(3, 50, seed=3),
    "barbell": nx.barbell_graph(6, 4),
}


def neighbors_of(graph: nx.Graph) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(sorted(graph[i])) for i in range(len(graph)))


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The agents from which a breadth-first search was started."""
    started: list[int] = []
    search = tree.depths_from

    def counted(neighbors: Sequence[Sequence[int]], root: int) -> list[int]:
        started.append(root)
        return search(neighbors, root)

    monkeypatch.setattr(tree, "depths_from", counted)
    return started


@pytest.mark.parametrize("name", GRAPHS)
def test_the_center_is_the_first_agent_whose_farthest_agent_is_nearest(name: str) -> None:
    neighbors = neighbors_of(GRAPHS[name])
    farthest = [max(tree.depths_from(neighbors, i)) for i in range(len(neighbors))]
    assert tree.center(neighbors) == farthest.index(min(farthest))


def test_up_to_a_thousand_agents_the_center_is_exact_however_many_searches_it_takes(
    searches: list[int],
) -> None:
    # All agents of a cycle are alike, so no bound spares a search: the worst case.
    assert tree.center(neighbors_of(nx.cycle_graph(1000))) == 0
    assert len(searches) == len(set(searches)) <= 1000


@pytest.mark.parametrize(
    "graph",
    [nx.connected_watts_strogatz_graph(MANY, 4, 0.1, seed=0), nx.cycle_graph(MANY)],
    ids=["small world", "cycle"],
)
def test_the_network_of_ten_thousand_agents_takes_a_million_visits_at_most(
    graph: nx.Graph, searches: list[int]
) -> None:
    network = as_network(graph)
    # One more search is that of the spanning tree itself.
    assert (len(searches) - 1) * MANY <= 1_000_000
    # The root is the best of those searched from, and no tree is deeper than the diameter.
    (root,) = [i for i, node in enumerate(network.tree) if node.parent is None]
    assert root in searches[:-1]
    assert network.tree[root].height <= nx.approximation.diameter(graph)


def test_the_root_of_a_small_world_of_ten_thousand_agents_is_its_center() -> None:
    network = as_network(nx.connected_watts_strogatz_graph(MANY, 4, 0.1, seed=0))
    # Searches from all agents, which take a minute, find agent 1891, 16 edges from its farthest agent.
    assert (network.tree[1891].parent, network.tree[1891].height) == (None, 16)


def test_the_spectrum_of_a_long_cycle_is_the_one_worked_out_by_hand() -> None:
    neighbors = neighbors_of(nx.cycle_graph(MANY))
    # L has 2 − 2 cos(2πk/m), D^(−1/2) L D^(−1/2) half of that, and W = I − L/3. Norms are raised by up to
    # 1e-3, so that they are bounds. The smallest positive eigenvalue is right to 1e-6, of itself.
    assert 4.0 <= laplacian_norm(neighbors) <= 4.0 * (1.0 + 1e-3)
    norm, connectivity = normalized_spectrum(neighbors, resistances(neighbors))
    assert norm == 2.0
    smallest = 1.0 - math.cos(2.0 * math.pi / MANY)
    assert_allclose(connectivity * norm, smallest, rtol=1e-6)
    low, second = extreme_eigenvalues(neighbors)
    assert -1.0 / 3.0 - 4.0 / 3.0 * 1e-3 <= low <= -1.0 / 3.0
    # 1 − second has lost the digits of 1e-7 beside 1: 1e-16 of 1e-7 is 1e-9.
    assert_allclose(1.0 - second, 2.0 / 3.0 * smallest, rtol=1e-6)


@pytest.mark.parametrize(
    "graph", [nx.barabasi_albert_graph(1200, 3, seed=0), nx.random_regular_graph(4, 1200, seed=0)]
)
def test_sparse_eigenvalues_are_those_of_the_dense_matrix(graph: nx.Graph) -> None:
    neighbors = neighbors_of(graph)
    dense = np.linalg.eigvalsh(nx.normalized_laplacian_matrix(graph).toarray())
    norm, connectivity = normalized_spectrum(neighbors, resistances(neighbors))
    # Raised by 1e-6, after an iteration that is right to 1e-6.
    assert_allclose([norm, connectivity * norm], [dense[-1], dense[1]], rtol=2e-6)
    whole = float(np.linalg.eigvalsh(nx.laplacian_matrix(graph).toarray().astype(float))[-1])
    assert whole <= laplacian_norm(neighbors) <= whole * (1.0 + 2e-6)


# The set-up counts.


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The clock of runs, which the set-up of a network lets go on by three seconds, and nothing else does."""
    now = [0.0]

    def slow(graph: nx.Graph) -> Any:
        now[0] += 3.0
        return as_network(graph)

    monkeypatch.setattr("dcgs.run.stopping.time", SimpleNamespace(perf_counter=lambda: now[0]))
    monkeypatch.setattr(checks, "as_network", slow)
    return now


def squares() -> list[Objective]:
    return [dcgs.LeastSquares(np.eye(2), [float(i), 1.0]) for i in range(3)]


@pytest.mark.usefixtures("clock")
def test_a_set_up_that_takes_all_the_seconds_ends_the_run_before_its_first_round() -> None:
    result = dcgs.minimize(squares(), dcgs.L1Ball(2), nx.path_graph(3), dcgs.DFW(), seconds=2.0)
    assert (result.status, result.iterations, result.rounds, result.seconds) == (Status.SECONDS, 0, 0, 0.0)
    assert "the set-up took 3.0 of the 2.0 seconds." in result.notes


@pytest.mark.usefixtures("clock")
def test_a_limit_on_seconds_that_the_set_up_does_not_reach_lets_the_run_go_on() -> None:
    result = dcgs.minimize(squares(), dcgs.L1Ball(2), nx.path_graph(3), dcgs.DFW(), seconds=4.0, iterations=3)
    assert (result.status, result.iterations, result.seconds, result.notes) == (Status.ITERATIONS, 3, 0.0, ())


def test_an_agent_whose_turn_comes_too_late_does_not_compute() -> None:
    steps: list[int] = []

    def program(i: int) -> Program[None]:
        for _ in range(5):
            steps.append(i)
            yield np.zeros(1)

    job = Job(program, [(1,), (0, 2), (1,)], Traffic(3), lambda: True, is_out_of_time=lambda: len(steps) >= 5)
    with pytest.raises(BudgetSpentError):
        Lockstep().run(job)
    assert steps == [0, 1, 2, 0, 1]
