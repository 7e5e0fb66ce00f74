"""The tables in README and docs are those of the records, and each record is used and has a version."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import pages
from dcgs_bench.entries import OURS
from dcgs_bench.ranking import BEST_OF_GRID

RECORDS = sorted(path for path in pages.FOLDER.rglob("*.json") if "runs" not in path.parts)


@pytest.mark.parametrize("page", pages.PAGES, ids=lambda page: page.stem)
def test_writing_a_page_anew_changes_nothing(page: Path) -> None:
    """If this fails, run ``make pages``."""
    text = page.read_text()
    assert pages.renewed(text) == text


def test_a_number_that_was_changed_by_hand_is_written_anew() -> None:
    text = (pages.ROOT / "docs" / "measuring.md").read_text()
    changed = text.replace("| lasso-cycle-10 | 51,", "| lasso-cycle-10 | 50,")
    assert changed != text
    assert pages.renewed(changed) == text


def test_every_part_is_on_a_page() -> None:
    text = "".join(page.read_text() for page in pages.PAGES)
    assert [name for name in pages.PARTS if f"<!-- from {name} -->" not in text] == []


def test_every_record_is_used_by_a_page() -> None:
    pages.record.cache_clear()
    pages.reproduction.cache_clear()
    pages.trials.cache_clear()
    used: set[str] = set()
    read = Path.read_text

    def noted(path: Path, *options: Any, **more: Any) -> str:
        used.add(str(path))
        return read(path, *options, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Path, "read_text", noted)
        for part in pages.PARTS.values():
            part()
    assert [str(path) for path in RECORDS if str(path) not in used] == []


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: str(path.relative_to(pages.FOLDER)))
def test_every_record_says_its_version_and_a_command_that_can_be_typed_anywhere(path: Path) -> None:
    made = json.loads(path.read_text())
    about = made.get("environment", made)
    assert about["versions"]["dcgs"]
    assert [word for word in about["command"].split() if word.startswith("/")] == []


@pytest.mark.parametrize("end", ["", "ROUNDS"], ids=["stops only", "both runs"])
def test_a_file_with_stops_alone_replaces_no_measured_run(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = tmp_path / "docs" / "images"
    images.mkdir(parents=True)
    monkeypatch.setattr(pages, "ROOT", tmp_path)
    monkeypatch.setattr(pages, "FOLDER", tmp_path)
    old = json.loads((Path(__file__).parents[1] / "rounds.json").read_text())
    monkeypatch.setattr(pages, "record", lambda name: old)
    (first, *_) = old["instances"]["lasso-cycle-10"]["trials"]
    stops = {gap: stop | {"version": "9.9.9"} for gap, stop in first["stops"].items()}
    new = first | {"end": end, "version": "9.9.9", "stops": stops}
    about = old["instances"]["lasso-cycle-10"]
    given = {"environment": {"seed": 0}, "instances": {"lasso-cycle-10": about | {"trials": [new]}}}
    pages.merge(given)
    merged = json.loads((tmp_path / "rounds.json").read_text())["instances"]["lasso-cycle-10"]["trials"]
    (trial,) = [trial for trial in merged if trial["entry"] == first["entry"]]
    assert (trial["version"] == "9.9.9") == bool(end)
    assert {stop["version"] for stop in trial["stops"].values()} == {"9.9.9"}
    assert (images / "rounds-profile.png").read_bytes().startswith(b"\x89PNG")


def test_agents_that_stopped_were_right() -> None:
    instances = pages.record("rounds")["instances"]
    for name, row in pages.trials().items():
        for gap, stop in [each for trial in row for each in trial.stops.items()]:
            # f* itself is known to the uncertainty only.
            within = stop.error is not None and stop.error <= gap + instances[name]["optimum"]["uncertainty"]
            assert within or not stop.stopped


@pytest.mark.parametrize("method", ["ProjectedAGD", "NIDS", "PGExtra"])
def test_no_method_that_projects_at_its_best_step_takes_fewer_rounds_on_the_papers_lasso(method: str) -> None:
    costs = {trial.entry: trial.costs[1e-3] for trial in pages.trials()["lasso-paper"]}
    ours, best = costs[OURS], costs[f"{method}{BEST_OF_GRID}"]
    assert ours is not None
    assert best is not None
    assert ours.rounds < best.rounds
