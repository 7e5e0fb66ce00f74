"""``dcgs bench time``: seconds that each method needs to an accuracy over three links, beside pooling."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.bench import time_report
from dcgs.bench.instances import INSTANCES, LARGE
from dcgs.bench.rounds import RoundsStudy, runs_left
from dcgs.bench.timing import LEVELS, POOL, run_times, times, times_left
from dcgs.cli.bench_study import Choice, add_choices, print_tables, run_with_progress, write_results
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
    add = partial(option, parser)
    add_choices(parser)
    text = "time limit of each run (default: 20, more for the largest instances; 3 with --quick)"
    add("--seconds S", text, positive)
    text = "end a run that has taken N times the time of FastDCGS over each link (default: 20)"
    add("--patience N", text, positive, default=_PATIENCE)
    add("--seed N", "of data and graphs (default: 0)", seed, default=0)
    add("--jobs N", "processes, with one core each (default: 1)", count, default=1)
    add("--out DIR", "output (default: out/time; out/time-quick with --quick)", Path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    choice = Choice.of(args, (*INSTANCES, *LARGE))
    instances, entries, table = choice.instances, choice.entries, choice.table
    out = args.out or Path("out/time-quick" if args.quick else "out/time")
    limit = args.seconds or (_QUICK_SECONDS if args.quick else _SECONDS)
    study = RoundsStudy(ResultCache(out), args.seed, limit, args.jobs, min(LEVELS), args.patience)
    study.cache.check_writable()
    if args.rerun:
        choice.remove_runs(study.cache)
    notes: list[str] = []
    left = runs_left(study, instances, entries) + times_left(study, instances)
    if run_with_progress(partial(run_times, study, instances, entries), max(1, left), notes, console):
        return 130
    recorded = [one for one in choice.methods if any(study.has_trial(chosen, one) for chosen in table)]
    found = [times(study, table, recorded, level) for level in LEVELS]
    tables = [
        shown
        for each in found
        if each.names not in ([], [POOL])
        for shown in (
            *(time_report.time_table(each, *named) for named in LINKS.items()),
            time_report.counts_table(each),
        )
    ]
    print_tables(tables, notes, console)
    texts = {
        "time.md": time_report.markdown(study, found, table, notes),
        "time.json": time_report.as_json(study, found, table, notes),
    }
    write_results(study.cache, texts, ("time.png", "time_figure", found[-1]), console)
    return 0
