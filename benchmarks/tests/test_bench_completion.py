"""``dcgs bench completion``: every case has its numbers, and they are those of the data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.cli import main
from dcgs.datasets import DataNotFoundError
from dcgs_bench import completion, optimum
from dcgs_bench.completion import OPTIMUM, SURPRISE, CompletionCase
from dcgs_bench.completion_optimum import Observed, solve
from dcgs_bench.figures import completion_growth_figure
from dcgs_bench.study import StudyProblem

SMALL: dict[str, Any] = {"ratings": 600, "rows": 40, "cols": 25, "agents": 3}


EVERYWHERE = ["mean", "offsets", "FastDCGS", OPTIMUM, "DFW", "ProjectedAGD"]


@pytest.mark.parametrize("method", EVERYWHERE)
def test_a_case_has_the_error_of_its_method_on_held_out_ratings(method: str) -> None:
    case = CompletionCase("synthetic", method, 5.0, 60.0, **SMALL)
    row = completion.run(case)
    train, test = completion.load(case)
    assert (row["fitted"], row["shape"]) == (600, [40, 25])
    assert json.dumps(row)
    by_mean = np.sqrt(np.mean((test.values - train.values.mean()) ** 2))
    assert row["rmse"] == by_mean if method == "mean" else row["rmse"] < by_mean
    assert (row["bytes"] > 0) == (method not in ("mean", OPTIMUM))


def test_scikit_surprise_completes_where_it_is_installed() -> None:
    pytest.importorskip("surprise")
    row, mean = (
        completion.run(CompletionCase("synthetic", name, 5.0, 60.0, **SMALL)) for name in (SURPRISE, "mean")
    )
    assert row["rmse"] < mean["rmse"]


def test_the_centralized_optimum_is_that_of_another_solver() -> None:
    rng = np.random.default_rng(0)
    rows, cols, values = rng.integers(0, 20, 150), rng.integers(0, 12, 150), rng.standard_normal(150)
    assert len(np.unique(rows * 12 + cols)) < 150  # some entries are observed twice
    found = solve(Observed.of(rows, cols, values, (20, 12)), radius=8.0, target=1e-6)
    f = dcgs.MatrixCompletion(rows, cols, values, (20, 12))
    assert f.value(np.asarray(found.x)) == pytest.approx(found.value, rel=1e-12)
    problem = StudyProblem([f], dcgs.NuclearNormBall((20, 12), 8.0), nx.empty_graph(1))
    other = optimum.solve(problem, target=1e-6)
    # Both are within 1e-6 of the decrease.
    assert abs(found.value - other.value) <= 1e-6 * (found.start - found.value)
    assert found.x.singular_values().sum() == pytest.approx(8.0, rel=1e-9)
    assert found.share <= 1e-6


def test_pairs_in_order_count_ties_as_half() -> None:
    users, values = np.array([1, 0, 0, 0, 1]), np.array([5.0, 1.0, 2.0, 3.0, 5.0])
    predictions = np.array([9.0, 0.0, 0.0, 2.0, 1.0])
    assert completion.pairs_in_order(users, predictions, values) == pytest.approx((0.5 + 1.0 + 1.0) / 3.0)
    assert completion.pairs_in_order(users[:1], predictions[:1], values[:1]) is None


def test_the_command_takes_shapes_and_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "alone", lambda function, *arguments: function(*arguments))
    sizes = "--sets synthetic --ratings 600 --rows 40 --cols 25 --methods mean offsets"
    assert main(f"bench completion {sizes} --seeds 2 --out {tmp_path}".split()) == 0
    rows = json.loads((tmp_path / "completion.json").read_text())["rows"]
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
    with pytest.raises(SystemExit):
        main(f"bench completion {sizes} --out {tmp_path}/b.json".split())
    assert "--out must be a folder, which gets completion.json" in capsys.readouterr().err


def test_a_data_set_that_is_missing_has_a_note_and_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(case: CompletionCase) -> None:
        raise DataNotFoundError(f"no {case.data} here.")

    monkeypatch.setattr(completion, "alone", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(completion, "load", missing)
    assert main(f"bench completion --sets 100k --methods mean --out {tmp_path}".split()) == 0
    assert "its data are missing: no 100k here." in " ".join(capsys.readouterr().out.split())
    assert json.loads((tmp_path / "completion.json").read_text())["rows"] == []


def test_the_command_reads_a_file_of_ratings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(completion, "alone", lambda function, *arguments: function(*arguments))
    command = f"bench completion --sets reading --ratings 300 --rows 20 --cols 10 --out {tmp_path}"
    assert main(command.split()) == 0
    assert "reading a file of text: 300 lines" in capsys.readouterr().out


def test_all_ratings_are_fitted_if_none_is_held_out(monkeypatch: pytest.MonkeyPatch) -> None:
    whole, _ = completion.synthetic(CompletionCase("synthetic", "mean", 5.0, 60.0, **SMALL))
    monkeypatch.setattr(completion, "movielens100k", lambda: whole)
    row = completion.run(CompletionCase("100k", "mean", 5.0, 60.0, held_out=0.0))
    assert (row["fitted"], row["rmse"], row["pairs"]) == (600, None, None)


def test_cases_that_grow_differ_in_one_number() -> None:
    cases = list(completion.growth(True, 60.0, 0))
    sizes = {"ratings", "rows", "cols", "rank", "agents"}
    assert {case.grows for case in cases} == sizes
    for name in sizes:
        some = [case for case in cases if case.grows == name]
        assert len({getattr(case, name) for case in some}) == len(some)
        assert all(len({getattr(case, other) for case in some}) == 1 for other in sizes - {name})
    rows = [
        {"grows": case.grows, case.grows: getattr(case, case.grows), "cpu": 1, "bytes": 2, "memory": 3}
        for case in cases
    ]
    assert len(completion_growth_figure(rows).axes) == 15


def test_dense_methods_run_only_where_their_points_fit() -> None:
    size = completion.synthetic_size(1000)
    assert "DFW" in [case.method for case in completion.comparison("100k", 60.0, 0, size)]
    assert "DFW" not in [case.method for case in completion.comparison("1m", 60.0, 0, size)]
