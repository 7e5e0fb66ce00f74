"""The command, as it is typed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from dcgs.cli import main
from dcgs_bench import measurements, over_mpi
from dcgs_bench.measurements import StepCase

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("argv", [[], ["bench"], ["bench", "nothing"], ["bench", "step", "--repeats", "0"]])
def test_invalid_arguments_print_the_usage(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(argv)
    assert ended.value.code == 2
    assert "usage: dcgs" in capsys.readouterr().err


def of_five_steps(make: Callable[[np.random.Generator], StepCase]) -> Callable[..., StepCase]:
    return lambda rng: replace(make(rng), steps=5)


def test_bench_step_prints_and_writes_one_ratio_per_case_and_solver(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of five steps each, because this test does not judge the numbers."""
    for name in ("_dense_step", "_sparse_step", "_completion_step"):
        monkeypatch.setattr(measurements, name, of_five_steps(getattr(measurements, name)))
    out = tmp_path / "deep" / "step.json"
    assert main(["bench", "step", "--repeats", "1", "--out", str(out)]) == 0
    rows = json.loads(out.read_text())["rows"]
    assert [(row["case"].split()[0], row["solver"]) for row in rows] == [
        ("dense", "CG"),
        ("dense", "PCG"),
        ("sparse", "CG"),
        ("sparse", "PCG"),
        ("completion", "CG"),
    ]
    assert {row["steps"] for row in rows} == {5}
    for row in rows:
        assert row["ratio"] == row["step"] / (row["adjoint"] + row["oracle"])
    assert "ratio" in capsys.readouterr().out


def test_bench_threads_says_that_results_are_equal_to_the_bit(tmp_path: Path) -> None:
    out = tmp_path / "threads.json"
    argv = ["bench", "threads", "--samples", "100", "--features", "300", "--repeats", "1", "--out", str(out)]
    assert main(argv) == 0
    written = json.loads(out.read_text())
    assert [row["equal"] for row in written["rows"]] == [True]
    assert written["environment"]["seed"] == 0
    assert written["environment"]["command"].startswith("dcgs")


def test_too_few_samples_for_the_agents_end_with_an_error_message(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["bench", "threads", "--samples", "5", "--features", "300"])
    assert ended.value.code == 2
    assert "agents must be a whole number between 1 and 5" in capsys.readouterr().err


def test_an_output_that_cannot_be_written_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def work(*_: object) -> None:
        pytest.fail("work was done")

    monkeypatch.setattr("dcgs_bench.over_mpi.run_ranks", work)
    (tmp_path / "file").write_text("")
    with pytest.raises(SystemExit) as ended:
        main(["bench", "exchange", "--out", str(tmp_path / "file" / "x.json")])
    assert ended.value.code == 2
    assert "files must be written to" in capsys.readouterr().err


def test_dcgs_bench_checkpoint_reports_the_share_of_time_and_that_bits_are_equal(tmp_path: Path) -> None:
    out = tmp_path / "checkpoint.json"
    size = ["--samples", "40", "--features", "120", "--iterations", "6", "--every", "3"]
    assert main(["bench", "checkpoint", *size, "--out", str(out)]) == 0
    (row,) = json.loads(out.read_text())["rows"]
    assert row["equal"] is True
    assert 0.0 < row["share"] < 1.0
    assert row["bytes"] > 10 * 120 * 8


def test_the_records_are_as_good_as_promised() -> None:
    (row,) = json.loads((ROOT / "benchmarks/checkpoint.json").read_text())["rows"]
    assert (row["every"], row["equal"]) == (10, True)
    assert row["share"] < 0.08  # three checkpoints of ten agents, of a run of a second
    *messages, uneven = json.loads((ROOT / "benchmarks/exchange.json").read_text())["rows"]
    assert messages[-1]["ratio"] <= 2.0
    assert uneven["ratio"] <= 1.5


def test_the_benchmark_of_exchanges_measures_all_its_cases() -> None:
    *messages, uneven = over_mpi.exchange(ranks=2, repeats=1)
    assert [row["message"] for row in messages] == ["80 kB", "1.2 MB", "12.7 MB"]
    assert all(row["ratio"] == row["ours"] / row["bare"] > 0.0 for row in messages)
    # One of two processes has five times the work of 5 ms; they have one core or two.
    assert uneven["ideal"] in (25.0, 30.0)
    assert uneven["ratio"] == uneven["ours"] / uneven["ideal"] > 0.0
