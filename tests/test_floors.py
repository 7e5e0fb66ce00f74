"""The oldest versions of dependencies that pyproject.toml allows: they are installed and used."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
OLDEST = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
NO_INDEX = 75


def floors(folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Return what ``tools/floors.py`` did with this folder."""
    command = [sys.executable, str(ROOT / "tools" / "floors.py"), str(folder)]
    environment = os.environ | variables
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture
def tried() -> subprocess.CompletedProcess[str]:
    """What happened with the oldest versions; they stay installed for the next time."""
    done = floors(ROOT / "build" / "floors")
    if done.returncode == NO_INDEX:
        pytest.skip("no package index can be reached: the oldest versions were NOT tried")
    return done


@pytest.mark.skipif(
    f"{sys.version_info.major}.{sys.version_info.minor}" != OLDEST,
    reason=f"the oldest versions have wheels for Python {OLDEST}, and not for all newer ones",
)
def test_every_part_works_with_the_oldest_versions_that_are_allowed(
    tried: subprocess.CompletedProcess[str],
) -> None:
    assert tried.returncode == 0, tried.stdout + tried.stderr


def test_without_a_package_index_the_oldest_versions_count_as_not_tried(tmp_path: Path) -> None:
    done = floors(tmp_path / "floors", PIP_NO_INDEX="1", PIP_FIND_LINKS=str(tmp_path))
    assert done.returncode == NO_INDEX, done.stderr
