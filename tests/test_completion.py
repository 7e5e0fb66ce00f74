"""FastDCGS for matrix completion: the optimum of a dense reference, no message with a dimension of users."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs import FastDCGS, MatrixCompletion, NuclearNormBall, Objective, Result, Status
from dcgs.low_rank import LowRank, inner, sampled_product, stacked
from dcgs.methods import Agent
from dcgs.methods.certificate import Bounds, CertifiedGap, GapKind, GapTarget
from dcgs.methods.fast import completion_shared
from dcgs.methods.fast.completion import complete
from dcgs.methods.fast.completion_gap import Command, GapSearch, ModelValue
from dcgs.objectives.sampling import SampledEntries, Sampling
from dcgs.sets.nuclear_norm_ball import onto_ball
from dcgs.sets.top_eigenvalue import TopEigenvalue
from problems import Array
from reference import optimum

ROWS, COLUMNS = 23, 9


def ratings(seed: int = 0, rows: int = ROWS, columns: int = COLUMNS) -> tuple[Any, Any, Array]:
    """Return the places and values of some entries of a matrix of rank 2, with noise."""
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((rows, 2)) @ rng.standard_normal((2, columns))
    seen = rng.random((rows, columns)) < 0.6
    seen[:, 0] = True  # every row has an entry
    i, j = np.nonzero(seen)
    return i, j, truth[i, j] + 0.1 * rng.standard_normal(len(i))


def agents(by_rows: bool, count: int = 4, **size: int) -> list[Objective]:
    """Return agents that have rows of their own, or entries of all rows."""
    i, j, values = ratings(**size)
    shape = size.get("rows", ROWS), size.get("columns", COLUMNS)
    owner = i * count // shape[0] if by_rows else np.arange(len(i)) % count
    parts = [owner == agent for agent in range(count)]
    return [MatrixCompletion(i[part], j[part], values[part], shape) for part in parts]


def dense_pairs(objectives: list[Objective]) -> list[tuple[Any, Array]]:
    """Return every agent's ‖A vec(x) − b‖²."""
    pairs = []
    for f in objectives:
        assert isinstance(f.map, Sampling)
        assert isinstance(f.loss, dcgs.SquaredLoss)
        n = f.map.size
        where = (np.arange(n), f.map.rows * COLUMNS + f.map.cols)
        pairs.append((sp.csr_array((np.ones(n), where), shape=(n, ROWS * COLUMNS)), f.loss.target))
    return pairs


def wolfe_gap(objectives: list[Objective], radius: float, x: Array) -> float:
    g = sum(f.grad(x) for f in objectives)
    return float(np.vdot(g, x) + radius * np.linalg.norm(g, 2))


every_split = pytest.mark.parametrize("by_rows", [True, False], ids=["separate rows", "spread rows"])


@every_split
@pytest.mark.parametrize("radius", [2.0, 12.0, 1e3])
def test_the_optimum_is_that_of_a_dense_reference(by_rows: bool, radius: float) -> None:
    objectives, X = agents(by_rows), NuclearNormBall((ROWS, COLUMNS), radius)
    result = dcgs.minimize(objectives, X, nx.path_graph(4), gap=1e-6, iterations=2000, every=0)
    assert result.status is Status.AGREED
    assert isinstance(result.x, LowRank)
    x = np.asarray(result.x)
    _, least = optimum(dense_pairs(objectives), X)
    value = sum(f.value(x) for f in objectives)
    first = sum(f.value(np.zeros((ROWS, COLUMNS))) for f in objectives)
    # The gap certifies 1e-6 of the decrease; the reference is right to 1e-8 or so.
    assert -1e-7 * first <= value - least <= 1.1e-6 * first
    assert np.linalg.norm(x, "nuc") <= radius * (1.0 + 1e-9)
    # The oracle of the reference is exact; the certified spectral norm is an upper bound.
    assert wolfe_gap(objectives, radius, x) <= 1e-6 * (first - value) + 1e-9 * first


@every_split
def test_all_agents_have_the_same_model(by_rows: bool) -> None:
    objectives, X = agents(by_rows), NuclearNormBall((ROWS, COLUMNS), 8.0)
    result = dcgs.minimize(objectives, X, nx.star_graph(3), gap=1e-3, every=0)
    models = [np.asarray(model) for model in result.agents]
    for model in models:
        np.testing.assert_array_equal(model, models[0])


