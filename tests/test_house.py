"""The house rules that tools can check, and the examples."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def run(*command: str, cwd: Path = ROOT) -> str:
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_ruff_finds_nothing() -> None:
    run(sys.executable, "-m", "ruff", "check", ".")


def test_every_file_is_formatted() -> None:
    run(sys.executable, "-m", "ruff", "format", "--check", ".")


def test_types_are_right_under_strict_mypy() -> None:
    run(sys.executable, "-m", "mypy")


def test_layers_import_downwards_only() -> None:
    run(str(Path(sys.executable).with_name("lint-imports")))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_leaves_its_picture(example: Path, tmp_path: Path) -> None:
    shown = run(sys.executable, str(example), str(tmp_path))
    picture = tmp_path / f"{example.stem}.png"
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert str(picture) in shown.replace("\n", "")


def test_the_typed_marker_is_in_the_package() -> None:
    assert (ROOT / "src" / "dcgs" / "py.typed").exists()


def test_every_public_name_can_be_had() -> None:
    import dcgs

    assert [name for name in dcgs.__all__ if getattr(dcgs, name, None) is None] == []
