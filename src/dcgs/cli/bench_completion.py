"""``dcgs bench completion``: matrix completion at real size."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.bench import completion, record
from dcgs.bench.memory import peak_memory
from dcgs.cli.bench_study import Rows, drawing, formatted_table, set_run_with_output
from dcgs.cli.values import count, fraction, job, option, positive, share
from dcgs.experiments.numbers import size
from dcgs.fitting.readers import EntriesLayout
from dcgs.fitting.readers.ratings import read_rated
from dcgs.study import alone

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
    option(parser, "--no-offsets", "no mean and no offsets first", bool)
    option(parser, "--seconds S", "the limit of a method (default: 120)", positive, default=120.0)
    option(parser, "--quick", "small data in one process, 2 s a method", bool)
    option(parser, "--seed", "of data and splits (default: 0)", int, default=0)
    option(parser, "--seeds N", "so many seeds, from --seed on; means are printed (default: 1)", count)
    option(parser, "--figure FILE", "draw how cost grows (.svg, .png or .pdf)", Path)
    set_run_with_output(parser, _run)


def _run(args: argparse.Namespace, console: Console) -> Rows:
    if args.quick:
        args.sets, args.ratings, args.seconds = ["synthetic", "growth"], 2000, min(args.seconds, 2.0)
    if args.figure is not None:
        if "growth" not in args.sets:
            raise ValueError("--figure draws how cost grows; add growth to --sets.")
        record.check_writable(args.figure)
        with drawing(before_runs=True):
            from dcgs.report.bench_figures import completion_growth_figure
            from dcgs.report.figures import save
    rows: Rows = []
    for data in args.sets:
        measure = {"growth": _growth, "reading": _reading}.get(data) or partial(_comparison, data)
        rows += measure(args, console)
    if args.figure is not None:
        figure = completion_growth_figure([row for row in rows if "grows" in row])
        console.print(f"written: {save(figure, args.figure)}")
    return rows


def _comparison(data: str, args: argparse.Namespace, console: Console) -> Rows:
    found: dict[str, Rows] = {}
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


def _table(data: str, found: Mapping[str, Rows]) -> Table:
    """Return a table with a row for each method: means over seeds."""
    first = next(iter(found.values()))
    rows, cols = first[0]["shape"]
    title = f"{data}: {first[0]['fitted']:,} ratings of a {rows} × {cols} matrix"
    title += f", means of {len(first)} seeds" if len(first) > 1 else ""
    means = [
        {"method": method, "memory": size(max(row["memory"] for row in some))}
        | {name: _mean(some, name) for name in ("cpu", "seconds", "rounds")}
        | {"sent": size(_mean(some, "bytes")), "rmse": _score(some, "rmse"), "pairs": _score(some, "pairs")}
        for method, some in found.items()
    ]
    columns = {
        "method": "{method}",
        "CPU s": "{cpu:.1f}",
        "s": "{seconds:.1f}",
        "rounds": "{rounds:.0f}",
        "sent by an agent": "{sent:}",
        "memory": "{memory:}",
        "RMSE": "{rmse:}",
        "pairs": "{pairs:}",
    }
    return formatted_table(title, columns, means)


def _mean(rows: Sequence[Mapping[str, Any]], name: str) -> float:
    return sum(float(row[name]) for row in rows) / len(rows)


def _score(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    return "–" if None in (row[name] for row in rows) else f"{_mean(rows, name):.4f}"


def _range(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence on the errors of several seeds."""
    errors = [row["rmse"] for row in rows]
    if len(errors) == 1 or None in errors:
        return []
    return [f"RMSE from {min(errors):.4f} to {max(errors):.4f}"]


def _reading(args: argparse.Namespace, console: Console) -> Rows:
    """Write synthetic ratings to a file of text, and read it in a process of its own."""
    sizes = completion.synthetic_size(args.ratings, args.rows, args.cols)
    case = completion.Case("synthetic", "", 1.0, 1.0, args.seed, **sizes)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ratings.csv"
        alone(_write, case, path)
        row = {"seed": args.seed, **sizes, **alone(_read, path)}
    console.print(
        f"reading {row['fitted']:,} lines, {size(row['file'])}: {row['cpu']:.1f} s of CPU, "
        f"{size(row['memory'])} of memory",
        soft_wrap=True,
    )
    return [row]


def _write(case: completion.Case, path: Path) -> None:
    """Write the ratings of a case as CSV, some at a time."""
    train, _ = completion.synthetic(case)
    with path.open("w") as file:
        file.write("user,item,rating\n")
        for start in range(0, len(train), 1 << 20):
            part = slice(start, start + (1 << 20))
            columns = (column[part].tolist() for column in (train.rows, train.cols, train.values))
            file.writelines(f"u{row},i{col},{value:.3f}\n" for row, col, value in zip(*columns, strict=True))


def _read(path: Path) -> dict[str, Any]:
    begin, cpu = time.perf_counter(), time.process_time()
    rated = read_rated(path, EntriesLayout())
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    return {
        "method": "reading a file of text",
        "fitted": len(rated),
        "shape": [len(rated.rows.ids), len(rated.cols.ids)],
        "file": path.stat().st_size,
        "seconds": seconds,
        "cpu": cpu,
        "memory": peak_memory(),
    }


def _measured(args: argparse.Namespace, case: completion.Case) -> dict[str, Any]:
    """Run a case in a process of its own, or in this one for a first look."""
    return completion.run(case) if args.quick else alone(completion.run, case)


def _growth(args: argparse.Namespace, console: Console) -> Rows:
    cases = completion.growth(args.quick, args.seconds, args.seed)
    rows = [{"grows": name, **_measured(args, case)} for name, case in cases]
    texts = {"grows": "{grows:}", "to": "{to:,}", "CPU s": "{cpu:.2f}"}
    texts |= {"sent by an agent": "{sent:}", "memory": "{memory:}"}
    shown = [
        row | {"to": row[row["grows"]], "sent": size(row["bytes"]), "memory": size(row["memory"])}
        for row in rows
    ]
    console.print(formatted_table("8 iterations of FastDCGS, one number at a time", texts, shown))
    return rows