def messages_of(
    monkeypatch: pytest.MonkeyPatch, objectives: list[Objective], X: NuclearNormBall
) -> tuple[list[Array], Result]:
    """Return every array of every message of a run, and the result."""
    arrays: list[Any] = []

    def recorded(agent: Any, kind: Any) -> Any:
        program = complete(agent, kind)
        try:
            outbox = next(program)
            while True:
                messages: Any = outbox.values() if isinstance(outbox, dict) else [outbox]
                arrays.extend(part for message in messages for part in message)
                outbox = program.send((yield outbox))
        except StopIteration as end:
            return end.value

    monkeypatch.setattr("dcgs.methods.fast.fast_dcgs.complete", recorded)
    return arrays, dcgs.minimize(objectives, X, nx.cycle_graph(5), gap=1e-4, iterations=500)


def test_no_message_has_a_dimension_of_rows_if_rows_are_separate(monkeypatch: pytest.MonkeyPatch) -> None:
    # Numbers of rows, all and of each agent, that nothing else has.
    size = {"rows": 185, "columns": 11}
    objectives = agents(True, count=5, **size)
    owned = {len(np.unique(f.map.rows)) for f in objectives if isinstance(f.map, Sampling)}
    assert owned == {37}
    arrays, result = messages_of(monkeypatch, objectives, NuclearNormBall((185, 11), 20.0))
    assert result.status is Status.AGREED
    assert len(arrays) > 50
    assert {37, 185}.isdisjoint({side for array in arrays for side in array.shape})
    assert max(array.size for array in arrays) <= 11 * 11


def test_spread_rows_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the test above could not fail."""
    objectives = agents(False, count=5, rows=185, columns=11)
    arrays, _ = messages_of(monkeypatch, objectives, NuclearNormBall((185, 11), 20.0))
    assert 185 in {side for array in arrays for side in array.shape}


# The bounds of f* by which agents stop.


@every_split
def test_a_model_that_fits_all_entries_is_certified_without_products(
    by_rows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No squared error is negative. With noise the radius would be too small for that."""
    rng = np.random.default_rng(4)
    truth = rng.standard_normal((ROWS, 2)) @ rng.standard_normal((2, COLUMNS))
    objectives = []
    for f in agents(by_rows, count=5):
        assert isinstance(f.map, Sampling)
        rows, cols = f.map.rows, f.map.cols
        objectives.append(MatrixCompletion(rows, cols, truth[rows, cols], (ROWS, COLUMNS)))
    X = NuclearNormBall((ROWS, COLUMNS), float(np.linalg.norm(truth, "nuc")))
    arrays, result = messages_of(monkeypatch, objectives, X)
    assert (result.status, result.about["certified"]["kind"]) == (Status.AGREED, "least")
    assert [Command.CERTIFY] not in [array.tolist() for array in arrays]
    assert result.rounds == 4 * result.iterations  # the tree of a cycle of five agents has height 2
    losses = result.history.worst_loss
    assert losses[-1] <= 1e-4 * (losses[0] - losses[-1]) < losses[-3]


@every_split
@pytest.mark.parametrize("radius", [2.0, 12.0])
def test_no_bound_is_above_the_optimum(by_rows: bool, radius: float, monkeypatch: pytest.MonkeyPatch) -> None:
    objectives, X = agents(by_rows), NuclearNormBall((ROWS, COLUMNS), radius)
    bounds: dict[GapKind, list[float]] = {each: [] for each in GapKind}
    add = Bounds.add

    def recorded(self: Bounds, lower: float, kind: GapKind) -> None:
        bounds[kind].append(lower)
        add(self, lower, kind)

    monkeypatch.setattr(Bounds, "add", recorded)
    result = dcgs.minimize(objectives, X, nx.path_graph(4), gap=1e-6, iterations=2000, every=0)
    assert result.status is Status.AGREED
    _, least = optimum(dense_pairs(objectives), X)
    first = sum(f.value(np.zeros((ROWS, COLUMNS))) for f in objectives)
    # The reference is right to 1e-8 or so; f(x⁰) is some hundreds.
    assert max(bounds[GapKind.LEAST]) == pytest.approx(-first, rel=1e-12)
    assert max(bounds[GapKind.LEAST]) <= -first
    assert least - first - 2e-6 * first <= max(bounds[GapKind.WOLFE]) <= least - first + 1e-7 * first


