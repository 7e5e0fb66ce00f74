"""Euclidean projections onto simplices and ℓ₁ balls, also in a diagonal metric, and their derivatives.

A diagonal metric measures distances by Σⱼ hⱼ (xⱼ − yⱼ)² for some h > 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np

from dcgs.points import EPS, Point, norm, vdot

# More rounding errors than those of a sum of 10⁹ entries and of what is computed from it.
_ROUNDINGS = 64.0
# A number times this one, minus what that exceeds the number by, is its first half: 26 of 53 bits.
_SPLITTER = 2.0**27 + 1.0
# More Newton steps than a multiplier ever takes; measured: at most 12 for metrics of 24 orders of magnitude.
_MOST_STEPS = 200


@final
@dataclass(frozen=True, eq=False)
class Derivative:
    """The derivative of a projection p in a diagonal metric h: dp = K (h dy), K = diag(k) − q qᵀ.

    ``k`` and ``q`` are flat; a ``q`` with several columns is a matrix. ``q`` is None if K is diagonal. If the
    projection is not differentiable at the point, K is an element of its generalized Jacobian.

    >>> import dcgs, numpy as np
    >>> K = dcgs.Derivative(k=np.array([1.0, 0.0]))
    >>> K.times(np.array([5.0, 7.0]))
    array([5., 0.])
    """

    k: Point
    q: Point | None = None

    @property
    def columns(self) -> Point:
        """``q`` as a matrix, which has no column if K is diagonal."""
        return np.zeros((len(self.k), 0)) if self.q is None else self.q.reshape(len(self.k), -1)

    def times(self, v: Point) -> Point:
        """Return K v, for a flat v."""
        if self.q is None:
            return self.k * v
        change = self.q * float(self.q @ v) if self.q.ndim == 1 else self.q @ (self.q.T @ v)
        return np.asarray(self.k * v - change)


@final
@dataclass(frozen=True, eq=False)
class ProjectedPoint:
    """The projection of a point, and the derivative of the projection there, computed on demand.

    >>> import dcgs, numpy as np
    >>> at = dcgs.Box(np.zeros(2), np.ones(2)).projected(np.array([0.5, 3.0]))
    >>> at.point, at.derivative().k
    (array([0.5, 1. ]), array([1., 0.]))
    """

    point: Point
    derivative: Callable[[], Derivative]


def onto_simplex(y: Point, radius: float = 1.0, h: Point | None = None) -> Point:
    """Return the nearest point with entries ≥ 0 that sum to the radius; nearest in the metric h, if given.

    For d entries of any size, and any h, every entry is within (8 + log₂ d) ε · radius of the exact
    projection, and the sum is within (4 + log₂ d) ε · radius of the radius, ε = 2⁻⁵². Nothing cancels: the
    products h y are computed with their rounding errors, and entries of about the radius are subtracted.

    >>> onto_simplex(np.array([1.0, 0.5, -2.0])), onto_simplex(np.array([1.0, 1.0]), h=np.array([3.0, 1.0]))
    (array([0.75, 0.25, 0.  ]), array([0.75, 0.25]))
    """
    if h is None:
        # The difference of two numbers has no rounding error but its own. Only entries within the radius of
        # the largest one are positive in the projection.
        fall = y - y.max()
        threshold = _threshold(fall[fall > -radius], radius)
        x = np.maximum(fall - threshold.theta, 0.0)
        return np.asarray(x if threshold.factor == 1.0 else x * threshold.factor)
    return _onto_weighted_simplex(y.reshape(-1), radius, h.reshape(-1)).reshape(y.shape)


def _onto_weighted_simplex(y: Point, radius: float, h: Point) -> Point:
    """Return the projection of a flat y in the metric h: max(y − θ/h, 0) for one θ.

    A first θ may be off by rounding error, which a small h enlarges. Entries are then counted from it: those
    that can be positive are at most about the radius, and what they still lose is found from them alone.
    """
    product, slopes = h * y, 1.0 / h
    values, r, least = y, slopes, 0.0
    if float(y.min()) < 0.0:
        # No entry of the projection exceeds the radius, so that θ ≥ hⱼ (yⱼ − radius) for all j. Without the
        # entries below this bound, the terms of a sum are not much larger than their sum.
        least = float((product - radius * h).max())
        possible = product >= least - 2.0 * EPS * abs(least)
        values, r = y[possible], slopes[possible]
    first = _threshold(values, radius, r)
    error = _ROUNDINGS * EPS * (abs(first.theta) + radius / first.slope + abs(least))
    near = np.flatnonzero(product >= first.theta - error)
    values, r = _above(y[near], h[near], first.theta), slopes[near]
    threshold = _threshold(values, radius, r)
    x = np.zeros(y.shape)
    if threshold.factor > 0.0:
        x[near] = np.maximum(values - threshold.theta * r, 0.0) * threshold.factor
    else:  # the radius is below the rounding error of y
        x[near[int((values / r).argmax())]] = radius
    return x


def _above(y: Point, h: Point, theta: float) -> Point:
    """Return y − θ/h, as if the product h y had no rounding error."""
    product = h * y
    return np.asarray(((product - theta) + _product_error(h, y, product)) / h)


def _product_error(a: Point, b: Point, product: Point) -> Point:
    """Return a b − product exactly, for the rounded product of a and b (Dekker 1971)."""
    (a_high, a_low), (b_high, b_low) = _halves(a), _halves(b)
    return np.asarray(a_low * b_low - (((product - a_high * b_high) - a_low * b_high) - a_high * b_low))


def _halves(a: Point) -> tuple[Point, Point]:
    """Return two numbers of at most 26 bits each whose sum is a."""
    large = _SPLITTER * a
    high = large - (large - a)
    return high, a - high


def onto_l1_ball(y: Point, radius: float, h: Point | None = None) -> Point:
    """Return the nearest point with Σ |xⱼ| ≤ radius; nearest in the metric h, if given.

    >>> onto_l1_ball(np.array([3.0, -2.0, 0.5]), 2.0)
    array([ 1.5, -0.5,  0. ])
    """
    size = np.abs(y)
    if float(size.sum()) <= radius:
        return y
    return _with_signs(onto_simplex(size, radius, h), y)


def onto_l2_ball(y: Point, radius: float, h: Point | None = None) -> tuple[Point, float]:
    """Return the nearest point x with ‖x‖ ≤ radius and the multiplier μ ≥ 0, with x = h y/(h + μ).

    ‖x‖ is within (4 + log₂ d) ε · radius of the radius, or below it.
    """
    size = norm(y)
    if size <= radius:
        return y, 0.0
    if h is None:
        return (radius / size) * y, size / radius - 1.0

    return on_sphere(lambda mu: h * y / (h + mu), lambda x, mu: vdot(x, x / (h + mu)), radius)


def on_sphere(
    point: Callable[[float], Point], slope: Callable[[Point, float], float], radius: float
) -> tuple[Point, float]:
    """Return x(0) and 0 if x(0) is in the ball, else x(μ) and the multiplier μ with ‖x(μ)‖ = radius.

    ``slope`` is −½ d‖x‖²/dμ. Newton steps are for 1/‖x(μ)‖, which is concave: they come from below, and never
    go beyond the root.
    """
    mu = 0.0
    for _ in range(_MOST_STEPS):
        x = point(mu)
        length = norm(x)
        if length <= (1.0 + EPS) * radius:
            break
        ahead = mu + length**2 / slope(x, mu) * (length / radius - 1.0)
        if ahead <= mu:
            break
        mu = ahead
    return (x, mu) if mu == 0.0 and length <= radius else (np.asarray(x * (radius / length)), mu)


def onto_capped_l1_ball(y: Point, total: float, cap: float, h: Point | None = None) -> Point:
    """Return the nearest point with Σ |xⱼ| ≤ total and all |xⱼ| ≤ cap; nearest in the metric h, if given.

    No entry exceeds the cap, and the sum exceeds the total by at most (4 + log₂ d) ε · total.

    >>> onto_capped_l1_ball(np.array([3.0, -2.0, 1.5]), 2.0, 1.0)
    array([ 1.  , -0.75,  0.25])
    """
    size = np.abs(y)
    capped = np.minimum(size, cap)
    if float(capped.sum()) <= total:
        return _with_signs(capped, y)
    flat, metric = size.reshape(-1), np.ones(y.size) if h is None else h.reshape(-1)
    # As for a simplex: entries are counted from a first θ, which may be off by rounding error.
    first = _capped_threshold(flat, metric, total, cap)
    values = _above(flat, metric, first)
    x = np.clip(values - _capped_threshold(values, metric, total, cap) / metric, 0.0, cap)
    x = np.minimum(x * (total / float(x.sum())), cap)
    return _with_signs(x.reshape(y.shape), y)


def _capped_threshold(y: Point, h: Point, total: float, cap: float) -> float:
    """Return the θ with Σ clip(y − θ/h, 0, cap) = total.

    The sum is piecewise linear in θ; its slope changes where an entry reaches a bound.
    """
    product = h * y
    ends = np.unique(np.concatenate([[0.0], product, product - cap * h]))
    low, high = 0, len(ends) - 1
    middle = int(np.searchsorted(ends, 0.0))  # near the root, if entries are counted from a first θ
    while high - low > 1:
        middle = middle if low < middle < high else (low + high) // 2
        excess = float(np.clip(y - ends[middle] / h, 0.0, cap).sum()) - total
        if abs(excess) <= 2.0 * EPS * total:  # its sign is rounding error
            return float(ends[middle])
        low, high = (middle, high) if excess > 0.0 else (low, middle)
    between = y - 0.5 * float(ends[low] + ends[high]) / h
    free = (between > 0.0) & (between < cap)
    slope = float((1.0 / h[free]).sum())
    at_cap = cap * float(np.count_nonzero(between >= cap))
    if slope == 0.0:
        return float(ends[high])
    return (float(y[free].sum()) + at_cap - total) / slope


def _with_signs(size: Point, y: Point) -> Point:
    """Return these sizes with the signs of y; zeros are +0, which messages do not store."""
    signed = np.copysign(size, y)
    signed += 0.0
    return signed


def free_derivative(x: Point, cap: float, h: Point | None) -> Derivative:
    """Return the derivative of the projection onto a capped ℓ₁ sphere: entries at 0 and at the cap stay."""
    free = (x != 0.0) & (np.abs(x) < cap)
    return simplex_derivative(np.where(free, x, 0.0), h)


def simplex_derivative(x: Point, h: Point | None) -> Derivative:
    """Return the derivative of the projection onto a simplex or ℓ₁ sphere at a point whose projection is x.

    The signs of x and Σ|xⱼ| do not change, and entries that are zero stay zero.
    """
    flat = x.reshape(-1)
    k = (flat != 0.0).astype(np.float64)
    if h is not None:
        k /= h.reshape(-1)
    total = float(k.sum())
    return Derivative(k, np.copysign(k, flat) / np.sqrt(total)) if total > 0.0 else Derivative(k)


def l2_derivative(x: Point, mu: float, h: Point | None) -> Derivative:
    """Return the derivative of the projection onto a Euclidean sphere, given the projection x and μ."""
    flat = x.reshape(-1)
    k = np.full(flat.shape, 1.0 / (1.0 + mu)) if h is None else 1.0 / (h.reshape(-1) + mu)
    q = k * flat
    squared = float(flat @ q)
    return Derivative(k, q / np.sqrt(squared)) if squared > 0.0 else Derivative(k)  # 0 by underflow only


def mask_derivative(free: Point, h: Point | None) -> Derivative:
    """Return the derivative of a projection that keeps entries where ``free`` is True, and fixes others."""
    k = free.reshape(-1).astype(np.float64)
    return Derivative(k if h is None else k / h.reshape(-1))


class _Threshold(NamedTuple):
    """θ, the sum of the slopes rⱼ that are left, and the factor that corrects the sum of max(yⱼ − θ rⱼ, 0).

    The factor is 0 if rounding error leaves no entry.
    """

    theta: float
    slope: float
    factor: float


def _threshold(y: Point, radius: float, reciprocal: Point | None = None) -> _Threshold:
    """Return the θ with Σ max(yⱼ − θ rⱼ, 0) = radius, r the reciprocal of the metric (1 if None).

    θ is found by removing entries that are zero for the current θ until there are none (Michelot 1986). The
    current θ only increases, so a removed entry stays zero.
    """
    values, slopes, theta = y.reshape(-1), reciprocal, -np.inf
    while True:
        total = float(len(values)) if slopes is None else float(slopes.sum())
        theta = max(theta, (float(values.sum()) - radius) / total)
        positive = values > (theta if slopes is None else theta * slopes)
        kept = values[positive]
        if len(kept) in (0, len(values)):  # 0 only if rounding error removes the last entry
            break
        values, slopes = kept, None if slopes is None else slopes[positive]
    left = values - (theta if slopes is None else theta * slopes)
    total_left = float(left.sum()) if len(kept) else math.inf
    return _Threshold(theta, total, 1.0 if abs(total_left - radius) <= EPS * radius else radius / total_left)
