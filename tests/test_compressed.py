"""Newton solves over the coordinates that matter: the answers of solves over all, in fewer dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.counting import CountedOracle
from dcgs.inner import newton
from dcgs.inner.newton import CompressedSolver
from dcgs.objectives.maps import SparseMap

FEATURES, ROWS, AGENTS = 400, 12, 4


@pytest.fixture(autouse=True)
def small_problems_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(newton, "_LEAST", 1)


def objectives(scale: float = 1.0) -> list[dcgs.Objective]:
    """Return least squares of agents with 60 features each, of which some are those of others, too."""
    rng = np.random.default_rng(0)
    truth = np.zeros(FEATURES)
    truth[:100:10] = rng.standard_normal(10)
    found = []
    for i in range(AGENTS):
        A = np.zeros((ROWS, FEATURES))
        own = np.concatenate([np.arange(30), 30 + 60 * i + np.arange(30)])
        A[:, own] = rng.standard_normal((ROWS, 60)) * (rng.random((ROWS, 60)) < 0.5)
        A[:, own[0]] *= scale
        found.append(dcgs.LeastSquares(sp.csr_array(A), A @ truth + 0.1 * rng.standard_normal(ROWS)))
    return found


def run(scale: float = 1.0, **options: Any) -> dcgs.Result:
    graph, X, method = (
        nx.cycle_graph(AGENTS),
        dcgs.L1Ball(FEATURES, 2.0),
        dcgs.FastDCGS(form="edges", precision=1e-8),
    )
    return dcgs.minimize(objectives(scale), X, graph, method, **options)


@pytest.mark.parametrize("scale", [1.0, 1000.0], ids=["even columns", "a preconditioner"])
def test_a_run_has_the_models_of_a_run_over_all_coordinates(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = run(scale, iterations=20)
    monkeypatch.setattr(newton, "_SHARE", 0.0)
    whole = run(scale, iterations=20)
    assert few.projections.tolist() != [0] * AGENTS
    # Inner solves are exact up to 1e-8 of the last move, so both runs are equal up to a multiple of that.
    np.testing.assert_allclose(few.agents, whole.agents, atol=1e-6)


def test_coordinates_are_added_when_neighbors_use_them() -> None:
    f, X = objectives()[1], dcgs.L1Ball(FEATURES, 2.0)
    solver = dcgs.Newton().start(dcgs.Task(f, X, CountedOracle(X), X.start()))
    assert isinstance(solver, CompressedSolver)
    center = np.zeros(FEATURES)
    used = len(solver.state.coordinates)
    solver(dcgs.Subproblem(f, np.zeros(FEATURES), 1.0, center), dcgs.gap_at_most(1e-12))
    assert len(solver.state.coordinates) == used <= 60
    center[399], w = 6.5, np.zeros(FEATURES)
    w[398] = -7.0
    x = solver(dcgs.Subproblem(f, w, 1.0, center), dcgs.gap_at_most(1e-12))
    assert solver.state.coordinates[used:].tolist() == [398, 399]
    assert x[398] > x[399] > 0.0
    reference = dcgs.Projected().start(dcgs.Task(f, X, CountedOracle(X), X.start()))
    exact = reference(dcgs.Subproblem(f, w, 1.0, center), dcgs.gap_at_most(1e-14))
    np.testing.assert_allclose(x, exact, atol=1e-5)  # √(2e/η)


def test_a_map_of_some_columns_has_the_products_of_the_whole() -> None:
    f = objectives()[2]
    assert isinstance(f.map, SparseMap)
    used = np.flatnonzero(np.diff(f.map.columns.indptr))
    small, rng = f.map.with_columns(used, len(used) + 3), np.random.default_rng(1)
    x, r = np.zeros(FEATURES), rng.standard_normal(ROWS)
    x[used] = rng.standard_normal(len(used))
    np.testing.assert_array_equal(small.image(np.append(x[used], [1.0, 2.0, 3.0])), f.map.image(x))
    np.testing.assert_array_equal(small.adjoint(r), np.append(f.map.adjoint(r)[used], np.zeros(3)))
    np.testing.assert_array_equal(small.columns.toarray(), small.A.toarray())
    assert small.largest_eigenvalue == f.map.largest_eigenvalue


def test_a_resumed_run_has_the_bits_of_one_that_was_not_interrupted(tmp_path: Path) -> None:
    whole = run(iterations=30)
    run(iterations=12, checkpoint=dcgs.Checkpoint(tmp_path, every=4))
    resumed = run(iterations=30, checkpoint=dcgs.Checkpoint(tmp_path, every=4, resume=True))
    np.testing.assert_array_equal(resumed.agents, whole.agents)
