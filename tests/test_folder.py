"""The folder of a study: whole or not at all, continued only by its own settings, checked when read."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs.experiments.folder import Folder, FolderError

SETTINGS = {"seed": 0, "quick": True}
COLUMNS: dict[str, list[float]] = {
    "iterations": [0, 1, 2],
    "bytes": [0, 800, 1600],
    "worst_loss": [1.0, 0.1 + 0.2, 1e-300],
    "seconds": [0.0, 0.25, 0.5],
    "computing": [0.0, 0.125, 0.3],
}


def kept(path: Path) -> tuple[Folder, dict[str, str]]:
    folder = Folder(path / "out")
    manifest = folder.open(SETTINGS)
    checksums = folder.keep("lasso", "dfw", COLUMNS)
    folder.write_manifest(manifest)
    return folder, checksums


def test_a_new_folder_is_made_with_its_parents(tmp_path: Path) -> None:
    manifest = Folder(tmp_path / "a" / "b").open(SETTINGS)
    assert manifest["settings"] == SETTINGS
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_history_comes_back_as_it_was_kept(tmp_path: Path) -> None:
    folder, checksums = kept(tmp_path)
    assert folder.columns("lasso", "dfw", checksums) == COLUMNS


@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
@settings(deadline=None, derandomize=True)
def test_every_double_comes_back_to_the_last_bit(
    values: list[float], tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = Folder(tmp_path_factory.mktemp("out"))
    timed = {"iterations": values, "seconds": values, "computing": values}
    checksums = folder.keep("lasso", "dfw", timed | {"gap": values})
    assert folder.columns("lasso", "dfw", checksums)["gap"] == values


def test_what_a_clock_measured_is_kept_apart_from_what_repeats(tmp_path: Path) -> None:
    folder, _ = kept(tmp_path)
    data = (folder.path / "data" / "lasso" / "dfw.csv").read_text()
    assert data == "iterations,bytes,worst_loss\n0,0,1\n1,800,0.30000000000000004\n2,1600,1e-300\n"
    timing = (folder.path / "timing" / "lasso" / "dfw.csv").read_text()
    assert timing == "iterations,seconds,computing\n0,0,0\n1,0.25,0.125\n2,0.5,0.3\n"


def test_no_half_written_file_is_left_when_a_write_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = kept(tmp_path)
    before = (folder.path / "manifest.json").read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(FolderError, match=r"must be written; that failed \(No space left on device\)"):
        folder.write_manifest({"format": 1})
    assert (folder.path / "manifest.json").read_bytes() == before
    assert list(folder.path.rglob("*.part")) == []


def test_a_folder_with_other_files_is_refused_and_left_alone(tmp_path: Path) -> None:
    for name in ("thesis.tex", "b", "c", "d"):
        (tmp_path / name).write_text("mine")
    with pytest.raises(
        FolderError, match=r"must be empty or hold an earlier run .* b, c, d and 1 more\. .*--out"
    ):
        Folder(tmp_path).open(SETTINGS)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["b", "c", "d", "thesis.tex"]


def test_a_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(FolderError, match=r"must be one of yours; .* cannot be written \(.+\)\. .*--out"):
        Folder(tmp_path / "file").open(SETTINGS)


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "touch", refused)
    with pytest.raises(FolderError, match=r"cannot be written \(Permission denied\)"):
        Folder(tmp_path).open(SETTINGS)


def test_an_earlier_run_is_continued_with_its_own_settings(tmp_path: Path) -> None:
    folder, _ = kept(tmp_path)
    folder.write_manifest(folder.manifest() | {"note": "earlier"})
    assert folder.open(SETTINGS)["note"] == "earlier"


def test_other_settings_are_refused_with_each_difference(tmp_path: Path) -> None:
    folder, _ = kept(tmp_path)
    with pytest.raises(FolderError, match=r"seed was 0, is 1; quick was True, is False\. .*--out"):
        folder.open({"seed": 1, "quick": False})


def test_a_history_that_was_changed_is_refused(tmp_path: Path) -> None:
    folder, checksums = kept(tmp_path)
    file = folder.path / "data" / "lasso" / "dfw.csv"
    file.write_text(file.read_text().replace("800", "801"))
    with pytest.raises(FolderError, match=r"dfw\.csv' must be as it was written"):
        folder.columns("lasso", "dfw", checksums)


def test_a_history_that_is_missing_is_named(tmp_path: Path) -> None:
    folder, checksums = kept(tmp_path)
    (folder.path / "timing" / "lasso" / "dfw.csv").unlink()
    with pytest.raises(FolderError, match=r"timing.*dfw\.csv' must be there"):
        folder.columns("lasso", "dfw", checksums)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"format": ', "\x00", "{}", "3"])
def test_a_broken_manifest_is_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(FolderError, match=r"must be a manifest written by dcgs reproduce"):
        Folder(tmp_path).manifest()


def test_a_manifest_of_another_format_is_refused_with_its_format(tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text(json.dumps({"format": 7}))
    with pytest.raises(FolderError, match=r"must be of format 1; .* has 7\."):
        Folder(tmp_path).manifest()


def test_a_folder_without_a_manifest_is_no_study(tmp_path: Path) -> None:
    with pytest.raises(FolderError, match=r"must hold a manifest\.json"):
        Folder(tmp_path).manifest()
