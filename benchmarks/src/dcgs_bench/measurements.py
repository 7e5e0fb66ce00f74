"""A few numbers each: the cost of an inner step, of threads and checkpoints, and the memory of a run."""

from __future__ import annotations

import tempfile
import time
import tracemalloc
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, final

import networkx as nx
import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from dcgs.atoms import Atom
from dcgs.checkpoints.folder import Checkpoint
from dcgs.datasets import lasso_synthetic
from dcgs.inner import CG, PCG, Inner, Subproblem, Task, gap_at_most
from dcgs.methods import DCGS, DFW, Method
from dcgs.objectives import LeastSquares, MatrixCompletion, Objective
from dcgs.points import Point
from dcgs.run.minimize import minimize
from dcgs.run.result import Result
from dcgs.runtime import Lockstep
from dcgs.schedules import Theorem1
from dcgs.sets import ConvexSet, L1Ball, NuclearNormBall
from dcgs.sets.lanczos import Matrix
from dcgs.sets.nuclear_norm_ball import Nearest

AGENTS = 10


@final
@dataclass(frozen=True, eq=False)
class StepCase:
    """One agent's problem, the bare product Aᵀr, and the number of steps to time."""

    name: str
    f: Objective
    X: ConvexSet
    adjoint: Callable[[], object]
    steps: int


def step_cost(repeats: int, seed: int) -> list[dict[str, Any]]:
    """Time every inner solver on one agent's share of a dense Lasso, a sparse one, and a completion.

    Oracle and bare product are timed within the run of the solver, once per step, with the same contents of
    the caches. Times are in milliseconds.
    """
    rng, rows = np.random.default_rng(seed), []
    with threadpool_limits(1, user_api="blas"):
        for case in (_dense_step(rng), _sparse_step(rng), _completion_step(rng)):
            solvers: list[Inner] = [CG(max_steps=case.steps), PCG(max_steps=case.steps)]
            for inner in solvers:
                if inner.incompatibility(case.f, case.X) is None:
                    about = {"case": case.name, "solver": type(inner).__name__, "steps": case.steps}
                    results = [_steps(case, inner) for _ in range(repeats + 1)][1:]
                    step, adjoint, oracle = (1e3 * median(column) for column in zip(*results, strict=True))
                    times = {"step": step, "adjoint": adjoint, "oracle": oracle}
                    rows.append(about | times | {"ratio": step / (adjoint + oracle)})
    return rows


@final
class _TimedOracle:
    """A set's oracle that also computes the bare product, and adds up the time of both."""

    def __init__(self, case: StepCase) -> None:
        self.case = case
        self.calls = 0
        self.in_oracle = self.in_adjoint = 0.0

    def __call__(self, direction: Point, near: Atom | None) -> Atom:
        first = time.perf_counter()
        self.case.adjoint()
        second = time.perf_counter()
        atom = self.case.X.lmo(direction, near)
        self.in_oracle += time.perf_counter() - second
        self.in_adjoint += second - first
        self.calls += 1
        return atom

    def more(self, direction: Point, level: float, most: int) -> Sequence[Atom]:
        raise NotImplementedError("a step with many atoms is not timed.")

    def nearest(self, M: Point, basis: Matrix, tolerance: float) -> Nearest:
        raise NotImplementedError("a step of a block is not timed.")


def _steps(case: StepCase, inner: Inner) -> tuple[float, float, float]:
    """Return the seconds of a step without the bare product, of the product, and of the oracle."""
    lmo, x0 = _TimedOracle(case), case.X.start()
    solver = inner.start(Task(case.f, case.X, lmo, x0))
    phi = Subproblem(case.f, 0.0 * x0, 8.0, x0)
    start = time.perf_counter()
    solver(phi, gap_at_most(0.0))
    step = time.perf_counter() - start - lmo.in_adjoint
    return step / lmo.calls, lmo.in_adjoint / lmo.calls, lmo.in_oracle / lmo.calls


def _dense_step(rng: np.random.Generator) -> StepCase:
    A, r = rng.standard_normal((200, 10_000)), rng.standard_normal(200)
    f = LeastSquares(A, 100.0 * rng.standard_normal(200))
    return StepCase("dense 200×10000", f, L1Ball(10_000, 1e3), lambda: A.T @ r, 300)


def _sparse_step(rng: np.random.Generator) -> StepCase:
    A = sp.random_array((400, 150_360), density=0.008, rng=rng, data_sampler=rng.random, format="csr")
    r = rng.standard_normal(400)
    f, At = LeastSquares(A, 100.0 * rng.standard_normal(400)), A.T
    return StepCase("sparse 400×150360, 0.8 %", f, L1Ball(150_360, 1e3), lambda: At @ r, 300)


