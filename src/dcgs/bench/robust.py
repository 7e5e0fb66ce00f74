"""``dcgs bench robust``: the share of random small problems whose gap is certified within some seconds."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from dcgs.bench.random_problems import random_problem
from dcgs.bench.record import TextTable
from dcgs.front import minimize
from dcgs.runtime import Lockstep
from dcgs.study import run_in_processes

GAP = 1e-3


def measure(seeds: Sequence[int], limit: float, jobs: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each seed, in order of completion; a run ends after ``limit`` seconds."""
    for _, row in run_in_processes(jobs, partial(run_seed, limit=limit), list(seeds)):
        yield row


def run_seed(seed: int, limit: float) -> dict[str, Any]:
    """Run FastDCGS with default settings on the problem of a seed; return its status and its seconds.

    ``seconds`` are those of the processor, on one core.
    """
    made = random_problem(seed)
    start = time.process_time()
    row = {"seed": seed, "set": made.set_name, "loss": made.loss, "graph": made.graph, "about": made.about}
    try:
        once = Lockstep(threads=1)
        result = minimize(*made.problem.parts, gap=GAP, seconds=limit, every=0, runtime=once)
        ended = {"status": result.status.name, "certified": result.status.success, "rounds": result.rounds}
    except (ValueError, ArithmeticError, RuntimeError) as error:
        ended = {"status": f"{type(error).__name__}: {error}", "certified": False, "rounds": 0}
    return row | ended | {"seconds": time.process_time() - start}


def is_good(row: Mapping[str, Any], seconds: float) -> bool:
    """Return whether the gap was certified within so many seconds."""
    return bool(row["certified"]) and row["seconds"] <= seconds


def share_table(rows: Sequence[Mapping[str, Any]], part: str, seconds: float) -> TextTable:
    """Return the share of problems that were certified in time, by set, loss or graph."""
    head = [part, "problems", f"certified within {seconds:g} s", "share", "slowest, s", "the rest"]
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(str(row[part]), []).append(row)
    lines = []
    for name, own in [*sorted(groups.items()), ("all", list(rows))]:
        good = sum(is_good(row, seconds) for row in own)
        rest = Counter(_ending(row) for row in own if not is_good(row, seconds))
        lines.append(
            [
                name,
                str(len(own)),
                str(good),
                f"{good / len(own):.1%}",
                f"{max(row['seconds'] for row in own):.1f}",
                ", ".join(f"{count} {ending}" for ending, count in rest.most_common()) or "—",
            ]
        )
    return TextTable.plain(f"certified at {GAP:.0e} within {seconds:g} s, by {part}", head, lines)


def _ending(row: Mapping[str, Any]) -> str:
    return "later" if row["certified"] else str(row["status"]).partition(":")[0]
