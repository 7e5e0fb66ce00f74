"""Models of agents: arrays or matrices in factors, through minimize, histories, files and warm starts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs import LowRank, MatrixCompletion, NuclearNormBall
from dcgs.run.measuring import certify
from dcgs.run.models import ARRAYS, FACTORS
from dcgs.runtime.group import TransportGroup
from thread_transport import Network, Threads

SHAPE = (12, 7)
X = NuclearNormBall(SHAPE, 8.0)


def ratings(own_rows: bool, agents: int = 4) -> list[dcgs.Objective]:
    """Return observed entries of a matrix of rank 2; with ``own_rows`` no row is at two agents."""
    rng = np.random.default_rng(3)
    truth = rng.standard_normal((12, 2)) @ rng.standard_normal((2, 7))
    parts = []
    for i in range(agents):
        rows = rng.integers(3 * i, 3 * i + 3, 15) if own_rows else rng.integers(0, 12, 15)
        cols = rng.integers(0, 7, 15)
        parts.append(MatrixCompletion(rows, cols, truth[rows, cols], SHAPE))
    return parts


def factors(rows: list[int], seed: int = 0) -> LowRank:
    rng = np.random.default_rng(seed)
    V = np.random.default_rng(9).standard_normal((7, 2))
    return LowRank(rng.standard_normal((len(rows), 2)), V, SHAPE, np.array(rows))


every_kind = pytest.mark.parametrize("own_rows", [True, False], ids=["own rows", "shared rows"])


@every_kind
@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.star_graph(3), nx.complete_graph(4)], ids=len)
def test_every_measure_of_factors_is_that_of_the_matrix(own_rows: bool, graph: nx.Graph) -> None:
    objectives = ratings(own_rows)
    result = dcgs.minimize(objectives, X, graph, gap=1e-3)
    assert isinstance(result.x, LowRank)
    assert result.status is dcgs.Status.AGREED
    dense = np.asarray(result.x)
    history = result.history
    value = sum(f.value(dense) for f in objectives)
    gradient = sum((f.grad(dense) for f in objectives), start=np.zeros(SHAPE))
    gap = float(np.vdot(gradient, dense)) + 8.0 * float(np.linalg.svd(gradient, compute_uv=False)[0])
    # Sums of some dozen products in another order; the gap is a difference of far larger numbers.
    for name in ("local_loss", "mean_loss", "worst_loss"):
        assert getattr(history, name)[-1] == pytest.approx(value, rel=1e-10)
    assert history.gap[-1] == pytest.approx(gap, rel=1e-6)
    assert history.disagreement[-1] == 0.0
    # What the agents certified is true.
    assert history.gap[-1] <= 1e-3 * (history.worst_loss[0] - history.worst_loss[-1]) * (1.0 + 1e-6)
    assert float(np.linalg.svd(dense, compute_uv=False).sum()) <= 8.0 * (1.0 + 1e-12)
    assert certify(objectives, X, dense) == pytest.approx((value, gap), rel=1e-6)


@every_kind
def test_completion_in_factors_finds_what_completion_of_dense_matrices_finds(own_rows: bool) -> None:
    objectives, graph = ratings(own_rows), nx.cycle_graph(4)
    one = dcgs.minimize(objectives, X, graph, gap=1e-5)
    other = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(form="edges"), gap=1e-5)
    start = one.history.mean_loss[0]
    assert isinstance(other.x, np.ndarray)
    # Both are certified: within 1e-5 of the decrease, each from the same optimum.
    assert one.history.worst_loss[-1] == pytest.approx(other.history.worst_loss[-1], abs=1e-5 * start)


def test_agents_of_one_row_each_certify_the_gap_of_the_whole_gradient() -> None:
    """Two agents with the same entries: the gradient of the sum is twice that of each."""
    f = ratings(own_rows=False, agents=1)[0]
    result = dcgs.minimize([f, f], X, nx.path_graph(2), gap=1e-4)
    history = result.history
    assert result.status is dcgs.Status.AGREED
    first = next(gap for *_, gap, _, kind in result.certificates if kind == "wolfe")
    assert np.min(np.abs(history.gap / first - 1.0)) <= 1e-6
    best = dcgs.minimize([f, f], X, nx.path_graph(2), gap=1e-8, every=0)
    above = history.worst_loss[-1] - sum(each.value(np.asarray(best.x)) for each in (f, f))
    assert 0.0 <= above <= result.certificates[-1][2]


@every_kind
def test_a_result_in_factors_is_read_as_it_was_written(own_rows: bool, tmp_path: Path) -> None:
    result = dcgs.minimize(ratings(own_rows), X, nx.cycle_graph(4), gap=0.01)
    back = dcgs.Result.load(result.save(tmp_path / "run.npz"))
    assert (back.x.U.tobytes(), back.x.V.tobytes()) == (result.x.U.tobytes(), result.x.V.tobytes())
    assert back.x.shape == result.x.shape == SHAPE
    assert np.asarray(back.x).tobytes() == np.asarray(result.x).tobytes()
    assert len(back.agents) == 4
    assert back.history.gap.tobytes() == result.history.gap.tobytes()


@every_kind
@pytest.mark.parametrize("every", [1, 2, 5])
def test_completion_is_resumed_to_the_same_bits(own_rows: bool, every: int, tmp_path: Path) -> None:
    objectives, graph = ratings(own_rows), nx.path_graph(4)
    alone = dcgs.minimize(objectives, X, graph, iterations=13)
    dcgs.minimize(objectives, X, graph, iterations=7, checkpoint=dcgs.Checkpoint(tmp_path, every))
    resumed = dcgs.minimize(
        objectives, X, graph, iterations=13, checkpoint=dcgs.Checkpoint(tmp_path, every, resume=True)
    )
    assert (resumed.x.U.tobytes(), resumed.x.V.tobytes()) == (alone.x.U.tobytes(), alone.x.V.tobytes())
    assert resumed.bytes.tolist() == alone.bytes.tolist()
    assert resumed.history.gap.tobytes() == alone.history.gap.tobytes()


@every_kind
def test_a_model_in_factors_is_a_start(own_rows: bool) -> None:
    """The first measurement of the second run is the last one of the first."""
    objectives, graph = ratings(own_rows), nx.cycle_graph(4)
    first = dcgs.minimize(objectives, X, graph, iterations=8)
    again = dcgs.minimize(objectives, X, graph, x0=first.x, gap_abs=1e-3)
    for name in ("local_loss", "mean_loss", "worst_loss", "gap"):
        before, after = getattr(first.history, name)[-1], getattr(again.history, name)[0]
        assert after == pytest.approx(before, rel=1e-9)
    dense = dcgs.minimize(objectives, X, graph, x0=np.asarray(first.x), gap_abs=1e-3)
    assert dense.history.mean_loss[0] == pytest.approx(first.history.mean_loss[-1], rel=1e-9)
    assert again.history.gap[-1] <= 1e-3
    edges = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(form="edges"), x0=first.x, iterations=2)
    assert edges.history.mean_loss[0] == pytest.approx(first.history.mean_loss[-1], rel=1e-9)


@pytest.mark.parametrize(
    ("x0", "message"),
    [
        (
            LowRank(np.ones((2, 1)), np.ones((7, 1)), (2, 7)),
            r"x0 must have shape \(12, 7\), as X; got \(2, 7\)",
        ),
        (
            LowRank(np.full((12, 1), np.nan), np.ones((7, 1)), SHAPE),
            r"x0.U must be finite; x0.U\[0, 0\] is nan",
        ),
        (
            LowRank(np.ones((12, 1)), 5.0 * np.ones((7, 1)), SHAPE),
            r"x0 must be in X, a NuclearNormBall; it viol",
        ),
    ],
)
def test_a_start_in_factors_must_be_in_the_set(x0: LowRank, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dcgs.minimize(ratings(own_rows=True), X, nx.path_graph(4), x0=x0)


def test_the_average_of_arrays_is_their_mean_and_that_of_own_rows_is_the_matrix() -> None:
    assert ARRAYS.average([np.array([1.0, 2.0]), np.array([3.0, 6.0])]).tolist() == [2.0, 4.0]
    one, two = factors([0, 5], 1), factors([2, 3, 11], 2)
    matrix = FACTORS.average([one, two])
    assert np.asarray(matrix).tolist() == (np.asarray(one) + np.asarray(two)).tolist()
    assert FACTORS.whole([one, two], matrix) == [matrix] * 2
    assert FACTORS.distance(one, matrix) == 0.0


def test_all_processes_get_the_models_of_all_agents() -> None:
    answers: dict[int, Any] = {0: factors([0, 5], 1), 1: factors([2], 2), 2: factors([3, 4, 11], 3)}

    def gather(transport: Threads) -> list[bytes]:
        mine = {transport.rank: answers[transport.rank]}
        found: dict[int, Any] = dict(FACTORS.allgather(TransportGroup(transport), mine, SHAPE))
        return [np.asarray(found[i]).tobytes() + found[i].rows.tobytes() for i in sorted(found)]

    alone = [np.asarray(each).tobytes() + each.rows.tobytes() for each in answers.values()]
    assert Network(3).run(gather) == [alone] * 3
