"""What a site says: sentences for people on the screen, and the same as lines of JSON in its folder."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import final

from dcgs.runtime.errors import printable

_AGAIN = 60.0
"""Seconds in which a sentence is not said again."""
_EVENTS = 50
EVENTS = "events.jsonl"


def _print(text: str) -> None:
    print(f"{datetime.now():%H:%M:%S} {printable(text)}", file=sys.stderr, flush=True)


@final
class EventLog:
    """Prints sentences, and appends them to a file; one that was said a moment ago is not said again."""

    def __init__(self, file: Path | None = None, show: Callable[[str], object] = _print) -> None:
        self._file = file
        self._show = show
        self._lock = threading.Lock()
        self._last: dict[str, float] = {}
        self.events: deque[tuple[str, str]] = deque(maxlen=_EVENTS)

    def say(self, text: str) -> None:
        """Say a sentence."""
        with self._lock:
            now = time.monotonic()
            if now - self._last.get(text, -_AGAIN) < _AGAIN:
                return
            if len(self._last) > 1000:
                self._last.clear()
            self._last[text] = now
            when = datetime.now(UTC).isoformat(timespec="seconds")
            self.events.append((when, text))
            self._show(text)
            if self._file is not None:
                try:
                    with self._file.open("a", encoding="utf-8") as stream:
                        stream.write(json.dumps({"time": when, "event": text}, ensure_ascii=False) + "\n")
                except OSError:  # a full disk must not end a run; the screen has it
                    pass


def last_events(file: Path, count: int = 3) -> list[tuple[str, str]]:
    """Return the times and sentences of the last lines of a log."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[-count:]:
        with suppress(ValueError):  # cut by a full disk
            entry = json.loads(line)
            found.append((str(entry["time"]), str(entry["event"])))
    return found
