"""``dcgs bench growth``: FastDCGS at many sizes.

Each size runs in a process of its own, whose peak memory is measured. One quantity grows at a time.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, final

import networkx as nx
import numpy as np
import scipy.sparse as sp

from dcgs.methods import FastDCGS
from dcgs.objectives import LeastSquares
from dcgs.run.minimize import versions
from dcgs.sets import L1Ball
from dcgs_bench.study import Budget, StudyProblem, StudyTask, TextTable, alone, execute, peak_memory

_MEGABYTE = 2**20


@final
@dataclass(frozen=True)
class GrowthCase:
    """The sizes of a problem; ``rows`` are those of each agent, ``nonzeros`` those of each row."""

    agents: int = 10
    features: int = 100_000
    rows: int = 5000
    nonzeros: int = 50
    gap: float = 1e-3


_MANY_AGENTS = GrowthCase(features=100, rows=20, nonzeros=100, gap=1e-2)
_MANY_ROWS = GrowthCase(features=100, nonzeros=100)
SERIES: dict[str, tuple[GrowthCase, tuple[int, ...]]] = {
    "agents": (_MANY_AGENTS, (10, 30, 100, 300, 1000, 3000, 10_000)),
    "features": (GrowthCase(), (1000, 10_000, 100_000, 1_000_000)),
    "rows": (_MANY_ROWS, (100, 1000, 10_000, 30_000)),
    "nonzeros": (GrowthCase(), (10, 30, 100, 300)),
}
"""What grows: the sizes that stay, and those that it takes."""


def growth_tasks(grows: Sequence[str], most: int | None, limit: float, seed: int) -> list[StudyTask]:
    """Return a task for each size of each quantity, up to ``most``."""
    tasks = []
    for name in grows:
        case, sizes = SERIES[name]
        for size in sizes:
            if most is None or size <= most:
                sized = replace(case, **{name: size})
                key = asdict(sized) | {"seconds": limit, "seed": seed, "versions": versions()}
                work = partial(alone, run_case, sized, limit, seed, {"grows": name, "size": size})
                tasks.append(StudyTask(f"runs/{name}/{size}", key, work, f"{size:,} {name}"))
    return tasks


def make(case: GrowthCase, seed: int) -> StudyProblem:
    """Return a Lasso of these sizes, over a ball that binds; agents on a small-world graph or a cycle."""
    rng = np.random.default_rng(seed)
    truth = np.zeros(case.features)
    support = rng.choice(case.features, min(50, max(5, case.features // 20)), replace=False)
    truth[support] = rng.standard_normal(len(support))
    objectives = []
    for _ in range(case.agents):
        dense = case.nonzeros >= case.features
        A: Any = rng.standard_normal((case.rows, case.features)) if dense else _sparse(case, rng)
        objectives.append(LeastSquares(A, A @ truth + 0.1 * rng.standard_normal(case.rows)))
    X = L1Ball(case.features, 0.8 * float(np.abs(truth).sum()))
    many = case.agents > 10
    graph = nx.connected_watts_strogatz_graph(case.agents, 4, 0.2, seed=seed) if many else nx.cycle_graph(10)
    return StudyProblem(objectives, X, graph)


def _sparse(case: GrowthCase, rng: np.random.Generator) -> sp.csr_array:
    """Return a matrix with so many entries in each row, at random places."""
    count = case.rows * case.nonzeros
    ends = case.nonzeros * np.arange(case.rows + 1)
    entries = rng.standard_normal(count), rng.integers(0, case.features, count), ends
    A = sp.csr_array(entries, shape=(case.rows, case.features))
    A.sum_duplicates()
    return A


def run_case(case: GrowthCase, limit: float, seed: int, about: Mapping[str, Any]) -> dict[str, Any]:
    """Run FastDCGS with default settings; return its costs, and the peak memory of this process.

    ``seconds`` are those of the whole run on the wall clock, measurements included; ``processor`` those of
    all cores; ``slowest`` is the sum over rounds of the slowest agent.
    """
    problem = make(case, seed)
    start, start_of_processor = time.perf_counter(), time.process_time()
    run = execute(problem, FastDCGS(), Budget(gap=case.gap, seconds=limit), seed=0)
    return {
        **about,
        "certified": run.certified,
        "status": run.end,
        "rounds": run.rounds,
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - start_of_processor,
        "slowest": run.columns["computing"][-1],
        "bytes": run.bytes,
        "memory": peak_memory() / _MEGABYTE,
    }


def growth_table(rows: Sequence[Mapping[str, Any]]) -> TextTable:
    """Return the costs at each size."""
    columns = {"size": "{size:,} {grows}", "ended": "{ended}", "rounds": "{rounds:,}"}
    columns |= {"seconds": "{seconds:.1f}", "slowest agent, s": "{slowest:.2f}"}
    columns |= {"bytes, busiest agent": "{bytes:,}", "memory, MB": "{memory:,.0f}"}
    ended = [{**row, "ended": "certified" if row["certified"] else row["status"]} for row in rows]
    return TextTable.formatted("FastDCGS to a certified gap, as one quantity grows", columns, ended)
