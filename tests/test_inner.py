"""Inner solvers: each solve reaches its gap, and what is carried along stays true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations, permutations, product
from typing import Any, TypeAlias

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from scipy.optimize import minimize_scalar

from dcgs import CG, PCG, HuberLoss, LeastSquares, LogisticLoss, Loss, Objective, SquaredLoss, matrix_map
from dcgs.atoms import Atom, RankOne, Sparse, Spike, Vertex, cross
from dcgs.counting import CountedOracle
from dcgs.inner import Corrective, Exact, Inner, Newton, Outcome, Solver, Subproblem, Task, gap_at_most
from dcgs.inner.active_set import ActiveSet
from dcgs.inner.base import Pair, line_minimizer
from dcgs.sets import (
    BirkhoffPolytope,
    Box,
    ConvexHull,
    ConvexSet,
    KSparseBall,
    L1Ball,
    L2Ball,
    NuclearNormBall,
    Simplex,
)
from problems import Array

EPS = float(np.finfo(float).eps)
Curve: TypeAlias = Callable[[Array], Array]

ROWS = 7
RNG = np.random.default_rng(71)
TARGET = 2.0 * RNG.standard_normal(ROWS)
LABELS = np.sign(TARGET)
HULL = RNG.standard_normal((9, 2, 2))

# The losses, with ℓ′ written down again.
LOSSES: dict[str, tuple[Loss, Curve]] = {
    "squares": (SquaredLoss(TARGET), lambda z: 2.0 * (z - TARGET)),
    "logistic": (LogisticLoss(LABELS), lambda z: -LABELS / (1.0 + np.exp(LABELS * z))),
    "Huber": (HuberLoss(TARGET, delta=0.5), lambda z: 2.0 * np.clip(z - TARGET, -0.5, 0.5)),
}
PERMUTATIONS = np.array([np.eye(3)[list(order)].ravel() for order in permutations(range(3))])
PAIRS = [(np.eye(5)[i], np.eye(5)[j]) for i, j in combinations(range(5), 2)]
SPARSE = np.array([a * p + b * q for p, q in PAIRS for a in (-1.0, 1.0) for b in (-1.0, 1.0)])
CORNERS_OF_BOX = np.array(list(product(*([-1.0, upper] for upper in (1.0, 2.0, 3.0, 4.0)))))
# The polytopes, with all their extreme points.
POLYTOPES: dict[str, tuple[ConvexSet, Array]] = {
    "l1 ball": (L1Ball(6, 1.5), 1.5 * np.vstack([np.eye(6), -np.eye(6)])),
    "simplex of matrices": (Simplex((2, 3), 2.0), 2.0 * np.eye(6)),
    "simplex of one point": (Simplex(1, 2.0), np.array([[2.0]])),
    "box": (Box(-np.ones(4), [1.0, 2.0, 3.0, 4.0]), CORNERS_OF_BOX),
    "permutations": (BirkhoffPolytope(3), PERMUTATIONS),
    "k-sparse ball": (KSparseBall(5, k=2), SPARSE),
    "hull of matrices": (ConvexHull(HULL), HULL.reshape(9, 4)),
}


@dataclass(frozen=True, eq=False)
class Case:
    """One agent's loss over one set, and everything about it in dense form."""

    f: Objective
    X: ConvexSet
    A: Array
    slope: Curve
    least: Callable[[Array], float]
    """min over s ∈ X of ⟨g, s⟩."""

    def gap(self, phi: Subproblem, x: Array) -> float:
        """Return max over s ∈ X of ⟨∇φ(x), x − s⟩, from nothing but the definition."""
        z, flat = self.A @ x.reshape(-1), x.reshape(-1)
        g = self.A.T @ self.slope(z) + (phi.w + phi.eta * (x - phi.center)).reshape(-1)
        return float(g @ flat) - self.least(g)

    def start(self, inner: Inner) -> tuple[Solver, CountedOracle, Counter[Outcome]]:
        oracle = CountedOracle(self.X)
        outcomes: Counter[Outcome] = Counter()
        return inner.start(Task(self.f, self.X, oracle, self.X.start(), outcomes)), oracle, outcomes

    def subproblem(self, seed: int) -> Subproblem:
        """Return a φ as an outer iteration may ask for."""
        rng = np.random.default_rng(seed)
        toward = self.X.lmo(rng.standard_normal(self.X.shape)).dense()
        center = self.X.start() + rng.uniform() * (toward - self.X.start())
        return Subproblem(self.f, rng.standard_normal(self.X.shape), rng.uniform(0.2, 3.0), center)


