"""MPI: equal to Lockstep to the bit, and what becomes of a run in which something goes wrong."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dcgs.runtime.company import sentence_of
from dcgs.runtime.heart import Heart
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import dcgs
from dcgs.bench import exchange
from dcgs.runtime import RunAbortedError, mpi, wire
from dcgs.runtime.wire import Kind, MessageError

HERE = Path(__file__).parent
SOURCE = HERE.parent / "src" / "dcgs"
MPIEXEC = Path(sys.executable).with_name("mpiexec")


def start(processes: int, *command: str, seconds: float = 240.0) -> subprocess.CompletedProcess[str]:
    """Start a script of these tests in so many processes, one BLAS thread each."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [str(MPIEXEC), "-n", str(processes), sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=seconds,
        env=environment,
        cwd=HERE,
    )


def test_runs_over_mpi_equal_those_in_one_process_to_the_bit() -> None:
    """Random graphs, problems, methods and rules on 1 to 10 processes, one or several agents each."""
    done = start(10, "mpi_cases.py", "11")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout) == {"cases": 66}


def fault(how: str, *, as_command: bool) -> tuple[int, list[str], str]:
    """Return the status of a run with a fault, what processes said of it, and what was on stderr."""
    done = start(4, "mpi_fault.py", how, "as-command" if as_command else "as-library")
    return done.returncode, sorted(done.stdout.splitlines()), done.stderr


def said(ranks: Iterable[int], sentence: str) -> list[str]:
    return [f"{rank} RunAbortedError told: {sentence}" for rank in ranks]


@pytest.mark.parametrize(
    ("how", "own", "told"),
    [
        (
            "raises",
            "ZeroDivisionError saw: something was divided by zero",
            "agent 2 failed: something was divided by zero.",
        ),
        (
            "sends what is no number",
            "FloatingPointError saw: a message must be finite; agent 2 sent nan at (0,).",
            "a message must be finite; agent 2 sent nan at (0,).",
        ),
    ],
)
def test_what_ends_one_process_ends_all_and_names_the_agent(how: str, own: str, told: str) -> None:
    status, words, _ = fault(how, as_command=False)
    assert status != 0
    assert words == sorted([f"2 {own}", *said((0, 1, 3), told)])


def test_a_message_that_is_not_due_names_its_sender_in_every_process() -> None:
    status, words, _ = fault("sends a wrong round", as_command=False)
    assert status != 0
    assert [line[0] for line in words] == ["0", "1", "2", "3"]
    sentence = "a message of round 11 was due; agent 2 (rank 2) sent one of round 99."
    assert [line.partition(": ")[2] for line in words] == [sentence] * 4


SILENT = "agent 2 (rank 2) has been silent for 3 s; see whether its machine and the link to it are up"


def test_a_process_that_stands_still_is_named_and_all_are_ended() -> None:
    status, words, _ = fault("is stopped", as_command=False)
    assert status != 0
    assert [line.split()[0] for line in words] == ["0", "1", "3"]
    assert all(SILENT in line for line in words)


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("is stopped", f"dcgs: error: {SILENT} and start again, or allow more by MPI(timeout=...)."),
        (
            "is killed",
            "dcgs: error: agent 2 (rank 2) was killed by SIGKILL; see whether its machine ran out of memory, "
            "and start again.",
        ),
    ],
)
def test_a_command_ends_with_one_sentence(how: str, sentence: str) -> None:
    status, _, errors = fault(how, as_command=True)
    assert status != 0
    assert errors.count("dcgs: error:") == 1
    assert sentence in errors
    assert "Traceback" not in errors


def test_a_process_that_computes_for_long_is_not_taken_for_dead() -> None:
    """It sleeps for one and a half times the timeout; then the command exits with zero."""
    done = fault("computes for long", as_command=True)
    assert done == (0, [f"{rank} done" for rank in range(4)], "")


def test_one_file_alone_knows_mpi4py() -> None:
    imports = re.compile(r"^\s*(from|import) mpi4py", re.MULTILINE)
    knowing = [path.name for path in SOURCE.rglob("*.py") if imports.search(path.read_text())]
    assert knowing == ["mpi.py"]


def test_without_mpi4py_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    with pytest.raises(
        ImportError, match=r"^MPI needs mpi4py; install it with: pip install 'dcgs\[mpi\]'\.$"
    ):
        dcgs.MPI().hosts(2)


@pytest.mark.parametrize("timeout", [0.0, -1.0, float("inf"), float("nan"), True, "10"])
def test_a_timeout_is_a_positive_number(timeout: float) -> None:
    with pytest.raises(ValueError, match=r"timeout must be a positive number of seconds; got "):
        dcgs.MPI(timeout=timeout)


