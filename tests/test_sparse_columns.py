"""FastDCGS where agents have data for some features only: sums are taken, in a diagonal metric."""

from __future__ import annotations

from typing import Literal, TypeAlias

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs import FastDCGS, L1Ball, LeastSquares, Objective, Status
from dcgs.methods.fast.preconditioner import summed_preconditioner
from dcgs.network import as_network
from dcgs.run.distributed import facts_of
from problems import Array
from reference import optimum

Form: TypeAlias = Literal["edges", "sums"]
D, ROWS = 600, 40  # for more than 500 unknowns no Hessians are sent
CYCLE = nx.cycle_graph(5)


def matrices(share: float, agents: int = 5, seed: int = 0) -> list[Array]:
    """Return a matrix for each agent with entries in the first ones of its columns, in its own order."""
    rng = np.random.default_rng(seed)
    used = [rng.permutation(D) < share * D for _ in range(agents)]
    return [rng.standard_normal((ROWS, D)) * columns for columns in used]


def objectives(data: list[Array]) -> list[Objective]:
    rng = np.random.default_rng(1)
    x = np.concatenate([np.ones(5), np.zeros(D - 5)])
    return [LeastSquares(sp.csr_array(A), A @ x + 0.1 * rng.standard_normal(ROWS)) for A in data]


def is_sparse(fits: list[Objective]) -> bool:
    return facts_of(fits, L1Ball(D), as_network(CYCLE), smoothness=False).sparse_columns


def test_columns_are_sparse_if_each_agent_has_entries_in_85_percent_of_them_at_most() -> None:
    assert is_sparse(objectives(matrices(0.85)))
    assert not is_sparse(objectives(matrices(0.86)))
    some = matrices(0.5)
    assert not is_sparse([*objectives(some)[:4], *objectives(matrices(1.0))[4:]])
    assert not is_sparse([*objectives(some)[:4], LeastSquares(some[4], np.ones(ROWS))])


def test_uneven_columns_are_not_sparse_columns() -> None:
    data = matrices(0.5)
    column = int(np.flatnonzero(data[2].any(axis=0))[0])
    data[2][:, column] *= 1000.0
    assert not is_sparse(objectives(data))


def run(method: FastDCGS, graph: nx.Graph, share: float) -> tuple[int, bytes, bytes]:
    fits = objectives(matrices(share, len(graph)))
    result = dcgs.minimize(fits, L1Ball(D, 4.0), graph, method, iterations=3, every=0)
    return result.rounds, result.agents.tobytes(), result.bytes.tobytes()


@pytest.mark.parametrize(
    ("graph", "share", "form"),
    [
        (CYCLE, 0.5, "sums"),
        (CYCLE, 1.0, "edges"),
        (nx.path_graph(19), 0.5, "sums"),  # a sum takes 18 rounds
        (nx.path_graph(21), 0.5, "edges"),
        (nx.empty_graph(1), 0.5, "sums"),
    ],
)
def test_sums_are_taken_for_sparse_columns_if_a_sum_takes_few_rounds(
    graph: nx.Graph, share: float, form: Form
) -> None:
    other: dict[Form, Form] = {"sums": "edges", "edges": "sums"}
    chosen = run(FastDCGS(), graph, share)
    assert chosen == run(FastDCGS(form=form), graph, share)
    assert chosen != run(FastDCGS(form=other[form]), graph, share)


def test_with_an_eta_or_messages_that_may_be_lost_the_form_is_edges() -> None:
    assert run(FastDCGS(eta=3.0), CYCLE, 0.5) == run(FastDCGS(eta=3.0, form="edges"), CYCLE, 0.5)
    fits, X = objectives(matrices(0.5)), L1Ball(D, 4.0)
    lossy = [
        dcgs.minimize(fits, X, CYCLE, method, rounds=9, runtime=dcgs.Lockstep(faults=dcgs.Faults(loss=0.2)))
        for method in (FastDCGS(), FastDCGS(form="edges"))
    ]
    np.testing.assert_array_equal(lossy[0].agents, lossy[1].agents)


def test_the_preconditioner_is_the_curvature_over_its_mean_and_at_least_a_tenth() -> None:
    np.testing.assert_array_equal(
        summed_preconditioner(np.array([0.0, 4.0, 8.0]), uneven=False), [0.1, 1.0, 2.0]
    )
    np.testing.assert_array_equal(summed_preconditioner(np.zeros(2), uneven=False), [0.1, 0.1])


def test_where_columns_are_uneven_the_preconditioner_has_their_curvatures() -> None:
    h = summed_preconditioner(np.array([0.0, 1e-6, 2.0]), uneven=True)
    np.testing.assert_allclose(h[1:] / h[2], [5e-7, 1.0], rtol=1e-15)
    assert 0.0 < h[0] <= 1e-12 * h[2]
    np.testing.assert_array_equal(summed_preconditioner(np.zeros(2), uneven=True), [1.0, 1.0])


def first_step(graph: nx.Graph) -> tuple[Array, Array]:
    """Return −∇f(0) divided by the first step, and the curvatures; the ball does not bind."""
    data = matrices(0.5)
    fits, X = objectives(data), L1Ball(D, 1e6)
    x = dcgs.minimize(fits, X, graph, FastDCGS(form="sums"), iterations=1, every=0).x
    g = sum((f.grad(np.zeros(D)) for f in fits), start=np.zeros(D))
    moved = g != 0.0
    return -g[moved] / x[moved], 2.0 * np.square(np.vstack(data)).sum(axis=0)[moved]


def test_the_first_step_is_along_the_gradient_divided_by_the_preconditioner() -> None:
    ratio, curvature = first_step(CYCLE)
    h = summed_preconditioner(
        curvature, uneven=False
    )  # its mean is that over other coordinates: equal up to a factor
    large = h > 0.3
    # The ball's projection returns the point itself; sums of a few terms are right to 1e-15.
    np.testing.assert_allclose(ratio[large] / ratio[large][0], h[large] / h[large][0], rtol=1e-12)


def test_with_a_hub_there_is_no_preconditioner() -> None:
    ratio, _ = first_step(nx.star_graph(4))
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-12)  # sums of a few terms


def test_the_certified_gap_is_true() -> None:
    data = matrices(0.5)
    fits, X = objectives(data), L1Ball(D, 4.0)
    result = dcgs.minimize(fits, X, CYCLE, gap=1e-4)
    first, last = (sum(f.value(point) for f in fits) for point in (np.zeros(D), result.x))
    _, least = optimum([(A, np.asarray(f.loss.data()["b"])) for A, f in zip(data, fits, strict=True)], X)
    assert result.status is Status.AGREED
    # The reference is right to 1e-9.
    assert last - least <= 1e-4 * (first - last) + 1e-9
