"""Corrective: few oracle calls, and what it keeps of its atoms stays true while they come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
import pytest

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
from dcgs.atoms import cross
from dcgs.counting import CountedOracle
from dcgs.inner import Inner, Outcome, Subproblem, Task
from dcgs.sets import BirkhoffPolytope, Box, ConvexHull, ConvexSet, KSparseBall, L1Ball, LInfBall, Simplex
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
MOST = 5000
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


def started(inner: Inner, f: Objective, X: ConvexSet) -> tuple[Any, CountedOracle, Counter[Outcome]]:
    oracle, outcomes = CountedOracle(X), Counter[Outcome]()
    return inner.start(Task(f, X, oracle, X.start(), outcomes)), oracle, outcomes


@every_loss
@every_set
def test_it_finds_what_pcg_finds(where: str, loss: str) -> None:
    X = SETS[where]
    f = objective(X, loss)
    (one, _, ends), (other, _, _) = started(Corrective(max_steps=MOST), f, X), started(PCG(), f, X)
    for phi in subproblems(f, X, 4):
        # Both gaps are at most 1e-9 and η at least 0.2: each is within √(1e-9/0.2) of the minimizer.
        np.testing.assert_allclose(one(phi, 1e-9), other(phi, 1e-9), rtol=0.0, atol=1.5e-4)
    assert ends == {Outcome.REACHED: 4}


@pytest.mark.parametrize("where", ["l1 ball", "simplex", "l∞ ball", "box"])
def test_its_answer_is_the_reference_s(where: str) -> None:
    X, rng = SETS[where], np.random.default_rng(64)
    A, b, center = rng.standard_normal((9, 12)), rng.standard_normal(9), rng.standard_normal(12)
    f = LeastSquares(A, b)
    solver, _, _ = started(Corrective(max_steps=MOST), f, X)
    x = solver(Subproblem(f, np.zeros(12), 0.5, center), 1e-10)
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
def test_it_asks_the_oracle_no_more_often_than_pcg(e: float) -> None:
    f, X = lasso()
    (one, calls, _), (other, more, _) = started(Corrective(max_steps=MOST), f, X), started(PCG(), f, X)
    rng = np.random.default_rng(66)
    for _ in range(5):
        phi = Subproblem(f, rng.standard_normal(100), 2.0, X.start())
        one(phi, e)
        other(phi, e)
        assert calls.calls <= more.calls


def test_a_run_with_it_asks_the_oracle_no_more_often_than_one_with_pcg() -> None:
    f, X = lasso()
    runs = [
        dcgs.minimize([f, f], X, nx.path_graph(2), dcgs.FastDCGS(inner=inner), iterations=25, every=0)
        for inner in (Corrective(), PCG())
    ]
    assert runs[0].lmo_calls.max() <= runs[1].lmo_calls.max()


def assert_true_to_its_atoms(hull: Any, A: Array, shape: tuple[int, ...]) -> None:
    """Assert the invariants of the active set and of all that is kept beside it."""
    S, count = hull.S, len(hull.S)
    assert (S.weights > 0.0).all()
    # Every move rounds twice, by 1e-16; there are some thousands.
    assert float(S.weights.sum()) == pytest.approx(1.0, abs=1e-12)
    assert len(set(S.atoms)) == count
    dense = np.array([atom.dense().reshape(-1) for atom in S.atoms])
    # Sums of a dozen products of size up to 10, in whatever order.
    np.testing.assert_allclose(hull._images[:count], dense @ A.T, rtol=0.0, atol=1e-12)
    np.testing.assert_allclose(hull.image, S.weights @ dense @ A.T, rtol=0.0, atol=1e-11)
    np.testing.assert_allclose(S.dense(shape).reshape(-1), S.weights @ dense, rtol=0.0, atol=1e-13)
    for atom in S.atoms:
        np.testing.assert_allclose(
            S.crosses(atom), [cross(atom, other) for other in S.atoms], rtol=0.0, atol=1e-13
        )


@every_loss
@every_set
def test_what_is_kept_of_the_atoms_stays_true_while_they_come_and_go(where: str, loss: str) -> None:
    X = SETS[where]
    f = objective(X, loss)
    solver, _, _ = started(Corrective(max_steps=MOST), f, X)
    dropped, before = 0, set(solver.hull.S.atoms)
    for phi in subproblems(f, X, 12):
        x = solver(phi, 1e-6)
        now = set(solver.hull.S.atoms)
        dropped, before = dropped + len(before - now), now
        assert_true_to_its_atoms(solver.hull, f.data()["A"], X.shape)
        np.testing.assert_array_equal(x, solver.hull.S.dense(X.shape))
        # Weights sum to 1 up to rounding.
        assert X.violation(x) <= 1e-11
    # The start and vertices have left: otherwise nothing was tested.
    assert dropped > 5


@every_loss
@pytest.mark.parametrize("steps", [1, 2, 3, 10])
def test_max_steps_ends_a_solve_and_is_told(loss: str, steps: int) -> None:
    X = SETS["l1 ball"]
    f = objective(X, loss)
    solver, oracle, outcomes = started(Corrective(max_steps=steps), f, X)
    x = solver(subproblems(f, X, 1, pull=0.1)[0], 1e-13)
    assert outcomes == {Outcome.STEPS: 1}
    assert 1 <= oracle.calls <= steps
    assert X.violation(x) <= 1e-12
    assert_true_to_its_atoms(solver.hull, f.data()["A"], X.shape)


@every_loss
def test_no_step_leads_uphill(loss: str) -> None:
    X = SETS["l1 ball"]
    f = objective(X, loss)
    (phi,) = subproblems(f, X, 1, pull=0.1)
    values = [phi.value(started(Corrective(max_steps=n), f, X)[0](phi, 1e-10)) for n in range(1, 25)]
    # Values of size 100 are right to 1e-14.
    assert np.diff([phi.value(X.start()), *values]).max() <= 1e-12
    assert values[0] < phi.value(X.start())


def test_it_needs_a_polytope() -> None:
    f = LeastSquares(np.eye(2), np.zeros(2))
    assert Corrective().misfit(f, L1Ball(2)) is None
    message = "corrective needs a set with finitely many extreme points; L2Ball is not one. Use inner='cg'."
    assert Corrective().misfit(f, dcgs.L2Ball(2)) == message


def test_without_eta_it_minimizes_f_itself() -> None:
    """The weight of ‖x − center‖² may be as good as nothing: then two atoms may have one image."""
    X, A = L1Ball(4, 1.0), np.array([[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 2.0]])
    f = LeastSquares(A, [0.3, 0.2])
    solver, _, outcomes = started(Corrective(max_steps=500), f, X)
    x = solver(Subproblem(f, np.zeros(4), 0.0, np.zeros(4)), 1e-12)
    assert outcomes == {Outcome.REACHED: 1}
    # f is at most its gap.
    np.testing.assert_allclose(A @ x, [0.3, 0.2], rtol=0.0, atol=1e-6)
