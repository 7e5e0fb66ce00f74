"""The schedules of the theorems, at numbers worked out by hand: a wrong constant survives all other tests."""

from __future__ import annotations

from dataclasses import astuple
from typing import Any

import pytest

from dcgs import Params, Theorem1, Theorem2
from dcgs.facts import Facts

# ‖L‖ = 4, u = 0.5, a diameter of 6 and N = 8: exact in binary, most of them.
FACTS = Facts(agents=5, norm_L=4.0, strong_convexity=0.5, set_diameter=6.0, horizon=8)
ALONE = Facts(agents=1, norm_L=0.0, strong_convexity=0.5, set_diameter=6.0, horizon=8)


def assert_params(found: Params, alpha: float, tau: float, eta: float, theta: float, e: float) -> None:
    # A few operations on doubles, each right to 1e-16.
    assert astuple(found) == pytest.approx((alpha, tau, eta, theta, e), rel=1e-14, abs=0.0)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize(
    ("schedule", "facts", "tau", "eta", "e"),
    [
        # η = 2·4; τ = 4; e = 4·36/8
        (Theorem1(), FACTS, 4.0, 8.0, 18.0),
        # R = 3: e = 4·9/8
        (Theorem1(distance=3.0), FACTS, 4.0, 8.0, 4.5),
        # N = 2: e = 4·36/2
        (Theorem1(horizon=2), FACTS, 4.0, 8.0, 72.0),
        # c = 0.5: η = 2·0.5·4; τ = 4/0.5; e = 0.5·4·36/8
        (Theorem1(balance=0.5), FACTS, 8.0, 4.0, 9.0),
        # c = 10, R = 2, N = 5: η = 2·10·4; τ = 4/10; e = 10·4·4/5
        (Theorem1(balance=10.0, distance=2.0, horizon=5), FACTS, 0.4, 80.0, 32.0),
        # alone, 1 stands for ‖L‖: η = 2; τ = 1; e = 36/8
        (Theorem1(), ALONE, 1.0, 2.0, 4.5),
        # alone, c = 4: η = 8; τ = 1/4; e = 4·36/8
        (Theorem1(balance=4.0), ALONE, 0.25, 8.0, 18.0),
    ],
)
def test_theorem_1_is_the_same_at_every_k(
    schedule: Theorem1, facts: Facts, tau: float, eta: float, e: float, k: int
) -> None:
    assert_params(schedule.bind(facts)(k), 1.0, tau, eta, 1.0, e)


@pytest.mark.parametrize(
    ("schedule", "facts", "k", "alpha", "tau", "eta", "theta", "e"),
    [
        # τ = 64/(2·0.5), 64/(3·0.5), 64/(4·0.5); η = k·0.25; e = 0.5·36/(8k)
        (Theorem2(), FACTS, 1, 0.5, 64.0, 0.25, 2.0, 2.25),
        (Theorem2(), FACTS, 2, 0.6666666666666666, 42.666666666666664, 0.5, 3.0, 1.125),
        (Theorem2(), FACTS, 3, 0.75, 32.0, 0.75, 4.0, 0.75),
        # c = 0.2: τ = 64/(0.2·2·0.5); η = 0.2·k·0.25; e as before
        (Theorem2(balance=0.2), FACTS, 1, 0.5, 320.0, 0.05, 2.0, 2.25),
        (Theorem2(balance=0.2), FACTS, 2, 0.6666666666666666, 213.33333333333334, 0.1, 3.0, 1.125),
        (Theorem2(balance=0.2), FACTS, 3, 0.75, 160.0, 0.15, 4.0, 0.75),
        # R = 2: e = 0.5·4/(8k)
        (Theorem2(distance=2.0), FACTS, 1, 0.5, 64.0, 0.25, 2.0, 0.25),
        (Theorem2(distance=2.0), FACTS, 3, 0.75, 32.0, 0.75, 4.0, 0.08333333333333333),
        # N = 3: e = 0.5·36/(3k)
        (Theorem2(horizon=3), FACTS, 1, 0.5, 64.0, 0.25, 2.0, 6.0),
        (Theorem2(horizon=3), FACTS, 2, 0.6666666666666666, 42.666666666666664, 0.5, 3.0, 3.0),
        # u = 2: τ = 64/(2(k+1)); η = k; e = 2·36/(8k)
        (Theorem2(strong_convexity=2.0), FACTS, 1, 0.5, 16.0, 1.0, 2.0, 9.0),
        (Theorem2(strong_convexity=2.0), FACTS, 3, 0.75, 8.0, 3.0, 4.0, 3.0),
        # alone, 1 stands for ‖L‖: τ = 4/((k+1)·0.5)
        (Theorem2(), ALONE, 1, 0.5, 4.0, 0.25, 2.0, 2.25),
        (Theorem2(), ALONE, 2, 0.6666666666666666, 2.6666666666666665, 0.5, 3.0, 1.125),
        (Theorem2(), ALONE, 3, 0.75, 2.0, 0.75, 4.0, 0.75),
    ],
)
def test_theorem_2_is_the_one_worked_out_by_hand(
    schedule: Theorem2,
    facts: Facts,
    k: int,
    alpha: float,
    tau: float,
    eta: float,
    theta: float,
    e: float,
) -> None:
    assert_params(schedule.bind(facts)(k), alpha, tau, eta, theta, e)


