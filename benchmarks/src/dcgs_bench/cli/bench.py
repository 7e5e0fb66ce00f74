"""``dcgs bench``: benchmarks that measure counts, and ratios of times in one run."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

from rich.console import Console

from dcgs.cli.values import count, job, option, positive, seed
from dcgs_bench import growth, measurements, over_mpi
from dcgs_bench.cli import completion, grids
from dcgs_bench.cli.common import Runner, add_folder, records_of, show
from dcgs_bench.figures import growth_figure
from dcgs_bench.jobs import BENCH
from dcgs_bench.study import Records, TextTable, as_json, environment

_EXAMPLES = """\
examples:
  dcgs bench rounds --quick                     rounds that each method needs, on small problems
  dcgs bench faults --quick                     methods with lost messages and slow agents
  dcgs bench time --quick                       seconds that each method needs over three links
  dcgs bench step --repeats 9                   the median of nine measurements
  dcgs bench threads --threads 4                one thread against four
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
class _Measurement:
    """A benchmark of a few numbers: the function that measures, its options and defaults, and its tables.

    The tables are columns by title; each has the rows that have all its values.
    """

    name: str
    about: str
    measure: Callable[..., list[dict[str, Any]]]
    defaults: Mapping[str, int]
    tables: Mapping[str, Mapping[str, str]]

    def run(self, args: argparse.Namespace, console: Console) -> int:
        """Measure, print the tables, and write all rows to a file if one is named."""
        if args.out is not None:
            Records(args.out.parent).check_writable()
        console.print("measuring…")  # once: a picture that moves would take a core away now and then
        rows = self.measure(**{name: getattr(args, name) for name in self.defaults}, seed=args.seed)
        for title, columns in self.tables.items():
            show(console, TextTable.formatted(title, columns, rows))
        if args.out is not None:
            made = {"environment": environment(args.seed), "rows": rows}
            Records(args.out.parent).write_file(args.out.name, as_json(made))
            console.print(f"written: {args.out}")
        return 0

    def add(self, benches: Any) -> None:
        """Add it to ``dcgs bench``."""
        examples = "\n".join(line for line in _EXAMPLES.splitlines() if f"dcgs bench {self.name}" in line)
        sentence = self.about[0].upper() + self.about[1:] + "."
        parser = job(benches, self.name, self.about, sentence, f"examples:\n{examples}")
        for flag, default in self.defaults.items():
            metavar, what = _OPTIONS[flag]
            option(parser, f"--{flag} {metavar}", f"{what} (default: {default})", count, default=default)
        option(parser, "--seed", "of the data (default: 0)", int, default=0)
        option(parser, "--out FILE", "also write the numbers as JSON, with versions and machine", Path)
        parser.set_defaults(run=self.run)


_STEP = {"case": "{case}", "solver": "{solver}", "step ms": "{step:.3f}", "adjoint ms": "{adjoint:.3f}"}
_STEP |= {"oracle ms": "{oracle:.3f}", "ratio": "{ratio:.2f}"}
_THREADS = {"case": "{case}", "1 thread, s": "{one:.2f}", "{threads} threads, s": "{several:.2f}"}
_THREADS |= {"times as fast": "{ratio:.2f}", "equal to the bit": "{equal}"}
_MEMORY = {"case": "{case}", "method": "{method}", "points per agent": "{points:.1f}"}
_CHECKPOINT = {"case": "{case}", "every": "{every}", "run, s": "{seconds:.2f}", "writing, s": "{writing:.2f}"}
_CHECKPOINT |= {"share": "{share:.1%}", "bytes each": "{bytes:,}", "resumed equal to the bit": "{equal}"}
_EVEN = {"message": "{message}", "bare, ms": "{bare:.2f}", "ours, ms": "{ours:.2f}"}
_EVEN |= {"ours over bare": "{ratio:.2f}", "ours − bare, ms": "{difference:.2f}"}
_UNEVEN = {"one process": "{times} × the work", "ideal, ms": "{ideal:.1f}", "bare, ms": "{bare:.1f}"}
_UNEVEN |= {"ours, ms": "{ours:.1f}", "ours over ideal": "{ratio:.2f}"}
_MEASUREMENTS = (
    _Measurement(
        "step",
        "the cost of one inner step over one adjoint product and one oracle call; at most 1.5 is wanted",
        measurements.step_cost,
        {"repeats": 5},
        {"one inner step over its unavoidable parts": _STEP},
    ),
    _Measurement(
        "threads",
        "one run on one thread and on several, in turns; equal to the bit",
        measurements.threads_speedup,
        {"threads": 2, "repeats": 3, "samples": 2000, "features": 10_000},
        {"one thread against several, in turns": _THREADS},
    ),
    _Measurement(
        "memory",
        "peak memory of a run beyond its data; at most 12 points an agent",
        measurements.memory_of_runs,
        {},
        {"peak memory beyond the data": _MEMORY},
    ),
    _Measurement(
        "checkpoint",
        "the share of a run's time that checkpoints take",
        measurements.checkpoint_share,
        {"every": 10, "iterations": 30, "samples": 2000, "features": 10_000},
        {"what checkpoints take of a run": _CHECKPOINT},
    ),
    _Measurement(
        "exchange",
        "a round over MPI beside the bare exchange of the same bytes; starts the processes by itself",
        over_mpi.exchange,
        {"ranks": 10, "repeats": 9},
        {"a round on a cycle of processes": _EVEN, "one process with several times the work": _UNEVEN},
    ),
)


_GROWTH = """\
Run FastDCGS with default settings as one quantity grows: agents (10 to 10,000), features (10³ to 10⁶), rows
of each agent, or nonzeros of each row. Print the time, the bytes of the busiest agent and the peak memory.
Each run is a process of its own.
"""


def _add_growth(benches: Any) -> None:
    text = "time, bytes and memory as agents, features, rows or nonzeros grow"
    more = "examples:\n  dcgs bench growth --grows agents --most 1000       up to 1,000 agents"
    parser = job(benches, "growth", text, _GROWTH, more)
    add = partial(option, parser)
    add("--grows NAME", "what grows (default: each in turn)", nargs="+", choices=list(growth.SERIES))
    add("--most N", "the largest size (default: all)", count)
    add("--seconds S", "time limit of each run (default: 180)", positive, default=180.0)
    add("--seed N", "of the data (default: 0)", seed, default=0)
    add_folder(parser, "growth", quick=False)
    parser.set_defaults(run=_run_growth)


def _run_growth(args: argparse.Namespace, console: Console) -> int:
    runner = Runner(records_of(args, "growth"), None, console, [])
    tasks = growth.growth_tasks(args.grows or list(growth.SERIES), args.most, args.seconds, args.seed)
    if runner.run([lambda: tasks], args.rerun):
        return 130
    rows = runner.rows(tasks)
    made = {"environment": environment(args.seed), "rows": rows}
    runner.finish("growth", made, [growth.growth_table(rows)], {"growth.png": growth_figure(rows)})
    return 0


def add(jobs: Any) -> None:
    """Add the job to the command."""
    about = "Measure ratios side by side in one run; absolute times cannot be compared."
    bench = job(jobs, "bench", BENCH.text, about, _EXAMPLES)
    benches = bench.add_subparsers(title="benchmarks", required=True, metavar="BENCHMARK")
    for job_adder in (*_MEASUREMENTS, grids, completion):
        job_adder.add(benches)
    _add_growth(benches)
