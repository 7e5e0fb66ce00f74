"""The memory of a run without its data, in points per agent."""

from __future__ import annotations

import resource
import sys
import tracemalloc
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp

from dcgs.front import minimize
from dcgs.methods import DCGS, DFW, Method
from dcgs.objectives import LeastSquares, MatrixCompletion, Objective
from dcgs.schedules import Theorem1
from dcgs.sets import ConvexSet, L1Ball, NuclearNormBall

AGENTS = 10


def peak_memory() -> int:
    """Return the peak memory of this process in bytes, its data included."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(seed: int) -> list[dict[str, Any]]:
    """Trace all allocations of DCGS and DFW on a dense, a sparse and a completion problem."""
    rng = np.random.default_rng(seed)
    problems: list[tuple[str, list[Objective], ConvexSet]] = [
        ("dense Lasso, d = 50000", _dense(rng), L1Ball(50_000, 1e3)),
        ("sparse Lasso, d = 150360", _sparse(rng), L1Ball(150_360, 1e3)),
        ("completion, 300×400", _completion(rng), NuclearNormBall((300, 400), 1e3)),
    ]
    methods: list[Method] = [DCGS(schedule=Theorem1(distance=100.0, horizon=5)), DFW()]
    return [
        {"case": case, "method": type(method).__name__, "points": _peak(objectives, X, method)}
        for case, objectives, X in problems
        for method in methods
    ]


def _peak(objectives: list[Objective], X: ConvexSet, method: Method) -> float:
    """Return the peak memory of a run without its data, in points per agent."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        minimize(objectives, X, nx.cycle_graph(AGENTS), method, iterations=5)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (peak - before) / (8.0 * float(np.prod(X.shape))) / AGENTS


def _dense(rng: np.random.Generator) -> list[Objective]:
    return [
        LeastSquares(rng.standard_normal((20, 50_000)), 10.0 * rng.standard_normal(20)) for _ in range(AGENTS)
    ]


def _sparse(rng: np.random.Generator) -> list[Objective]:
    shape = (40, 150_360)
    return [
        LeastSquares(sp.random_array(shape, density=0.008, rng=rng, format="csr"), rng.standard_normal(40))
        for _ in range(AGENTS)
    ]


def _completion(rng: np.random.Generator) -> list[Objective]:
    rows, cols = np.divmod(rng.choice(120_000, 20_000, replace=False), 400)
    values = rng.standard_normal(20_000)
    parts = np.array_split(np.arange(20_000), AGENTS)
    return [MatrixCompletion(rows[part], cols[part], values[part], (300, 400)) for part in parts]
