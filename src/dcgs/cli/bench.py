"""``dcgs bench``: ratios measured side by side in one run."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from threadpoolctl import threadpool_limits

from dcgs.bench import checkpoint, exchange, memory, record, step, threads
from dcgs.cli import bench_rounds
from dcgs.cli.values import count

Rows = list[dict[str, Any]]


def add(jobs: Any) -> None:
    """Add the job to the command."""
    bench = jobs.add_parser(
        "bench",
        help="measure ratios side by side in one run",
        description="Measure ratios side by side in one run; no absolute time is worth comparing.",
    )
    benches = bench.add_subparsers(title="benchmarks", required=True, metavar="BENCHMARK")

    one = _add(
        benches,
        "step",
        _bench_step,
        "the cost of one inner step over one adjoint product and one oracle call; at most 1.5 is wanted",
    )
    one.add_argument("--repeats", type=count, default=5, metavar="N", help="median of N (default: 5)")

    many = _add(
        benches, "threads", _bench_threads, "one run on one thread and on several, in turns; equal to the bit"
    )
    many.add_argument("--threads", type=count, default=2, metavar="N", help="threads (default: 2)")
    many.add_argument("--repeats", type=count, default=3, metavar="N", help="median of N (default: 3)")
    many.add_argument("--samples", type=count, default=2000, metavar="N", help="rows in all (default: 2000)")
    many.add_argument("--features", type=count, default=10_000, metavar="D", help="columns (default: 10000)")

    _add(benches, "memory", _bench_memory, "peak memory of a run beyond its data; at most 12 points an agent")

    over = _add(
        benches,
        "exchange",
        _bench_exchange,
        "a round over MPI beside the bare exchange of the same bytes; starts the processes by itself",
    )
    over.add_argument("--ranks", type=count, default=10, metavar="N", help="processes (default: 10)")
    over.add_argument("--repeats", type=count, default=9, metavar="N", help="median of N (default: 9)")
    kept = _add(
        benches,
        "checkpoint",
        _bench_checkpoint,
        "the share of a run's time that checkpoints take; at most 5 % is wanted",
    )
    kept.add_argument("--every", type=count, default=10, metavar="K", help="iterations (default: 10)")
    kept.add_argument("--iterations", type=count, default=30, metavar="N", help="in all (default: 30)")
    kept.add_argument("--samples", type=count, default=2000, metavar="N", help="rows in all (default: 2000)")
    kept.add_argument("--features", type=count, default=10_000, metavar="D", help="columns (default: 10000)")

    bench_rounds.add(benches)


def _add(
    benches: Any, name: str, bench: Callable[[argparse.Namespace, Console], Rows], about: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = benches.add_parser(
        name, help=about, description=about.capitalize() + "."
    )
    parser.add_argument("--seed", type=int, default=0, help="of the data (default: 0)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="also write the numbers as JSON, with versions and machine"
    )

    def run(args: argparse.Namespace, console: Console) -> int:
        if args.out is not None:
            record.check(args.out)
        rows = bench(args, console)
        if args.out is not None:
            console.print(f"written: {record.write(args.out, rows, args.seed)}")
        return 0

    parser.set_defaults(run=run)
    return parser


def _bench_step(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    table = Table("case", "solver", title="one inner step over its unavoidable parts", title_justify="left")
    for name in ("step ms", "adjoint ms", "oracle ms", "ratio"):
        table.add_column(name, justify="right")
    rows = []
    with threadpool_limits(1, user_api="blas"), console.status("measuring…"):
        for case in step.cases(args.seed):
            for inner in step.solvers(case):
                cost = step.measure(case, inner, args.repeats)
                times = (f"{t:.3f}" for t in (cost.step, cost.adjoint, cost.oracle))
                table.add_row(cost.case, cost.solver, *times, f"{cost.ratio:.2f}")
                rows.append(asdict(cost) | {"ratio": cost.ratio})
    console.print(table)
    return rows


def _bench_threads(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    size = threads.Size(samples=args.samples, features=args.features)
    with console.status("measuring…"):
        speedup = threads.measure(size, args.threads, args.repeats, args.seed)
    table = Table("case", title="one thread against several, in turns", title_justify="left")
    for name in ("1 thread, s", f"{speedup.threads} threads, s", "times as fast", "equal to the bit"):
        table.add_column(name, justify="right")
    equal = "yes" if speedup.equal else "NO"
    table.add_row(speedup.case, f"{speedup.one:.2f}", f"{speedup.several:.2f}", f"{speedup.ratio:.2f}", equal)
    console.print(table)
    return [asdict(speedup) | {"ratio": speedup.ratio}]


def _bench_checkpoint(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    size = checkpoint.Size(samples=args.samples, features=args.features, iterations=args.iterations)
    with console.status("measuring…"):
        cost = checkpoint.measure(size, args.every, args.seed)
    table = Table("case", title="what checkpoints take of a run", title_justify="left")
    for name in ("every", "run, s", "checkpoints, s", "share", "MB each", "resumed equal to the bit"):
        table.add_column(name, justify="right")
    equal = "yes" if cost.equal else "NO"
    times = (f"{cost.seconds:.2f}", f"{cost.writing:.2f}", f"{cost.share:.1%}")
    table.add_row(cost.case, str(cost.every), *times, f"{1e-6 * cost.bytes:.1f}", equal)
    console.print(table)
    return [asdict(cost) | {"share": cost.share}]


def _bench_memory(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    with console.status("measuring…"):
        peaks = memory.measure(args.seed)
    table = Table("case", "method", title="peak memory beyond the data", title_justify="left")
    table.add_column("points per agent", justify="right")
    for peak in peaks:
        table.add_row(peak.case, peak.method, f"{peak.points:.1f}")
    console.print(table)
    return [asdict(peak) for peak in peaks]


def _bench_exchange(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    console.print("measuring…")  # once, for a picture that moves would take a core away now and then
    rows = exchange.measure(args.ranks, args.repeats)
    title = f"milliseconds of a round, {args.ranks} processes on a cycle, {rows[0]['cores']} cores"
    table = Table("case", title=title, title_justify="left")
    for name in ("bare", "ours", "ours over bare", "ours − bare"):
        table.add_column(name, justify="right")
    *messages, uneven = rows
    for row in messages:
        times = (f"{row[name]:.2f}" for name in ("bare", "ours"))
        table.add_row(row["message"], *times, f"{row['ratio']:.2f}", f"{row['ours'] - row['bare']:.2f}")
    console.print(table)
    table = Table("case", title="one process with several times the work", title_justify="left")
    for name in ("ideal", "bare", "ours", "ours over ideal"):
        table.add_column(name, justify="right")
    times = (f"{uneven[name]:.1f}" for name in ("ideal", "bare", "ours"))
    table.add_row(f"{uneven['times']} × the work", *times, f"{uneven['ratio']:.2f}")
    console.print(table)
    return rows
