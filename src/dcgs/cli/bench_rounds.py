"""``dcgs bench rounds``: how many rounds each method needs to an accuracy, over a table of instances."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.bench import rounds_report
from dcgs.bench.entries import GRID
from dcgs.bench.instances import INSTANCES
from dcgs.bench.ranking import LEVELS, counts_table, instance_table, summary_table
from dcgs.bench.rounds import RoundsStudy, run_study, runs_left, unusable
from dcgs.cli.bench_study import Choice, add_choices, print_tables, run_with_progress, write_results
from dcgs.cli.values import count, job, option, positive, seed
from dcgs.parallel import cores
from dcgs.study import ResultCache

_ABOUT = """\
Run every method once on every instance of a table. Print the rounds, the bytes, and the oracle calls
or projections that each needed until the worst agent's relative error was 1e-1, 1e-2, ... 1e-5.
"""

_MORE = """\
The folder gets rounds.md, rounds.json and profile.png, a record of every run in runs/, and its history
in data/ and timing/. A recorded run is not repeated: the same command continues where it was interrupted.
FILE.PY:NAME may also be PACKAGE.MODULE:NAME.
A run with another seed, budget or version is repeated. A change of a method's code is not detected:
after one, name the method with --methods or --method and give --rerun.

examples:
  dcgs bench rounds --quick                                       small problems, under a minute
  dcgs bench rounds --list                                        instances and methods by name
  dcgs bench rounds --instances lasso-cycle-10 noisy-grid-6x6     these two
  dcgs bench rounds --methods FastDCGS --rerun                    one method again, the rest as recorded
  dcgs bench rounds --grid                                        also settings found by search
  dcgs bench rounds --quick --method my_methods:Gossip            a method of your own beside the others
  dcgs bench rounds --quick --method path/to/study.py:Gossip      the same, from a Python file
  dcgs bench rounds --methods FastDCGS --instance my_data:plants  a problem of your own beside the others
"""

_SECONDS, _QUICK_SECONDS = 40.0, 3.0


def add(benches: Any) -> None:
    """Add the benchmark to ``dcgs bench``."""
    text = "rounds, bytes and work to an accuracy: all methods on a table of instances"
    parser = job(benches, "rounds", text, _ABOUT, _MORE)
    add = partial(option, parser)
    add_choices(parser)
    add("--grid", "also search settings, and show the best of them to 1e-3", bool)
    add("--list", "print the names of all, and end", bool)
    add("--anew", argparse.SUPPRESS, bool, dest="rerun")  # the name up to 0.3
    add("--level", "of the summary (default: 1e-3)", float, default=1e-3)
    text = "time limit of each run (default: 40, more for the largest instances; 3 with --quick)"
    add("--seconds S", text, positive)
    add("--seed N", "of data and graphs (default: 0)", seed, default=0)
    add("--jobs N", "processes (default: the available cores)", count)
    add("--out DIR", "output (default: out/rounds; out/rounds-quick with --quick)", Path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    choice = Choice.of(args, INSTANCES)
    if args.list:
        _list(choice, console)
        return 0
    instances, entries, table = choice.instances, choice.entries, choice.table
    families = {one.name for one in entries}
    grid = [one for one in GRID if args.grid and one.family in families]
    level = _level(args.level)
    limit = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    out = args.out or Path("out/rounds-quick" if args.quick else "out/rounds")
    study = RoundsStudy(ResultCache(out), args.seed, limit, args.jobs or cores())
    study.cache.check_writable()
    if args.rerun:
        choice.remove_runs(study.cache, grid)
    notes: list[str] = []
    runs = instances, [*entries, *grid]
    left = runs_left(study, *runs)
    interrupted = left > 0 and run_with_progress(partial(run_study, study, *runs), left, notes, console)
    # The report has all recorded methods, also those that were not chosen this time.
    recorded = [
        one
        for one in choice.methods
        if one in entries or any(study.has_trial(chosen, one) for chosen in table)
    ]
    ranking = rounds_report.ranking_of(study, table, recorded, grid, level)
    notes += rounds_report.remarks(study, ranking, table)
    found = [chosen for chosen in instances if chosen.name in ranking.trials]
    tables = [instance_table(ranking, chosen.name, chosen.about) for chosen in found]
    if ranking.trials:
        tables += [summary_table(ranking), counts_table(ranking)]
    print_tables(tables, notes, console)
    texts = {
        "rounds.md": rounds_report.markdown(study, ranking, table, notes),
        "rounds.json": rounds_report.as_json(study, ranking, table, grid, notes),
    }
    write_results(study.cache, texts, ("profile.png", "profile_figure", ranking), console)
    if interrupted:
        return 130
    failed = unusable(study, instances, entries)
    if failed:
        console.print(f"there is no run of {', '.join(failed)}; the notes above say why.", soft_wrap=True)
    return 1 if failed else 0


def _list(choice: Choice, console: Console) -> None:
    for title, rows in (
        ("instances", [(chosen.name, chosen.about) for chosen in choice.table]),
        ("methods", [(one.name, repr(one.method)) for one in choice.methods]),
        ("with --grid also", [(one.name, repr(one.method)) for one in GRID]),
    ):
        listed = Table("name", "what it is", title=title, title_justify="left")
        for row in rows:
            listed.add_row(*row)
        console.print(listed)


def _level(level: float) -> float:
    if level not in LEVELS:
        known = ", ".join(f"{each:.0e}" for each in LEVELS)
        raise ValueError(f"level must be one of {known}; got {level!r}.")
    return level
