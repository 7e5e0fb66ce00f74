"""``dcgs bench completion``: matrix completion at real size."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.bench import completion, record
from dcgs.cli import bench_completion_reading
from dcgs.cli.bench_study import drawing
from dcgs.cli.values import count, fraction, job, option, positive, share
from dcgs.experiments.numbers import size

_ABOUT = """\
Measure time, rounds, bytes, memory and held-out error of matrix completion, each case in a process of its
own: FastDCGS, methods with dense matrices where they fit into memory, the centralized optimum, and other
libraries where they are installed. All but the mean and scikit-surprise fit the same offsets first.
"""
_MORE = """\
SETS are 100k and 1m (MovieLens, which must be there), synthetic, reading (how long a file of synthetic
ratings takes to read), and growth: how the cost of 8 iterations grows with ratings, rows, columns, rank
and agents.

"pairs" is the share of pairs of held-out ratings of one user that are predicted in their order.
"ProjectedAGD, derived" is not run: it counts the iterations of the centralized method and the dense messages
that agents would send. implicit is for likes: its scores are mapped to ratings by a line.

examples:
  dcgs bench completion --quick                            small synthetic data
  dcgs bench completion --sets 100k --seconds 600 --out completion.json
  dcgs bench completion --sets 100k --methods FastDCGS 'centralized optimum' --seeds 5
  dcgs bench completion --sets synthetic --ratings 10000000 --methods FastDCGS
  dcgs bench completion --sets synthetic --rows 1000000 --cols 100000 --radius 500 --methods FastDCGS
  dcgs bench completion --sets 100k --methods FastDCGS --radius 1e4 --no-offsets
  dcgs bench completion --sets reading --ratings 10000000
  dcgs bench completion --sets growth --figure growth.svg
