"""FastDCGS with Hessians: the optimum of an independent solver, no increase of f, and an honest end."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
import loss_cases as losses
from dcgs import FastDCGS, LeastSquares, Logistic, Objective, Snapshot, Status
from dcgs.counting import CountedOracle, Tally
from dcgs.inner.quadratic import Domain, Quadratic, minimize_quadratic
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Bounds, CertifiedGap, GapKind, GapTarget
from dcgs.methods.fast import second_order
from dcgs.methods.fast.second_order import RootState, SecondOrderState, Verdict
from dcgs.run.measuring import certify
from dcgs.sets import ConvexSet
from problems import Array, random_fits
from reference import optimum

NEWTON = FastDCGS(form="newton")
SETS: dict[str, ConvexSet] = {
    "l1": dcgs.L1Ball(6, 1.0),
    "simplex": dcgs.Simplex(6, 2.0),
    "l2": dcgs.L2Ball(6, 0.5),
    "box": dcgs.Box(-0.2 * np.ones(6), 0.3 * np.ones(6)),
    "k-sparse": dcgs.KSparseBall(6, k=2),
    "groups": dcgs.GroupL1Ball(6, [[0, 1], [2, 3, 4], [5]], 0.8),
    "nuclear": dcgs.NuclearNormBall((2, 3), 0.6),
    "hull": dcgs.ConvexHull(np.random.default_rng(3).standard_normal((9, 6))),
}


@pytest.mark.parametrize("where", SETS)
def test_least_squares_reach_the_optimum_of_an_independent_solver(where: str) -> None:
    X, graph = SETS[where], nx.path_graph(4)
    fits = random_fits(4, rows=5, columns=6, seed=61)
    pairs = list(zip(fits.A, fits.b, strict=True))
    _, least = optimum(pairs, X)
    objectives = [LeastSquares(A, b, shape=X.shape) for A, b in pairs]
    result = dcgs.minimize(objectives, X, graph, NEWTON, gap=1e-9, iterations=30)
    assert result.status is Status.AGREED
    # The reference is right to 1e-9, relative or absolute.
    assert abs(result.history.worst_loss[-1] - least) <= 1e-7 * (1.0 + least)
    # A quadratic is its own model: the point of the first answer is the minimizer.
    assert result.iterations <= 3


LOSSES: dict[str, Callable[[Array, Array], Objective]] = {
    "logistic": lambda A, b: Logistic(A, np.sign(b)),
    "steep logistic": lambda A, b: Logistic(30.0 * A, np.sign(b)),
    "Huber": lambda A, b: Objective(dcgs.HuberLoss(b, delta=1e-2), dcgs.matrix_map(A)),
}


@pytest.mark.parametrize("where", ["l1", "l2", "hull"])
@pytest.mark.parametrize("loss", LOSSES)
def test_other_losses_reach_a_gap_that_is_true_and_f_never_increases(loss: str, where: str) -> None:
    X, graph = SETS[where], nx.cycle_graph(5)
    fits = random_fits(5, rows=6, columns=6, seed=62)
    objectives = [LOSSES[loss](A, b) for A, b in zip(fits.A, fits.b, strict=True)]
    losses: list[float] = []

    def look(snapshot: Snapshot) -> None:
        assert len({np.asarray(x).tobytes() for x in snapshot.agents}) == 1
        losses.append(snapshot.worst_loss)

    result = dcgs.minimize(objectives, X, graph, NEWTON, gap=1e-6, iterations=60, callback=look)
    assert result.status is Status.AGREED
    # Losses of thirty terms are right to 1e-14.
    assert np.diff(losses).max() <= 1e-13 * losses[0]
    value, gap = certify(objectives, X, result.agents[0])
    assert gap <= 1e-6 * (losses[0] - value)


def test_steps_that_increase_f_are_rejected_and_the_agents_stay() -> None:
    """Steep logistic losses from a far corner: Newton's model is flat there, and its step far too long."""
    rng = np.random.default_rng(63)
    A, x = rng.standard_normal((4, 8, 3)), np.array([1.0, -1.0, 0.5])
    objectives = [Logistic(20.0 * Ai, np.sign(Ai @ x + 0.3 * rng.standard_normal(8))) for Ai in A]
    answers: list[bytes] = []
    result = dcgs.minimize(
        objectives,
        dcgs.L2Ball(3, 5.0),
        nx.path_graph(4),
        NEWTON,
        gap=1e-8,
        x0=np.array([-3.0, 3.0, 1.0]),
        iterations=80,
        callback=lambda snapshot: answers.append(np.asarray(snapshot.agents[0]).tobytes()),
    )
    assert result.status is Status.AGREED
    rejected = sum(before == after for before, after in pairwise(answers[1:]))
    assert rejected >= 1


