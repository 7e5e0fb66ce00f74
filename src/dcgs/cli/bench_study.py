"""What benchmarks of many runs share: choices, progress, tables on the terminal, files and pictures."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dcgs.bench import record
from dcgs.bench.entries import ENTRIES, Entry, entry
from dcgs.bench.instances import QUICK, Instance, instance
from dcgs.bench.record import TextTable
from dcgs.bench.rounds import Report, RoundsStudy, record_name
from dcgs.cli.values import option
from dcgs.report import Progress
from dcgs.study import ResultCache

_BREAKS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=,) |(?<=/) ")

Rows: TypeAlias = list[dict[str, Any]]
Named = TypeVar("Named", Instance, Entry)


def set_run_with_output(
    parser: argparse.ArgumentParser, bench: Callable[[argparse.Namespace, Console], Rows]
) -> None:
    """Make a benchmark what the parser runs, with an option that writes its rows to a file."""
    option(parser, "--out FILE", "also write the numbers as JSON, with versions and machine", Path)

    def run(args: argparse.Namespace, console: Console) -> int:
        if args.out is not None:
            record.check_writable(args.out)
        rows = bench(args, console)
        if args.out is not None:
            console.print(f"written: {record.write(args.out, rows, args.seed)}")
        return 0

    parser.set_defaults(run=run)


def add_choices(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose instances and methods, built-in ones and those of other packages."""
    add = partial(option, parser)
    add("--instances NAME", "which instances (default: all)", nargs="+")
    add("--methods NAME", "which methods (default: all)", nargs="+")
    text = "add an instance of your own: a function of a seed that returns objectives, set and graph"
    add("--instance FILE.PY:NAME", text, action="append", default=[])
    text = "add a method of your own: a dcgs.Method, or a class or function that makes one"
    add("--method FILE.PY:NAME", text, action="append", default=[])
    add("--quick", "a few small instances instead of the table", bool)
    add("--rerun", "repeat the chosen runs even if they are recorded", bool)


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
        table = _with_outside("instance", QUICK if args.quick else instances, args.instance, instance)
        methods = _with_outside("method", ENTRIES, args.method, entry)
        chosen = chosen_by_name("an instance", args.instances, table)
        return cls(chosen, chosen_by_name("a method", args.methods, methods), table, methods)

    def remove_runs(self, study: RoundsStudy, more: Sequence[Entry] = ()) -> None:
        """Remove the records of the chosen runs, and of some entries more."""
        for chosen, one in product(self.instances, (*self.entries, *more)):
            for gap in study.gaps(one):
                study.cache.remove(record_name(chosen, one, gap))


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


def formatted_table(title: str, columns: Mapping[str, str], rows: Rows) -> Table:
    """Return a table; headings and cells are formatted with the values of a row.

    A column whose form has a colon is one of numbers.
    """
    table = Table(title=title, title_justify="left")
    for name, form in columns.items():
        table.add_column(name.format_map(rows[0]), justify="right" if ":" in form else "left")
    for row in rows:
        shown = {name: {True: "yes", False: "NO"}[x] if isinstance(x, bool) else x for name, x in row.items()}
        table.add_row(*(form.format_map(shown) for form in columns.values()))
    return table


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


def print_tables(tables: Iterable[TextTable], notes: Sequence[str], console: Console) -> None:
    """Print tables, and then notes."""
    for table in tables:
        console.print(rich_table(table))
    for note in notes:
        console.print(note)


def write_results(
    cache: ResultCache, texts: Mapping[str, str], picture: tuple[str, str, Any], console: Console
) -> None:
    """Write files of text, and a picture: its file, the function of ``bench_figures``, what it draws."""
    file, function, content = picture
    for name, text in texts.items():
        cache.write_file(name, text.encode())
    with drawing():
        from dcgs.report import bench_figures, figures
    cache.write_file(file, figures.encoded(getattr(bench_figures, function)(content), "png"))
    first, *others = (*texts, file)
    console.print(f"written: {', '.join([str(cache.path / first), *others])}", soft_wrap=True)


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
