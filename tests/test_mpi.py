"""MPI: equal to Lockstep to the bit; what happens to a run when one process fails."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dcgs
from dcgs.processes.environment import VARIABLES
from dcgs.runtime.mpi_transport import check_launcher
from fit_runs import own_lines

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "dcgs"
MPIEXEC = Path(sys.executable).with_name("mpiexec")


def start(processes: int, *command: str) -> subprocess.CompletedProcess[str]:
    """Run a script of these tests in so many processes, one BLAS thread each."""
    return subprocess.run(
        [str(MPIEXEC), "-n", str(processes), sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=600.0,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd=HERE,
    )


def test_runs_over_mpi_equal_those_in_one_process_to_the_bit() -> None:
    """Random graphs, problems and rules on 1 to 4 processes, one or several agents each; all methods."""
    done = start(4, "mpi_cases.py", "5")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"cases": 20}


@pytest.fixture(scope="module")
def survived() -> dict[str, list[str]]:
    """What every process raised, in the order of ranks, for each fault that all processes survive."""
    lines = sorted(start(3, "mpi_fault.py", "survived").stdout.splitlines())
    pairs = [line.split(" | ", 1) for line in lines]
    return {fault: [seen for name, seen in pairs if name == fault] for fault, _ in pairs}


@pytest.mark.parametrize(
    ("fault", "own", "sentence"),
    [
        (
            "raises",
            "ZeroDivisionError | ONE | something was divided by zero",
            "agent 2 failed: something was divided by zero.",
        ),
        (
            "sends nan",
            "FloatingPointError | ONE | a message must be finite; agent 2 sent nan at (0,).",
            "a message must be finite; agent 2 sent nan at (0,).",
        ),
    ],
)
def test_an_error_of_one_process_is_raised_in_all_and_names_the_agent(
    fault: str, own: str, sentence: str, survived: dict[str, list[str]]
) -> None:
    others = [f"{rank} | RunAbortedError | REMOTE | {sentence}" for rank in (0, 1)]
    assert survived[fault] == [*others, f"2 | {own}"]


def test_a_message_of_the_wrong_round_names_its_sender_in_every_process(
    survived: dict[str, list[str]],
) -> None:
    sentence = "a message of round 11 was expected; agent 2 (rank 2) sent one of round 99."
    assert survived["sends a wrong round"] == [
        f"0 | RunAbortedError | REMOTE | {sentence}",
        f"1 | MessageError | ONE | {sentence}",
        f"2 | RunAbortedError | REMOTE | {sentence}",
    ]


def test_the_shared_memory_of_mpich_has_no_name_once_all_have_met(survived: dict[str, list[str]]) -> None:
    """So nothing stays in /dev/shm, however the processes end."""
    assert survived["shared memory"] == [f"{rank} | 1 mapped, 0 named" for rank in range(3)]


def test_a_nan_is_blamed_on_its_sender_also_if_only_the_receiver_can_see_it(
    survived: dict[str, list[str]],
) -> None:
    sentence = "a message must be finite; agent 2 sent nan at (6,)."
    assert survived["sends nan unchecked"] == [
        f"0 | RunAbortedError | REMOTE | {sentence}",
        f"1 | MessageError | ONE | {sentence}",
        f"2 | RunAbortedError | REMOTE | {sentence}",
    ]


def test_a_wrong_length_is_not_waited_for(survived: dict[str, list[str]]) -> None:
    sentence = r"the header of a message must match its checksum; that of agent 2 \(rank 2\) does not: .*"
    kinds = ("RunAbortedError | REMOTE", "MessageError | ONE", "RunAbortedError | REMOTE")
    for rank, (kind, seen) in enumerate(zip(kinds, survived["sends a wrong length"], strict=True)):
        assert re.fullmatch(f"{rank} \\| {kind.replace('|', '.')} \\| {sentence}", seen)


def test_messages_that_are_withheld_while_heartbeats_go_on_end_the_run(
    survived: dict[str, list[str]],
) -> None:
    """In round 11: before the rounds there is one collective operation or more."""
    sentence = (
        r"agent 2 \(rank 2\) must have sent a message of step \d+; none has arrived, and it has gone on for "
        r"\d+ s\. See whether the network loses messages and start again, .*"
    )
    scopes = ("REMOTE", "ONE", "REMOTE")
    for rank, (scope, seen) in enumerate(zip(scopes, survived["withholds messages"], strict=True)):
        assert re.fullmatch(rf"{rank} \| RunAbortedError \| {scope} \| {sentence}", seen)


def test_a_process_that_computes_for_longer_than_the_timeout_is_not_taken_for_dead(
    survived: dict[str, list[str]],
) -> None:
    assert survived["computes for long"] == [f"{rank} | done |  | " for rank in range(3)]


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (
            "is stopped",
            r"agent 2 \(rank 2\) has been silent for \d+ s; see whether its machine and the link to it are "
            r"up and start again, or allow more by MPI\(timeout=\.\.\.\), in the command --timeout\.",
        ),
        (
            "is killed",
            r"agent 2 \(rank 2\) was killed by SIGKILL; see whether its machine ran out of memory, and start "
            r"again\.",
        ),
    ],
)
def test_a_command_ends_with_one_sentence(fault: str, sentence: str) -> None:
    done = start(3, "mpi_fault.py", fault)
    assert done.returncode != 0
    (printed,) = own_lines(done.stderr)
    assert re.fullmatch(f"dcgs: error: {sentence}", printed)
    assert "Traceback" not in done.stderr


def test_only_one_file_imports_mpi4py() -> None:
    imports = re.compile(r"^\s*(from|import) mpi4py", re.MULTILINE)
    assert [path.name for path in SOURCE.rglob("*.py") if imports.search(path.read_text())] == [
        "mpi_transport.py"
    ]


def test_without_mpi4py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(
        ImportError, match=r"^MPI needs mpi4py; install it with: pip install 'dcgs\[mpi\]'\.$"
    ):
        dcgs.MPI().hosts(2)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("inf"), float("nan"), True, "10"])
def test_a_timeout_is_a_positive_number(timeout: float) -> None:
    with pytest.raises(ValueError, match=r"^timeout must be a positive finite number; got "):
        dcgs.MPI(timeout=timeout)
    with pytest.raises(ValueError, match=r"^start_timeout must be a positive finite number, or None; got "):
        dcgs.MPI(start_timeout=timeout)


def test_an_mpiexec_of_another_mpi_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)
    check_launcher(1, "MPICH Version: 5")
    monkeypatch.setenv("PMI_SIZE", "10")
    check_launcher(10, "MPICH Version: 5")
    with pytest.raises(RuntimeError, match=r"started 10 processes \(PMI_SIZE\), and mpi4py sees 1\."):
        check_launcher(1, "MPICH Version: 5")
