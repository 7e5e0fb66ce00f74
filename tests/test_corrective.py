"""Corrective: few passes over the data, and images and weights that stay consistent with the atoms."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dcgs
from dcgs import (
    PCG,
    Corrective,
    HuberLoss,
    LeastSquares,
    LogisticLoss,
    Loss,
    Objective,
    SquaredLoss,
    matrix_map,
)
from dcgs.atoms import Atom, Spike, Vertex
from dcgs.counting import BudgetSpentError, CountedOracle
from dcgs.inner import Inner, Outcome, Subproblem, Task, corrective, gap_at_most
from dcgs.inner.base import line_minimizer
from dcgs.inner.corrective import _step
from dcgs.objectives.maps import DenseMap
from dcgs.sets import BirkhoffPolytope, Box, ConvexHull, ConvexSet, KSparseBall, L1Ball, LInfBall, Simplex
from dcgs.sets.nuclear_norm_ball import Nearest
from problems import Array
from reference import optimum

SETS: dict[str, ConvexSet] = {
    "l1 ball": L1Ball(12, 2.0),
    "simplex": Simplex(12),
    "l∞ ball": LInfBall(12, 0.5),
    "box": Box(-np.ones(12), np.ones(12)),
    "k-sparse ball": KSparseBall(12, k=3),
    "permutations": BirkhoffPolytope(4),
    "hull": ConvexHull(np.random.default_rng(61).standard_normal((20, 3, 4))),
}
LOSSES: dict[str, Callable[[Array], Loss]] = {
    "squares": SquaredLoss,
    "logistic": lambda target: LogisticLoss(np.sign(target)),
    "Huber": lambda target: HuberLoss(target, delta=0.5),
}
MOST = 20_000
"""More steps than any solve here needs, so that one gone wrong comes to an end."""
every_set = pytest.mark.parametrize("where", SETS)
every_loss = pytest.mark.parametrize("loss", LOSSES)


def objective(X: ConvexSet, loss: str = "squares") -> Objective:
    rng = np.random.default_rng(62)
    size = int(np.prod(X.shape))
    return Objective(
        LOSSES[loss](2.0 * rng.standard_normal(9)), matrix_map(rng.standard_normal((9, size)), X.shape)
    )


def subproblems(f: Objective, X: ConvexSet, count: int, pull: float = 5.0) -> list[Subproblem]:
    """Return so many φ whose pulls differ, so that atoms come and go."""
    rng = np.random.default_rng(63)
    return [
        Subproblem(f, pull * rng.standard_normal(X.shape), float(rng.uniform(0.2, 3.0)), X.start())
        for _ in range(count)
    ]


class Witness:
    """A counted oracle that writes down how many extreme points came of each question."""

    def __init__(self, X: ConvexSet) -> None:
        self.counted = CountedOracle(X)
        self.ones: list[Atom] = []
        self.batches: list[Sequence[Atom]] = []
        self.spent: list[int] = []

    def __call__(self, direction: Array, near: Atom | None) -> Atom:
        self.ones.append(self.counted(direction, near))
        self.spent.append(self.counted.calls)
        return self.ones[-1]

    def more(self, direction: Array, level: float, most: int) -> Sequence[Atom]:
        self.batches.append(self.counted.more(direction, level, most))
        self.spent.append(self.counted.calls)
        return self.batches[-1]

    def nearest(self, M: Array, basis: Array, tolerance: float) -> Nearest:
        return self.counted.nearest(M, basis, tolerance)

    @property
    def calls(self) -> int:
        return self.counted.calls

    @property
    def passes(self) -> int:
        """How often a gradient was looked at."""
        return len(self.ones)


def started(inner: Inner, f: Objective, X: ConvexSet) -> tuple[Any, Witness, Counter[Outcome]]:
    oracle, outcomes = Witness(X), Counter[Outcome]()
    return inner.start(Task(f, X, oracle, X.start(), outcomes)), oracle, outcomes


@every_loss
@every_set
def test_it_finds_what_pcg_finds(where: str, loss: str) -> None:
    X = SETS[where]
    f = objective(X, loss)
    (one, _, ends), (other, _, _) = started(Corrective(max_steps=MOST), f, X), started(PCG(), f, X)
    for phi in subproblems(f, X, 4):
        # Both gaps are at most 1e-9 and η at least 0.2: each is within √(1e-9/0.2) of the minimizer.
        np.testing.assert_allclose(
            one(phi, gap_at_most(1e-9)), other(phi, gap_at_most(1e-9)), rtol=0.0, atol=1.5e-4
        )
    assert ends == {Outcome.REACHED: 4}


@pytest.mark.parametrize("where", ["l1 ball", "simplex", "l∞ ball", "box"])
def test_its_answer_is_the_reference_s(where: str) -> None:
    X, rng = SETS[where], np.random.default_rng(64)
    A, b, center = rng.standard_normal((9, 12)), rng.standard_normal(9), rng.standard_normal(12)
    f = LeastSquares(A, b)
    solver, _, _ = started(Corrective(max_steps=MOST), f, X)
    x = solver(Subproblem(f, np.zeros(12), 0.5, center), gap_at_most(1e-10))
    # η/2 ‖x − center‖² is one more agent's least squares. The reference's value is right to 1e-9 and φ is
    # ½-strongly convex: √(2 · 1e-9 · 20/0.5), as values are below 20.
    best, _ = optimum([(A, b), (0.5 * np.eye(12), 0.5 * center)], X)
    np.testing.assert_allclose(x, best, rtol=0.0, atol=3e-4)


def lasso() -> tuple[Objective, L1Ball]:
    rng = np.random.default_rng(65)
    A, x = rng.standard_normal((40, 100)), np.zeros(100)
    x[:8] = rng.standard_normal(8)
    return LeastSquares(A, A @ x + 0.1 * rng.standard_normal(40)), L1Ball(100, float(np.abs(x).sum()))


@pytest.mark.parametrize("e", [1.0, 1e-3, 1e-6])
def test_it_asks_the_oracle_no_more_often_than_pcg_and_passes_over_the_data_far_less_often(e: float) -> None:
    f, X = lasso()
    (one, few, _), (other, many, _) = started(Corrective(max_steps=MOST), f, X), started(PCG(), f, X)
    rng = np.random.default_rng(66)
    for _ in range(5):
        phi = Subproblem(f, rng.standard_normal(100), 2.0, X.start())
        one(phi, gap_at_most(e))
        other(phi, gap_at_most(e))
        assert few.calls <= many.calls
        # Every question of PCG's is a pass. Here there are 28 to 170 times as many.
        assert 20 * few.passes <= many.passes == many.calls


@every_set
def test_between_two_oracle_calls_it_needs_no_data(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: Counter[str] = Counter()

    def counted(name: str) -> Callable[..., Any]:
        original = getattr(DenseMap, name)

        def method(self: DenseMap, *args: Any) -> Any:
            seen[name] += 1
            return original(self, *args)

        return method

    X = SETS[where]
    f = objective(X)
    for name in ("adjoint", "image_of_atom"):
        monkeypatch.setattr(DenseMap, name, counted(name))
    solver, oracle, _ = started(Corrective(max_steps=MOST), f, X)
    for phi in subproblems(f, X, 3):
        solver(phi, gap_at_most(1e-3))
    # Each atom's image is taken once, as no atom has left yet.
    assert seen == {"adjoint": oracle.passes, "image_of_atom": len(solver.state.S)}


def test_of_many_extreme_points_those_with_half_of_the_best_gap_are_added() -> None:
    f, X = lasso()
    phi = Subproblem(f, np.random.default_rng(67).standard_normal(100), 2.0, X.start())
    solver, oracle, _ = started(Corrective(max_steps=1), f, X)
    solver(phi, gap_at_most(1e-3))
    g = f.grad(X.start()) + phi.w
    # At x⁰ = 0 an entry promises radius·|g|; the entries tie with no half of the largest.
    worth = np.flatnonzero(np.abs(g) >= 0.5 * np.abs(g).max())
    assert 5 < len(worth) <= 16
    spikes = {Spike(j, -X.radius * float(np.sign(g[j])), (100,)) for j in worth.tolist()}
    assert set(solver.state.S.atoms) == {Vertex(X.start()), *spikes}
    assert oracle.calls == 1 + len(worth)


def test_at_most_sixteen_extreme_points_or_a_quarter_of_the_active_set_are_added_at_once() -> None:
    X = L1Ball(1000, 1.0)
    f = LeastSquares(np.zeros((1, 1000)), [0.0])
    signs = np.where(np.arange(1000) % 3 == 0, 1.0, -1.0)
    # φ is ½‖x + w‖² but for a constant: all entries are worth the same until they have weight.
    phi = Subproblem(f, signs, 1.0, X.start())
    solver, oracle, _ = started(Corrective(max_steps=MOST), f, X)
    solver(phi, gap_at_most(1e-9))
    there = 1
    for batch in oracle.batches:
        # The last ones are all that is left.
        assert len(batch) == min(max(16, there // 4), 1001 - there)
        there += len(batch)
    assert there == len(solver.state.S) == 1001


def test_a_run_with_corrective_calls_the_oracle_no_more_often_than_one_with_pcg() -> None:
    f, X = lasso()
    runs = [
        dcgs.minimize([f, f], X, nx.path_graph(2), dcgs.FastDCGS(inner=inner), iterations=25, every=0)
        for inner in (Corrective(), PCG())
    ]
    assert runs[0].lmo_calls.max() <= runs[1].lmo_calls.max()


def assert_consistent(hull: Any, A: Array) -> None:
    """Assert the invariants of the active set and of the stored images."""
    S, count = hull.state.S, len(hull.state.S)
    assert (S.weights >= 0.0).all()
    # Every step rounds each of a hundred weights by 1e-16; there are some thousands.
    assert float(S.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert len(set(S.atoms)) == count
    dense = np.array([atom.dense().reshape(-1) for atom in S.atoms])
    # Sums of a dozen products of size up to 10, in whatever order.
    np.testing.assert_allclose(hull._images[:count], dense @ A.T, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(hull.image, S.weights @ dense @ A.T, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(S.dense().reshape(-1), S.weights @ dense, rtol=0.0, atol=1e-13)


@every_loss
@every_set
def test_images_and_weights_stay_consistent_while_atoms_are_added_and_removed(where: str, loss: str) -> None:
    X = SETS[where]
    f = objective(X, loss)
    solver, _, ends = started(Corrective(max_steps=MOST), f, X)
    dropped, before = 0, set(solver.state.S.atoms)
    for phi in subproblems(f, X, 14, pull=10.0):
        x = solver(phi, gap_at_most(1e-3))
        now = set(solver.state.S.atoms)
        dropped, before = dropped + len(before - now), now
        assert_consistent(solver.hull, f.data()["A"])
        # An atom that left may have changed the order in which some dozens of terms are added.
        np.testing.assert_allclose(x, solver.state.S.dense(), rtol=0.0, atol=1e-13)
        # Weights sum to 1 up to rounding.
        assert X.violation(x) <= 1e-11
    assert ends == {Outcome.REACHED: 14}
    # Some have left: otherwise nothing was tested.
    assert dropped >= 2


def toward(f: Objective, j: int) -> Subproblem:
    """Return a φ over the unit ℓ₁ ball in three dimensions that is least at a vertex."""
    return Subproblem(f, -100.0 * np.eye(3)[j], 1.0, np.zeros(3))


def test_an_atom_without_weight_stays_for_eight_solves_and_the_first_for_good() -> None:
    X, f = L1Ball(3), LeastSquares(np.eye(3), np.zeros(3))
    solver, _, _ = started(Corrective(), f, X)
    S = solver.state.S
    np.testing.assert_array_equal(solver(toward(f, 0), gap_at_most(1e-9)), [1.0, 0.0, 0.0])
    stayed = []
    for _ in range(12):
        np.testing.assert_array_equal(solver(toward(f, 1), gap_at_most(1e-9)), [0.0, 1.0, 0.0])
        stayed.append(Spike(0, 1.0, (3,)) in S)
    assert stayed == [True] * 8 + [False] * 4
    assert S.atoms == [Vertex(np.zeros(3)), Spike(1, 1.0, (3,))]
    np.testing.assert_array_equal(S.weights, [0.0, 1.0])


def test_an_atom_that_gets_weight_again_in_time_stays_for_eight_more_solves() -> None:
    X, f = L1Ball(3), LeastSquares(np.eye(3), np.zeros(3))
    solver, _, _ = started(Corrective(), f, X)
    stayed = []
    for j in [0, *[1] * 8, 0, *[1] * 9]:
        solver(toward(f, j), gap_at_most(1e-9))
        stayed.append(Spike(0, 1.0, (3,)) in solver.state.S)
    assert stayed == [True] * 18 + [False]


@every_loss
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_max_steps_ends_a_solve_and_is_its_outcome(
    loss: str, steps: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched: list[float] = []

    def noted(*args: Any) -> float:
        searched.append(line_minimizer(*args))
        return searched[-1]

    monkeypatch.setattr(corrective, "line_minimizer", noted)
    X = SETS["l1 ball"]
    f = objective(X, loss)
    solver, oracle, outcomes = started(Corrective(max_steps=steps), f, X)
    x = solver(subproblems(f, X, 1, pull=0.1)[0], gap_at_most(1e-13))
    assert outcomes == {Outcome.STEPS: 1}
    # A step is one line search, and no pass is without one before the gap is down to rounding.
    assert 1 <= oracle.passes <= len(searched) == steps
    assert X.violation(x) <= 1e-12
    assert_consistent(solver.hull, f.data()["A"])


@every_loss
def test_no_step_leads_uphill(loss: str) -> None:
    X = SETS["l1 ball"]
    f = objective(X, loss)
    (phi,) = subproblems(f, X, 1, pull=0.1)
    values = [
        phi.value(started(Corrective(max_steps=n), f, X)[0](phi, gap_at_most(1e-10))) for n in range(1, 25)
    ]
    # Values of size 100 are right to 1e-14.
    assert np.diff([phi.value(X.start()), *values]).max() <= 1e-12
    assert values[0] < phi.value(X.start())


@given(
    seed=st.integers(0, 10_000),
    length=st.sampled_from([0.0, 1e-3, 0.1, 1.0, 1e3]),
    spread=st.sampled_from([0.0, 1.0, 3.0]),
)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_step_of_the_weights_is_the_nearest_point_of_the_simplex_in_all_but_the_first(
    seed: int, length: float, spread: float
) -> None:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 8))
    weights, step = rng.dirichlet(np.full(n, 0.5)), length * rng.standard_normal(n)
    h = 10.0 ** rng.uniform(-spread, spread, n)
    target = _step(weights, step, h)
    y, u, metric = (weights - h * step)[1:], target[1:], 1.0 / h[1:]
    size = 1.0 + float(np.linalg.norm(y))
    assert (target >= 0.0).all()
    # Sums of seven numbers of that size: a thousand times their rounding error.
    assert float(target.sum()) == pytest.approx(1.0, abs=1e-12 * size)
    # Nearest to y in {u ≥ 0, Σu ≤ 1}: from there no extreme point, 0 or a unit vector, lies toward y.
    for s in [np.zeros(n - 1), *np.eye(n - 1)]:
        assert (metric * (y - u)) @ (s - u) <= 1e-12 * size**2 * float(metric.max(initial=0.0))


# What is counted


def test_extreme_points_of_one_pass_count_as_a_call_each() -> None:
    f, X = lasso()
    solver, oracle, _ = started(Corrective(), f, X)
    solver(subproblems(f, X, 1)[0], gap_at_most(1e-3))
    assert oracle.calls == oracle.passes + sum(map(len, oracle.batches))
    assert sum(map(len, oracle.batches)) > oracle.passes


@pytest.mark.parametrize("budget", [0, 1, 2, 10, 20, 40])
def test_no_call_is_made_beyond_the_budget(budget: int) -> None:
    f, X = lasso()
    (phi,) = subproblems(f, X, 1)
    free, witness, _ = started(Corrective(), f, X)
    free(phi, gap_at_most(1e-3))
    oracle = CountedOracle(X, lambda calls: calls < budget)
    solver = Corrective().start(Task(f, X, oracle, X.start()))
    with pytest.raises(BudgetSpentError):
        solver(phi, gap_at_most(1e-3))
    # All that fits is spent, and no more: points that come at once are refused at once.
    assert oracle.calls == max(spent for spent in (0, *witness.spent) if spent <= budget)


@pytest.mark.parametrize("allowed", range(5))
def test_many_extreme_points_are_counted_each_or_all_refused(allowed: int) -> None:
    oracle = CountedOracle(Simplex(5), lambda calls: calls < allowed)
    direction = np.array([3.0, 1.0, 2.0, 5.0, 4.0])
    assert oracle.more(direction, 0.5, 5) == []
    assert oracle.calls == 0
    for most in range(allowed + 1, 5):
        with pytest.raises(BudgetSpentError):
            oracle.more(direction, 4.5, most)
    assert oracle.calls == 0
    assert len(oracle.more(direction, 4.5, allowed)) == oracle.calls == allowed


def test_it_needs_a_polytope() -> None:
    f = LeastSquares(np.eye(2), np.zeros(2))
    assert Corrective().incompatibility(f, L1Ball(2)) is None
    message = "corrective needs a set with finitely many extreme points; L2Ball is not one. Use inner='cg'."
    assert Corrective().incompatibility(f, dcgs.L2Ball(2)) == message


def test_without_eta_it_minimizes_f_itself() -> None:
    """The weight of ‖x − center‖² may be as good as nothing: then two atoms may have one image."""
    X, A = L1Ball(4, 1.0), np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]])
    f = LeastSquares(A, [0.3, 0.2])
    solver, _, outcomes = started(Corrective(max_steps=500), f, X)
    x = solver(Subproblem(f, np.zeros(4), 0.0, np.zeros(4)), gap_at_most(1e-12))
    assert outcomes == {Outcome.REACHED: 1}
    # f is at most its gap.
    np.testing.assert_allclose(A @ x, [0.3, 0.2], rtol=0.0, atol=1e-6)
