"""The gap that ends a run, and what is compared with it.

A run ends with success at a point x of X if the Wolfe gap of f at x is at most a share of f(x⁰) − f(x), or at
most a fixed number. The share gives f(x) − f* ≤ share · (f(x⁰) − f*).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.points import EPS, Point, norm


@final
@dataclass(frozen=True)
class CertifiedGap:
    """The Wolfe gap of f at a point x, f(x⁰) − f(x), and an estimate of the rounding error of the gap."""

    gap: float
    decrease: float
    noise: float


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

        At x⁰ the decrease is 0. There a gap that is rounding error is small enough, because x⁰ is then
        optimal as far as can be computed.
        """
        optimal_start = at.decrease == 0.0 and at.gap <= at.noise
        return optimal_start or at.gap + at.noise <= self.threshold(at.decrease)

    def ends(self, at: CertifiedGap) -> bool:
        """Return True if the gap is small enough, or if it is rounding error and cannot get smaller."""
        return self.reached(at) or at.gap <= at.noise


def gap_noise(grad_noise: float, g: Point, x: Point, diameter: float) -> float:
    """Return the rounding error of a Wolfe gap ⟨g, x − s⟩, given that of the gradient g."""
    return grad_noise * diameter + EPS * norm(g) * (diameter + norm(x))
