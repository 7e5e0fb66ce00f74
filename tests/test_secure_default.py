"""What is on by default: sites with files of their own are masked, with floors; ``--open`` is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dcgs
from dcgs.datasets import write_patients
from fit_runs import alone

PLAIN = "fit logistic --target ill --radius 2 --out m"
OPEN_WORDS = (
    "neighbors read the sums, gradients and Hessians of each site; where sums are flooded, all sites do."
)


@pytest.fixture(autouse=True)
def four(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_patients(tmp_path, rows=150)
    monkeypatch.chdir(tmp_path)


def summary() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(Path("m/summary.json").read_text())
    return read


@pytest.mark.parametrize(
    ("options", "sums", "floors"),
    [
        ("--data hospital-{agent}.csv", "masked", (10, 3)),
        ("--data hospital-{agent}.csv --min-count 12", "masked", (12, 3)),
        ("--data hospital-{agent}.csv --open", "open", None),
        ("--data hospital-{agent}.csv --open --min-count 12", "open", (12, 3)),
        ("--data hospital-0.csv --agents 3", "open", None),
        ("--data hospital-0.csv --agents 3 --secure --min-count 4", "masked", (4, 3)),
    ],
)
def test_sites_are_masked_with_floors_unless_they_are_open_or_parts_of_one_file(
    options: str, sums: str, floors: tuple[int, int] | None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert alone(f"{PLAIN} {options} --record-messages r.npz") == 0
    told, printed = summary(), " ".join(capsys.readouterr().out.split())
    assert told["sums"] == sums
    assert (told["floors"] and (told["floors"]["min_count"], told["floors"]["min_sites"])) == floors
    leaves = [
        message for message in dcgs.recorded_messages("r.npz") if message.sender == len(told["agents"]) - 1
    ]
    kinds = {array.dtype for message in leaves for array in message.arrays}
    assert (np.dtype(np.float64) in kinds) == (sums == "open")
    page = Path("m/report.html").read_text()
    assert (OPEN_WORDS in printed) == ("--open" in options)
    assert (OPEN_WORDS in page) == ("--open" in options)
    assert ("Sums were masked" in page) == (sums == "masked")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--method dfw --rounds 5", "DFW with these options sends points or gradients of single sites"),
        ("--method-option form=edges", "FastDCGS with these options sends points or gradients of single"),
        ("--eta 3", "FastDCGS with these options sends"),
        ("--measure", "--measure reads the models, losses and gradients of single sites"),
        ("--open --secure", "--secure masks sums and --open does not"),
        ("--agents 2", "sums of 2 sites cannot be masked"),
    ],
)
def test_what_cannot_be_masked_is_refused_before_a_file_is_read(
    options: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(2 if "--agents 2" in options else 4):
        Path(f"none-{i}.csv").write_bytes(b"\xff\xfe not to be read")
    with pytest.raises(SystemExit):
        alone(f"{PLAIN} --data none-{{agent}}.csv {options}")
    error = " ".join(capsys.readouterr().err.split())
    assert sentence in error
    assert "--open" in error


@pytest.mark.parametrize("options", ["--method dfw --rounds 5", "--measure", "--agents 2"])
def test_what_cannot_be_masked_is_possible_in_the_open(options: str) -> None:
    for i in (2, 3) if "--agents 2" in options else ():
        Path(f"hospital-{i}.csv").unlink()
    assert alone(f"{PLAIN} --data hospital-{{agent}}.csv --no-report --open {options}") == 0
