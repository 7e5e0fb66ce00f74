"""MPI jobs of three ranks, one of which is disturbed before, during or after ``MPI_Init``.

``python tests/disturbed_starts.py COUNT [SEED]`` starts so many jobs, one after another, and prints what was
wrong with each, and a table. A rank is stopped, killed, interrupted or terminated, raises, returns, or is
slow; in a plain script, under the command, or the supervisor of the command. A job must end, with a status
other than 0, with one sentence that names the rank, leave no process behind and nothing in /dev/shm. One in
which a rank is slow must end well. Put load on the machine beside it.

As root on Linux each job gets a /dev/shm of its own, so that other jobs of the machine do not disturb.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np

from ctrl_c import MARK, Run
from disturbed_rank import RANKS
from fit_runs import ENVIRONMENT, MPIEXEC, write_sites

HERE = Path(__file__).parent
MODES = ("script", "command", "supervisor")
ACTIONS = ("STOP", "KILL", "INT", "TERM", "raise", "return", "slow")
MOMENTS = ("before", "during", "after")
# Seconds after which a job counts as one that hangs, and in which the last of its processes may go.
PATIENCE, LAST = 240.0, 10.0
# A sentence is a line of ours, or the last line of a traceback of ours.
SENTENCE = re.compile(r"^(dcgs: |interrupted|agent \d+ .*interrupted|dcgs\S+\.RunAbortedError: )")
PRIVATE = (
    'mount -t tmpfs tmpfs /dev/shm && { "$@"; status=$?; sleep 1; '
    "ls /dev/shm | sed 's/^/LEFT: /'; exit $status; }"
)


@final
@dataclass(frozen=True)
class Case:
    """What happens to which rank, and when; ``delay`` are the seconds from the start of MPI to a signal."""

    mode: str
    rank: int
    action: str
    moment: str
    delay: float

    def __str__(self) -> str:
        return f"{self.mode}, rank {self.rank}: {self.action} {self.moment} ({self.delay:.2f} s)"


def cases(count: int, seed: int) -> list[Case]:
    """Return so many cases: all kinds in turn, at random ranks and moments."""
    rng = np.random.default_rng(seed)
    kinds = [(mode, action, moment) for action in ACTIONS for moment in MOMENTS for mode in MODES]
    drawn = []
    for _ in range(0, count, len(kinds)):
        for k in rng.permutation(len(kinds)):
            mode, action, moment = kinds[k]
            drawn.append(Case(mode, int(rng.integers(RANKS)), action, moment, float(rng.uniform(0.0, 0.4))))
    return drawn[:count]


def begin(case: Case, folder: Path, has_own_memory: bool) -> Run:
    """Start a job in a folder with the data."""
    mark = uuid.uuid4().hex
    isolated = ["unshare", "--mount", "sh", "-c", PRIVATE, "sh"] if has_own_memory else []
    script = [str(MPIEXEC), "-n", str(RANKS), sys.executable, str(HERE / "disturbed_rank.py")]
    process = subprocess.Popen(
        [*isolated, *script, case.mode, str(case.rank), case.action, case.moment, str(case.delay)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT | {MARK: mark, "PYTHONUNBUFFERED": "1"},
        cwd=folder,
        start_new_session=True,
    )
    return Run(process, mark, RANKS)


def faults(case: Case, run: Run) -> list[str]:
    """Wait for the end of a job; return all that is wrong with it."""
    wrong = []
    try:
        printed, _ = run.process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        wrong.append(f"it still ran after {PATIENCE:g} s")
        _kill(run)
        printed, _ = run.process.communicate()
    deadline = time.monotonic() + LAST
    while (left := run.processes()) and time.monotonic() < deadline:
        time.sleep(0.02)
    if left:
        wrong.append(f"{len(left)} processes were left")
        _kill(run)
    lines = printed.splitlines()
    wrong += [f"{line.removeprefix('LEFT: ')} was left" for line in lines if line.startswith("LEFT: ")]
    return [*wrong, *_wrong_words(case, run.process.returncode, lines)]


def _wrong_words(case: Case, status: int, lines: list[str]) -> list[str]:
    """Return what is wrong with the status and the sentence."""
    sentences = [line for line in lines if SENTENCE.match(line)]
    if case.action == "slow":
        return [] if status == 0 and not sentences else [f"status {status}, {sentences}"]
    wrong = [] if status else ["the status was 0"]
    if len(sentences) != 1:
        return [*wrong, f"{len(sentences)} sentences: {sentences}; {lines[-3:]}"]
    # Of a signal to the root, and of one to all, the root says that it was interrupted.
    names = rf"(rank|agent) {case.rank}\b" + (r"|interrupted" if case.action in ("INT", "TERM") else "")
    return wrong if re.search(names, sentences[0]) else [*wrong, f"it names another: {sentences[0]}"]


def _kill(run: Run) -> None:
    """Kill the processes of this job, and no others."""
    for pid in run.processes():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main(count: int, seed: int) -> int:
    """Start so many jobs; return how many were at fault."""
    well: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    has_own_memory = os.geteuid() == 0 and shutil.which("unshare") is not None
    for turn, case in enumerate(cases(count, seed)):
        with tempfile.TemporaryDirectory() as folder:
            write_sites(RANKS, Path(folder))
            start = time.monotonic()
            wrong = faults(case, begin(case, Path(folder), has_own_memory))
        total[case.action, case.moment] += 1
        well[case.action, case.moment] += not wrong
        print(f"{turn:4} {case}, {time.monotonic() - start:.1f} s: {'; '.join(wrong) or 'well'}", flush=True)
    print(f"{'':8}" + "".join(f"{moment:>10}" for moment in MOMENTS))
    for action in ACTIONS:
        numbers = [f"{well[action, moment]} of {total[action, moment]}" for moment in MOMENTS]
        print(f"{action:8}" + "".join(f"{number:>10}" for number in numbers))
    bad = total.total() - well.total()
    print(f"{bad} of {total.total()} were at fault")
    return bad


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0) > 0)
