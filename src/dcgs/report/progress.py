"""Progress bars for runs that take a while."""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType
from typing import final

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bars

from dcgs.front import Snapshot


@final
class Progress:
    """One bar per run, with its rounds, the worst agent's loss and the time left; use it as a context.

    ``bar(name, iterations)`` gives the callback that :func:`dcgs.minimize` takes.
    """

    def __init__(self, console: Console | None = None) -> None:
        self._bars = Bars(
            TextColumn("  {task.description}"),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[rounds]:>4} rounds, worst_loss {task.fields[loss]:.1e}"),
            TimeRemainingColumn(compact=True, elapsed_when_finished=True),
            TextColumn("{task.fields[left]}"),
            console=console,
        )

    def bar(self, name: str, iterations: int) -> Callable[[Snapshot], None]:
        """Return a callback that moves a bar named so, full after that many iterations."""
        self._finish()
        task = self._bars.add_task(name, total=iterations, rounds=0, loss=float("nan"), left="left")

        def move(snapshot: Snapshot) -> None:
            self._bars.update(
                task, completed=snapshot.iterations, rounds=snapshot.rounds, loss=snapshot.worst_loss
            )

        return move

    def _finish(self) -> None:
        """Fill all bars: a run may end before its last iteration."""
        for task in self._bars.tasks:
            self._bars.update(
                task.id, total=max(task.completed, 1), completed=max(task.completed, 1), left=""
            )

    def __enter__(self) -> Progress:
        self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._finish()
        self._bars.stop()
