"""Every answer is a point of its set, up to 10 ε times the magnitude of the set, and could be an x0."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import dcgs
from dcgs.points import Point
from dcgs.projections import onto_capped_l1_ball, onto_l2_ball, onto_simplex
from dcgs.run.measuring import moved_into, restored
from dcgs.sets import ConvexSet
from fuzz import Judgment, Verdict, judge
from fuzz_sets import COLUMNS, FORMS, INNERS, set_problem
from membership import EPS, MOST, roundings
from set_cases import CASES, Case

every_set = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)

# Projections against exact arithmetic.

METRICS = st.integers(1, 8).flatmap(
    lambda d: st.tuples(
        arrays(np.float64, d, elements=st.floats(-1.0, 1.0, allow_subnormal=False)),
        arrays(np.float64, d, elements=st.floats(-12.0, 12.0)),
        arrays(np.float64, d, elements=st.floats(-3.0, 12.0)),
    )
)


def exact_simplex(y: Point, radius: float, h: Point) -> list[Fraction]:
    """Return the projection in exact arithmetic, by sorted breakpoints."""
    pairs = [(Fraction(a), Fraction(b)) for a, b in zip(y.tolist(), h.tolist(), strict=True)]
    total, slope, theta = -Fraction(radius), Fraction(0), None
    for a, b in sorted(pairs, key=lambda pair: -pair[0] * pair[1]):
        if theta is not None and a * b <= theta:
            break
        total, slope = total + a, slope + 1 / b
        theta = total / slope
    assert theta is not None
    return [max(Fraction(0), a - theta / b) for a, b in pairs]


def exact_capped(y: Point, total: float, cap: float, h: Point) -> list[Fraction]:
    """Return the sizes of the projection onto a capped ℓ₁ ball in exact arithmetic."""
    pairs = [(Fraction(abs(a)), Fraction(b)) for a, b in zip(y.tolist(), h.tolist(), strict=True)]
    most = Fraction(cap)

    def sizes(theta: Fraction) -> list[Fraction]:
        return [min(most, max(Fraction(0), a - theta / b)) for a, b in pairs]

    ends = sorted(
        {Fraction(0)} | {max(Fraction(0), end) for a, b in pairs for end in (a * b, (a - most) * b)}
    )
    high = next(i for i, end in enumerate(ends) if sum(sizes(end)) <= Fraction(total))
    upper, lower = sum(sizes(ends[max(0, high - 1)])), sum(sizes(ends[high]))
    share = (upper - Fraction(total)) / (upper - lower) if upper > lower else Fraction(1)
    return sizes(ends[max(0, high - 1)] + share * (ends[high] - ends[max(0, high - 1)]))


def error(found: Point, exact: list[Fraction], size: float) -> float:
    """Return the largest error of an entry, in units of ε times the size."""
    pairs = zip(found.tolist(), exact, strict=True)
    return max(abs(float(Fraction(a) - b)) for a, b in pairs) / (EPS * size)


@settings(deadline=None, derandomize=True, max_examples=150)
@given(drawn=METRICS, radius=st.floats(-6.0, 6.0))
def test_projections_onto_a_simplex_are_exact_to_rounding_in_every_metric(drawn: Any, radius: float) -> None:
    y, h, size = drawn[0] * 10.0 ** (drawn[2] + radius), 10.0 ** drawn[1], 10.0**radius
    x = onto_simplex(y, size, h)
    # The bounds of the docstring, for up to 8 entries.
    assert error(x, exact_simplex(y, size, h), size) <= 11.0
    assert abs(float(sum(map(Fraction, x.tolist())) - Fraction(size))) <= 7.0 * EPS * size
    assert error(onto_simplex(y, size), exact_simplex(y, size, np.ones(len(y))), size) <= 11.0


@settings(deadline=None, derandomize=True, max_examples=100)
@given(drawn=METRICS, radius=st.floats(-6.0, 6.0), k=st.integers(1, 3))
def test_projections_onto_a_capped_ball_are_exact_to_rounding_in_every_metric(
    drawn: Any, radius: float, k: int
) -> None:
    y, h, cap = drawn[0] * 10.0 ** (drawn[2] + radius), 10.0 ** drawn[1], 10.0**radius
    x = onto_capped_l1_ball(y, k * cap, cap, h)
    # As for the simplex, in units of the sum; and no entry is above the cap at all.
    assert error(np.abs(x), exact_capped(y, k * cap, cap, h), k * cap) <= 11.0
    assert np.abs(x).max() <= cap


def test_a_projection_in_a_metric_of_thirteen_orders_of_magnitude_sums_to_the_radius() -> None:
    x = onto_simplex(
        np.array([0.49904406, 0.21915498, 0.5340891]), 1.0, h=np.array([1.13e-7, 4.46e6, 7.5e-4])
    )
    assert abs(float(x.sum()) - 1.0) <= 2.0 * EPS  # it was 1.0022


@settings(deadline=None, derandomize=True, max_examples=60)
@given(drawn=METRICS)
def test_a_projection_onto_a_euclidean_ball_ends_on_it_in_every_metric(drawn: Any) -> None:
    X = dcgs.L2Ball(len(drawn[0]), radius=2.0)
    y, h = drawn[0] * 10.0 ** drawn[2], 10.0 ** drawn[1]
    x, mu = onto_l2_ball(y, 2.0, h)
    assert roundings(X, x) <= MOST
    # Optimal: h (y − x) = μ x for a μ ≥ 0, up to some roundings of h y; and μ > 0 only on the sphere.
    np.testing.assert_allclose(x * (h + mu), h * y, rtol=16.0 * EPS, atol=1e-300)
    assert mu == 0.0 or math.hypot(*x.tolist()) >= 2.0 * (1.0 - MOST * EPS)


# Sets.


@every_set
@pytest.mark.parametrize("seed", range(3))
def test_a_point_that_left_its_set_by_rounding_is_moved_back_and_not_far(case: Case, seed: int) -> None:
    X, rng = case.X, np.random.default_rng(seed)
    corners = [X.lmo(rng.standard_normal(X.shape)).dense() for _ in range(3)]
    x = np.tensordot(rng.dirichlet(np.ones(3)), np.array(corners), axes=1)
    away = 1e-11 * X.diameter * rng.standard_normal(X.shape) / math.prod(X.shape)
    back = X.restore(x + away)
    assert X.holds(back)
    assert X.accepts(back)
    # Ten times as far as it was moved away: corrections of several constraints may add up.
    assert float(np.abs(back - x).max()) <= 10.0 * float(np.abs(away).max()) * math.prod(X.shape) + 1e-300


@every_set
def test_what_a_set_holds_stays_as_it_is(case: Case) -> None:
    X = case.X
    vertex = X.lmo(np.random.default_rng(1).standard_normal(X.shape)).dense()
    for x in (X.start(), vertex):
        assert X.holds(x)
        assert X.restore(x) is x
        assert roundings(X, x) <= MOST


@every_set
def test_a_point_far_outside_is_not_taken_for_rounding_error(case: Case) -> None:
    X = case.X
    far = X.start() + 3.0 * (X.diameter + 1.0) * np.random.default_rng(2).uniform(0.5, 1.0, X.shape)
    assert X.restore(far) is far
    assert moved_into(far, X).violation == 0.0
    assert X.holds(np.asarray(moved_into(far, X).model))


class Own(ConvexSet):
    """A ball of another package, with what the interface asks for and no more."""

    shape = (3,)
    diameter = 2.0

    def lmo(self, direction: Point, near: dcgs.Atom | None = None) -> dcgs.Atom:
        return dcgs.L1Ball(3).lmo(direction)

    def violation(self, x: Point) -> float:
        return max(0.0, float(np.abs(x).sum()) - 1.0)

    def start(self) -> Point:
        return np.zeros(3)


def test_a_set_of_another_package_restores_points_on_the_way_to_its_start() -> None:
    X = Own()
    x = np.array([0.5, 0.25, 0.25 + 1e-12])
    assert not X.holds(x)
    assert X.holds(X.restore(x))
    np.testing.assert_allclose(X.restore(x), x, rtol=0.0, atol=1e-11)
    assert X.magnitude == 2.0


@pytest.mark.parametrize("size", [1e-8, 1.0, 1e8, 1e12])
def test_a_polytope_may_be_of_any_size(size: float) -> None:
    rng = np.random.default_rng(6)
    G = np.vstack([np.eye(3), -np.eye(3), rng.standard_normal((2, 3))])
    X = dcgs.Polytope(G, size * np.concatenate([np.ones(6), [0.4, 0.7]]), A_eq=np.ones((1, 3)), b_eq=[0.0])
    for direction in rng.standard_normal((4, 3)):
        s = X.lmo(direction).dense()
        assert roundings(X, s) <= MOST
        assert float(np.abs(s).max()) > 0.1 * size
    result = dcgs.minimize(
        [dcgs.LeastSquares(np.eye(3) / size, rng.standard_normal(3))], X, nx.empty_graph(1)
    )
    assert result.status.success
    assert X.holds(result.x)


# Runs.


def test_a_simplex_with_columns_of_zeros_ends_in_the_simplex() -> None:
    A = [[-3, 12, -4, 0, 0, 0], [-5, -13, 10, 0, 0, 0]]
    X = dcgs.Simplex(6)
    result = dcgs.minimize([dcgs.LeastSquares(A, [-1, -3])], X, nx.empty_graph(1))
    assert result.status.success
    assert roundings(X, result.x) <= MOST  # the entries summed to 0.99876


def test_the_average_of_many_agents_is_in_the_set() -> None:
    rng = np.random.default_rng(3)
    X = dcgs.Simplex(5, radius=3.0)
    objectives = [dcgs.LeastSquares(rng.standard_normal((1, 5)), rng.standard_normal(1)) for _ in range(60)]
    result = dcgs.minimize(objectives, X, nx.complete_graph(60), dcgs.DFW(), iterations=3)
    assert max(roundings(X, x) for x in (result.x, *result.agents)) <= MOST


def test_an_x0_with_few_decimals_is_moved_onto_the_set() -> None:
    X = dcgs.Simplex(3)
    x0 = np.array([0.333333333, 0.333333333, 0.333333333])  # the sum is off by 1e-9
    seen: list[Point] = []
    f = dcgs.LeastSquares(np.eye(3), np.ones(3))
    method, callback = dcgs.DFW(), lambda snapshot: seen.append(snapshot.agents[0])
    dcgs.minimize([f], X, nx.empty_graph(1), method, x0=x0, iterations=1, callback=callback)
    assert roundings(X, seen[0]) <= MOST
    np.testing.assert_allclose(seen[0], x0, rtol=0.0, atol=1e-9)


def test_factors_that_left_the_ball_by_rounding_are_shortened() -> None:
    X = dcgs.NuclearNormBall((4, 3), radius=2.0)
    U, V = np.eye(4)[:, :2] * (1.0 + 1e-12), np.eye(3)[:, :2]
    member = restored(dcgs.LowRank(U, V, (4, 3)), X)
    assert member.moved
    assert member.violation == 0.0
    assert roundings(X, np.asarray(member.model)) <= MOST


# Random problems: those of fuzz.py, at the edge of sets.

SEEDS = range(36)
CHUNKS = [range(first, first + 12) for first in SEEDS[::12]]


@pytest.mark.parametrize("seeds", CHUNKS, ids=lambda seeds: f"seeds {seeds[0]} to {seeds[-1]}")
def test_no_random_run_ends_outside_of_its_set_or_with_a_false_status(seeds: range) -> None:
    judgments: list[Judgment] = [judge(set_problem(seed)) for seed in seeds]
    bad = [judgment for judgment in judgments if judgment.verdict.bad]
    assert not bad, "repeat with: python tests/fuzz_sets.py SEED\n" + "\n".join(map(str, bad))
    assert max(judgment.roundings for judgment in judgments) <= MOST
    # Runs that claim nothing cannot lie.
    assert sum(judgment.verdict is Verdict.TRUE for judgment in judgments) >= len(seeds) // 3


def test_the_random_problems_have_every_form_inner_solver_and_kind_of_column() -> None:
    told = "\n".join(set_problem(seed).about for seed in range(300))
    words = [f"form={form!r}" for form in FORMS] + [f"inner={inner!r}" for inner in INNERS]
    assert [word for word in (*words, *COLUMNS, " × ", "NuclearNormBall") if word not in told] == []
