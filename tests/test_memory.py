"""The peak memory of a run is at most the data, 12 points per agent and the active sets."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs

D = 100_000
SHAPE = (250, 400)
POINT = 8 * D  # bytes; a matrix of this shape has as many entries

# An allowance for what is neither a point nor an atom: a Lanczos basis of 32 × 250 numbers (64 kB), images of
# at most 500 numbers, the history, generators and frames.
SMALL = 100_000
# An allowance for one spike of an active set: the object with its three fields, its places in a list and a
# dictionary, and three numbers in arrays that grow by doubling.
SPIKE = 400

LASSO = dcgs.L1Ball(D, radius=5.0)
COMPLETION = dcgs.NuclearNormBall(SHAPE, radius=50.0)
# This horizon gives an e for which pcg takes some 300 steps. It then also recomputes its point on the way.
PCG = dcgs.DCGS(inner="pcg", schedule=dcgs.Theorem1(horizon=600))


def dense(rng: np.random.Generator) -> dcgs.Objective:
    return dcgs.LeastSquares(rng.standard_normal((4, D)), 5.0 * rng.standard_normal(4))


def sparse(rng: np.random.Generator) -> dcgs.Objective:
    rows, cols = rng.integers(0, 20, size=4000), rng.integers(0, D, size=4000)
    A = sp.csr_array((rng.standard_normal(4000), (rows, cols)), shape=(20, D))
    return dcgs.LeastSquares(A, 5.0 * rng.standard_normal(20))


def entries(rng: np.random.Generator) -> dcgs.Objective:
    flat = rng.choice(D, size=500, replace=False)
    return dcgs.MatrixCompletion(flat // SHAPE[1], flat % SHAPE[1], rng.standard_normal(500), SHAPE)


CASES: dict[str, tuple[Callable[[np.random.Generator], dcgs.Objective], dcgs.ConvexSet, dcgs.Method]] = {
    "dense Lasso, DCGS pcg": (dense, LASSO, PCG),
    "dense Lasso, DCGS cg": (dense, LASSO, dcgs.DCGS(inner="cg")),
    "dense Lasso, DFW": (dense, LASSO, dcgs.DFW()),
    "sparse Lasso, DCGS pcg": (sparse, LASSO, PCG),
    "sparse Lasso, DFW": (sparse, LASSO, dcgs.DFW()),
    "completion, DCGS cg": (entries, COMPLETION, dcgs.DCGS(inner="cg")),
    "completion, DFW": (entries, COMPLETION, dcgs.DFW()),
}


def peak(
    objectives: list[dcgs.Objective], X: dcgs.ConvexSet, method: dcgs.Method, **rules: Any
) -> tuple[int, dcgs.Result]:
    """Return the peak memory that a run added, in bytes, and its result.

    NumPy reports its arrays to tracemalloc.
    """
    graph = nx.path_graph(len(objectives))
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = dcgs.minimize(objectives, X, graph, method, runtime=dcgs.Lockstep(threads=1), **rules)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return most - before, result


def active_sets(method: dcgs.Method, result: dcgs.Result) -> int:
    """Return the bytes that active sets may use: x0 as a dense atom, and a spike for each oracle call."""
    if method is not PCG:
        return 0
    return len(result.agents) * POINT + SPIKE * int(result.lmo_calls.sum())


@pytest.mark.parametrize("agents", [1, 2, 10])
@pytest.mark.parametrize("case", CASES)
def test_a_run_uses_at_most_12_points_per_agent_and_the_active_sets(case: str, agents: int) -> None:
    make, X, method = CASES[case]
    rng = np.random.default_rng(8)
    used, result = peak([make(rng) for _ in range(agents)], X, method, iterations=5)
    points = (used - active_sets(method, result) - SMALL) / (agents * POINT)
    assert points <= 12.0


@pytest.mark.parametrize("method", [dcgs.DFW(), dcgs.DCGS(inner="cg")], ids=repr)
def test_memory_does_not_grow_with_the_number_of_iterations(method: dcgs.Method) -> None:
    rng = np.random.default_rng(9)
    X = dcgs.L1Ball(20_000, radius=5.0)
    objectives = [dcgs.LeastSquares(rng.standard_normal((4, 20_000)), np.ones(4)) for _ in range(2)]
    few, _ = peak(objectives, X, method, iterations=5)
    many, _ = peak(objectives, X, method, iterations=100)
    # A snapshot is an object with 11 numbers: 1 kB is ample, and far less than a point of 160 kB.
    assert many - few <= 95 * 1000


def test_a_matrix_point_is_as_large_as_a_vector_point_here() -> None:
    assert math.prod(SHAPE) == D
