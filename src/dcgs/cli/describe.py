"""``dcgs describe``: table one of all sites, before a fit."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict
from functools import partial
from typing import Any

from rich.console import Console

from dcgs.cli import command_errors
from dcgs.cli.fit_options import add_text_options, text_format
from dcgs.cli.jobs import HELP
from dcgs.cli.values import count, job, names, option, path
from dcgs.files import write_through
from dcgs.learn.files.graphs import NAMED, GraphSpec
from dcgs.learn.files.layout import SamplesLayout
from dcgs.learn.files.source import DataSource, option_text
from dcgs.learn.files.table_one import TableSpec, describe_files
from dcgs.report.numbers import screen_table, size
from dcgs.runtime import MPI, Lockstep, Runtime, started_by_mpi

_ABOUT = """\
Print what each site has in each column: rows, missing values, mean and deviation, or how often a level
occurs; and what may be a mistake, such as another unit at one site. Run it before dcgs fit.
"""

_MORE = """\
Data are read as by dcgs fit. Every site sends its counts, means and deviations, and no row. A count of
fewer than --min-count rows is suppressed, as is a number from which it would follow; such a level is among
the other levels. Words of columns with more than 100 levels are never sent.

examples:
  dcgs describe --data 'hospital-{agent}.csv'
  dcgs describe --data 'hospital-{agent}.csv' --target ill --name ulm,graz,bern,linz --out table.json
  mpiexec -n 3 dcgs describe --data 'hospital-{rank}.csv'
"""


def add(jobs: Any) -> None:
    """Add the job to the command."""
    parser = job(jobs, "describe", HELP["describe"], _ABOUT, _MORE)
    add = partial(option, parser)
    add("--data DATA", "a file, or a name with {agent} in it, as for dcgs fit", required=True)
    add("--target COLUMN", "the column to predict: copies of it are noted")
    add("--use COLUMN", "the only columns to describe (default: all)", nargs="+", action="extend")
    add("--drop COLUMN", "columns to leave out", nargs="+", action="extend", default=[])
    text = "columns of numbers that are categories"
    add("--categorical COLUMN", text, nargs="+", action="extend", default=[])
    add_text_options(parser)
    add("--agents M", "how many (default: as many as files or nodes)", count)
    add("--graph GRAPH", f"{NAMED}; or a file of edges, or .graphml (default: complete)", default="complete")
    text = "the site's name; in one process those of all agents, by commas (default: agent 0, …)"
    add("--name NAME", text, names)
    add("--min-count N", "the least count that a site sends (default: 10)", count, default=10)
    add("--out FILE", "write the tables as JSON", path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    runtime: Runtime = MPI() if started_by_mpi() else Lockstep()
    group = runtime.group()
    with command_errors(group, None), group.reporting_failures():
        table, network = describe_files(_spec(args), runtime)
        sent = network.sent_by_all()
    if not group.is_root:
        return 0
    for part in table.tables():
        console.print(screen_table(part))
    legend = (
        "of numbers mean ± deviation, of levels count (share of rows); suppressed: a number of less than "
    )
    console.print(f"{legend}{table.floor}, or one from which such a number would follow", soft_wrap=True)
    notes = list(table.notes())
    for note in notes:
        console.print(f"note: {note}", soft_wrap=True)
    rounds, sent_bytes = sum(entry.rounds for entry in sent), sum(entry.bytes for entry in sent)
    console.print(f"{rounds} rounds, {size(sent_bytes)}")
    if args.out is not None:
        content = {"min_count": table.floor, "sites": list(map(asdict, table.sites)), "notes": notes}
        write_through(args.out, (json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode())
        console.print(f"written: {args.out}", soft_wrap=True)
    return 0


def _spec(args: argparse.Namespace) -> TableSpec:
    use = None if args.use is None else tuple(args.use)
    flags = ("target", "use", "drop", "categorical")
    options = {f"--{flag}": option_text(getattr(args, flag)) for flag in flags}
    layout = SamplesLayout(args.target, args.header, use=use, drop=tuple(args.drop), text=text_format(args))
    return TableSpec(
        DataSource(args.data, names=args.name or ()),
        layout,
        GraphSpec(args.graph, 0),
        args.agents,
        tuple(args.categorical),
        args.min_count,
        {"JOB": "'describe'", **options},
    )
