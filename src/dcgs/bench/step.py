"""The cost of one inner step, relative to one product Aᵀr and one oracle call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from threadpoolctl import threadpool_limits

from dcgs.atoms import Atom
from dcgs.inner import CG, PCG, Inner, Subproblem, Task, gap_at_most
from dcgs.objectives import LeastSquares, MatrixCompletion, Objective
from dcgs.points import Point
from dcgs.sets import ConvexSet, L1Ball, NuclearNormBall
from dcgs.sets.block import Nearest
from dcgs.sets.lanczos import Matrix


@final
@dataclass(frozen=True, eq=False)
class Case:
    """One agent's problem, the bare product Aᵀr, and the number of steps to time."""

    name: str
    f: Objective
    X: ConvexSet
    adjoint: Callable[[], object]
    steps: int


def measure(repeats: int, seed: int) -> list[dict[str, Any]]:
    """Time every inner solver on one agent's share of a dense Lasso, a sparse one, and a completion.

    Oracle and bare product are timed within the run of the solver, once per step, with the same contents of
    the caches. Times are in milliseconds.
    """
    rng = np.random.default_rng(seed)
    rows = []
    with threadpool_limits(1, user_api="blas"):
        for case in (_dense(rng), _sparse(rng), _completion(rng)):
            solvers: list[Inner] = [CG(max_steps=case.steps), PCG(max_steps=case.steps)]
            rows += [
                {"case": case.name, "solver": type(inner).__name__, "steps": case.steps}
                | _measure(case, inner, repeats)
                for inner in solvers
                if inner.incompatibility(case.f, case.X) is None
            ]
    return rows


def _measure(case: Case, inner: Inner, repeats: int) -> dict[str, float]:
    results = [_once(case, inner) for _ in range(repeats + 1)][1:]
    step, adjoint, oracle = (1e3 * median(column) for column in zip(*results, strict=True))
    return {"step": step, "adjoint": adjoint, "oracle": oracle, "ratio": step / (adjoint + oracle)}


@final
class _TimedOracle:
    """A set's oracle that also computes the bare product, and adds up the time of both."""

    def __init__(self, case: Case) -> None:
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


def _once(case: Case, inner: Inner) -> tuple[float, float, float]:
    lmo = _TimedOracle(case)
    x0 = case.X.start()
    solver = inner.start(Task(case.f, case.X, lmo, x0))
    phi = Subproblem(case.f, 0.0 * x0, 8.0, x0)
    start = time.perf_counter()
    solver(phi, gap_at_most(0.0))
    step = time.perf_counter() - start - lmo.in_adjoint
    return step / lmo.calls, lmo.in_adjoint / lmo.calls, lmo.in_oracle / lmo.calls


def _dense(rng: np.random.Generator) -> Case:
    A = rng.standard_normal((200, 10_000))
    r = rng.standard_normal(200)
    f = LeastSquares(A, 100.0 * rng.standard_normal(200))
    return Case("dense 200×10000", f, L1Ball(10_000, 1e3), lambda: A.T @ r, 300)


def _sparse(rng: np.random.Generator) -> Case:
    A = sp.random_array((400, 150_360), density=0.008, rng=rng, data_sampler=rng.random, format="csr")
    r = rng.standard_normal(400)
    f = LeastSquares(A, 100.0 * rng.standard_normal(400))
    At = A.T
    return Case("sparse 400×150360, 0.8 %", f, L1Ball(150_360, 1e3), lambda: At @ r, 300)


def _completion(rng: np.random.Generator) -> Case:
    d1, d2, entries = 943, 1682, 10_000
    rows, cols = np.divmod(rng.choice(d1 * d2, entries, replace=False), d2)
    r = rng.standard_normal(entries)
    truth = rng.standard_normal((d1, 10)) @ rng.standard_normal((10, d2))
    f = MatrixCompletion(rows, cols, truth[rows, cols], (d1, d2))
    X = NuclearNormBall((d1, d2), 1e4)
    return Case("completion 943×1682", f, X, lambda: sp.csr_array((r, (rows, cols)), shape=(d1, d2)), 30)
