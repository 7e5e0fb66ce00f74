"""The reference solver and the sets must agree, though they share no code."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

from dcgs import registry
from dcgs.points import Point, norm, vdot
from dcgs.sets import ConvexSet, L1Ball, NuclearNormBall, Simplex
from reference import optimum
from set_cases import CASES, SETS

ACCURACY = 1e-8  # ten times the loosest of the reference's tolerances
FLAT = 1e-4  # the root of that: f is flat at its minimum, and x less well determined than f
every_set = pytest.mark.parametrize("X", SETS, ids=lambda X: f"{type(X).__name__}{X.shape}")


def test_every_set_is_in_the_tables() -> None:
    built_in = set(registry.sets().values())
    named = {type(case.X) for case in CASES if case.X.name}  # products have no name on the command line
    assert {type(X) for X in SETS if X.name} == named == built_in
    assert {type(X) for X in SETS} == {type(case.X) for case in CASES}


def problem(X: ConvexSet, seed: int = 1) -> list[tuple[Point, Point]]:
    """Return three pairs (A, b), two rows each: an optimum inside of the set is not the rule."""
    rng = np.random.default_rng(seed)
    entries = int(np.prod(X.shape))
    return [(rng.standard_normal((2, entries)), rng.standard_normal(2)) for _ in range(3)]


def gradient(objectives: list[tuple[Point, Point]], x: Point) -> Point:
    parts = [2.0 * A.T @ (A @ x.reshape(-1) - b) for A, b in objectives]
    return np.asarray(sum(parts)).reshape(x.shape)


@every_set
def test_the_reference_point_is_in_the_set(X: ConvexSet) -> None:
    x, _ = optimum(problem(X), X)
    assert X.violation(x) <= ACCURACY  # all numbers here are of size about 1


@every_set
def test_the_gap_by_our_oracle_certifies_the_reference(X: ConvexSet) -> None:
    objectives = problem(X)
    x, value = optimum(objectives, X)
    g = gradient(objectives, x)
    gap = vdot(g, x - X.lmo(g).dense())
    assert abs(gap) <= ACCURACY * (1.0 + value)


@every_set
def test_no_point_of_the_set_is_better(X: ConvexSet) -> None:
    objectives = problem(X)
    _, value = optimum(objectives, X)
    rng = np.random.default_rng(2)
    answers = np.array([X.lmo(rng.standard_normal(X.shape)).dense() for _ in range(12)])
    mixtures = np.tensordot(rng.dirichlet(np.full(12, 0.3), size=50), answers, axes=1)
    values = [sum(norm(A @ x.reshape(-1) - b) ** 2 for A, b in objectives) for x in mixtures]
    assert value <= min(values) + ACCURACY * (1.0 + value)


def test_an_optimum_known_in_closed_form_is_found() -> None:
    # The nearest point of the simplex to (1, 0.4, −3): subtract 0.2 from the first two, cut the third.
    x, value = optimum([(np.eye(3), np.array([1.0, 0.4, -3.0]))], Simplex(3))
    np.testing.assert_allclose(x, [0.8, 0.2, 0.0], atol=FLAT)
    assert value == pytest.approx(0.04 + 0.04 + 9.0, rel=ACCURACY)


def test_a_sparse_matrix_gives_the_same_optimum() -> None:
    X, objectives = L1Ball(4, 0.7), problem(L1Ball(4))
    sparse = [(sp.csr_array(A), b) for A, b in objectives]
    assert optimum(sparse, X)[1] == pytest.approx(optimum(objectives, X)[1], rel=ACCURACY)


def test_a_matrix_is_flattened_row_by_row() -> None:
    target = np.array([[0.1, 0.2, 0.3], [-0.1, -0.2, -0.05]])
    x, _ = optimum([(np.eye(6), target.reshape(-1))], NuclearNormBall((2, 3), 10.0))
    np.testing.assert_allclose(x, target, atol=FLAT)