def test_without_a_horizon_theorem_1_takes_the_one_that_its_bound_asks_for_the_accuracy() -> None:
    # 2·4·5·36/N ≤ 10 from N = 144 on, where e = 4·36/144.
    facts = Facts(agents=5, norm_L=4.0, strong_convexity=0.5, set_diameter=6.0, accuracy=10.0)
    assert Theorem1().bind(facts)(1).e == 1.0


def test_without_a_horizon_theorem_2_takes_one_that_suffices_for_the_accuracy() -> None:
    # 0.5·5·36 (3 + 2 H_N/N)/(N (N + 3)) ≤ 1 from N = 17 on; 5·0.5·5·36/N² ≤ 1, which implies it, from 22 on.
    facts = Facts(agents=5, norm_L=4.0, strong_convexity=0.5, set_diameter=6.0, accuracy=1.0)
    N = 0.5 * 36.0 / Theorem2().bind(facts)(1).e
    assert 17.0 <= N <= 22.0


def test_a_given_horizon_goes_before_the_accuracy() -> None:
    facts = Facts(agents=5, norm_L=4.0, strong_convexity=0.5, set_diameter=6.0, horizon=8, accuracy=1e-3)
    assert Theorem1().bind(facts)(1).e == 18.0
    assert Theorem1(horizon=2).bind(facts)(1).e == 72.0


@pytest.mark.parametrize("theorem", [Theorem1, Theorem2])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"balance": 0.0}, "balance must be a positive finite number; got 0.0."),
        ({"balance": -1.0}, "balance must be a positive finite number; got -1.0."),
        ({"balance": float("inf")}, "balance must be a positive finite number; got inf."),
        ({"balance": float("nan")}, "balance must be a positive finite number; got nan."),
        ({"distance": 0.0}, "distance must be a positive finite number, or None; got 0.0."),
        ({"distance": -2.0}, "distance must be a positive finite number, or None; got -2.0."),
        ({"distance": float("inf")}, "distance must be a positive finite number, or None; got inf."),
        ({"distance": float("nan")}, "distance must be a positive finite number, or None; got nan."),
        ({"horizon": 0}, "horizon must be a whole number of at least 1, or None; got 0."),
        ({"horizon": -3}, "horizon must be a whole number of at least 1, or None; got -3."),
    ],
)
def test_parameters_that_no_proof_allows_are_named(
    theorem: type[Theorem1] | type[Theorem2], wrong: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        theorem(**wrong)


def test_theorem_2_has_no_balance_beyond_1() -> None:
    with pytest.raises(ValueError, match=r"balance must be at most 1 in Theorem2, .*; got 1\.5\."):
        Theorem2(balance=1.5)


@pytest.mark.parametrize("u", [0.0, -1.0, float("nan")])
def test_theorem_2_has_no_strong_convexity_that_is_not_positive(u: float) -> None:
    with pytest.raises(
        ValueError, match=f"strong_convexity must be a positive finite number, or None; got {u!r}."
    ):
        Theorem2(strong_convexity=u)
