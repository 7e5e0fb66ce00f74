"""Exact line search on φ, in the image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.objectives.losses import Image, Loss

# A bracket of a double shrinks to nothing in fewer bisections than this.
_MOST_TRIALS = 100
# Relative length of the last move at which the minimizer is taken as found.
_SETTLED = 1e-14


@final
@dataclass(frozen=True, eq=False)
class Line:
    """γ ↦ φ(x + γ d) for γ ∈ [0, limit].

    ``image`` and ``motion`` are A x and A d; ``slope`` is ⟨∇φ(x), d⟩ < 0; ``bend`` is η‖d‖².
    """

    loss: Loss
    image: Image
    motion: Image
    slope: float
    bend: float
    limit: float

    def minimizer(self) -> float:
        """Return the minimizing γ: one division for a quadratic loss, else safeguarded Newton."""
        lower, upper = self.loss.curvature
        gamma = self._newton(0.0, self.slope)
        if lower == upper:
            return gamma
        left, right = 0.0, self.limit
        for _ in range(_MOST_TRIALS):
            slope = self._slope(gamma)
            if slope <= 0.0 and gamma == self.limit:
                return gamma
            left, right = (gamma, right) if slope < 0.0 else (left, gamma)
            trial = self._newton(gamma, slope)
            if not left <= trial <= right:
                trial = 0.5 * (left + right)
            if abs(trial - gamma) <= _SETTLED * right:
                return trial
            gamma = trial
        return gamma

    def _slope(self, gamma: float) -> float:
        """Return the derivative at gamma; what is not the loss is linear in γ."""
        moved = self.loss.grad(self.image + gamma * self.motion) - self.loss.grad(self.image)
        return self.slope + float(moved @ self.motion) + gamma * self.bend

    def _newton(self, gamma: float, slope: float) -> float:
        """Return where a Newton step from gamma leads, cut to the interval."""
        lower, upper = self.loss.curvature
        if lower == upper:
            curvature = lower * float(self.motion @ self.motion) + self.bend
        else:
            hess = self.loss.hess(self.image + gamma * self.motion)
            curvature = float((hess * self.motion) @ self.motion) + self.bend
        if curvature <= 0.0:
            return self.limit if slope < 0.0 else 0.0
        return min(max(gamma - slope / curvature, 0.0), self.limit)
