"""Ctrl-C and the signal to end: heard, and answered when a run can be left in good order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, final

_HEARD = (signal.SIGINT, signal.SIGTERM)


@final
class Ear:
    """Listens for signals to end; ``heard`` is the number of the one there was, 0 if there was none."""

    def __init__(self) -> None:
        self.heard = 0

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Listen, in the main thread only, where Python hears signals; a second one ends the run at once."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before: dict[int, Any] = {number: signal.getsignal(number) for number in _HEARD}

        def restore() -> None:
            for number, handler in before.items():
                # None is a handler that was not set from Python, and cannot be set again from here.
                signal.signal(number, signal.SIG_DFL if handler is None else handler)

        def hear(number: int, frame: FrameType | None) -> None:
            self.heard = number
            restore()

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
