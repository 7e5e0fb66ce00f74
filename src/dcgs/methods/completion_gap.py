"""The certificate of FastDCGS for matrix completion: the root finds the Wolfe gap at x from products with ∇f.

The gap is ⟨∇f(x), x⟩ + radius · σ₁(∇f(x)). The agents multiply the gradient with blocks of vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np

from dcgs.low_rank import Matrix
from dcgs.methods.base import Agent
from dcgs.methods.reduction import Value
from dcgs.methods.spectral_norm import SpectralNorm
from dcgs.methods.target import CertifiedGap
from dcgs.points import EPS
from dcgs.sets.nuclear_norm_ball import NuclearNormBall

# An estimate of the gap must be below this share of the target before the gap is computed.
_LIKELY = 0.9
# Estimates count as too small by at most this factor, however small they once were.
_MOST_TRUST = 100.0
# The error of the spectral norm, as a share of what the target allows.
_ACCURACY = 0.1


class Command(IntEnum):
    """What all agents do next."""

    STEP = 0
    """Take the step that the answer describes."""
    BACK = 1
    """Undo the last step, which was too long."""
    CERTIFY = 2
    """Multiply the gradient at x with a block of vectors, to compute the gap."""
    STOP = 3
    """Return x, whose gap is certified."""


@final
@dataclass(frozen=True, eq=False)
class GapEstimate:
    """An estimate of the gap that is too small, f(x⁰) − f(x), and the rounding error of a gradient."""

    estimate: float
    decrease: float
    noise: float


@final
class GapSearch:
    """The search for the gap at one x. Only the root has one."""

    def __init__(self, agent: Agent) -> None:
        assert isinstance(agent.X, NuclearNormBall)
        self.agent = agent
        self.radius = agent.X.radius
        self._at: GapEstimate | None = None
        self._norm: SpectralNorm | None = None

    def begin(self, at: GapEstimate, near: Matrix, trust: float) -> Value | None:
        """Return the first block of vectors if the gap may be small enough, else None.

        ``near`` are vectors near the top singular vectors, ``trust`` is how far estimates were off.
        """
        if self.agent.target is None or at.estimate * trust > _LIKELY * self._threshold(at):
            return None
        self._at, self._norm = at, SpectralNorm.start(near)
        return np.array([Command.CERTIFY], dtype=np.float64), self._norm.block

    def proceed(self, total: Value) -> tuple[Value | None, float]:
        """Return the next block, or the end of the run; None if the gap is too large, and by how much.

        ``total`` is Gᵀ(G B) for the block B and the gradient G at x, and ⟨G, x⟩. The number is the gap
        divided by its estimate.
        """
        target, at, search = self.agent.target, self._at, self._norm
        assert target is not None
        assert at is not None
        assert search is not None
        image, slope = total
        if not search.add(image, _ACCURACY * self._threshold(at) / self.radius):
            return (np.array([Command.CERTIFY], dtype=np.float64), search.block), 1.0
        gap = float(slope[0]) + self.radius * (search.value + search.error)
        noise = 2.0 * self.radius * at.noise + EPS * self.radius * search.value
        found = CertifiedGap(gap, at.decrease, noise)
        self.agent.certify(found)
        if target.ends(found):
            return (np.array([Command.STOP, found.gap, found.decrease, found.noise], dtype=np.float64),), 1.0
        return None, min(_MOST_TRUST, gap / max(at.estimate, EPS * gap))

    def _threshold(self, at: GapEstimate) -> float:
        """Return the largest gap that is small enough, or that is rounding error."""
        target = self.agent.target
        assert target is not None
        return max(target.threshold(at.decrease), self.radius * at.noise)
