"""``dcgs bench rounds``: how many rounds each method needs to an accuracy, over a table of instances."""

from __future__ import annotations

import argparse
import io
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dcgs.bench import rounds_page
from dcgs.bench.contestants import CONTESTANTS, GRID, Contestant
from dcgs.bench.crossings import LEVELS
from dcgs.bench.instances import INSTANCES, QUICK, Instance
from dcgs.bench.rounds import Plan, carry_out, take_off, work_left
from dcgs.bench.shelf import Shelf
from dcgs.bench.standings import Grid, Standings, counts_grid, instance_grid, summary_grid
from dcgs.cli.values import count, positive, seed
from dcgs.parallel import cores
from dcgs.report import Progress

_ABOUT = """\
Run every method once on every instance of a table, and tell the rounds, bytes and oracle calls
or projections each needed until the worst agent's relative error was 1e-1, 1e-2, ... 1e-5.
"""

_MORE = """\
The folder gets rounds.md, rounds.json and profile.png, and one file for every run in runs/. What is
there is not run again: the same command goes on where it was interrupted. A result made with other
settings, another seed or other versions is made anew; a change of a method's code is not noticed, so
name the method with --methods and give --anew after one.

examples:
  dcgs bench rounds --quick                                       small problems, under a minute
  dcgs bench rounds --list                                        instances and methods by name
  dcgs bench rounds --instances lasso-cycle-10 noisy-grid-6x6     these two
  dcgs bench rounds --methods FastDCGS --anew                     one method again, the rest as it was
  dcgs bench rounds --grid                                        also settings found by trying
"""

_SECONDS, _QUICK_SECONDS = 40.0, 3.0
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=,) |(?<=/) ")

Named = TypeVar("Named", Instance, Contestant)


def add(benches: Any) -> None:
    """Add the benchmark to ``dcgs bench``."""
    parser = benches.add_parser(
        "rounds",
        help="rounds, bytes and work to an accuracy: all methods on a table of instances",
        description=_ABOUT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--instances", nargs="+", metavar="NAME", help="which instances (default: all)")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help="which methods (default: all)")
    parser.add_argument(
        "--grid", action="store_true", help="also try settings, and show the best of them to 1e-3"
    )
    parser.add_argument("--list", action="store_true", help="tell the names of all, and end")
    parser.add_argument("--quick", action="store_true", help="a few small instances instead of the table")
    parser.add_argument("--anew", action="store_true", help="run what is asked for though it is there")
    parser.add_argument("--level", type=float, default=1e-3, help="of the summary (default: 1e-3)")
    parser.add_argument(
        "--seconds",
        type=positive,
        metavar="S",
        help="at most, for each run (default: 40, more for the largest instances; 3 with --quick)",
    )
    parser.add_argument("--seed", type=seed, default=0, metavar="N", help="of data and graphs (default: 0)")
    parser.add_argument("--jobs", type=count, metavar="N", help="processes (default: the cores at hand)")
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="output (default: out/rounds; out/rounds-quick with --quick)"
    )
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    table = QUICK if args.quick else INSTANCES
    if args.list:
        _list(console, table)
        return 0
    instances = _chosen("an instance", args.instances, table)
    contestants = _chosen("a method", args.methods, CONTESTANTS)
    families = {entrant.name for entrant in contestants}
    grid = [entrant for entrant in GRID if args.grid and entrant.family in families]
    level = _level(args.level)
    limit = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    out = args.out or Path("out/rounds-quick" if args.quick else "out/rounds")
    plan = Plan(Shelf(out), args.seed, limit, args.jobs or cores())
    plan.shelf.check()
    notes: list[str] = []
    if args.anew:
        take_off(plan, instances, [*contestants, *grid])
    interrupted = _carry_out(plan, instances, [*contestants, *grid], notes, console)
    # Methods that were run before and not asked for now are shown, too: a page is always the whole.
    standings = rounds_page.standings_of(plan, table, _there(plan, table, contestants), grid, level)
    _show(standings, [chosen for chosen in instances if chosen.name in standings.trials], console)
    notes += rounds_page.remarks(plan, standings, table)
    for note in notes:
        console.print(note)
    _write(plan, standings, table, grid, notes, console)
    return 130 if interrupted else 0


