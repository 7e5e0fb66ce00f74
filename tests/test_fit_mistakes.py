"""Mistakes in files and options of ``dcgs fit`` and ``dcgs predict`` are refused, done right, or noted."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from dcgs.cli import main


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
