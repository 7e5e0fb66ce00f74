"""``dcgs bench completion``: every case has its numbers, and they are those of the data."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.bench import completion, optimum
from dcgs.bench.completion_optimum import Observed, solve
from dcgs.bench.completion_runners import DERIVED, IMPLICIT, OPTIMUM, SURPRISE
from dcgs.cli import main
from dcgs.report.bench_figures import completion_growth_figure
from dcgs.study import Problem

SMALL = {"ratings": 600, "rows": 40, "cols": 25, "agents": 3}


EVERYWHERE = ["mean", "offsets", "FastDCGS", OPTIMUM, DERIVED, "DFW", "ProjectedAGD"]


@pytest.mark.parametrize("method", EVERYWHERE)
def test_a_case_has_the_error_of_its_method_on_held_out_ratings(method: str) -> None:
    case = completion.Case("synthetic", method, 5.0, 60.0, **SMALL)
    row = completion.run(case)
    train, test = completion.load(case)
    assert (row["fitted"], row["shape"]) == (600, [40, 25])
    assert json.dumps(row)
    by_mean = np.sqrt(np.mean((test.values - train.values.mean()) ** 2))
    assert row["rmse"] == by_mean if method == "mean" else row["rmse"] < by_mean
    assert (row["bytes"] > 0) == (method not in ("mean", OPTIMUM))


@pytest.mark.parametrize(("module", "method"), [("surprise", SURPRISE), ("implicit", IMPLICIT)])
def test_other_libraries_complete_where_they_are_installed(module: str, method: str) -> None:
    pytest.importorskip(module)
    row = completion.run(completion.Case("synthetic", method, 5.0, 60.0, **SMALL))
    assert row["rmse"] < completion.run(completion.Case("synthetic", "mean", 5.0, 60.0, **SMALL))["rmse"]


def test_the_centralized_optimum_is_that_of_another_solver() -> None:
    rng = np.random.default_rng(0)
    rows, cols, values = rng.integers(0, 20, 150), rng.integers(0, 12, 150), rng.standard_normal(150)
    assert len(np.unique(rows * 12 + cols)) < 150  # some entries are observed twice
    found = solve(Observed.of(rows, cols, values, (20, 12)), radius=8.0, target=1e-6)
    f = dcgs.MatrixCompletion(rows, cols, values, (20, 12))
    assert f.value(np.asarray(found.x)) == pytest.approx(found.value, rel=1e-12)
    problem = Problem([f], dcgs.NuclearNormBall((20, 12), 8.0), nx.empty_graph(1))
    other = optimum.solve(problem, target=1e-6)
    # Both are within 1e-6 of the decrease.
    assert abs(found.value - other.value) <= 1e-6 * (found.start - found.value)
    assert found.x.singular_values().sum() == pytest.approx(8.0, rel=1e-9)
    assert found.share <= 1e-6


def test_what_is_derived_for_projected_agd_is_what_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its iterations and rounds; its messages are at most dense ones, because they are sent as sparse.

    What its agents send to know the gap is not derived: the observer ends this run.
    """
    monkeypatch.setattr(dcgs.ProjectedAGD, "stops_itself", False)
    derived, measured, offsets = (
        completion.run(completion.Case("synthetic", method, 5.0, 60.0, **SMALL | {"agents": 4}))
        for method in (DERIVED, "ProjectedAGD", "offsets")
    )
    assert derived["iterations"] == measured["iterations"] > 5
    assert derived["rounds"] == measured["rounds"] - offsets["rounds"]
    assert derived["rmse"] == pytest.approx(measured["rmse"], rel=1e-6)
    assert derived["bytes"] == derived["rounds"] * 2 * 8 * 40 * 25
    # What is counted has headers, of some hundred bytes a message.
    sent = measured["bytes"] - offsets["bytes"]
    assert derived["sparse_bytes"] < sent < derived["sparse_bytes"] + 2 * 300 * derived["rounds"]


def test_pairs_in_order_count_ties_as_half() -> None:
    users, values = np.array([1, 0, 0, 0, 1]), np.array([5.0, 1.0, 2.0, 3.0, 5.0])
    predictions = np.array([9.0, 0.0, 0.0, 2.0, 1.0])
    assert completion.pairs_in_order(users, predictions, values) == pytest.approx((0.5 + 1.0 + 1.0) / 3.0)
    assert completion.pairs_in_order(users[:1], predictions[:1], values[:1]) is None


def test_the_command_takes_shapes_and_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dcgs.cli.bench_completion.alone", lambda run, case: run(case))
    sizes = "--sets synthetic --ratings 600 --rows 40 --cols 25 --methods mean offsets"
    assert main(f"bench completion {sizes} --seeds 2 --out {tmp_path}/b.json".split()) == 0
    rows = json.loads((tmp_path / "b.json").read_text())["rows"]
    assert [(row["method"], row["seed"]) for row in rows] == [
        ("mean", 0),
        ("mean", 1),
        ("offsets", 0),
        ("offsets", 1),
    ]
    assert {tuple(row["shape"]) for row in rows} == {(40, 25)}
    printed = " ".join(capsys.readouterr().out.split())
    assert "600 ratings of a 40 × 25 matrix, means of 2 seeds" in printed
    assert f"{(rows[2]['rmse'] + rows[3]['rmse']) / 2:.4f}" in printed
    low, high = sorted(row["rmse"] for row in rows[:2])
    assert f"mean: RMSE from {low:.4f} to {high:.4f}" in printed


def test_the_command_reads_a_file_of_ratings(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dcgs.cli.bench_completion.alone", lambda function, *arguments: function(*arguments))
    command = "bench completion --sets reading --ratings 300 --rows 20 --cols 10"
    assert main(command.split()) == 0
    assert "reading 300 lines" in capsys.readouterr().out


def test_all_ratings_are_fitted_if_none_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = completion.synthetic(completion.Case("synthetic", "mean", 5.0, 60.0, **SMALL))
    monkeypatch.setattr(completion, "movielens100k", lambda: whole)
    row = completion.run(completion.Case("100k", "mean", 5.0, 60.0, held_out=0.0))
    assert (row["fitted"], row["rmse"], row["pairs"]) == (600, None, None)


def test_cases_that_grow_differ_in_one_number(tmp_path: Path) -> None:
    cases = list(completion.growth(True, 60.0, 0))
    names = [name for name, _ in cases]
    assert set(names) == {"ratings", "rows", "cols", "rank", "agents"}
    first = {name: [case for other, case in cases if other == name] for name in set(names)}
    for name, some in first.items():
        assert len({getattr(case, name) for case in some}) == len(some)
        others = {"ratings", "rows", "cols", "rank", "agents"} - {name}
        assert all(len({getattr(case, other) for case in some}) == 1 for other in others)
    rows = [
        {"grows": name, name: getattr(case, name), "cpu": 1, "bytes": 2, "memory": 3} for name, case in cases
    ]
    assert len(completion_growth_figure(rows).axes) == 15


def test_dense_methods_run_only_where_their_points_fit() -> None:
    assert "DFW" in [case.method for case in completion.comparison("100k", 60.0, 0)]
    assert "DFW" not in [case.method for case in completion.comparison("1m", 60.0, 0)]


def test_a_figure_that_cannot_be_drawn_is_refused_before_any_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "dcgs.report.bench_figures", None)
    monkeypatch.setattr(completion, "run", lambda case: pytest.fail("a case was run"))
    with pytest.raises(SystemExit):
        main(["bench", "completion", "--quick", "--figure", str(tmp_path / "growth.png")])
    assert "the picture needs matplotlib" in capsys.readouterr().err
