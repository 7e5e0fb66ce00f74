"""``dcgs bench faults``: what became of a run, the tables, the record, and the picture."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dcgs.bench.faults import CONDITIONS, REFUSED, FaultTrial
from dcgs.cli import main
from dcgs.study.run import FAILED


def trial(end: str, *errors: float) -> FaultTrial:
    """Return a trial with these errors after 0, 1, 2, … rounds."""
    reached = {"1e-03": [len(errors), 100]} if errors and errors[-1] <= 1e-3 else {}
    return FaultTrial(end, "", len(errors), reached, [[float(k), error] for k, error in enumerate(errors)])


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (trial("CALLBACK", 1.0, 0.1, 1e-3), "reached"),
        (trial("ROUNDS", 1.0, 0.5, 0.1, 0.05), "slow"),
        (trial("ROUNDS", 1.0, 0.1, 0.1, 0.099), "stalls"),
        (trial("ROUNDS", 1.0, 0.1, 0.5, 1.1), "diverges"),
        (trial(FAILED, 1.0, 0.1), "diverges"),
        (trial(REFUSED), "refuses"),
    ],
)
def test_what_became_of_a_run_is_told_in_one_word(given: FaultTrial, outcome: str) -> None:
    assert given.outcome == outcome


def test_the_faults_are_those_that_the_page_names() -> None:
    page = (Path(__file__).parent.parent / "docs" / "faults.md").read_text()
    assert [condition.about for condition in CONDITIONS if condition.about not in page] == []


def test_the_command_writes_table_numbers_and_picture_and_does_not_repeat_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["bench", "faults", "--quick", "--methods", "FastDCGS", "NIDS", "--jobs", "1", "--rounds", "60"]
    command += ["--faults", "none", "loss-30", "slow-wait", "slow", "--out", str(tmp_path)]
    assert main(command) == 0
    numbers = json.loads((tmp_path / "faults.json").read_text())
    found = {(each["method"], each["fault"]): each for each in numbers["trials"]}
    assert found["FastDCGS", "loss-30"]["outcome"] == "reached"
    assert found["NIDS", "loss-30"]["outcome"] == "stalls"
    assert found["NIDS", "slow"]["outcome"] == "refuses"
    assert numbers["ratios to 1e-3"]["FastDCGS, slow-wait"]["median"] == 5.0
    assert numbers["ratios to 1e-3"]["FastDCGS, slow"]["median"] <= 2.5
    assert (tmp_path / "faults.png").read_bytes().startswith(b"\x89PNG")
    assert "| 30 % of messages are lost | FastDCGS |" in (tmp_path / "faults.md").read_text()
    capsys.readouterr()
    assert main(command) == 0
    assert "runs:" not in capsys.readouterr().out


def test_an_unknown_fault_is_refused_with_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["bench", "faults", "--quick", "--faults", "fire"])
    assert "a fault must be one of none, loss-10," in capsys.readouterr().err
