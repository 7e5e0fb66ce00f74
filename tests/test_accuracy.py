"""Inner solvers that project: φ(x) − min φ is at most what is asked for, for all sets, losses, metrics."""

from __future__ import annotations

from collections import Counter
from functools import partial

import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.counting import CountedOracle
from dcgs.inner import (
    Block,
    Corrective,
    DistanceAccuracy,
    Inner,
    Newton,
    Outcome,
    Projected,
    Solver,
    Subproblem,
    Task,
    gap_at_most,
)
from dcgs.inner.projected import reduced
from dcgs.points import EPS, Point, norm, vdot
from dcgs.sets import ConvexSet
from dcgs.sets.base import DiagonallyProjectableSet, ProjectableSet

SIZE = 12
SETS: dict[str, ConvexSet] = {
    "l1": dcgs.L1Ball(SIZE, 1.5),
    "l1 that does not bind": dcgs.L1Ball(SIZE, 1e3),
    "simplex": dcgs.Simplex(SIZE, 2.0),
    "l2": dcgs.L2Ball(SIZE, 0.7),
    "linf": dcgs.LInfBall(SIZE, 0.2),
    "box": dcgs.Box(np.linspace(-1.0, 0.0, SIZE), np.linspace(0.0, 0.5, SIZE)),
    "k-sparse": dcgs.KSparseBall(SIZE, k=3),
    "groups": dcgs.GroupL1Ball(SIZE, [[0, 5], [1, 2, 3], [4], [6, 7, 8, 9, 10, 11]], 1.0),
    "nuclear": dcgs.NuclearNormBall((3, 4), 0.8),
    "spectraplex": dcgs.Spectraplex(3, 2.0),
}
ROWS = {"wide": 5, "tall": 40}
LOSSES = ("squares", "logistic", "huber")


def objective(X: ConvexSet, loss: str, rows: int, sparse: bool = False) -> dcgs.Objective:
    rng = np.random.default_rng(rows)
    A = rng.standard_normal((rows, int(np.prod(X.shape))))
    b = 2.0 * rng.standard_normal(rows)
    data = sp.csr_array(np.where(np.abs(A) > 0.7, A, 0.0)) if sparse else A
    map_ = dcgs.matrix_map(data, X.shape)
    losses = {
        "squares": dcgs.SquaredLoss(b),
        "logistic": dcgs.LogisticLoss(np.sign(b)),
        "huber": dcgs.HuberLoss(b, delta=0.5),
    }
    return dcgs.Objective(losses[loss], map_)


def subproblem(f: dcgs.Objective, X: ConvexSet, seed: int, metric: bool = False) -> Subproblem:
    rng = np.random.default_rng(seed)
    toward = X.lmo(rng.standard_normal(X.shape)).dense()
    center = X.start() + rng.uniform() * (toward - X.start())
    h = np.exp(rng.uniform(-2.0, 2.0, X.shape)) if metric else None
    return Subproblem(f, rng.standard_normal(X.shape), float(10.0 ** rng.uniform(-1.5, 1.0)), center, h)


def gap_at(phi: Subproblem, X: ConvexSet, x: Point) -> float:
    """Return the Wolfe gap of φ at x, by the oracle."""
    g = phi.grad(x, phi.f.map.image(x))
    return vdot(g, x) - X.lmo(g).dot(g)


def least_value(phi: Subproblem, X: ConvexSet) -> float:
    """Return a lower bound of φ over X: its value less its Wolfe gap, where plain projected steps end.

    It is independent of what is tested: the gap is the definition's.
    """
    assert isinstance(X, ProjectableSet)
    h = np.ones(X.shape) if phi.preconditioner is None else phi.preconditioner
    beta = phi.f.smoothness_by(phi.preconditioner) + phi.eta
    x = y = phi.center
    t = 1.0
    for step in range(20_000):
        z = y - phi.grad(y, phi.f.map.image(y)) / (beta * h)
        v = (
            X.projected(z, phi.preconditioner).point
            if isinstance(X, DiagonallyProjectableSet)
            else X.project(z)
        )
        t = 1.0 if vdot(h * (y - v), v - x) > 0.0 else t
        ahead = 0.5 + np.sqrt(0.25 + t * t)
        x, y, t = v, v + (t - 1.0) / ahead * (v - x), ahead
        if step % 50 == 0 and gap_at(phi, X, x) <= 1e-11 * max(1.0, abs(phi.value(x))):
            break
    gap = gap_at(phi, X, x)
    # The reference must be far better than what is asked for below.
    assert gap <= 1e-8 * max(1.0, abs(phi.value(x)))
    return phi.value(x) - gap


