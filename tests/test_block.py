"""Block steps over a nuclear-norm ball, against dense decompositions and a plain projected gradient."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs import CG, L1Ball, LeastSquares, Logistic, MatrixCompletion, NuclearNormBall, Objective, Spectraplex
from dcgs.atoms import Atom
from dcgs.counting import BudgetSpentError, CountedOracle
from dcgs.inner import Block, Outcome, Subproblem, Task, choose_inner, gap_at_most
from dcgs.inner.block import _DENSE, _FINEST, _FIRST
from dcgs.objectives.losses import HuberLoss, LogisticLoss, SquaredLoss
from dcgs.objectives.sampling import Sampling
from dcgs.sets import nuclear_norm_ball
from dcgs.sets.nuclear_norm_ball import Nearest, extended, nearest_in_ball, with_atom
from problems import Array

ROUNDING = 1e-13  # products of some hundred terms, relative to the largest
SHAPES = [(1, 1), (1, 7), (7, 1), (6, 9), (9, 6), (18, 20)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


# Objectives do not change; each is made once, with its smoothness.


@cache
def completion(shape: tuple[int, int], seed: int = 0) -> Objective:
    """Return squares on a third of the entries; some are observed twice."""
    rng = np.random.default_rng(seed)
    n = max(2, shape[0] * shape[1] // 3)
    rows, cols = (rng.integers(0, d, n) for d in shape)
    return MatrixCompletion(rows, cols, 3.0 * rng.standard_normal(n), shape)


@cache
def by_rows(f: Objective) -> Objective:
    """Return the same squares with a sparse matrix for their map, which starts at the last answer."""
    assert isinstance(f.map, Sampling)
    assert isinstance(f.loss, SquaredLoss)
    n, (height, width) = f.map.size, f.map.shape
    where = (np.arange(n), f.map.rows * width + f.map.cols)
    A = sp.csr_array((np.ones(n), where), shape=(n, height * width))
    return LeastSquares(A, f.loss.target, f.shape)


FORMS: dict[str, Callable[[Objective], Objective]] = {"projected start": lambda f: f, "last answer": by_rows}
every_form = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)


@cache
def squares(shape: tuple[int, int]) -> Objective:
    rng = np.random.default_rng(1)
    A = rng.standard_normal((12, shape[0] * shape[1])) / np.sqrt(shape[0])
    return LeastSquares(A, 3.0 * rng.standard_normal(12), shape)


@cache
def logistic(shape: tuple[int, int]) -> Objective:
    rng = np.random.default_rng(2)
    A = rng.standard_normal((12, shape[0] * shape[1]))
    return Logistic(A, np.sign(rng.standard_normal(12)), shape)


LOSSES: dict[str, Callable[[tuple[int, int]], Objective]] = {
    "completion": completion,
    "squares": squares,
    "logistic": logistic,
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


def subproblem(f: Objective, radius: float, seed: int) -> Subproblem:
    rng = np.random.default_rng(seed)
    center = rng.standard_normal((f.shape[0], 1)) @ rng.standard_normal((1, f.shape[1]))
    center *= 0.7 * radius / np.linalg.norm(center)
    return Subproblem(f, rng.standard_normal(f.shape), float(rng.uniform(0.05, 1.0)), center)


def gap_at(phi: Subproblem, x: Array, radius: float) -> float:
    """Return the Wolfe gap from the definition: the least of ⟨g, s⟩ is −radius·σ₁(g)."""
    g = phi.f.grad(x) + phi.w + phi.eta * (x - phi.center)
    return float(np.vdot(g, x) + radius * np.linalg.norm(g, 2))


def least_value(phi: Subproblem, radius: float) -> float:
    """Return a lower bound of φ over the ball: its value less its Wolfe gap, where that is rounding error."""
    solver, _, _ = start(phi.f, NuclearNormBall((phi.f.shape[0], phi.f.shape[1]), radius), max_steps=3000)
    x = solver(phi, gap_at_most(0.0))
    return phi.value(x) - gap_at(phi, x, radius)


def projected(M: Array, radius: float) -> Array:
    """Return the nearest matrix in the ball by a full decomposition."""
    U, sigma, Vt = np.linalg.svd(M, full_matrices=False)
    if sigma.sum() <= radius:
        return M
    # Σ max(σᵢ − τ, 0) = radius is at least Σᵢ≤ₖ (σᵢ − τ) for every k, and equal to it for one.
    tau = float(((np.cumsum(sigma) - radius) / np.arange(1, len(sigma) + 1)).max())
    return np.asarray((U * np.maximum(sigma - tau, 0.0)) @ Vt)


def minimizer(phi: Subproblem, radius: float) -> Array:
    """Return the solution by plain projected gradient steps: the error falls by 1 − η/β each."""
    beta = phi.f.smoothness + phi.eta
    x = np.zeros(phi.f.shape)
    for _ in range(int(25.0 * beta / phi.eta)):
        x = projected(x - (phi.f.grad(x) + phi.w + phi.eta * (x - phi.center)) / beta, radius)
    return x


def free_minimizer(phi: Subproblem) -> Array:
    """Return the minimizer over all matrices: (2c + η) x = 2 Σ values + η·center − w for c observations."""
    f = phi.f
    assert isinstance(f.map, Sampling)
    assert isinstance(f.loss, SquaredLoss)
    top, bottom = phi.eta * phi.center - phi.w, np.full(f.shape, phi.eta)
    for i, j, value in zip(f.map.rows, f.map.cols, f.loss.target, strict=True):
        top[i, j] += 2.0 * value
        bottom[i, j] += 2.0
    return np.asarray(top / bottom)


def first_point(phi: Subproblem, radius: float, x: Array) -> Array:
    """Return where steps start: at x, or at the nearest point to the free minimizer if φ is lower there."""
    if not isinstance(phi.f.map, Sampling):
        return x
    return min(x, projected(free_minimizer(phi), radius), key=phi.value)


def start(f: Objective, X: NuclearNormBall, **options: Any) -> tuple[Any, CountedOracle, Counter[Outcome]]:
    oracle, outcomes = CountedOracle(X), Counter[Outcome]()
    return Block(**options).start(Task(f, X, oracle, X.start(), outcomes)), oracle, outcomes


# The answers


@every_loss
@every_shape
@pytest.mark.parametrize("radius", [1e-3, 1.0, 30.0, 1e4])
def test_each_answer_is_in_the_ball_and_as_accurate_as_asked_for(
    shape: tuple[int, int], loss: Callable[[tuple[int, int]], Objective], radius: float
) -> None:
    f = loss(shape)
    solver, _, outcomes = start(f, NuclearNormBall(shape, radius), max_steps=5000)
    for seed, fine in enumerate([1e-2, 1e-4, 1e-8]):
        phi = subproblem(f, radius, seed)
        size = radius * (float(np.linalg.norm(f.grad(phi.center) + phi.w)) + phi.eta * radius)
        x = solver(phi, gap_at_most(fine * size))
        assert phi.value(x) <= least_value(phi, radius) + fine * size + 1e3 * ROUNDING * size
        assert float(np.linalg.norm(x, "nuc")) <= radius * (1.0 + ROUNDING)
    assert outcomes == {Outcome.REACHED: 3}


@every_loss
@pytest.mark.parametrize("shape", [(1, 7), (6, 9), (9, 6)], ids=str)
@pytest.mark.parametrize("radius", [0.5, 5.0, 1e4])
def test_the_answer_is_where_projected_gradient_steps_lead(
    shape: tuple[int, int], loss: Callable[[tuple[int, int]], Objective], radius: float
) -> None:
    f = loss(shape)
    phi = subproblem(f, radius, 3)
    solver, _, _ = start(f, NuclearNormBall(shape, radius))
    e = 1e-10 * radius
    # η/2 ‖x − x*‖² ≤ φ(x) − φ(x*) ≤ e; the reference is right to e^−25 of the radius.
    atol = np.sqrt(2.0 * e / phi.eta) + 1e-10 * radius
    np.testing.assert_allclose(solver(phi, gap_at_most(e)), minimizer(phi, radius), rtol=0.0, atol=atol)


def test_the_answer_is_that_of_cg_to_the_gap() -> None:
    f, X = completion((20, 30)), NuclearNormBall((20, 30), 6.0)
    solver, _, _ = start(f, X)
    tending = CG().start(Task(f, X, CountedOracle(X), X.start()))
    for seed in range(3):
        phi = subproblem(f, 6.0, seed)
        # Either is within 0.05 of the least value.
        assert phi.value(solver(phi, gap_at_most(1e-6))) == pytest.approx(
            phi.value(tending(phi, gap_at_most(0.05))), abs=0.05 + 1e-6
        )


@every_loss
@pytest.mark.parametrize("radius", [1e-3, 5.0, 1e5])
def test_a_gap_of_zero_ends_by_rounding(loss: Callable[[tuple[int, int]], Objective], radius: float) -> None:
    f = loss((25, 20))
    solver, _, outcomes = start(f, NuclearNormBall((25, 20), radius), max_steps=3000)
    for seed in range(3):
        phi = subproblem(f, radius, seed)
        x = solver(phi, gap_at_most(0.0))
        size = float(np.linalg.norm(phi.w)) + (f.smoothness + phi.eta) * radius
        assert gap_at(phi, x, radius) <= 100.0 * ROUNDING * radius * size
    assert outcomes[Outcome.STEPS] == 0


@every_form
def test_a_small_ball_gives_one_triple_and_a_large_one_the_free_minimizer(
    form: Callable[[Objective], Objective],
) -> None:
    f = form(completion((30, 40)))
    phi = subproblem(f, 1e-3, 4)
    solver, oracle, _ = start(f, NuclearNormBall((30, 40), 1e-3))
    assert np.linalg.matrix_rank(solver(phi, gap_at_most(1e-9))) == 1
    assert oracle.calls <= 4 * (_FIRST + 1)
    solver, oracle, _ = start(f, NuclearNormBall((30, 40), 1e6))
    x = solver(phi, gap_at_most(1e-3))
    # φ is η-strongly convex: φ(x) − min φ is at least ‖∇φ‖²/(2β) at a free minimizer's neighbor.
    gradient = f.grad(x) + phi.w + phi.eta * (x - phi.center)
    assert np.vdot(gradient, gradient) <= 2.0 * (f.smoothness + phi.eta) * 1e-3
    # It is seen without singular values that no step leaves the ball.
    assert oracle.calls == 0


def test_a_zero_gradient_is_answered_at_once() -> None:
    f = MatrixCompletion([0], [0], [0.0], (20, 30))
    solver, oracle, _ = start(f, NuclearNormBall((20, 30)))
    x = solver(Subproblem(f, np.zeros((20, 30)), 1.0, np.zeros((20, 30))), gap_at_most(0.0))
    np.testing.assert_array_equal(x, np.zeros((20, 30)))
    assert oracle.calls == 0


@every_form
def test_a_direction_that_the_basis_lacks_is_found_by_the_oracle(
    form: Callable[[Objective], Objective],
) -> None:
    """With unit vectors as singular vectors, products never lead out of those that the block has."""
    f = form(MatrixCompletion([0], [0], [0.0], (80, 80)))
    X = NuclearNormBall((80, 80))
    solver, _, outcomes = start(f, X, max_steps=500)
    solver.state.basis = np.eye(80, 8)
    w = np.zeros((80, 80))
    w[60, 60] = w[61, 62] = -5.0
    phi = Subproblem(f, w, 1.0, np.zeros((80, 80)))
    x = solver(phi, gap_at_most(1e-8))
    assert outcomes == {Outcome.REACHED: 1}
    # φ is 1-strongly convex: x is within √(2e) of the minimizer, which has one half at both places.
    assert np.abs(x[[60, 61], [60, 62]] - 0.5).max() <= 1.5e-4


def test_solving_the_same_again_takes_few_steps() -> None:
    f = by_rows(completion((20, 30)))
    solver, oracle, _ = start(f, NuclearNormBall((20, 30), 5.0))
    phi = subproblem(f, 5.0, 5)
    first = solver(phi, gap_at_most(1e-3))
    calls = oracle.calls
    again = solver(phi, gap_at_most(1e-3))
    # Each is within √(2e/η) of the minimizer.
    assert np.linalg.norm(again - first) <= 2.0 * np.sqrt(2e-3 / phi.eta)
    assert 4 * (oracle.calls - calls) <= calls


def test_an_answer_is_the_caller_s_own() -> None:
    f = completion((20, 30))
    solver, _, _ = start(f, NuclearNormBall((20, 30), 5.0))
    first = solver(subproblem(f, 5.0, 6), gap_at_most(1e-3))
    copy = first.copy()
    solver(subproblem(f, 5.0, 7), gap_at_most(1e-3))
    np.testing.assert_array_equal(first, copy)
    with pytest.raises(ValueError, match="read-only"):
        first[0, 0] = 1.0


def test_the_same_bits_come_out_on_every_thread() -> None:
    f, X = completion((70, 90)), NuclearNormBall((70, 90), 20.0)

    def solved(thread: int) -> bytes:
        solver, _, _ = start(f, X)
        return b"".join(solver(subproblem(f, 20.0, seed), gap_at_most(1e-4)).tobytes() for seed in range(3))

    with ThreadPoolExecutor(4) as pool:
        assert len(set(pool.map(solved, range(6)))) == 1


def test_max_steps_ends_a_solve_and_is_its_outcome() -> None:
    f, X = completion((20, 30)), NuclearNormBall((20, 30), 5.0)
    solver, _, outcomes = start(f, X, max_steps=2)
    x = solver(subproblem(f, 5.0, 8), gap_at_most(1e-12))
    assert outcomes == {Outcome.STEPS: 1}
    assert X.violation(x) <= 5.0 * ROUNDING
    with pytest.raises(ValueError, match=r"max_steps must be a whole number of at least 1; got 0\."):
        Block(max_steps=0)


def test_momentum_saves_steps() -> None:
    """κ = 1001: plain steps to 1e-8 take 6,600 here, accelerated ones √κ log(1e8) ≈ 580 at most."""
    f = by_rows(completion((12, 15)))
    phi = Subproblem(f, np.zeros((12, 15)), f.smoothness / 1000.0, np.zeros((12, 15)))
    solver, _, outcomes = start(f, NuclearNormBall((12, 15), 50.0), max_steps=580)
    solver(phi, gap_at_most(1e-8 * gap_at(phi, np.zeros((12, 15)), 50.0)))
    assert outcomes == {Outcome.REACHED: 1}


@every_loss
@pytest.mark.parametrize("steps", [1, 2, 3, 6, 20])
def test_each_step_is_one_of_the_accelerated_method(
    loss: Callable[[tuple[int, int]], Objective], steps: int
) -> None:
    """Of six rows all triples are asked for, so that steps are exact."""
    f = loss((6, 9))
    phi = subproblem(f, 5.0, 14)
    beta = f.smoothness + phi.eta
    most = (np.sqrt(beta) - np.sqrt(phi.eta)) / (np.sqrt(beta) + np.sqrt(phi.eta))
    x = y = first_point(phi, 5.0, np.zeros((6, 9)))
    t = 1.0
    for _ in range(steps):
        v = projected(y - (f.grad(y) + phi.w + phi.eta * (y - phi.center)) / beta, 5.0)
        t = 1.0 if np.vdot(y - v, v - x) > 0.0 else t
        t_next = 0.5 + np.sqrt(0.25 + t * t)
        x, y, t = v, v + min((t - 1.0) / t_next, most) * (v - x), t_next
    solver, _, _ = start(f, NuclearNormBall((6, 9), 5.0), max_steps=steps)
    # Twenty steps of rounding errors.
    np.testing.assert_allclose(solver(phi, gap_at_most(0.0)), x, rtol=0.0, atol=1e-11)


# The start at the projected minimizer


def test_the_unconstrained_minimizer_divides_by_the_curvature_of_each_entry() -> None:
    """One entry is observed twice, one once, two never: by hand."""
    f = MatrixCompletion([0, 0, 0], [0, 0, 1], [1.0, 3.0, 2.0], (2, 2))
    phi = Subproblem(f, np.array([[0.5, 0.0], [-1.0, 0.0]]), 0.5, np.array([[0.0, 1.0], [0.0, 5.0]]))
    solver, oracle, outcomes = start(f, NuclearNormBall((2, 2), 1e3), max_steps=1)
    # (2·(1 + 3) − 0.5)/(4 + 0.5), (2·2 + 0.5)/(2 + 0.5), 1/0.5 and the center.
    expected = [[5.0 / 3.0, 1.8], [2.0, 5.0]]
    np.testing.assert_allclose(solver(phi, gap_at_most(1e-9)), expected, rtol=ROUNDING, atol=0.0)
    assert outcomes == {Outcome.REACHED: 1}
    assert oracle.calls == 0


@settings(deadline=None, derandomize=True, max_examples=60)
@given(
    shape=st.tuples(st.integers(1, 12), st.integers(1, 12)),
    observed=st.floats(0.0, 2.0),
    eta=st.floats(0.01, 100.0),
    excess=st.sampled_from([1.001, 2.0, 1e3]),
    seed=st.integers(0, 99),
)
def test_where_the_ball_does_not_bind_the_unconstrained_minimizer_is_the_answer(
    shape: tuple[int, int], observed: float, eta: float, excess: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    n = int(observed * shape[0] * shape[1])
    rows, cols = (rng.integers(0, d, n) for d in shape)
    f = MatrixCompletion(rows, cols, rng.standard_normal(n), shape)
    phis = [Subproblem(f, rng.standard_normal(shape), eta, rng.standard_normal(shape)) for _ in range(3)]
    exact = [free_minimizer(phi) for phi in phis]
    radius = excess * max(float(np.linalg.norm(x, "nuc")) for x in exact)
    solver, _, outcomes = start(f, NuclearNormBall(shape, radius), max_steps=1)
    size = max(float(np.abs(x).max()) for x in exact) + max(float(np.abs(phi.center).max()) for phi in phis)
    for phi, x in zip(phis, exact, strict=True):
        # Far above rounding error and far below what a wrong curvature would leave.
        e = 1e-9 * radius * (f.smoothness + eta) * size
        np.testing.assert_allclose(solver(phi, gap_at_most(e)), x, rtol=0.0, atol=ROUNDING * size)
    # A step would have been the one that is allowed, and the end of the solve.
    assert outcomes == {Outcome.REACHED: 3}


@pytest.mark.parametrize("shape", [(1, 7), (9, 6), (24, 30)], ids=str)
@pytest.mark.parametrize("share", [1e-3, 0.3, 0.95])
def test_where_the_ball_binds_the_answer_does_not_depend_on_the_start(
    shape: tuple[int, int], share: float
) -> None:
    f = completion(shape)
    phis = [subproblem(f, 5.0, seed) for seed in range(3)]
    radius = share * min(float(np.linalg.norm(free_minimizer(phi), "nuc")) for phi in phis)
    X = NuclearNormBall(shape, radius)
    projecting, _, outcomes = start(f, X)
    stepping, _, _ = start(by_rows(f), X)
    for phi in phis:
        e = 1e-9 * radius * (float(np.linalg.norm(phi.w)) + (f.smoothness + phi.eta) * radius)
        x = projecting(phi, gap_at_most(e))
        assert phi.value(x) <= least_value(phi, radius) + e + 1e-12 * abs(phi.value(x))
        assert float(np.linalg.norm(x, "nuc")) <= radius * (1.0 + ROUNDING)
        other = stepping(Subproblem(stepping.task.f, phi.w, phi.eta, phi.center), gap_at_most(e))
        # η/2 ‖x − x*‖² ≤ e for either.
        assert np.linalg.norm(x - other) <= 2.0 * np.sqrt(2.0 * e / phi.eta)
    assert outcomes == {Outcome.REACHED: 3}


@pytest.mark.parametrize("shape", [(6, 9), (9, 6), (30, 40)], ids=str)
def test_a_solve_starts_at_the_projected_minimizer_if_that_lowers_phi(shape: tuple[int, int]) -> None:
    """From the center it lowers φ; from the solution it cannot."""
    f = completion(shape)
    solver, _, _ = start(f, NuclearNormBall(shape, 5.0))
    for seed in range(5):
        phi = subproblem(f, 5.0, seed)
        solver.state.x = phi.center
        solver.state.image = f.map.image(phi.center)
        free = free_minimizer(phi)
        solver._project_unconstrained_minimizer(phi)
        assert phi.value(solver.state.x) < phi.value(phi.center)
        away = float(np.linalg.norm(solver.state.x - projected(free, 5.0)))
        # Whole blocks are right to twice the tolerance; of six rows all triples are asked for.
        assert away <= 2.0 * _FINEST * float(np.linalg.norm(free - phi.center))
        assert away <= ROUNDING * float(np.linalg.norm(free)) or min(shape) > _FIRST
        np.testing.assert_array_equal(solver.state.image, f.map.image(solver.state.x))
        x = solver(phi, gap_at_most(1e-7))
        assert phi.value(projected(free, 5.0)) > phi.value(x) + 1e-6
        solver._project_unconstrained_minimizer(phi)
        np.testing.assert_array_equal(solver.state.x, x)
        np.testing.assert_array_equal(solver.state.image, f.map.image(x))


OTHERS: dict[str, Callable[[Objective], Objective]] = {
    "logistic": lambda f: Objective(LogisticLoss(np.sign(target(f))), f.map),
    "Huber": lambda f: Objective(HuberLoss(target(f)), f.map),
    "dense": lambda f: LeastSquares(dense(f), target(f), f.shape),
    "sparse": by_rows,
}


def target(f: Objective) -> Array:
    assert isinstance(f.loss, SquaredLoss)
    return f.loss.target


def dense(f: Objective) -> Array:
    return np.stack([f.map.adjoint(row).reshape(-1) for row in np.eye(f.map.size)])


@pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
def test_with_another_loss_or_map_a_solve_starts_at_the_last_answer(
    other: Callable[[Objective], Objective],
) -> None:
    f, X = other(completion((6, 9))), NuclearNormBall((6, 9), 5.0)
    witness, phi = Witness(X), subproblem(f, 5.0, 14)
    x = Block(max_steps=1).start(Task(f, X, witness, X.start()))(phi, gap_at_most(0.0))
    beta = f.smoothness + phi.eta
    plain = projected(-(f.grad(X.start()) + phi.w - phi.eta * phi.center) / beta, 5.0)
    np.testing.assert_allclose(x, plain, rtol=0.0, atol=5.0 * ROUNDING)
    assert witness.asked == [6]


@pytest.mark.parametrize("eta", [1e-300, 1e-17])
def test_a_solve_starts_at_the_last_answer_if_eta_is_rounding_error(eta: float) -> None:
    """Entries that are not observed are bound by η alone: without it they have no minimizer."""
    f, X = completion((6, 9)), NuclearNormBall((6, 9), 5.0)
    phi = Subproblem(f, np.random.default_rng(15).standard_normal((6, 9)), eta, np.zeros((6, 9)))
    solver, oracle, _ = start(f, X)
    solver._project_unconstrained_minimizer(phi)
    assert oracle.calls == 0
    np.testing.assert_array_equal(solver.state.x, X.start())


# What is counted


class Witness:
    """An oracle that writes down what it is asked for."""

    def __init__(self, X: NuclearNormBall) -> None:
        self.X = X
        self.asked: list[int] = []
        self.answers: list[Nearest] = []

    def __call__(self, direction: Array, near: Atom | None) -> Atom:
        self.asked.append(1)
        return self.X.lmo(direction, near)

    def more(self, direction: Array, level: float, most: int) -> Sequence[Atom]:
        raise NotImplementedError("a block is asked for instead.")

    def nearest(self, M: Array, basis: Array, tolerance: float) -> Nearest:
        np.testing.assert_allclose(basis.T @ basis, np.eye(basis.shape[1]), rtol=0.0, atol=ROUNDING)
        self.asked.append(basis.shape[1])
        self.answers.append(self.X.nearest(M, basis, tolerance))
        return self.answers[-1]


def test_a_block_of_k_triples_counts_as_k_calls() -> None:
    f, X = by_rows(completion((40, 50))), NuclearNormBall((40, 50), 40.0)
    witness, phi = Witness(X), subproblem(f, 40.0, 9)
    first = Block().start(Task(f, X, witness, X.start()))(phi, gap_at_most(1e-3))
    solver, oracle, _ = start(f, X)
    np.testing.assert_array_equal(solver(phi, gap_at_most(1e-3)), first)
    assert oracle.calls == sum(witness.asked)
    assert witness.asked[:2] == [_FIRST, 2 * _FIRST]
    assert witness.asked[2] == 40  # four times as many are more than pays
    assert _DENSE * 40 < 4 * _FIRST
    assert witness.answers[-1].whole


def test_blocks_become_smaller_when_the_rank_falls() -> None:
    f, X = by_rows(completion((60, 60))), NuclearNormBall((60, 60), 25.0)
    witness = Witness(X)
    solver = Block().start(Task(f, X, witness, X.start()))
    solver(subproblem(f, 25.0, 10), gap_at_most(1e-3))
    most = max(witness.asked)
    center = np.zeros((60, 60))
    center[0, 0] = 20.0
    w = -50.0 * np.eye(60)[:, :1] @ np.eye(60)[:1]
    witness.asked.clear()
    solver(Subproblem(f, w, 1.0, center), gap_at_most(1e-3))
    assert witness.asked[-2] < 0.5 * most


@pytest.mark.parametrize("budget", [0, 8, 9, 25])
def test_no_call_is_made_beyond_the_budget(budget: int) -> None:
    f, X = by_rows(completion((40, 50))), NuclearNormBall((40, 50), 40.0)
    oracle = CountedOracle(X, lambda calls: calls < budget)
    solver = Block().start(Task(f, X, oracle, X.start()))
    with pytest.raises(BudgetSpentError):
        solver(subproblem(f, 40.0, 9), gap_at_most(1e-6))
    # What is asked for is 8, 16 and 40: all that fits is spent, and no more.
    assert oracle.calls == max(spent for spent in (0, 8, 24) if spent <= budget)


def test_the_triples_of_the_projected_minimizer_are_counted() -> None:
    f, X = completion((40, 50)), NuclearNormBall((40, 50), 40.0)
    witness, phi = Witness(X), subproblem(f, 40.0, 9)
    first = Block().start(Task(f, X, witness, X.start()))(phi, gap_at_most(1e-3))
    solver, oracle, _ = start(f, X)
    np.testing.assert_array_equal(solver(phi, gap_at_most(1e-3)), first)
    assert oracle.calls == sum(witness.asked)
    assert witness.asked[:2] == [_FIRST, 2 * _FIRST]
    assert [answer.whole for answer in witness.answers[:2]] == [False, True]


@pytest.mark.parametrize("budget", [0, 7, 8, 24])
def test_the_projected_minimizer_is_not_computed_beyond_the_budget(budget: int) -> None:
    f, X = completion((40, 50)), NuclearNormBall((40, 50), 40.0)
    oracle = CountedOracle(X, lambda calls: calls < budget)
    solver = Block().start(Task(f, X, oracle, X.start()))
    with pytest.raises(BudgetSpentError):
        solver(subproblem(f, 40.0, 9), gap_at_most(1e-6))
    # What is asked for is 8 and 16 for the projected minimizer.
    assert oracle.calls == max(spent for spent in (0, 8, 24) if spent <= budget)


def test_another_set_is_refused() -> None:
    f = LeastSquares(np.eye(4), np.zeros(4), (2, 2))
    assert Block().incompatibility(f, NuclearNormBall((2, 2))) is None
    assert Block().incompatibility(LeastSquares(np.eye(2), np.zeros(2)), L1Ball(2)) == (
        "block needs a NuclearNormBall; L1Ball is not one. Use inner='auto'."
    )
    assert "Spectraplex is not one" in (Block().incompatibility(f, Spectraplex(2)) or "")
    assert choose_inner("block", NuclearNormBall((2, 2))) == Block()
    assert choose_inner("auto", NuclearNormBall((2, 2))) == CG()


# The nearest points


def with_spectrum(shape: tuple[int, int], sigma: Any, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    values = np.asarray(sigma, dtype=float)
    left, right = (np.linalg.qr(rng.standard_normal((d, values.size)))[0] for d in shape)
    return np.asarray((left * values) @ right.T)


SPECTRA: dict[str, Any] = {
    "falling": 10.0 * 0.8 ** np.arange(30),
    "all equal": np.ones(30),
    "ten equal on top": [*np.full(10, 3.0), *np.linspace(1.0, 0.0, 20)],
    "two equal where it is cut": [5.0, 4.0, 2.0, 2.0, 1.0, 1.0],
    "rank one": [7.0],
    "wide": 10.0 ** -np.arange(0.0, 15.0),
}


@pytest.mark.parametrize("shape", [(30, 45), (45, 30), (30, 30)], ids=str)
@pytest.mark.parametrize("sigma", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("radius", [1e-20, 1e-6, 1.0, 8.0, 29.0, 1e3])
def test_all_triples_give_the_nearest_point(shape: tuple[int, int], sigma: Any, radius: float) -> None:
    M = with_spectrum(shape, sigma)
    found = nearest_in_ball(M, radius, np.eye(30), 0.0)
    assert found.whole
    size = float(np.linalg.norm(M))
    # Singular values are differences of numbers of the size of M.
    np.testing.assert_allclose(found.point, projected(M, radius), rtol=0.0, atol=10.0 * ROUNDING * size)
    assert float(np.linalg.norm(found.point, "nuc")) <= radius * (1.0 + ROUNDING)


@pytest.mark.parametrize("shape", [(30, 45), (45, 30)], ids=str)
@pytest.mark.parametrize("sigma", SPECTRA.values(), ids=SPECTRA)
@pytest.mark.parametrize("columns", [1, 4, 12])
@pytest.mark.parametrize("tolerance", [1e-2, 1e-6])
def test_a_whole_block_gives_the_nearest_point_to_the_tolerance(
    shape: tuple[int, int], sigma: Any, columns: int, tolerance: float
) -> None:
    M = with_spectrum(shape, sigma)
    found = nearest_in_ball(M, 4.0, extended(np.zeros((30, 0)), columns), tolerance)
    assert float(np.linalg.norm(found.point, "nuc")) <= 4.0 * (1.0 + ROUNDING)
    exact = projected(M, 4.0)
    away = float(np.linalg.norm(found.point - exact))
    # Projections do not lengthen distances; a block that is not whole promises a feasible point only.
    assert away <= 2.0 * tolerance or not found.whole
    rank = int(np.linalg.matrix_rank(exact, tol=1e-9))
    assert found.whole or columns <= rank


@pytest.mark.parametrize("columns", [3, 6])
def test_a_matrix_inside_is_seen_to_be_inside_by_a_few_triples(columns: int) -> None:
    M = with_spectrum((40, 50), [5.0, 4.0, *np.full(30, 0.01)])
    basis = extended(np.zeros((40, 0)), columns)
    found = nearest_in_ball(M, 10.0, basis, 0.0)
    assert found.point is M
    assert found.whole
    # Its nuclear norm is 9.3; the bound of what a few triples leave out is not so close.
    assert not nearest_in_ball(M, 9.301, basis, 0.0).whole


def test_no_matrix_is_taken_to_be_inside_that_is_not() -> None:
    rng = np.random.default_rng(11)
    for _ in range(200):
        M = with_spectrum((12, 15), rng.exponential(size=12) ** 3, int(rng.integers(1000)))
        radius = float(np.linalg.norm(M, "nuc")) * (1.0 - 1e-9)
        basis = extended(np.zeros((12, 0)), int(rng.integers(1, 13)))
        found = nearest_in_ball(M, radius, basis, 1e-3)
        assert float(np.linalg.norm(found.point, "nuc")) <= radius * (1.0 + ROUNDING)


def test_a_basis_from_before_saves_sweeps(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(12)
    M = with_spectrum((60, 80), 10.0 * 0.9 ** np.arange(60))
    first = nearest_in_ball(M, 20.0, extended(np.zeros((60, 0)), 16), 1e-6)
    monkeypatch.setattr(nuclear_norm_ball, "SWEEPS", 2)
    E = 1e-4 * rng.standard_normal((60, 80))
    warm = nearest_in_ball(M + E, 20.0, first.basis, 0.0)
    cold = nearest_in_ball(M + E, 20.0, extended(np.zeros((60, 0)), 16), 0.0)
    exact = projected(M + E, 20.0)
    assert np.linalg.norm(warm.point - exact) < 1e-2 * np.linalg.norm(cold.point - exact)


def test_an_extended_basis_is_orthonormal_and_holds_the_old_one() -> None:
    old = extended(np.zeros((10, 0)), 3)
    new = extended(old, 7)
    np.testing.assert_allclose(new.T @ new, np.eye(7), rtol=0.0, atol=ROUNDING)
    np.testing.assert_allclose(new @ (new.T @ old), old, rtol=0.0, atol=ROUNDING)
    np.testing.assert_array_equal(extended(new, 2), new[:, :2])


@pytest.mark.parametrize("shape", [(5, 9), (9, 5)], ids=str)
def test_an_atom_joins_a_basis_by_its_vector_on_the_smaller_side(shape: tuple[int, int]) -> None:
    atom = NuclearNormBall(shape).lmo(np.random.default_rng(13).standard_normal(shape))
    vector = atom.u if shape[0] == 5 else atom.v
    basis = with_atom(np.eye(5, 3), atom, shape)
    assert basis.shape == (5, 3)
    np.testing.assert_allclose(basis @ (basis.T @ vector), vector, rtol=0.0, atol=ROUNDING)
    np.testing.assert_array_equal(with_atom(np.eye(5), atom, shape), np.eye(5))
