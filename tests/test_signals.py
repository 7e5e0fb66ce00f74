"""Signals to end that a run hears, and when it ends at once."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from dcgs.front import signals
from dcgs.front.signals import Ear, answer
from dcgs.runtime import guard


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """A clock to be set, and handlers as they were afterwards."""
    time = [0.0]
    monkeypatch.setattr(f"{signals.__name__}.time.monotonic", lambda: time[0])
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield time
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_is_heard_and_the_run_goes_on(number: signal.Signals, clock: list[float]) -> None:
    signal.signal(signal.SIGTERM, guard._end)
    ear, handlers = Ear(), (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    with ear.listening():
        assert ear.heard == 0
        signal.raise_signal(number)
        clock[0] = 0.4  # the same, once more
        signal.raise_signal(number)
        assert ear.heard == number
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == handlers


def test_a_second_signal_ends_the_run_at_once(clock: list[float]) -> None:
    ear = Ear()

    def twice() -> None:
        with ear.listening():
            signal.raise_signal(signal.SIGINT)
            clock[0] = 0.6
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        twice()
    assert ear.heard == signal.SIGINT
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_was_ignored_is_not_heard(clock: list[float]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    ear = Ear()
    with ear.listening():
        signal.raise_signal(signal.SIGINT)
    assert ear.heard == 0


def test_a_run_ends_as_the_signal_asked() -> None:
    answer(0, "nothing")
    with pytest.raises(KeyboardInterrupt, match="kept"):
        answer(signal.SIGINT, "kept")
    with pytest.raises(SystemExit) as ended:
        answer(signal.SIGTERM, "kept")
    assert ended.value.code == 143


@pytest.mark.parametrize(
    ("number", "kind"), [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]
)
def test_a_process_of_a_command_that_was_told_to_end_is_told_once(
    number: signal.Signals, kind: type[BaseException], clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An mpiexec that says it again must not end the telling of others."""
    monkeypatch.setattr(guard, "_asked", float("-inf"))
    signal.signal(signal.SIGTERM, guard._end)
    signal.signal(signal.SIGINT, guard._end)
    with pytest.raises(kind):
        signal.raise_signal(number)
    clock[0] += 3.5
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGINT)
    clock[0] += 3.5
    with pytest.raises(kind):
        signal.raise_signal(number)
