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
_MOST, _MINUTE = 200, 60.0
"""Sentences in a minute; more of them are not kept, because others could fill the disk."""
_LARGEST = 1 << 24
"""Bytes of the file, which then begins anew; the one before is kept beside it."""
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
        self._times: deque[float] = deque(maxlen=_MOST)

    def say(self, text: str, is_shown: bool = True) -> None:
        """Say a sentence; one that the command prints itself is not shown, and only kept."""
        with self._lock:
            now = time.monotonic()
            if now - self._last.get(text, -_AGAIN) < _AGAIN:
                return
            if len(self._times) == _MOST and now - self._times[0] < _MINUTE:
                text = f"more than {_MOST} sentences in a minute: those after them are not kept"
                if now - self._last.get(text, -_AGAIN) < _AGAIN:
                    return
            if len(self._last) > 1000:
                self._last.clear()
            self._last[text] = now
            self._times.append(now)
            when = datetime.now(UTC).isoformat(timespec="seconds")
            self.events.append((when, text))
            if is_shown:
                self._show(text)
            if self._file is not None:
                with suppress(OSError):  # a full disk must not end a run; the screen has it
                    self._append(self._file, when, text)

    def _append(self, file: Path, when: str, text: str) -> None:
        if file.exists() and file.stat().st_size > _LARGEST:
            file.replace(file.with_suffix(".before.jsonl"))
        with file.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"time": when, "event": text}, ensure_ascii=False) + "\n")


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(75.2), duration(1300.0), duration(72 * 3600.0)
    ('75 s', '22 min', '72 h')
    """
    if seconds < 120.0:
        return f"{seconds:.0f} s"
    return f"{seconds / 60.0:.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:.3g} h"


def local_time(when: str) -> str:
    """Return the time of an event by the clock of this machine."""
    return f"{datetime.fromisoformat(when).astimezone():%Y-%m-%d %H:%M:%S}"


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
