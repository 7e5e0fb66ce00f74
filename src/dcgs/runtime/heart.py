"""Signs of life: how a process knows that another is still there, though it says nothing for long.

A thread in every process sends a few bytes to its watchers several times a second, also while its agents
compute. So a process that is silent is one that has stopped, or that cannot be reached.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, final

from dcgs.runtime.base import RunAbortedError

# Most seconds between two signs.
_PERIOD = 0.25
# Messages of a process that has said goodbye may still be on their way for so many seconds.
_GRACE = 1.0
_BEAT, _ALARM = 0, 1
_ALIVE, _LEFT = b"+", b"-"
_LONGEST = 2000


class Pulse(Protocol):
    """Tiny messages that nobody waits for."""

    rank: int
    size: int

    def send(self, text: bytes, rank: int, tag: int) -> None:
        """Send, unless the last one of that tag has not yet left."""

    def receive(self) -> tuple[bytes, int, int] | None:
        """Return a message that has come, who sent it and its tag, if there is one."""

    def flush(self, seconds: float) -> None:
        """Wait a little for what was sent to leave."""


@final
class Heart:
    """Sends signs of life, and takes note of others'."""

    def __init__(self, pulse: Pulse, timeout: float) -> None:
        self._pulse = pulse
        self.timeout = timeout
        self.name: Callable[[int], str] = lambda rank: f"process {rank}"
        self._ring = {(pulse.rank - 1) % pulse.size, (pulse.rank + 1) % pulse.size} - {pulse.rank}
        self._near: frozenset[int] = frozenset()
        self._lock = threading.Lock()
        self._last = time.monotonic()
        # All were there when the communicator was made, so that silence counts from then on.
        self._heard = dict.fromkeys(range(pulse.size), self._last)
        self._told = dict.fromkeys(range(pulse.size), 0.0)
        self._left: dict[int, float] = {}
        self._serial = 0
        self._alarms: dict[int, tuple[int, str]] = {}

    @property
    def period(self) -> float:
        """Seconds between two signs."""
        return min(_PERIOD, self.timeout / 5.0)

    def begin(self) -> None:
        """Begin a run, all processes together: alarms of those before are over."""
        with self._lock:
            self._serial += 1

    def watch(self, ranks: Iterable[int]) -> None:
        """Watch these processes as well, which are about to watch this one."""
        with self._lock:
            self._near = frozenset(ranks)
            self._heard |= dict.fromkeys(self._near, time.monotonic())

    def pulse(self) -> None:
        """Send a sign to who watches, and take in what has come."""
        with self._lock:
            now = time.monotonic()
            pause, self._last = now - self._last, now
            if pause > 4.0 * self.period:  # this process itself stood still, so it could not hear
                self._heard = {rank: heard + pause for rank, heard in self._heard.items()}
            for rank in self._ring | self._near:
                # To one that does not answer more and more rarely: what it does not take in piles up.
                silence = min(now - self._heard[rank], self.timeout)
                if now - self._told[rank] >= max(0.9 * self.period, silence / 4.0):
                    self._told[rank] = now
                    self._pulse.send(_ALIVE, rank, _BEAT)
            while (came := self._pulse.receive()) is not None:
                text, rank, tag = came
                if tag == _ALARM:
                    serial, _, sentence = text.decode().partition(" ")
                    self._alarms[rank] = int(serial), sentence
                elif text == _LEFT:
                    self._left[rank] = now
                else:
                    self._heard[rank] = now

    def check(self, peers: Sequence[int]) -> None:
        """Raise if another process has failed, or one of these has left or fallen silent."""
        with self._lock:
            now = time.monotonic()
            for serial, sentence in self._alarms.values():
                if serial >= self._serial:
                    raise RunAbortedError(sentence, told=True)
            if now - self._last > 4.0 * self.period:  # this process has not listened itself
                return
            for rank in peers or self._ring | self._near:
                if now - self._left.get(rank, now) > _GRACE:
                    raise RunAbortedError(
                        f"{self.name(rank)} has ended while others wait for it; see what it said."
                    )
                silent = now - self._heard[rank]
                if silent > self.timeout:
                    raise RunAbortedError(
                        f"{self.name(rank)} has been silent for {silent:.0f} s; see whether its machine and "
                        "the link to it are up and start again, or allow more by MPI(timeout=...)."
                    )

    @property
    def alarmed(self) -> bool:
        """Whether another process is known to have failed."""
        with self._lock:
            return any(serial >= self._serial for serial, _ in self._alarms.values())

    def is_first(self) -> bool:
        """Return whether no process before this one has raised an alarm, as far as is known."""
        with self._lock:
            return not any(
                serial >= self._serial and rank < self._pulse.rank
                for rank, (serial, _) in self._alarms.items()
            )

    def alarm(self, sentence: str) -> None:
        """Tell everyone why this process cannot go on."""
        with self._lock:
            text = f"{self._serial} {sentence}"[:_LONGEST].encode()
            for rank in range(self._pulse.size):
                if rank != self._pulse.rank:
                    self._pulse.send(text, rank, _ALARM)
            self._pulse.flush(1.0)

    def leave(self) -> None:
        """Say goodbye to who watches."""
        with self._lock:
            for rank in self._ring | self._near:
                self._pulse.send(_LEFT, rank, _BEAT)
            self._pulse.flush(0.2)