def test_a_bound_of_an_earlier_step_certifies_a_later_one() -> None:
    recorded: list[CertifiedGap] = []
    search, bounds = GapSearch(_root_agent(recorded)), Bounds(-10.0, GapKind.WOLFE)
    unknown = 1e300
    # The decrease is 9.9, so the gap is 0.1, and 0.0099 was asked for; then 9.995, 0.005 and 0.009995.
    assert search.end(ModelValue(-9.9, 0.0, unknown, at_start=False), bounds) is None
    end = search.end(ModelValue(-9.995, 0.0, unknown, at_start=False), bounds)
    assert end is not None
    assert end[0][0] == Command.STOP
    assert [round(gap.gap, 12) for gap in recorded] == [0.1, 0.005]
    # The error of the decrease counts.
    assert search.end(ModelValue(-9.995, 0.006, unknown, at_start=False), bounds) is None


def _root_agent(recorded: list[CertifiedGap]) -> Agent:
    """Return the root of a tree that asks for a gap of a thousandth."""
    X = NuclearNormBall((4, 3), 2.0)
    return Agent(
        index=0,
        f=MatrixCompletion([0], [0], [1.0], (4, 3)),
        X=X,
        lmo=dcgs.counting.CountedOracle(X),
        x0=np.zeros(0),
        degrees={},
        facts=None,  # type: ignore[arg-type]  # of the network
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, x, dual=None: None,
        target=GapTarget(1e-3),
        certify=recorded.append,
    )


def test_dense_forms_find_the_same_optimum() -> None:
    objectives, X = agents(True), NuclearNormBall((ROWS, COLUMNS), 5.0)
    factored = dcgs.minimize(objectives, X, nx.path_graph(4), gap=1e-5, every=0)
    dense = dcgs.minimize(objectives, X, nx.path_graph(4), FastDCGS(form="edges"), gap=1e-5, every=0)
    first = float(factored.history.mean_loss[0])
    assert abs(factored.history.mean_loss[-1] - dense.history.mean_loss[-1]) <= 2e-5 * first


# Shared rows.


def test_shared_rows_take_one_sum_an_iteration() -> None:
    objectives, X = agents(False), NuclearNormBall((ROWS, COLUMNS), 8.0)
    result = dcgs.minimize(objectives, X, nx.path_graph(4), gap=None, iterations=5)
    assert result.rounds == 5 * 4  # the tree of a path of four agents has height 2


