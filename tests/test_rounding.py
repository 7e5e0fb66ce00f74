"""Rounding: decreases that do not cancel, bounds that hold, and no success where rounding decides.

The judge computes with ``numpy.longdouble``, whose rounding errors are 2,000 times smaller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray

import dcgs
from dcgs.low_rank import LowRank
from dcgs.methods import Method
from dcgs.objectives import HuberLoss, LogisticLoss, Loss, SquaredLoss, matrix_map
from dcgs.objectives.centered import CenteredMap, CenteredMatrix
from dcgs.objectives.losses import WeightedLoss
from dcgs.objectives.objective import Baseline, Objective

Array = NDArray[np.float64]
Long: Any = np.longdouble

PATH = nx.path_graph(3)
OFFSET = 1e9

METHODS: dict[str, Method] = {
    "edges": dcgs.FastDCGS(form="edges"),
    "sums": dcgs.FastDCGS(form="sums"),
    "root": dcgs.FastDCGS(form="root"),
    "newton": dcgs.FastDCGS(form="newton"),
    "DFW": dcgs.DFW(),
    "DCGS": dcgs.DCGS(),
    "NIDS": dcgs.NIDS(),
}


def offset_data(seed: int, level: float) -> list[tuple[Array, Array]]:
    """Return the data of three agents whose targets are 10⁹ away, in directions orthogonal to A.

    The minimizer and f(x⁰) − f*, of size ``level``, do not depend on the offset; f does.
    """
    rng = np.random.default_rng(seed)
    data = []
    for _ in range(3):
        A = rng.standard_normal((6, 4))
        normal = np.linalg.svd(A)[0][:, 4:] @ rng.standard_normal(2)
        data.append((A, OFFSET * normal + A @ rng.standard_normal(4) * np.sqrt(level)))
    return data


def long_decrease(data: Sequence[tuple[Array, Array]], x: Array) -> float:
    """Return f(0) − f(x)."""
    total = Long(0)
    for A, b in data:
        z = A.astype(Long) @ x.astype(Long)
        total += np.sum(-z * (z - 2 * b.astype(Long)))
    return float(total)


def least(data: Sequence[tuple[Array, Array]], radius: float) -> Array:
    """Return the minimizer over a Euclidean ball, by accelerated projected gradients."""
    H = sum(2 * A.T.astype(Long) @ A.astype(Long) for A, _ in data)
    g = sum(-2 * A.T.astype(Long) @ b.astype(Long) for A, b in data)
    step = 1 / np.linalg.eigvalsh(np.asarray(H, dtype=np.float64))[-1]
    x = y = np.zeros(4, dtype=Long)
    for k in range(2000):
        z = y - step * (H @ y + g)
        z = z * min(Long(1), radius / np.sqrt(z @ z))
        y, x = z + k / (k + 3) * (z - x), z
    return np.asarray(x, dtype=np.float64)


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("level", [0.4, 0.004, 1e-6])
def test_no_success_is_false_where_the_loss_is_far_larger_than_its_decrease(name: str, level: float) -> None:
    for seed in range(3):
        data = offset_data(seed, level)
        objectives = [dcgs.LeastSquares(A, b) for A, b in data]
        result = dcgs.minimize(objectives, dcgs.L2Ball(4, 2.0), PATH, METHODS[name], gap=1e-3, iterations=60)
        best = long_decrease(data, least(data, 2.0))
        worst = max(best - long_decrease(data, x) for x in result.agents)
        assert not result.status.success or worst <= 1e-3 * best


@pytest.mark.parametrize("name", ["edges", "sums", "root", "newton", "NIDS"])
def test_a_decrease_far_below_the_rounding_error_of_the_loss_is_certified(name: str) -> None:
    """f is about 10¹⁸, and a rounding error of it 128; the decrease is about 1."""
    objectives = [dcgs.LeastSquares(A, b) for A, b in offset_data(0, 0.4)]
    result = dcgs.minimize(objectives, dcgs.L2Ball(4, 2.0), PATH, METHODS[name], gap=1e-3)
    assert result.status.success
    assert result.history.mean_loss[0] > 1e17


rng = np.random.default_rng(7)
LOSSES: dict[str, Callable[[Array], Loss]] = {
    "squares": SquaredLoss,
    "huber": lambda b: HuberLoss(b, 0.5),
    "logistic": lambda b: LogisticLoss(np.where(b < 0.0, -1.0, 1.0)),
    "weighted squares": lambda b: WeightedLoss(SquaredLoss(b), np.linspace(0.1, 3.0, len(b))),
}
MATRICES = {
    "dense": rng.standard_normal((40, 300)),
    "positive": rng.uniform(1.0, 2.0, (40, 300)),
    "uneven": rng.standard_normal((40, 300)) * 10.0 ** rng.uniform(-4, 4, 300),
    "nearly dependent": 1.0 + 1e-9 * rng.standard_normal((40, 300)),
}
ONES = np.ones(40)
POINTS: dict[str, Array] = {
    "random": rng.standard_normal(300),
    "equal": np.ones(300),
    "alternating": np.tile([1.0, -1.0], 150),
    "sparse": np.eye(300)[7] + 1e3 * np.eye(300)[20],
}
MAPS: dict[str, Callable[[Array], Any]] = {
    "dense": lambda A: matrix_map(A),
    "sparse": lambda A: matrix_map(sp.csr_array(A)),
    "centered": lambda A: CenteredMap(
        CenteredMatrix.of(sp.csr_array(A), np.ones(40), A.mean(axis=0)), (300,)
    ),
}


def long_values(kind: str, loss: Loss, z: Any) -> Any:
    """Return the values of all entries, with the precision of z."""
    data: dict[str, Any] = {key: value.astype(Long) for key, value in loss.data().items()}
    match kind:
        case "squares":
            return (z - data["b"]) ** 2
        case "weighted squares":
            return data["weights"] * (z - data["b"]) ** 2
        case "huber":
            r = np.abs(z - data["target"])
            return np.where(r <= 0.5, r**2, r - Long(0.25))
        case _:
            return np.logaddexp(Long(0), -data["labels"] * z)


def long_slopes(kind: str, loss: Loss, z: Any) -> Any:
    """Return the derivatives of all entries, with the precision of z."""
    data: dict[str, Any] = {key: value.astype(Long) for key, value in loss.data().items()}
    match kind:
        case "squares":
            return 2 * (z - data["b"])
        case "weighted squares":
            return 2 * data["weights"] * (z - data["b"])
        case "huber":
            return 2 * np.clip(z - data["target"], Long(-0.5), Long(0.5))
        case _:
            return -data["labels"] * (1 - np.tanh(data["labels"] * z / 2)) / 2


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("matrix", MATRICES)
@pytest.mark.parametrize("map_", MAPS)
@pytest.mark.parametrize("kind", LOSSES)
def test_rounding_errors_are_below_their_bounds(kind: str, map_: str, matrix: str, point: str) -> None:
    A: Array = MATRICES[matrix]
    x = POINTS[point]
    b = np.random.default_rng(3).standard_normal(40) * 10.0
    f = Objective(LOSSES[kind](b), MAPS[map_](A))
    exact: Any = A.astype(Long) - (A.mean(axis=0).astype(Long) if map_ == "centered" else 0)
    start: Array = 0.5 * x
    base = Baseline.at(f, start)
    image = f.map.image(x)
    z: Any = exact @ x.astype(Long)
    assert np.all(np.abs(image - z) <= f.map.image_error(x))
    decrease, noise = base.decrease(x, image)
    before: Any = exact @ start.astype(Long)
    true = np.sum(long_values(kind, f.loss, before) - long_values(kind, f.loss, z))
    assert abs(decrease - true) <= noise
    g: Any = exact.T @ long_slopes(kind, f.loss, z)
    error = f.map.adjoint(f.loss.grad(image)) - g
    assert float(np.sqrt(np.sum(error**2))) <= f.grad_error(x, image)


def test_a_loss_without_values_of_entries_has_the_rounding_error_of_its_value() -> None:
    class Total(Loss):
        curvature = (2.0, 2.0)

        def value(self, z: Array) -> float:
            return 1e6 + float(z @ z)

        def grad(self, z: Array) -> Array:
            return 2.0 * z

        def hess(self, z: Array) -> Array:
            return np.full_like(z, 2.0)

        def data(self) -> dict[str, Array]:
            return {"b": np.zeros(2)}

    decrease, noise = Total().decrease(np.array([1.0, 2.0]), np.array([1.0, 1.0]))
    assert decrease == pytest.approx(3.0, abs=1e-9)  # of 10⁶, twice
    assert 2e6 * 2.2e-16 <= noise <= 2e6 * 1e-15


def test_many_images_are_evaluated_as_one_is() -> None:
    z, images = rng.standard_normal(5), rng.standard_normal((3, 5))
    for make in LOSSES.values():
        loss = make(np.array([1.0, -2.0, 0.5, 3.0, -1.0]))
        each = [loss.decrease(z, image)[0] for image in images]
        np.testing.assert_allclose(loss.total_decreases(z, images), each, rtol=1e-13)  # ten roundings


def test_entries_of_a_matrix_in_factors_are_within_their_bounds() -> None:
    U, V = rng.standard_normal((7, 60)), rng.standard_normal((9, 60))
    rows, cols = np.repeat(np.arange(7), 9), np.tile(np.arange(9), 7)
    f = dcgs.MatrixCompletion(rows, cols, np.zeros(63), (7, 9))
    x = LowRank(U, V, (7, 9))
    exact: Any = U.astype(Long) @ V.T.astype(Long)
    assert np.all(np.abs(f.map.image(x) - exact.reshape(-1)) <= f.map.image_error(x))
    some = LowRank(U[[2, 5]], V, (7, 9), rows=np.array([2, 5]))
    noise = f.map.image_error(some).reshape(7, 9)
    np.testing.assert_array_equal(noise[[0, 1, 3, 4, 6]], 0.0)  # rows that it does not have are exact zeros
    assert (noise[[2, 5]] > 0.0).all()