def started(inner: Inner, f: dcgs.Objective, X: ConvexSet) -> tuple[Solver, Counter[Outcome]]:
    outcomes: Counter[Outcome] = Counter()
    return inner.start(Task(f, X, CountedOracle(X), X.start(), outcomes)), outcomes


def assert_accurate(inner: Inner, f: dcgs.Objective, X: ConvexSet, metric: bool) -> None:
    """Solve three subproblems in a row, each asked for more precisely, and check every answer."""
    solver, outcomes = started(inner, f, X)
    for seed, e in enumerate([1e-2, 1e-4, 1e-6]):
        phi = subproblem(f, X, seed, metric)
        x = solver(phi, gap_at_most(e))
        # Values of size up to 100 are right to 1e-13.
        assert phi.value(x) - least_value(phi, X) <= e + 1e-8 * max(1.0, abs(phi.value(x)))
        assert X.violation(x) <= 1e-12
    assert outcomes == {Outcome.REACHED: 3}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("where", SETS)
def test_projected_steps_are_as_accurate_as_asked_for(where: str, loss: str) -> None:
    X = SETS[where]
    metric = isinstance(X, DiagonallyProjectableSet) and loss == "huber"
    assert_accurate(Projected(), objective(X, loss, ROWS["tall"]), X, metric)


