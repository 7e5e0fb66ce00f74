"""The heartbeat: it detects that another process has stopped or cannot be reached.

A thread in every process sends heartbeat messages to the processes that watch it, several times a second,
also while its agents compute. A process from which none arrives for ``timeout`` seconds counts as failed. The
same channel reports failures.

A heartbeat message also says how far its process is, so that a message that was lost is noticed. All take the
same steps in the same order: rounds and collective operations. A process waits for a message that will not
come if the sender is past this step, or waits itself in this step for a message that was sent to it. A sender
that computes, however long, is neither.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol, final

from dcgs.runtime.errors import RunAbortedError, Scope

# Most seconds between two heartbeat messages.
_PERIOD = 0.25
# Seconds in which messages of a process that has exited may still arrive.
_GRACE = 1.0
_HEARTBEAT, _FAILURE = 0, 1
_ALIVE, _EXITS = b"+%d %d %d", b"-"
_MAX_LENGTH = 2000


class HeartbeatTransport(Protocol):
    """What a heartbeat needs from a transport: very small messages, sent and received without waiting."""

    rank: int
    size: int

    def send(self, text: bytes, rank: int, tag: int) -> None:
        """Send a message, unless the last one to that process with that tag is still being sent."""

    def receive(self) -> tuple[bytes, int, int] | None:
        """Return a message that has arrived, its sender and its tag; None if there is none."""

    def flush(self, seconds: float) -> None:
        """Wait until all messages have been sent, at most this number of seconds."""


@final
class Position(NamedTuple):
    """How far a process is: its run, its step in it, and whether it waits for a message of the receiver."""

    run: int = 0
    step: int = 0
    waits: int = 0


@final
class Heartbeat:
    """Sends heartbeat messages to the processes that watch this one, and records when those of others arrive.

    Every process watches its two neighbors in a ring of all processes, and those named by :meth:`watch`.
    """

    def __init__(self, transport: HeartbeatTransport, timeout: float) -> None:
        self.timeout = timeout
        self.name: Callable[[int], str] = lambda rank: f"process {rank}"
        self._transport = transport
        self._ring = {(transport.rank + step) % transport.size for step in (-1, 1)} - {transport.rank}
        self._watched: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._last = time.monotonic()
        # All processes existed when the communicator was created, so silence is counted from now on.
        self._received_at = dict.fromkeys(range(transport.size), self._last)
        self._sent_at = dict.fromkeys(range(transport.size), 0.0)
        self._exited: dict[int, float] = {}
        self._run = self._step = 0
        # The processes of which messages are awaited, and since when a message of theirs seems to be lost.
        self._awaited: frozenset[int] = frozenset()
        self._positions: dict[int, Position] = {}
        self._suspected: dict[int, float] = {}
        self._failures: dict[int, tuple[int, RunAbortedError]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def position(self) -> int:
        """How far this process is, as one number: its run and its step in it."""
        return (self._run << 32) + self._step

    @property
    def period(self) -> float:
        """Seconds between two heartbeat messages."""
        return min(_PERIOD, self.timeout / 5.0)

    def start_thread(self) -> None:
        """Start the thread that sends heartbeat messages. Without a thread, :meth:`check` sends them."""
        self._thread = threading.Thread(target=self._run_thread, name="dcgs-heartbeat", daemon=True)
        self._thread.start()

    def _run_thread(self) -> None:
        while not self._stop.wait(self.period):
            self.exchange()

    def begin_run(self) -> None:
        """Begin a run, in all processes; failures of earlier runs no longer count."""
        with self._lock:
            self._run += 1
            self._step = 0

    def begin_step(self) -> None:
        """Begin a step, a round or a collective operation: all processes begin the same in the same order."""
        with self._lock:
            self._step += 1

    def await_from(self, ranks: Iterable[int]) -> None:
        """Record from which processes messages are awaited to which all that is due was sent."""
        with self._lock:
            self._awaited = frozenset(ranks)
            for rank in self._suspected.keys() - self._awaited:
                del self._suspected[rank]

    def watch(self, ranks: Iterable[int]) -> None:
        """Watch these processes as well; each of them must watch this one."""
        with self._lock:
            self._watched = frozenset(ranks)
            self._received_at |= dict.fromkeys(self._watched, time.monotonic())

    def exchange(self) -> None:
        """Send a heartbeat message to all processes that watch this one, and receive all that has arrived."""
        with self._lock:
            now = time.monotonic()
            pause, self._last = now - self._last, now
            if pause > 4.0 * self.period:  # this process itself was stopped, and could not receive
                self._received_at = {
                    rank: received_at + pause for rank, received_at in self._received_at.items()
                }
                self._suspected.clear()
            for rank in self._ring | self._watched:
                # A process that does not answer gets fewer and fewer: messages not received pile up there.
                silence = min(now - self._received_at[rank], self.timeout)
                if now - self._sent_at[rank] >= max(0.9 * self.period, silence / 4.0):
                    self._sent_at[rank] = now
                    self._transport.send(_ALIVE % self._position_for(rank), rank, _HEARTBEAT)
            while (message := self._transport.receive()) is not None:
                self._record(*message, now)

    def _record(self, text: bytes, rank: int, tag: int, now: float) -> None:
        if tag == _FAILURE:
            run, status, sentence = text.decode().split(" ", 2)
            self._failures[rank] = int(run), RunAbortedError(sentence, Scope.REMOTE, int(status))
        elif text == _EXITS:
            self._exited[rank] = now
        else:
            self._received_at[rank] = now
            self._positions[rank] = Position(*map(int, text[1:].split()))

    def _position_for(self, rank: int) -> Position:
        return Position(self._run, self._step, rank in self._awaited)

    def check(self, peers: Sequence[int]) -> None:
        """Raise if a process has reported a failure, or if one of the peers has exited or is silent.

        Without peers it checks all processes that this one watches.
        """
        if self._thread is None:
            self.exchange()
        with self._lock:
            now = time.monotonic()
            for failure in self._reports().values():
                raise failure
            if now - self._last > 4.0 * self.period:  # this process has not received for a while
                return
            for rank in peers or self._ring | self._watched:
                if now - self._exited.get(rank, now) > _GRACE:
                    raise RunAbortedError(
                        f"{self.name(rank)} has exited while others wait for it; see what it printed."
                    )
                silent = now - self._received_at[rank]
                if silent > self.timeout:
                    raise RunAbortedError(
                        f"{self.name(rank)} has been silent for {silent:.0f} s; see whether its machine and "
                        "the link to it are up and start again, or allow more by MPI(timeout=...), in the "
                        "command --timeout."
                    )
            self._check_awaited(now)

    def _check_awaited(self, now: float) -> None:
        """Raise if a message that is awaited was lost."""
        for rank in self._awaited:
            theirs, ours = self._positions.get(rank, Position()), self._position_for(rank)
            is_past = theirs[:2] > ours[:2]
            if not (is_past or theirs == ours):
                self._suspected.pop(rank, None)
            elif now - self._suspected.setdefault(rank, now) > self.timeout:
                raise RunAbortedError(
                    f"{self.name(rank)} must have sent a message of step {self._step}; none has arrived, and "
                    f"it has {'gone on' if is_past else 'waited'} for {now - self._suspected[rank]:.0f} s. "
                    "See whether the network loses messages and start again, or allow more by "
                    "MPI(timeout=...), in the command --timeout."
                )

    def _reports(self) -> dict[int, RunAbortedError]:
        """Return the failures of this run that other processes have reported."""
        return {rank: failure for rank, (run, failure) in self._failures.items() if run >= self._run}

    @property
    def failed_ranks(self) -> list[int]:
        """The other processes that have reported a failure in this run."""
        with self._lock:
            return sorted(self._reports())

    def report_failure(self, sentence: str, status: int = 1) -> None:
        """Send all processes the reason why this one cannot continue, and its exit status."""
        with self._lock:
            text = f"{self._run} {status} {sentence}"[:_MAX_LENGTH].encode()
            for rank in range(self._transport.size):
                if rank != self._transport.rank:
                    self._transport.send(text, rank, _FAILURE)
            self._transport.flush(1.0)

    def stop_thread(self) -> None:
        """Stop the thread."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def announce_exit(self) -> None:
        """Send the processes that watch this one the message that it exits."""
        with self._lock:
            for rank in self._ring | self._watched:
                self._transport.send(_EXITS, rank, _HEARTBEAT)
            self._transport.flush(0.2)
