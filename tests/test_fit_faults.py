"""``dcgs fit`` over MPI when something goes wrong: one sentence, the end of all, and a way to go on."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from fit_runs import (
    ENVIRONMENT,
    alone,
    begin,
    children,
    ended,
    same,
    together,
    workers,
    write_sites,
)

AGENTS = 3
# Long enough in rounds for signals to hit, and short in time.
FIT = "fit lasso --data 'site-{rank}.npz' --agents 3 --radius 2 --graph path --method dfw --iterations 2000"
KEPT = f"{FIT} --checkpoint kept --every 20"
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of a fit that nothing interrupts."""
    folder = tmp_path_factory.mktemp("whole")
    write_sites(AGENTS, folder)
    assert alone(f"{FIT.replace('site-', f'{folder}/site-')} --out {folder}/m") == 0
    return folder / "m"


@pytest.fixture(autouse=True)
def sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_sites(AGENTS, tmp_path)


def error_of(done: tuple[int, str, str]) -> str:
    """Return what a run that failed said: one sentence, and nothing else."""
    status, _, errors = done
    assert status not in (0, None)
    assert errors.count("dcgs: error: ") == 1
    assert errors.startswith("dcgs: error: ")
    assert errors.count("\n") == 1
    return errors.removeprefix("dcgs: error: ").rstrip()


def newest() -> int:
    """Return the newest iteration that all agents have, -1 where there is none."""
    have = [{int(file.stem) for file in Path(f"kept/agent-000{i}").glob("*.dcgs")} for i in range(AGENTS)]
    return max(set.intersection(*have), default=-1)


def wait_for(iteration: int, run: subprocess.Popen[str]) -> None:
    while run.poll() is None and newest() < iteration:
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (Path.unlink, "agent 2 failed: site-2.npz "),
        (lambda file: file.write_bytes(b"no zip"), "agent 2 failed: site-2.npz "),
    ],
)
def test_a_file_that_one_process_cannot_read_ends_all_with_its_agent_named(
    spoil: object, sentence: str
) -> None:
    assert callable(spoil)
    spoil(Path("site-2.npz"))
    told = error_of(together(3, f"{FIT} --out m"))
    assert told.startswith(sentence)
    assert not Path("m").exists()


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--out m --checkpoint kept --every 0", "argument --every: must be at least 1; got 0"),
        ("--out m --set box", "--radius"),
        ("--out m --agents 2", "must be as many files site-{rank}.npz as agents; there are 2 agents"),
    ],
)
def test_what_is_wrong_for_all_is_told_once(options: str, sentence: str) -> None:
    status, told, errors = together(3, f"{FIT} {options}")
    assert (status, told) == (2, "")
    assert errors.count("error: ") == 1
    assert sentence in errors


