"""``dcgs bench rounds`` and ``dcgs bench time``: rounds and seconds of each method to an accuracy."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.bench import rounds_report, time_report, timing
from dcgs.bench.entries import GRID
from dcgs.bench.instances import INSTANCES, LARGE
from dcgs.bench.ranking import LEVELS, counts_table, instance_table, stops_table, summary_table
from dcgs.bench.rounds import RoundsStudy, run_study, runs_left, unusable
from dcgs.cli.bench_study import Choice, add_choices, print_tables, run_with_progress, write_results
from dcgs.cli.values import count, job, option, positive, seed
from dcgs.link import LINKS
from dcgs.parallel import cores
from dcgs.study import ResultCache

_ABOUT_ROUNDS = """\
Run every method on every instance of a table. Print the rounds and bytes until its agents stop by
themselves at a certified gap of 1e-3, for FastDCGS also of 1e-2 and 1e-5. Print, from another run, the
rounds, the bytes, and the oracle calls or projections that each needed until the worst agent's relative
error was 1e-1, 1e-2, ... 1e-5.
"""

_MORE_ROUNDS = """\
The folder gets rounds.md, rounds.json and profile.png, a record of every run in runs/, and its history
in data/ and timing/. Runs until the agents stop are recorded in stops/. A recorded run is not repeated: the
same command continues where it was interrupted.
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

_ABOUT_TIME = """\
Run every method on every instance of a table, with one core for each agent. Print the seconds that each
needs over three links until its agents stop by themselves at a certified gap of 1e-3, and, from another
run, until the worst agent's relative error is 1e-2 and 1e-3, beside `pool`: all data sent to one site over
the same link, and a centralized solver there.
"""

_MORE_TIME = """\
Links: lan (1 Gbit/s, 0.2 ms a round), paper (10 MB/s, 1 ms), wan (100 Mbit/s, 20 ms). Runs are recorded as
by dcgs bench rounds, and a recorded run is not repeated. Times are processor time. They are only comparable
if the machine was otherwise idle: other processes compete for its memory.

examples:
  dcgs bench time --quick                              small problems, under a minute
  dcgs bench time --instances lasso-paper silo-10      these two
  dcgs bench time --methods FastDCGS --rerun           one method again, the rest as recorded
"""

# Seconds of a run: of rounds, of time, of both with --quick.
_SECONDS, _SECONDS_TIME, _QUICK_SECONDS = 40.0, 20.0, 3.0


def add(benches: Any) -> None:
    """Add the two benchmarks to ``dcgs bench``."""
    text = "rounds, bytes and work to an accuracy: all methods on a table of instances"
    rounds = job(benches, "rounds", text, _ABOUT_ROUNDS, _MORE_ROUNDS)
    text = "seconds to an accuracy over three links, beside pooling: all methods on a table of instances"
    times = job(benches, "time", text, _ABOUT_TIME, _MORE_TIME)
    for name, parser, seconds in (("rounds", rounds, _SECONDS), ("time", times, _SECONDS_TIME)):
        add = partial(option, parser)
        add_choices(parser)
        text = (
            f"time limit of each run (default: {seconds:g}, more for the largest instances; 3 with --quick)"
        )
        add("--seconds S", text, positive)
        add("--seed N", "of data and graphs (default: 0)", seed, default=0)
        add("--stops-only", "only the runs that end when the agents stop", bool)
        add("--out DIR", f"output (default: out/{name}; out/{name}-quick with --quick)", Path)
    option(rounds, "--jobs N", "processes (default: the available cores)", count)
    option(rounds, "--grid", "also search settings, and show the best of them to 1e-3", bool)
    option(rounds, "--list", "print the names of all, and end", bool)
    option(rounds, "--anew", argparse.SUPPRESS, bool, dest="rerun")  # the name up to 0.3
    option(rounds, "--level", "of the summary (default: 1e-3)", float, default=1e-3)
    rounds.set_defaults(run=_run_rounds)
    option(times, "--jobs N", "processes, with one core each (default: 1)", count, default=1)
    text = "end a run that has taken N times the time of FastDCGS over each link (default: 20)"
    option(times, "--patience N", text, positive, default=20.0)
    times.set_defaults(run=_run_time)


def _run_rounds(args: argparse.Namespace, console: Console) -> int:
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
    study = RoundsStudy(ResultCache(out), args.seed, limit, args.jobs or cores(), stops_only=args.stops_only)
    study.cache.check_writable()
    if args.rerun:
        choice.remove_runs(study, grid)
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
        stops = ranking.until_stop()
        tables += [summary_table(stops), counts_table(stops), stops_table(ranking)]
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


def _run_time(args: argparse.Namespace, console: Console) -> int:
    choice = Choice.of(args, (*INSTANCES, *LARGE))
    instances, entries, table = choice.instances, choice.entries, choice.table
    out = args.out or Path("out/time-quick" if args.quick else "out/time")
    limit = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS_TIME)
    level, patience = min(timing.LEVELS), args.patience
    study = RoundsStudy(ResultCache(out), args.seed, limit, args.jobs, level, patience, args.stops_only)
    study.cache.check_writable()
    if args.rerun:
        choice.remove_runs(study)
    notes: list[str] = []
    left = runs_left(study, instances, entries) + timing.times_left(study, instances)
    if run_with_progress(partial(timing.run_times, study, instances, entries), max(1, left), notes, console):
        return 130
    recorded = [one for one in choice.methods if any(study.has_trial(chosen, one) for chosen in table)]
    found = [
        timing.times_until_stop(study, table, recorded),
        *(timing.times(study, table, recorded, level) for level in timing.LEVELS),
    ]
    tables = []
    for each in found:
        if each.names not in ([], [timing.POOL]):
            tables += [time_report.time_table(each, *named) for named in LINKS.items()]
            tables.append(time_report.counts_table(each))
    print_tables(tables, notes, console)
    texts = {
        "time.md": time_report.markdown(study, found, table, notes),
        "time.json": time_report.as_json(study, found, table, notes),
    }
    write_results(study.cache, texts, ("time.png", "time_figure", found[-1]), console)
    return 0


def _level(level: float) -> float:
    if level not in LEVELS:
        known = ", ".join(f"{each:.0e}" for each in LEVELS)
        raise ValueError(f"level must be one of {known}; got {level!r}.")
    return level
