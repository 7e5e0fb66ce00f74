"""What benchmarks of many runs share: choices, progress, tables on the terminal, pictures."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeAlias, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dcgs.bench.entries import Entry
from dcgs.bench.instances import Instance
from dcgs.bench.ranking import TextTable
from dcgs.cli.values import option
from dcgs.report import Progress

_BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=,) |(?<=/) ")

Named = TypeVar("Named", Instance, Entry)
Report: TypeAlias = Callable[[str, str | None], None]
"""(name of a run, what failed) ↦ nothing: called after each run."""


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose instances and methods, built-in ones and those of other packages."""
    add = partial(option, parser)
    add("--instances NAME", "which instances (default: all)", nargs="+")
    add("--methods NAME", "which methods (default: all)", nargs="+")
    text = "add an instance of your own: a function of a seed that returns objectives, set and graph"
    add("--instance FILE.PY:NAME", text, action="append", default=[])
    text = "add a method of your own: a dcgs.Method, or a class or function that makes one"
    add("--method FILE.PY:NAME", text, action="append", default=[])


def with_outside(
    what: str, known: Sequence[Named], specs: Sequence[str], load: Callable[[str], Named]
) -> list[Named]:
    """Return the built-in ones and those that ``--method`` or ``--instance`` names."""
    unclear = [spec for spec in specs if ":" not in spec]
    if unclear:
        raise ValueError(
            f"--{what} must be package.module:name or file.py:name; got {', '.join(map(repr, unclear))}. "
            f"Choose among the built-in ones with --{what}s."
        )
    everyone = list(known) + [load(spec) for spec in specs]
    names = [one.name for one in everyone]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"every {what} must have a name of its own; {', '.join(twice)} is there twice. Rename one."
        )
    return everyone


def chosen_by_name(what: str, names: Sequence[str] | None, known: Sequence[Named]) -> list[Named]:
    """Return those of the names, and all outside ones; all if there are no names."""
    unknown = [name for name in names or () if name not in [one.name for one in known]]
    if unknown:
        raise ValueError(
            f"{what} must be one of {', '.join(repr(one.name) for one in known)}; "
            f"got {', '.join(map(repr, unknown))}. See dcgs bench rounds --list."
        )
    return [one for one in known if names is None or one.spec or one.name in names]


def run_with_progress(run: Callable[[Report], None], left: int, notes: list[str], console: Console) -> bool:
    """Do the runs of which ``left`` are not recorded; return whether Ctrl-C interrupted them.

    ``run`` gets a function to call after each run. What failed is added to ``notes``.
    """
    try:
        with Progress(console) as progress:
            advance = progress.counter("runs", left)

            def report(name: str, sentence: str | None) -> None:
                advance()
                if sentence is not None:
                    notes.append(f"{name}: {sentence}")

            run(report)
    except KeyboardInterrupt:
        console.print("interrupted: finished runs are recorded. Run the same command again to continue.")
        return True
    return False


def rich_table(text: TextTable) -> Table:
    """Return a table for the terminal."""
    table = Table(title=text.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, name in enumerate(text.head):
        table.add_column(
            _BREAKS.sub("\n", name), justify="right" if place else "left", no_wrap=not place, overflow="fold"
        )
    for row in text.rows:
        table.add_row(*(Text(cell, "bold" if best else "") for cell, best in row))
    return table


@contextmanager
def drawing(before_runs: bool = False) -> Iterator[None]:
    """Say what to install if what is imported in here to draw with is not there."""
    try:
        yield
    except ImportError as error:
        raise ImportError(
            f"the picture needs matplotlib; {error.name} is not installed. "
            "Install it with: pip install 'dcgs[plot]'"
            + ("." if before_runs else "; finished runs are recorded.")
        ) from error
