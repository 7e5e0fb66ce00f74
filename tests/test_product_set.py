"""Products of sets: their projections in a diagonal metric, and the derivatives of these."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

import dcgs
from dcgs.inner import Newton
from dcgs.sets.base import DiagonallyProjectableSet

PARTS = (dcgs.L1Ball(4, 1.0), dcgs.L2Ball((2, 2), 0.5), dcgs.Box([-1.0], [2.0]))


def projected(y: NDArray[np.float64], h: NDArray[np.float64] | None) -> dcgs.ProjectedPoint:
    X = dcgs.ProductSet(*PARTS)
    assert isinstance(X, DiagonallyProjectableSet)
    return X.projected(y, h)


@pytest.mark.parametrize("with_metric", [False, True])
def test_the_derivative_of_a_product_is_that_of_its_parts(with_metric: bool) -> None:
    rng = np.random.default_rng(0)
    y, d = 2.0 * rng.standard_normal(9), rng.standard_normal(9)
    h = rng.uniform(0.5, 2.0, 9) if with_metric else None
    step = 1e-6
    ahead, behind = projected(y + step * d, h).point, projected(y - step * d, h).point
    moved = projected(y, h).derivative().times(d if h is None else h * d)
    # Central differences of a smooth piece: their error is of order step², and rounding of 1e-10.
    np.testing.assert_allclose(moved, (ahead - behind) / (2.0 * step), atol=1e-8)


def test_newton_steps_over_a_product_of_two_balls_find_the_optimum_of_projected_steps() -> None:
    rng = np.random.default_rng(1)
    X = dcgs.ProductSet(dcgs.L1Ball(40, 2.0), dcgs.L2Ball(40, 1.0))
    A = rng.standard_normal((2, 30, 80))
    objectives = [dcgs.LeastSquares(own, own @ rng.standard_normal(80)) for own in A]
    found = [
        dcgs.minimize(objectives, X, nx.path_graph(2), dcgs.FastDCGS(inner=inner, form="edges"), gap=1e-6)
        for inner in (Newton(), "projected")
    ]
    values = [sum(f.value(one.x) for f in objectives) for one in found]
    # Both are certified to 1e-6 of the decrease, which is less than the value at 0.
    assert abs(values[0] - values[1]) <= 1e-6 * sum(f.value(np.zeros(80)) for f in objectives)


def test_what_is_not_a_set_cannot_be_a_part() -> None:
    with pytest.raises(TypeError, match=r"the parts of a product must be sets such as dcgs.L1Ball\(10\)"):
        dcgs.ProductSet(dcgs.L1Ball(2), 3.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="the parts of a product must be sets"):
        dcgs.ProductSet()