def _completion_step(rng: np.random.Generator) -> StepCase:
    d1, d2, entries = 943, 1682, 10_000
    rows, cols = np.divmod(rng.choice(d1 * d2, entries, replace=False), d2)
    r = rng.standard_normal(entries)
    truth = rng.standard_normal((d1, 10)) @ rng.standard_normal((10, d2))
    f, X = MatrixCompletion(rows, cols, truth[rows, cols], (d1, d2)), NuclearNormBall((d1, d2), 1e4)
    return StepCase("completion 943×1682", f, X, lambda: sp.csr_array((r, (rows, cols)), shape=(d1, d2)), 30)


def threads_speedup(
    samples: int, features: int, threads: int, repeats: int, seed: int
) -> list[dict[str, Any]]:
    """Run DCGS on a dense Lasso with one thread and with several, in turns; compare medians and bits."""
    objectives = lasso_synthetic(samples, features, seed=seed).objectives(AGENTS)
    X, graph = L1Ball(features, radius=1e3), nx.cycle_graph(AGENTS)
    # Subproblems that take each agent some hundred oracle calls in all.
    method = DCGS(inner="pcg", schedule=Theorem1(balance=100.0, distance=100.0, horizon=10), answer="last")

    def run(threads: int) -> Result:
        runtime = Lockstep(threads=threads)
        return minimize(objectives, X, graph, method, iterations=3, every=0, runtime=runtime)

    pairs = [(run(1), run(threads)) for _ in range(repeats)]
    single, several = (median(result.seconds for result in results) for results in zip(*pairs, strict=True))
    equal = all(np.array_equal(first.agents, second.agents) for first, second in pairs)
    case = f"DCGS on a Lasso of {samples}×{features}, {AGENTS} agents"
    row = {"case": case, "threads": threads, "one": single, "several": several, "equal": equal}
    return [row | {"ratio": single / several}]


def checkpoint_share(
    samples: int, features: int, iterations: int, every: int, seed: int
) -> list[dict[str, Any]]:
    """Run FastDCGS on a dense Lasso with checkpoints, then resume it from the last checkpoint but one.

    Checkpoints are timed inside the run, with the fingerprint of the data. The difference between two runs
    would mostly be noise. ``bytes`` are those of one checkpoint of all agents.
    """
    objectives = lasso_synthetic(samples, features, seed=seed).objectives(AGENTS)
    X, graph = L1Ball(features, radius=1e3), nx.cycle_graph(AGENTS)

    def run(checkpoint: Checkpoint) -> Result:
        return minimize(objectives, X, graph, iterations=iterations, every=0, checkpoint=checkpoint)

    with tempfile.TemporaryDirectory() as folder:
        result = run(Checkpoint(folder, every))
        newest = [Checkpoint(folder).file(i, iterations) for i in range(AGENTS)]
        size = sum(path.stat().st_size for path in newest)
        for path in newest:
            path.unlink()
        resumed = run(Checkpoint(folder, every, resume=True))
    writing, equal = (
        result.about["checkpoint"]["seconds"],
        bool(np.array_equal(result.agents, resumed.agents)),
    )
    row: dict[str, Any] = {"case": f"FastDCGS on a Lasso of {samples}×{features}, {AGENTS} agents"}
    row |= {"every": every, "iterations": iterations, "seconds": result.seconds, "writing": writing}
    return [row | {"bytes": size, "equal": equal, "share": writing / (result.seconds + writing)}]


def memory_of_runs(seed: int) -> list[dict[str, Any]]:
    """Trace all allocations of DCGS and DFW on a dense, a sparse and a completion problem."""
    rng = np.random.default_rng(seed)
    dense = [
        LeastSquares(rng.standard_normal((20, 50_000)), 10.0 * rng.standard_normal(20)) for _ in range(AGENTS)
    ]
    sparse = [
        LeastSquares(
            sp.random_array((40, 150_360), density=0.008, rng=rng, format="csr"), rng.standard_normal(40)
        )
        for _ in range(AGENTS)
    ]
    rows, cols = np.divmod(rng.choice(120_000, 20_000, replace=False), 400)
    values, parts = rng.standard_normal(20_000), np.array_split(np.arange(20_000), AGENTS)
    completion = [MatrixCompletion(rows[part], cols[part], values[part], (300, 400)) for part in parts]
    problems: list[tuple[str, list[Objective], ConvexSet]] = [
        ("dense Lasso, d = 50000", dense, L1Ball(50_000, 1e3)),
        ("sparse Lasso, d = 150360", sparse, L1Ball(150_360, 1e3)),
        ("completion, 300×400", completion, NuclearNormBall((300, 400), 1e3)),
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
