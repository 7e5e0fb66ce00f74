"""Noise with a privacy budget: integers from discrete Gaussians, and what sums with such noise tell.

Every agent adds to its integers noise from N_ℤ(0, σ²), the distribution on ℤ with weights exp(−x²/(2σ²)),
before they are masked. So nobody sees a total with less noise than that of all agents; of k agents, if the
others collude and subtract theirs. For totals that one row changes by at most Δ, in the Euclidean norm, this
is ρ-zCDP (zero-concentrated differential privacy) with ρ = Δ²/(2kσ²) (Kairouz, Liu, Steinke 2021, Theorem 1:
a sum of k discrete Gaussians differs from one by 10 k exp(−π²σ²), which is 0 for SIGMA). Numbers ρ of several
totals add up (Bun, Steinke 2016). ρ-zCDP is (ε, δ)-differential privacy by Canonne, Kamath, Steinke 2020,
Corollary 13.

The sampler is that of Canonne, Kamath, Steinke 2020 (algorithms 1 to 3). It is exact: numbers in floating
point decide a coin only where they are sure to, and integers of any size decide the others.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import TypeAlias

import numpy as np
import scipy
from numpy.typing import NDArray

Draw: TypeAlias = Callable[[int], bytes]
"""Returns so many random bytes."""
Integers: TypeAlias = NDArray[np.int64]

SIGMA = 1 << 20
"""σ of the noise of an agent. Values are scaled to it, so that their rounding is small beside it."""
# A coin is decided in floating point if u and exp(−γ) are at least so far apart. The error of both is
# below 2⁻⁵⁰.
_CLOSE = 2.0**-40
# Digits of a coin that is decided exactly; more if they do not suffice.
_DIGITS = 40


def discrete_gaussian(size: int, sigma: int = SIGMA, draw: Draw = os.urandom) -> Integers:
    """Return so many independent integers from N_ℤ(0, σ²); σ must be a power of two.

    >>> noise = discrete_gaussian(1000)
    >>> bool(abs(noise.std() / SIGMA - 1.0) < 0.2)
    True
    """
    if sigma < 1 or sigma & (sigma - 1):
        raise ValueError(f"sigma must be a power of two; got {sigma}.")
    kept = [np.empty(0, dtype=np.int64)]
    while (missing := size - sum(map(len, kept))) > 0:
        y = _discrete_laplace(2 * missing + 8, sigma, draw)
        accepted = _coins((np.abs(y) - sigma) ** 2, 2 * sigma**2, draw)
        kept.append(y[accepted][:missing])
    return np.concatenate(kept)


def epsilon_of(rho: float, delta: float) -> float:
    """Return ε such that ρ-zCDP is (ε, δ)-differential privacy.

    >>> round(epsilon_of(0.0, 1e-6), 3), round(epsilon_of(0.02436, 1e-6), 3)
    (0.0, 1.0)
    """
    if rho == 0.0:
        return 0.0

    def bound(log_excess: float) -> float:
        # Every α = 1 + exp(log_excess) gives a valid ε.
        excess = math.exp(log_excess)
        alpha = 1.0 + excess
        return rho * alpha + (alpha * math.log1p(-1.0 / alpha) - math.log(excess * delta)) / excess

    return max(0.0, float(scipy.optimize.minimize_scalar(bound, bounds=(-10.0, 25.0), method="bounded").fun))


def rho_for(epsilon: float, delta: float) -> float:
    """Return a ρ, as large as possible, such that ρ-zCDP is (ε, δ)-differential privacy."""
    low, high = 0.0, epsilon
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if epsilon_of(middle, delta) <= epsilon else (low, middle)
    return low


def exponential_choice(scores: Integers, scale: int, draw: Draw = os.urandom) -> int:
    """Return a place k with a probability proportional to exp(scoreₖ/scale): the exponential mechanism.

    If one row changes each score by at most Δ, it costs ρ = (2Δ/scale)²/8 (Cesar, Rogers 2021). It is exact:
    places are drawn uniformly, and are kept by a coin.

    >>> exponential_choice(np.array([0, 1000, 0]), 10)
    1
    """
    below, bits = np.max(scores) - scores, max(1, len(scores) - 1).bit_length()
    while True:
        places = (_words(4 * len(scores), draw) & np.uint64((1 << bits) - 1)).astype(np.int64)
        places = places[places < len(scores)]
        kept = places[_coins(below[places], scale, draw)]
        if len(kept):
            return int(kept[0])


def _discrete_laplace(size: int, scale: int, draw: Draw) -> Integers:
    """Return at most so many independent integers with weights exp(−|x|/scale); scale is a power of two."""
    u = (_words(size, draw) & np.uint64(scale - 1)).astype(np.int64)
    u = u[_coins(u, scale, draw)]
    v, going = np.zeros(len(u), dtype=np.int64), np.arange(len(u))
    while len(going):
        going = going[_coins(np.ones(len(going), dtype=np.int64), 1, draw)]
        v[going] += 1
    x, negative = u + scale * v, _words(len(u), draw) & np.uint64(1) == 1
    counted_once = ~(negative & (x == 0))
    return np.asarray(np.where(negative, -x, x)[counted_once])


def _coins(numerators: Integers, denominator: int, draw: Draw) -> NDArray[np.bool_]:
    """Return independent coins that are True with the probabilities exp(−γ), γ = numerator/denominator."""
    u, p = _words(len(numerators), draw), np.exp(-numerators / denominator)
    distance = p - u * 2.0**-64
    coins = np.asarray(distance > 0.0)
    for i in np.flatnonzero(np.abs(distance) < _CLOSE).tolist():
        coins[i] = _exact_coin(int(u[i]), Fraction(int(numerators[i]), denominator), draw)
    return coins


def _exact_coin(u: int, gamma: Fraction, draw: Draw) -> bool:
    """Return whether a uniform number is below exp(−γ), given its first 64 bits; more of them are drawn."""
    bits, digits = 64, _DIGITS
    while True:
        u, bits, digits = u << 64 | int.from_bytes(draw(8), "little"), bits + 64, digits + 20
        with localcontext(prec=digits):
            p = (Decimal(-gamma.numerator) / gamma.denominator).exp()
            low, high = Decimal(u) / (1 << bits), Decimal(u + 1) / (1 << bits)
            error = Decimal(10) ** (4 - digits)
            if high + error <= p:
                return True
            if low - error >= p:
                return False


def _words(size: int, draw: Draw) -> NDArray[np.uint64]:
    return np.frombuffer(draw(8 * size), dtype=np.uint64)
