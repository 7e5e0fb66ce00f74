"""dcgs bench time, robust and growth: their numbers follow from what was recorded, and their commands run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.bench import growth, robust
from dcgs.bench.entries import entry
from dcgs.bench.instances import instance
from dcgs.bench.optimum import Optimum, solve
from dcgs.bench.pooled import Pooled, pool, pooled_objective
from dcgs.bench.random_problems import random_problem
from dcgs.bench.ranking import TimeCost, time_cost
from dcgs.bench.rounds import RoundsStudy, run_study
from dcgs.bench.time_report import counts_table, time_table
from dcgs.bench.timing import POOL, Times, pool_cost, run_times, times, times_until_stop
from dcgs.cli import main
from dcgs.link import LINKS, Link
from dcgs.study import Problem, ResultCache


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
    cost = TimeCost(computing=2.0, bytes=3_000_000, peak_bytes=5_000_000, rounds=100)
    assert cost.seconds(Link(10e6, 1e-3)) == pytest.approx(2.0 + 0.5 + 0.1, rel=1e-15)


def test_the_cost_is_that_of_the_first_point_of_the_level() -> None:
    columns: dict[str, list[float]] = {
        "worst_loss": [10.0, 1.0, 0.1, 0.05],
        "computing": [0.0, 1.0, 2.0, 3.0],
        "bytes": [0, 10, 20, 30],
        "peak_bytes": [0, 12, 25, 40],
        "rounds": [0, 1, 2, 3],
    }
    optimum = Optimum(value=0.0, start=10.0, gap=0.0, iterations=1)
    assert time_cost(columns, optimum, 1e-2) == TimeCost(2.0, 20, 25, 2)
    assert time_cost(columns, optimum, 1e-3) is None
    assert time_cost(columns, Optimum(0.0, 10.0, 0.5, 1), 1e-2) is None  # f* is not known well enough


def test_the_pool_is_beside_the_methods_and_not_among_them() -> None:
    costs = {
        "one": {
            "A": TimeCost(1.0, 0, 0, 0),
            "B": TimeCost(1.1, 0, 0, 0),
            "C": None,
            POOL: TimeCost(0.5, 0, 0, 0),
        }
    }
    found = Times(1e-3, costs)
    link = Link(1e6)
    assert found.least("one", link) == 1.0
    assert [found.counts(name, link) for name in ("A", "B", "C")] == [(1, 1, 1), (0, 1, 1), (0, 0, 0)]
    (row,) = time_table(found, "any", link).rows
    assert [text for text, best in row if best] == ["1", "0.5"]
    assert [row[0][0] for row in counts_table(found).rows] == ["A", "B", "C"]


def test_the_pool_pays_for_all_data_and_a_model() -> None:
    pooled = Pooled(1000, 80, {"1e-03": 2.0, "1e-02": None}, {"1e-03": "FISTA", "1e-02": ""})
    assert pool_cost(pooled, 1e-3) == TimeCost(2.0, 1080, 1080, 2)
    assert pool_cost(pooled, 1e-2) is None


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
    problem = Problem(parts, dcgs.L1Ball(20, 2.0), nx.path_graph(3))
    found = pool(problem, solve(problem), (1e-2, 1e-3), limit=5.0)
    assert found.data_bytes == 3 * 15 * 21 * 8
    assert found.model_bytes == 20 * 8
    assert None not in found.seconds.values()
    assert set(found.solvers.values()) <= {"FISTA", "scikit-learn"}


def test_recorded_runs_are_read_and_not_repeated(tmp_path: Path) -> None:
    study = RoundsStudy(ResultCache(tmp_path), seconds=5.0)
    chosen, entries = [instance("quick-noisy")], [entry("FastDCGS"), entry("ProjectedAGD")]
    done: list[str] = []

    def report(name: str, sentence: str | None) -> None:
        assert sentence is None, sentence
        done.append(name)

    run_times(study, chosen, entries, report)
    assert len(done) == 8  # f*, the measured runs of two methods, runs to gaps (3 and 1), the pool
    run_times(study, chosen, entries, report)
    assert len(done) == 8
    costs = times(study, chosen, entries, 1e-3).costs["quick-noisy"]
    assert list(costs) == ["FastDCGS", "ProjectedAGD", POOL]
    assert all(cost is not None and cost.computing > 0.0 for cost in costs.values())
    until = times_until_stop(study, chosen, entries)
    assert list(until.costs["quick-noisy"]) == list(costs)
    for one in entries:
        stop, cost = study.stop(chosen[0], one, 1e-3), until.costs["quick-noisy"][one.name]
        assert stop is not None
        assert cost == TimeCost(stop.computing, stop.bytes, stop.peak_bytes, stop.rounds)
        assert cost.computing > 0.0
        assert cost.peak_bytes >= cost.bytes > 0
    assert time_table(until, "wan", LINKS["wan"]).head[0] == "wan: s until the agents stop at 1e-03"


def test_a_run_far_behind_fastdcgs_ends_and_shows_what_it_took(tmp_path: Path) -> None:
    study = RoundsStudy(ResultCache(tmp_path), seconds=60.0, level=1e-3, patience=0.5)
    chosen, entries = [instance("quick-noisy")], [entry("DFW"), entry("FastDCGS")]
    failures: list[str] = []

    def report(name: str, sentence: str | None) -> None:
        failures.extend([] if sentence is None else [sentence])

    run_study(study, chosen, entries, report)
    assert not failures
    found = times(study, chosen, entries, 1e-3)
    ours = found.costs["quick-noisy"]["FastDCGS"]
    assert ours is not None
    assert found.costs["quick-noisy"]["DFW"] is None
    spent = found.spent["quick-noisy", "DFW"]
    # A round takes at least the latency, and all rounds before the last were within half of our time.
    assert all(spent.seconds(link) > 0.5 * ours.seconds(link) for link in LINKS.values())
    (row,) = time_table(found, "wan", LINKS["wan"]).rows
    assert [text for text, _ in row if text.startswith(">")] == [f">{spent.seconds(LINKS['wan']):.3g}"]


def test_a_random_problem_repeats_from_its_seed() -> None:
    for seed in range(12):  # every set once
        one, other = random_problem(seed), random_problem(seed)
        assert one.about == other.about
        x = one.problem.X.start()
        pairs = zip(one.problem.objectives, other.problem.objectives, strict=True)
        assert all(f.value(x) == g.value(x) for f, g in pairs)


def test_the_share_counts_what_was_certified_in_time() -> None:
    row = {
        "set": "Box",
        "loss": "huber",
        "graph": "path",
        "status": "AGREED",
        "certified": True,
        "seconds": 1.0,
    }
    rows = [row, row | {"seconds": 7.0}, row | {"certified": False, "status": "ROUNDS"}]
    *_, total = robust.share_table(rows, "set", 5.0).rows
    assert [text for text, _ in total] == ["all", "3", "1", "33.3%", "7.0", "1 later, 1 ROUNDS"]


def test_bench_robust_prints_its_tables(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "robust.json"
    assert main(["bench", "robust", "--only", "1", "2", "--jobs", "1", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [row["seed"] for row in rows] == [1, 2]
    assert "certified within 5 s" in capsys.readouterr().out


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
    assert {file.name for file in tmp_path.iterdir()} == {"growth.json", "growth.md", "growth.png"}
