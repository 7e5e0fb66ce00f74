"""The folder of a study: complete or unchanged, keyed, checked when read, continued with its own settings."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs.experiments.manifest import open_manifest, read_manifest, write_manifest
from dcgs.study import FolderError, ResultCache, RunResult

SETTINGS = {"seed": 0, "quick": True}
KEY = {"seed": 0}
COLUMNS: dict[str, list[float]] = {
    "iterations": [0, 1, 2],
    "bytes": [0, 800, 1600],
    "worst_loss": [1.0, 0.1 + 0.2, 1e-300],
    "seconds": [0.0, 0.25, 0.5],
    "computing": [0.0, 0.125, 0.3],
}


def result(columns: dict[str, list[float]]) -> RunResult:
    return RunResult("ROUNDS", "the limit on rounds was reached.", "DFW()", 4, 2, 0.5, ["a note."], columns)


@pytest.fixture
def cache(tmp_path: Path) -> ResultCache:
    """Return a folder with a manifest and one recorded run."""
    made = ResultCache(tmp_path / "out")
    write_manifest(made, open_manifest(made, SETTINGS))
    made.save_run("lasso", "dfw", KEY, result(COLUMNS))
    return made


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    manifest = open_manifest(ResultCache(tmp_path / "a" / "b"), SETTINGS)
    assert manifest["settings"] == SETTINGS
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_run_is_read_as_it_was_saved_and_only_with_its_key(cache: ResultCache) -> None:
    found = cache.run("lasso", "dfw", KEY)
    assert found is not None
    assert vars(found) == vars(result(COLUMNS))
    assert cache.has_run("lasso", "dfw", KEY)
    assert cache.run("lasso", "dfw", {"seed": 1}) is None
    assert cache.run("lasso", "nids") is None


def test_a_removed_run_is_not_found(cache: ResultCache) -> None:
    cache.remove("runs/lasso/dfw")
    cache.remove("runs/lasso/dfw")
    assert cache.run("lasso", "dfw") is None


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(deadline=None, derandomize=True, max_examples=30)
def test_every_double_is_read_to_the_last_bit(
    values: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    cache = ResultCache(tmp_path_factory.mktemp("out"))
    names = ("iterations", "seconds", "computing", "gap")
    cache.save_run("lasso", "dfw", KEY, result(dict.fromkeys(names, values)))
    found = cache.run("lasso", "dfw", KEY)
    assert found is not None
    assert found.columns["gap"] == found.columns["seconds"] == values


def test_times_are_saved_apart_from_what_repeats(cache: ResultCache) -> None:
    data = (cache.path / "data" / "lasso" / "dfw.csv").read_text()
    assert data == "iterations,bytes,worst_loss\n0,0,1\n1,800,0.30000000000000004\n2,1600,1e-300\n"
    timing = (cache.path / "timing" / "lasso" / "dfw.csv").read_text()
    assert timing == "iterations,seconds,computing\n0,0,0\n1,0.25,0.125\n2,0.5,0.3\n"


def test_a_write_that_fails_leaves_the_old_file_and_no_temporary_one(
    cache: ResultCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (cache.path / "manifest.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FolderError, match=r"must be written; that failed \(No space left on device\)"):
        write_manifest(cache, {"format": 1})
    assert (cache.path / "manifest.json").read_bytes() == before
    assert list(cache.path.rglob("*.part")) == []


def test_a_record_that_is_cut_off_is_no_record(cache: ResultCache) -> None:
    record = cache.path / "runs" / "lasso" / "dfw.json"
    record.write_text(record.read_text()[:40])
    assert cache.run("lasso", "dfw") is None
    assert not cache.has_run("lasso", "dfw", KEY)


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name in ("thesis.tex", "b", "c", "d"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(
        FolderError, match=r"must be empty or hold an earlier run .* b, c, d and 1 more\. .*--out"
    ):
        open_manifest(ResultCache(tmp_path), SETTINGS)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b", "c", "d", "thesis.tex"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"must be writable; .* cannot be written \(.+\)\. .*--out"):
        ResultCache(tmp_path / "file").check_writable()


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(FolderError, match=r"cannot be written \(Permission denied\)"):
        ResultCache(tmp_path).check_writable()


def test_an_earlier_run_is_continued_with_its_own_settings(cache: ResultCache) -> None:
    write_manifest(cache, read_manifest(cache) | {"note": "earlier"})
    assert open_manifest(cache, SETTINGS)["note"] == "earlier"


def test_other_settings_are_refused_with_each_difference(cache: ResultCache) -> None:
    with pytest.raises(FolderError, match=r"seed was 0, is 1; quick was True, is False\. .*--out"):
        open_manifest(cache, {"seed": 1, "quick": False})


def test_a_history_that_was_changed_is_refused(cache: ResultCache) -> None:
    file = cache.path / "data" / "lasso" / "dfw.csv"
    file.write_text(file.read_text().replace("800", "801"))
    with pytest.raises(FolderError, match=r"dfw\.csv' must be as it was written"):
        cache.run("lasso", "dfw", KEY)


def test_a_history_that_is_missing_is_named(cache: ResultCache) -> None:
    (cache.path / "timing" / "lasso" / "dfw.csv").unlink()
    with pytest.raises(FolderError, match=r"timing.*dfw\.csv' must be there"):
        cache.run("lasso", "dfw", KEY)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": ', "\x00", "{}", "3"])
def test_a_broken_manifest_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(FolderError, match=r"must be a manifest written by dcgs reproduce"):
        read_manifest(ResultCache(tmp_path))


def test_a_manifest_of_another_format_is_refused_with_its_format(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 7}))
    with pytest.raises(FolderError, match=r"must be of format 2; .* has 7\."):
        read_manifest(ResultCache(tmp_path))


def test_a_folder_without_a_manifest_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"must hold a manifest\.json"):
        read_manifest(ResultCache(tmp_path))