def test_another_mpiexec_is_refused_once() -> None:
    """Processes of another MPI's mpiexec do not find each other; the first of them says so."""
    environment = ENVIRONMENT | {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}
    command = [sys.executable, "-m", "dcgs", *f"{FIT} --out m".replace("'", "").split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    told = error_of((done.returncode, done.stdout, done.stderr))
    assert "the mpiexec must be that of mpi4py's own MPI" in told
    assert "started 3 processes (OMPI_COMM_WORLD_SIZE), and mpi4py sees 1" in told


def test_a_process_that_is_killed_before_it_meets_the_others_ends_all() -> None:
    run = begin(2, f"{FIT} --out m")
    os.kill(workers(run, 2)[0], signal.SIGKILL)
    assert "rank 0" in error_of(ended(run))


def test_a_process_that_stands_still_is_told_and_the_fit_goes_on_by_resuming() -> None:
    run = begin(3, f"{KEPT} --timeout 2 --out m")
    wait_for(20, run)
    stopped = workers(run, 3)[1]
    os.kill(stopped, signal.SIGSTOP)
    told = error_of(ended(run))
    assert told.startswith("agent 1 (rank 1) has been silent for 2 s; ")
    assert told.endswith("and go on with --resume, or allow more by --timeout.")
    assert not children(stopped)
    assert not Path("m").exists()


@pytest.mark.parametrize(
    ("left", "options", "sentence"),
    [
        (
            6,  # two for a file: iterations 0, 20 and 40
            "--checkpoint kept --every 20",
            "agent 1 (rank 1) failed: the checkpoint of iteration 60 cannot be written to 'kept': No space "
            "left on device. Earlier checkpoints are complete; free some space, and resume with --resume.",
        ),
        (0, "--iterations 20", "agent 1 (rank 1) failed: m must be a folder that can be written; No space"),
    ],
)
def test_a_disk_that_is_full_at_one_process_ends_all_and_leaves_what_is_whole(
    left: int, options: str, sentence: str
) -> None:
    told = error_of(together(3, f"{FIT} {options} --out m", f"{HERE}/fit_on_full_disk.py {left}"))
    assert told.startswith(sentence)
    assert not Path("m").exists()
    assert newest() == {6: 40, 0: -1}[left]


def struck(victim: int, ranks: int, seconds: float) -> tuple[int, str]:
    """Start or resume the fit, and kill a process some seconds after it is there.

    Return the status and what was said; a fit may also come to its end before.
    """
    run = begin(ranks, f"{KEPT} --resume auto --out m")
    begun = workers(run, ranks)
    time.sleep(seconds)
    with suppress(ProcessLookupError, IndexError):
        os.kill(begun[victim], signal.SIGKILL)
    done = ended(run)
    return done[0], error_of(done) if done[0] else ""


def brought_to_its_end(place: str) -> str:
    """Resume a copy of what was kept, in this process; return the folder with its models."""
    with suppress(FileNotFoundError):  # where it was killed before it kept anything
        shutil.copytree("kept", f"{place}/kept")
    command = f"{FIT} --checkpoint {place}/kept --every 5000 --resume auto"
    assert alone(f"{command} --out {place}/m") == 0
    return f"{place}/m"


def begin_anew(whole: Path) -> None:
    """See that a fit that nobody killed in time ended well; make room for another."""
    assert same("m", whole)
    shutil.rmtree("m")
    shutil.rmtree("kept")


KILLED = re.compile(
    r"(rank \d|agent \d \(rank \d\)|rank \d with agents \d to \d) was killed by SIGKILL; see whether its "
    r"machine ran out of memory, and (go on with --resume|start again)\."
)


def test_a_fit_whose_processes_are_killed_at_any_time_ends_with_the_same_bits(whole: Path) -> None:
    """A random process is killed at a random time, and the fit resumed, on 2 or 3 processes, 20 times.

    After each kill a copy is brought to its end in this process; the next fit goes on over MPI.
    """
    rng = np.random.default_rng(5)
    kills: list[int] = []
    for turn in range(40):
        ranks = int(rng.integers(2, 4))
        victim = int(rng.integers(ranks))
        status, told = struck(victim, ranks, rng.uniform(0.0, 0.8))
        if status == 0:
            begin_anew(whole)
            continue
        assert KILLED.fullmatch(told)
        assert f"rank {victim}" in told
        assert same(brought_to_its_end(f"turn-{turn}"), whole)
        kills.append(newest())
        if len(kills) == 20:
            break
    assert len(kills) == 20
    assert len({k for k in kills if k > 0}) >= 5  # by resuming, fits came further
    assert together(3, f"{KEPT} --resume auto --out m")[0] == 0
    assert same("m", whole)


def send(number: signal.Signals, to: str, run: subprocess.Popen[str]) -> None:
    """Send a signal to mpiexec, which hands it on to all, to a process that watches, or to one that works."""
    worker = workers(run, 3)[2]
    watcher = int(Path(f"/proc/{worker}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill({"mpiexec": run.pid, "watcher": watcher, "worker": worker}[to], number)


@pytest.mark.parametrize(
    ("number", "to"),
    [
        (signal.SIGTERM, "mpiexec"),
        (signal.SIGTERM, "worker"),
        (signal.SIGINT, "mpiexec"),
        (signal.SIGINT, "watcher"),
    ],
)
def test_a_signal_to_all_or_to_one_ends_the_fit_with_a_last_checkpoint(
    number: signal.Signals, to: str, whole: Path
) -> None:
    run = begin(3, f"{FIT} --checkpoint kept --every 1100 --out m")
    wait_for(0, run)
    time.sleep(0.3)
    send(number, to, run)
    status, told, errors = ended(run)
    assert (status, errors) == (128 + number, "")
    assert told.count("interrupted: a checkpoint is in kept; go on by the same command with --resume.") == 1
    assert not Path("m").exists()
    k = newest()
    assert k > 0
    assert k % 1100 != 0
    assert alone(f"{FIT} --checkpoint kept --resume --out m") == 0
    assert json.loads(Path("m/summary.json").read_text())["checkpoint"]["resumed"] == k
    assert same("m", whole)


@pytest.mark.parametrize(("number", "to"), [(signal.SIGTERM, "mpiexec"), (signal.SIGINT, "watcher")])
def test_without_checkpoints_a_signal_ends_the_fit_with_a_sentence(number: signal.Signals, to: str) -> None:
    run = begin(3, f"{FIT} --iterations 1000000 --out m")
    workers(run, 3)
    while run.poll() is None and not Path("m").exists():
        time.sleep(0.01)
    time.sleep(0.3)
    send(number, to, run)
    status, told, errors = ended(run)
    assert (status, errors) == (128 + number, "")
    assert told.count("interrupted: nothing was written.") == 1
    assert not Path("m").exists()


def test_ctrl_c_at_a_fit_that_started_its_processes_reaches_them_once() -> None:
    command = [sys.executable, "-m", "dcgs", *f"{KEPT} --runtime mpi --out m".replace("'", "").split()]
    run = subprocess.Popen(
        command,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    wait_for(20, run)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    status, told, errors = ended(run)
    assert (status, errors) == (130, "")
    assert told.count("interrupted: a checkpoint is in kept") == 1
    assert newest() > 20
    assert not Path("m").exists()
