"""Projections: what is nearest, checked by what makes it so and by an independent solver."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dcgs
from dcgs.methods.base import Projection
from dcgs.points import Point, norm, vdot
from dcgs.projections import onto_simplex
from dcgs.sets import ConvexSet
from dcgs.sets.base import DiagonallyProjectableSet
from reference import optimum

SETS: dict[str, ConvexSet] = {
    "l1": dcgs.L1Ball(5, radius=2.0),
    "l1 of matrices": dcgs.L1Ball((2, 3), radius=0.5),
    "simplex": dcgs.Simplex(5, radius=3.0),
    "simplex of one": dcgs.Simplex(1, radius=2.0),
    "l2": dcgs.L2Ball(4, radius=1.5),
    "l2 of matrices": dcgs.L2Ball((2, 3), radius=1.5),
    "linf": dcgs.LInfBall(4, radius=0.5),
    "box": dcgs.Box([[-1.0, 0.0], [2.0, 0.5]], [[1.0, 0.0], [5.0, 0.75]]),
    "groups": dcgs.GroupL1Ball(6, groups=[[3, 0], [1], [4, 2, 5]], radius=2.0),
    "groups of matrices": dcgs.GroupL1Ball((2, 2), groups=[[0, 3], [2, 1]], radius=1.0),
    "k-sparse": dcgs.KSparseBall(5, k=2, radius=1.5),
    "nuclear": dcgs.NuclearNormBall((3, 4), radius=2.0),
    "nuclear, tall": dcgs.NuclearNormBall((4, 2), radius=0.7),
    "spectraplex": dcgs.Spectraplex(3, radius=2.0),
    "spectraplex of one": dcgs.Spectraplex(1, radius=2.0),
}
WITHOUT: list[ConvexSet] = [
    dcgs.BirkhoffPolytope(2),
    dcgs.ConvexHull(np.eye(3)),
    dcgs.Polytope(np.vstack([np.eye(2), -np.eye(2)]), np.ones(4)),
]
every_set = pytest.mark.parametrize("X", SETS.values(), ids=SETS)


def project_onto(X: ConvexSet) -> Projection:
    assert isinstance(X, dcgs.ProjectableSet)
    return X.project


def points(X: ConvexSet, largest: float = 10.0) -> Any:
    entries = st.floats(-largest, largest, allow_subnormal=False)
    return arrays(np.float64, X.shape, elements=entries)


def scale(X: ConvexSet, y: Point) -> float:
    """Return how large the numbers are that a projection of y computes with."""
    return norm(y) + norm(X.start()) + X.diameter


def assert_nearest(X: ConvexSet, y: Point, x: Point, directions: list[Point]) -> None:
    """Assert that x is in X, and that ⟨y − x, s − x⟩ ≤ 0 for extreme points s in many directions."""
    # Sums of a dozen products: a thousand times their rounding error. The oracles of matrices promise
    # 1e-8, but those of sides this small are direct.
    size = scale(X, y)
    assert X.violation(x) <= 1e-12 * size
    for direction in [x - y, *directions]:
        s = X.lmo(direction).dense()
        assert vdot(y - x, s - x) <= 1e-12 * size**2


@every_set
@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data())
def test_no_point_of_the_set_is_nearer(X: ConvexSet, data: st.DataObject) -> None:
    y = data.draw(points(X))
    directions = data.draw(st.lists(points(X), max_size=5))
    assert_nearest(X, y, project_onto(X)(y), directions)


@every_set
@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data())
def test_a_point_of_the_set_stays_where_it_is(X: ConvexSet, data: st.DataObject) -> None:
    corners = [X.lmo(data.draw(points(X))).dense() for _ in range(3)]
    weights = np.array(data.draw(st.lists(st.floats(0.01, 1.0), min_size=4, max_size=4)))
    x = np.tensordot(weights / weights.sum(), np.array([*corners, X.start()]), axes=1)
    np.testing.assert_allclose(project_onto(X)(x), x, rtol=0.0, atol=1e-12 * scale(X, x))


@every_set
@settings(deadline=None, derandomize=True, max_examples=20)
@given(data=st.data())
def test_two_points_never_come_farther_apart(X: ConvexSet, data: st.DataObject) -> None:
    y, z = data.draw(points(X)), data.draw(points(X))
    project = project_onto(X)
    assert norm(project(y) - project(z)) <= norm(y - z) + 1e-12 * (scale(X, y) + scale(X, z))


@every_set
@pytest.mark.parametrize("seed", range(3))
def test_an_independent_solver_finds_the_same_point(X: ConvexSet, seed: int) -> None:
    y = 3.0 * np.random.default_rng(seed).standard_normal(X.shape)
    d = math.prod(X.shape)
    expected, _ = optimum([(np.eye(d), y.reshape(-1))], X)
    # The reference has ‖x − y‖² to about 1e-9, relative or absolute; the square grows at least like the
    # square of the distance from its minimizer.
    tolerance = math.sqrt(1e-8 * (1.0 + scale(X, y) ** 2))
    np.testing.assert_allclose(project_onto(X)(y), expected, rtol=0.0, atol=tolerance)


@every_set
@pytest.mark.parametrize("size", [1e-12, 1e12])
def test_points_far_away_or_almost_zero_are_projected_too(X: ConvexSet, size: float) -> None:
    y = size * np.random.default_rng(4).standard_normal(X.shape)
    x = project_onto(X)(y)
    # Relative to the set alone: the digits of a far point beyond those of the set are lost before.
    assert X.violation(x) <= 1e-9 * (norm(X.start()) + X.diameter)
    assert vdot(y - x, X.lmo(x - y).dense() - x) <= 1e-9 * norm(y - x) * scale(X, x)


@every_set
def test_the_given_point_is_left_as_it_was(X: ConvexSet) -> None:
    y = 3.0 * np.random.default_rng(5).standard_normal(X.shape)
    before = y.copy()
    y.flags.writeable = False
    project_onto(X)(y)
    np.testing.assert_array_equal(y, before)


@pytest.mark.parametrize(
    ("X", "y", "expected"),
    [
        (dcgs.L1Ball(3, radius=2.0), [3.0, -2.0, 0.5], [1.5, -0.5, 0.0]),
        (dcgs.Simplex(3, radius=2.0), [3.0, -2.0, 2.0], [1.5, 0.0, 0.5]),
        (dcgs.Simplex(3, radius=3.0), [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]),
        (dcgs.L2Ball(2, radius=1.0), [3.0, 4.0], [0.6, 0.8]),
        (dcgs.LInfBall(3, radius=1.0), [3.0, -4.0, 0.5], [1.0, -1.0, 0.5]),
        (dcgs.GroupL1Ball(3, [[0, 1], [2]], radius=3.0), [3.0, 4.0, -1.0], [1.8, 2.4, 0.0]),
        (dcgs.NuclearNormBall((2, 2), radius=2.0), [[0.0, 3.0], [-2.0, 0.0]], [[0.0, 1.5], [-0.5, 0.0]]),
        (dcgs.Spectraplex(2, radius=2.0), [[3.0, 1.0], [-1.0, 2.0]], [[1.5, 0.0], [0.0, 0.5]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_projections_worked_out_by_hand(X: ConvexSet, y: Any, expected: Any) -> None:
    np.testing.assert_allclose(project_onto(X)(np.array(y)), expected, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("X", WITHOUT, ids=lambda X: type(X).__name__)
def test_other_sets_have_no_projection_at_hand(X: ConvexSet) -> None:
    assert not isinstance(X, dcgs.ProjectableSet)


@pytest.mark.parametrize(
    ("y", "expected"),
    [
        ([0.7], [1.0]),
        ([3.0, -2.0, 2.0], [1.0, 0.0, 0.0]),
        ([0.5, 0.5, 0.5], [1.0 / 3.0] * 3),
        ([-5.0, -5.25, -7.0], [0.625, 0.375, 0.0]),
        ([1e300, 0.0], [1.0, 0.0]),
    ],
)
def test_weights_are_projected_onto_those_that_sum_to_one(y: list[float], expected: list[float]) -> None:
    # Sums of three numbers.
    np.testing.assert_allclose(onto_simplex(np.array(y)), expected, rtol=0.0, atol=1e-15)


# Projections in a diagonal metric, and their derivatives.

DIAGONAL = {name: X for name, X in SETS.items() if isinstance(X, DiagonallyProjectableSet)}
every_diagonal_set = pytest.mark.parametrize("X", DIAGONAL.values(), ids=DIAGONAL)


def test_most_vector_sets_project_in_a_diagonal_metric() -> None:
    kinds = {type(X).__name__ for X in DIAGONAL.values()}
    assert kinds == {"L1Ball", "Simplex", "L2Ball", "LInfBall", "Box", "KSparseBall"}


@every_diagonal_set
@settings(deadline=None, derandomize=True, max_examples=25)
@given(data=st.data())
def test_no_point_of_the_set_is_nearer_in_the_metric(
    X: DiagonallyProjectableSet, data: st.DataObject
) -> None:
    y = data.draw(points(X))
    h = np.exp(data.draw(points(X, largest=4.0)))
    x = X.projected(y, h).point
    # As in assert_nearest, times the largest entry of the metric.
    size = scale(X, y)
    assert X.violation(x) <= 1e-12 * size
    for direction in [h * (x - y), *data.draw(st.lists(points(X), max_size=3))]:
        s = X.lmo(direction).dense()
        assert vdot(h * (y - x), s - x) <= 1e-11 * size**2 * float(h.max())


@every_diagonal_set
@pytest.mark.parametrize("metric", [False, True], ids=["Euclidean", "metric"])
@pytest.mark.parametrize("seed", range(6))
def test_the_derivative_is_that_of_central_differences(
    X: DiagonallyProjectableSet, metric: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = 10.0 ** rng.uniform(-1.0, 1.0) * rng.standard_normal(X.shape)
    h = np.exp(rng.uniform(-2.0, 2.0, X.shape)) if metric else None
    found = X.projected(y, h).derivative()
    weight = np.ones(y.size) if h is None else h.reshape(-1)
    for d in rng.standard_normal((3, *X.shape)):
        t = 1e-6
        ahead, behind = (X.projected(y + s * t * d, h).point for s in (1.0, -1.0))
        expected = (ahead - behind).reshape(-1) / (2.0 * t)
        # Generic points are not where the projection has a kink; its second derivative is of order 10, its
        # values are right to 1e-14.
        np.testing.assert_allclose(
            found.times(weight * d.reshape(-1)), expected, rtol=0.0, atol=1e-5 * float(np.abs(d).max())
        )


@every_diagonal_set
@pytest.mark.parametrize("seed", range(3))
def test_a_metric_of_ones_is_none(X: DiagonallyProjectableSet, seed: int) -> None:
    y = 3.0 * np.random.default_rng(seed).standard_normal(X.shape)
    plain, weighed = X.projected(y), X.projected(y, np.ones(X.shape))
    np.testing.assert_allclose(weighed.point, plain.point, rtol=0.0, atol=1e-13 * scale(X, y))
    np.testing.assert_allclose(weighed.derivative().k, plain.derivative().k, rtol=1e-13)
