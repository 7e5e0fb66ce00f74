"""The certificate of all methods: bounds of f*, of f at a model, and the rule that ends a run.

A run ends with success at a point x of X if an upper bound of f(x) − f* is at most a share of f(x⁰) − f(x),
or at most a fixed number. Such a bound is the Wolfe gap of f at x, or f(x) minus the best lower bound of f*
so far. The share gives f(x) − f* ≤ share · (f(x⁰) − f*). Rounding errors count against success: they are
added to the gap, and subtracted from the decrease f(x⁰) − f(x). The proofs are in docs/methods.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np

from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point

# Sums over agents and inner products round more than once: this multiple of one rounding error bounds all.
_SUMMED = 4.0
UNKNOWN = 1e300
"""What an agent says of a least value that its loss does not know, and minus this of a lower bound that it
does not have; sums are finite."""


class GapKind(IntEnum):
    """The lower bound of f* by which a gap is known."""

    WOLFE = 0
    """The linear approximation of f at x."""
    DUAL = 1
    """The sum of the agents' minima of fᵢ + ⟨wᵢ, ·⟩, where the wᵢ have the sum 0."""
    LEAST = 2
    """The sum of the least values that the agents' losses can take."""


@final
@dataclass(frozen=True)
class CertifiedGap:
    """An upper bound of f(x) − f*, a lower bound of f(x⁰) − f(x), and the rounding error of the former.

    ``at_start`` is True if x is x⁰. Gaps of kinds other than WOLFE include their rounding error.
    """

    gap: float
    decrease: float
    noise: float
    at_start: bool = False
    kind: GapKind = GapKind.WOLFE

    def as_array(self) -> Point:
        """Return the numbers as an array, which the root sends to all agents."""
        return np.array([self.gap, self.decrease, self.noise, self.at_start, self.kind], dtype=np.float64)

    @classmethod
    def of(cls, numbers: Sequence[float]) -> CertifiedGap:
        """Return the certified gap with the numbers of :meth:`as_array`."""
        gap, decrease, noise, at_start, kind = map(float, numbers)
        # Noise in messages may change every number.
        known = GapKind(min(max(round(kind), GapKind.WOLFE), GapKind.LEAST))
        return cls(gap, decrease, noise, at_start > 0.5, known)


@final
@dataclass(frozen=True)
class GapTarget:
    """The gap asked for: ``relative`` · (f(x⁰) − f(x)), or ``absolute``; None means no such rule."""

    relative: float | None = None
    absolute: float | None = None

    def threshold(self, decrease: float) -> float:
        """Return the largest gap that is small enough where f(x⁰) − f(x) is ``decrease``."""
        return max((self.relative or 0.0) * decrease, self.absolute or 0.0)

    def reached(self, at: CertifiedGap) -> bool:
        """Return True if the gap is small enough, also after adding its rounding error.

        At x⁰ there is no decrease. There a gap that is rounding error is small enough, because x⁰ is then
        optimal as far as can be computed. No other point is treated so.
        """
        optimal_start = at.at_start and at.gap <= at.noise
        return optimal_start or at.gap + at.noise <= self.threshold(at.decrease)

    def ends(self, at: CertifiedGap) -> bool:
        """Return True if the gap is small enough, or if it is rounding error and cannot get smaller.

        Success needs a gap that is small enough with all errors; a gap cannot get smaller where it is a
        single one of them.
        """
        return self.reached(at) or at.gap <= at.noise / _SUMMED


def gap_noise(grad_error: float, size: float, diameter: float) -> float:
    """Return a bound of the rounding error of a Wolfe gap ⟨g, x⟩ − ⟨g, s⟩ at an x of this size ‖x‖.

    ``grad_error`` is the sum of those of all agents' gradients. Each is at least EPS times the length of that
    gradient. So a multiple of it bounds also the rounding errors of their sum and of the inner products.
    """
    return _SUMMED * grad_error * (diameter + size)


@final
@dataclass
class Bounds:
    """The best lower bound of f* − f(x⁰) so far, after subtracting its rounding error, and what proves it."""

    lower: float = -math.inf
    kind: GapKind = GapKind.WOLFE

    def add(self, lower: float, kind: GapKind) -> None:
        """Take a lower bound of f* − f(x⁰) if it is better."""
        if lower > self.lower:
            self.lower, self.kind = lower, kind

    def add_wolfe(self, wolfe: CertifiedGap, error: float) -> None:
        """Take the linear approximation of f by which this gap is known.

        ``error`` is the rounding error of f(x⁰) − f(x), which its decrease includes.
        """
        self.add(-wolfe.decrease - 2.0 * error - wolfe.gap - wolfe.noise, GapKind.WOLFE)

    def add_least(self, decrease: float, excess: float) -> None:
        """Take the least value of the losses, given the sums over all agents at one point x.

        ``decrease`` is an upper bound of f(x⁰) − f(x), and ``excess`` the sum of :func:`excess` at x.
        """
        if excess < UNKNOWN:
            self.add(-decrease - excess, GapKind.LEAST)

    def gap(self, decrease: float, at_start: bool = False) -> CertifiedGap:
        """Return the gap at a model with at least this decrease f(x⁰) − f(x)."""
        return CertifiedGap(-decrease - self.lower, decrease, 0.0, at_start, self.kind)

    def best(self, wolfe: CertifiedGap, target: GapTarget | None) -> CertifiedGap:
        """Return the Wolfe gap at a model, or the gap by the best bound if that is smaller.

        A Wolfe gap that is rounding error ends the run: a bound that is better does not change that, unless
        it is good enough for success.
        """
        gap = self.gap(wolfe.decrease, wolfe.at_start)
        if gap.gap >= wolfe.gap + wolfe.noise:
            return wolfe
        ends = target is not None and target.ends(wolfe) and not target.reached(gap)
        return wolfe if ends else gap


def excess(f: Objective, value: float) -> float:
    """Return an upper bound of f(x) minus the least value that its loss can take, given f(x)."""
    if f.loss.least == -math.inf:
        return UNKNOWN
    least = f.loss.size * f.loss.least
    return value - least + _SUMMED * EPS * (abs(value) + abs(least))


# The tolerance is of order k^(−_EARLY), and from k = _TURN on of order k^(−_LATE), so that its root is
# summable.
_EARLY, _LATE, _TURN = 1.5, 2.5, 100


def summable_tolerance(k: int, scale: float) -> float:
    """Return the error in a value that step k may have, for losses of this scale."""
    late = max(k / _TURN, 1.0) ** (_LATE - _EARLY)
    return float(scale / ((k + 1) ** _EARLY * late))
