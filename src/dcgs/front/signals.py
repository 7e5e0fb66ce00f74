"""Ctrl-C and the signal to end: heard, and answered when a run can be left in good order."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, final

_HEARD = (signal.SIGINT, signal.SIGTERM)
# Seconds within which a signal is the same as the one before.
_ONCE_MORE = 0.5


@final
class Ear:
    """Listens for signals to end; ``heard`` is the number of the one there was, 0 if there was none."""

    def __init__(self) -> None:
        self.heard = 0
        self._when = 0.0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen, in the main thread only, where Python hears signals.

        A second one ends the run at once, unless it comes so soon that it is the first once more: an mpiexec
        may send each twice.
        """
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in _HEARD}

        def restore() -> None:
            for number, handler in before.items():
                if signal.getsignal(number) is hear:
                    # None is a handler that was not set from Python, and cannot be set again from here.
                    signal.signal(number, signal.SIG_DFL if handler is None else handler)

        def hear(number: int, frame: FrameType | None) -> None:
            now = time.monotonic()
            if not self.heard:
                self.heard, self._when = number, now
            elif now - self._when > _ONCE_MORE:
                restore()
                signal.raise_signal(number)

        for number in _HEARD:
            # What is ignored (by nohup, say) stays so.
            if before[number] is not signal.SIG_IGN:
                signal.signal(number, hear)
        try:
            yield
        finally:
            restore()


def answer(number: int, sentence: str) -> None:
    """End the process as the signal of that number asks; where there was none, 0, it goes on."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt(sentence)
    if number:
        raise SystemExit(128 + number)