def case(where: str, loss: str = "squares") -> Case:
    X, vertices = POLYTOPES[where]
    ell, slope = LOSSES[loss]
    A = np.random.default_rng(72).standard_normal((ROWS, vertices.shape[1]))
    return Case(Objective(ell, matrix_map(A, X.shape)), X, A, slope, lambda g: float((vertices @ g).min()))


def ball_case(loss: str = "squares", rows: int = ROWS, scale: float = 1.0, radius: float = 0.8) -> Case:
    """Return a loss over a Euclidean ball in six dimensions; only squares may have other than 7 rows."""
    ell, slope = LOSSES[loss]
    A = scale * np.random.default_rng(73).standard_normal((rows, 6))
    if rows != ROWS:
        b = scale * np.random.default_rng(74).standard_normal(rows)
        ell, slope = SquaredLoss(b), lambda z: 2.0 * (z - b)
    X = L2Ball(6, radius)
    return Case(Objective(ell, matrix_map(A)), X, A, slope, lambda g: -radius * float(np.linalg.norm(g)))


def matrix_case(loss: str = "squares", radius: float = 0.8) -> Case:
    """Return a loss over a nuclear-norm ball of 4 × 3 matrices."""
    ell, slope = LOSSES[loss]
    A = np.random.default_rng(79).standard_normal((ROWS, 12))
    X = NuclearNormBall((4, 3), radius)

    def least(g: Array) -> float:
        return -radius * float(np.linalg.norm(g.reshape(4, 3), 2))

    return Case(Objective(ell, matrix_map(A, (4, 3))), X, A, slope, least)


every_polytope = pytest.mark.parametrize("where", POLYTOPES)
every_loss = pytest.mark.parametrize("loss", LOSSES)
# They are linearly convergent: these are more steps than they need.
pairwise = pytest.mark.parametrize("inner", [PCG(max_steps=5000), Corrective(max_steps=20_000)], ids=repr)
# The solver sums the same gap in another order: terms of size up to 100, right to 1e-16 each.
ROUNDING = 1e-12


def assert_solves(at: Case, inner: Inner, e: float) -> None:
    """Solve four subproblems in a row, as an agent does, and check each answer."""
    solver, _, outcomes = at.start(inner)
    for seed in range(4):
        phi = at.subproblem(seed)
        x = solver(phi, gap_at_most(e))
        assert at.gap(phi, x) <= e + ROUNDING
        assert at.X.violation(x) <= ROUNDING
    assert outcomes == {Outcome.REACHED: 4}


@every_loss
@every_polytope
def test_pcg_returns_a_point_of_the_set_with_the_gap_asked_for(where: str, loss: str) -> None:
    assert_solves(case(where, loss), PCG(max_steps=5000), e=1e-8)


@every_loss
@every_polytope
def test_corrective_returns_a_point_of_the_set_with_the_gap_asked_for(where: str, loss: str) -> None:
    assert_solves(case(where, loss), Corrective(max_steps=20_000), e=1e-8)


@every_loss
@every_polytope
def test_cg_returns_a_point_of_the_set_with_the_gap_asked_for(where: str, loss: str) -> None:
    assert_solves(case(where, loss), CG(max_steps=5000), e=0.05)


@every_loss
@every_polytope
def test_cg_with_agnostic_steps_returns_a_point_with_the_gap_asked_for(where: str, loss: str) -> None:
    assert_solves(case(where, loss), CG(step="agnostic", max_steps=20_000), e=0.1)


@every_loss
@pytest.mark.parametrize("inner", [CG(), CG(step="agnostic")])
def test_cg_reaches_the_gap_over_a_ball_too(loss: str, inner: CG) -> None:
    assert_solves(ball_case(loss), inner, e=0.01)


@every_loss
@pytest.mark.parametrize("radius", [0.01, 0.8, 100.0])
def test_the_gap_is_reached_over_a_ball_of_matrices_too(loss: str, radius: float) -> None:
    assert_solves(matrix_case(loss, radius), CG(), 0.01 * radius)


@pytest.mark.parametrize("inner", [CG(), CG(step="agnostic"), PCG(), Corrective()])
@every_polytope
def test_solving_the_same_again_takes_one_oracle_call(where: str, inner: Inner) -> None:
    at = case(where)
    solver, oracle, _ = at.start(inner)
    phi = at.subproblem(5)
    first = solver(phi, gap_at_most(0.1))
    calls = oracle.calls
    second = solver(phi, gap_at_most(0.1))
    assert oracle.calls == calls + 1
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("inner", [CG(), PCG(), Corrective()])
def test_an_answer_is_the_caller_s_own(inner: Inner) -> None:
    at = case("l1 ball")
    solver, _, _ = at.start(inner)
    first = solver(at.subproblem(6), gap_at_most(0.1))
    copy = first.copy()
    solver(at.subproblem(7), gap_at_most(0.1))
    np.testing.assert_array_equal(first, copy)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1.0


