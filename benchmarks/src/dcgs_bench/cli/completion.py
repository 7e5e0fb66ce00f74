"""``dcgs bench completion``: matrix completion at real size."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from rich.console import Console

from dcgs.cli.values import count, fraction, job, option, positive, share
from dcgs.report.numbers import size
from dcgs_bench import completion
from dcgs_bench.cli.common import Runner, add_folder, records_of
from dcgs_bench.completion import CompletionCase
from dcgs_bench.figures import completion_growth_figure
from dcgs_bench.study import Rows, TextTable, environment

_ABOUT = """\
Measure time, rounds, bytes, memory and held-out error of matrix completion, each case in a process of its
own: FastDCGS, methods with dense matrices where they fit into memory, the centralized optimum, and other
libraries where they are installed. All but the mean and scikit-surprise fit the same offsets first.
SETS are 100k and 1m (MovieLens), synthetic, reading (how long a file of synthetic ratings takes to read),
and growth: how the cost of 8 iterations grows with ratings, rows, columns, rank and agents.
"""
_MORE = """\
examples:
  dcgs bench completion --quick                            small synthetic data
  dcgs bench completion --sets 100k --methods FastDCGS 'centralized optimum' --seeds 5
  dcgs bench completion --sets synthetic --rows 1000000 --cols 100000 --radius 500 --methods FastDCGS
  dcgs bench completion --sets 100k --methods FastDCGS --radius 1e4 --no-offsets
  dcgs bench completion --sets reading --ratings 10000000
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
    option(parser, "--seeds N", "so many seeds, from --seed on; means are printed", count, default=1)
    add_folder(parser, "completion")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    if args.quick:
        args.sets, args.ratings, args.seconds = ["synthetic", "growth"], 2000, min(args.seconds, 2.0)
    cases = {data: _cases(data, args) for data in args.sets}
    runner = Runner(records_of(args, "completion"), None, console, [])
    tasks = {data: [completion.task(case, args.quick) for case in some] for data, some in cases.items()}
    if runner.run([lambda: [task for some in tasks.values() for task in some]], args.rerun):
        return 130
    found = {data: runner.rows(some) for data, some in tasks.items()}
    rows = {data: some for data, some in found.items() if some}  # data may be missing
    every = [row for some in rows.values() for row in some]
    ended = (f"{row['method']}: {row['status']}" for row in every if row["status"] and not row["grows"])
    runner.notes.extend(dict.fromkeys(ended))
    made = {"environment": environment(args.seed), "rows": every}
    figures = {"growth.png": completion_growth_figure(rows["growth"])} if "growth" in rows else {}
    runner.finish("completion", made, [_table(data, some) for data, some in rows.items()], figures)
    return 0


def _cases(data: str, args: argparse.Namespace) -> list[CompletionCase]:
    if data == "growth":
        return list(completion.growth(args.quick, args.seconds, args.seed))
    sizes = completion.synthetic_size(args.ratings, args.rows, args.cols)
    if data == "reading":
        return [CompletionCase("synthetic", completion.READING, 1.0, args.seconds, args.seed, **sizes)]
    given: dict[str, Any] = {"gap": args.gap, "held_out": args.held_out}
    given |= {"ridge": None} if args.no_offsets else {}
    given |= {} if args.radius is None else {"radius": args.radius}
    chosen = [
        replace(case, **given, seed=seed)
        for case in completion.comparison(data, args.seconds, args.seed, sizes)
        for seed in range(args.seed, args.seed + args.seeds)
        if args.methods is None or case.method in args.methods
    ]
    if not chosen:
        raise ValueError(f"--methods must name methods that can run on {data}; got {args.methods}.")
    return chosen


def _table(data: str, rows: Rows) -> TextTable:
    """Return a table with a row for each size that grew, or for each method: means over seeds."""
    if data == "growth":
        shown = [
            {**row} | {"to": row[row["grows"]], "sent": size(row["bytes"]), "memory": size(row["memory"])}
            for row in rows
        ]
        texts = {"grows": "{grows}", "to": "{to:,}", "CPU s": "{cpu:.2f}"}
        texts |= {"sent by an agent": "{sent}", "memory": "{memory}"}
        return TextTable.formatted("8 iterations of FastDCGS, one number at a time", texts, shown)
    by_method: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_method.setdefault(row["method"], []).append(row)
    means = []
    for method, some in by_method.items():
        mean = {name: fmean(row[name] for row in some) for name in ("cpu", "seconds", "rounds", "bytes")}
        scores = {name: [row[name] for row in some] for name in ("rmse", "pairs")}
        texts = {name: "–" if None in column else f"{fmean(column):.4f}" for name, column in scores.items()}
        memory = size(max(row["memory"] for row in some))
        means.append(mean | texts | {"method": method, "sent": size(mean["bytes"]), "memory": memory})
    columns = {"method": "{method}", "CPU s": "{cpu:.1f}", "s": "{seconds:.1f}", "rounds": "{rounds:.0f}"}
    columns |= {"sent by an agent": "{sent}", "memory": "{memory}", "RMSE": "{rmse}", "pairs": "{pairs}"}
    title = "{}: {:,} ratings of a {} × {} matrix".format(data, rows[0]["fitted"], *rows[0]["shape"])
    title += f", means of {len(some)} seeds" if len(some) > 1 else ""
    return TextTable.formatted(title, columns, means)
