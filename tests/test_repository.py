"""The rules that tools can check, and the lock of what is installed."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

import dcgs
from dcgs.front import checkpoint_file
from dcgs.runtime.encoding import EncodedArray
from dcgs.runtime.wire import FRAME, HEADER

ROOT = Path(__file__).parent.parent
BIN = Path(sys.executable).parent
LINTERS = ["mypy", "lint-imports", "ruff check .", "ruff format --check ."]


@pytest.mark.parametrize("linter", LINTERS)
def test_the_linters_find_nothing(linter: str) -> None:
    name, *options = linter.split()
    done = subprocess.run([BIN / name, *options], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def required(package: str, extras: frozenset[str]) -> set[tuple[str, frozenset[str]]]:
    """Return the packages that an installed package needs on this Python, each with its extras."""
    environments = [{"extra": extra} for extra in extras or {""}]
    lines = map(Requirement, metadata.requires(package) or [])
    needed = [line for line in lines if line.marker is None or any(map(line.marker.evaluate, environments))]
    return {(normalized(line.name), frozenset(line.extras)) for line in needed}


def normalized(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_every_package_that_is_installed_for_the_tests_is_locked() -> None:
    """If this fails, a dependency is new: run ``make lock``."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    locked = {line.partition("==")[0] for line in lines if not line.startswith("#")}
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert {normalized(Requirement(line).name) for line in build} <= locked
    seen: set[tuple[str, frozenset[str]]] = set()
    found = {("dcgs", frozenset({"test"}))}
    while found - seen:
        seen |= found
        found = set().union(*(required(*each) for each in found))
    assert {name for name, _ in seen} - locked == {"dcgs"}


def test_the_typed_marker_is_in_the_package() -> None:
    assert (ROOT / "src" / "dcgs" / "py.typed").exists()


def test_every_public_name_exists() -> None:
    assert [name for name in dcgs.__all__ if getattr(dcgs, name, None) is None] == []


@pytest.mark.parametrize(
    "page", [*(ROOT / "docs").glob("*.md"), ROOT / "CONTRIBUTING.md"], ids=lambda p: p.stem
)
def test_every_module_that_a_page_names_exists(page: Path) -> None:
    package = ROOT / "src" / "dcgs"
    folders = "|".join(folder.name for folder in package.iterdir() if folder.is_dir())
    named = re.findall(rf"`(?:src/dcgs/)?((?:{folders})/[a-z_0-9/]+\.py)`", page.read_text())
    assert [name for name in named if not (package / name).exists()] == []


def test_the_page_of_checkpoints_has_the_format_of_the_files() -> None:
    page = (ROOT / "docs" / "checkpoints.md").read_text()
    assert re.findall(r"the number of the format, (\d+)", page) == [str(checkpoint_file.FORMAT)]


def test_the_page_of_mpi_has_the_bytes_of_the_headers_of_one_vector() -> None:
    page, vector = (ROOT / "docs" / "mpi.md").read_text(), np.ones(3)
    headers = HEADER + FRAME + EncodedArray(vector).nbytes - vector.nbytes
    assert re.findall(r"(\d+) bytes for one\s+vector", page) == [str(headers)]