"""
_SCORES = ("rmse", "pairs")
_SETS = ("100k", "1m", "synthetic", "reading", "growth")


def add(benches: Any) -> None:
    """Add the benchmark to the command."""
    parser = job(benches, "completion", "matrix completion at real size", _ABOUT, _MORE)
    option(parser, "--sets SET", "which data (default: 100k)", nargs="+", choices=_SETS, default=["100k"])
    option(parser, "--methods METHOD", "only these (default: all that can run)", nargs="+")
    option(parser, "--ratings N", "of synthetic data (default: 100000)", count, default=100_000)
    text = "of synthetic data (default: as dense as 10⁷ ratings of a 70,000 × 10,000 matrix)"
    option(parser, "--rows N", text, count)
    option(parser, "--cols N", text, count)
    text = "of the nuclear norm (default: 500 for 100k, 3000 for 1m, a fifth of the true one for synthetic)"
    option(parser, "--radius R", text, positive)
    option(parser, "--gap G", "at which methods stop (default: 1e-3)", fraction, default=completion.GAP)
    text = "of MovieLens (default: 0.2; 0: fit to all ratings, and judge nothing)"
    option(parser, "--held-out SHARE", text, share, default=0.2)
    parser.add_argument("--no-offsets", action="store_true", help="no mean and no offsets first")
    option(parser, "--seconds S", "the limit of a method (default: 120)", positive, default=120.0)
    parser.add_argument("--quick", action="store_true", help="small data in one process, 2 s a method")
    option(parser, "--seed", "of data and splits (default: 0)", int, default=0)
    option(parser, "--seeds N", "so many seeds, from --seed on; means are printed (default: 1)", count)
    option(parser, "--figure FILE", "draw how cost grows (.svg, .png or .pdf)", Path)
    option(parser, "--out FILE", "also write the numbers as JSON, with versions and machine", Path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    if args.quick:
        args.sets, args.ratings, args.seconds = ["synthetic", "growth"], 2000, min(args.seconds, 2.0)
    if args.figure is not None and "growth" not in args.sets:
        raise ValueError("--figure draws how cost grows; add growth to --sets.")
    for path in (args.out, args.figure):
        if path is not None:
            record.check_writable(path)
    draw = _figure_writer() if args.figure is not None else None  # what it needs is missed before the runs
    rows: list[dict[str, Any]] = []
    for data in args.sets:
        if data == "growth":
            rows += _growth(args, console)
        else:
            rows += _reading(args, console) if data == "reading" else _comparison(args, data, console)
    if args.out is not None:
        console.print(f"written: {record.write(args.out, rows, args.seed)}")
    if draw is not None:
        console.print(f"written: {draw([row for row in rows if 'grows' in row], args.figure)}")
    return 0


def _figure_writer() -> Callable[[Sequence[Mapping[str, Any]], Path], Path]:
    """Return the function that writes the figure; raise if matplotlib is not installed."""
    with drawing(before_runs=True):
        from dcgs.report.completion_figure import growth_figure
        from dcgs.report.figures import save
    return lambda rows, path: save(growth_figure(rows), path)


def _comparison(args: argparse.Namespace, data: str, console: Console) -> list[dict[str, Any]]:
    found: dict[str, list[dict[str, Any]]] = {}
    size_of_data = completion.synthetic_size(args.ratings, args.rows, args.cols)
    for case in completion.comparison(data, args.seconds, args.seed, size_of_data):
        if args.methods is None or case.method in args.methods:
            console.print(f"{data}: {case.method} …")
            chosen = replace(
                case,
                radius=args.radius or case.radius,
                ridge=None if args.no_offsets else case.ridge,
                gap=args.gap,
                held_out=args.held_out,
            )
            seeds = range(args.seed, args.seed + (args.seeds or 1))
            found[case.method] = [_measured(args, replace(chosen, seed=seed)) for seed in seeds]
    if not found:
        raise ValueError(f"--methods must name methods that can run on {data}; got {args.methods}.")
    console.print(_table(data, found))
    for method, rows in found.items():
        for text in dict.fromkeys([*_range(rows), *(row["status"] for row in rows if row["status"])]):
            console.print(f"{method}: {text}", soft_wrap=True)
    return [row for rows in found.values() for row in rows]


def _table(data: str, found: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    """Return a table with a row for each method: means over seeds."""
    first = next(iter(found.values()))
    rows, cols = first[0]["shape"]
    title = f"{data}: {first[0]['fitted']:,} ratings of a {rows} × {cols} matrix"
    title += f", means of {len(first)} seeds" if len(first) > 1 else ""
    table = Table(title=title, title_justify="left")
    for name in ("method", "CPU s", "s", "rounds", "sent by an agent", "memory", "RMSE", "pairs"):
        table.add_column(name, justify="left" if name == "method" else "right")
    for method, some in found.items():
        cpu, seconds, rounds, sent = (_mean(some, name) for name in ("cpu", "seconds", "rounds", "bytes"))
        memory = size(max(row["memory"] for row in some))
        costs = (f"{cpu:.1f}", f"{seconds:.1f}", f"{rounds:.0f}", size(sent), memory)
        judged = (
            "–" if None in (row[name] for row in some) else f"{_mean(some, name):.4f}" for name in _SCORES
        )
        table.add_row(method, *costs, *judged)
    return table


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(float(row[name]) for row in rows) / len(rows)


def _range(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on the errors of several seeds."""
    errors = [row["rmse"] for row in rows]
    if len(errors) == 1 or None in errors:
        return []
    return [f"RMSE from {min(errors):.4f} to {max(errors):.4f}"]


def _reading(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    row = bench_completion_reading.measure(
        completion.synthetic_size(args.ratings, args.rows, args.cols), args.seed
    )
    console.print(
        f"reading {row['fitted']:,} lines, {size(row['file'])}: {row['cpu']:.1f} s of CPU, "
        f"{size(row['memory'])} of memory",
        soft_wrap=True,
    )
    return [row]


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
