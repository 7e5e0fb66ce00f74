"""``dcgs fit`` and the estimators are one core: equal bits for equal rows, graph, gap, folds and seed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcgs.cli import main
from fit_runs import ENVIRONMENT, MPIEXEC
from one_core import CASES, SITES, command, digest, fitted, write_files


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("core")
    write_files(place)
    return place


def found_by_command(folder: Path) -> dict[str, Any]:
    """Return what a fit in this folder has found, as the estimator says it."""
    summary = json.loads((folder / "summary.json").read_text())
    radius, paths = summary["set"]["radius"], summary.get("paths", {"": summary.get("path")})
    with np.load(folder / "agent-000.npz") as model:
        names = ("V", "col_offsets") if "V" in model.files else ("x", "intercept")
        arrays = [digest(model[name]) for name in names]
    return {
        "radius": radius if isinstance(radius, list) else [radius],
        "rounds": summary["rounds"],
        "bytes": summary["bytes"],
        "paths": [None if path is None else [path["rounds"], path["best_radius"]] for path in paths.values()],
        "model": arrays,
    }


@cache
def in_one_process(folder: Path, name: str) -> dict[str, Any]:
    """Return what the estimator finds, with the data of all sites in this process."""
    return fitted(folder, name, list(range(SITES)))


@pytest.mark.parametrize("name", CASES)
def test_the_command_and_the_estimator_find_the_same_bits(name: str, folder: Path) -> None:
    assert main(command(name, folder, name)) == 0
    assert found_by_command(folder / name) == in_one_process(folder, name)


def test_over_mpi_they_find_the_bits_of_one_process(folder: Path) -> None:
    here = Path(__file__).parent
    python = [str(MPIEXEC), "-n", str(SITES), sys.executable]
    environment = ENVIRONMENT | {"PYTHONPATH": os.pathsep.join([str(here), os.environ.get("PYTHONPATH", "")])}
    done = subprocess.run(
        [*python, str(here / "one_core.py"), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600.0,
    )
    assert done.returncode == 0, done.stderr
    by_estimators = json.loads(done.stdout.splitlines()[-1])
    for name in CASES:
        assert found_by_command(folder / f"mpi {name}") == in_one_process(folder, name)
        assert by_estimators[name] == in_one_process(folder, name)
