"""Measurements of all models on all data: fast where that is exact, and equal to the plain formulas."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.objectives import HuberLoss, Objective, matrix_map
from dcgs.run.distributed import as_distributed
from dcgs.run.measuring import Measurement

rng = np.random.default_rng(5)
DATA = [(rng.standard_normal((4 + i, 6)), rng.standard_normal(4 + i)) for i in range(5)]
OBJECTIVES: dict[str, Callable[[], list[Objective]]] = {
    "squares": lambda: [dcgs.LeastSquares(A, b) for A, b in DATA],
    "sparse squares": lambda: [dcgs.LeastSquares(sp.csr_array(A), b) for A, b in DATA],
    "logistic": lambda: [dcgs.Logistic(A, np.sign(b)) for A, b in DATA],
    "huber": lambda: [Objective(HuberLoss(b, 0.5), matrix_map(A)) for A, b in DATA],
    "mixed": lambda: [dcgs.LeastSquares(*DATA[0]), *(dcgs.Logistic(A, np.sign(b)) for A, b in DATA[1:])],
}


@pytest.mark.parametrize("name", OBJECTIVES)
@pytest.mark.parametrize("spread", [0.0, 1e-9, 1.0])
def test_measurements_are_those_of_the_plain_formulas(name: str, spread: float) -> None:
    objectives, X = OBJECTIVES[name](), dcgs.L1Ball(6, 3.0)
    points = 0.1 + spread * 0.3 * np.random.default_rng(1).standard_normal((5, 6))
    x_bar = points.mean(axis=0)
    found = Measurement(as_distributed(objectives), X, None)(list(points), x_bar).columns
    grad = np.sum([f.grad(x_bar) for f in objectives], axis=0)
    plain = {
        "local_loss": sum(f.value(x) for f, x in zip(objectives, points, strict=True)),
        "mean_loss": sum(f.value(x_bar) for f in objectives),
        "worst_loss": max(sum(f.value(x) for f in objectives) for x in points),
        "disagreement": max(np.linalg.norm(x - x_bar) for x in points),
        "gap": grad @ (x_bar - X.lmo(grad).dense()),
    }
    # A few dozen roundings of sums of about 50.
    assert found == pytest.approx(plain, rel=1e-13, abs=1e-15)


def test_the_worst_loss_of_nearly_equal_models_does_not_cancel() -> None:
    x = rng.standard_normal(6)
    objectives = [dcgs.LeastSquares(A, A @ x) for A, _ in DATA]
    points = x + 1e-9 * np.random.default_rng(2).standard_normal((5, 6))
    measure = Measurement(as_distributed(objectives), dcgs.L1Ball(6, 30.0), None)
    found = measure(list(points), points.mean(axis=0)).columns
    worst = max(sum(float(np.square(A @ (y - x)).sum()) for A, _ in DATA) for y in points)
    # f is about 1e-16 at the models, and y − x has seven digits: an error of 1e-16 · f(0) would show.
    assert found["worst_loss"] == pytest.approx(worst, rel=1e-6)


def test_images_in_blocks_are_images_of_all_points(monkeypatch: pytest.MonkeyPatch) -> None:
    f = dcgs.Logistic(DATA[0][0], np.sign(DATA[0][1]))
    points = np.random.default_rng(3).standard_normal((7, 6))
    (together,) = f.images(points)
    monkeypatch.setattr("dcgs.objectives.objective._BLOCK", 8)  # two points of four rows
    # The same products, with another kernel.
    blocks = list(f.images(points))
    assert len(blocks) == 4
    np.testing.assert_allclose(np.concatenate(blocks), together, rtol=1e-14)
