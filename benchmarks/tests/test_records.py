"""The folder of a study: complete or unchanged, keyed, checked when read, continued with its own settings."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs_bench.paper.folder import open_manifest, read_manifest, write_manifest
from dcgs_bench.study import FolderError, Records, RunRecord, StudyTask, run_tasks

SETTINGS = {"seed": 0, "quick": True}
DFW = StudyTask("runs/lasso/dfw", {"seed": 0}, None, "DFW on lasso")
COLUMNS: dict[str, list[float]] = {
    "iterations": [0, 1, 2],
    "bytes": [0, 800, 1600],
    "worst_loss": [1.0, 0.1 + 0.2, 1e-300],
    "seconds": [0.0, 0.25, 0.5],
    "computing": [0.0, 0.125, 0.3],
}


def result(columns: dict[str, list[float]]) -> dict[str, Any]:
    notes = ["a note."]
    return vars(
        RunRecord("ROUNDS", "the limit on rounds was reached.", "DFW()", 4, 2, 0.5, notes, columns=columns)
    )


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Return a folder with a manifest and one recorded run."""
    made = Records(tmp_path / "out")
    write_manifest(made, open_manifest(made, SETTINGS))
    made.write(DFW, result(COLUMNS))
    return made


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    manifest = open_manifest(Records(tmp_path / "a" / "b"), SETTINGS)
    assert manifest["settings"] == SETTINGS
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_run_is_read_as_it_was_saved_and_only_with_its_key(records: Records) -> None:
    assert records.result(DFW) == records.read("runs/lasso/dfw") == result(COLUMNS)
    assert records.has(DFW)
    assert records.result(replace(DFW, key={"seed": 1})) is None
    assert records.read("runs/lasso/nids") is None


def test_a_removed_run_is_not_found(records: Records) -> None:
    records.remove(DFW)
    records.remove(DFW)
    assert records.result(DFW) is None


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_every_double_is_read_to_the_last_bit(
    values: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    records = Records(tmp_path_factory.mktemp("out"))
    names = ("iterations", "seconds", "computing", "gap")
    records.write(DFW, result(dict.fromkeys(names, values)))
    found = records.result(DFW)
    assert found is not None
    assert found["columns"]["gap"] == found["columns"]["seconds"] == values


def test_times_are_saved_apart_from_what_repeats(records: Records) -> None:
    data = (records.path / "data" / "lasso" / "dfw.csv").read_text()
    assert data == "iterations,bytes,worst_loss\n0,0,1\n1,800,0.30000000000000004\n2,1600,1e-300\n"
    timing = (records.path / "timing" / "lasso" / "dfw.csv").read_text()
    assert timing == "iterations,seconds,computing\n0,0,0\n1,0.25,0.125\n2,0.5,0.3\n"


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (records.path / "manifest.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FolderError, match=r"that failed \(No space left on device\)"):
        write_manifest(records, {"format": 1})
    assert (records.path / "manifest.json").read_bytes() == before
    assert list(records.path.rglob("*.part")) == []


def test_a_record_that_is_cut_off_is_no_record(records: Records) -> None:
    record = records.path / "runs" / "lasso" / "dfw.json"
    record.write_text(record.read_text()[:40])
    assert records.result(DFW) is None
    assert not records.has(DFW)


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name in ("thesis.tex", "b", "c", "d"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(
        FolderError, match=r"must be empty or hold an earlier run .* b, c, d and 1 more\. .*--out"
    ):
        open_manifest(Records(tmp_path), SETTINGS)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b", "c", "d", "thesis.tex"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"files must be written to .* that failed \(.+\)\. .*--out"):
        Records(tmp_path / "file").check_writable()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(FolderError, match=r"that failed \(Permission denied\)"):
        Records(tmp_path).check_writable()


def test_an_earlier_run_is_continued_with_its_own_settings(records: Records) -> None:
    write_manifest(records, read_manifest(records) | {"note": "earlier"})
    assert open_manifest(records, SETTINGS)["note"] == "earlier"


def test_other_settings_are_refused_with_each_difference(records: Records) -> None:
    with pytest.raises(FolderError, match=r"seed was 0, is 1; quick was True, is False\. .*--out"):
        open_manifest(records, {"seed": 1, "quick": False})


def test_a_history_that_was_changed_is_refused(records: Records) -> None:
    file = records.path / "data" / "lasso" / "dfw.csv"
    file.write_text(file.read_text().replace("800", "801"))
    with pytest.raises(FolderError, match=r"dfw\.csv' must be as it was written"):
        records.result(DFW)


def test_a_history_that_is_missing_is_named(records: Records) -> None:
    (records.path / "timing" / "lasso" / "dfw.csv").unlink()
    with pytest.raises(FolderError, match=r"timing.*dfw\.csv' must be there"):
        records.result(DFW)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": ', "\x00", "{}", "3"])
def test_a_broken_manifest_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(FolderError, match=r"must be a manifest written by dcgs reproduce"):
        read_manifest(Records(tmp_path))


def test_a_manifest_of_another_format_is_refused_with_its_format(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 7}))
    with pytest.raises(FolderError, match=r"must be of format 2; .* has 7\."):
        read_manifest(Records(tmp_path))


def test_a_folder_without_a_manifest_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(
        FolderError, match=r"manifest\.json\' must be a manifest written by dcgs reproduce; it is missing"
    ):
        read_manifest(Records(tmp_path))


def square(number: int) -> Mapping[str, Any]:
    """Return a result, or raise."""
    if number < 0:
        raise ValueError("number must not be negative.")
    return {"square": number**2}


def tasks(*numbers: int) -> list[StudyTask]:
    return [StudyTask(f"runs/{n}", {"number": n}, partial(square, n), f"the square of {n}") for n in numbers]


@pytest.mark.parametrize("jobs", [None, 1, 2])
def test_tasks_are_done_once_and_one_that_raises_is_tried_again(jobs: int | None, tmp_path: Path) -> None:
    records, said = Records(tmp_path), list[tuple[str, str | None]]()
    waiting = StudyTask("runs/later", {}, None, "one that cannot be done yet")
    for _ in range(2):
        run_tasks(records, [*tasks(3, -1, 4), waiting], jobs, lambda *what: said.append(what))
    done = ("the square of 3", None), ("the square of 4", None)
    failed = "the square of -1", "failed, and is not recorded: ValueError: number must not be negative."
    assert sorted(said, key=str) == sorted([*done, failed, failed], key=str)
    assert [records.result(task) for task in tasks(3, -1, 4)] == [{"square": 9}, None, {"square": 16}]
