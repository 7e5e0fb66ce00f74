"""Ctrl-C and SIGTERM at random moments of ``mpiexec -n 4 dcgs fit``, from the start of the command on.

``python tests/ctrl_c.py COUNT [SEED]`` interrupts so many fits, each at a random moment, and prints what was
wrong with each; put load on the machine beside it. A fit must end, with status 130 after Ctrl-C, leave no
process behind, print no traceback and at most one line of ours.

Two moments are not ours. Before mpiexec has started a process it may lose a signal. Before Python has started
dcgs it prints a traceback of its own, and mpiexec has a status of its own; all must end even so.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from fit_runs import ENVIRONMENT, MPIEXEC, write_sites

RANKS = 4
FIT = (
    f"-m dcgs fit lasso --data 'site-{{rank}}.npz' --open --agents {RANKS} --radius 2 --graph path "
    "--method dfw --iterations 1000000"
)
# Seconds after which a fit that was told to end counts as one that hangs; it should take at most 5.
PATIENCE = 240.0
MARK = "DCGS_TEST_RUN"
OURS = re.compile(r"^(dcgs: |interrupted)")


@final
@dataclass(frozen=True)
class Run:
    """A command in a session of its own, all of whose processes carry a mark in their environment."""

    process: subprocess.Popen[str]
    mark: str
    count: int

    def processes(self) -> list[int]:
        """Return all processes of the run, wherever they are."""
        text = f"{MARK}={self.mark}".encode()
        found = []
        for folder in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                alive = (folder / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
                if alive and text in (folder / "environ").read_bytes().split(b"\0"):
                    found.append(int(folder.name))
        return sorted(found)

    def ranks(self) -> list[int]:
        """Return the processes that run Python."""
        return [pid for pid in self.processes() if "python" in _name(pid)]

    def is_up(self) -> bool:
        """Return whether dcgs runs in all processes: each supervisor has its worker."""
        return len(self.ranks()) >= 2 * self.count

    def has_mapped(self, library: str) -> bool:
        """Return whether some rank has loaded a library of that name."""
        for pid in self.ranks():
            with suppress(OSError):
                if library in Path(f"/proc/{pid}/maps").read_text():
                    return True
        return False

    def interrupt(self, number: signal.Signals) -> None:
        """Send a signal as a terminal does: to the group of the command."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)


def has_started(run: Run) -> bool:
    """Return whether a process of Python is there."""
    return bool(run.ranks())


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def begin(mpi: bool, options: str = "--out m") -> Run:
    """Start a fit that would not end by itself, under mpiexec or in one process."""
    mark = uuid.uuid4().hex
    launcher = [str(MPIEXEC), "-n", str(RANKS)] if mpi else []
    process = subprocess.Popen(
        [*launcher, sys.executable, *shlex.split(f"{FIT} {options}")],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT | {MARK: mark},
        start_new_session=True,
    )
    return Run(process, mark, RANKS if mpi else 1)


def wait_until(run: Run, condition: Callable[[Run], bool]) -> None:
    """Wait for a condition, or for the end of the run."""
    while run.process.poll() is None and not condition(run):
        time.sleep(0.002)


def faults(run: Run, number: signal.Signals) -> list[str]:
    """Send the signal, wait for the end, and return all that is wrong with it."""
    is_up = run.is_up()
    run.interrupt(number)
    wrong = []
    try:
        told, errors = run.process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        wrong.append(f"it still ran after {PATIENCE:g} s")
        _end(run)
        told, errors = run.process.communicate()
    # What the kernel has yet to clear away is no orphan; what remains for as long as we wait for a run is.
    deadline = time.monotonic() + PATIENCE
    while (left := run.processes()) and time.monotonic() < deadline:
        time.sleep(0.01)
    if left:
        wrong.append(f"{len(left)} processes were left")
        _end(run)
    # In a shell, a process ended by a signal has the status 128 + number. After SIGTERM, mpiexec has its own.
    code = run.process.returncode
    status = code if code >= 0 else 128 - code
    if status == 0 or (is_up and number == signal.SIGINT and status != 128 + number):
        wrong.append(f"the status was {status}, not {128 + number}")
    lines = f"{told}\n{errors}".splitlines()
    ours = [line for line in lines if OURS.match(line)]
    if len(ours) > 1:
        wrong.append(f"{len(ours)} lines of ours: {ours}")
    frames = sum("/dcgs/" in line for line in lines if line.startswith("  File "))
    traces = sum(line.startswith("Traceback (most recent call last)") for line in lines)
    if frames or (is_up and traces):
        wrong.append(f"{traces} tracebacks, {frames} of their lines in dcgs")
    return wrong


def _end(run: Run) -> None:
    """Kill the processes of this run, and no others."""
    for pid in run.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def length() -> float:
    """Return the seconds from the first process of a fit to its first checkpoint."""
    run = begin(mpi=True, options="--checkpoint kept-first --every 1 --out m")
    wait_until(run, has_started)
    start = time.monotonic()
    wait_until(run, lambda _: any(Path("kept-first").glob("*/*.dcgs")))
    seconds = time.monotonic() - start
    _end(run)
    run.process.communicate()
    return seconds


def main(count: int, seed: int) -> int:
    """Interrupt so many fits; return how many were at fault."""
    rng = np.random.default_rng(seed)
    write_sites(RANKS, Path())
    most = 1.3 * length()
    bad = 0
    for turn in range(count):
        number = signal.SIGINT if rng.random() < 0.7 else signal.SIGTERM
        moment = float(rng.uniform(0.0, most))
        run = begin(mpi=bool(rng.random() < 0.8))
        wait_until(run, has_started)
        with suppress(subprocess.TimeoutExpired):
            run.process.wait(moment)
        start = time.monotonic()
        wrong = faults(run, number)
        bad += bool(wrong)
        told = "; ".join(wrong) or "well"
        took = time.monotonic() - start
        print(f"{turn:4} {number.name} after {moment:.2f} s, ended in {took:.2f} s: {told}", flush=True)
    print(f"{bad} of {count} were at fault")
    return bad


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
