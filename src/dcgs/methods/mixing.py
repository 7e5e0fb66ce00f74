"""Rounds with the neighbors: products with the graph Laplacian and with a mixing matrix W.

Gossip is several rounds that approximate the average over the network. It applies a polynomial p with
p(1) = 1 to W. The average is unchanged and the disagreement shrinks.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from dcgs.points import EPS, Point, norm
from dcgs.protocol import Inbox, Program

# An interval of eigenvalues narrower than this is treated as a point, which takes one round.
_NARROW = 1e-9
# The rounding errors of a product with W, in units of EPS and in addition to one for each weight.
_ROUNDINGS = 4


def check_shapes(inbox: Inbox, shape: tuple[int, ...]) -> None:
    """Raise ValueError unless all messages have this shape; the error names the sender."""
    for j, theirs in inbox.items():
        if theirs.shape != shape:
            raise ValueError(
                f"a message must have shape {shape}; agent {j} sent one of shape {theirs.shape}."
            )


def mixing_error(agents: int, rounds: int, *terms: Point) -> float:
    """Return the agent's part in what rounding leaves of Σᵢ valueᵢ − Σᵢ (W^rounds value)ᵢ, exactly 0.

    The value is the sum of the terms. W has at most one weight for each agent, and all values together do not
    get longer by mixing.
    """
    return EPS * rounds * (agents + _ROUNDINGS) * sum(map(norm, terms))


def laplacian(value: Point) -> Program[Point]:
    """Send ``value`` to the neighbors; return Σⱼ Lᵢⱼ valueⱼ = Σ (value − theirs). One round.

    Inside a method's program: ``v = yield from laplacian(x)``.

    >>> import numpy as np
    >>> program = laplacian(np.array([2.0]))
    >>> next(program)  # what the agent sends
    array([2.])
    >>> try:
    ...     program.send({0: np.array([1.0]), 3: np.array([5.0])})  # what its neighbors 0 and 3 sent
    ... except StopIteration as end:
    ...     end.value
    array([-2.])
    """
    total, _ = yield from sized_laplacian(value)
    return total


def sized_laplacian(value: Point) -> Program[tuple[Point, float]]:
    """Return :func:`laplacian`, and a bound of this agent's part in what rounding leaves of its sum, 0.

    The difference of two neighbors rounds to the same number at both, up to the sign.
    """
    inbox = yield value
    check_shapes(inbox, value.shape)
    total, size = 0.0 * value, 0.0
    for theirs in inbox.values():
        d = value - theirs
        total, size = total + d, size + norm(d)
    return total, EPS * len(inbox) * size


def average(value: Point, weights: Mapping[int, float]) -> Program[Point]:
    """Send ``value`` to the neighbors; return Σⱼ Wᵢⱼ valueⱼ with Wᵢᵢ = 1 − Σ weights. One round.

    ``weights`` maps each neighbor j to Wᵢⱼ; ``agent.metropolis`` is a choice that works on every graph.
    Inside a method's program: ``x_bar = yield from average(x, agent.metropolis)``.

    >>> import dcgs, numpy as np
    >>> program = dcgs.average(np.array([2.0]), weights={0: 0.25, 3: 0.25})
    >>> next(program)  # what the agent sends
    array([2.])
    >>> try:
    ...     program.send({0: np.array([0.0]), 3: np.array([4.0])})  # what its neighbors sent
    ... except StopIteration as end:
    ...     end.value
    array([2.])
    """
    inbox = yield value
    check_shapes(inbox, value.shape)
    total = (1.0 - sum(weights.values())) * value
    for j, theirs in inbox.items():
        total = total + weights[j] * theirs
    return total


def repeated(value: Point, W: Mapping[int, float], rounds: int) -> Program[Point]:
    """Return (W^rounds value)ᵢ."""
    for _ in range(rounds):
        value = yield from average(value, W)
    return value


def exact(value: Point, W: Mapping[int, float], modes: Sequence[float]) -> Program[Point]:
    """Return the average over all agents; ``modes`` are the eigenvalues of W except 1. One round for each."""
    for mode in modes:
        mixed = yield from average(value, W)
        value = (1.0 / (1.0 - mode)) * (mixed - mode * value)
    return value


def chebyshev(
    value: Point, W: Mapping[int, float], extremes: tuple[float, float], rounds: int
) -> Program[Point]:
    """Return (p(W) value)ᵢ, p the polynomial of this degree that is least on the interval ``extremes``.

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
        best = max(left, key=lambda mode: sum(math.log(abs(mode - other)) for other in (1.0, *chosen)))
        left.remove(best)
        chosen.append(best)
    return tuple(chosen)


def _scaled(extremes: tuple[float, float]) -> tuple[float, float, float]:
    """Return center and half width of the interval, and the position of 1 if it is scaled to [−1, 1]."""
    center = 0.5 * (extremes[0] + extremes[1])
    half = max(0.5 * (extremes[1] - extremes[0]), _NARROW)
    return center, half, (1.0 - center) / half
