"""An agent's share of the dual function: a lower bound of fᵢ + ⟨w, ·⟩ over X, by an inner solver.

Over polytopes the solver takes corrective steps, whatever that of the method is. Over other sets it is that
of the method, in proximal-point steps.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import dcgs
from dcgs import LeastSquares, Logistic, Objective
from dcgs.facts import Facts
from dcgs.inner import CG, PCG, Block, Corrective, Exact, Inner, Newton, Projected, gap_at_most
from dcgs.inner.base import Solver, Subproblem, Task
from dcgs.methods import Agent
from dcgs.methods.base import Dual
from dcgs.methods.local_bound import DualShare, LocalBound, gradient_multiplier
from dcgs.sets import ConvexSet
from dcgs.state import to_plain
from problems import Array

RNG = np.random.default_rng(70)
A, B = RNG.standard_normal((9, 6)), RNG.standard_normal(9)
TALL = RNG.standard_normal((40, 6))
SQUARES = LeastSquares(A, B)
CASES: dict[str, tuple[Inner, ConvexSet, Objective]] = {
    "newton": (Newton(), dcgs.L1Ball(6, radius=2.0), SQUARES),
    "newton, tall": (Newton(), dcgs.Box(-np.ones(6), np.ones(6)), LeastSquares(TALL, TALL[:, 0])),
    "newton, logistic": (Newton(), dcgs.Simplex(6), Logistic(A, np.sign(B))),
    "projected": (Projected(), dcgs.L2Ball(6), Logistic(A, np.sign(B))),
    "exact": (Exact(), dcgs.L2Ball(6), SQUARES),
    "block": (Block(), dcgs.NuclearNormBall((2, 3)), LeastSquares(A, B, shape=(2, 3))),
    "corrective": (Corrective(), dcgs.L1Ball(6, radius=2.0), SQUARES),
    "pcg": (PCG(), dcgs.Simplex(6), SQUARES),
    "product": (Projected(), dcgs.ProductSet(dcgs.L2Ball(3), dcgs.Simplex(3)), SQUARES),
    "cg": (CG(), dcgs.L2Ball(6), SQUARES),
}

EFFORT = 400
"""Steps of the inner solver."""


def agent_with(f: Objective, X: ConvexSet) -> Agent:
    return Agent(
        index=0,
        f=f,
        X=X,
        lmo=dcgs.counting.CountedOracle(X),
        x0=X.start(),
        degrees={},
        facts=Facts(1, 0.0, 0.0, X.diameter),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, answer, dual=None: None,
    )


def points_of(X: ConvexSet, count: int) -> Array:
    """Return points of X: averages of some extreme points."""
    rng = np.random.default_rng(71)
    atoms = np.stack([X.lmo(rng.standard_normal(X.shape)).dense() for _ in range(count)])
    return np.asarray(np.tensordot(rng.dirichlet(np.full(count, 0.2), size=count), atoms, axes=1))


def dual_variable(X: ConvexSet, size: float = 1.0) -> Array:
    return size * np.random.default_rng(72).standard_normal(X.shape)


@pytest.mark.parametrize("tolerance", [1.0, 1e-3, 1e-12])
@pytest.mark.parametrize("size", [0.0, 1.0, 1e3])
@pytest.mark.parametrize("case", CASES)
def test_no_point_of_the_set_is_below_the_bound(case: str, size: float, tolerance: float) -> None:
    inner, X, f = CASES[case]
    agent = agent_with(f, X)
    w = dual_variable(X, size)
    bound = LocalBound(agent, inner)(Dual(w, 0.0, eta=1.0), points_of(X, 3)[0], tolerance, EFFORT)
    values = [f.value(x) - f.value(agent.x0) + float(np.vdot(w, x - agent.x0)) for x in points_of(X, 100)]
    assert bound.value - bound.noise <= min(values)
    # The noise is that of a few hundred operations.
    assert bound.noise <= 1e-12 * (1.0 + size) * 100.0


@pytest.mark.parametrize("beside", [True, False], ids=["beside the solver of a method", "alone"])
@pytest.mark.parametrize("case", [case for case in CASES if case not in ("cg", "pcg")])
def test_the_bound_is_as_near_to_the_minimum_as_was_asked_for(case: str, beside: bool) -> None:
    inner, X, f = CASES[case]
    agent = agent_with(f, X)
    solver, w = inner.start(agent.task), dual_variable(X)
    x = solver(Subproblem(f, w, 1.0, agent.x0), gap_at_most(1e-6))  # as in the method
    dual = Dual(w, 0.0, eta=1.0, solver=solver if beside else None)
    bound = LocalBound(agent, inner)(dual, x, 1e-3, EFFORT)
    # value + gap is the value of a point of X, which is not below the minimum.
    assert bound.gap <= 1e-3


@pytest.mark.parametrize("case", CASES)
def test_the_solver_of_the_method_is_not_disturbed(case: str) -> None:
    inner, X, f = CASES[case]
    agent = agent_with(f, X)
    solver = inner.start(agent.task)
    x = solver(Subproblem(f, 0.0 * agent.x0, 1.0, agent.x0), gap_at_most(1e-3))
    before, outcomes = str(to_plain(solver.state)), sum(agent.outcomes.values())
    LocalBound(agent, inner)(Dual(dual_variable(X), 0.0, eta=1.0, solver=solver), x, 1e-6, EFFORT)
    assert str(to_plain(solver.state)) == before
    # Solves for a bound are no inner solves of the method, which counts those that ended early.
    # The closed form has no solver beside it: it counts a solve for each of 40 steps.
    assert sum(agent.outcomes.values()) - outcomes <= 40 * isinstance(inner, Exact)


@pytest.mark.parametrize("effort", [0, 10, 80, 320])
@pytest.mark.parametrize("case", CASES)
def test_the_effort_for_a_bound_is_limited_however_small_the_tolerance(case: str, effort: int) -> None:
    inner, X, f = CASES[case]
    agent = agent_with(f, X)
    dual = Dual(dual_variable(X, 1e3), 0.0, eta=1.0)
    LocalBound(agent, inner)(dual, agent.x0, 1e-300, effort)
    oracle = agent.lmo
    assert isinstance(oracle, dcgs.counting.CountedOracle)
    # So many steps, and one more for each of 40 solves, each of a few projections or oracle calls: a Newton
    # step is halved up to 5 times.
    assert max(agent.projections.count, oracle.calls) <= 6 * (effort + 40 * (effort > 0)) + 1


@pytest.mark.parametrize("case", ["newton", "projected", "corrective", "pcg", "cg"])
def test_more_effort_never_gives_a_worse_bound(case: str) -> None:
    inner, X, f = CASES[case]
    agent = agent_with(f, X)
    dual = Dual(dual_variable(X), 0.0, eta=1.0)
    values = [LocalBound(agent, inner)(dual, agent.x0, 1e-12, effort).value for effort in (0, 5, 20, 80, 320)]
    # Up to the rounding errors of values of about 10.
    assert (np.diff(values) >= -1e-13).all()
    assert values[-1] > values[0] + 1e-3


def test_a_dual_variable_of_another_size_gives_another_bound() -> None:
    """The bound is that of fᵢ + ⟨w, ·⟩ − ⟨w, x⁰⟩, checked where the minimum is known: fᵢ is ‖x − b‖²."""
    X, b, w = dcgs.L2Ball(2, 10.0), np.array([1.0, 2.0]), np.array([3.0, -1.0])
    agent = replace(agent_with(LeastSquares(np.eye(2), b), X), x0=np.array([1.0, 1.0]))
    bound = LocalBound(agent, Newton())(Dual(w, 0.0, eta=1.0), agent.x0, 1e-10, EFFORT)
    least = b - w / 2.0  # inside of the ball
    exact = float((least - b) @ (least - b) + w @ (least - agent.x0)) - 1.0
    assert bound.value == pytest.approx(exact, abs=1e-9)
    assert bound.value <= exact + bound.noise


# How it is found.


@pytest.mark.parametrize("case", CASES)
def test_the_share_is_the_linear_approximation_at_its_point(case: str) -> None:
    """Its four fields: the bound, its noise, the Wolfe gap at a point of X, and this point."""
    inner, X, f = CASES[case]
    agent = agent_with(f, X)
    bounds, w = LocalBound(agent, inner), dual_variable(X)
    value, noise, gap, x = bounds(Dual(w, 0.0, eta=1.0), points_of(X, 3)[0], 1e-3, EFFORT)
    assert X.violation(x) <= 1e-12
    again = bounds.at(w, x)
    assert (again.value, again.noise, again.gap) == (value, noise, gap)
    grad = f.grad(x) + w
    assert gap == pytest.approx(float(np.vdot(grad, x)) - X.lmo(grad).dot(grad), abs=1e-12)
    assert value + gap == pytest.approx(f.value(x) - f.value(agent.x0) + np.vdot(w, x - agent.x0), abs=1e-12)


def noted_etas(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list to which every solve for a bound appends its η."""
    etas: list[float] = []

    def noted(*args: Any) -> Subproblem:
        phi = Subproblem(*args)
        etas.append(phi.eta)
        return phi

    monkeypatch.setattr("dcgs.methods.local_bound.Subproblem", noted)
    return etas


