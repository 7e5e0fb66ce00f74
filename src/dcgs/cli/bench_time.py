"""``dcgs bench time``: seconds that each method needs to an accuracy over three links, beside pooling."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.bench import time_report
from dcgs.bench.entries import ENTRIES, entry
from dcgs.bench.instances import INSTANCES, LARGE, QUICK, instance
from dcgs.bench.rounds import RoundsStudy, runs_left
from dcgs.bench.timing import LEVELS, POOL, run_times, times, times_left
from dcgs.cli.bench_study import (
    add_choices,
    chosen_by_name,
    drawing,
    rich_table,
    run_with_progress,
    with_outside,
)
from dcgs.cli.values import count, job, option, positive, seed
from dcgs.link import LINKS
from dcgs.study import ResultCache

_ABOUT = """\
Run every method once on every instance of a table, with one core for each agent. Print the seconds that
each needs over three links until the worst agent's relative error is 1e-2 and 1e-3, beside `pool`: all
data sent to one site over the same link, and a centralized solver there.
"""

_MORE = """\
Links: lan (1 Gbit/s, 0.2 ms a round), paper (10 MB/s, 1 ms), wan (100 Mbit/s, 20 ms). Runs are recorded as
by dcgs bench rounds, and a recorded run is not repeated. Times are processor time. They are only comparable
if the machine was otherwise idle: other processes compete for its memory.

examples:
  dcgs bench time --quick                              small problems, under a minute
  dcgs bench time --instances lasso-paper silo-10      these two
  dcgs bench time --methods FastDCGS --rerun           one method again, the rest as recorded
"""

_SECONDS, _QUICK_SECONDS, _PATIENCE = 20.0, 3.0, 20.0


def add(benches: Any) -> None:
    """Add the benchmark to ``dcgs bench``."""
    text = "seconds to an accuracy over three links, beside pooling: all methods on a table of instances"
    parser = job(benches, "time", text, _ABOUT, _MORE)
    add, switch = partial(option, parser), partial(parser.add_argument, action="store_true")
    add_choices(parser)
    switch("--quick", help="a few small instances instead of the table")
    switch("--rerun", help="repeat the chosen runs even if they are recorded")
    text = "time limit of each run (default: 20, more for the largest instances; 3 with --quick)"
    add("--seconds S", text, positive)
    text = "end a run that has taken N times the time of FastDCGS over each link (default: 20)"
    add("--patience N", text, positive, default=_PATIENCE)
    add("--seed N", "of data and graphs (default: 0)", seed, default=0)
    add("--jobs N", "processes, with one core each (default: 1)", count, default=1)
    add("--out DIR", "output (default: out/time; out/time-quick with --quick)", Path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    table = with_outside("instance", QUICK if args.quick else (*INSTANCES, *LARGE), args.instance, instance)
    methods = with_outside("method", ENTRIES, args.method, entry)
    instances = chosen_by_name("an instance", args.instances, table)
    entries = chosen_by_name("a method", args.methods, methods)
    out = args.out or Path("out/time-quick" if args.quick else "out/time")
    limit = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    study = RoundsStudy(ResultCache(out), args.seed, limit, args.jobs, min(LEVELS), args.patience)
    study.cache.check_writable()
    if args.rerun:
        for chosen in instances:
            for one in entries:
                study.cache.remove_run(chosen.file, one.file)
    notes: list[str] = []
    left = runs_left(study, instances, entries) + times_left(study, instances)
    if run_with_progress(
        lambda report: run_times(study, instances, entries, report), max(1, left), notes, console
    ):
        return 130
    recorded = [one for one in methods if any(study.has_trial(chosen, one) for chosen in table)]
    found = [times(study, table, recorded, level) for level in LEVELS]
    for each in found:
        if each.names not in ([], [POOL]):
            for name, link in LINKS.items():
                console.print(rich_table(time_report.time_table(each, name, link)))
            console.print(rich_table(time_report.counts_table(each)))
    for note in notes:
        console.print(note)
    study.cache.write_file("time.md", time_report.markdown(study, found, table, notes).encode())
    study.cache.write_file("time.json", time_report.as_json(study, found, table, notes).encode())
    study.cache.write_file("time.png", _picture(found))
    console.print(f"written: {out / 'time.md'}, time.json, time.png", soft_wrap=True)
    return 0


def _picture(found: list[Any]) -> bytes:
    with drawing():
        from dcgs.report.bench_figures import time_figure
        from dcgs.report.figures import encoded

        return encoded(time_figure(found[-1]), "png")
