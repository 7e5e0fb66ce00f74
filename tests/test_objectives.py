"""Every objective through one contract: a smooth convex loss of a linear image."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dcgs
from dcgs import (
    HuberLoss,
    LeastSquares,
    Logistic,
    LogisticLoss,
    Loss,
    MatrixCompletion,
    Objective,
    SquaredLoss,
)
from dcgs.atoms import Atom, RankOne, Sparse, Spike, Vertex
from dcgs.objectives import matrix_map
from dcgs.objectives.losses import Image, WeightedLoss
from problems import Array

RNG = np.random.default_rng(61)
TALL = RNG.standard_normal((9, 6))
WIDE = RNG.standard_normal((4, 6))
THIN = sp.random_array((9, 6), density=0.4, rng=np.random.default_rng(62), format="csr")
B9, B4 = RNG.standard_normal(9), RNG.standard_normal(4)
LABELS = np.array([1.0, -1.0, 1.0, 1.0, -1.0, -1.0, 1.0, -1.0, 1.0])
ROWS, COLS = np.array([0, 1, 1, 0, 1]), np.array([2, 0, 1, 2, 2])  # entry (0, 2) is observed twice
ALL_ROWS, ALL_COLS = np.divmod(np.array([0, 1, 2, 3, 4, 5, 4, 4, 0]), 3)
RATINGS = RNG.standard_normal(5)


@dataclass(frozen=True, eq=False)
class SoftBowl(Loss):
    """Σ (zᵢ²/2 + √(1 + zᵢ²)): a loss that a user might bring, neither quadratic nor flat."""

    count: int
    curvature = (1.0, 2.0)

    @property
    def size(self) -> int:
        return self.count

    def value(self, z: Image) -> float:
        return float((0.5 * z**2 + np.sqrt(1.0 + z**2)).sum())

    def grad(self, z: Image) -> Image:
        return np.asarray(z + z / np.sqrt(1.0 + z**2))

    def hess(self, z: Image) -> Image:
        return np.asarray(1.0 + (1.0 + z**2) ** -1.5)

    def data(self) -> dict[str, Image]:
        return {}


OBJECTIVES: dict[str, Objective] = {
    "least squares, tall": LeastSquares(TALL, B9),
    "least squares, wide": LeastSquares(WIDE, B4),
    "least squares, by columns": LeastSquares(np.asfortranarray(TALL), B9),
    "least squares, every other row": LeastSquares(np.repeat(TALL, 2, axis=0)[::2], B9),
    "least squares, sparse": LeastSquares(THIN, B9),
    "least squares, sparse by columns": LeastSquares(sp.csc_array(THIN), B9),
    "least squares of a matrix": LeastSquares(TALL, B9, shape=(2, 3)),
    "least squares of a matrix, sparse": LeastSquares(THIN, B9, shape=(2, 3)),
    "logistic": Logistic(TALL, LABELS),
    "logistic, sparse": Logistic(THIN, LABELS),
    "logistic of a matrix": Logistic(TALL, LABELS, shape=(2, 3)),
    "Huber": Objective(HuberLoss(B9, delta=0.7), matrix_map(TALL)),
    "Huber, sparse": Objective(HuberLoss(B9, delta=0.7), matrix_map(THIN)),
    "completion": MatrixCompletion(ROWS, COLS, RATINGS, shape=(2, 3)),
    "completion, all observed": MatrixCompletion(ALL_ROWS, ALL_COLS, B9, shape=(2, 3)),
    "a user's loss": Objective(SoftBowl(9), matrix_map(TALL)),
    "a user's loss of a matrix": Objective(SoftBowl(9), matrix_map(TALL, shape=(2, 3))),
}
every_objective = pytest.mark.parametrize("name", OBJECTIVES)
numbers = st.lists(st.floats(-20.0, 20.0), min_size=6, max_size=6)
# Points that Hypothesis thinks of, the same ones in every run.
thorough = settings(max_examples=40, deadline=None, derandomize=True)


def matrix_of(f: Objective) -> Array:
    """Return A as a dense matrix, a column per entry of x, from images of unit vectors only."""
    units = np.eye(6).reshape(6, *f.shape)
    return np.stack([f.map.image(unit) for unit in units], axis=1)


def atoms_for(shape: tuple[int, ...]) -> list[Atom]:
    """Return an atom of every kind that fits the shape."""
    rng = np.random.default_rng(63)
    of_any_shape: list[Atom] = [
        Spike(4, -2.5, shape),
        Spike(0, 1.5, shape),
        Sparse(np.array([1, 3, 5]), np.array([1.0, -2.0, 0.5]), shape),
        Vertex(rng.standard_normal(shape)),
    ]
    of_matrices: list[Atom] = [RankOne(-3.0, np.array([0.6, 0.8]), np.array([0.0, 1.0, 0.0]))]
    return of_any_shape + of_matrices * (len(shape) - 1)


@every_objective
def test_the_map_is_the_matrix_that_was_given(name: str) -> None:
    given: dict[str, Array] = {"tall": TALL, "wide": WIDE, "sparse": THIN.toarray()}
    observed = np.zeros((5, 6))
    observed[np.arange(5), 3 * ROWS + COLS] = 1.0
    everything = np.eye(6)[[0, 1, 2, 3, 4, 5, 4, 4, 0]]
    expected = {
        "least squares, wide": WIDE,
        "least squares, sparse": given["sparse"],
        "least squares, sparse by columns": given["sparse"],
        "least squares of a matrix, sparse": given["sparse"],
        "logistic, sparse": given["sparse"],
        "Huber, sparse": given["sparse"],
        "completion": observed,
        "completion, all observed": everything,
    }.get(name, TALL)
    np.testing.assert_array_equal(matrix_of(OBJECTIVES[name]), expected)


def test_the_value_is_that_of_the_formula() -> None:
    x = np.linspace(-1.0, 1.0, 6)
    matrix = x.reshape(2, 3)
    r = TALL @ x - B9
    huber = np.where(np.abs(r) <= 0.7, r**2, 2.0 * 0.7 * np.abs(r) - 0.7**2)
    expected = {
        "least squares, tall": np.sum(r**2),
        "least squares, sparse": np.sum((THIN @ x - B9) ** 2),
        "least squares of a matrix": np.sum(r**2),
        "logistic": np.sum(np.log(1.0 + np.exp(-LABELS * (TALL @ x)))),
        "Huber": np.sum(huber),
        "completion": np.sum((matrix[ROWS, COLS] - RATINGS) ** 2),
    }
    found = {name: OBJECTIVES[name].value(x.reshape(OBJECTIVES[name].shape)) for name in expected}
    # Sums of nine terms.
    assert found == pytest.approx(expected, rel=1e-13)


@every_objective
@given(point=numbers)
@thorough
def test_the_gradient_is_that_of_central_differences(name: str, point: list[float]) -> None:
    f = OBJECTIVES[name]
    x = np.array(point).reshape(f.shape)
    h = 1e-5
    directions = np.eye(6).reshape(6, *f.shape)
    differences = [(f.value(x + h * d) - f.value(x - h * d)) / (2.0 * h) for d in directions]
    # The difference of two values has the rounding error of the values, over h; where a Huber or
    # another loss is bent within h, the slope changes by at most smoothness · h.
    tolerance = 1e-15 * (1.0 + f.value(x)) / h * 10.0 + f.smoothness * h
    np.testing.assert_allclose(f.grad(x).reshape(-1), differences, rtol=0.0, atol=tolerance)


@every_objective
def test_many_values_are_the_single_ones(name: str) -> None:
    f = OBJECTIVES[name]
    points = np.random.default_rng(64).standard_normal((5, *f.shape))
    # The same products, summed in another order.
    (images,) = f.images(points.reshape(5, -1))
    assert f.loss.totals(images) == pytest.approx([f.value(x) for x in points], rel=1e-13)


@every_objective
def test_the_image_of_an_atom_is_that_of_its_dense_form(name: str) -> None:
    f = OBJECTIVES[name]
    for atom in atoms_for(f.shape):
        # At most six products of size 1 to 10 a row.
        np.testing.assert_allclose(
            f.map.image_of_atom(atom), f.map.image(atom.dense()), rtol=0.0, atol=1e-14, err_msg=repr(atom)
        )


@every_objective
def test_an_image_of_an_atom_is_the_caller_s_own(name: str) -> None:
    """Solvers change images in place; that must reach neither the data nor the next image."""
    f = OBJECTIVES[name]
    for atom in atoms_for(f.shape):
        first = f.map.image_of_atom(atom)
        expected = first.copy()
        first += 1.0
        np.testing.assert_array_equal(f.map.image_of_atom(atom), expected)


@every_objective
@given(point=numbers, seed=st.integers(0, 1000))
@thorough
def test_the_adjoint_moves_the_map_to_the_other_side(name: str, point: list[float], seed: int) -> None:
    f = OBJECTIVES[name]
    x = np.array(point).reshape(f.shape)
    r = np.random.default_rng(seed).standard_normal(f.map.size)
    back = f.map.adjoint(r)
    assert back.shape == f.shape
    # 54 products of at most 20 × 4 × 4, each right to 1e-16.
    assert float(np.vdot(back, x)) == pytest.approx(float(f.map.image(x) @ r), abs=1e-11)


@every_objective
def test_an_adjoint_is_the_caller_s_own(name: str) -> None:
    f = OBJECTIVES[name]
    r = np.ones(f.map.size)
    first = f.map.adjoint(r)
    expected = first.copy()
    first += 1.0
    np.testing.assert_array_equal(f.map.adjoint(r), expected)
    np.testing.assert_array_equal(r, np.ones(f.map.size))


@every_objective
@given(one=numbers, other=numbers)
@thorough
def test_smoothness_and_strong_convexity_bound_the_differences(
    name: str, one: list[float], other: list[float]
) -> None:
    """u/2 ‖y − x‖² ≤ f(y) − f(x) − ⟨∇f(x), y − x⟩ ≤ l/2 ‖y − x‖², as the paper defines l and u."""
    f = OBJECTIVES[name]
    x, y = np.array(one).reshape(f.shape), np.array(other).reshape(f.shape)
    square = float(np.sum((y - x) ** 2))
    slope = float(np.vdot(f.grad(x), y - x))
    excess = f.value(y) - f.value(x) - slope
    # The rounding error of the three terms, which may cancel.
    noise = 1e-14 * (1.0 + f.value(x) + f.value(y) + abs(slope))
    assert 0.5 * f.strong_convexity * square - noise <= excess <= 0.5 * f.smoothness * square + noise


@pytest.mark.parametrize(
    ("name", "upper", "lower"),
    [
        ("least squares, tall", 2.0, 2.0),
        ("least squares, wide", 2.0, 0.0),
        ("least squares, by columns", 2.0, 2.0),
        ("least squares, sparse", 2.0, 2.0),
        ("least squares of a matrix", 2.0, 2.0),
        ("logistic", 0.25, 0.0),
        ("Huber", 2.0, 0.0),
        ("completion", 2.0, 0.0),
        ("completion, all observed", 2.0, 2.0),
        ("a user's loss", 2.0, 1.0),
    ],
)
def test_smoothness_and_strong_convexity_are_those_of_the_singular_values(
    name: str, upper: float, lower: float
) -> None:
    f = OBJECTIVES[name]
    singular = np.linalg.svd(matrix_of(f), compute_uv=False)
    # Eigenvalues of AᵀA are right to a few 1e-16 of the largest.
    rounding = 1e-14 * float(singular[0] ** 2)
    assert f.smoothness == pytest.approx(upper * singular[0] ** 2, abs=rounding)
    assert f.strong_convexity == pytest.approx(lower * singular[-1] ** 2, abs=rounding)


@every_objective
def test_columns_are_the_diagonal_of_the_gram_matrix(name: str) -> None:
    f = OBJECTIVES[name]
    A = matrix_of(f)
    # Sums of a few squares.
    np.testing.assert_allclose(
        f.map.column_squares.reshape(-1), np.sum(A**2, axis=0), rtol=1e-13, atol=1e-300
    )
    assert f.map.column_squares.shape == f.shape
    weights = np.linspace(0.5, 30.0, A.shape[1])
    largest = float(np.linalg.svd(A / np.sqrt(weights), compute_uv=False)[0]) ** 2
    assert f.map.largest_eigenvalue_by(weights.reshape(f.shape)) == pytest.approx(largest, rel=1e-12)


@every_objective
def test_the_mean_eigenvalue_is_that_of_the_spectrum(name: str) -> None:
    f = OBJECTIVES[name]
    spectrum = np.linalg.svd(matrix_of(f), compute_uv=False) ** 2
    # Six eigenvalues of AᵀA, some of them zero where A has four rows; each is right to a few 1e-16.
    assert f.map.mean_eigenvalue == pytest.approx(float(spectrum.sum()) / 6.0, rel=1e-13)


@pytest.mark.parametrize(
    ("name", "upper"), [("logistic, sparse", 0.25), ("Huber", 2.0), ("a user's loss", 2.0)]
)
def test_the_mean_curvature_is_that_of_a_loss_as_curved_as_it_gets(name: str, upper: float) -> None:
    f = OBJECTIVES[name]
    A = matrix_of(f)
    # Sums of 54 squares.
    assert f.mean_curvature == pytest.approx(upper * np.mean(np.sum(A**2, axis=0)), rel=1e-13)


def test_the_mean_curvature_of_squares_is_the_mean_of_second_differences() -> None:
    f = OBJECTIVES["completion"]
    at = [f.value(unit) + f.value(-unit) - 2.0 * f.value(0.0 * unit) for unit in np.eye(6).reshape(6, 2, 3)]
    # By hand: five observations of six entries, each with the second derivative 2, the repeated one twice.
    assert f.mean_curvature == pytest.approx(10.0 / 6.0, rel=1e-15)
    # Differences of sums of five squares of size up to 10.
    assert f.mean_curvature == pytest.approx(np.mean(at), rel=1e-13)


def test_completion_counts_an_entry_as_often_as_it_was_observed() -> None:
    f = OBJECTIVES["completion, all observed"]
    # Entry (1, 1) was seen three times, entry (0, 1) once; the second derivative of one square is 2.
    assert (f.smoothness, f.strong_convexity) == (6.0, 2.0)
    twice = OBJECTIVES["completion"]
    assert twice.grad(np.zeros((2, 3)))[0, 2] == pytest.approx(-2.0 * (RATINGS[0] + RATINGS[3]), rel=1e-15)


def test_a_matrix_with_dependent_columns_is_not_taken_for_strongly_convex() -> None:
    A = np.hstack([TALL[:, :5], TALL[:, :5] @ np.ones((5, 1))])
    assert LeastSquares(A, B9).strong_convexity == 0.0


def test_rows_by_rows_the_map_s_bound_of_the_norm_is_one() -> None:
    for f in OBJECTIVES.values():
        singular = np.linalg.svd(matrix_of(f), compute_uv=False)
        # The bound of a sampling is the norm itself, rounded.
        assert f.map.norm_bound >= singular[0] * (1.0 - 1e-14)


@pytest.mark.parametrize(("shape", "dense"), [((2101, 2203), 0), ((2203, 2101), 1)])
def test_the_norm_of_a_large_matrix_is_found_by_lanczos(shape: tuple[int, int], dense: int) -> None:
    """A diagonal of known entries: 3 is the largest, and the next is 1 % below."""
    diagonal = np.linspace(0.0, 2.97, 2101)
    diagonal[700] = 3.0
    A = sp.csr_array((diagonal, (np.arange(2101), np.arange(2101))), shape=shape)
    matrix = (A, A.toarray())[dense]
    f = LeastSquares(matrix, np.zeros(shape[0]))
    # Documented: an upper bound, tight to 1e-6 (asked of the eigenvalue, then added to it).
    assert 2.0 * 9.0 <= f.smoothness <= 2.0 * 9.0 * (1.0 + 2e-6)
    assert f.strong_convexity == 0.0


def test_the_norm_of_a_large_matrix_of_zeros_is_zero() -> None:
    assert LeastSquares(sp.csr_array((2101, 2101)), np.zeros(2101)).smoothness == 0.0


def test_a_user_s_loss_is_minimized_like_the_others() -> None:
    """f = Σ ℓ(xⱼ − tⱼ) over agents that agree is least at t, here inside of the ball."""
    t = np.array([0.3, -0.2, 0.1])

    @dataclass(frozen=True, eq=False)
    class Shifted(Loss):
        curvature = (1.0, 2.0)

        @property
        def size(self) -> int:
            return 3

        def value(self, z: Image) -> float:
            return SoftBowl(3).value(z - t)

        def grad(self, z: Image) -> Image:
            return SoftBowl(3).grad(z - t)

        def hess(self, z: Image) -> Image:
            return SoftBowl(3).hess(z - t)

        def data(self) -> dict[str, Image]:
            return {"target": t}

    f = [Objective(Shifted(), matrix_map(np.eye(3))) for _ in range(3)]
    result = dcgs.minimize(f, dcgs.L1Ball(3), nx.path_graph(3), dcgs.DCGS(), gap=1e-4)
    assert result.status is dcgs.Status.AGREED
    # Three agents make f 3-strongly convex: 3/2 ‖x − t‖² ≤ f(x) − f* ≤ gap.
    assert np.linalg.norm(result.x - t) <= np.sqrt(result.history.gap[-1] / 1.5)


@pytest.mark.parametrize("kind", [float, int, bool])
def test_labels_may_be_0_and_1(kind: type) -> None:
    x = np.linspace(-1.0, 1.0, 6)
    assert Logistic(TALL, (LABELS > 0.0).astype(kind)).value(x) == Logistic(TALL, LABELS).value(x)


def test_labels_of_one_class_mean_that_class() -> None:
    x = np.array([1.0])
    # log(1 + exp(−1)) for +1, log(1 + exp(1)) for −1 and for 0.
    assert Logistic([[1.0]], [1]).value(x) == pytest.approx(0.31326168751822286, rel=1e-14)
    assert Logistic([[1.0]], [-1]).value(x) == pytest.approx(1.3132616875182228, rel=1e-14)
    assert Logistic([[1.0]], [0]).value(x) == pytest.approx(1.3132616875182228, rel=1e-14)


def test_logistic_does_not_overflow() -> None:
    f = Logistic([[1000.0]], [-1.0])
    x = np.array([1.0])
    assert f.value(x) == 1000.0
    np.testing.assert_array_equal(f.grad(x), [1000.0])
    np.testing.assert_array_equal(f.grad(-x), [0.0])


def test_a_user_s_sparse_matrix_stays_as_it_was_and_duplicates_add_up() -> None:
    data, indices, indptr = np.array([1.0, 2.0, 4.0]), np.array([1, 0, 1]), np.array([0, 3, 3])
    A = sp.csr_array((data, indices, indptr), shape=(2, 2))
    f = LeastSquares(A, [0.0, 0.0])
    np.testing.assert_array_equal(f.map.image_of_atom(Spike(1, 1.0, (2,))), [5.0, 0.0])
    np.testing.assert_array_equal(f.map.image(np.ones(2)), [7.0, 0.0])
    np.testing.assert_array_equal(A.indices, [1, 0, 1])
    np.testing.assert_array_equal(A.data, [1.0, 2.0, 4.0])


def test_data_of_the_user_can_not_be_changed_through_an_objective() -> None:
    A, b = TALL.copy(), B9.copy()
    f = LeastSquares(A, b)
    held = f.data()
    assert sorted(held) == ["A", "b"]
    for array in held.values():
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0.0
    assert A.flags.writeable
    assert b.flags.writeable


@pytest.mark.parametrize("loss", [SquaredLoss, HuberLoss, LogisticLoss])
def test_every_loss_takes_what_can_be_made_a_vector(loss: Callable[[list[float]], Loss]) -> None:
    f = Objective(loss([1.0, -1.0]), matrix_map(np.eye(2)))
    assert f.value(np.array([1.0, -1.0])) < f.value(np.array([-1.0, 1.0]))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: LeastSquares(TALL, B4), "b must have one entry per row of A; A has 9 rows, b has 4."),
        (lambda: LeastSquares(THIN, B4), "b must have one entry per row of A; A has 9 rows, b has 4."),
        (
            lambda: Logistic(TALL, [1.0]),
            "labels must have one entry per row of A; A has 9 rows, labels has 1.",
        ),
        (lambda: LeastSquares(B9, B9), r"A must be a matrix; got shape \(9,\)."),
        (
            lambda: LeastSquares(np.zeros((2, 2, 2)), [0.0, 0.0]),
            r"A must be a matrix; got shape \(2, 2, 2\).",
        ),
        (lambda: LeastSquares(TALL, B9[:, None]), r"b must be a vector; got shape \(9, 1\)."),
        (lambda: Logistic(TALL, LABELS[:, None]), r"labels must be a vector; got shape \(9, 1\)."),
        (
            lambda: LeastSquares(TALL, B9, shape=(2, 4)),
            r"shape must have 6 entries, one per column of A; got \(2, 4\).",
        ),
        (lambda: LeastSquares(THIN, B9, shape=5), r"shape must have 6 entries, .*; got \(5,\)."),
        (
            lambda: Logistic(TALL, 2.0 * LABELS),
            r"labels must be −1 and \+1, or 0 and 1 in dcgs.Logistic; got also \[-2.0, 2.0\].",
        ),
        (lambda: Logistic(np.eye(3), [0.0, 1.0, -1.0]), r"labels must be .*; got also \[0.0\]."),
        (lambda: Logistic(np.eye(2), [1.0, np.nan]), r"labels must be finite; labels\[1\] is nan."),
        (lambda: MatrixCompletion([0, 1], [0], [1.0], (2, 2)), "must have one length; got 2, 1 and 1."),
        (lambda: MatrixCompletion([0], [0], [1.0, 2.0], (2, 2)), "must have one length; got 1, 1 and 2."),
        (
            lambda: MatrixCompletion([0, 2, 3], [0, 1, 1], [1.0, 2.0, 3.0], (2, 2)),
            r"rows must lie in 0 … 1, for shape \(2, 2\); 2 do not, the first is rows\[1\] = 2.",
        ),
        (
            lambda: MatrixCompletion([0, 1], [0, -1], [1.0, 2.0], (2, 3)),
            r"cols must lie in 0 … 2, for shape \(2, 3\); 1 do not, the first is cols\[1\] = -1.",
        ),
        (
            lambda: MatrixCompletion([0.0], [0], [1.0], (2, 2)),
            r"rows must be a vector of integers; got \[0.0\].",
        ),
        (
            lambda: MatrixCompletion([0], [[0]], [1.0], (2, 2)),
            r"cols must be a vector of integers; got \[\[0\]\].",
        ),
        (
            lambda: MatrixCompletion([0], [0], [1.0], (2, 0)),
            r"shape must be \(rows, columns\), two positive integers .*; got \(2, 0\).",
        ),
        (
            lambda: Objective(SquaredLoss(B4), matrix_map(TALL)),
            "images of one length; the loss has 4 entries, the map gives 9.",
        ),
        (lambda: HuberLoss(B4, delta=0.0), "delta must be a positive finite number; got 0.0."),
        (lambda: HuberLoss(B4, delta=-1.0), "delta must be a positive finite number; got -1.0."),
        (lambda: HuberLoss(B4, delta=np.inf), "delta must be a positive finite number; got inf."),
        (lambda: HuberLoss(np.eye(2)), r"target must be a vector; got shape \(2, 2\)."),
    ],
)
def test_data_that_do_not_fit_are_named_with_their_numbers(make: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


# The least value of a loss.

LOSSES = {
    "squares": SquaredLoss(np.array([1.0, -2.0])),
    "logistic": LogisticLoss(np.array([1.0, -1.0])),
    "huber": HuberLoss(np.array([1.0, -2.0]), delta=0.5),
    "weighted": WeightedLoss(SquaredLoss(np.array([1.0, -2.0])), np.array([0.0, 3.0])),
}


@pytest.mark.parametrize("name", LOSSES)
def test_no_entry_of_a_loss_is_below_its_least_value_which_it_comes_near(name: str) -> None:
    loss, grid = LOSSES[name], np.linspace(-60.0, 60.0, 241)
    values = np.array([loss.values(np.array([z, z])) for z in grid])
    assert loss.least == 0.0
    assert 0.0 <= values.min() <= 1e-20


class _Shifted(Loss):
    """(z − 1)² − 5, whose least value it says, or does not."""

    curvature = (2.0, 2.0)

    def value(self, z: Image) -> float:
        return float(self.values(z).sum())

    def values(self, z: Image) -> Image:
        return np.square(z - 1.0) - 5.0

    def grad(self, z: Image) -> Image:
        return 2.0 * (z - 1.0)

    def hess(self, z: Image) -> Image:
        return np.full_like(z, 2.0)

    def data(self) -> dict[str, Image]:
        return {"ones": np.ones(2)}


class _Told(_Shifted):
    least = -5.0


def test_a_loss_of_ones_own_has_no_least_value_unless_it_says_so() -> None:
    assert _Shifted().least == -np.inf
    assert WeightedLoss(_Shifted(), np.array([1.0, 2.0])).least == -np.inf
    assert WeightedLoss(_Told(), np.array([1.0, 2.0])).least == -10.0


@pytest.mark.parametrize(("loss", "says"), [(_Told(), True), (_Shifted(), False)])
def test_a_least_value_below_zero_certifies_a_gap_if_the_loss_says_it(loss: Loss, says: bool) -> None:
    """Every agent's least value is −10, and f* is 3 · (−10)."""
    objectives = [Objective(loss, matrix_map(A)) for A in (WIDE[:2], WIDE[2:], WIDE[1:3])]
    X = dcgs.L1Ball(6, radius=5.0)
    method = dcgs.FastDCGS(form="edges")
    result = dcgs.minimize(objectives, X, nx.path_graph(3), method, gap=1e-3)
    assert result.status is dcgs.Status.AGREED
    assert (result.about["certified"]["kind"] == "least") is says
    assert sum(f.value(result.x) for f in objectives) + 30.0 <= 1e-3 * 3 * 2
