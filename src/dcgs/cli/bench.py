"""``dcgs bench``: benchmarks that measure counts, and ratios of times in one run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, final

from rich.console import Console
from rich.table import Table

from dcgs.bench import checkpoint, exchange, memory, record, step, threads
from dcgs.cli import bench_rounds
from dcgs.cli.values import count

Rows = list[dict[str, Any]]

_EXAMPLES = """\
examples:
  dcgs bench rounds --quick                     rounds that each method needs, on small problems
  dcgs bench step --repeats 9                   the median of nine measurements
  dcgs bench threads --threads 4                one thread against four
  dcgs bench threads --samples 500 --features 2000
  dcgs bench memory --out peak.json             also write the numbers to a file
  dcgs bench exchange --ranks 4                 four MPI processes
  dcgs bench checkpoint --every 5               a checkpoint after every five iterations
"""
# Whole-number options: the metavar and what the number is.
_OPTIONS = {
    "repeats": ("N", "median of N"),
    "threads": ("N", "threads"),
    "samples": ("N", "rows in all"),
    "features": ("D", "columns"),
    "every": ("K", "iterations between two checkpoints"),
    "iterations": ("N", "iterations in all"),
    "ranks": ("N", "processes"),
}


@final
@dataclass(frozen=True)
class _Benchmark:
    """A benchmark: the module that has ``measure``, its options and their defaults, and its table."""

    name: str
    about: str
    module: ModuleType
    defaults: Mapping[str, int]
    title: str
    columns: Mapping[str, str]

    def run(self, args: argparse.Namespace, console: Console) -> Rows:
        """Measure, print the table and return its rows."""
        with console.status("measuring…"):
            rows: Rows = self.module.measure(
                **{name: getattr(args, name) for name in self.defaults}, seed=args.seed
            )
        table = Table(title=self.title, title_justify="left")
        for name, form in self.columns.items():
            table.add_column(name.format_map(rows[0]), justify="right" if ":" in form else "left")
        for row in rows:
            shown = {name: _yes_or_no(value) for name, value in row.items()}
            table.add_row(*(form.format_map(shown) for form in self.columns.values()))
        console.print(table)
        return rows


_BENCHMARKS = (
    _Benchmark(
        "step",
        "the cost of one inner step over one adjoint product and one oracle call; at most 1.5 is wanted",
        step,
        {"repeats": 5},
        "one inner step over its unavoidable parts",
        {
            "case": "{case}",
            "solver": "{solver}",
            "step ms": "{step:.3f}",
            "adjoint ms": "{adjoint:.3f}",
            "oracle ms": "{oracle:.3f}",
            "ratio": "{ratio:.2f}",
        },
    ),
    _Benchmark(
        "threads",
        "one run on one thread and on several, in turns; equal to the bit",
        threads,
        {"threads": 2, "repeats": 3, "samples": 2000, "features": 10_000},
        "one thread against several, in turns",
        {
            "case": "{case}",
            "1 thread, s": "{one:.2f}",
            "{threads} threads, s": "{several:.2f}",
            "times as fast": "{ratio:.2f}",
            "equal to the bit": "{equal:}",
        },
    ),
    _Benchmark(
        "memory",
        "peak memory of a run beyond its data; at most 12 points an agent",
        memory,
        {},
        "peak memory beyond the data",
        {"case": "{case}", "method": "{method}", "points per agent": "{points:.1f}"},
    ),
    _Benchmark(
        "checkpoint",
        "the share of a run's time that checkpoints take; at most 0.05 is wanted",
        checkpoint,
        {"every": 10, "iterations": 30, "samples": 2000, "features": 10_000},
        "what checkpoints take of a run",
        {
            "case": "{case}",
            "every": "{every:}",
            "run, s": "{seconds:.2f}",
            "checkpoints, s": "{writing:.2f}",
            "share": "{share:.1%}",
            "bytes each": "{bytes:,}",
            "resumed equal to the bit": "{equal:}",
        },
    ),
)


def add(jobs: Any) -> None:
    """Add the job to the command."""
    bench = jobs.add_parser(
        "bench",
        help="measure counts and ratios of times",
        description="Measure counts, and ratios of times in one run; times depend on the machine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    benches = bench.add_subparsers(title="benchmarks", required=True, metavar="BENCHMARK")
    for one in _BENCHMARKS:
        _add(benches, one.name, one.run, one.about, one.defaults)
    _add(
        benches,
        "exchange",
        _bench_exchange,
        "a round over MPI beside the bare exchange of the same bytes; starts the processes by itself",
        {"ranks": 10, "repeats": 9},
    )
    bench_rounds.add(benches)


def _add(
    benches: Any,
    name: str,
    bench: Callable[[argparse.Namespace, Console], Rows],
    about: str,
    defaults: Mapping[str, int],
) -> None:
    examples = "\n".join(line for line in _EXAMPLES.splitlines() if f"dcgs bench {name}" in line)
    parser = benches.add_parser(
        name,
        help=about.replace("%", "%%"),
        description=about[0].upper() + about[1:] + ".",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    for option, default in defaults.items():
        metavar, what = _OPTIONS[option]
        parser.add_argument(
            f"--{option}", type=count, default=default, metavar=metavar, help=f"{what} (default: {default})"
        )
    parser.add_argument("--seed", type=int, default=0, help="of the data (default: 0)")
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="also write the numbers as JSON, with versions and machine"
    )

    def run(args: argparse.Namespace, console: Console) -> int:
        if args.out is not None:
            record.check_writable(args.out)
        rows = bench(args, console)
        if args.out is not None:
            console.print(f"written: {record.write(args.out, rows, args.seed)}")
        return 0

    parser.set_defaults(run=run)


def _yes_or_no(value: Any) -> Any:
    return ("yes" if value else "NO") if isinstance(value, bool) else value


def _bench_exchange(args: argparse.Namespace, console: Console) -> list[dict[str, Any]]:
    console.print("measuring…")  # printed once: an animation would use a core during the measurement
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
