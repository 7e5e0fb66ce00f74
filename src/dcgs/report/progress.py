"""Progress bars for work that takes a while."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import final

from rich.console import Console
from rich.progress import BarColumn, TaskID, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from dcgs.front import Snapshot


@final
class Progress:
    """One bar per run or download, with what it has come to and the time left; use it as a context.

    ``bar(name, iterations)`` gives the callback that :func:`dcgs.minimize` takes, ``download(name)`` the
    one that loaders of real data take.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console() if console is None else console
        self._bars = _bars(self._console)

    def say(self, sentence: str) -> None:
        """Print a sentence; the bars so far stay above it, later ones come below."""
        if not self._bars.tasks:
            self._console.print(sentence)
            return
        self._finish()
        self._bars.stop()
        self._console.print(sentence)
        self._bars = _bars(self._console)
        self._bars.start()

    def bar(self, name: str, iterations: int, lmo_calls: int | None = None) -> Callable[[Snapshot], None]:
        """Return a callback that moves a bar named so, full after so many iterations or oracle calls."""
        self._finish()
        task = self._bars.add_task(name, total=iterations, come_to="", left="left")

        def move(snapshot: Snapshot) -> None:
            come_to = f"{snapshot.rounds:>4} rounds, worst_loss {snapshot.worst_loss:.1e}"
            spent = 0.0 if lmo_calls is None else iterations * snapshot.lmo_calls / lmo_calls
            self._bars.update(task, completed=max(snapshot.iterations, spent), come_to=come_to)

        return move

    def download(self, name: str) -> Callable[[int, int | None], None]:
        """Return a callback that takes bytes, so far and in all if known; its first call makes the bar."""
        tasks: list[TaskID] = []

        def move(done: int, total: int | None) -> None:
            if not tasks:
                self._finish()
                tasks.append(self._bars.add_task(name, total=None, come_to="", left="left"))
            self._bars.update(tasks[0], completed=done, total=total, come_to=f"{done / 1e6:.1f} MB")

        return move

    def _finish(self) -> None:
        """Fill all bars: a run may end before its last iteration."""
        for task in self._bars.tasks:
            full = max(task.completed, 1)
            self._bars.update(task.id, total=full, completed=full, left="")

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._bars.stop()


def _bars(console: Console) -> Bars:
    return Bars(
        TextColumn("  {task.description}"),
        BarColumn(bar_width=8),
        TextColumn("{task.fields[come_to]}"),
        TimeRemainingColumn(compact=True, elapsed_when_finished=True),
        TextColumn("{task.fields[left]}"),
        console=console,
    )