def test_no_gradient_is_sent_if_rows_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a model that all know, a sparse gradient would tell the ratings."""
    objectives = agents(False, count=5, rows=60, columns=50)
    arrays, result = messages_of(monkeypatch, objectives, NuclearNormBall((60, 50), 20.0))
    assert result.status is Status.AGREED
    assert len(arrays) > 50
    assert (60, 50) not in {array.shape for array in arrays}


def test_a_step_that_is_too_long_is_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    """All agents have the same entries, so f has five times the smoothness of an agent."""
    f = agents(False, count=1)[0]
    X = NuclearNormBall((ROWS, COLUMNS), 12.0)
    arrays, result = messages_of(monkeypatch, [f] * 5, X)
    assert result.status is Status.AGREED
    assert [Command.BACK] in [array[:1].tolist() for array in arrays if array.shape == (4,)]
    _, least = optimum(dense_pairs([f]), X)
    first = float(result.history.mean_loss[0])
    # The gap certifies 1e-4 of the decrease; the reference is right to 1e-8 or so.
    assert -1e-7 * first <= float(result.history.mean_loss[-1]) - 5.0 * least <= 1.1e-4 * first


@pytest.mark.parametrize("radius", [1.0, 4.0, 100.0])
@pytest.mark.parametrize("tolerance", [0.0, 0.3, 2.0])
def test_a_step_of_fewer_triples_is_the_projection_of_a_matrix_near_enough(
    radius: float, tolerance: float
) -> None:
    sigma = np.array([3.0, 2.5, 2.0, 1.0, 0.5, 0.2, 0.1])
    rank = completion_shared._rank(sigma, radius, tolerance)
    c = np.zeros(len(sigma))
    c[:rank] = onto_ball(sigma[:rank], radius)
    tau = float((sigma[:rank] - c[:rank]).min())
    near = sigma.copy()
    near[rank:] = np.minimum(near[rank:], tau)
    np.testing.assert_allclose(onto_ball(np.sort(near)[::-1], radius), np.sort(c)[::-1], atol=1e-14)
    assert np.linalg.norm(near - sigma) <= tolerance
    # One triple less would be too few.
    fewer = onto_ball(sigma[: rank - 1], radius) if rank > 1 else np.zeros(0)
    lower = float((sigma[: rank - 1] - fewer).min()) if rank > 1 else 0.0
    assert rank == 1 or np.linalg.norm(np.maximum(sigma[rank - 1 :] - lower, 0.0)) > tolerance


# The spectral norm.


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(30, 12), (40, 60), (7, 3)])
def test_the_spectral_norm_and_its_error_bound_the_largest_singular_value(
    shape: tuple[int, int], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    G = rng.standard_normal(shape) * (10.0 ** rng.uniform(-2.0, 2.0, shape[1]))
    largest = float(np.linalg.norm(G, 2)) ** 2
    search = TopEigenvalue.start(np.linalg.qr(rng.standard_normal((shape[1], 2)))[0], rng)
    while search.bound - search.value > 1e-6 * largest:
        search.add(G.T @ (G @ search.block), 1e-6 * largest)
    # Ritz values are never above, up to rounding.
    assert search.value <= largest * (1.0 + 1e-12)
    assert largest <= search.bound * (1.0 + 1e-12)


def test_the_spectral_norm_is_found_though_the_first_vectors_are_orthogonal_to_it() -> None:
    G = np.diag([5.0, 4.0, 3.0, 2.0, 1.0, 0.5, 0.4, 0.3, 0.2, 0.1, 0.05, 0.01])
    search = TopEigenvalue.start(np.eye(12)[:, 6:8], np.random.default_rng(0))
    search.add(G.T @ (G @ search.block), 1e-9)
    assert [search.value, search.bound] == pytest.approx([25.0, 25.0], rel=1e-9)


# Matrices in factors.


def test_entries_rows_norms_and_products_are_those_of_the_dense_matrix() -> None:
    rng = np.random.default_rng(1)
    x = LowRank(rng.standard_normal((3, 2)), rng.standard_normal((5, 2)), (6, 5), np.array([0, 2, 5]))
    y = LowRank(rng.standard_normal((3, 1)), rng.standard_normal((5, 1)), (6, 5), np.array([0, 2, 5]))
    dense = np.asarray(x)
    assert not dense[[1, 3, 4]].any()
    i, j = np.indices((6, 5))
    # Sums of two products.
    np.testing.assert_allclose(x.entries(i, j), dense, rtol=0.0, atol=1e-15)
    np.testing.assert_allclose([x.row(k) for k in range(6)], dense, rtol=0.0, atol=1e-15)
    assert x.norm() == pytest.approx(float(np.linalg.norm(dense)), rel=1e-13)
    assert inner(x, y) == pytest.approx(float(np.vdot(dense, np.asarray(y))), rel=1e-12)
    np.testing.assert_allclose(x.singular_values(), np.linalg.svd(dense)[1][:2], rtol=1e-13)
    np.testing.assert_array_equal(x.top(2, 3), np.argsort(-dense[2], kind="stable")[:3])
    assert x.top(2, 5, without=[0, 3]).tolist() == [k for k in np.argsort(-dense[2]) if k not in (0, 3)]
    np.testing.assert_array_equal(x.rows_of(np.array([1, 2])), [[0.0, 0.0], x.U[1]])


def test_the_zero_matrix_has_no_row_and_rank_zero() -> None:
    x = LowRank.zeros((4, 3))
    assert (x.rank, x.nbytes, x.norm()) == (0, 0, 0.0)
    np.testing.assert_array_equal(np.asarray(x), np.zeros((4, 3)))
    np.testing.assert_array_equal(x.entries([0, 3], [1, 2]), [0.0, 0.0])


def test_parts_with_different_rows_are_stacked_in_the_order_of_rows() -> None:
    V = np.array([[1.0], [2.0]])
    parts = [
        LowRank(np.array([[float(k)]]), V, (3, 2), np.array([row])) for k, row in ((7, 2), (5, 0), (6, 1))
    ]
    np.testing.assert_array_equal(np.asarray(stacked(parts)), [[5.0, 10.0], [6.0, 12.0], [7.0, 14.0]])


def test_sampled_products_are_those_of_the_dense_matrix_also_beyond_one_chunk() -> None:
    rng = np.random.default_rng(2)
    U, V = rng.standard_normal((50, 3)), rng.standard_normal((40, 3))
    i, j = rng.integers(0, 50, 20_000), rng.integers(0, 40, 20_000)
    np.testing.assert_allclose(sampled_product(U, V, i, j), (U @ V.T)[i, j], rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("all_rows", [True, False])
def test_the_sparse_gradient_is_the_dense_one_also_where_entries_repeat(all_rows: bool) -> None:
    f = MatrixCompletion([4, 1, 4, 4], [0, 2, 0, 1], [1.0, 2.0, 3.0, 4.0], (6, 3))
    assert isinstance(f.map, Sampling)
    entries = SampledEntries(f.map, all_rows)
    assert entries.rows.tolist() == ([0, 1, 2, 3, 4, 5] if all_rows else [1, 4])
    rng = np.random.default_rng(3)
    U, V = rng.standard_normal((len(entries.rows), 2)), rng.standard_normal((3, 2))
    dense = np.zeros((6, 3))
    dense[entries.rows] = U @ V.T
    image = entries.image(U, V)
    np.testing.assert_allclose(image, f.map.image(dense), rtol=0.0, atol=1e-14)
    G = entries.adjoint(f.loss.grad(image)).toarray()
    np.testing.assert_allclose(G, f.grad(dense)[entries.rows], rtol=0.0, atol=1e-13)


def block_types(objectives: Any, X: NuclearNormBall, **options: Any) -> tuple[dcgs.Result, list[Any]]:
    """Return a run, and the types of the matrices that are sent, in their order."""
    found: list[Any] = []

    def seen(round: int, sender: int, receiver: int, arrays: tuple[np.ndarray, ...]) -> None:
        found.extend(array.dtype.type for array in arrays if array.ndim == 2 and array.size)

    runtime = dcgs.Lockstep(on_message=seen)
    return dcgs.minimize(objectives, X, nx.path_graph(4), runtime=runtime, **options), found


@pytest.mark.parametrize("iterations", [1, 3, 5])
def test_blocks_of_shared_rows_are_float32_while_steps_are_long_and_no_model_leaves_the_ball(
    iterations: int,
) -> None:
    objectives, X = agents(False), NuclearNormBall((ROWS, COLUMNS), 2.0)
    result, types = block_types(objectives, X, iterations=iterations)
    assert set(types) == {np.float32}
    assert np.linalg.norm(np.asarray(result.x), "nuc") <= 2.0 * (1.0 + 1e-12)
    _, later = block_types(objectives, X, iterations=20)
    assert later[-1] is np.float64


@pytest.mark.parametrize("options", [{"gap": 1e-6}, {"secure": True, "iterations": 5, "every": None}])
def test_blocks_of_shared_rows_are_float64_for_small_gaps_and_in_masked_sums(options: Any) -> None:
    _, types = block_types(agents(False), NuclearNormBall((ROWS, COLUMNS), 2.0), **options)
    assert np.float32 not in types
    assert np.float64 in types


def test_rounded_vectors_do_not_lead_out_of_the_ball() -> None:
    rng, outside = np.random.default_rng(3), list[bool]()
    for _ in range(30):
        left, right = (np.linalg.qr(rng.standard_normal((side, 4)))[0] for side in (ROWS, COLUMNS))
        c = np.array([3.0, 2.0, 1.0])
        x = completion_shared._rounded(completion_shared.Blocks(left, right, c))
        assert np.linalg.norm(x.left_factor @ x.right_factor.T, "nuc") <= 6.0 * (1.0 + 1e-14)
        unscaled = (x.left[:, :3] * c) @ x.right_factor.T
        outside.append(bool(np.linalg.norm(unscaled, "nuc") > 6.0 * (1.0 + 1e-9)))
    assert any(outside)