@pytest.mark.parametrize("where", ["simplex of matrices", "permutations", "hull of matrices"])
@pytest.mark.parametrize("inner", [CG(), PCG(), Corrective()])
def test_a_start_stored_by_columns_is_as_good_as_one_stored_by_rows(where: str, inner: Inner) -> None:
    at = case(where)
    answers = []
    for order in ("C", "F"):
        x0 = np.array(at.X.start(), order=order)
        solver = inner.start(Task(at.f, at.X, CountedOracle(at.X), x0))
        answers.append(solver(at.subproblem(8), gap_at_most(0.1)))
    # Sums along columns and along rows differ by rounding.
    np.testing.assert_allclose(answers[1], answers[0], rtol=0.0, atol=ROUNDING)


def one_step(at: Case, phi: Subproblem, atoms: list[Array], weights: Array) -> list[Array]:
    """Return where one step of Algorithm 3 may lead: several places, where vertices tie."""
    _, vertices = next(pair for pair in POLYTOPES.values() if pair[0] is at.X)
    x = weights @ np.array(atoms)
    linear = (phi.w - phi.eta * phi.center).reshape(-1)
    g = at.A.T @ at.slope(at.A @ x) + linear + phi.eta * x
    tie = 1e-10 * (1.0 + np.abs(g).max())
    places = []
    for s in vertices[vertices @ g <= (vertices @ g).min() + tie]:
        for v, alpha in zip(atoms, weights, strict=True):
            if v @ g >= max(float(atom @ g) for atom in atoms) - tie:
                d = s - v
                gamma = -(g @ d) / (2.0 * (at.A @ d) @ (at.A @ d) + phi.eta * d @ d + 1e-300)
                places.append(x + np.clip(gamma, 0.0, alpha) * d)
    return places


@every_polytope
def test_each_step_of_pcg_is_one_of_algorithm_3_along_phi(where: str) -> None:
    """An exact step leaves ⟨∇φ, s⟩ = ⟨∇φ, v⟩, so the next may choose between the two: either is right."""
    at = case(where)
    solver: Any = PCG(max_steps=1).start(Task(at.f, at.X, CountedOracle(at.X), at.X.start()))
    for seed in (9, 10):
        phi = at.subproblem(seed)
        for _ in range(20):
            atoms = [atom.dense().reshape(-1) for atom in solver.state.S.atoms]
            allowed = one_step(at, phi, atoms, solver.state.S.weights.copy())
            x = solver(phi, gap_at_most(ROUNDING)).reshape(-1)
            # Twenty steps of rounding errors, and a stop where the gap is below ROUNDING.
            assert min(np.abs(x - place).max() for place in allowed) <= 1e-10
            np.testing.assert_allclose(solver.state.S.dense().reshape(-1), x, rtol=0.0, atol=1e-10)


