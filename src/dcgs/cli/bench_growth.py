"""``dcgs bench growth``: how time, bytes and memory grow with agents, features, rows and nonzeros."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from dcgs.bench import growth, record
from dcgs.bench.record import TextTable
from dcgs.cli.bench_study import print_tables, write_results
from dcgs.cli.values import count, job, option, positive, seed
from dcgs.study import ResultCache

_ABOUT = """\
Run FastDCGS with default settings as one quantity grows: agents (10 to 3,000), features (10³ to 10⁶), rows
of each agent, or nonzeros of each row. Print the time, the bytes of the busiest agent and the peak memory.
Each run is a process of its own.
"""

_MORE = """\
examples:
  dcgs bench growth                                  everything, about ten minutes
  dcgs bench growth --grows agents --most 1000       up to 1,000 agents
"""


def add(benches: Any) -> None:
    """Add the benchmark to ``dcgs bench``."""
    text = "time, bytes and memory as agents, features, rows or nonzeros grow"
    parser = job(benches, "growth", text, _ABOUT, _MORE)
    add = partial(option, parser)
    add("--grows NAME", "what grows (default: each in turn)", nargs="+", choices=list(growth.SERIES))
    add("--most N", "the largest size (default: all)", count)
    add("--seconds S", "time limit of each run (default: 180)", positive, default=180.0)
    add("--seed N", "of the data (default: 0)", seed, default=0)
    add("--out DIR", "output (default: out/growth)", Path, default=Path("out/growth"))
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    cache = ResultCache(args.out)
    cache.check_writable()
    rows = []
    for row in growth.measure(args.grows or list(growth.SERIES), args.most, args.seconds, args.seed):
        rows.append(row)
        console.print(
            f"{row['size']:,} {row['grows']}: {row['status']}, {row['rounds']} rounds, {row['seconds']:.1f} s"
        )
    table = _table(rows)
    print_tables([table], (), console)
    texts = {"growth.md": table.markdown() + "\n", "growth.json": record.as_json(rows, args.seed)}
    write_results(cache, texts, ("growth.png", "growth_figure", rows), console)
    return 0


def _table(rows: Sequence[Mapping[str, Any]]) -> TextTable:
    head = ["size", "ended", "rounds", "seconds", "slowest agent, s", "bytes, busiest agent", "memory, MB"]
    lines = []
    for row in rows:
        ended = "certified" if row["certified"] else row["status"]
        cells = [f"{row['size']:,} {row['grows']}", ended, f"{row['rounds']:,}", f"{row['seconds']:.1f}"]
        cells += [f"{row['slowest']:.2f}", f"{row['bytes']:,}", f"{row['memory']:,.0f}"]
        lines.append(cells)
    return TextTable.plain("FastDCGS to a certified gap, as one quantity grows", head, lines)
