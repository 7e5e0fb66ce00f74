"""``dcgs bench``: benchmarks that measure counts, and ratios of times in one run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, final

from rich.console import Console

from dcgs.bench import dense_lasso, exchange, memory, step
from dcgs.cli import bench_completion, bench_faults, bench_growth, bench_robust, bench_rounds
from dcgs.cli.bench_study import Rows, formatted_table, set_run_with_output
from dcgs.cli.jobs import HELP
from dcgs.cli.values import count, job, option

_EXAMPLES = """\
examples:
  dcgs bench rounds --quick                     rounds that each method needs, on small problems
  dcgs bench faults --quick                     methods with lost messages and slow agents
  dcgs bench time --quick                       seconds that each method needs over three links
  dcgs bench robust --problems 100              random small problems
  dcgs bench growth --grows agents              from 10 to 3,000 agents
  dcgs bench step --repeats 9                   the median of nine measurements
  dcgs bench threads --threads 4                one thread against four
  dcgs bench threads --samples 500 --features 2000
  dcgs bench memory --out peak.json             also write the numbers to a file
  dcgs bench exchange --ranks 4                 four MPI processes
  dcgs bench checkpoint --every 5               a checkpoint after every five iterations
  dcgs bench completion --sets 100k             ratings: time, bytes, memory and held-out error
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
    """A benchmark: the function that measures, its options and their defaults, and its table."""

    name: str
    about: str
    measure: Callable[..., Rows]
    defaults: Mapping[str, int]
    title: str
    columns: Mapping[str, str]

    def run(self, args: argparse.Namespace, console: Console) -> Rows:
        """Measure, print the table and return its rows."""
        with console.status("measuring…"):
            rows = self.measure(**{name: getattr(args, name) for name in self.defaults}, seed=args.seed)
        console.print(formatted_table(self.title, self.columns, rows))
        return rows


_BENCHMARKS = (
    _Benchmark(
        "step",
        "the cost of one inner step over one adjoint product and one oracle call; at most 1.5 is wanted",
        step.measure,
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
        dense_lasso.threads_speedup,
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
        memory.measure,
        {},
        "peak memory beyond the data",
        {"case": "{case}", "method": "{method}", "points per agent": "{points:.1f}"},
    ),
    _Benchmark(
        "checkpoint",
        "the share of a run's time that checkpoints take; at most 0.05 is wanted",
        dense_lasso.checkpoint_share,
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
    about = "Measure ratios side by side in one run; absolute times cannot be compared."
    bench = job(jobs, "bench", HELP["bench"], about, _EXAMPLES)
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
    for module in (bench_rounds, bench_completion, bench_faults, bench_robust, bench_growth):
        module.add(benches)


def _add(
    benches: Any,
    name: str,
    bench: Callable[[argparse.Namespace, Console], Rows],
    about: str,
    defaults: Mapping[str, int],
) -> None:
    examples = "\n".join(line for line in _EXAMPLES.splitlines() if f"dcgs bench {name}" in line)
    sentence = about[0].upper() + about[1:] + "."
    parser = job(benches, name, about.replace("%", "%%"), sentence, f"examples:\n{examples}")
    for flag, default in defaults.items():
        metavar, what = _OPTIONS[flag]
        option(parser, f"--{flag} {metavar}", f"{what} (default: {default})", count, default=default)
    option(parser, "--seed", "of the data (default: 0)", int, default=0)
    set_run_with_output(parser, bench)


def _bench_exchange(args: argparse.Namespace, console: Console) -> Rows:
    console.print("measuring…")  # once, for a picture that moves would take a core away now and then
    rows = exchange.measure(args.ranks, args.repeats)
    *even, uneven = rows
    title = f"milliseconds of a round, {args.ranks} processes on a cycle, {uneven['cores']} cores"
    times = {"bare": "{bare:.2f}", "ours": "{ours:.2f}"}
    ratios = {"ours over bare": "{ratio:.2f}", "ours − bare": "{difference:.2f}"}
    console.print(formatted_table(title, {"case": "{message}"} | times | ratios, even))
    columns = {"case": "{times} × the work"} | {name: f"{{{name}:.1f}}" for name in ("ideal", "bare", "ours")}
    columns["ours over ideal"] = "{ratio:.2f}"
    console.print(formatted_table("one process with several times the work", columns, [uneven]))
    return rows
