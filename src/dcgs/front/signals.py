"""Ctrl-C and SIGTERM during a run: record the signal, and exit after the last checkpoint is written."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, final

_SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Seconds within which a second signal counts as the first one: mpiexec may send each twice.
_REPEATED = 0.5


@final
class SignalListener:
    """Records SIGINT and SIGTERM. ``received`` is the number of the first signal, 0 if there was none."""

    def __init__(self) -> None:
        self.received = 0
        self._when = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Record signals inside this context; the process does not exit. A second signal ends it at once.

        In other threads than the main one, Python handles no signals and this does nothing.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in _SIGNALS}

        def restore() -> None:
            for number, handler in before.items():
                if signal.getsignal(number) is record:
                    # None is a handler that was not set from Python, and cannot be restored from here.
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)

        def record(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            if not self.received:
                self.received, self._when = number, now
            elif now - self._when > _REPEATED:
                restore()
                signal.raise_signal(number)

        for number in _SIGNALS:
            # What is ignored, for example by nohup, stays ignored.
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, record)
        try:
            yield
        finally:
            restore()


def exit_by_signal(number: int, sentence: str) -> None:
    """Raise KeyboardInterrupt for SIGINT, SystemExit for another signal, and nothing if ``number`` is 0."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(sentence)
    if number:
        raise SystemExit(128 + number)
