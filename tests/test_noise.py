"""Discrete Gaussian noise: its distribution, coins that are exact, and what is promised with it."""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import exp, log, sqrt

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import chisquare, norm

from dcgs.secure import noise
from dcgs.secure.noise import SIGMA, Draw, discrete_gaussian, epsilon_of, exponential_choice, rho_for


def seeded(seed: int) -> Draw:
    return np.random.default_rng(seed).bytes


@pytest.mark.parametrize("sigma", [1, 2, 16, 256])
def test_noise_has_the_weights_of_a_discrete_gaussian(sigma: int) -> None:
    drawn = discrete_gaussian(200_000, sigma, seeded(sigma))
    edges = np.unique(np.round(np.linspace(-3 * sigma, 3 * sigma, 31)))
    x = np.arange(-20 * sigma, 20 * sigma + 1)
    weights = np.exp(-(x**2) / (2.0 * sigma**2))
    cells = [np.searchsorted(edges, values, side="right") for values in (drawn, x)]
    observed = np.bincount(cells[0], minlength=len(edges) + 1)
    share = np.bincount(cells[1], weights / weights.sum(), minlength=len(edges) + 1)
    expected = share * len(drawn)
    assert expected.min() > 5.0
    # The seed is fixed; with right weights one seed in ten thousand fails.
    assert chisquare(observed, expected * (observed.sum() / expected.sum())).pvalue > 1e-4


def test_noise_is_asked_of_the_system_and_differs() -> None:
    first, second = discrete_gaussian(100), discrete_gaussian(100)
    assert (first != second).all()
    assert abs(first).max() > 0.5 * SIGMA


def test_sigma_is_a_power_of_two() -> None:
    with pytest.raises(ValueError, match=r"^sigma must be a power of two; got 3\.$"):
        discrete_gaussian(1, 3)


@pytest.mark.parametrize("gamma", [Fraction(1, 3), Fraction(1), Fraction(77, 2), Fraction(60)])
def test_a_coin_that_is_close_is_decided_by_further_bits(gamma: Fraction) -> None:
    with localcontext(prec=80):
        p = (Decimal(-gamma.numerator) / gamma.denominator).exp() * (1 << 128)
        high, low = divmod(int(p), 1 << 64)
        fraction = int((p - int(p)) * (1 << 64))

    def coin(*words: int) -> bool:
        draws = iter(words)
        return noise._exact_coin(high, gamma, lambda _: next(draws).to_bytes(8, "little"))

    assert coin(low - 1)
    assert not coin(low + 1)
    # With the first 128 bits of p, 64 more decide.
    assert coin(low, fraction - 1)
    assert not coin(low, fraction + 1)


def test_coins_in_floating_point_are_not_trusted_where_they_are_close(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[int] = []

    def decided(u: int, gamma: Fraction, draw: Draw) -> bool:
        assert gamma == Fraction(1, 2)
        asked.append(u)
        return True

    monkeypatch.setattr(noise, "_exact_coin", decided)
    # Of these words the second is within 2⁻⁴⁰ of exp(−½).
    words = [0, int(exp(-0.5) * 2**64) + 1000, 2**63, 2**64 - 1]
    given = b"".join(word.to_bytes(8, "little") for word in words)
    coins = noise._coins(np.ones(4, dtype=np.int64), 2, lambda _: given)
    assert coins.tolist() == [True, True, True, False]
    assert asked == [words[1]]


# ε of Gaussian noise by dp-accounting 0.6.0, RdpAccountant: (ρ, δ, ε).
BY_OTHERS = [(0.024355970359538376, 1e-6, 1.0000003), (0.5, 1e-5, 4.7285071), (2.0, 1e-6, 11.6886268)]


@pytest.mark.parametrize(("rho", "delta", "epsilon"), BY_OTHERS)
def test_epsilon_is_that_of_another_accountant(rho: float, delta: float, epsilon: float) -> None:
    # Its orders are on a grid, so that its ε is larger by up to 1e-3.
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-3)
    assert epsilon_of(rho, delta) <= epsilon * (1.0 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("delta", [1e-8, 1e-5])
def test_epsilon_is_valid_and_near_that_of_the_exact_gaussian_mechanism(epsilon: float, delta: float) -> None:
    rho = rho_for(epsilon, delta)
    assert epsilon_of(rho, delta) == pytest.approx(epsilon)
    mu = sqrt(2.0 * rho)

    def excess(eps: float) -> float:  # Balle and Wang 2018, theorem 8
        told = norm.cdf(mu / 2 - eps / mu) - exp(eps) * norm.cdf(-mu / 2 - eps / mu)
        return log(max(told, 1e-300)) - log(delta)

    exact = brentq(excess, 1e-6, 20.0)
    assert exact <= epsilon <= 1.2 * exact


def test_nobody_tells_one_row_more_often_than_promised() -> None:
    """The likelihood ratio of a sum with and without a row, of one release of ε = 1."""
    epsilon, delta, honest = 1.0, 1e-3, 4
    change = SIGMA * sqrt(2.0 * honest * rho_for(epsilon, delta))
    drawn = discrete_gaussian(honest * 40_000, draw=seeded(3)).reshape(honest, -1).sum(axis=0)
    without, with_row = drawn[:20_000], drawn[20_000:] + change
    thresholds = np.linspace(-3.0, 6.0, 91) * SIGMA
    caught, alarms = ((part > thresholds[:, None]).mean(axis=1) for part in (with_row, without))
    # Three deviations of a share of 20,000.
    assert (caught <= exp(epsilon) * alarms + delta + 3.0 * (1.0 + exp(epsilon)) * 0.0036).all()
    # The attack is not blind: with a tenth of the noise it would succeed.
    assert (caught - alarms).max() > 0.05
    louder = drawn[20_000:] + 10.0 * change
    assert ((louder > thresholds[:, None]).mean(axis=1) - exp(epsilon) * alarms).max() > 0.5


def test_a_choice_has_the_weights_of_the_exponential_mechanism() -> None:
    scores, scale, draw = np.array([0, 30, -20, 30, 10]), 16, seeded(4)
    chosen = np.bincount([exponential_choice(scores, scale, draw) for _ in range(20_000)], minlength=5)
    weights = np.exp(scores / scale)
    # The seed is fixed; with right weights one seed in ten thousand fails.
    assert chisquare(chosen, 20_000 * weights / weights.sum()).pvalue > 1e-4
