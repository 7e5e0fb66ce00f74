"""The start of MPI: who is at fault if processes wait, what their marks say, and what is left of a job."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import disturbed_starts
from dcgs.processes import environment
from dcgs.processes.marks import (
    EXITED,
    KILLED,
    LEAVES,
    LEFT,
    RAISED,
    RUNS,
    STARTS,
    WAITS,
    Mark,
    Marks,
    Seen,
    Wait,
    fault,
    killed_by,
    new_mark,
    process,
    remove_old_folders,
)
from disturbed_rank import RANKS
from disturbed_starts import Case
from fit_runs import write_sites

JOIN = Wait(WAITS, frozenset({0, 2}), timeout=10.0, start_timeout=126.0)
LEAVE = Wait(LEAVES, frozenset({0, 2}), timeout=10.0)


@pytest.mark.parametrize(
    ("stage", "text"),
    [(EXITED, "exited."), (RAISED, "raised ValueError: no."), (KILLED, "was killed by SIGKILL.")],
)
def test_a_rank_that_ended_before_it_started_mpi_is_at_fault_at_once(stage: str, text: str) -> None:
    seen = {0: Seen(WAITS, "rank 0"), 2: Seen(stage, "rank 2", text)}
    assert fault(JOIN, seen, waited=0.0) == f"rank 2 {text}"


def test_a_rank_that_is_stopped_may_be_so_for_the_timeout_of_heartbeats() -> None:
    seen = {0: Seen(WAITS, "rank 0"), 2: Seen(WAITS, "rank 2", stopped=9.9)}
    assert fault(JOIN, seen, waited=100.0) is None
    sentence = fault(JOIN, seen | {2: Seen(WAITS, "rank 2", stopped=10.1)}, waited=11.0)
    assert sentence is not None
    assert sentence.startswith(
        "rank 2 has been stopped for 10 s while others wait for it; see what stopped it"
    )


@pytest.mark.parametrize(
    ("seen", "who"),
    [
        ({0: Seen(WAITS, "rank 0"), 2: Seen(STARTS, "rank 2")}, "rank 2 has not done so"),
        ({0: Seen(STARTS, "rank 0"), 2: Seen(STARTS, "rank 2")}, "ranks [0, 2] have not done so"),
        ({0: Seen(WAITS, "rank 0")}, "rank 2 has left no sign on this machine"),
        ({0: Seen(STARTS, "")}, "rank 0 has not done so and rank 2 has left no sign on this machine"),
        ({0: Seen(WAITS, "rank 0"), 2: Seen(RUNS, "rank 2")}, "all of this machine wait in it"),
    ],
)
def test_a_start_that_takes_too_long_names_who_is_missing(seen: dict[int, Seen], who: str) -> None:
    assert fault(JOIN, seen, waited=126.0) is None
    sentence = fault(JOIN, seen, waited=126.1)
    assert sentence is not None
    assert sentence.startswith(f"all ranks must have started MPI after 126 s; {who}. See what happens there")
    assert "MPI(start_timeout=...), in the command --start-timeout" in sentence


def test_ranks_that_are_not_waited_for_are_not_at_fault() -> None:
    """A communicator may have some ranks only."""
    assert (
        fault(JOIN, {0: Seen(WAITS, ""), 1: Seen(EXITED, "rank 1"), 2: Seen(WAITS, "")}, waited=0.0) is None
    )


def test_who_leaves_mpi_waits_for_those_that_compute_but_not_for_those_that_are_stopped() -> None:
    seen = {0: Seen(RUNS, "rank 0"), 2: Seen(LEFT, "rank 2")}
    assert fault(LEAVE, seen, waited=1e6) is None
    sentence = fault(LEAVE, seen | {0: Seen(RUNS, "agent 0 (rank 0)", stopped=11.0)}, waited=11.0)
    assert sentence is not None
    assert sentence.startswith("agent 0 (rank 0) has been stopped for 11 s")


def test_only_a_kill_may_be_for_lack_of_memory() -> None:
    assert killed_by(signal.SIGTERM, "start again") == "was killed by SIGTERM; start again."
    assert killed_by(signal.SIGKILL, "start again") == (
        "was killed by SIGKILL; see whether its machine ran out of memory, and start again."
    )


def test_marks_are_read_as_they_were_written(tmp_path: Path) -> None:
    marks = Marks(str(tmp_path / "job"))
    mark = new_mark(WAITS, "agent 3 (rank 1)", os.getpid())._replace(text="raised ValueError: a\nb")
    marks.write(1, mark)
    assert Marks(str(tmp_path / "job")).read() == {1: mark._replace(text="raised ValueError: a b")}
    assert mark.is_alive
    assert not mark.is_stopped
    assert not mark._replace(born=mark.born - 1).is_alive  # another process had that number


def test_one_process_claims_the_line(tmp_path: Path) -> None:
    first, second = Marks(str(tmp_path / "job")), Marks(str(tmp_path / "job"))
    assert [second.is_claimed, first.claim(), second.claim(), first.claim()] == [False, True, False, False]
    assert second.is_claimed


def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir(mode=0o777)
    (tmp_path / "job").chmod(0o777)
    marks = Marks(str(tmp_path / "job"))
    marks.write(0, new_mark(STARTS, "rank 0", os.getpid()))
    assert marks.read() == {}
    assert list((tmp_path / "job").iterdir()) == []


def test_the_folder_of_a_job_goes_with_its_last_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPI_LOCALNRANKS", "2")
    marks = Marks(str(tmp_path / "job"))
    for rank in range(2):
        marks.write(rank, Mark(1, 0, LEFT, 0.0, f"rank {rank}"))
        marks.remove(has_failed=False)
        assert (tmp_path / "job").exists() is (rank == 0)


def test_folders_of_jobs_whose_launcher_is_gone_are_removed(tmp_path: Path) -> None:
    names = [f"dcgs-job-0-here-7-{os.getpid()}-{born}" for born in (own_birth(), own_birth() - 1)]
    others = ["dcgs-job-0-there-7-1-0", "dcgs-job-0-here-7-new-1"]
    for name in (*names, *others):
        Marks(str(tmp_path / name)).claim()
    remove_old_folders(str(tmp_path / "dcgs-job-0-here-7-1-1"))
    assert {path.name for path in tmp_path.iterdir()} == {names[0], *others}


def test_a_stopped_process_is_seen_as_one() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    mark = new_mark(STARTS, "rank 0", child.pid)
    child.send_signal(signal.SIGSTOP)
    while not mark.is_stopped:
        time.sleep(0.01)
    assert mark._replace(pid=os.getpid(), born=own_birth(), supervisor=child.pid).is_stopped
    child.kill()
    child.communicate()
    assert not mark.is_alive


def own_birth() -> int:
    found = process(os.getpid())
    assert found is not None
    return found.born


def test_only_files_that_no_process_uses_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "_SHARED", f"{tmp_path}/")
    since = time.time() - 1.0
    for name in ("mpich_shm_1_0", "mpich_shm_2_0", "ucx_shm_posix_3", "other"):
        (tmp_path / name).touch()
    with (tmp_path / "mpich_shm_2_0").open():
        environment.remove_unused(time.time() + 3600.0)
        assert len(list(tmp_path.iterdir())) == 4
        environment.remove_unused(since)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mpich_shm_2_0", "other"]


@pytest.mark.parametrize(
    "case",
    [
        Case("script", 1, "raise", "before", 0.0),
        Case("script", 0, "STOP", "during", 0.02),
        Case("command", 2, "return", "before", 0.0),
        Case("command", 1, "TERM", "before", 0.0),
        Case("script", 2, "KILL", "after", 0.0),
        Case("command", 0, "slow", "before", 0.0),
    ],
    ids=str,
)
def test_a_disturbed_start_ends_with_one_sentence_and_leaves_nothing(case: Case, tmp_path: Path) -> None:
    """A sample of tests/disturbed_starts.py, which is run by hand with a count."""
    write_sites(RANKS, tmp_path)
    assert disturbed_starts.faults(case, disturbed_starts.begin(case, tmp_path, has_own_memory=False)) == []