@every_polytope
def test_each_step_of_cg_is_one_of_algorithm_2(where: str) -> None:
    at = case(where)
    _, vertices = POLYTOPES[where]
    phi = at.subproblem(11)
    linear = (phi.w - phi.eta * phi.center).reshape(-1)
    x = at.X.start().reshape(-1)
    for steps in range(1, 8):
        g = at.A.T @ at.slope(at.A @ x) + linear + phi.eta * x
        d = vertices[(vertices @ g).argmin()] - x
        curvature = 2.0 * (at.A @ d) @ (at.A @ d) + phi.eta * d @ d + 1e-300
        x = x + np.clip(-(g @ d) / curvature, 0.0, 1.0) * d
        solver, _, _ = at.start(CG(max_steps=steps))
        # Seven steps of rounding errors.
        np.testing.assert_allclose(solver(phi, gap_at_most(0.0)).reshape(-1), x, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("where", ["l1 ball", "simplex of matrices", "box", "hull of matrices"])
@every_loss
@pairwise
def test_a_gap_of_zero_ends_by_rounding(where: str, loss: str, inner: Inner) -> None:
    at = case(where, loss)
    solver, _, outcomes = at.start(inner)
    phi = at.subproblem(12)
    x = solver(phi, gap_at_most(0.0))
    assert outcomes[Outcome.STEPS] == 0
    assert at.gap(phi, x) <= ROUNDING


@pytest.mark.parametrize("scale", [1.0, 1e4])
@pairwise
def test_a_gap_of_zero_ends_by_rounding_also_where_the_data_are_fitted_exactly(
    inner: Inner, scale: float
) -> None:
    """Then ∇f is the rounding error of A x − b, which is not as small as A x − b itself."""
    X, A = L1Ball(6, 3.0), scale * np.random.default_rng(75).standard_normal((9, 6))
    p = np.array([0.5, -0.4, 0.3, -0.2, 0.1, 0.05])
    f = LeastSquares(A, A @ p)
    oracle = CountedOracle(X)
    outcomes: Counter[Outcome] = Counter()
    solver = inner.start(Task(f, X, oracle, X.start(), outcomes))
    for _ in range(3):
        x = solver(Subproblem(f, np.zeros(6), 1e-3, p), gap_at_most(0.0))
    assert outcomes[Outcome.STEPS] == 0
    # The residual is right to EPS ‖A‖ ‖x‖, and x to the condition of A times EPS.
    np.testing.assert_allclose(x, p, rtol=0.0, atol=1e3 * EPS)


@pytest.mark.parametrize("seed", range(8))
@pairwise
def test_a_gap_of_zero_ends_at_a_vertex_far_from_the_origin(inner: Inner, seed: int) -> None:
    """There s = v is all that is active, and the gap is what the weights have lost of 1, times ⟨∇φ, s⟩."""
    rng = np.random.default_rng(seed)
    X = Box(np.full(6, 1000.0), np.full(6, 1001.0))
    A = 0.1 * rng.standard_normal((3, 6))
    f = LeastSquares(A, A @ X.start())
    outcomes: Counter[Outcome] = Counter()
    solver = inner.start(Task(f, X, CountedOracle(X), X.start(), outcomes))
    for _ in range(6):
        solver(Subproblem(f, rng.standard_normal(6), 1.0, X.start()), gap_at_most(1e-6))
    w = 1e4 * np.where(rng.random(6) < 0.5, -1.0, 1.0)
    x = solver(Subproblem(f, w, 1.0, X.start()), gap_at_most(0.0))
    assert outcomes[Outcome.STEPS] == 0
    # w decides every entry; the weight is 1 up to rounding.
    np.testing.assert_allclose(x, np.where(w > 0.0, 1000.0, 1001.0), rtol=1e-12)


@pytest.mark.parametrize("inner", [CG(max_steps=3), CG(step="agnostic", max_steps=3), PCG(max_steps=3)])
def test_max_steps_ends_a_solve_and_is_told(inner: Inner) -> None:
    at = case("l1 ball")
    solver, oracle, outcomes = at.start(inner)
    x = solver(at.subproblem(13), gap_at_most(1e-14))
    assert outcomes == {Outcome.STEPS: 1}
    assert oracle.calls == 3
    assert at.X.violation(x) <= ROUNDING


def test_pcg_needs_a_polytope() -> None:
    f = LeastSquares(np.eye(2), np.zeros(2))
    assert PCG().incompatibility(f, L1Ball(2)) is None
    message = "pcg needs a set with finitely many extreme points; L2Ball is not one. Use inner='cg'."
    assert PCG().incompatibility(f, L2Ball(2)) == message
    assert CG().incompatibility(f, L2Ball(2)) is None


def test_the_closed_form_says_what_it_is_for() -> None:
    f, g = LeastSquares(np.eye(2), np.zeros(2)), Objective(LogisticLoss(np.ones(2)), matrix_map(np.eye(2)))
    assert Exact().incompatibility(f, L2Ball(2)) is None
    assert Exact().incompatibility(f, L1Ball(2)) == (
        "the closed form is for LeastSquares with a dense matrix over an L2Ball; "
        "got SquaredLoss with DenseMap over L1Ball. Use inner='auto'."
    )
    assert "got LogisticLoss with DenseMap over L2Ball" in (Exact().incompatibility(g, L2Ball(2)) or "")


@pytest.mark.parametrize("scale", [1.0, 1e3])
@pytest.mark.parametrize("rows", [1, 3, 6, 9])
@pytest.mark.parametrize("pull", [0.0, 100.0])
def test_the_closed_form_fulfils_the_optimality_conditions(pull: float, rows: int, scale: float) -> None:
    """∇φ(x) = −μ x with μ ≥ 0, and μ = 0 unless ‖x‖ = ρ."""
    at = ball_case(rows=rows, scale=scale)
    solver, oracle, _ = at.start(Exact())
    rng = np.random.default_rng(76)
    phi = Subproblem(at.f, pull * rng.standard_normal(6), 2.0, 0.5 * at.subproblem(14).center)
    x = solver(phi, gap_at_most(0.0))
    g = at.A.T @ at.slope(at.A @ x) + phi.w + phi.eta * (x - phi.center)
    mu = -(g @ x) / (x @ x)
    size = float(np.linalg.norm(at.A, 2) ** 2 + np.linalg.norm(phi.w) + phi.eta)
    # What a backward stable solver leaves of a gradient that is made of terms of this size.
    tolerance = 100.0 * EPS * size
    np.testing.assert_allclose(g, -mu * x, rtol=0.0, atol=tolerance)
    assert mu >= -tolerance
    assert mu * (0.8 - float(np.linalg.norm(x))) <= tolerance
    assert at.X.violation(x) <= 1e-14
    assert oracle.calls == 0


@pytest.mark.parametrize(("pull", "inside"), [(0.01, True), (100.0, False)])
def test_the_closed_form_finds_points_inside_and_on_the_boundary(pull: float, inside: bool) -> None:
    X = L2Ball(2, radius=0.5)
    f = LeastSquares(np.array([[1.0, 0.0]]), [0.0])
    w = pull * np.array([3.0, 4.0])
    x = Exact().start(Task(f, X, CountedOracle(X), np.zeros(2)))(
        Subproblem(f, w, 2.0, np.zeros(2)), gap_at_most(0.0)
    )
    # (2 + 2 + μ) x₀ = −w₀ and (2 + μ) x₁ = −w₁; inside, μ = 0.
    assert (float(np.linalg.norm(x)) < 0.5 * (1.0 - 1e-9)) is inside
    mu = -w[1] / x[1] - 2.0
    assert x[0] == pytest.approx(-w[0] / (4.0 + mu), rel=1e-12)
    assert bool(mu > 1e-9) is not inside


@pytest.mark.parametrize("rows", [3, 9])
def test_the_closed_form_is_where_cg_tends_to(rows: int) -> None:
    at = ball_case(rows=rows)
    phi = at.subproblem(15)
    exact, _, _ = at.start(Exact())
    tending, _, _ = at.start(CG())
    # A gap of 1e-6 with η > 0.2: ‖x − x*‖ ≤ √(1e-6/0.2).
    np.testing.assert_allclose(
        tending(phi, gap_at_most(1e-6)), exact(phi, gap_at_most(0.0)), rtol=0.0, atol=2.3e-3
    )


LINES: dict[str, Callable[[Array], Loss]] = {
    "squares": SquaredLoss,
    "logistic": lambda target: LogisticLoss(np.where(target > 0.0, 1.0, -1.0)),
    "Huber": lambda target: HuberLoss(target, delta=0.5),
    "Huber, narrow": lambda target: HuberLoss(target, delta=1e-3),
}


@pytest.mark.parametrize("loss", LINES)
@given(
    seed=st.integers(0, 10_000),
    length=st.sampled_from([0.1, 1.0, 10.0, 1000.0]),
    curvature=st.sampled_from([0.0, 1e-3, 1.0, 100.0]),
    limit=st.sampled_from([1.0, 0.3, 1e-6]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_the_line_search_is_as_good_as_scipy_s(
    loss: str, seed: int, length: float, curvature: float, limit: float
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    ell = LINES[loss](rng.standard_normal(n))
    image, motion = length * rng.standard_normal(n), length * rng.standard_normal(n)
    rest = float(rng.standard_normal())
    start = float(ell.grad(image) @ motion) + rest
    # The search is for descent directions only, so turn around where need be.
    motion, rest, start = -np.sign(start) * motion, -np.sign(start) * rest, -abs(start)
    gamma = line_minimizer(ell, image, motion, start, curvature, limit)

    def along(gamma: float) -> float:
        """Return φ(x + γ d) up to a constant; rest is the slope of what is linear in φ."""
        return float(ell.value(image + gamma * motion) + rest * gamma + 0.5 * curvature * gamma**2)

    reference = minimize_scalar(
        along,
        bounds=(0.0, limit),
        method="bounded",
        options={"xatol": 1e-12 * limit},
    )
    best = min(float(reference.fun), along(limit), along(0.0))
    assert 0.0 <= gamma <= limit
    # Values of the function are right to EPS times the largest on the way.
    noise = 1e2 * EPS * (1.0 + ell.value(image) + ell.value(image + limit * motion) + abs(rest) + curvature)
    assert along(gamma) <= best + noise


@pytest.mark.parametrize("loss", LINES)
def test_the_line_search_stops_at_the_limit_where_it_still_falls(loss: str) -> None:
    ell = LINES[loss](np.array([1.0, 2.0]))
    motion = np.array([1e-3, 1e-3])
    slope = float(ell.grad(np.zeros(2)) @ motion)
    assert line_minimizer(ell, np.zeros(2), motion, slope, 0.0, 0.25) == 0.25


@pytest.mark.parametrize("loss", LINES)
def test_the_line_search_needs_no_motion_of_the_image(loss: str) -> None:
    """Along what A does not see, φ is a parabola of curvature η‖d‖², or a line where η = 0."""
    ell = LINES[loss](np.array([1.0, 2.0]))
    still = np.zeros(2)
    # Newton steps end when they are below 1e-14.
    assert line_minimizer(ell, still, still, -3.0, 6.0, 1.0) == pytest.approx(0.5, abs=1e-13)
    assert line_minimizer(ell, still, still, -3.0, 2.0, 1.0) == 1.0
    assert line_minimizer(ell, still, still, -3.0, 0.0, 0.7) == 0.7


@pytest.mark.parametrize(
    ("ell", "image", "motion"),
    [
        # From −10 to 10 over the kink of a Huber loss between: both ends are straight.
        (HuberLoss(np.zeros(1), delta=1.0), [-10.0], [20.0]),
        (HuberLoss(np.zeros(1), delta=1e-6), [-1.0], [2.0]),
        # One label pulls up and one down, and far out both are straight to the last bit.
        (LogisticLoss(np.array([1.0, -1.0])), [-50.0, -50.0], [100.0, 100.0]),
        (LogisticLoss(np.array([1.0, -1.0])), [-800.0, -800.0], [1600.0, 1600.0]),
    ],
)
def test_the_line_search_finds_a_minimum_between_two_straight_ends(
    ell: Loss, image: list[float], motion: list[float]
) -> None:
    z, d = np.array(image), np.array(motion)
    gamma = line_minimizer(ell, z, d, float(ell.grad(z) @ d), 0.0, 1.0)
    # By symmetry the least is in the middle.
    assert gamma == pytest.approx(0.5, abs=1e-12)


def test_the_line_search_accepts_any_point_of_a_flat_bottom() -> None:
    """Two Huber losses that pull against each other: constant between −4 and 4."""
    ell = HuberLoss(np.array([-5.0, 5.0]), delta=1.0)
    z, d = np.array([-10.0, -10.0]), np.array([20.0, 20.0])
    gamma = line_minimizer(ell, z, d, float(ell.grad(z) @ d), 0.0, 1.0)
    assert ell.value(z + gamma * d) == pytest.approx(ell.value(np.zeros(2)), rel=1e-14)


SHAPE = (2, 3)
CORNERS: list[Atom] = [
    *(Spike(j, height, SHAPE) for j in range(6) for height in (-2.0, 2.0)),
    Vertex(np.arange(6.0).reshape(SHAPE)),
    Vertex(-np.ones(SHAPE)),
    Sparse(np.array([0, 4]), np.array([1.0, -1.0]), SHAPE),
    Sparse(np.array([1, 2, 5]), np.array([0.5, 2.0, 1.0]), SHAPE),
    RankOne(-3.0, np.array([0.6, 0.8]), np.array([0.0, 1.0, 0.0])),
]


class ActiveSetMachine(RuleBasedStateMachine):
    """An active set beside a plain dictionary of weights, moved alike."""

    @initialize(first=st.sampled_from(CORNERS))
    def begin(self, first: Atom) -> None:
        self.S = ActiveSet.of(first, SHAPE)
        self.model: dict[Atom, float] = {first: 1.0}

    def _move(self, share: float, which: int, toward: Atom) -> None:
        heavy = np.flatnonzero(self.S.weights)
        place = int(heavy[which % len(heavy)])
        away = self.S.atoms[place]
        gamma = share * float(self.S.weights[place])
        left = self.S.move(gamma, place, toward)
        self.model[toward] = self.model.get(toward, 0.0) + gamma
        self.model[away] -= gamma
        emptied = self.model[away] == 0.0
        self.model = {atom: weight for atom, weight in self.model.items() if not (emptied and atom == away)}
        assert left is emptied

    @rule(share=st.floats(0.01, 0.99), which=st.integers(0, 99), toward=st.sampled_from(CORNERS))
    def move_a_part(self, share: float, which: int, toward: Atom) -> None:
        self._move(share, which, toward)

    @rule(which=st.integers(0, 99), toward=st.sampled_from(CORNERS))
    def move_all(self, which: int, toward: Atom) -> None:
        self._move(1.0, which, toward)

    @rule(atom=st.sampled_from(CORNERS))
    def take_in_one_without_weight(self, atom: Atom) -> None:
        assume(atom not in self.S)
        assert self.S.append(atom) == len(self.model)
        self.model[atom] = 0.0

    @rule(which=st.integers(0, 99))
    def drop_one_without_weight(self, which: int) -> None:
        idle = np.flatnonzero(self.S.weights == 0.0)
        assume(len(idle) > 0)
        place = int(idle[which % len(idle)])
        del self.model[self.S.atoms[place]]
        self.S.drop(place)

    @invariant()
    def weights_are_never_negative_and_sum_to_one(self) -> None:
        assert (self.S.weights >= 0.0).all()
        # Each move rounds twice, by at most 1e-16; there are at most 50.
        assert float(self.S.weights.sum()) == pytest.approx(1.0, abs=1e-14)

    @invariant()
    def atoms_are_distinct_and_those_of_the_model(self) -> None:
        assert len(self.S) == len(self.S.atoms) == len(self.S.weights)
        found = dict(zip(self.S.atoms, self.S.weights.tolist(), strict=True))
        assert found == self.model

    @invariant()
    def the_point_is_the_weighted_sum(self) -> None:
        dense = sum((weight * atom.dense() for atom, weight in self.model.items()), start=np.zeros(SHAPE))
        # Sums of at most 17 terms of size up to 5.
        np.testing.assert_allclose(self.S.dense(), dense, rtol=0.0, atol=1e-14)

    @invariant()
    def other_weights_give_another_sum(self) -> None:
        weights = np.cos(np.arange(1.0, len(self.S) + 1.0))
        terms = (weight * atom.dense() for atom, weight in zip(self.S.atoms, weights, strict=True))
        # Sums of at most 17 terms of size up to 5.
        expected = sum(terms, start=np.zeros(SHAPE))
        np.testing.assert_allclose(self.S.combined(weights), expected, rtol=0.0, atol=1e-13)

    @invariant()
    def dots_are_dense_dots(self) -> None:
        direction = np.array([[0.3, -1.2, 2.1], [-0.7, 0.05, 1.4]])
        expected = [float(np.vdot(atom.dense(), direction)) for atom in self.S.atoms]
        # Six products of size up to 10.
        np.testing.assert_allclose(self.S.dots(direction), expected, rtol=0.0, atol=1e-14)


TestActiveSet = ActiveSetMachine.TestCase
TestActiveSet.settings = settings(max_examples=60, stateful_step_count=50, deadline=None, derandomize=True)


def test_an_active_set_grows_beyond_what_it_was_made_for() -> None:
    S = ActiveSet.of(Spike(0, 1.0, (100,)), (100,))
    for j in range(1, 100):
        S.move(0.5 / 100, 0, Spike(j, 1.0, (100,)))
    assert len(S) == 100
    np.testing.assert_allclose(S.dense()[1:], 0.005, rtol=1e-14)
    np.testing.assert_array_equal(S.dots(np.arange(100.0)), np.arange(100.0))


def test_a_move_of_nothing_leaves_no_atom_without_weight() -> None:
    S = ActiveSet.of(Spike(0, 1.0, (3,)), (3,))
    S.move(0.0, 0, Spike(1, 1.0, (3,)))
    assert S.atoms == [Spike(0, 1.0, (3,))]
    np.testing.assert_array_equal(S.weights, [1.0])


def test_an_atom_that_was_dropped_can_come_back() -> None:
    a, b = Spike(0, 1.0, (2,)), Vertex(np.array([3.0, 4.0]))
    S = ActiveSet.of(a, (2,))
    assert S.move(1.0, 0, b)
    assert S.atoms == [b]
    assert not S.move(0.25, 0, a)
    np.testing.assert_array_equal(S.dense(), [0.25 + 0.75 * 3.0, 3.0])
    np.testing.assert_array_equal(S.dots(np.array([1.0, 10.0])), [43.0, 1.0])


@pytest.mark.parametrize("a", CORNERS)
def test_products_of_atoms_are_those_of_their_dense_forms(a: Atom) -> None:
    expected = [float(np.vdot(a.dense(), b.dense())) for b in CORNERS]
    # Six products of size up to 10.
    assert [cross(a, b) for b in CORNERS] == pytest.approx(expected, abs=1e-14)
    assert a.norm_squared() == pytest.approx(cross(a, a), rel=1e-15)


@pytest.mark.parametrize("where", POLYTOPES)
def test_the_carried_image_stays_that_of_the_point(where: str) -> None:
    at = case(where)
    rng = np.random.default_rng(77)
    pair = Pair.at(at.X.start(), at.f.map)
    before = at.X.start()
    for _ in range(150):
        s, v = (at.X.lmo(rng.standard_normal(at.X.shape)) for _ in range(2))
        pair.toward(s, at.f.map.image_of_atom(s) - pair.image, 0.3)
        pair.swap(v, s, at.f.map.image_of_atom(s) - at.f.map.image_of_atom(v), 0.1)
        before = before + 0.3 * (s.dense() - before) + 0.1 * (s.dense() - v.dense())
        # Each move rounds to 1e-16 of values of size 10, and what is old is forgotten.
        np.testing.assert_allclose(pair.x, before, rtol=0.0, atol=1e-13)
        np.testing.assert_allclose(pair.image, at.A @ pair.x.reshape(-1), rtol=0.0, atol=1e-13)
    assert pair.stale
    pair.reset(pair.x, at.f.map)
    assert not pair.stale
    np.testing.assert_array_equal(pair.image, at.f.map.image(pair.x))


def test_a_pair_does_not_move_the_point_it_was_given() -> None:
    x0 = np.ones(6)
    at = case("l1 ball")
    pair = Pair.at(x0, at.f.map)
    pair.toward(Spike(0, 1.5, (6,)), at.A[:, 0], 0.5)
    np.testing.assert_array_equal(x0, np.ones(6))


@every_loss
def test_the_value_and_gradient_of_a_subproblem_are_those_of_its_formula(loss: str) -> None:
    at = case("hull of matrices", loss)
    phi = at.subproblem(16)
    x = np.random.default_rng(78).standard_normal(at.X.shape)
    d = x - phi.center
    expected = at.f.value(x) + float((phi.w * x).sum()) + 0.5 * phi.eta * float((d * d).sum())
    assert phi.value(x) == pytest.approx(expected, rel=1e-14)
    g = (at.A.T @ at.slope(at.A @ x.reshape(-1))).reshape(at.X.shape) + phi.w + phi.eta * d
    # Sums of a dozen terms of size up to 10.
    np.testing.assert_allclose(phi.grad(x, at.A @ x.reshape(-1)), g, rtol=0.0, atol=1e-13)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("where", POLYTOPES)
def test_a_gap_of_zero_ends_corrective_at_rounding(where: str, loss: str) -> None:
    at = case(where, loss)
    for seed in range(12):
        solver, _, outcomes = at.start(Corrective(max_steps=5000))
        phi = at.subproblem(seed)
        x = solver(phi, gap_at_most(0.0))
        assert outcomes[Outcome.STEPS] == 0
        assert at.gap(phi, x) <= ROUNDING


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_dual_newton_steps_fail_proximal_points_lead_on(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a tiny η, Newton steps from zero go in circles; projected gradient steps are many."""
    rng = np.random.default_rng(seed)
    A, truth = rng.standard_normal((20, 2000)), np.zeros(2000)
    truth[:10] = 10.0 * rng.standard_normal(10)
    f, X = LeastSquares(A, A @ truth + rng.standard_normal(20)), L1Ball(2000, float(np.abs(truth).sum()))
    w = 0.1 * float(np.abs(f.grad(np.zeros(2000))).max()) * rng.standard_normal(2000)
    phi, e = Subproblem(f, w, 1e-5 * f.smoothness, np.zeros(2000)), 1e-4 * f.value(np.zeros(2000))

    def solve(inner: Inner, gap: float) -> tuple[float, int]:
        task = Task(f, X, CountedOracle(X), X.start(), Counter())
        x = inner.start(task)(phi, gap_at_most(gap))
        assert set(task.outcomes) == {Outcome.REACHED}
        return phi.value(x), task.projections.count

    least, _ = solve(Corrective(), 1e-9 * e)
    value, projections = solve(Newton(), e)
    assert -1e-9 * e <= value - least <= e
    monkeypatch.setattr("dcgs.inner.newton._NewtonSolver._proximal_points", lambda *_: None)
    assert projections < 0.5 * solve(Newton(), e)[1]


def test_proximal_points_lead_to_the_minimizer_for_the_center_that_was_given() -> None:
    rng = np.random.default_rng(5)
    f, X = LeastSquares(rng.standard_normal((20, 100)), 3.0 * rng.standard_normal(20)), L1Ball(100, 2.0)
    center = X.lmo(rng.standard_normal(100)).dense()
    phi = Subproblem(f, rng.standard_normal(100), 0.02 * f.smoothness, center)
    values = []
    for inner in (Corrective(), Newton()):
        solver: Any = inner.start(Task(f, X, CountedOracle(X), X.start(), Counter()))
        if isinstance(inner, Newton):
            assert solver._proximal_points(phi, gap_at_most(1e-9)) is Outcome.REACHED
            values.append(phi.value(solver.state.x))
        else:
            values.append(phi.value(solver(phi, gap_at_most(1e-10))))
    assert values[1] == pytest.approx(values[0], abs=2e-9)
