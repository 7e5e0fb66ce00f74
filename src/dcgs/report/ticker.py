"""A line of progress for a run that nobody measures: rounds, bytes, seconds."""

from __future__ import annotations

import time
from types import TracebackType
from typing import final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from dcgs.front import Snapshot
from dcgs.runtime import Traffic

_PAUSE = 0.1  # seconds between two looks; drawing more often would only take time from the run


@final
class Ticker:
    """Shows how far a run has come; use it as a context. ``rounds`` is how many there are at most."""

    def __init__(self, console: Console, name: str, rounds: int | None) -> None:
        columns = (
            TextColumn("  {task.description}"),
            BarColumn(bar_width=16),
            TextColumn("{task.fields[come_to]}"),
        )
        self._bars = Progress(*columns, console=console)
        self._task = self._bars.add_task(name, total=rounds, come_to="")
        self._begun = self._last = time.monotonic()
        self._traffic: Traffic | None = None
        self._measured = ""

    def tick(self, traffic: Traffic) -> None:
        """Take note of what has crossed the edges so far."""
        self._traffic = traffic
        if time.monotonic() - self._last >= _PAUSE:
            self._draw()

    def measured(self, snapshot: Snapshot) -> None:
        """Take note of what the models are worth; for runs that are measured."""
        self._measured = f", worst_loss {snapshot.worst_loss:.3e}, gap {snapshot.gap:.1e}"

    def _draw(self) -> None:
        self._last = time.monotonic()
        if self._traffic is None:
            return
        rounds, sent = self._traffic.rounds, int(self._traffic.bytes.sum())
        seconds = f"{self._last - self._begun:.1f} s"
        come_to = f"{rounds} rounds, {shown_bytes(sent)} sent here, {seconds}{self._measured}"
        self._bars.update(self._task, completed=rounds, come_to=come_to)

    def __enter__(self) -> Ticker:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._draw()
        if kind is None:
            done = max(1, 0 if self._traffic is None else self._traffic.rounds)
            self._bars.update(self._task, total=done, completed=done)
        self._bars.stop()


def shown_bytes(count: int) -> str:
    """Return a number of bytes for people.

    >>> shown_bytes(999), shown_bytes(1_250_000)
    ('999 bytes', '1.2 MB')
    """
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
