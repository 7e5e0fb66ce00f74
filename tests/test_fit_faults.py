"""``dcgs fit`` over MPI when something fails: one sentence, the end of all processes, and a way to resume."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fit_runs import (
    ENVIRONMENT,
    alone,
    begin,
    ended,
    own_lines,
    patient,
    same,
    together,
    until,
    workers,
    write_sites,
)

AGENTS = 2
SITES = "--data 'site-{rank}.npz' --open --agents 2 --graph path"
FIT = f"fit lasso {SITES} --radius 2 --method dfw --iterations 600"
SAVED = f"{FIT} --checkpoint saved --every 20"
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


def holds_no_model(folder: str) -> bool:
    """Return True if a fit has left nothing but the ledgers of what it had sent."""
    return all(re.fullmatch(r"ledger-\d+\.jsonl", file.name) for file in Path(folder).glob("*"))


def error_of(done: tuple[int, str, str]) -> str:
    """Return the one error that a failed run printed."""
    status, _, errors = done
    assert status != 0
    assert "Traceback" not in errors
    (line,) = own_lines(errors)
    return line.removeprefix("dcgs: error: ")


def fault(rank: int, call: str, count: int, action: str) -> str:
    """Return the program that does the action at that call in that process; see fit_with_fault.py."""
    return f"{HERE}/fit_with_fault.py {rank} {call} {count} {action}"


def newest() -> int:
    """Return the newest iteration that all agents have a checkpoint of, -1 if there is none."""
    have = [{int(file.stem) for file in Path(f"saved/agent-000{i}").glob("*.dcgs")} for i in range(AGENTS)]
    return max(set.intersection(*have), default=-1)


def test_a_file_that_one_process_cannot_read_ends_all_and_names_the_agent() -> None:
    Path("site-1.npz").unlink()
    error = error_of(together(2, f"{FIT} --out m"))
    assert error.startswith("agent 1 failed: site-1.npz ")
    assert holds_no_model("m")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ("--checkpoint saved --every 0", "argument --every: must be at least 1; got 0"),
        ("--set box", "the set box takes --lower and --upper; got --radius"),
    ],
)
def test_bad_input_of_all_processes_is_printed_once(options: str, sentence: str) -> None:
    """Before the processes have met, and after."""
    status, printed, errors = together(2, f"{FIT} {options} --out m")
    assert (status, printed) == (2, "")
    assert errors.count("error: ") == 1
    assert sentence in errors


def test_the_mpiexec_of_another_mpi_is_refused_once() -> None:
    """Its processes do not find each other; the first of them says so."""
    environment = ENVIRONMENT | {"OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_RANK": "0"}
    command = [sys.executable, "-m", "dcgs", *f"{FIT} --out m".replace("'", "").split()]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    error = error_of((done.returncode, done.stdout, done.stderr))
    assert "the mpiexec must be that of mpi4py's own MPI" in error
    assert "started 3 processes (OMPI_COMM_WORLD_SIZE), and mpi4py sees 1" in error


def test_a_process_that_is_killed_before_it_meets_the_others_ends_all() -> None:
    run = begin(2, f"{FIT} --out m")
    os.kill(workers(run, 2)[0], signal.SIGKILL)
    assert "rank 0" in error_of(ended(run))


def test_a_process_that_is_stopped_is_named_and_ended() -> None:
    run = begin(2, f"{SAVED} --timeout 5 --out m", fault(1, "lmo", 30, "SIGSTOP-worker"))
    stopped = workers(run, 2)[1]
    error = error_of(ended(run))
    assert re.match(r"agent 1 \(rank 1\) has been silent for \d+ s; ", error)
    assert error.endswith(
        "or allow more by MPI(timeout=...), in the command --timeout. Continue with --resume."
    )
    until(lambda: not Path(f"/proc/{stopped}").exists())
    assert newest() == 20
    assert holds_no_model("m")


@pytest.mark.parametrize(
    ("count", "options", "sentence", "saved"),
    [
        (
            7,  # a file and its folder for iterations 0, 20 and 40; then the file of iteration 60
            "--checkpoint saved --every 20",
            "agent 1 (rank 1) failed: the checkpoint of iteration 60 cannot be written to 'saved': No space "
            "left on device. Earlier checkpoints are complete; free some space, and resume with "
            "resume=True (--resume).",
            40,
        ),
        (
            1,
            "--iterations 20",
            "agent 1 (rank 1) failed: m must be a folder that can be written; No space left on device. ",
            -1,
        ),
    ],
)
def test_a_full_disk_at_one_process_ends_all_and_leaves_only_complete_files(
    count: int, options: str, sentence: str, saved: int
) -> None:
    error = error_of(together(2, f"{FIT} {options} --out m", fault(1, "fsync", count, "full")))
    assert error.startswith(sentence)
    assert holds_no_model("m")
    assert newest() == saved


KILLED = (
    r"agent {0} \(rank {0}\) was killed by SIGKILL; see whether its machine ran out of memory, "
    r"and continue with --resume\."
)


def test_a_fit_whose_processes_are_killed_ends_with_the_same_bits_after_resuming(whole: Path) -> None:
    """One process after the other is killed: computing, with half a checkpoint written, before it is renamed.

    After each kill a copy is resumed to its end in one process; then the fit itself is resumed over MPI.
    """
    for rank, call, count, saved in ((1, "lmo", 10, 0), (0, "fsync", 5, 20), (1, "replace", 6, 120)):
        done = together(2, f"{SAVED} --resume auto --out m", fault(rank, call, count, "SIGKILL-worker"))
        assert re.fullmatch(KILLED.format(rank), error_of(done))
        assert newest() == saved
        shutil.copytree("saved", f"{call}/saved")
        command = f"{FIT} --checkpoint {call}/saved --every 5000 --resume"
        assert alone(f"{command} --out {call}/m") == 0
        assert same(f"{call}/m", whole)
    assert together(2, f"{SAVED} --resume --out m")[0] == 0
    assert same("m", whole)


@pytest.mark.parametrize(
    ("number", "target"),
    [(signal.SIGTERM, "mpiexec"), (signal.SIGINT, "mpiexec"), (signal.SIGTERM, "worker")],
)
def test_a_signal_to_all_or_to_one_ends_the_fit_with_a_last_checkpoint(
    number: signal.Signals, target: str, whole: Path
) -> None:
    program = fault(1, "lmo", 30, f"{number.name}-{target}")
    status, printed, errors = together(2, f"{FIT} --checkpoint saved --every 550 --out m", program)
    assert (status, own_lines(errors)) == (128 + number, [])
    sentence = "interrupted: a checkpoint is in saved; continue by the same command with --resume."
    assert printed.count(sentence) == 1
    assert holds_no_model("m")
    k = newest()
    assert 30 <= k < 550
    assert alone(f"{FIT} --checkpoint saved --resume --out m") == 0
    assert json.loads(Path("m/summary.json").read_text())["checkpoint"]["resumed"] == k
    assert same("m", whole)


def test_without_checkpoints_a_signal_ends_the_fit_with_a_sentence() -> None:
    program = fault(1, "lmo", 30, "SIGINT-supervisor")
    status, printed, errors = together(2, f"{FIT} --iterations 1000000 --out m", program)
    assert (status, own_lines(errors)) == (130, [])
    assert printed.count("interrupted: no model was written.") == 1
    assert holds_no_model("m")


PATIENT = "from dcgs.cli import launch; launch._DEADLINE = 240.0; from dcgs.command import command; command()"


def test_ctrl_c_at_a_fit_that_started_its_processes_reaches_them_once(tmp_path: Path) -> None:
    options = "--iterations 1000000 --runtime mpi --out m"
    command = [sys.executable, "-c", PATIENT, *f"{SAVED} {options}".replace("'", "").split()]
    run = subprocess.Popen(
        command,
        env=patient(tmp_path / "patient"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until(lambda: run.poll() is not None or newest() >= 20)
    os.killpg(run.pid, signal.SIGINT)  # as a terminal does
    status, printed, errors = ended(run)
    assert (status, own_lines(errors)) == (130, [])
    assert printed.count("interrupted: a checkpoint is in saved") == 1
    assert newest() >= 20
    assert holds_no_model("m")
