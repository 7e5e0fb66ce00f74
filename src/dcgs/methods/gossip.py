"""Gossip: several rounds between neighbors that approximate the average over the network.

Each function applies a polynomial p with p(1) = 1 to the mixing matrix W. The average is unchanged and the
disagreement shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dcgs.methods.mixing import average
from dcgs.points import Point
from dcgs.protocol import Program


def repeated(value: Point, W: Mapping[int, float], rounds: int) -> Program[Point]:
    """Return (W^rounds value)ᵢ."""
    for _ in range(rounds):
        value = yield from average(value, W)
    return value


def exact(value: Point, W: Mapping[int, float], eigenvalues: Sequence[float]) -> Program[Point]:
    """Return the average over all agents. ``eigenvalues`` are those of W except 1; each takes one round."""
    for eigenvalue in eigenvalues:
        mixed = yield from average(value, W)
        value = (1.0 / (1.0 - eigenvalue)) * (mixed - eigenvalue * value)
    return value


def chebyshev(
    value: Point, W: Mapping[int, float], extremes: tuple[float, float], rounds: int
) -> Program[Point]:
    """Return (p(W) value)ᵢ, p the polynomial of this degree with the least maximum on ``extremes``.

    That is p(λ) = T((λ − c)/e)/T((1 − c)/e), T the Chebyshev polynomial, c ± e the interval.
    """
    center, half, far = _scaled(extremes)
    before, now = value, (yield from exact(value, W, (center,)))
    t_before, t_now = 1.0, far
    for _ in range(1, rounds):
        t_next = 2.0 * far * t_now - t_before
        mixed = yield from average(now, W)
        turned = (2.0 * t_now / (t_next * half)) * (mixed - center * now)
        before, now = now, turned - (t_before / t_next) * before
        t_before, t_now = t_now, t_next
    return now


def chebyshev_rounds(extremes: tuple[float, float], factor: float) -> int:
    """Return the rounds after which :func:`chebyshev` has shrunk every disagreement by the factor."""
    far = _scaled(extremes)[2]
    return max(1, math.ceil(math.acosh(1.0 / factor) / math.acosh(far)))


def repeated_rounds(extremes: tuple[float, float], factor: float) -> int:
    """Return the rounds after which :func:`repeated` has shrunk every disagreement by the factor."""
    slowest = max(map(abs, extremes))
    return max(1, math.ceil(math.log(factor) / math.log(slowest))) if slowest > _NARROW else 1


def well_ordered(eigenvalues: Sequence[float]) -> tuple[float, ...]:
    """Return the eigenvalues in Leja's order, in which :func:`exact` keeps rounding errors small."""
    left, chosen = list(eigenvalues), list[float]()
    while left:
        best = max(
            left, key=lambda eigenvalue: sum(math.log(abs(eigenvalue - other)) for other in (1.0, *chosen))
        )
        left.remove(best)
        chosen.append(best)
    return tuple(chosen)


# An interval of eigenvalues narrower than this is treated as a point, which takes one round.
_NARROW = 1e-9


def _scaled(extremes: tuple[float, float]) -> tuple[float, float, float]:
    """Return center and half width of the interval, and the position of 1 if it is scaled to [−1, 1]."""
    center = 0.5 * (extremes[0] + extremes[1])
    half = max(0.5 * (extremes[1] - extremes[0]), _NARROW)
    return center, half, (1.0 - center) / half
