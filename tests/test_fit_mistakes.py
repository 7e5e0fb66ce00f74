"""Mistakes in files and options of ``dcgs fit`` and ``dcgs predict`` are refused, done right, or noted."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from dcgs.cli import main
from dcgs.datasets import DataNotFoundError
from dcgs.fitting.data import DataSource


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def summary(folder: str = "m") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


def sites(*tables: str) -> None:
    for i, table in enumerate(tables):
        Path(f"s-{i}.csv").write_text(table)


PLAIN = "a,b,y\n1,2,1\n2,1,2.5\n3,5,2\n4,4,4\n"
FIT = "fit lasso --data s-{agent}.csv --radius 2 --held-out 0"


# Parts that are not installed.


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``pip install dcgs``: neither jinja2 nor matplotlib."""
    for name in [name for name in sys.modules if name.startswith("dcgs.report.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "dcgs.report.figures", raising=False)
    for name in ("jinja2", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("bare")
def test_without_optional_packages_the_model_is_written_and_a_note_says_what_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN, PLAIN.replace("4,4,4", "5,4,4"))
    run("fit lasso --data s-{agent}.csv --radius auto --out m")
    assert sorted(file.name for file in Path("m").iterdir()) == [
        "agent-000.npz",
        "agent-001.npz",
        "path.json",
        "summary.json",
    ]
    text = printed(capsys)
    assert (
        "note: report.html needs jinja2, which is not installed, and was left out. Install it with:" in text
    )
    assert "note: path.png needs matplotlib, which is not installed, and was left out." in text
    assert "report.html" not in text.partition("written:")[2]


@pytest.mark.usefixtures("bare")
def test_a_page_that_is_asked_for_and_cannot_be_written_is_refused_before_the_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sites(PLAIN)
    monkeypatch.setattr("dcgs.cli.fit.fit", None)  # a fit would be an error of another kind
    text = refused(f"{FIT} --report --out m", capsys)
    assert (
        "--report needs jinja2, which is not installed. Install it with: pip install 'dcgs[report]'" in text
    )


# Files that are missing.


def test_a_gap_in_the_numbers_of_files_and_a_dangling_link_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN, PLAIN, PLAIN, PLAIN)
    Path("s-1.csv").unlink()
    text = refused(f"{FIT} --out m", capsys)
    assert "counted from 0; there is no s-1.csv, and there is s-3.csv. Add the file, or number all" in text
    Path("s-1.csv").symlink_to("nowhere.csv")
    assert "s-1.csv is a link to a file that does not exist" in refused(f"{FIT} --out m", capsys)
    Path("s-3.csv").unlink()
    Path("s-3.csv").symlink_to("nowhere.csv")
    Path("s-1.csv").unlink()
    Path("s-1.csv").write_text(PLAIN)
    assert "s-3.csv is a link to a file that does not exist" in refused(f"{FIT} --out m", capsys)


@pytest.mark.parametrize("form", ["g-{agent:03d}.csv", "d-{rank}/x-{rank}.csv", "[a]-{agent}.csv"])
def test_files_are_counted_in_every_form_of_a_name(form: str) -> None:
    source = DataSource(form)
    for i in range(3):
        source.file(i).parent.mkdir(exist_ok=True)
        source.file(i).write_text(PLAIN)
    Path("g-1.csv").write_text(PLAIN)  # not of the form
    assert source.count_files() == 3
    source.file(0).unlink()
    with pytest.raises(DataNotFoundError, match="there is no "):
        source.count_files()


def test_files_beyond_the_agents_are_refused_also_where_there_is_no_first_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN, PLAIN, PLAIN)
    Path("s-0.csv").unlink()
    text = refused(f"{FIT} --agents 2 --out m", capsys)
    assert "there are 2 agents and a file s-2.csv. Give --agents 3, or move the file away." in text


def test_the_same_file_at_two_sites_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    sites(PLAIN, PLAIN.replace("4,4,4", "4,5,4"), PLAIN)
    run(f"{FIT} --no-report --out m")
    note = "agents 0 and 2 have the same file, by its checksum: its rows count 2 times."
    assert f"note: {note}" in printed(capsys)
    assert note in summary()["data_notes"]
