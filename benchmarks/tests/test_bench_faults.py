"""``dcgs bench faults``: what became of a run, the tables, and the record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dcgs.cli import main
from dcgs_bench.faults import CONDITIONS, outcome, ratio_table
from dcgs_bench.optimum import Optimum
from dcgs_bench.study import FAILED, REFUSED, RunRecord


def run(end: str, *errors: float) -> RunRecord:
    """Return a run with these relative errors."""
    return RunRecord(end, "", "DFW()", columns={"worst_loss": list(errors)} if errors else {})


@pytest.mark.parametrize(
    ("given", "word"),
    [
        (run("ROUNDS", 1.0, 0.5, 0.1, 0.05), "slow"),
        (run("ROUNDS", 1.0, 0.1, 0.1, 0.099), "stalls"),
        (run("ROUNDS", 1.0, 0.1, 0.5, 1.1), "diverges"),
        (run(FAILED, 1.0, 0.1), "diverges"),
        (run(REFUSED), "refuses"),
    ],
)
def test_what_became_of_a_run_is_told_in_one_word(given: RunRecord, word: str) -> None:
    assert outcome(given, Optimum(0.0, 1.0, 0.0, 1)) == word


def test_the_faults_are_those_that_the_page_names() -> None:
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text()
    assert [condition.about for condition in CONDITIONS if condition.about not in page] == []


def test_the_command_writes_tables_and_numbers_and_does_not_repeat_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    methods = ["FastDCGS", "FastDCGS, edges", "NIDS"]
    command = ["bench", "faults", "--quick", "--methods", *methods, "--jobs", "1", "--rounds", "60"]
    command += ["--faults", "none", "loss-30", "slow-wait", "slow", "--out", str(tmp_path)]
    assert main(command) == 0
    made = json.loads((tmp_path / "faults.json").read_text())
    found = {(row["method"], row["fault"]): row for row in made["rows"]}
    assert found["FastDCGS", "loss-30"]["outcome"] == "reached"
    assert found["NIDS", "loss-30"]["outcome"] == "stalls"
    assert found["NIDS", "slow"]["outcome"] == "refuses"
    medians = {row[0][0]: float(row[2][0]) for row in ratio_table(made).rows}
    assert medians["one agent 5 times slower, all wait"] == 5.0
    # Where nobody waits, messages go over edges: so they do in the run that it is compared with.
    slow, edges = (found[key]["costs"]["1e-03"][0] for key in (("FastDCGS", "slow"), (methods[1], "none")))
    assert slow <= 2.5 * edges
    assert "| 30 % of messages are lost | FastDCGS |" in (tmp_path / "faults.md").read_text()
    capsys.readouterr()
    assert main(command) == 0
    assert "runs:" not in capsys.readouterr().err


def test_an_unknown_fault_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "faults", "--quick", "--faults", "fire"])
    assert "a fault must be one of 'none', 'loss-10'," in capsys.readouterr().err
