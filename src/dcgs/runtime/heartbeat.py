"""The heartbeat: how a process knows that another is alive, although it sends no message for long.

A thread in every process sends a sign of life to the processes that watch it several times a second, also
while its agents compute. A process without signs has stopped, or cannot be reached. The same small messages
report failures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, final

from dcgs.runtime.errors import RunAbortedError, Scope

# Most seconds between two signs of life.
_PERIOD = 0.25
# Seconds that messages of a process that has exited may still be on their way.
_GRACE = 1.0
_SIGN, _FAILURE = 0, 1
_ALIVE, _EXITS = b"+", b"-"
_MAX_LENGTH = 2000


class BeatTransport(Protocol):
    """What a heartbeat needs of a transport: very small messages that nobody waits for."""

    rank: int
    size: int

    def send(self, text: bytes, rank: int, tag: int) -> None:
        """Send, unless the last message with that tag is still on its way out."""

    def receive(self) -> tuple[bytes, int, int] | None:
        """Return a message that has arrived with its sender and tag, or None."""

    def flush(self, seconds: float) -> None:
        """Wait until all messages have been sent, but at most so many seconds."""


@final
class Heartbeat:
    """Sends signs of life to the processes that watch this one, and records those of others.

    Every process watches its two neighbors in a ring of all processes, and those named by :meth:`watch`.
    """

    def __init__(self, transport: BeatTransport, timeout: float) -> None:
        self.timeout = timeout
        self.name: Callable[[int], str] = lambda rank: f"process {rank}"
        self._transport = transport
        self._ring = {(transport.rank + step) % transport.size for step in (-1, 1)} - {transport.rank}
        self._watched: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._last = time.monotonic()
        # All processes were there when the communicator was created, so silence counts from now on.
        self._heard = dict.fromkeys(range(transport.size), self._last)
        self._signed = dict.fromkeys(range(transport.size), 0.0)
        self._exited: dict[int, float] = {}
        self._run = 0
        self._failures: dict[int, tuple[int, RunAbortedError]] = {}
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def period(self) -> float:
        """Seconds between two signs of life."""
        return min(_PERIOD, self.timeout / 5.0)

    def start_thread(self) -> None:
        """Send signs from a thread from now on. Without it, :meth:`check` sends them."""
        self._thread = threading.Thread(target=self._beat, name="dcgs-heartbeat", daemon=True)
        self._thread.start()

    def _beat(self) -> None:
        while not self._stop.wait(self.period):
            self.exchange_signs()

    def begin_run(self) -> None:
        """Begin a run, in all processes; failures of earlier runs no longer count."""
        with self._lock:
            self._run += 1

    def watch(self, ranks: Iterable[int]) -> None:
        """Watch these processes as well; each of them must watch this one."""
        with self._lock:
            self._watched = frozenset(ranks)
            self._heard |= dict.fromkeys(self._watched, time.monotonic())

    def exchange_signs(self) -> None:
        """Send a sign of life to all who watch this process, and receive all that has arrived."""
        with self._lock:
            now = time.monotonic()
            pause, self._last = now - self._last, now
            if pause > 4.0 * self.period:  # this process itself was stopped, and could not receive
                self._heard = {rank: heard + pause for rank, heard in self._heard.items()}
            for rank in self._ring | self._watched:
                # More and more rarely to a process that does not answer: signs not received pile up there.
                silence = min(now - self._heard[rank], self.timeout)
                if now - self._signed[rank] >= max(0.9 * self.period, silence / 4.0):
                    self._signed[rank] = now
                    self._transport.send(_ALIVE, rank, _SIGN)
            while (message := self._transport.receive()) is not None:
                self._record(*message, now)

    def _record(self, text: bytes, rank: int, tag: int, now: float) -> None:
        if tag == _FAILURE:
            run, status, sentence = text.decode().split(" ", 2)
            self._failures[rank] = int(run), RunAbortedError(sentence, Scope.REMOTE, int(status))
        elif text == _EXITS:
            self._exited[rank] = now
        else:
            self._heard[rank] = now

    def check(self, peers: Sequence[int]) -> None:
        """Raise if a process has reported a failure, or if one of the peers has exited or is silent.

        Without peers it checks all processes that this one watches.
        """
        if self._thread is None:
            self.exchange_signs()
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
                silent = now - self._heard[rank]
                if silent > self.timeout:
                    raise RunAbortedError(
                        f"{self.name(rank)} has been silent for {silent:.0f} s; see whether its machine and "
                        "the link to it are up and start again, or allow more by MPI(timeout=...)."
                    )

    def _reports(self) -> dict[int, RunAbortedError]:
        """Return the failures of this run that other processes have reported."""
        return {rank: failure for rank, (run, failure) in self._failures.items() if run >= self._run}

    @property
    def failure_reported(self) -> bool:
        """Whether another process has reported a failure."""
        with self._lock:
            return bool(self._reports())

    @property
    def reported_first(self) -> bool:
        """Whether no process of a lower rank has reported a failure."""
        with self._lock:
            return not any(rank < self._transport.rank for rank in self._reports())

    def report_failure(self, sentence: str, status: int = 1) -> None:
        """Tell all processes why this one cannot continue, and its exit status."""
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
        """Tell the processes that watch this one that it exits."""
        with self._lock:
            for rank in self._ring | self._watched:
                self._transport.send(_EXITS, rank, _SIGN)
            self._transport.flush(0.2)
