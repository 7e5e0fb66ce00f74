"""The rounds in docs/rounds.md and in the README are those on record."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
RECORD: dict[str, Any] = json.loads((ROOT / "benchmarks" / "rounds.json").read_text())
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "rounds.md").read_text()
HEAD = "| rounds to 1e-03 |"


def cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def table() -> tuple[list[str], dict[str, list[str]]]:
    """Return the methods and the rows of the table of rounds, without the columns of grids."""
    lines = PAGE.splitlines()
    (start,) = [n for n, line in enumerate(lines) if line.startswith(HEAD)]
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append(cells(line))
    head = cells(lines[start])[1:]
    methods = [name for name in head if "best of grid" not in name and " / " not in name]
    return methods, {row[0]: [row[1:][head.index(name)] for name in methods] for row in rows}


METHODS, ROWS = table()


def test_every_instance_on_record_has_its_row() -> None:
    assert list(ROWS) == list(RECORD["instances"])


@pytest.mark.parametrize("instance", ROWS)
def test_a_row_is_what_is_on_record(instance: str) -> None:
    trials = RECORD["instances"][instance]["trials"]
    for method, said in zip(METHODS, ROWS[instance], strict=True):
        cost = trials[method]["costs"]["1e-03"]
        if cost is None:
            assert said in ("—", f">{trials[method]['rounds']:,}", f">{trials[method]['rounds']:,}†")
        else:
            assert said == f"{cost['rounds']:,}"


def test_the_fewest_rounds_are_bold() -> None:
    for instance, row in ROWS.items():
        reached = [int(cell.replace(",", "")) for cell in row if cell[0].isdigit()]
        if reached:
            assert f"**{min(reached):,}**" in next(
                x for x in PAGE.splitlines() if x.startswith(f"| {instance} |")
            )


def test_the_counts_in_the_readme_are_those_on_record() -> None:
    counts = RECORD["counts"]["FastDCGS"]
    reached = [
        any(trial["costs"]["1e-03"] for trial in one["trials"].values())
        for one in RECORD["instances"].values()
    ]
    assert f"fewest rounds on {counts['fewest']} of the {sum(reached)} instances" in README
    assert f"within 20 % of the fewest on {counts['within 20 %']}" in README


def best_of_grid(family: str, instance: str) -> int | None:
    """Return the fewest rounds of all settings that were tried, the default settings among them."""
    trials = RECORD["instances"][instance]["trials"]
    best = trials.get(f"{family}, best of grid")
    return None if best is None or best["costs"]["1e-03"] is None else int(best["costs"]["1e-03"]["rounds"])


@pytest.mark.parametrize("method", ["ProjectedAGD", "NIDS", "PGExtra"])
def test_no_method_that_projects_at_its_best_step_takes_fewer_rounds_on_the_papers_lasso(method: str) -> None:
    best = best_of_grid(method, "lasso-paper")
    assert best is not None
    assert RECORD["instances"]["lasso-paper"]["trials"]["FastDCGS"]["costs"]["1e-03"]["rounds"] < best
