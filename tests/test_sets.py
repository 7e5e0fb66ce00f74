"""One contract for every feasible set, and what is particular to each."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.typing import NDArray

from dcgs.atoms import Atom, RankOne, Sparse, Spike, Vertex, cross
from dcgs.points import Point, norm, vdot
from dcgs.sets import (
    BirkhoffPolytope,
    Box,
    ConvexHull,
    ConvexSet,
    GroupL1Ball,
    KSparseBall,
    L1Ball,
    L2Ball,
    LInfBall,
    NuclearNormBall,
    Polytope,
    Simplex,
    Spectraplex,
    polytope,
)
from dcgs.sets.base import lowest
from set_cases import CASES, CLOUD, CUBE, ROUNDING, TURN, Case, corners

every_set = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
examples = settings(deadline=None, derandomize=True, max_examples=10)


def directions(X: ConvexSet) -> st.SearchStrategy[NDArray[np.float64]]:
    """Return directions, ties and zeros among them; half precision keeps squares in range."""
    return arrays(np.float64, X.shape, elements=st.floats(-100.0, 100.0, width=16)).map(read_only)


def fixed_directions(X: ConvexSet) -> list[Point]:
    """Return some directions without ties, and some with many."""
    rng = np.random.default_rng(4)
    smooth = [rng.standard_normal(X.shape) for _ in range(4)]
    return [read_only(x) for x in [*smooth, *(np.round(x) for x in smooth), np.ones(X.shape)]]


def read_only(x: Point) -> Point:
    x.flags.writeable = False
    return x


# The contract


@every_set
@examples
@given(data=st.data())
def test_the_answer_is_an_extreme_point_of_the_set_that_no_other_point_beats(
    case: Case, data: st.DataObject
) -> None:
    direction = data.draw(directions(case.X))
    x = case.X.lmo(direction).dense()
    assert x.shape == case.X.shape
    assert x.dtype == np.float64
    assert case.is_extreme(x)
    assert case.X.violation(x) <= case.accuracy * case.size
    value, slack = vdot(direction, x), case.accuracy * norm(direction) * case.size
    assert value == pytest.approx(case.best(direction), rel=0, abs=slack)
    assert all(value <= vdot(direction, other) + slack for other in case.points)


@every_set
def test_mixtures_of_answers_are_in_the_set(case: Case) -> None:
    assert max(case.X.violation(x) for x in case.points) <= case.accuracy * case.size


@every_set
@pytest.mark.parametrize("scale", [2.0**-660, 2.0**660], ids=["1e-199", "1e199"])
def test_the_scale_of_the_direction_does_not_matter(case: Case, scale: float) -> None:
    direction = np.random.default_rng(1).standard_normal(case.X.shape)
    value = vdot(direction, case.X.lmo(scale * direction).dense())
    assert value == pytest.approx(
        case.best(direction), rel=0, abs=case.accuracy * norm(direction) * case.size
    )


@every_set
def test_a_zero_direction_gives_an_extreme_point(case: Case) -> None:
    assert case.is_extreme(case.X.lmo(read_only(np.zeros(case.X.shape))).dense())
    assert case.is_extreme(case.X.lmo(read_only(-np.zeros(case.X.shape))).dense())


@every_set
@examples
@given(data=st.data())
def test_the_diameter_bounds_the_distance_of_two_answers(case: Case, data: st.DataObject) -> None:
    first, second = (case.X.lmo(data.draw(directions(case.X))).dense() for _ in range(2))
    assert norm(first - second) <= case.X.diameter + case.accuracy * case.size


@pytest.mark.parametrize("case", [case for case in CASES if case.tight], ids=lambda case: case.name)
def test_the_diameter_is_attained(case: Case) -> None:
    ends = case.X.lmo(case.far).dense() - case.X.lmo(-case.far).dense()
    assert norm(ends) == pytest.approx(case.X.diameter, rel=0, abs=ROUNDING * case.size)


@every_set
@examples
@given(data=st.data())
def test_an_atom_computes_as_its_dense_array_does(case: Case, data: st.DataObject) -> None:
    direction = data.draw(directions(case.X))
    atom, x = case.X.lmo(direction), np.array(direction)
    dense = atom.dense()
    size = norm(dense) * (1.0 + norm(direction))
    assert atom.dot(direction) == pytest.approx(vdot(dense, direction), rel=0, abs=ROUNDING * size)
    assert atom.norm_squared() == pytest.approx(vdot(dense, dense), rel=ROUNDING)
    np.testing.assert_array_equal(np.asarray(atom), dense)
    atom.add_to(x, -0.75)
    np.testing.assert_allclose(x, direction - 0.75 * dense, rtol=0, atol=ROUNDING * size)


@every_set
def test_the_same_direction_gives_the_same_bits_and_is_not_changed(case: Case) -> None:
    for direction in fixed_directions(case.X):
        copy = direction.copy()
        first, second = case.X.lmo(direction), case.X.lmo(copy)
        assert first.dense().tobytes() == second.dense().tobytes()
        case.X.lmo(copy, near=case.X.lmo(-direction))
        np.testing.assert_array_equal(copy, direction)


@every_set
def test_the_layout_of_the_direction_does_not_matter(case: Case) -> None:
    direction = np.random.default_rng(6).standard_normal(case.X.shape)
    twice = np.repeat(direction, 2, axis=0)[::2]
    for layout in (np.asfortranarray(direction), twice):
        answers = case.X.lmo(layout).dense(), case.X.lmo(direction).dense()
        np.testing.assert_allclose(*answers, rtol=0, atol=ROUNDING * case.size)


@pytest.mark.parametrize("case", [case for case in CASES if case.X.polytope], ids=lambda case: case.name)
def test_a_vertex_met_twice_is_one_key(case: Case) -> None:
    twice = [scale * direction for direction in fixed_directions(case.X) for scale in (1.0, 2.0)]
    atoms = [case.X.lmo(direction) for direction in twice]
    assert atoms[::2] == atoms[1::2]
    assert [hash(atom) for atom in atoms[::2]] == [hash(atom) for atom in atoms[1::2]]
    # Vertices differ by far more than 1e-9 of the set's size, and rounding errors are far smaller.
    distinct = {(np.round(atom.dense() / case.size, 9) + 0.0).tobytes() for atom in atoms}
    assert len(set(atoms)) == len(distinct)


@every_set
def test_an_atom_can_key_a_dictionary_and_cannot_be_changed(case: Case) -> None:
    atom = case.X.lmo(case.far)
    assert {atom: 1.0}[atom] == 1.0
    assert not any(array.flags.writeable for array in arrays_of(atom))


def arrays_of(atom: Atom) -> list[NDArray[Any]]:
    match atom:
        case Sparse():
            return [atom.indices, atom.values]
        case RankOne():
            return [atom.u, atom.v]
        case Vertex():
            return [atom.array]
        case _:
            return []


@every_set
def test_the_start_is_in_the_set(case: Case) -> None:
    x = case.X.start()
    assert x.shape == case.X.shape
    assert case.X.violation(x) <= case.accuracy * case.size
    assert x.flags.writeable


@every_set
def test_a_point_beyond_the_answer_is_outside(case: Case) -> None:
    for direction in filter(norm, fixed_directions(case.X)):
        step = 1e-3 * case.size / norm(direction)
        outside = case.X.lmo(direction).dense() - step * direction
        # A violation is at least the distance over √(number of entries), and here that is below 3.
        assert case.X.violation(outside) > 1e-3 * case.size / 3.0


@every_set
def test_an_earlier_answer_of_any_kind_is_no_harm(case: Case) -> None:
    direction = np.random.default_rng(3).standard_normal(case.X.shape)
    kinds = [Spike(0, 1.0, (7,)), Vertex(np.ones(7)), RankOne(1.0, np.eye(1, 7)[0], np.eye(1, 9)[0])]
    slack = case.accuracy * norm(direction) * case.size
    for near in [*kinds, case.X.lmo(-direction), case.X.lmo(direction)]:
        assert vdot(direction, case.X.lmo(direction, near).dense()) <= case.best(direction) + slack


@every_set
@examples
@given(data=st.data())
def test_of_many_answers_each_is_extreme_and_good_enough(case: Case, data: st.DataObject) -> None:
    direction = data.draw(directions(case.X))
    best = case.best(direction)
    level, most = best + data.draw(st.floats(-0.5, 1.0)) * abs(best), data.draw(st.integers(0, 9))
    atoms = case.X.more(direction, level, most)
    assert len(set(atoms)) == len(atoms) <= most
    for atom in atoms:
        assert case.is_extreme(atom.dense())
        assert vdot(direction, atom.dense()) <= level + case.accuracy * norm(direction) * case.size


def command_values(X: Any) -> dict[str, Any]:
    """Return the values of the options that make X on the command line."""
    match X:
        case Polytope():
            return {"polytope": {name: getattr(X, name) for name in ("A_ub", "b_ub", "A_eq", "b_eq")}}
        case _:
            return {option.name: getattr(X, option.name) for option in X.command_options()}


@pytest.mark.parametrize("case", [case for case in CASES if case.X.name], ids=lambda case: case.name)
def test_the_options_of_the_command_line_make_the_set(case: Case) -> None:
    made = type(case.X).from_options(case.X.shape, **command_values(case.X))
    for direction in fixed_directions(case.X):
        np.testing.assert_array_equal(made.lmo(direction).dense(), case.X.lmo(direction).dense())


# What is particular to each


@dataclass(frozen=True, eq=False)
class Many:
    """A set that finds many extreme points at once: where each is in its order, and how good each is."""

    X: ConvexSet
    place: Callable[[Any], int]
    values: Callable[[Point], Point]


def place_of_spike(atom: Spike) -> int:
    return atom.index


MANY = {
    "l1": Many(L1Ball(5, 2.5), place_of_spike, lambda d: -2.5 * np.abs(d)),
    "l1 of matrices": Many(L1Ball((2, 3), 0.5), place_of_spike, lambda d: -0.5 * np.abs(d.reshape(-1))),
    "l1 of one entry": Many(L1Ball(1), place_of_spike, lambda d: -np.abs(d)),
    "simplex": Many(Simplex(5, 2.0), place_of_spike, lambda d: 2.0 * d),
    "simplex of matrices": Many(Simplex((2, 3)), place_of_spike, lambda d: d.reshape(-1)),
}
every_many = pytest.mark.parametrize("case", MANY.values(), ids=MANY)


@every_many
@settings(deadline=None, derandomize=True, max_examples=40)
@given(data=st.data())
def test_many_answers_are_the_best_that_are_good_enough(case: Many, data: st.DataObject) -> None:
    direction = data.draw(directions(case.X))
    values = case.values(direction).tolist()
    # A level that some just reach, or any.
    level = data.draw(st.sampled_from(values) | st.floats(-500.0, 500.0))
    most = data.draw(st.integers(0, len(values) + 1))
    order = sorted(range(len(values)), key=lambda place: (values[place], place))
    expected = [place for place in order if values[place] <= level][:most]
    found = case.X.more(direction, level, most)
    assert sorted(map(case.place, found)) == sorted(expected)
    assert [atom.dot(direction) for atom in found] == [values[case.place(atom)] for atom in found]


@every_many
@settings(deadline=None, derandomize=True, max_examples=20)
@given(data=st.data())
def test_the_best_answer_is_among_many(case: Many, data: st.DataObject) -> None:
    direction = data.draw(directions(case.X))
    assume(direction.any())
    best = case.X.lmo(direction)
    assert list(case.X.more(direction, best.dot(direction), 1)) == [best]


@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("case", [MANY["l1"], MANY["simplex"]], ids=["l1", "simplex"])
def test_for_a_zero_direction_many_answers_are_the_first(case: Many, zero: float) -> None:
    direction = np.full(case.X.shape, zero)
    assert [case.place(atom) for atom in case.X.more(direction, zero, 3)] == [0, 1, 2]
    assert list(case.X.more(direction, -1e-300, 3)) == []


@pytest.mark.parametrize(
    ("values", "level", "most", "places"),
    [
        ([3.0, 1.0, 2.0], 2.0, 3, [1, 2]),
        ([3.0, 1.0, 2.0], 2.0, 1, [1]),
        ([3.0, 1.0, 2.0], 2.0, 0, []),
        ([3.0, 1.0, 2.0], 0.5, 3, []),
        ([2.0, 1.0, 2.0, 1.0, 1.0], 2.0, 2, [1, 3]),
        ([2.0, 1.0, 2.0, 1.0, 1.0], 2.0, 4, [0, 1, 3, 4]),
        ([0.0, -0.0, 0.0], -0.0, 2, [0, 1]),
    ],
)
def test_the_lowest_values_are_those_one_finds_by_hand(
    values: list[float], level: float, most: int, places: list[int]
) -> None:
    assert sorted(lowest(np.array(values), level, most)) == places


@pytest.mark.parametrize(
    ("X", "direction", "answer"),
    [
        (L1Ball(3), [0, 0, 0], [-1, 0, 0]),
        (L1Ball(3), [-1, 1, 1], [1, 0, 0]),
        (L1Ball(3), [0, 1, -1], [0, -1, 0]),
        (Simplex(3), [1, 0, 0], [0, 1, 0]),
        (Simplex(3), [0, 0, 0], [1, 0, 0]),
        (L2Ball(2), [0, 0], [-1, 0]),
        (LInfBall(3), [0, -1, 0], [-1, 1, -1]),
        (Box([1, 2], [3, 4]), [0, -0.0], [1, 2]),
        (KSparseBall(4, 2), [1, -1, 1, 1], [-1, 1, 0, 0]),
        (KSparseBall(4, 2), [0, 0, 0, 5], [-1, 0, 0, -1]),
        (KSparseBall(4, 3), [1, 2, 1, -1], [-1, -1, -1, 0]),
        (GroupL1Ball(3, [[2], [0, 1]]), [1, 0, 1], [0, 0, -1]),
        (GroupL1Ball(3, [[2, 1], [0]]), [0, 0, 0], [0, -1, 0]),
        (NuclearNormBall((2, 2)), [[0, 0], [0, 0]], [[-1, 0], [0, 0]]),
        (Spectraplex(2), [[0, 0], [0, 0]], [[1, 0], [0, 0]]),
        (Spectraplex(2), [[0, 1], [-1, 0]], [[1, 0], [0, 0]]),
        (BirkhoffPolytope(3), np.full((3, 3), 7.0), np.eye(3)),
        (ConvexHull([[1, 0], [0, 1], [1, 0]]), [1, 1], [1, 0]),
    ],
    ids=str,
)
def test_ties_go_to_the_lowest_index(X: ConvexSet, direction: Any, answer: Any) -> None:
    np.testing.assert_array_equal(X.lmo(np.array(direction, dtype=float)).dense(), answer)


@pytest.mark.parametrize(
    ("X", "kind"),
    [
        (L1Ball(3), Spike),
        (Simplex(3), Spike),
        (KSparseBall(3, 2), Sparse),
        (GroupL1Ball(3, [[0, 1], [2]]), Sparse),
        (BirkhoffPolytope(2), Sparse),
        (NuclearNormBall((2, 3)), RankOne),
        (Spectraplex(2), RankOne),
        (L2Ball(3), Vertex),
        (LInfBall(3), Vertex),
        (Box([0], [1]), Vertex),
        (ConvexHull(CLOUD), Vertex),
        (Polytope([[1.0], [-1.0]], [1.0, 1.0]), Vertex),
    ],
)
def test_the_atom_has_the_smallest_form(X: ConvexSet, kind: type[Atom]) -> None:
    assert isinstance(X.lmo(np.ones(X.shape)), kind)


@pytest.mark.parametrize(
    ("X", "x", "violation"),
    [
        (L1Ball(2, 1.0), [1, -1], 1.0),
        (Simplex(2, 1.0), [2, -0.5], 0.5),
        (Simplex(2, 1.0), [1, 1], 1.0),
        (Simplex(2, 1.0), [0.25, 0.25], 0.5),
        (L2Ball(2, 1.0), [3, 4], 4.0),
        (LInfBall(2, 1.0), [3, -4], 3.0),
        (Box([0, 0], [1, 1]), [1.5, -0.25], 0.5),
        (Box([0, 0], [1, 1]), [0.5, -0.25], 0.25),
        (KSparseBall(3, 2, 1.0), [1, 1, 1], 1.0),
        (KSparseBall(3, 2, 1.0), [-1.5, 0, 0], 0.5),
        (GroupL1Ball(3, [[0, 2], [1]], 1.0), [3, 1, 4], 5.0),
        (NuclearNormBall((2, 2), 1.0), [[2, 0], [0, -3]], 4.0),
        (BirkhoffPolytope(2), [[1, 0.5], [0, 1]], 0.5),
        (BirkhoffPolytope(2), [[1.25, -0.25], [-0.25, 1.25]], 0.25),
        (Spectraplex(2, 1.0), [[1.5, 0], [0, -0.5]], 0.5),
        (Spectraplex(2, 1.0), [[0.5, 0.25], [0, 0.5]], 0.25),
        (Spectraplex(2, 1.0), [[1, 0], [0, 1]], 1.0),
        (ConvexHull([[0, 0], [1, 0], [0, 1]]), [4, 5], 4.0 * math.sqrt(2.0)),
        (ConvexHull([[0, 0], [2, 0], [0, 2]]), [-3, 1], 3.0),
        (Polytope([[1.0, 0], [-1, 0], [0, 1], [0, -1]], [1, 0, 1, 0]), [2, 0.5], 1.0),
        (Polytope([[-1.0, 0], [0, -1]], [0, 0], [[2.0, 2.0]], [2]), [1, 1], 2.0),
    ],
    ids=str,
)
def test_the_violation_is_in_the_units_of_the_constraint(X: ConvexSet, x: Any, violation: float) -> None:
    assert X.violation(np.array(x, dtype=float)) == pytest.approx(violation, rel=ROUNDING)


@pytest.mark.parametrize(
    ("X", "start"),
    [
        (L1Ball(2), [0, 0]),
        (L2Ball(2), [0, 0]),
        (LInfBall(2), [0, 0]),
        (KSparseBall(2, 1), [0, 0]),
        (GroupL1Ball(2, [[0, 1]]), [0, 0]),
        (NuclearNormBall((1, 2)), [[0, 0]]),
        (Simplex(2, 3.0), [1.5, 1.5]),
        (BirkhoffPolytope(2), [[0.5, 0.5], [0.5, 0.5]]),
        (Spectraplex(2, 3.0), [[1.5, 0], [0, 1.5]]),
        (Box([0, 1], [1, 5]), [0.5, 3]),
        (Box([-1.7e308], [1.7e308]), [0]),
        (ConvexHull([[0, 0], [1, 0], [2, 3]]), [1, 1]),
    ],
    ids=str,
)
def test_a_run_starts_in_the_middle(X: ConvexSet, start: Any) -> None:
    np.testing.assert_array_equal(X.start(), start)


def test_a_run_starts_at_the_center_of_the_largest_ball_in_a_polytope() -> None:
    triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [30.0, 40.0]], [0.0, 0.0, 120.0])
    # The triangle with sides 3, 4 and 5 has inradius 1; HiGHS's tolerance of 1e-10 times a few.
    np.testing.assert_allclose(triangle.start(), [1.0, 1.0], atol=1e-9)


@pytest.mark.parametrize(
    ("X", "polytope"),
    [
        (L1Ball(2), True),
        (Simplex(2), True),
        (LInfBall(2), True),
        (Box([0], [1]), True),
        (KSparseBall(2, 1), True),
        (BirkhoffPolytope(2), True),
        (ConvexHull([[0.0]]), True),
        (Polytope([[1.0], [-1.0]], [1.0, 1.0]), True),
        (GroupL1Ball(2, [[1], [0]]), True),
        (GroupL1Ball(3, [[0, 1], [2]]), False),
        (L2Ball(2), False),
        (NuclearNormBall((2, 2)), False),
        (Spectraplex(2), False),
    ],
    ids=str,
)
def test_a_set_knows_whether_it_is_a_polytope(X: ConvexSet, polytope: bool) -> None:
    assert X.polytope is polytope


@pytest.mark.parametrize(
    "make",
    [
        lambda: L1Ball((2, 3), 2),
        lambda: GroupL1Ball(3, [[0, 2], [1]]),
        lambda: KSparseBall(3, 2),
        lambda: NuclearNormBall((2, 3)),
        lambda: Spectraplex(3),
    ],
)
def test_sets_of_equal_parameters_are_equal(make: Callable[[], ConvexSet]) -> None:
    assert make() == make()
    assert hash(make()) == hash(make())


def test_the_owner_of_the_data_cannot_change_a_set() -> None:
    lower, upper, points, b = np.zeros(2), np.ones(2), np.eye(2), np.ones(4)
    A = sp.csr_array(np.vstack([np.eye(2), -np.eye(2)]))
    box, hull, polytope = Box(lower, upper), ConvexHull(points), Polytope(A, b)
    for owned in (lower, upper, points, b, A.data):
        owned[:] = 9.0
    down = np.array([-1.0, -1.0])
    np.testing.assert_array_equal(box.lmo(down).dense(), [1, 1])
    np.testing.assert_array_equal(hull.lmo(down).dense(), [1, 0])
    np.testing.assert_array_equal(polytope.lmo(down).dense(), [1, 1])
    held = [box.lower, box.upper, hull.points, polytope.b_ub, polytope.A_ub.data]
    assert not any(array.flags.writeable for array in held)


def test_the_two_zeros_are_one_bound() -> None:
    X = Box([-0.0, -0.0], [0.0, 0.0])
    assert X.lmo(np.array([1.0, -1.0])) == X.lmo(np.array([-1.0, 1.0]))


def test_a_polytope_has_one_atom_for_each_vertex() -> None:
    rng = np.random.default_rng(5)
    A = np.vstack([CUBE @ TURN, rng.standard_normal((4, 3))])
    X = Polytope(A, np.ones(10))
    atoms = {X.lmo(direction) for direction in rng.standard_normal((150, 3))}
    vertices = corners(A, np.ones(10), np.zeros((0, 3)), np.zeros(0))
    assert len(atoms) == len(vertices)


def test_the_diameter_of_a_polytope_is_the_diagonal_of_its_box() -> None:
    triangle = Polytope([[-1.0, 0.0], [0.0, -1.0], [1.0, 2.0]], [0.0, 0.0, 4.0])
    # HiGHS's tolerance of 1e-10 times a few.
    assert triangle.diameter == pytest.approx(math.hypot(4.0, 2.0), rel=1e-9)


def test_the_diameter_of_a_hull_far_from_0_keeps_its_digits() -> None:
    hull = ConvexHull(1e8 + np.array([[0.0, 0.0], [3.0, 4.0], [1.0, 1.0]]))
    # The mean of the points is rounded at 1e8 · 2⁻⁵³ ≈ 1e-8.
    assert hull.diameter == pytest.approx(5.0, rel=1e-7)


def test_the_diameter_of_many_points_is_taken_in_chunks() -> None:
    points = np.random.default_rng(2).standard_normal((600, 3))
    points[560], points[580] = 50.0, -50.0  # the two farthest apart, both in the second chunk
    distances = np.linalg.norm(points[:, None] - points[None], axis=2)
    assert ConvexHull(points).diameter == pytest.approx(distances.max(), rel=ROUNDING)


def test_the_diameter_of_very_many_points_is_a_bound() -> None:
    angles = np.linspace(0.0, math.pi, 5000)
    half_disk = ConvexHull(np.stack([np.cos(angles), np.sin(angles)], axis=1))
    assert 2.0 <= half_disk.diameter <= 4.0


def test_a_program_that_fails_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    X = Polytope(CUBE @ TURN, np.ones(6))
    monkeypatch.setitem(polytope.OPTIONS, "maxiter", 0)
    with pytest.raises(
        RuntimeError, match=r"HiGHS must find a minimizer over the polytope; it says: .*limit"
    ):
        X.lmo(np.ones(3))


def test_an_assignment_needs_a_finite_direction() -> None:
    with pytest.raises(ValueError, match=r"direction must be finite; it holds NaN or ∞\."):
        BirkhoffPolytope(2).lmo(np.array([[1.0, np.inf], [0.0, np.inf]]))


ATOMS = [
    Spike(4, -2.0, (2, 3)),
    Spike(1, 3.0, (2, 3)),
    Sparse(np.array([1, 4]), np.array([2.0, -1.0]), (2, 3)),
    Sparse(np.array([0, 1, 5]), np.array([1.0, 5.0, 7.0]), (2, 3)),
    Vertex(np.arange(6.0).reshape(2, 3)),
    RankOne(2.0, np.array([0.6, 0.8]), np.array([1.0, 2.0, -2.0]) / 3.0),
    RankOne(-3.0, np.array([1.0, 0.0]), np.array([0.0, 0.6, 0.8])),
]


@pytest.mark.parametrize(("a", "b"), list(itertools.product(ATOMS, ATOMS)))
def test_the_product_of_two_atoms_is_the_dense_one(a: Atom, b: Atom) -> None:
    # Six products of numbers below 50.
    assert cross(a, b) == pytest.approx(vdot(a.dense(), b.dense()), rel=0, abs=50 * ROUNDING)


def wrong(value: Any) -> Any:
    """Hide a wrong type from mypy, as callers without mypy do."""
    return value


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: L1Ball(0),
            "shape must be a positive integer or a tuple of them, with at most 2**60 entries; got 0.",
        ),
        (lambda: L1Ball(3, radius=0.0), "radius must be a positive finite number; got 0.0."),
        (lambda: L2Ball(3, radius=-1), "radius must be a positive finite number; got -1."),
        (lambda: Simplex(3, radius=math.inf), "radius must be a positive finite number; got inf."),
        (lambda: LInfBall(3, radius=math.nan), "radius must be a positive finite number; got nan."),
        (
            lambda: LInfBall((2, -1)),
            "shape must be a positive integer or a tuple of them, with at most 2**60 entries; got (2, -1).",
        ),
        (
            lambda: KSparseBall(10, 11),
            "k must be a whole number between 1 and 10, the number of entries; got 11.",
        ),
        (
            lambda: KSparseBall((2, 5), 0),
            "k must be a whole number between 1 and 10, the number of entries; got 0.",
        ),
        (
            lambda: KSparseBall(3, wrong(1.5)),
            "k must be a whole number between 1 and 3, the number of entries; got 1.5.",
        ),
        (lambda: Box([0, 3, 5], [1, 2, 4]), "lower must not exceed upper; it does at [(1,), (2,)]."),
        (
            lambda: Box(np.ones(9), np.zeros(9)),
            "lower must not exceed upper; it does at [(0,), (1,), (2,), (3,), (4,), …].",
        ),
        (lambda: Box([0, math.nan], [1, 2]), "lower must be finite; lower[1] is nan."),
        (lambda: Box([[0]], [[math.inf]]), "upper must be finite; upper[0, 0] is inf."),
        (
            lambda: Box([0, 0], [1]),
            "lower and upper must be nonempty arrays of one shape; got (2,) and (1,).",
        ),
        (lambda: Box(0.0, 1.0), "lower and upper must be nonempty arrays of one shape; got () and ()."),
        (
            lambda: GroupL1Ball(5, [[0, 1, 1], [3, 7], []]),
            "groups must hold each flat index from 0 to 4 once; "
            "got missing [2, 4], repeated [1], outside [7], empty groups [2].",
        ),
        (
            lambda: GroupL1Ball(2, []),
            "groups must hold each flat index from 0 to 1 once; got missing [0, 1].",
        ),
        (
            lambda: NuclearNormBall(wrong((3, 2, 1))),
            "shape must be (rows, columns), two positive integers with at most 2**60 entries; got (3, 2, 1).",
        ),
        (
            lambda: NuclearNormBall(wrong(3)),
            "shape must be (rows, columns), two positive integers with at most 2**60 entries; got 3.",
        ),
        (
            lambda: NuclearNormBall((3, 2), tolerance=0.0),
            "tolerance must be at least 1e-12 and less than 1; got 0.0.",
        ),
        (lambda: Spectraplex(2, tolerance=1.0), "tolerance must be at least 1e-12 and less than 1; got 1.0."),
        (lambda: Spectraplex(wrong((2, 2))), "n must be a whole number of at least 1; got (2, 2)."),
        (lambda: BirkhoffPolytope(0), "n must be a whole number of at least 1; got 0."),
        (
            lambda: ConvexHull(np.zeros((0, 3))),
            "points must be an array of shape (count, *shape) with at least one point; got shape (0, 3).",
        ),
        (
            lambda: ConvexHull([1.0, 2.0]),
            "points must be an array of shape (count, *shape) with at least one point; got shape (2,).",
        ),
        (lambda: ConvexHull([[0.0, math.nan]]), "points must be finite; points[0, 1] is nan."),
        (lambda: Polytope(), "A_ub or A_eq must be given; got neither."),
        (lambda: Polytope([[1.0]]), "A_ub and b_ub must be given together; got A_ub without b_ub."),
        (
            lambda: Polytope([[1.0]], [1.0], b_eq=[0.0]),
            "A_eq and b_eq must be given together; got b_eq without A_eq.",
        ),
        (
            lambda: Polytope([[1.0]], [1.0, 2.0]),
            "b_ub must have shape (1,), an entry per row of A_ub; got (2,).",
        ),
        (
            lambda: Polytope([1.0], [1.0]),
            "A_ub must be a matrix; got shape (1,).",
        ),
        (
            lambda: Polytope([[1.0], [-1.0]], [1.0, 1.0], [[1.0, 1.0]], [0.0]),
            "A_ub and A_eq must have a column for each variable; got 1 and 2 columns.",
        ),
        (
            lambda: Polytope(sp.csr_array(np.array([[0.0, 1.0], [math.inf, 0.0]])), [1.0, 1.0]),
            "A_ub must be finite; A_ub[1, 0] is inf.",
        ),
        (lambda: Polytope([[1.0]], [math.inf]), "b_ub must be finite; b_ub[0] is inf."),
        (
            lambda: Polytope([[1.0], [-1.0]], [0.0, -1.0]),
            "the polytope must not be empty; HiGHS finds no x that meets its constraints.",
        ),
        (
            lambda: Polytope(-np.eye(2), np.zeros(2)),
            "the polytope must be bounded; its constraints let x grow without end.",
        ),
        (
            lambda: Polytope([[1.0, 0.0], [-1.0, 0.0]], [1.0, 1.0]),
            "the polytope must be bounded; its constraints let x grow without end.",
        ),
        (
            lambda: Polytope(A_eq=[[1.0, 1.0]], b_eq=[1.0]),
            "the polytope must be bounded; its constraints let x grow without end.",
        ),
    ],
)
def test_bad_input_is_answered_with_a_sentence(make: Callable[[], ConvexSet], message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        make()
