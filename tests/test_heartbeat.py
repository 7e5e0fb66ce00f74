"""Failures of a process: how others notice them, how they are described, and which process prints them."""

from __future__ import annotations

import pytest

from dcgs.runtime import RunAbortedError, Scope, report, scope_of
from dcgs.runtime.errors import describe
from dcgs.runtime.heartbeat import Heartbeat


class FakeBeats:
    """The heartbeat messages of the first of two processes."""

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
    monkeypatch.setattr("dcgs.runtime.heartbeat.time.monotonic", lambda: now[0])
    return now


def listen(heartbeat: Heartbeat, clock: list[float], seconds: float) -> None:
    """Let time pass, with an exchange each tenth of a second."""
    for _ in range(round(10.0 * seconds)):
        clock[0] += 0.1
        heartbeat.exchange()


def test_a_process_that_sends_heartbeat_messages_is_never_silent(clock: list[float]) -> None:
    beats = FakeBeats()
    heartbeat = Heartbeat(beats, timeout=5.0)
    for _ in range(100):
        beats.came.append((b"+0 0 0", 1, 0))
        listen(heartbeat, clock, 1.0)
        heartbeat.check([1])


def test_silence_beyond_the_timeout_names_the_process(clock: list[float]) -> None:
    heartbeat = Heartbeat(FakeBeats(), timeout=5.0)
    heartbeat.watch([1])
    heartbeat.name = lambda rank: f"agent 7 (rank {rank})"
    listen(heartbeat, clock, 4.9)
    heartbeat.check([1])
    listen(heartbeat, clock, 0.3)
    with pytest.raises(RunAbortedError, match=r"^agent 7 \(rank 1\) has been silent for 5 s; ") as caught:
        heartbeat.check([])
    assert caught.value.scope is Scope.ONE


def test_a_process_that_was_stopped_itself_accuses_nobody(clock: list[float]) -> None:
    heartbeat = Heartbeat(FakeBeats(), timeout=5.0)
    listen(heartbeat, clock, 1.0)
    clock[0] += 60.0
    heartbeat.check([1])
    heartbeat.exchange()
    heartbeat.check([1])
    listen(heartbeat, clock, 5.0)
    with pytest.raises(RunAbortedError, match="silent"):
        heartbeat.check([1])


def test_heartbeat_messages_to_a_process_that_does_not_answer_become_rare(clock: list[float]) -> None:
    """Otherwise they would fill its receive queue, which blocks the sender."""
    beats = FakeBeats()
    heartbeat = Heartbeat(beats, timeout=600.0)
    listen(heartbeat, clock, 500.0)
    assert 10 < len(beats.sent) < 50


def test_a_reported_failure_is_raised_in_the_run_it_belongs_to(clock: list[float]) -> None:
    beats = FakeBeats()
    heartbeat = Heartbeat(beats, timeout=5.0)
    heartbeat.begin_run()
    heartbeat.report_failure("agent 0 failed: so it is.")
    text, to, tag = beats.sent[-1]
    assert to == 1
    beats.came.append((text, 1, tag))
    heartbeat.exchange()
    with pytest.raises(RunAbortedError, match=r"^agent 0 failed: so it is\.$") as caught:
        heartbeat.check([])
    assert caught.value.scope is Scope.REMOTE
    heartbeat.begin_run()
    heartbeat.check([])


def hear(heartbeat: Heartbeat, beats: FakeBeats, clock: list[float], position: bytes, seconds: int) -> None:
    """Let time pass while the other process says how far it is, and check as a wait does."""
    for _ in range(10 * seconds):
        beats.came.append((b"+" + position, 1, 0))
        listen(heartbeat, clock, 0.1)
        heartbeat.check([1])


@pytest.mark.parametrize(
    ("position", "did"),
    [(b"1 3 0", "gone on"), (b"2 0 0", "gone on"), (b"1 2 1", "waited")],
    ids=["a later step", "a later run", "this step, waiting for a message of this process"],
)
def test_a_message_that_its_sender_must_have_sent_is_not_waited_for(
    position: bytes, did: str, clock: list[float]
) -> None:
    beats = FakeBeats()
    heartbeat = Heartbeat(beats, timeout=5.0)
    heartbeat.begin_run()
    heartbeat.begin_step()
    heartbeat.begin_step()
    heartbeat.await_from([1])
    hear(heartbeat, beats, clock, position, 5)
    assert beats.sent[-1] == (b"+1 2 1", 1, 0)
    sentence = f"^process 1 must have sent a message of step 2; none has arrived, and it has {did} for 5 s"
    with pytest.raises(RunAbortedError, match=sentence):
        hear(heartbeat, beats, clock, position, 1)


@pytest.mark.parametrize("position", [b"1 1 0", b"1 1 1", b"1 2 0"])
def test_a_sender_that_computes_or_waits_for_another_is_waited_for(
    position: bytes, clock: list[float]
) -> None:
    beats = FakeBeats()
    heartbeat = Heartbeat(beats, timeout=5.0)
    heartbeat.begin_run()
    heartbeat.begin_step()
    heartbeat.begin_step()
    heartbeat.await_from([1])
    hear(heartbeat, beats, clock, position, 100)


def test_a_message_that_arrives_late_is_no_lost_one(clock: list[float]) -> None:
    beats = FakeBeats()
    heartbeat = Heartbeat(beats, timeout=5.0)
    for _ in range(10):
        heartbeat.await_from([1])
        hear(heartbeat, beats, clock, b"7 0 0", 4)
        heartbeat.await_from([])
        heartbeat.begin_step()


def test_a_process_that_has_exited_is_not_waited_for(clock: list[float]) -> None:
    beats = FakeBeats()
    heartbeat = Heartbeat(beats, timeout=5.0)
    beats.came.append((b"-", 1, 0))
    listen(heartbeat, clock, 0.5)
    heartbeat.check([1])
    listen(heartbeat, clock, 1.0)
    with pytest.raises(RunAbortedError, match=r"^process 1 has exited while others wait for it; "):
        heartbeat.check([1])


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
def test_an_error_is_described_in_a_sentence_that_names_agent_or_process(
    error: BaseException, note: str | None, sentence: str
) -> None:
    for text in [note] if note else []:
        error.add_note(text)
    assert describe(error, "process 3") == sentence


def test_an_error_is_printed_by_the_process_of_its_scope_only(capsys: pytest.CaptureFixture[str]) -> None:
    printed = {(Scope.ONE, True), (Scope.ONE, False), (Scope.ALL, True)}
    for scope in Scope:
        for is_root in (True, False):
            assert report(RunAbortedError("it failed.", scope, status=7), is_root) == 7
            expected = "dcgs: error: it failed.\n" if (scope, is_root) in printed else ""
            assert capsys.readouterr().err == expected


@pytest.mark.parametrize(
    ("before", "scope"),
    [(RunAbortedError("agent 1 failed.", Scope.REMOTE), Scope.REMOTE), (ValueError("own"), Scope.ONE)],
)
def test_an_interrupt_during_a_failure_of_another_process_belongs_to_it(
    before: Exception, scope: Scope
) -> None:
    stop = SystemExit(143)
    stop.__context__ = before
    assert scope_of(stop) is scope
