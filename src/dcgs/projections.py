"""Euclidean projections onto simplices and ℓ₁ balls, also in a diagonal metric, and their derivatives.

A diagonal metric measures distances by Σⱼ hⱼ (xⱼ − yⱼ)² for some h > 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np
import scipy

from dcgs.points import Point, norm


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

    >>> onto_simplex(np.array([1.0, 0.5, -2.0])), onto_simplex(np.array([1.0, 1.0]), h=np.array([3.0, 1.0]))
    (array([0.75, 0.25, 0.  ]), array([0.75, 0.25]))
    """
    if h is None:
        # Subtracting max y first avoids cancellation if y is far from the simplex. Only entries within the
        # radius of the largest one are positive in the projection.
        fall = y - y.max()
        theta = _threshold(fall[fall > -radius], radius)
        return np.asarray(np.maximum(fall - theta, 0.0))
    # For the same reason θ is counted from max h y, at which the last entry becomes zero.
    reciprocal, fall = 1.0 / h, _fall(y, h)
    return np.asarray(np.maximum(fall - _threshold(fall, radius, reciprocal) * reciprocal, 0.0))


def _fall(y: Point, h: Point) -> Point:
    """Return y − θ/h for θ = max h y: no entry is positive, and one is 0."""
    hy = h * y
    return np.asarray((hy - hy.max()) / h)


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
    """Return the nearest point x with ‖x‖ ≤ radius and the multiplier μ ≥ 0, with x = h y/(h + μ)."""
    size = norm(y)
    if size <= radius:
        return y, 0.0
    if h is None:
        return (radius / size) * y, size / radius - 1.0

    def excess(mu: float) -> float:
        return norm(h * y / (h + mu)) - radius

    # At this μ every entry is at most radius/‖y‖ times that of y. If all h are equal it is the root, and the
    # sign of the excess there is rounding error.
    mu = float(h.max()) * (size / radius - 1.0)
    if excess(mu) < 0.0:
        mu = float(scipy.optimize.brentq(excess, 0.0, mu, xtol=1e-300, rtol=1e-15))
    x = h * y / (h + mu)
    return x * min(1.0, radius / norm(x)), mu


def onto_capped_l1_ball(y: Point, total: float, cap: float, h: Point | None = None) -> Point:
    """Return the nearest point with Σ |xⱼ| ≤ total and all |xⱼ| ≤ cap; nearest in the metric h, if given.

    >>> onto_capped_l1_ball(np.array([3.0, -2.0, 1.5]), 2.0, 1.0)
    array([ 1.  , -0.75,  0.25])
    """
    size = np.abs(y)
    capped = np.minimum(size, cap)
    if float(capped.sum()) <= total:
        return _with_signs(capped, y)
    metric = np.ones_like(y) if h is None else h
    reciprocal, fall, largest = 1.0 / metric, _fall(size, metric), float((metric * size).max())
    # Σ clip(|y| − θ r, 0, cap) is piecewise linear in θ; its slope changes where an entry reaches a bound.
    # θ is counted from max h |y|, and is at least 0.
    ends = np.concatenate([(fall * metric).reshape(-1), ((fall - cap) * metric).reshape(-1)])
    ends = np.unique(np.maximum(ends, -largest))

    def excess(theta: float) -> float:
        return float(np.clip(fall - theta * reciprocal, 0.0, cap).sum()) - total

    low, high = 0, len(ends) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if excess(float(ends[middle])) > 0.0 else (low, middle)
    above, below = excess(float(ends[low])), excess(float(ends[high]))
    share = above / (above - below) if above > below else 0.0
    theta = float(ends[low] + share * (ends[high] - ends[low]))
    return _with_signs(np.clip(fall - theta * reciprocal, 0.0, cap), y)


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
    return Derivative(k, q / np.sqrt(float(flat @ q)))


def mask_derivative(free: Point, h: Point | None) -> Derivative:
    """Return the derivative of a projection that keeps entries where ``free`` is True, and fixes others."""
    k = free.reshape(-1).astype(np.float64)
    return Derivative(k if h is None else k / h.reshape(-1))


def _threshold(y: Point, radius: float, reciprocal: Point | None = None) -> float:
    """Return the θ with Σ max(yⱼ − θ rⱼ, 0) = radius, r the reciprocal of the metric (1 if None).

    θ is found by removing entries that are zero for the current θ until there are none (Michelot 1986). The
    current θ only increases, so a removed entry stays zero.
    """
    values = y.reshape(-1)
    slopes = None if reciprocal is None else reciprocal.reshape(-1)
    theta = -np.inf
    while True:
        total = float(len(values)) if slopes is None else float(slopes.sum())
        theta = max(theta, (float(values.sum()) - radius) / total)
        positive = values > theta if slopes is None else values > theta * slopes
        count = int(np.count_nonzero(positive))
        if count in (0, len(values)):  # 0 only if rounding error removes the last entry
            return theta
        values = values[positive]
        slopes = None if slopes is None else slopes[positive]
