"""``dcgs bench completion``: matrix completion at real size."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.bench import completion, record
from dcgs.cli.values import count, job, option, positive
from dcgs.experiments.numbers import size

_ABOUT = """\
Measure time, rounds, bytes, memory and held-out error of matrix completion, each case in a process of its
own: FastDCGS, methods with dense matrices where they fit into memory, and baselines. All but the mean
fit the same offsets first.
"""
_MORE = """\
SETS are 100k and 1m (MovieLens, which must be there), synthetic, and growth: how the cost of 8 iterations
grows with ratings, rows, columns, rank and agents.

examples:
  dcgs bench completion --quick                            small synthetic data
  dcgs bench completion --sets 100k --out completion.json
  dcgs bench completion --sets synthetic --ratings 10000000 --methods FastDCGS
  dcgs bench completion --sets 100k --methods FastDCGS --radius 1e4 --no-offsets
  dcgs bench completion --sets growth --figure growth.svg
"""
_SETS = ("100k", "1m", "synthetic", "growth")


def add(benches: Any) -> None:
    """Add the benchmark to the command."""
    parser = job(benches, "completion", "matrix completion at real size", _ABOUT, _MORE)
    option(parser, "--sets SET", "which data (default: 100k)", nargs="+", choices=_SETS, default=["100k"])
    option(parser, "--methods METHOD", "only these (default: all that can run)", nargs="+")
    option(parser, "--ratings N", "of synthetic data (default: 100000)", count, default=100_000)
    option(parser, "--radius R", "of the nuclear norm (default: 500 for 100k, 3000 for 1m)", positive)
    parser.add_argument("--no-offsets", action="store_true", help="of FastDCGS: no mean and no offsets first")
    option(parser, "--seconds S", "the limit of a method (default: 120)", positive, default=120.0)
    parser.add_argument("--quick", action="store_true", help="small data in one process, 2 s a method")
    option(parser, "--seed", "of data and splits (default: 0)", int, default=0)
    option(parser, "--figure FILE", "draw how cost grows (.svg, .png or .pdf)", Path)
    option(parser, "--out FILE", "also write the numbers as JSON, with versions and machine", Path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    sets, ratings = (["synthetic", "growth"], 2000) if args.quick else (args.sets, args.ratings)
    args.seconds = min(args.seconds, 2.0) if args.quick else args.seconds
    if args.figure is not None and "growth" not in sets:
        raise ValueError("--figure draws how cost grows; add growth to --sets.")
    for path in (args.out, args.figure):
        if path is not None:
            record.check_writable(path)
    rows = []
    for data in sets:
        found = _growth(args, console) if data == "growth" else _comparison(args, data, ratings, console)
        rows += found
    if args.figure is not None:
        from dcgs.report.completion_figure import growth_figure
        from dcgs.report.figures import save

        console.print(f"written: {save(growth_figure([row for row in rows if 'grows' in row]), args.figure)}")
    if args.out is not None:
        console.print(f"written: {record.write(args.out, rows, args.seed)}")
    return 0


def _comparison(args: argparse.Namespace, data: str, ratings: int, console: Console) -> list[dict[str, Any]]:
    rows = []
    for case in completion.comparison(data, args.seconds, args.seed, ratings):
        if args.methods is None or case.method in args.methods:
            console.print(f"{data}: {case.method} …")
            chosen = replace(case, radius=args.radius or case.radius)
            rows.append(_measured(args, replace(chosen, ridge=None) if args.no_offsets else chosen))
    if not rows:
        raise ValueError(f"--methods must name methods that can run on {data}; got {args.methods}.")
    title = f"{data}: {rows[0]['fitted']:,} ratings of a {rows[0]['shape'][0]} × {rows[0]['shape'][1]} matrix"
    table = Table(title=title, title_justify="left")
    for name in ("method", "CPU s", "s", "rounds", "sent by an agent", "memory", "RMSE"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for row in rows:
        numbers = (f"{row['cpu']:.1f}", f"{row['seconds']:.1f}", str(row["rounds"]))
        table.add_row(row["method"], *numbers, size(row["bytes"]), size(row["memory"]), f"{row['rmse']:.4f}")
    console.print(table)
    for row in rows:
        if row["status"]:
            console.print(f"{row['method']}: {row['status']}", soft_wrap=True)
    return rows


def _measured(args: argparse.Namespace, case: completion.Case) -> dict[str, Any]:
    """Run a case in a process of its own, or in this one for a first look."""
    return completion.run(case) if args.quick else completion.run_alone(case)


def _growth(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    rows = []
    for name, case in completion.growth(args.quick, args.seconds, args.seed):
        rows.append({"grows": name, **_measured(args, case)})
    table = Table(title="8 iterations of FastDCGS, one number at a time", title_justify="left")
    for heading in ("grows", "to", "CPU s", "sent by an agent", "memory"):
        table.add_column(heading, justify="right")
    for row in rows:
        told = (row["grows"], f"{row[row['grows']]:,}", f"{row['cpu']:.2f}")
        table.add_row(*told, size(row["bytes"]), size(row["memory"]))
    console.print(table)
    return rows
