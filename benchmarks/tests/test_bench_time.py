"""dcgs bench time and growth: their numbers follow from what was recorded, and their commands run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.cli import main
from dcgs.link import LINKS, Link
from dcgs_bench import growth
from dcgs_bench.entries import entry_named
from dcgs_bench.instances import instance_named
from dcgs_bench.optimum import Optimum, solve
from dcgs_bench.pooled import pool, pooled_objective
from dcgs_bench.ranking import (
    POOL,
    TIME_LEVELS,
    Ranking,
    RunCost,
    Trial,
    cost_to,
    time_rankings,
    time_tables,
    trials_of,
)
from dcgs_bench.rounds import GridStudy, RoundsGrid
from dcgs_bench.study import Records, StudyProblem, run_tasks


def test_the_three_links_are_those_of_the_table() -> None:
    assert {name: (link.speed, link.latency) for name, link in LINKS.items()} == {
        "lan": (1e9 / 8, 2e-4),
        "paper": (10e6, 1e-3),
        "wan": (100e6 / 8, 2e-2),
    }


@pytest.mark.parametrize("latency", [-1.0, float("inf"), float("nan")])
def test_a_latency_is_finite_and_not_negative(latency: float) -> None:
    with pytest.raises(ValueError, match="latency of a link must be finite and at least 0"):
        Link(1.0, latency)


def test_the_time_of_a_run_is_computing_and_bytes_and_rounds() -> None:
    cost = RunCost(100, 3_000_000, 0, 5_000_000, 2.0)
    assert cost.seconds(Link(10e6, 1e-3)) == pytest.approx(2.0 + 0.5 + 0.1, rel=1e-15)


def test_the_cost_is_that_of_the_first_point_of_the_level() -> None:
    columns: dict[str, list[float]] = {
        "worst_loss": [10.0, 1.0, 0.1, 0.05],
        "computing": [0.0, 1.0, 2.0, 3.0],
        "bytes": [0, 10, 20, 30],
        "peak_bytes": [0, 12, 25, 40],
        "rounds": [0, 1, 2, 3],
        "lmo_calls": [0, 7, 14, 21],
    }
    optimum = Optimum(value=0.0, start=10.0, gap=0.0, iterations=1)
    assert cost_to(columns, optimum, 1e-2) == RunCost(2, 20, 14, 25, 2.0)
    assert cost_to(columns, optimum, 1e-3) is None
    assert cost_to(columns, Optimum(0.0, 10.0, 0.5, 1), 1e-2) is None  # f* is not known well enough


def test_the_pool_is_beside_the_methods_and_not_among_them() -> None:
    seconds = {"A": 1.0, "B": 1.1, "C": None, POOL: 0.5}
    trials = [
        Trial(name, costs={1e-3: None if each is None else RunCost(0, computing=each)})
        for name, each in seconds.items()
    ]
    ranking = Ranking({"one": trials}, link=Link(1e6))
    assert ranking.best("one") == 1.0
    assert [ranking.counts(name) for name in ("A", "B", "C")] == [(1, 1, 1), (0, 1, 1), (0, 0, 0)]
    assert [ranking.cell("one", name) for name in seconds] == [
        ("1", True),
        ("1.1", False),
        ("—", False),
        ("0.5", True),
    ]
    counts, *_ = time_tables(time_rankings({"one": trials})[-1])
    assert [row[0][0] for row in counts.rows] == ["A", "B", "C"]


def test_a_run_that_did_not_get_there_shows_what_it_took() -> None:
    late = Trial(
        "DFW", end="SECONDS", spent=RunCost(10, peak_bytes=10_000_000, computing=2.0), costs={1e-3: None}
    )
    assert Ranking({"one": [late]}, link=Link(10e6)).cell("one", "DFW") == (">3", False)


@pytest.mark.parametrize("kind", ["dense", "sparse", "logistic", "huber", "completion"])
def test_the_pooled_objective_is_the_sum(kind: str) -> None:
    rng = np.random.default_rng(3)
    parts = []
    for _ in range(3):
        A, b = rng.standard_normal((4, 6)), rng.standard_normal(4)
        match kind:
            case "dense":
                parts.append(dcgs.LeastSquares(A, b))
            case "sparse":
                parts.append(dcgs.LeastSquares(sp.csr_array(A), b))
            case "logistic":
                parts.append(dcgs.Logistic(A, np.sign(b)))
            case "huber":
                parts.append(dcgs.Objective(dcgs.HuberLoss(b, 0.3), dcgs.matrix_map(A)))
            case _:
                parts.append(dcgs.MatrixCompletion([0, 1, 1], [0, 2, 1], b[:3], (2, 3)))
    x = rng.standard_normal(parts[0].shape)
    # The same dozen terms, added in another order.
    assert pooled_objective(parts).value(x) == pytest.approx(sum(f.value(x) for f in parts), rel=1e-13)


def test_a_centralized_solver_reaches_the_levels_on_the_pooled_data() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones(3), np.zeros(17)])
    data = [rng.standard_normal((15, 20)) for _ in range(3)]
    parts = [dcgs.LeastSquares(A, A @ x + 0.1 * rng.standard_normal(15)) for A in data]
    problem = StudyProblem(parts, dcgs.L1Ball(20, 2.0), nx.path_graph(3))
    found = pool(problem, solve(problem), limit=5.0)
    for level in TIME_LEVELS:
        cost = found.costs[level]
        assert cost is not None
        # All data cross the link, and a model comes back.
        assert (cost.rounds, cost.bytes, cost.peak_bytes) == (2, 3 * 15 * 21 * 8 + 20 * 8, cost.bytes)
        assert cost.computing > 0.0
        assert f" to {level:.0e}" in found.note


def test_recorded_runs_are_read_and_not_repeated(tmp_path: Path) -> None:
    grid = RoundsGrid(GridStudy(Records(tmp_path), 5.0), with_pool=True)
    chosen, entries = [instance_named("quick-noisy")], [entry_named("FastDCGS"), entry_named("ProjectedAGD")]
    done: list[str] = []

    def report(name: str, sentence: str | None) -> None:
        assert sentence is None, sentence
        done.append(name)

    for _ in range(2):
        for stage in grid.stages(chosen, entries):
            run_tasks(grid.study.records, stage(), 1, report)
        assert len(done) == 8  # f*, the measured runs of two methods, runs to gaps (3 and 1), the pool
    trials = trials_of(grid.record(chosen, entries))
    until, *to_levels = time_rankings(trials)
    names = ["FastDCGS", "ProjectedAGD", POOL]
    for ranking in (until[-1], to_levels[-1][-1]):
        assert ranking.shown == names
        amounts = [ranking.amount("quick-noisy", name) for name in names]
        assert all(amount is not None and amount > 0.0 for amount in amounts)
    stop = trials["quick-noisy"][0].stops[1e-3]
    assert until[0].cost("quick-noisy", "FastDCGS") == stop.cost
    assert stop.cost.peak_bytes >= stop.cost.bytes > 0
    assert time_tables(until)[-1].title.startswith(
        "wan (12.5 MB/s, 20 ms a round): seconds until the agents stop"
    )


def test_one_quantity_grows_at_a_time() -> None:
    small = growth.GrowthCase(features=12, rows=8, nonzeros=3)
    for name, size in (("agents", 12), ("features", 30), ("rows", 9), ("nonzeros", 12)):
        case = replace(small, **{name: size})
        problem = growth.make(case, seed=0)
        maps = [f.map for f in problem.objectives]
        assert len(maps) == case.agents == len(problem.graph)
        assert all(map_.size == case.rows and map_.shape == (case.features,) for map_ in maps)


def test_bench_growth_writes_table_picture_and_numbers(tmp_path: Path) -> None:
    assert main(["bench", "growth", "--grows", "agents", "--most", "10", "--out", str(tmp_path)]) == 0
    (row,) = json.loads((tmp_path / "growth.json").read_text())["rows"]
    assert row["certified"]
    assert row["memory"] > 10.0  # megabytes: Python alone takes more
    assert {file.name for file in tmp_path.iterdir()} == {"growth.json", "growth.md", "growth.png", "runs"}
