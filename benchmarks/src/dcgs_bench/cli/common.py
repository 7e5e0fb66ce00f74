"""What benchmarks share: choices, progress, tables on the terminal, and the files they write."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, final

from matplotlib.figure import Figure
from rich.box import SIMPLE_HEAD
from rich.console import Console, JustifyMethod
from rich.table import Table
from rich.text import Text

from dcgs.cli.values import option
from dcgs.report import Progress
from dcgs.report.figures import encoded
from dcgs_bench.entries import ENTRIES, Entry, entry_named
from dcgs_bench.faults import Condition
from dcgs_bench.instances import QUICK, Instance, instance_named
from dcgs_bench.study import Records, Stages, StudyTask, TextTable, as_json, as_markdown, run_tasks

_LONGEST = 25  # characters of a number in a table; longer cells are text
_BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=,) |(?<=/) ")

Named = TypeVar("Named", Instance, Entry, Condition)


def add_folder(parser: argparse.ArgumentParser, name: str, quick: bool = True) -> None:
    """Add the option that chooses the folder of a benchmark."""
    small = f"; out/{name}-quick with --quick" if quick else ""
    option(parser, "--out DIR", f"output, and records of all runs (default: out/{name}{small})", Path)
    option(parser, "--rerun", "repeat the chosen runs even if they are recorded", bool)


def records_of(args: argparse.Namespace, name: str) -> Records:
    """Return the records in the folder that the options choose; raise if it cannot be written."""
    if args.out is not None and args.out.suffix == ".json":
        raise ValueError(f"--out must be a folder, which gets {name}.json; got {str(args.out)!r}.")
    records = Records(args.out or Path(f"out/{name}{'-quick' if vars(args).get('quick') else ''}"))
    records.check_writable()
    return records


def add_choices(parser: argparse.ArgumentParser, only: str = "") -> None:
    """Add the options that choose instances and methods, built-in ones and those of other packages.

    With ``only``, there is one method and no choice of methods.
    """
    add = partial(option, parser)
    add("--instances NAME", "which instances (default: all)", nargs="+")
    text = "add an instance of your own: a function of a seed that returns objectives, set and graph"
    add("--instance FILE.PY:NAME", text, action="append", default=[])
    add("--quick", "a few small instances instead of the table", bool)
    if only:
        parser.set_defaults(methods=[only], method=[])
        return
    add("--methods NAME", "which methods (default: all)", nargs="+")
    text = "add a method of your own: a dcgs.Method, or a class or function that makes one"
    add("--method FILE.PY:NAME", text, action="append", default=[])


@final
@dataclass(frozen=True, eq=False)
class Choice:
    """The instances and methods to run, and all of the table, which the report shows if they are recorded."""

    instances: Sequence[Instance]
    entries: Sequence[Entry]
    table: Sequence[Instance]
    methods: Sequence[Entry]

    @classmethod
    def of(cls, args: argparse.Namespace, instances: Sequence[Instance]) -> Choice:
        """Return what the options of :func:`add_choices` choose, of the small instances with ``--quick``."""
        table = _with_outside("instance", QUICK if args.quick else instances, args.instance, instance_named)
        methods = _with_outside("method", ENTRIES, args.method, entry_named)
        outside = [[spec.rpartition(":")[2] for spec in specs] for specs in (args.instance, args.method)]
        chosen = chosen_by_name("an instance", args.instances and [*args.instances, *outside[0]], table)
        entries = chosen_by_name("a method", args.methods and [*args.methods, *outside[1]], methods)
        return cls(chosen, entries, table, methods)


def _with_outside(
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
    names = [named.name for named in everyone]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(
            f"every {what} must have a name of its own; {', '.join(twice)} is there twice. Rename one."
        )
    return everyone


def chosen_by_name(what: str, names: Sequence[str] | None, known: Sequence[Named]) -> list[Named]:
    """Return those of the names; all if there are no names."""
    unknown = [name for name in names or () if name not in [named.name for named in known]]
    if unknown:
        raise ValueError(
            f"{what} must be one of {', '.join(repr(named.name) for named in known)}; "
            f"got {', '.join(map(repr, unknown))}. The option --list describes them."
        )
    return [named for named in known if names is None or named.name in names]


@final
@dataclass(frozen=True)
class Runner:
    """The records of a benchmark, the processes to run in, the console, and notes on what failed."""

    records: Records
    jobs: int | None
    console: Console
    notes: list[str]

    def run(self, stages: Stages, rerun: bool = False) -> bool:
        """Do the tasks of all stages that are not recorded; return whether Ctrl-C interrupted them.

        With ``rerun`` those that are recorded are done again, but for f*, which no method changes.
        """
        planned = [task for stage in stages for task in stage()]
        for task in planned:
            if rerun and not task.name.startswith("optima/"):
                self.records.remove(task)
        left = sum(not self.records.has(task) for task in planned)
        try:
            with Progress(self.console) as progress:
                advance = progress.counter("runs", left) if left else None

                def report(title: str, sentence: str | None) -> None:
                    if advance is not None:
                        advance()
                    if sentence is not None:
                        self.notes.append(f"{title}: {sentence}")

                for stage in stages:
                    run_tasks(self.records, stage(), self.jobs, report)
        except KeyboardInterrupt:
            again = "Run the same command again to continue."
            self.console.print(f"interrupted: finished runs are recorded. {again}")
            return True
        return False

    def rows(self, tasks: Sequence[StudyTask]) -> list[dict[str, Any]]:
        """Return the results of tasks, without those that failed."""
        results = map(self.records.result, tasks)
        return [row for row in results if row is not None]

    def finish(
        self, name: str, made: Mapping[str, Any], tables: Sequence[TextTable], figures: Mapping[str, Figure]
    ) -> None:
        """Print tables and notes; write them as Markdown, the numbers as JSON, and figures as PNG."""
        for table in tables:
            show(self.console, table)
        for note in self.notes:
            self.console.print(note)
        self.records.write_file(f"{name}.json", as_json(made))
        self.records.write_file(f"{name}.md", as_markdown(made, tables, self.notes))
        for file, figure in figures.items():
            self.records.write_file(file, encoded(figure, "png"))
        listed = [str(self.records.path / f"{name}.md"), f"{name}.json", *figures]
        self.console.print(f"written: {', '.join(listed)}", soft_wrap=True)


def show(console: Console, text: TextTable) -> None:
    """Print a table."""
    table = Table(title=text.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, name in enumerate(text.head):
        is_text = place == 0 or any(len(row[place][0]) > _LONGEST for row in text.rows)
        justify: JustifyMethod = "left" if is_text else "right"
        table.add_column(_BREAKS.sub("\n", name), justify=justify, no_wrap=not place, overflow="fold")
    for row in text.rows:
        table.add_row(*(Text(cell, "bold" if best else "") for cell, best in row))
    console.print(table)
