"""The findings in the docs are those of the histories on record."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dcgs.experiments.findings import load
from dcgs.experiments.numbers import count, short_number
from dcgs.link import Link
from dcgs.study import ResultCache

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "benchmarks" / "reproduction"
DOCS = (ROOT / "docs" / "reproduction.md").read_text()


def asked(name: str) -> str:
    """Return what is typed for an experiment of that name."""
    return {
        "lasso-e2006-lookalike": "lasso-e2006 --look-alike",
        "completion-movielens": "completion-movielens --data FOLDER",
    }.get(name, name)


def docs_number(value: float) -> str:
    """Return a number as the docs have it: to whole ones where the page has more digits."""
    return f"{value:.0f}" if value < 1000.0 else short_number(value)


def row_of(start: str) -> str:
    """Return the one row of the docs' table of verdicts that starts so."""
    (row,) = [line for line in DOCS.splitlines() if line.startswith(f"| {start} |")]
    return row


@pytest.mark.parametrize(
    ("record", "place", "start"),
    [
        ("synthetic", (0, 0), "3 rounds against 800 | Lasso, synthetic"),
        ("synthetic", (0, 1), "orders of magnitude better loss | Lasso, synthetic"),
        ("e2006-lookalike", (0, 0), "a similar gap (3 against 800) | E2006-tfidf, **look-alike only**"),
        ("synthetic", (1, 0), "5 rounds against 800 | completion, synthetic"),
        ("synthetic", (1, 1), "comparable oracle calls | completion, synthetic"),
        ("movielens", (0, 0), "a similar gap (5 against 800) | completion, MovieLens 100K"),
        ("movielens", (0, 1), "comparable oracle calls | completion, MovieLens 100K"),
    ],
)
def test_every_verdict_in_the_docs_is_that_of_the_record(
    record: str, place: tuple[int, int], start: str
) -> None:
    experiment, claim = place
    verdict = load(ResultCache(RECORDS / record), Link()).findings[experiment].claims[claim].verdict
    assert f"**{verdict}**" in row_of(start)


def test_the_verdict_on_waiting_is_that_of_the_record() -> None:
    cost = load(ResultCache(RECORDS / "synthetic"), Link()).cost
    assert cost is not None
    assert cost.side == 10_000
    assert f"**{cost.claim.verdict}**" in row_of("DFW waits over 97% of its time | 10⁴ × 10⁴ at 10 MB/s")


@pytest.mark.parametrize(
    ("record", "names"),
    [
        ("synthetic", ["lasso-synthetic", "completion-synthetic"]),
        ("e2006-lookalike", ["lasso-e2006-lookalike"]),
        ("movielens", ["completion-movielens"]),
    ],
)
def test_the_losses_in_the_docs_are_those_of_the_record(record: str, names: list[str]) -> None:
    study = load(ResultCache(RECORDS / record), Link())
    assert [findings.name for findings in study.findings] == names
    for findings in study.findings:
        section = DOCS.partition(f"dcgs reproduce {asked(findings.name)}`")[2].partition("\n## ")[0]
        curves = {curve.key: curve for curve in findings.curves}
        for key, label in (("dfw", "DFW"), ("dcgs-theorem", "DCGS, Theorem 1")):
            last = {name: column[-1] for name, column in curves[key].columns.items()}
            (row,) = [line for line in section.splitlines() if line.startswith(f"| {label} |")]
            rounds, calls, own, all_data = row.replace("**", "").split(" | ")[1:5]
            assert (rounds, calls) == (count(last["rounds"]), count(last["lmo_calls"]))
            assert (own, all_data.rstrip(" |")) == (
                docs_number(last["local_loss"]),
                docs_number(last["worst_loss"]),
            )


def test_the_commands_on_record_can_be_typed_anywhere() -> None:
    for file in RECORDS.glob("*/manifest.json"):
        words = json.loads(file.read_text())["command"].split()
        assert words[:2] == ["dcgs", "reproduce"]
        assert [word for word in words if word.startswith("/")] == []
