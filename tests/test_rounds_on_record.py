"""The rounds in docs/rounds.md and in the README are those on record."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
MERGING: dict[str, Any] = runpy.run_path(str(ROOT / "benchmarks" / "merge_rounds.py"))

RECORD: dict[str, Any] = json.loads((ROOT / "benchmarks" / "rounds.json").read_text())
README = (ROOT / "README.md").read_text()
PAGE = (ROOT / "docs" / "rounds.md").read_text()
IS_SO = "| rounds to 1e-03 |"
AGENTS_STOP = "| rounds until the agents stop at a certified gap of 1e-03 |"


def cells(line: str) -> list[str]:
    return [cell.strip().strip("*") for cell in line.strip().strip("|").split("|")]


def table(head: str) -> tuple[list[str], dict[str, str]]:
    """Return the columns of the table with this head, and its rows by instance."""
    lines = PAGE.splitlines()
    (start,) = [n for n, line in enumerate(lines) if line.startswith(head)]
    rows = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows[cells(line)[0]] = line
    return cells(lines[start]), rows


def methods(head: str, instance: str) -> dict[str, str]:
    """Return the cells of an instance by method, without the columns of grids and ratios."""
    columns, rows = table(head)
    row = dict(zip(columns[1:], cells(rows[instance])[1:], strict=True))
    return {name: cell for name, cell in row.items() if "best of grid" not in name and " / " not in name}


@pytest.mark.parametrize("head", [IS_SO, AGENTS_STOP])
def test_every_instance_on_record_has_its_row(head: str) -> None:
    assert list(table(head)[1]) == list(RECORD["instances"])


def test_the_first_table_is_when_the_agents_stop() -> None:
    assert PAGE[PAGE.index("\n| ") + 1 :].startswith(AGENTS_STOP)


@pytest.mark.parametrize("instance", RECORD["instances"])
def test_a_row_is_what_is_on_record(instance: str) -> None:
    trials = RECORD["instances"][instance]["trials"]
    for method, said in methods(IS_SO, instance).items():
        cost = trials[method]["costs"]["1e-03"]
        if cost is None:
            assert said in ("—", f">{trials[method]['rounds']:,}", f">{trials[method]['rounds']:,}†")
        else:
            assert said == f"{cost['rounds']:,}"


@pytest.mark.parametrize("instance", RECORD["instances"])
def test_a_row_of_stops_is_what_is_on_record(instance: str) -> None:
    trials = RECORD["instances"][instance]["trials"]
    for method, said in methods(AGENTS_STOP, instance).items():
        stop = trials[method].get("stops", {}).get("1e-03")
        mark = {"AGREED": "{}", "ROUNDS": ">{}", "SECONDS": ">{}†"}.get(stop["end"], "—") if stop else "—"
        assert said == mark.format(f"{stop['rounds']:,}" if stop else "")


@pytest.mark.parametrize("instance", RECORD["instances"])
def test_agents_that_stopped_were_right(instance: str) -> None:
    record = RECORD["instances"][instance]
    for trial in record["trials"].values():
        for gap, stop in trial.get("stops", {}).items():
            # f* itself is known to the uncertainty only.
            within = stop["error"] <= float(gap) + record["optimum"]["uncertainty"]
            assert within or stop["end"] != "AGREED"


@pytest.mark.parametrize("head", [IS_SO, AGENTS_STOP])
def test_the_fewest_rounds_are_bold(head: str) -> None:
    for instance, line in table(head)[1].items():
        reached = [int(x.replace(",", "")) for x in methods(head, instance).values() if x[0].isdigit()]
        assert not reached or f"**{min(reached):,}**" in line


def test_the_counts_in_the_readme_are_those_on_record() -> None:
    stops = RECORD["stop_counts"]["FastDCGS"]
    stopped = [
        any(
            trial.get("stops", {}).get("1e-03", {}).get("end") == "AGREED" for trial in one["trials"].values()
        )
        for one in RECORD["instances"].values()
    ]
    assert f"fewest rounds on {stops['fewest']} of the {sum(stopped)} instances" in README
    assert f"within 20 % of the fewest on {stops['within 20 %']}" in README
    undecided = MERGING["ranking_of"](RECORD).until_stop().undecided()
    assert f"On {len(undecided)} of them others ended at limits" in README
    counts = RECORD["counts"]["FastDCGS"]
    assert f"the fewest on {counts['fewest']}, within 20 % on {counts['within 20 %']}" in README


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


@pytest.mark.parametrize(
    ("end", "kept"), [("", "0.3.0"), ("ROUNDS", "0.10.0")], ids=["stops only", "both runs"]
)
def test_a_file_with_stops_alone_replaces_no_measured_run(end: str, kept: str) -> None:
    def record(version: str, trial: dict[str, Any]) -> dict[str, Any]:
        trials = {"DFW": {"instance": "one", "entry": "DFW", "work": "oracle calls", "rounds": 9} | trial}
        about = {"versions": {"dcgs": version}, "seed": 0, "machine": {}}
        return {"instances": {"one": {"trials": trials, "grid": {}}}, "environment": about, "seconds": 6.0}

    stop = {"end": "AGREED", "computing": 0.1, "bytes": 7, "peak_bytes": 8, "rounds": 5, "kind": "dual"}
    numbers = {"seconds": 1.0, "reached": 0.5, "costs": {}}
    old = record("0.3.0", numbers | {"end": "SECONDS"})
    stops = {"1e-03": stop | {"error": 1e-4, "diameter": 2}}
    found = MERGING["merged"](old, record("0.10.0", numbers | {"end": end, "stops": stops})) | {
        "level": "1e-03"
    }
    one = found["instances"]["one"]
    assert one["trials"]["DFW"]["end"] == {"0.3.0": "SECONDS", "0.10.0": "ROUNDS"}[kept]
    assert one["measured_stops"]["DFW"]["versions"]["dcgs"] == "0.10.0"
    assert MERGING["ranking_of"](found).until_stop().rounds("one", "DFW") == 5
