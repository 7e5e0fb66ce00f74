"""The diagonal preconditioner: all agents agree on it where columns are uneven, and it helps there."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import final

import networkx as nx
import numpy as np
import pytest
from dcgs.methods.messages import Message

import dcgs
import stacked
from dcgs import FastDCGS, L1Ball, LeastSquares, Objective, Snapshot
from dcgs.inner import Corrective, Inner, Solver, Subproblem, Task
from dcgs.methods.preconditioner import CurvatureMaximum
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


def agreed(parts: list[tuple[Array, Array]], graph: nx.Graph, rounds: int) -> list[Point | None]:
    """Return the preconditioners that agents have after so many rounds."""
    agents = [CurvatureMaximum.of(LeastSquares(*part)) for part in parts]
    for _ in range(rounds):
        messages = [Message(np.zeros(SIZE), 1.0, {}, one.attached()) for one in agents]
        for i, one in enumerate(agents):
            one.receive([messages[j] for j in sorted(graph[i])])
    return [one.preconditioner() for one in agents]


@pytest.mark.parametrize("graph", [nx.path_graph(5), nx.cycle_graph(6), nx.path_graph(1)])
@pytest.mark.parametrize("flat", [(), (0,), (0, 1)])
def test_all_agents_agree_after_as_many_rounds_as_the_diameter(
    graph: nx.Graph, flat: tuple[int, ...]
) -> None:
    parts = uneven_parts(len(graph), flat=flat)
    found = agreed(parts, graph, nx.diameter(graph))
    if len(flat) >= len(graph):
        assert found == [None] * len(graph)
        return
    expected = stacked.preconditioner(np.stack([2.0 * (A**2).sum(axis=0) for A, _ in parts]))
    for h in found:
        assert h is not None
        np.testing.assert_array_equal(h, found[0])
        np.testing.assert_allclose(h, expected, rtol=1e-13)


def test_even_columns_are_not_sent() -> None:
    rng = np.random.default_rng(3)
    one_sample = LeastSquares(rng.standard_normal((1, 1000)), [1.0])
    assert CurvatureMaximum.of(one_sample).attached() is None
    assert CurvatureMaximum.of(LeastSquares(np.zeros((1, 5)), [1.0])).preconditioner() is None


def test_a_maximum_is_sent_once() -> None:
    one = CurvatureMaximum.of(LeastSquares(*uneven_parts(1)[0]))
    attached = one.attached()
    assert attached is not None
    assert one.attached() is None
    one.receive([Message(np.zeros(SIZE), 1.0, {}, attached)])
    assert one.attached() is None


@final
@dataclass(frozen=True)
class Free(Inner):
    """The minimizer of φ where the set does not bind, by solving a linear system."""

    supports_preconditioner = True

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        return _FreeSolver(task.f)


@final
class _FreeSolver(Solver):
    def __init__(self, f: Objective) -> None:
        self.A, self.b = f.data()["A"], f.data()["b"]

    def __call__(self, phi: Subproblem, e: float) -> Point:
        eta = phi.eta * (np.ones(SIZE) if phi.preconditioner is None else phi.preconditioner)
        return minimizer(self.A, self.b, phi.w, eta, phi.center)


def minimizer(A: Array, b: Array, w: Array, eta: Array, center: Array) -> Array:
    H = 2.0 * A.T @ A + np.diag(eta)
    return np.asarray(np.linalg.solve(H, 2.0 * A.T @ b - w + eta * center), dtype=np.float64)


@pytest.mark.parametrize("graph", [nx.path_graph(2), nx.path_graph(6), nx.cycle_graph(5)])
def test_a_run_equals_the_stacked_reference(graph: nx.Graph) -> None:
    parts = uneven_parts(len(graph), seed=1)
    A = np.stack([A for A, _ in parts])
    answers: list[Array] = []

    def look(snapshot: Snapshot) -> None:
        answers.append(np.stack(snapshot.agents))

    method = FastDCGS(inner=Free(), form="edges", stops_itself=False)
    objectives = [LeastSquares(*part) for part in parts]
    dcgs.minimize(objectives, L2Ball(SIZE, 1e9), graph, method, iterations=40, callback=look)
    L = stacked.resisting(laplacian_matrix(graph))
    reference = stacked.fast_preconditioned(
        A,
        L,
        np.zeros(SIZE),
        1.85,
        lambda i, w, eta, center: minimizer(*parts[i], w, eta, center),
    )
    for k, (mine, theirs) in enumerate(zip(answers[1:], islice(reference, 40), strict=True)):
        # Systems of condition 1e4 to 1e8 solved one after the other.
        np.testing.assert_allclose(
            mine, theirs, rtol=1e-6, atol=1e-6 * float(np.abs(theirs).max()), err_msg=str(k)
        )


def test_the_preconditioner_helps_where_columns_are_uneven() -> None:
    graph = nx.cycle_graph(6)
    objectives = [LeastSquares(*part) for part in uneven_parts(6, seed=2)]
    X = L1Ball(SIZE, 300.0)
    preconditioned = dcgs.minimize(objectives, X, graph, FastDCGS(stops_itself=False), rounds=60)
    without = dcgs.minimize(objectives, X, graph, FastDCGS(inner=_Plain(), stops_itself=False), rounds=60)
    start = preconditioned.history.worst_loss[0]
    best = dcgs.minimize(objectives, X, graph, FastDCGS(stops_itself=False), rounds=600).history.mean_loss[-1]
    reached = [
        (result.history.worst_loss[-1] - best) / (start - best) for result in (preconditioned, without)
    ]
    assert reached[0] < 0.1 * reached[1]


@final
@dataclass(frozen=True)
class _Plain(Inner):
    """Corrective steps without a preconditioner."""

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return Corrective().incompatibility(f, X)

    def start(self, task: Task) -> Solver:
        return Corrective().start(task)
