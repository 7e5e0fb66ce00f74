"""Fits of small files, in this process or under mpiexec, for the tests of ``dcgs fit`` over MPI."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.cli import main

MPIEXEC = Path(sys.executable).with_name("mpiexec")
ENVIRONMENT = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


def write_sites(count: int, folder: Path, features: int = 12) -> None:
    """Write a file for each agent."""
    rng = np.random.default_rng(7)
    for i in range(count):
        A = rng.standard_normal((8, features))
        np.savez(folder / f"site-{i}.npz", A=A, b=A[:, 0] - 2.0 * A[:, 1] + rng.standard_normal(8))


def alone(command: str) -> int:
    """Run ``dcgs command`` in this process."""
    return main(shlex.split(command))


def begin(ranks: int, command: str, program: str = "-m dcgs") -> subprocess.Popen[str]:
    """Start ``dcgs command`` in so many processes."""
    return subprocess.Popen(
        [str(MPIEXEC), "-n", str(ranks), sys.executable, *shlex.split(f"{program} {command}")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )


def patient(folder: Path) -> dict[str, str]:
    """Return an environment in which no process is killed that was told to end and needs time for it.

    Commands allow a few seconds, in which a process may not get far on a busy machine.
    """
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(
        "from dcgs.processes import supervisor\nsupervisor._DEADLINE = supervisor._RANK_DEADLINE = 240.0\n"
    )
    return ENVIRONMENT | {"PYTHONPATH": str(folder)}


def ended(run: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Return status, output and errors of a run."""
    printed, errors = run.communicate(timeout=600.0)
    return run.returncode, printed, errors


def together(ranks: int, command: str, program: str = "-m dcgs") -> tuple[int, str, str]:
    """Run ``dcgs command`` in so many processes; return status, output and errors."""
    return ended(begin(ranks, command, program))


def own_lines(text: str) -> list[str]:
    """Return the lines that dcgs printed; mpiexec may add lines of its own."""
    return [line for line in text.splitlines() if line.startswith("dcgs: ")]


def points(folder: str | Path) -> list[NDArray[Any]]:
    """Return the arrays of the models of all agents: x, or factors, offsets and ids."""
    arrays = []
    for path in sorted(Path(folder).glob("agent-*.npz")):
        with np.load(path) as model:
            arrays += [model[name] for name in sorted(model.files) if name != "meta"]
    return arrays


def same(one: str | Path, other: str | Path) -> bool:
    """Return whether two folders hold the same models, to the bit."""
    pairs = list(zip(points(one), points(other), strict=True))
    return bool(pairs) and all(x.tobytes() == y.tobytes() for x, y in pairs)


def until(condition: Callable[[], bool]) -> None:
    """Wait for a condition; fail after a time that no machine needs."""
    end = time.monotonic() + 240.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def workers(run: subprocess.Popen[str], ranks: int) -> list[int]:
    """Return the processes that do the work, by rank, once all exist; none if the run has ended before.

    Below mpiexec is its proxy, below that a supervisor for each rank, and below that its worker.
    """

    def found() -> list[int]:
        pids = [run.pid]
        for _ in range(3):
            pids = [child for parent in pids for child in children(parent)]
        return sorted(pids, key=rank)

    until(lambda: run.poll() is not None or len(found()) == ranks)
    return found()


def rank(pid: int) -> int:
    """Return the rank that mpiexec gave a process, -1 if it has ended."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return -1
    return next((int(line.partition(b"=")[2]) for line in variables if line.startswith(b"PMI_RANK=")), -1)


def children(pid: int) -> list[int]:
    """Return the processes that a process has started."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        return sorted(int(child) for task in tasks for child in (task / "children").read_text().split())
    except OSError:
        return []