@pytest.mark.parametrize("name", ["PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "PMIX_SIZE"])
def test_an_mpiexec_of_another_mpi_is_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in mpi._SIZES:
        monkeypatch.delenv(other, raising=False)
    mpi._check_launcher(1, "MPICH Version: 5")
    monkeypatch.setenv(name, "10")
    mpi._check_launcher(10, "MPICH Version: 5")
    with pytest.raises(RuntimeError, match=rf"this one started 10 processes \({name}\), and mpi4py sees 1\."):
        mpi._check_launcher(1, "MPICH Version: 5")


# Headers.


@settings(deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 6), max_size=6).map(tuple),
    dtype=st.sampled_from(["f8", "i8", "u1"]),
    kind=st.sampled_from(list(Kind)),
    round=st.integers(0, 2**64 - 1),
    sender=st.integers(0, 2**31 - 1),
)
def test_a_header_comes_back_as_it_was_written(
    shape: tuple[int, ...], dtype: str, kind: Kind, round: int, sender: int
) -> None:
    header, array = bytearray(wire.SIZE), np.zeros(shape, dtype)
    wire.write(header, kind, array, round, sender)
    back = wire.read(header, "agent 1")
    assert (back.kind, back.dtype, back.shape, back.round, back.sender, back.length) == (
        kind,
        array.dtype,
        shape,
        round,
        sender,
        array.nbytes,
    )


@settings(deadline=None, derandomize=True)
@given(place=st.integers(0, wire.SIZE - 1), change=st.integers(1, 255))
def test_a_byte_that_changed_on_the_way_is_never_taken_for_the_message_that_is_due(
    place: int, change: int
) -> None:
    """But for bytes that say nothing: sides beyond the dimensions, and what fills the gaps."""
    array = np.zeros((3, 4))
    header = bytearray(wire.SIZE)
    wire.write(header, Kind.MESSAGE, array, 5, 2)
    header[place] ^= change
    silent = place in range(9, 12) or place in range(24 + 16, 24 + 64)
    with nullcontext() if silent else pytest.raises(MessageError, match="agent 2"):
        wire.check(wire.read(header, "agent 2"), Kind.MESSAGE, 5, 2, "agent 2")


@pytest.mark.parametrize(
    ("kind", "array", "sentence"),
    [
        (Kind.PART, np.zeros(7), "a message of kind MESSAGE was due; agent 2 sent one of kind PART."),
        (
            Kind.MESSAGE,
            np.zeros(7, dtype=np.int64),
            "a message must be an array of float64; agent 2 sent one of int64.",
        ),
    ],
)
def test_a_message_of_another_kind_or_type_names_its_sender(
    kind: Kind, array: NDArray[Any], sentence: str
) -> None:
    header = bytearray(wire.SIZE)
    wire.write(header, kind, array, 5, 2)
    with pytest.raises(MessageError, match=f"^{re.escape(sentence)}$"):
        wire.check(wire.read(header, "agent 2"), Kind.MESSAGE, 5, 2, "agent 2")


def test_another_version_is_told_what_to_do() -> None:
    header = bytearray(wire.SIZE)
    wire.write(header, Kind.MESSAGE, np.zeros(7), 5, 2)
    header[4] = 9
    with pytest.raises(
        MessageError, match=r"of version 2; agent 2 sent one of version 9\. Install the same "
    ):
        wire.read(header, "agent 2")


def test_a_header_like_the_last_is_known_by_its_round_alone() -> None:
    header = bytearray(wire.SIZE)
    wire.write(header, Kind.MESSAGE, np.zeros(3), 5, 2)
    before = wire.lasting(memoryview(header))
    assert wire.if_next(memoryview(header), before, 5) == (-1, -1)
    assert wire.if_next(memoryview(header), before, 6) is None
    wire.rewrite(header, 6, 9, 1)
    assert wire.if_next(memoryview(header), before, 6) == (9, 1)
    assert wire.read(header, "agent 2") == wire.Header(Kind.MESSAGE, np.dtype(float), (3,), 6, 2, 9, 1)
    wire.write(header, Kind.MESSAGE, np.zeros(4), 5, 2)
    assert wire.if_next(memoryview(header), before, 5) is None


def test_more_dimensions_than_a_header_holds_are_refused() -> None:
    with pytest.raises(MessageError, match=r"at most 8 dimensions; agent 3 sent 9\."):
        wire.write(bytearray(wire.SIZE), Kind.MESSAGE, np.zeros((1,) * 9), 1, 3)


# Signs of life, by a clock and a wire of our own.


class Line:
    """A line between two processes, of which this is the first."""

    rank, size = 0, 2

    def __init__(self) -> None:
        self.sent: list[tuple[bytes, int, int]] = []
        self.came: list[tuple[bytes, int, int]] = []

    def send(self, text: bytes, rank: int, tag: int) -> None:
        self.sent.append((text, rank, tag))

    def receive(self) -> tuple[bytes, int, int] | None:
        return self.came.pop() if self.came else None

    def flush(self, seconds: float) -> None:
        pass


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("dcgs.runtime.heart.time.monotonic", lambda: now[0])
    return now


