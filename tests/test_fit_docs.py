"""Every command of docs/fit.md runs, on small files of the names it uses."""

from __future__ import annotations

import gzip
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcgs import registry
from dcgs.cli import main
from dcgs.datasets import write_patients
from dcgs.learn.files.specs import PROBLEMS

PAGE = (Path(__file__).parent.parent / "docs" / "fit.md").read_text()
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]


def make_files(samples: int = 240, patients: int = 300) -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((samples, 6))
    b = A @ [3.0, 0.0, -1.0, 0.0, 0.0, 2.0]
    for name in ("data.svm", "new.svm"):
        lines = (" ".join(f"{j + 1}:{v:.6f}" for j, v in enumerate(row)) for row in A)
        Path(name).write_text("".join(f"{t:.6f} {line}\n" for t, line in zip(b, lines, strict=True)))
    for i in range(3):
        table(f"site-{i}.csv", "age,dose,ill", [A[i::3, 0], A[i::3, 1], b[i::3] > 0.0])
    table("new-patients.csv", "dose,age", [A[:, 1], A[:, 0]])
    rows, cols = rng.integers(1, 21, 300), rng.integers(1, 31, 300)
    for name in ("ratings.csv", "held-out.csv"):
        table(name, "user,item,rating", [rows, cols, rng.integers(1, 6, 300)])
    table("houses.csv", "size,rooms,age,floor,price", [*A[:, :4].T, b])
    Path("houses.csv.gz").write_bytes(gzip.compress(Path("houses.csv").read_bytes()))
    write_patients(Path(), rows=patients)
    table("new-users.csv", "user,item,rating", [[101, 101, 102], [3, 4, 3], [5, 1, 4]])
    np.savetxt("shop.txt", np.unique(cols)[:9], "%d")
    Path("network.edges").write_text("rome oslo\noslo bonn\nbonn rome\nbonn bern\n")


def table(name: str, names: str, columns: list[Any]) -> None:
    np.savetxt(name, np.column_stack(columns), "%.6g", ",", header=names, comments="")


def test_the_page_has_commands() -> None:
    assert len(COMMANDS) >= 12
    assert all(line.startswith("dcgs ") for line in COMMANDS)


def test_every_command_of_the_page_runs_in_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make_files()
    for line in COMMANDS:
        small = line.replace("943,1682", "20,30").replace("1e4", "50")  # the matrix is small here
        assert main(shlex.split(small)[1:]) == 0, line


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_page_names_every_problem(name: str) -> None:
    assert f"`{name}`" in PAGE


def test_the_methods_that_the_page_names_are_those_of_the_command() -> None:
    """It need not name all of them; docs/methods.md does."""
    (sentence,) = re.findall(r"^`--method` is (.*?)\. ", PAGE, re.MULTILINE | re.DOTALL)
    assert {"fastdcgs", "dcgs", "dfw"} <= set(re.findall(r"`(\w+)`", sentence)) <= set(registry.methods())
