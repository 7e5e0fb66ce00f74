"""Progress of long work: bars on a terminal, lines on stderr where there is none. All commands use it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from types import TracebackType
from typing import TypeAlias, final

from rich.console import Console
from rich.progress import BarColumn, ProgressColumn, Task, TaskID, TextColumn
from rich.progress import Progress as RichProgress
from rich.text import Text

from dcgs.report.numbers import size
from dcgs.run.result import Snapshot
from dcgs.runtime import Job, Runtime, Traffic
from dcgs.runtime.base import ChangedRuntime

Clock: TypeAlias = Callable[[], float]
Describe: TypeAlias = Callable[[], str]
"""Returns the present state of the work; called only when it is printed."""

_PAUSE = 1.0  # seconds between two lines at least
_LONGEST_PAUSE = 30.0  # seconds after which a line is printed in any case


@final
class Progress:
    """Progress of one task at a time; use it as a context manager.

    On a terminal each task has a bar. Elsewhere a task prints lines to stderr: at its first step, at steps
    2, 4, 8, … but not within a second of the last line, every 30 seconds, and when it is finished.
    """

    def __init__(self, console: Console | None = None, clock: Clock = time.monotonic) -> None:
        self._console = Console() if console is None else console
        self._display = _Bars(self._console) if self._console.is_terminal else _Lines(clock)

    def rounds(self, name: str, total: int | None) -> RoundProgress:
        """Begin a run that is followed by its rounds, of which there are at most ``total``."""
        self._display.begin(name, total)
        return RoundProgress(self._display, total)

    def counter(self, name: str, total: int) -> Callable[[], None]:
        """Begin a task of ``total`` pieces; return the function to call after each piece."""
        self._display.begin(name, total)
        done = 0

        def advance() -> None:
            nonlocal done
            done += 1
            self._display.update(done, total, lambda: f"{done} of {total}")

        return advance

    def download(self, name: str) -> Callable[[int, int | None], None]:
        """Return a function of the bytes so far and in all (None: unknown); its first call begins a task."""
        begun = False

        def update(done: int, total: int | None) -> None:
            nonlocal begun
            if not begun:
                self._display.begin(name, total)
                begun = True
            self._display.update(done, total, lambda: size(done))

        return update

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._display.close(completed=kind is None)


@final
class RoundProgress:
    """Progress of one run: its rounds and bytes and, where the run is measured, its loss and gap."""

    def __init__(self, display: _Bars | _Lines, total: int | None) -> None:
        self._display, self._total = display, total
        self._measured = ""

    def after_round(self, traffic: Traffic) -> None:
        """Report the messages that this process has sent so far."""

        def describe() -> str:
            return f"{_rounds(traffic.rounds)}, {size(traffic.bytes.sum())} sent here{self._measured}"

        self._display.update(traffic.rounds, self._total, describe)

    def measured(self, snapshot: Snapshot) -> None:
        """Report the loss and the gap of the models."""
        self._measured = f", worst_loss {snapshot.worst_loss:.3e}, gap {snapshot.gap:.1e}"


def observed(runtime: Runtime, see: Callable[[Traffic], None]) -> Runtime:
    """Return a runtime that calls ``see`` after each round."""

    def change(job: Job) -> Job:
        def after_round() -> bool:
            goes_on = job.after_round()
            see(job.traffic)
            return goes_on

        return replace(job, after_round=after_round)

    return ChangedRuntime(runtime, change)


@final
class _Bars:
    """Bars on a terminal, one task after the other."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._bars: RichProgress | None = None
        self._task = TaskID(0)

    def begin(self, name: str, total: float | None) -> None:
        """Complete the task before, and begin another."""
        self._fill()
        if self._bars is None:
            columns = (TextColumn("  {task.description}"), BarColumn(16), _StatusColumn())
            self._bars = RichProgress(*columns, console=self._console)
            self._bars.start()
        self._task = self._bars.add_task(name, total=total, describe=str)

    def update(self, done: float, total: float | None, describe: Describe) -> None:
        """Report a step of the task."""
        if self._bars is not None:
            self._bars.update(self._task, completed=done, total=total, describe=describe)

    def close(self, completed: bool) -> None:
        """End the task; one that was not completed stays where it is."""
        if completed:
            self._fill()
        if self._bars is not None:
            self._bars.stop()
            self._bars = None

    def _fill(self) -> None:
        """Fill the bar: a run may end before its last iteration."""
        if self._bars is not None:
            done = max(self._bars.tasks[-1].completed, 1)
            self._bars.update(self._task, total=done, completed=done)


@final
class _StatusColumn(ProgressColumn):
    """The description, and the time left; if the end is unknown or reached, the time taken."""

    def render(self, task: Task) -> Text:
        left = task.time_remaining
        taken = f"{task.finished_time or task.elapsed or 0.0:.0f} s"
        time_text = taken if task.finished or left is None else f"{left:.0f} s left"
        return Text(f"{task.fields['describe']()} {time_text}".lstrip())


@final
class _Lines:
    """Lines on stderr, one task after the other; it has the methods of :class:`_Bars`."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._name = ""
        self._steps = 0
        self._begun = self._printed = 0.0
        self._pending: Callable[[], str] | None = None

    def begin(self, name: str, total: float | None) -> None:
        self.close(completed=True)
        self._name, self._steps = name, 0
        self._begun = self._printed = self._clock()

    def update(self, done: float, total: float | None, describe: Describe) -> None:
        self._steps += 1
        share = f" ({min(1.0, done / total):.0%})" if total else ""
        self._pending = lambda: f"{self._name}: {describe()}{share}"
        since = self._clock() - self._printed
        is_power_of_two = self._steps & (self._steps - 1) == 0
        if self._steps == 1 or since >= _LONGEST_PAUSE or (is_power_of_two and since >= _PAUSE):
            self._print()

    def close(self, completed: bool) -> None:
        if completed:
            self._print()

    def _print(self) -> None:
        if self._pending is not None:
            self._printed = self._clock()
            print(f"{self._pending()}, {self._printed - self._begun:.1f} s", file=sys.stderr, flush=True)
            self._pending = None


def _rounds(number: int) -> str:
    return "1 round" if number == 1 else f"{number} rounds"