def listen(heart: Heart, clock: list[float], seconds: float) -> None:
    """Let time pass with a pulse each tenth of a second."""
    for _ in range(round(10.0 * seconds)):
        clock[0] += 0.1
        heart.pulse()


def test_a_process_that_gives_signs_is_never_silent(clock: list[float]) -> None:
    line = Line()
    heart = Heart(line, timeout=5.0)
    for _ in range(100):
        line.came.append((b"+", 1, 0))
        listen(heart, clock, 1.0)
        heart.check([1])


def test_silence_beyond_the_timeout_is_told_with_its_name(clock: list[float]) -> None:
    heart = Heart(Line(), timeout=5.0)
    heart.watch([1])
    heart.name = lambda rank: f"agent 7 (rank {rank})"
    listen(heart, clock, 4.9)
    heart.check([1])
    listen(heart, clock, 0.3)
    with pytest.raises(RunAbortedError, match=r"^agent 7 \(rank 1\) has been silent for 5 s; ") as caught:
        heart.check([])
    assert not caught.value.told


def test_who_stood_still_itself_accuses_nobody(clock: list[float]) -> None:
    heart = Heart(Line(), timeout=5.0)
    listen(heart, clock, 1.0)
    clock[0] += 60.0
    heart.check([1])
    heart.pulse()
    heart.check([1])
    listen(heart, clock, 5.0)
    with pytest.raises(RunAbortedError, match="silent"):
        heart.check([1])


def test_signs_to_one_that_does_not_answer_become_rare(clock: list[float]) -> None:
    """So that they do not fill what holds them until it does, which would block whoever sends."""
    line = Line()
    heart = Heart(line, timeout=600.0)
    listen(heart, clock, 500.0)
    assert 10 < len(line.sent) < 50


def test_an_alarm_is_raised_in_the_run_it_belongs_to(clock: list[float]) -> None:
    line = Line()
    heart = Heart(line, timeout=5.0)
    heart.begin()
    heart.alarm("agent 0 failed: so it is.")
    text, to, tag = line.sent[-1]
    assert to == 1
    line.came.append((text, 1, tag))
    heart.pulse()
    with pytest.raises(RunAbortedError, match=r"^agent 0 failed: so it is\.$") as caught:
        heart.check([])
    assert caught.value.told
    heart.begin()
    heart.check([])


def test_a_process_that_left_is_not_waited_for(clock: list[float]) -> None:
    line = Line()
    heart = Heart(line, timeout=5.0)
    line.came.append((b"-", 1, 0))
    listen(heart, clock, 0.5)
    heart.check([1])
    listen(heart, clock, 1.0)
    with pytest.raises(RunAbortedError, match=r"^process 1 has ended while others wait for it; "):
        heart.check([1])


@pytest.mark.parametrize(
    ("error", "note", "sentence"),
    [
        (ValueError("that was wrong."), None, "process 3 failed: that was wrong."),
        (ValueError("that was wrong"), "raised in agent 8", "agent 8 failed: that was wrong."),
        (KeyError(), "raised in agent 8", "agent 8 failed: KeyError."),
        (RuntimeError("agents [0] returned."), None, "agents [0] returned."),
        (KeyboardInterrupt(), None, "process 3 was interrupted."),
    ],
)
def test_others_are_told_in_a_sentence(error: BaseException, note: str | None, sentence: str) -> None:
    for text in [note] if note else []:
        error.add_note(text)
    assert sentence_of(error, "process 3") == sentence


def test_the_documented_exchanges_are_those_on_record_and_as_fast_as_promised() -> None:
    root = HERE.parent
    *messages, uneven = json.loads((root / "benchmarks/exchange.json").read_text())["rows"]
    page = (root / "docs/mpi.md").read_text()
    for row in messages:
        times = " | ".join(f"{row[name]:.2f}" for name in ("bare", "ours", "sent"))
        more = f"{row['ours'] - row['bare']:.2f}".replace("-", "−")
        assert f"| {row['message']} | {times} | {row['ratio']:.2f} × | {more} |" in page
    assert messages[0]["ours"] - messages[0]["bare"] <= 0.3
    assert all(row["ratio"] <= 1.3 for row in messages[1:])
    took = f"{uneven['bare']:.0f} ms by `Waitall` and {uneven['ours']:.0f} ms as we wait"
    assert f"{took}, {uneven['ratio']:.2f} times" in page
    assert uneven["ratio"] <= 1.5


def test_the_benchmark_of_exchanges_measures_all_its_cases() -> None:
    *messages, uneven = exchange.measure(ranks=2, repeats=1)
    assert [row["message"] for row in messages] == ["80 kB", "1.2 MB", "12.7 MB"]
    assert all(row["ratio"] == row["ours"] / row["bare"] > 0.0 for row in messages)
    # One of two processes has five times the work of 5 ms, and there may be one core for both or two.
    assert uneven["ideal"] in (25.0, 30.0)
    assert uneven["ratio"] == uneven["ours"] / uneven["ideal"] > 0.0