@pytest.mark.parametrize("kind", ["logistic", "Huber", "log cosh"])
@pytest.mark.parametrize("where", ["l1", "nuclear"])
def test_no_bound_is_above_the_optimum(kind: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    X, graph = SETS[where], nx.path_graph(4)
    fits = random_fits(4, rows=6, columns=6, seed=68)
    objectives = [losses.LOSSES[kind][0](10.0 * A, b, X) for A, b in zip(fits.A, fits.b, strict=True)]
    bounds: dict[GapKind, list[float]] = {each: [] for each in GapKind}
    add = Bounds.add

    def recorded(self: Bounds, lower: float, kind: GapKind) -> None:
        bounds[kind].append(lower)
        add(self, lower, kind)

    monkeypatch.setattr(Bounds, "add", recorded)
    result = dcgs.minimize(objectives, X, graph, NEWTON, gap=1e-6, iterations=60, every=0)
    assert result.status is Status.AGREED
    start = sum(f.value(X.start()) for f in objectives)
    least = losses.least_value(kind, 10.0 * fits.A.reshape(-1, 6), fits.b.reshape(-1), X) - start
    # The reference is right to 1e-9 or so, relative or absolute; losses are some dozens.
    for lowers in bounds.values():
        assert max(lowers, default=-np.inf) <= least + 1e-7
    assert (bounds[GapKind.LEAST] != []) == (kind != "log cosh")
    assert bounds[GapKind.WOLFE] != []


def test_a_model_that_fits_all_data_is_certified_by_the_least_value_of_the_losses(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """f* is 0, and no Huber loss is negative. Without that, the Wolfe gap needs more steps."""
    fits, truth = random_fits(4, rows=5, columns=6, seed=69), np.array([0.5, -0.3, 0.0, 0.0, 0.0, 0.1])
    objectives = [Objective(dcgs.HuberLoss(A @ truth, delta=1e-2), dcgs.matrix_map(A)) for A in fits.A]
    known = dcgs.minimize(objectives, SETS["l1"], nx.path_graph(4), NEWTON, gap=1e-2, every=0)
    monkeypatch.setattr(second_order, "excess", lambda f, value: 1e300)
    unknown = dcgs.minimize(objectives, SETS["l1"], nx.path_graph(4), NEWTON, gap=1e-2, every=0)
    assert [run.status for run in (known, unknown)] == [Status.AGREED, Status.AGREED]
    assert [run.about["certified"]["kind"] for run in (known, unknown)] == ["least", "wolfe"]
    assert known.iterations < unknown.iterations
    assert known.history.worst_loss[-1] <= 1e-2 * known.history.worst_loss[0]


def test_a_gap_below_rounding_error_ends_with_its_status() -> None:
    objectives = random_fits(4, rows=5, columns=6, seed=64).objectives()
    result = dcgs.minimize(objectives, SETS["l1"], nx.star_graph(3), NEWTON, gap=1e-18, iterations=100)
    assert result.status is Status.ROUNDING


def test_an_iteration_takes_twice_the_height_of_the_tree_rounds() -> None:
    objectives = random_fits(5, rows=5, columns=6, seed=65).objectives()
    for graph, rounds in ((nx.star_graph(4), 2), (nx.path_graph(5), 4), (nx.complete_graph(5), 1)):
        result = dcgs.minimize(objectives, SETS["l1"], graph, NEWTON, iterations=3)
        assert result.rounds == 3 * rounds


# The quadratic of a step.


@pytest.mark.parametrize("condition", [1.0, 1e6, 1e12])
@pytest.mark.parametrize("where", SETS)
def test_a_quadratic_is_minimized_to_the_gap_asked_for_however_ill_conditioned(
    where: str, condition: float
) -> None:
    X, rng = SETS[where], np.random.default_rng(66)
    V = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    H = (V * np.geomspace(1.0, 1.0 / condition, 6)) @ V.T
    q = Quadratic(0.5 * (H + H.T), rng.standard_normal(6), np.zeros(6))
    domain = Domain(X, CountedOracle(X), Tally())
    x = minimize_quadratic(q, domain, X.start(), lambda decrease: 1e-9)
    assert X.violation(x) <= 1e-12
    assert domain.wolfe_gap(q, x) <= 1e-9


def test_a_quadratic_without_curvature_is_minimized_at_an_extreme_point() -> None:
    X = dcgs.L1Ball(3, 2.0)
    q = Quadratic(np.zeros((3, 3)), np.array([1.0, -3.0, 2.0]), np.zeros(3))
    x = minimize_quadratic(q, Domain(X, CountedOracle(X), Tally()), X.start(), lambda decrease: 1e-9)
    # A gap of 1e-9 over a difference of 1 between the best and the next extreme point, times 2.
    np.testing.assert_allclose(x, [0.0, 2.0, 0.0], rtol=0.0, atol=4e-9)


def test_a_tolerance_that_depends_on_the_decrease_holds_at_the_answer() -> None:
    X, rng = SETS["l1"], np.random.default_rng(67)
    A = rng.standard_normal((8, 6))
    q = Quadratic(A.T @ A, rng.standard_normal(6), np.zeros(6))
    domain = Domain(X, CountedOracle(X), Tally())
    x = minimize_quadratic(q, domain, X.start(), lambda decrease: 0.01 * decrease)
    assert domain.wolfe_gap(q, x) <= 0.01 * (q.value(X.start()) - q.value(x))


# What the theorem with Hessians in docs/methods.md needs: which steps are accepted, and how exact models are.


def root_at(x: Array, **known: Any) -> RootState:
    """Return what the root knows at x, by default of a function without curvature or slope there."""
    zero = np.zeros((x.size, x.size))
    given: dict[str, Any] = {"constant": zero, "bound": zero, "curvature": 0.0, "x": x, "value": 10.0}
    given |= {"grad": 0.0 * x, "hess": zero, "wolfe": CertifiedGap(known.pop("gap", 0.0), 0.0, 0.0)}
    return RootState(**(given | known))


def test_a_step_is_accepted_if_f_falls_by_a_share_of_what_its_slope_promises() -> None:
    """Else steps that hardly decrease f might go on for ever, far from the optimum."""
    root = root_at(np.zeros(2), grad=np.array([-100.0, 0.0]), gap=100.0)
    step = np.array([1.0, 0.0])  # its slope is −100, so f must fall by 0.01
    assert not root.accepts(step, 10.0 - 0.0099, rounding=0.0, gap=1.0)
    assert root.accepts(step, 10.0 - 0.0101, rounding=0.0, gap=1.0)


@pytest.mark.parametrize(("curvature", "sure"), [(0.0, 1.0), (1.0, 1.0), (8.0, 0.25)])
def test_a_step_without_slope_is_accepted_if_f_falls_by_a_share_of_the_sure_decrease(
    curvature: float, sure: float
) -> None:
    """The gap is 2. The sure decrease is gap/2, or gap²/(2 · curvature) if that is less."""
    root, step = root_at(np.zeros(2), gap=2.0, curvature=curvature), np.array([1.0, 0.0])
    assert not root.accepts(step, 10.0 - 0.99e-4 * sure, rounding=0.0, gap=1.0)
    assert root.accepts(step, 10.0 - 1.01e-4 * sure, rounding=0.0, gap=1.0)


def agent_over(X: ConvexSet, target: GapTarget) -> Agent:
    """Return a single agent without data."""
    f = LeastSquares(np.eye(X.shape[0]), np.zeros(X.shape[0]))
    return Agent(
        0,
        f,
        X,
        CountedOracle(X),
        X.start(),
        {},
        facts=None,  # type: ignore[arg-type]  # of the network, which has no other agent
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, x, dual=None: None,
        target=target,
    )


def test_a_bound_of_an_earlier_trial_certifies_a_later_one() -> None:
    """At x⁰ = 0 the gradient (−1, 0) gives f* ≥ f(x⁰) − 1 over an ℓ₁ ball. 0.1 is asked for."""
    agent = agent_over(dcgs.L1Ball(2), GapTarget(absolute=0.1))
    at, hessian, unknown = SecondOrderState(np.zeros(2), np.zeros(2)), np.array([1.0, 0.0, 1.0]), 1e300
    numbers = np.array([0.0, 0.0, 0.0, unknown, *[0.0] * 10])
    verdict, _ = second_order._answer(agent, at, (numbers, np.array([-1.0, 0.0]), hessian))
    assert verdict[0] == Verdict.ACCEPTED
    # The Wolfe gap of the next trial is 5, and f there is 0.95 below f(x⁰).
    at.trial, numbers[0] = np.array([0.95, 0.0]), -0.95
    verdict, _ = second_order._answer(agent, at, (numbers, np.array([0.0, 5.0])))
    assert verdict[0] == Verdict.FINAL
    assert CertifiedGap.of(verdict[1:].tolist()).gap == pytest.approx(0.05, rel=1e-12)


def test_a_model_that_bounds_f_is_minimized_ten_times_as_exactly_after_each_rejected_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its share of the bound must be 1 before: 0.02, 0.08 and 0.32 come first."""
    asked: list[float] = []

    def note(
        q: Quadratic, domain: Domain, x: Array, tolerance: Callable[[float], float], aim: object
    ) -> Array:
        asked.append(tolerance(0.0))
        return x

    monkeypatch.setattr(second_order, "minimize_quadratic", note)
    root, agent = root_at(np.zeros(6), gap=1.0), agent_over(SETS["l1"], GapTarget(absolute=0.01))
    for _ in range(7):
        root.next_trial(agent)
        root.reject(agent, np.ones(6), [np.inf] * 10)
    # 0.3 of the gap that is asked for; 9e-4 of the gap at x is less.
    np.testing.assert_allclose(asked, [3e-3, 3e-3, 3e-3, 3e-3, 3e-3, 3e-4, 3e-5], rtol=1e-12)


def worst_trials(q: Quadratic, domain: Domain, x: Array, tolerance: float) -> list[Array]:
    """Return points beside the minimizer of a model, toward each vertex, with a gap of at most that."""
    best = minimize_quadratic(q, domain, x, lambda decrease: 1e-13)
    lines = [[best + b * (v - best) for b in 0.5 ** np.arange(60)] for v in np.eye(x.size)]
    return [next(t for t in line if domain.wolfe_gap(q, t) <= tolerance) for line in lines]


@pytest.mark.parametrize("seed", range(5))
def test_every_trial_is_accepted_if_the_model_bounds_f_and_its_gap_is_a_quarter_of_the_sure_decrease(
    seed: int,
) -> None:
    """It is the constant of the proof: f falls by at least three quarters of the sure decrease."""
    rng, X = np.random.default_rng(seed), dcgs.Simplex(3)
    A = 20.0 * rng.standard_normal((8, 3))
    f, domain = Logistic(A, np.sign(rng.standard_normal(8))), Domain(X, CountedOracle(X), Tally())
    optimum_of_f = dcgs.minimize([f], X, nx.empty_graph(1), NEWTON, gap=1e-10).x
    x = optimum_of_f + 1e-3 * (np.full(3, 1.0 / 3.0) - optimum_of_f)
    value, gap = certify([f], X, x)
    H = 0.25 * A.T @ A
    curvature = X.diameter**2 * float(np.linalg.norm(H, 2))
    root = root_at(x, bound=H, curvature=curvature, value=value, grad=f.grad(x), gap=gap)
    sure = min(gap / 2.0, gap**2 / (2.0 * curvature))
    q = Quadratic(H, f.grad(x), x)
    for t in worst_trials(q, domain, x, sure / 4.0):
        # Losses of eight terms are right to 1e-15.
        assert f.value(t) <= value - 0.75 * sure + 1e-14 * value
        assert root.accepts(t, f.value(t), rounding=0.0, gap=np.inf)


def test_a_gap_that_is_a_share_of_the_gap_at_x_is_not_enough() -> None:
    """f is its own model: ½ ‖x − p‖² + x₃ over a simplex, with p and x on the edge x₃ = 0.

    A gap of 0.3 times that at x allows a third entry by which f exceeds f(x), however close x is to p.
    """
    p, X = np.array([0.5, 0.5, 0.0]), dcgs.Simplex(3)
    q = Quadratic(np.eye(3), np.array([0.0, 0.0, 1.0]) - p, np.zeros(3))
    domain = Domain(X, CountedOracle(X), Tally())
    for distance in (1e-1, 1e-2, 1e-3):
        x = p + distance * np.array([1.0, -1.0, 0.0])
        gap = domain.wolfe_gap(q, x)
        root = root_at(x, bound=np.eye(3), curvature=2.0, value=q.value(x), grad=q.grad(x), gap=gap)
        accepted = [
            all(
                root.accepts(t, q.value(t), rounding=0.0, gap=np.inf)
                for t in worst_trials(q, domain, x, tolerance)
            )
            for tolerance in (0.3 * gap, root.sure_decrease / 4.0)
        ]
        assert accepted == [False, True]
