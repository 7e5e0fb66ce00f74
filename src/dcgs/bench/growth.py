"""``dcgs bench growth``: time, bytes and memory of FastDCGS as agents, features, rows or nonzeros grow.

Each size runs in a process of its own, whose peak memory is measured. One quantity grows at a time.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import networkx as nx
import numpy as np
import scipy.sparse as sp

from dcgs.bench.memory import peak_memory
from dcgs.front import minimize
from dcgs.objectives import LeastSquares
from dcgs.sets import L1Ball
from dcgs.study import Problem, alone

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
    "agents": (_MANY_AGENTS, (10, 30, 100, 300, 1000, 3000)),
    "features": (GrowthCase(), (1000, 10_000, 100_000, 1_000_000)),
    "rows": (_MANY_ROWS, (100, 1000, 10_000, 30_000)),
    "nonzeros": (GrowthCase(), (10, 30, 100, 300)),
}
"""What grows: the sizes that stay, and those that it takes."""


def measure(grows: Sequence[str], most: int | None, limit: float, seed: int) -> Iterator[dict[str, Any]]:
    """Yield a row for each size of each quantity, up to ``most``."""
    for name in grows:
        case, sizes = SERIES[name]
        for size in sizes:
            if most is None or size <= most:
                one = replace(case, **{name: size})
                try:
                    yield {"grows": name, "size": size} | alone(run_case, one, limit, seed)
                except Exception as error:
                    raise RuntimeError(f"the run of {one} failed: {type(error).__name__}: {error}") from error


def make(case: GrowthCase, seed: int) -> Problem:
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
    return Problem(objectives, X, graph)


def _sparse(case: GrowthCase, rng: np.random.Generator) -> sp.csr_array:
    """Return a matrix with so many entries in each row, at random places."""
    count = case.rows * case.nonzeros
    ends = case.nonzeros * np.arange(case.rows + 1)
    entries = rng.standard_normal(count), rng.integers(0, case.features, count), ends
    A = sp.csr_array(entries, shape=(case.rows, case.features))
    A.sum_duplicates()
    return A


def run_case(case: GrowthCase, limit: float, seed: int) -> dict[str, Any]:
    """Run FastDCGS with default settings; return its costs, and the peak memory of this process.

    ``seconds`` are those of ``minimize`` on the wall clock, measurements included; ``processor`` those of all
    cores; ``slowest`` is the sum over rounds of the slowest agent.
    """
    problem = make(case, seed)
    start, start_of_processor = time.perf_counter(), time.process_time()
    result = minimize(*problem.parts, gap=case.gap, seconds=limit)
    return {
        "certified": result.status.success,
        "status": result.status.name,
        "rounds": result.rounds,
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - start_of_processor,
        "slowest": float(result.history.computing[-1]),
        "bytes": int(result.bytes.max()),
        "memory": peak_memory() / _MEGABYTE,
    }
