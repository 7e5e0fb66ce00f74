"""The diagonal preconditioner: all agents agree on it where columns are uneven, and it helps there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import final

import networkx as nx
import numpy as np
import pytest

import dcgs
import stacked
from dcgs import FastDCGS, L1Ball, LeastSquares, Objective, Snapshot, Status
from dcgs.inner import Accuracy, Inner, Projected, Solver, Subproblem, Task
from dcgs.methods.fast.fast_dcgs import RELAXATION
from dcgs.methods.fast.preconditioner import as_preconditioner
from dcgs.points import Point
from dcgs.sets import ConvexSet, L2Ball
from problems import Array, laplacian_matrix

SIZE = 12


def uneven_parts(agents: int, seed: int = 0, flat: tuple[int, ...] = ()) -> list[tuple[Array, Array]]:
    """Return data whose columns differ in size by a hundred, but for those of some agents."""
    rng = np.random.default_rng(seed)
    sizes = np.logspace(0.0, -2.0, SIZE)
    A = [rng.standard_normal((8, SIZE)) * (1.0 if i in flat else sizes) for i in range(agents)]
    truth = rng.standard_normal(SIZE) / sizes
    return [(Ai, Ai @ truth + 0.3 * rng.standard_normal(8)) for Ai in A]


def test_even_columns_are_not_sent() -> None:
    rng = np.random.default_rng(3)
    assert LeastSquares(rng.standard_normal((1, 1000)), [1.0]).uneven_curvatures is None
    assert LeastSquares(np.zeros((1, 5)), [1.0]).uneven_curvatures is None
    A, b = uneven_parts(1)[0]
    curvatures = LeastSquares(A, b).uneven_curvatures
    assert curvatures is not None
    np.testing.assert_allclose(curvatures, 2.0 * (A**2).sum(axis=0), rtol=1e-14)


def test_a_coordinate_that_nobody_sent_has_the_median_weight() -> None:
    largest = np.array([0.0, 1.0, 2.0, 9.0, 0.0])
    np.testing.assert_allclose(
        as_preconditioner(largest), np.array([2.0, 1.0, 2.0, 9.0, 2.0]) / 3.2, rtol=1e-15
    )


def test_the_preconditioner_has_mean_one_and_no_entry_of_zero() -> None:
    h = as_preconditioner(np.array([3.0, 1e-20, 1.0, 0.0]))  # the median of what was sent is 1
    np.testing.assert_allclose(h, np.array([3.0, 3e-12, 1.0, 1.0]) / 1.25, rtol=1e-14)


@final
@dataclass(frozen=True)
class Free(Inner):
    """The minimizer of φ where the set does not bind, by solving a linear system."""

    stops_by_gap = False

    def supports_preconditioner(self, f: Objective, X: ConvexSet) -> bool:
        return True

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        return _FreeSolver(task.f)


@final
class _FreeSolver(Solver):
    def __init__(self, f: Objective) -> None:
        self.A, self.b = f.data()["A"], f.data()["b"]

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        eta = phi.eta * (np.ones(SIZE) if phi.preconditioner is None else phi.preconditioner)
        return minimizer(self.A, self.b, phi.w, eta, phi.center)


def minimizer(A: Array, b: Array, w: Array, eta: Array, center: Array) -> Array:
    H = 2.0 * A.T @ A + np.diag(eta)
    return np.asarray(np.linalg.solve(H, 2.0 * A.T @ b - w + eta * center), dtype=np.float64)


@pytest.mark.parametrize("flat", [(), (0,), (1,)])
@pytest.mark.parametrize("graph", [nx.path_graph(2), nx.path_graph(6), nx.cycle_graph(5)])
def test_a_run_equals_the_stacked_reference(graph: nx.Graph, flat: tuple[int, ...]) -> None:
    """Also if columns of one agent are even: all agents use one preconditioner, from the same round on."""
    parts = uneven_parts(len(graph), seed=1, flat=flat)
    A = np.stack([A for A, _ in parts])
    answers: list[Array] = []

    def look(snapshot: Snapshot) -> None:
        answers.append(np.stack(snapshot.agents))

    method = FastDCGS(inner=Free(), form="edges", stops_itself=False)
    objectives = [LeastSquares(*part) for part in parts]
    dcgs.minimize(objectives, L2Ball(SIZE, 1e9), graph, method, iterations=40, callback=look)
    L = stacked.resisting(laplacian_matrix(graph))
    etas = stacked.local_etas(A, L)

    def solve(i: int, w: Array, eta: Array, center: Array) -> Array:
        return minimizer(*parts[i], w, eta, center)

    reference = stacked.fast(L, np.zeros(SIZE), etas, RELAXATION, True, solve, A)
    for k, (mine, theirs) in enumerate(zip(answers[1:], islice(reference, 40), strict=True)):
        # Systems of condition 1e4 to 1e8 solved one after the other.
        np.testing.assert_allclose(
            mine, theirs, rtol=1e-6, atol=1e-6 * float(np.abs(theirs).max()), err_msg=str(k)
        )


@pytest.mark.parametrize("graph", [nx.path_graph(6), nx.star_graph(5)])
def test_dual_variables_sum_to_zero_with_a_preconditioner_and_the_optimum_is_reached(graph: nx.Graph) -> None:
    """If agents switched one after the other, all would agree on a wrong model."""
    objectives = [LeastSquares(*part) for part in uneven_parts(6, seed=2)]
    X = L1Ball(SIZE, 300.0)
    result = dcgs.minimize(objectives, X, graph, FastDCGS(form="edges"), gap=1e-6, rounds=600)
    assert result.status is Status.AGREED


def test_the_preconditioner_helps_where_columns_are_uneven() -> None:
    graph = nx.cycle_graph(6)
    objectives = [LeastSquares(*part) for part in uneven_parts(6, seed=2)]
    X = L1Ball(SIZE, 300.0)

    def rounds(inner: Inner) -> int:
        method = FastDCGS(inner=inner, form="edges")
        return dcgs.minimize(objectives, X, graph, method, gap=1e-3, rounds=300, every=0).rounds

    # Without it, 300 rounds are not enough.
    assert 2 * rounds(Projected()) < rounds(_Plain()) == 300


@final
@dataclass(frozen=True)
class _Plain(Inner):
    """Projected steps without a preconditioner."""

    stops_by_gap = False

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return Projected().incompatibility(f, X)

    def start(self, task: Task) -> Solver:
        return Projected().start(task)
