"""``dcgs bench faults``: every method with lost messages, sleeping agents and slow machines."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.bench import faults_report, slow_agent
from dcgs.bench.entries import ENTRIES
from dcgs.bench.faults import CONDITIONS, Condition, FaultStudy, FaultTable, run_study
from dcgs.bench.instances import INSTANCES, QUICK
from dcgs.cli.bench_study import chosen_by_name, print_tables, run_with_progress, write_results
from dcgs.cli.values import count, job, option, positive, seed
from dcgs.parallel import cores
from dcgs.study import ResultCache

_ABOUT = """\
Run every method under every fault: messages that are lost or late, agents that sleep, edges that come and
go, an agent that is slower than the others. Print rounds, bytes and simulated seconds until the worst
agent's relative error is 1e-2 and 1e-3, and what becomes of the methods that do not get there.
"""

_MORE = """\
The folder gets faults.md, faults.json and faults.png, and a record of every run in trials/. A recorded run
is not repeated: the same command continues where it was interrupted.

examples:
  dcgs bench faults --quick                                    a small problem, under a minute
  dcgs bench faults --list                                     faults by name
  dcgs bench faults --instances lasso-cycle-10                 all methods on this instance
  dcgs bench faults --methods FastDCGS --seeds 10 --instances lasso-cycle-10 noisy-grid-6x6
  dcgs bench faults --mpi 10                                   a slow agent over MPI, with and without waiting
"""
_DEFAULT = ("lasso-cycle-10",)
_QUICK = QUICK[1]


def add(benches: Any) -> None:
    """Add the benchmark to ``dcgs bench``."""
    text = "rounds, bytes and simulated seconds under faults: all methods"
    parser = job(benches, "faults", text, _ABOUT, _MORE)
    add = partial(option, parser)
    add("--instances NAME", f"of dcgs bench rounds (default: {' '.join(_DEFAULT)})", nargs="+")
    add("--methods NAME", "which methods (default: all)", nargs="+")
    add("--faults NAME", "which faults (default: all)", nargs="+")
    add("--list", "print the names of all faults, and end", bool)
    add("--quick", "a small instance and few rounds", bool)
    add("--mpi N", "instead: one slow agent among N processes, with and without waiting", count)
    add("--seeds N", "of data and faults (default: 1)", count, default=1)
    add("--seed N", "the first of them (default: 0)", seed, default=0)
    add("--rounds N", "limit of each run (default: 1000; 150 with --quick)", count)
    add("--seconds S", "limit of each run (default: 60)", positive, default=60.0)
    add("--jobs N", "processes (default: the available cores)", count)
    add("--out DIR", "output (default: out/faults; out/faults-quick with --quick)", Path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    if args.list:
        for condition in CONDITIONS:
            console.print(f"{condition.name:10} {condition.about}")
        return 0
    if args.mpi is not None:
        console.print(slow_agent.sentence(slow_agent.measure(args.mpi, args.seed)))
        return 0
    names = args.instances or (None if args.quick else _DEFAULT)
    instances = chosen_by_name("an instance", names, [_QUICK] if args.quick else INSTANCES)
    entries = chosen_by_name("a method", args.methods, ENTRIES)
    conditions = _conditions(args.faults)
    out = args.out or Path("out/faults-quick" if args.quick else "out/faults")
    seeds = range(args.seed, args.seed + args.seeds)
    rounds = args.rounds or (150 if args.quick else 1000)
    study = FaultStudy(ResultCache(out), seeds, rounds, args.seconds, args.jobs or cores())
    study.cache.check_writable()
    table = FaultTable(study, instances, entries, conditions)
    notes: list[str] = []
    left = len(table.missing_optima()) + len(table.missing_runs())
    if run_with_progress(partial(run_study, table), left, notes, console):
        return 130
    own = (faults_report.instance_table, faults_report.summary_table)
    tables = [each(table, chosen) for chosen in instances for each in own]
    print_tables([*tables, faults_report.ratio_table(table)], notes, console)
    texts = {
        "faults.md": faults_report.markdown(table, notes),
        "faults.json": faults_report.as_json(table),
    }
    write_results(study.cache, texts, ("faults.png", "faults_figure", table), console)
    return 0


def _conditions(names: list[str] | None) -> list[Condition]:
    known = [condition.name for condition in CONDITIONS]
    unknown = [name for name in names or () if name not in known]
    if unknown:
        raise ValueError(f"a fault must be one of {', '.join(known)}; got {', '.join(unknown)}.")
    return [condition for condition in CONDITIONS if names is None or condition.name in names]
