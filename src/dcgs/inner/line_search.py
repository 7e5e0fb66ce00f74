"""Steps of inner solvers: exact line search on φ in the image, and the pair (x, A x) that a step updates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom
from dcgs.objectives.losses import Image, Loss
from dcgs.objectives.maps import LinearMap
from dcgs.points import Point

# Fewer bisections than this shrink a bracket to two neighboring doubles.
_MOST_TRIALS = 100
# The search ends when a step is shorter than this, relative to the bracket.
_SETTLED = 1e-14
# Every step adds a rounding error to the image. After so many steps it is computed from x.
_REFRESH = 200


def line_minimizer(
    loss: Loss, image: Image, motion: Image, slope: float, prox_curvature: float, limit: float
) -> float:
    """Return the γ ∈ [0, limit] that minimizes φ(x + γ d).

    ``image`` and ``motion`` are A x and A d, ``slope`` is ⟨∇φ(x), d⟩ < 0 and ``prox_curvature`` is η‖d‖². For
    a quadratic loss it takes one division, else safeguarded Newton steps.
    """
    lower, upper = loss.curvature
    if lower == upper:
        curvature = lower * float(motion @ motion) + prox_curvature
        return min(-slope / curvature, limit) if curvature > 0.0 else limit
    start = loss.grad(image)

    def slope_at(gamma: float) -> float:  # without the loss it is linear in γ
        change = loss.grad(image + gamma * motion) - start
        return slope + float(change @ motion) + gamma * prox_curvature

    if slope_at(limit) <= 0.0:
        return limit
    # The derivative is negative at 0 and positive at the limit; find its zero. Take a Newton step if it stays
    # in the bracket and is at most half the previous step, else bisect.
    left, right = 0.0, limit
    gamma, here, moved = 0.0, slope, limit
    for _ in range(_MOST_TRIALS):
        curvature = float((loss.hess(image + gamma * motion) * motion) @ motion) + prox_curvature
        step = -here / curvature if curvature > 0.0 else float("inf")
        if not left < gamma + step < right or abs(2.0 * step) > abs(moved):
            step = 0.5 * (left + right) - gamma
        gamma, moved = gamma + step, step
        here = slope_at(gamma)
        if here == 0.0 or abs(step) <= _SETTLED * right:
            break
        left, right = (gamma, right) if here < 0.0 else (left, gamma)
    return gamma


@final
@dataclass(eq=False)
class Pair:
    """A point and its image under a linear map; ``steps`` were taken since the image was computed from x."""

    x: Point
    image: Image
    steps: int = 0

    @classmethod
    def at(cls, x: Point, A: LinearMap) -> Pair:
        """Return the pair of a copy of x."""
        own = np.array(x, dtype=np.float64, order="C")
        return cls(own, A.image(own))

    def reset(self, x: Point, A: LinearMap) -> None:
        """Replace the point by x, and compute its image."""
        self.x, self.image, self.steps = x, A.image(x), 0

    @property
    def stale(self) -> bool:
        """True if the image is due to be computed from x."""
        return self.steps >= _REFRESH

    def toward(self, atom: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (atom − x), given motion = A (atom − x)."""
        self.x *= 1.0 - gamma
        atom.add_to(self.x, gamma)
        self.image += gamma * motion
        self.steps += 1

    def swap(self, away: Atom, toward: Atom, motion: Image, gamma: float) -> None:
        """Move to x + γ (toward − away), given motion = A (toward − away)."""
        toward.add_to(self.x, gamma)
        away.add_to(self.x, -gamma)
        self.image += gamma * motion
        self.steps += 1