def _carry_out(
    plan: Plan,
    instances: Sequence[Instance],
    contestants: Sequence[Contestant],
    notes: list[str],
    console: Console,
) -> bool:
    """Do what is not done yet; return whether it was interrupted."""
    left = work_left(plan, instances, contestants)
    if left == 0:
        return False
    try:
        with Progress(console) as progress:
            advance = progress.counter("runs", left)

            def told(name: str, sentence: str | None) -> None:
                advance()
                if sentence is not None:
                    notes.append(f"{name}: {sentence}")

            carry_out(plan, instances, contestants, told)
    except KeyboardInterrupt:
        console.print("interrupted: every run that is done is kept. Run the same command again to go on.")
        return True
    return False


def _there(plan: Plan, table: Sequence[Instance], asked: Sequence[Contestant]) -> list[Contestant]:
    """Return the methods asked for, and those that there are results of."""
    return [
        entrant
        for entrant in CONTESTANTS
        if entrant in asked or any(plan.trial(chosen, entrant) is not None for chosen in table)
    ]


def _show(standings: Standings, instances: Sequence[Instance], console: Console) -> None:
    for chosen in instances:
        console.print(_rich(instance_grid(standings, chosen.name, chosen.about)))
    if standings.trials:
        console.print(_rich(summary_grid(standings)))
        console.print(_rich(counts_grid(standings)))


def _write(
    plan: Plan,
    standings: Standings,
    table: Sequence[Instance],
    grid: Sequence[Contestant],
    notes: Sequence[str],
    console: Console,
) -> None:
    abouts = {chosen.name: chosen.about for chosen in table}
    page = rounds_page.markdown(standings, abouts, notes, plan)
    plan.shelf.write("rounds.md", page.encode())
    plan.shelf.write("rounds.json", rounds_page.as_json(plan, standings, table, grid, notes).encode())
    plan.shelf.write("profile.png", _profile(standings))
    console.print(f"written: {plan.shelf.path / 'rounds.md'}, rounds.json, profile.png", soft_wrap=True)


def _profile(standings: Standings) -> bytes:
    try:
        from dcgs.report.profile import profile_figure
    except ImportError as error:
        raise ImportError(
            f"the profile needs matplotlib; {error.name} is not installed. "
            "Install it with: pip install 'dcgs[plot]'; runs that are done are kept."
        ) from error
    buffer = io.BytesIO()
    profile_figure(standings).savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _rich(grid: Grid) -> Table:
    table = Table(title=grid.title, title_justify="left", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for place, name in enumerate(grid.head):
        table.add_column(
            _CAMEL.sub("\n", name), justify="right" if place else "left", no_wrap=not place, overflow="fold"
        )
    for row in grid.rows:
        table.add_row(*(Text(text, "bold" if best else "") for text, best in row))
    return table


def _list(console: Console, table: Sequence[Instance]) -> None:
    for title, names in (
        ("instances", [(chosen.name, chosen.about) for chosen in table]),
        ("methods", [(entrant.name, repr(entrant.method)) for entrant in CONTESTANTS]),
        ("with --grid also", [(entrant.name, repr(entrant.method)) for entrant in GRID]),
    ):
        listed = Table("name", "what it is", title=title, title_justify="left")
        for row in names:
            listed.add_row(*row)
        console.print(listed)


def _chosen(what: str, names: Sequence[str] | None, known: Sequence[Named]) -> list[Named]:
    unknown = [name for name in names or () if name not in [one.name for one in known]]
    if unknown:
        raise ValueError(
            f"{what} must be one of {', '.join(repr(one.name) for one in known)}; "
            f"got {', '.join(map(repr, unknown))}. See dcgs bench rounds --list."
        )
    return [one for one in known if names is None or one.name in names]


def _level(level: float) -> float:
    if level not in LEVELS:
        known = ", ".join(f"{each:.0e}" for each in LEVELS)
        raise ValueError(f"level must be one of {known}; got {level!r}.")
    return level