@pytest.mark.parametrize("metric", [False, True], ids=["", "preconditioned"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize(
    "where", [name for name, X in SETS.items() if isinstance(X, DiagonallyProjectableSet)]
)
def test_newton_steps_are_as_accurate_as_asked_for(where: str, rows: str, loss: str, metric: bool) -> None:
    X = SETS[where]
    assert_accurate(Newton(), objective(X, loss, ROWS[rows], sparse=rows == "wide"), X, metric)


@pytest.mark.parametrize("metric", [False, True], ids=["", "preconditioned"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("rows", ROWS)
def test_newton_steps_come_as_near_to_the_minimizer_as_asked_for(rows: str, loss: str, metric: bool) -> None:
    X = SETS["l1"]
    f = objective(X, loss, ROWS[rows])
    near, _ = started(Newton(), f, X)
    exact, _ = started(Newton(), f, X)
    for seed, e in enumerate([1e-1, 1e-2, 1e-3, 1e-4]):
        phi = subproblem(f, X, seed, metric)
        minimizer = exact(phi, gap_at_most(0.0))
        x = near(phi, DistanceAccuracy(gap_at_most(e)))
        # The minimizer is found to rounding error, 1e-7 in a distance.
        assert 0.5 * phi.eta * phi.squared(x - minimizer) <= e * (1.0 + 1e-6)


def test_rounding_errors_of_the_kept_adjoint_do_not_outgrow_it() -> None:
    rng = np.random.default_rng(0)
    A = rng.standard_normal((5, SIZE))
    f = dcgs.LeastSquares(A, A @ np.full(SIZE, 1e6))
    solver, _ = started(Newton(), f, dcgs.Box(np.full(SIZE, -1e9), np.full(SIZE, 1e9)))
    # The dual variable falls from 1e7 to less than 1, so the error of its first product would be seen.
    for center in (0.0, 1e6, 1e6, 1e6):
        phi = Subproblem(f, np.zeros(SIZE), 1e-3, np.full(SIZE, center))
        solver(phi, DistanceAccuracy(gap_at_most(1e-12)))
    state = solver.state
    assert norm(state.u) < 1.0
    # The solver recomputes Aᵀu when its error may exceed 16 roundings of it.
    limit = 17.0 * EPS * norm(A) * norm(state.u)
    assert norm(state.adjoint - f.map.adjoint(state.u)) <= limit


@pytest.mark.parametrize("a", [0.1, 0.5, 1.0, 3.0])
def test_the_bound_of_the_distance_is_sharp_for_one_unknown(a: float) -> None:
    # φ(x) = (a x)² + x², so η = h = 2, and λ = a². From the dual variable u = 1: x = −a/2, F = 1 + a².
    f = dcgs.LeastSquares([[a]], [0.0])
    solver = Newton().start(Task(f, dcgs.Box([-9.0], [9.0]), CountedOracle(SETS["box"]), np.zeros(1)))
    phi = Subproblem(f, np.zeros(1), 2.0, np.zeros(1))
    bound = solver._error_bound(phi, (1.0 + a * a) ** 2, by_distance=True)  # type: ignore[attr-defined]
    # The error is a²/4; the bound is equal to it up to λ = η/h = 1, and F²/(8 h) from there on.
    expected = a * a / 4.0 if a <= 1.0 else (1.0 + a * a) ** 2 / 16.0
    assert bound == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("loss", LOSSES)
def test_block_steps_are_as_accurate_as_asked_for(loss: str) -> None:
    X = SETS["nuclear"]
    assert_accurate(Block(), objective(X, loss, 7), X, metric=False)


@pytest.mark.parametrize("inner", [Projected(), Newton()], ids=repr)
def test_an_accuracy_of_zero_ends_by_rounding(inner: Inner) -> None:
    X = SETS["l1"]
    for loss in LOSSES:
        f = objective(X, loss, ROWS["wide"])
        solver, outcomes = started(inner, f, X)
        phi = subproblem(f, X, 5)
        x = solver(phi, gap_at_most(0.0))
        assert outcomes == {Outcome.ROUNDING: 1}
        # The gradient is right to 1e-14, and the set has a diameter of 3.
        assert gap_at(phi, X, x) <= 1e-10


def near_center(phi: Subproblem, v: Point) -> float:
    """Return an accuracy that is finer the nearer v is to the center."""
    return 1e-3 * phi.eta * phi.squared(v - phi.center)


def test_an_accuracy_that_depends_on_the_answer_holds_at_the_answer() -> None:
    X = SETS["l1"]
    f = objective(X, "squares", ROWS["tall"])
    for inner in (Projected(), Newton(), Corrective()):
        solver, _ = started(inner, f, X)
        for seed in range(5):
            phi = subproblem(f, X, seed)
            x = solver(phi, partial(near_center, phi))
            allowed = 1e-3 * phi.eta * phi.squared(x - phi.center)
            assert phi.value(x) - least_value(phi, X) <= allowed + 1e-8 * max(1.0, abs(phi.value(x)))


def test_newton_needs_few_steps_where_it_starts_at_a_neighboring_solution() -> None:
    X = dcgs.L1Ball(200, 3.0)
    f = objective(X, "squares", 30)
    task = Task(f, X, CountedOracle(X), X.start())
    solver = Newton().start(task)
    phi = subproblem(f, X, 1)
    solver(phi, gap_at_most(1e-6))
    before = task.projections.count
    near = Subproblem(f, phi.w * 1.001, phi.eta, phi.center)
    solver(near, gap_at_most(1e-6))
    # One projection to see where it is, and one for each of at most three steps.
    assert task.projections.count - before <= 4


def test_the_reduced_objective_is_the_same_up_to_a_constant() -> None:
    X = dcgs.L1Ball(6, 1.0)
    f = objective(X, "squares", 50)
    g = reduced(f)
    assert g.map.size == 6
    x, y = np.random.default_rng(3).standard_normal((2, 6))
    # A QR factorization is right to 1e-15 of the data.
    assert f.value(x) - f.value(y) == pytest.approx(g.value(x) - g.value(y), rel=1e-12)
    np.testing.assert_allclose(g.grad(x), f.grad(x), rtol=1e-12)
    logistic = objective(X, "logistic", 50)
    assert reduced(logistic) is logistic


def test_a_set_without_projection_is_refused_by_name() -> None:
    X = dcgs.BirkhoffPolytope(3)
    f = objective(X, "squares", 5)
    assert Projected().incompatibility(f, X) == (
        "projected needs a set with a Euclidean projection; BirkhoffPolytope has none. Use inner='auto'."
    )
    assert Newton().incompatibility(f, X) == (
        "newton needs a set whose projection has a known derivative; BirkhoffPolytope has none. "
        "Use inner='auto'."
    )
    entries = dcgs.MatrixCompletion([0], [0], [1.0], (3, 4))
    assert Newton().incompatibility(entries, dcgs.L1Ball((3, 4))) == (
        "newton needs an objective of a matrix; got a Sampling. Use inner='auto'."
    )
