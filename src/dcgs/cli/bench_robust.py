"""``dcgs bench robust``: the share of random small problems that are certified within some seconds."""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

from rich.console import Console

from dcgs.bench import robust
from dcgs.cli.bench_study import Rows, print_tables, set_run_with_output
from dcgs.cli.values import count, job, option, positive, seed
from dcgs.parallel import cores
from dcgs.report import Progress

_ABOUT = """\
Run FastDCGS with default settings on random small problems: all sets and losses, 2 to 12 agents, at most
tens of unknowns, data of all scales. Print the share that is certified to a gap of 1e-3 in time, by set,
loss and graph, and how the other runs ended.
"""

_MORE = """\
examples:
  dcgs bench robust                             300 problems
  dcgs bench robust --problems 2000 --jobs 2 --out robust.json
  dcgs bench robust --only 17                   one problem, by its seed
"""


def add(benches: Any) -> None:
    """Add the benchmark to ``dcgs bench``."""
    text = "random small problems: the share that is certified within some seconds"
    parser = job(benches, "robust", text, _ABOUT, _MORE)
    add = partial(option, parser)
    add("--problems N", "how many (default: 300)", count, default=300)
    add("--seed N", "the first of the seeds of problems (default: 0)", seed, default=0)
    add("--only SEED", "only the problems of these seeds", seed, nargs="+")
    add("--seconds S", "processor seconds that a run may take (default: 5)", positive, default=5.0)
    add("--limit S", "wall-clock limit of each run (default: the same)", positive)
    add("--jobs N", "processes (default: the available cores)", count)
    set_run_with_output(parser, _run)


def _run(args: argparse.Namespace, console: Console) -> Rows:
    seeds = args.only or range(args.seed, args.seed + args.problems)
    rows = []
    with Progress(console) as progress:
        advance = progress.counter("problems", len(seeds))
        for row in robust.measure(seeds, args.limit or args.seconds, args.jobs or cores()):
            rows.append(row)
            advance()
    rows.sort(key=lambda row: row["seed"])
    for row in rows:
        if args.only or not robust.is_good(row, args.seconds):
            took = f"{row['rounds']} rounds and {row['seconds']:.1f} s"
            console.print(f"seed {row['seed']}: {row['status']} after {took}, {row['about']}", soft_wrap=True)
    parts = ("set", "loss", "graph")
    print_tables((robust.share_table(rows, part, args.seconds) for part in parts), (), console)
    return rows
