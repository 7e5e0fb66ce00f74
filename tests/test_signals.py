"""Signals to end: which are recorded during a run, and which end it at once."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator

import pytest

from dcgs.checkpoints import manager
from dcgs.checkpoints.manager import SignalListener, exit_by_signal
from dcgs.processes import supervisor


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock to be set, and handlers as they were afterwards."""
    time = [0.0]
    monkeypatch.setattr(f"{manager.__name__}.time.monotonic", lambda: time[0])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield time
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_recorded_and_the_run_continues(number: signal.Signals, clock: list[float]) -> None:
    signal.signal(signal.SIGTERM, supervisor._raise)
    listener, handlers = SignalListener(), (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    with listener.listening():
        assert listener.received == 0
        signal.raise_signal(number)
        clock[0] = 0.4  # within half a second it counts as the same
        signal.raise_signal(number)
        assert listener.received == number
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_second_signal_ends_the_run_at_once(clock: list[float]) -> None:
    listener = SignalListener()

    def twice() -> None:
        with listener.listening():
            signal.raise_signal(signal.SIGINT)
            clock[0] = 0.6
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert listener.received == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_that_was_ignored_is_not_recorded(clock: list[float]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    listener = SignalListener()
    with listener.listening():
        signal.raise_signal(signal.SIGINT)
    assert listener.received == 0


def test_a_run_ends_as_the_signal_asked() -> None:
    exit_by_signal(0, "nothing")
    with pytest.raises(KeyboardInterrupt, match="saved"):
        exit_by_signal(signal.SIGINT, "saved")
    with pytest.raises(SystemExit) as ended:
        exit_by_signal(signal.SIGTERM, "saved")
    assert ended.value.code == 143


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_process_that_was_told_to_end_ignores_repeated_signals(
    number: signal.Signals, kind: type[BaseException], clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A signal that mpiexec repeats must not interrupt the report of the failure."""
    monkeypatch.setattr(supervisor, "_signaled", float("-inf"))
    monkeypatch.setattr(supervisor, "_signal", 0)
    signal.signal(signal.SIGTERM, supervisor._raise)
    signal.signal(signal.SIGINT, supervisor._raise)
    with pytest.raises(kind):
        signal.raise_signal(number)
    clock[0] += 3.5
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    clock[0] += 3.5
    with pytest.raises(kind):
        signal.raise_signal(number)


DEAF = """
import signal, time
from dcgs.processes import supervisor

def main():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    print("up", flush=True)
    while True:
        time.sleep(1)

supervisor._DEADLINE = 0.1
supervisor.run_supervised(main)
"""


def test_a_worker_that_does_not_end_by_itself_is_killed() -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", DEAF], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert run.stdout is not None
    assert run.stdout.readline() == "up\n"
    run.send_signal(signal.SIGINT)
    assert run.communicate(timeout=240.0)[1] == "dcgs: interrupted.\n"
    assert run.returncode == 130


def test_a_worker_that_is_killed_is_reported() -> None:
    program = (
        "import os, signal; from dcgs.processes.supervisor import run_supervised; "
        "run_supervised(lambda: os.kill(os.getpid(), signal.SIGKILL))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 137
    assert done.stderr == (
        "dcgs: error: the process was killed by SIGKILL; see whether its machine ran out of memory, "
        "and start again.\n"
    )


def test_the_supervisor_is_started_before_anything_large_is_imported() -> None:
    program = (
        "import sys, dcgs.command, dcgs.processes.supervisor\n"
        "print(sorted({'numpy', 'mpi4py'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