class Unused(Inner):
    """A solver that must not be started."""

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        raise AssertionError


@pytest.mark.parametrize("case", ["newton", "newton, tall", "corrective", "pcg", "product"])
def test_for_squares_over_polytopes_and_products_one_corrective_solve_has_no_proximal_term(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, X, f = CASES[case]
    etas = noted_etas(monkeypatch)
    LocalBound(agent_with(f, X), Unused())(Dual(dual_variable(X), 0.0, eta=1.0), X.start(), 1e-9, EFFORT)
    assert etas == [0.0]


@pytest.mark.parametrize("case", ["projected", "exact", "block", "newton, logistic"])
def test_over_other_sets_and_for_other_losses_the_weight_of_the_proximal_term_falls(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, X, f = CASES[case]
    etas = noted_etas(monkeypatch)
    dual = Dual(dual_variable(X), 0.0, eta=1.0)
    LocalBound(agent_with(f, X), inner)(dual, points_of(X, 3)[0], 1e-9, EFFORT)
    assert 2 <= len(etas) <= 40
    assert 0.0 < min(etas) < etas[0] < 1.0


def test_the_weight_of_the_proximal_term_does_not_fall_while_solves_are_cut_short(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """CG does not reach this tolerance in the 8 steps of a first solve and the 16 of a second one."""
    inner, X, f = CASES["cg"]
    etas = noted_etas(monkeypatch)
    dual = Dual(dual_variable(X), 0.0, eta=1.0)
    LocalBound(agent_with(f, X), inner)(dual, points_of(X, 3)[0], 1e-9, 8 + 16)
    assert len(etas) == 2
    assert min(etas) == etas[0]


@pytest.mark.parametrize("case", CASES)
def test_nothing_is_solved_where_the_first_point_is_good_enough_or_no_effort_is_allowed(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner, X, f = CASES[case]
    etas = noted_etas(monkeypatch)
    agent, x = agent_with(f, X), points_of(X, 3)[0]
    bounds, dual = LocalBound(agent, inner), Dual(dual_variable(X), 0.0, eta=1.0)
    for share in (bounds(dual, x, 1e9, EFFORT), bounds(dual, x, 1e-9, 0)):
        assert isinstance(share, DualShare)
        assert share.x is x
    assert etas == []


# Multipliers of gradients.


AGENTS = 7


def team(X: ConvexSet, scale: float) -> list[Agent]:
    """Return agents with least squares on data of this scale."""
    rng, facts = np.random.default_rng(73), Facts(AGENTS, 0.5, 0.0, X.diameter)
    data = [(scale * rng.standard_normal((9, 6)), rng.standard_normal(9)) for _ in range(AGENTS)]
    return [replace(agent_with(LeastSquares(A, b), X), facts=facts) for A, b in data]


def multipliers(agents: list[Agent], y: Array) -> list[Dual]:
    """Return the multipliers of all agents at y; gradients are added as along a path."""
    grads = [agent.f.grad(y) for agent in agents]
    total = sum(grads[1:], start=grads[0])
    return [
        gradient_multiplier(agent, total / AGENTS, grad) for agent, grad in zip(agents, grads, strict=True)
    ]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e8])
def test_multipliers_of_gradients_sum_to_zero_within_the_drifts(scale: float) -> None:
    X = dcgs.L1Ball(6, radius=2.0)
    duals = multipliers(team(X, scale), points_of(X, 3)[0])
    exact = [math.fsum(entries) for entries in zip(*(dual.w for dual in duals), strict=True)]
    drift = sum(dual.drift for dual in duals)
    assert np.linalg.norm(exact) <= drift
    # The drift is that of rounding: a few times m units in the last place of each gradient.
    assert drift <= 1e-13 * sum(float(np.linalg.norm(dual.w)) for dual in duals)
    assert all(dual.eta > 0.0 for dual in duals)


@pytest.mark.parametrize("X", [dcgs.L1Ball(6, radius=2.0), dcgs.L2Ball(6)], ids=["polytope", "ball"])
@pytest.mark.parametrize("tolerance", [1.0, 1e-2, 1e-6])
def test_the_bound_by_them_is_not_below_the_wolfe_bound_up_to_the_tolerances(
    X: ConvexSet, tolerance: float
) -> None:
    """fᵢ + ⟨∇f(y)/m − ∇fᵢ(y), ·⟩ is convex with the gradient ∇f(y)/m at y: the Wolfe bound is its tangent."""
    agents = team(X, 1.0)
    start = agents[0].x0
    for y in points_of(X, 5):
        grad = np.sum([agent.f.grad(y) for agent in agents], axis=0)
        wolfe = sum(agent.f.value(y) - agent.f.value(start) for agent in agents)
        wolfe -= float(np.vdot(grad, y)) - X.lmo(grad).dot(grad)
        shares = [
            LocalBound(agent, Newton())(dual, agent.x0, tolerance, 2560)
            for agent, dual in zip(agents, multipliers(agents, y), strict=True)
        ]
        # Values of about 100 are rounded.
        assert sum(share.value for share in shares) >= wolfe - AGENTS * tolerance - 1e-11
        at_y = [
            LocalBound(agent, Newton())(dual, y, tolerance, 0)
            for agent, dual in zip(agents, multipliers(agents, y), strict=True)
        ]
        # Without a step from y it is the Wolfe bound itself.
        assert sum(share.value for share in at_y) == pytest.approx(wolfe, abs=1e-11)
