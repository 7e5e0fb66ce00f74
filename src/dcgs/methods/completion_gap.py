"""The certificate of FastDCGS for matrix completion: the root finds the Wolfe gap at x from products with ∇f.

The gap is ⟨∇f(x), x⟩ + radius · σ₁(∇f(x)). The agents multiply the gradient with blocks of vectors, and the
root finds an upper bound of the spectral norm σ₁ by block Lanczos steps. It holds with probability 1 − 1e-10:
see :class:`~dcgs.sets.top_eigenvalue.TopEigenvalue`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np

from dcgs.low_rank import Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap, GapTarget, gap_noise
from dcgs.methods.reduction import Value
from dcgs.points import EPS
from dcgs.seeding import content_rng
from dcgs.sets.nuclear_norm_ball import NuclearNormBall
from dcgs.sets.top_eigenvalue import TopEigenvalue

# An estimate of the gap must be below this share of the target before the gap is computed.
_LIKELY = 0.9
# Estimates count as too small by at most this factor, however small they once were.
_MOST_TRUST = 100.0
# The error of the gap that is aimed at, as a share of what would still do; and an error that needs no
# improvement, as a share of the target.
_SHARE, _ACCURACY = 0.5, 0.01


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
    """An estimate of the gap that is too small, a lower bound of f(x⁰) − f(x), and the noise of ∇f(x).

    ``at_start`` is True if x is x⁰.
    """

    estimate: float
    decrease: float
    noise: float
    at_start: bool


@final
class GapSearch:
    """The search for the gap at one x. Only the root has one."""

    def __init__(self, agent: Agent) -> None:
        assert isinstance(agent.X, NuclearNormBall)
        self.agent = agent
        self.radius = agent.X.radius
        self.target = agent.target or GapTarget()
        self._search: tuple[GapEstimate, TopEigenvalue] | None = None

    def begin(self, at: GapEstimate, near: Matrix, trust: float) -> Value | None:
        """Return the first block of vectors if the gap may be small enough, else None.

        ``near`` are vectors near the top singular vectors, ``trust`` is how far estimates were off.
        """
        if self.agent.target is None or at.estimate * trust > _LIKELY * self._threshold(at):
            return None
        content = np.array([at.estimate, at.decrease, at.noise])
        search = TopEigenvalue.start(near, content_rng(near, content))
        self._search = at, search
        return np.array([Command.CERTIFY], dtype=np.float64), search.block

    def proceed(self, total: Value) -> tuple[Value | None, float]:
        """Return the next block, or the end of the run; None if the gap is too large, and by how much.

        ``total`` is Gᵀ(G B) for the block B and the gradient G at x, and ⟨G, x⟩. The number is the gap
        divided by its estimate.
        """
        assert self._search is not None
        at, search = self._search
        image, (slope,) = total
        threshold = self._threshold(at)
        least = max(at.estimate, float(slope) + self.radius * _root(search.value))
        tolerance = max(_ACCURACY * threshold, _SHARE * (threshold - least)) / self.radius
        search.add(image, tolerance * (2.0 * _root(search.value) + tolerance))
        value, bound = _root(search.value), _root(search.bound)
        gap, least = (float(slope) + self.radius * sigma for sigma in (bound, value))
        noise = gap_noise(at.noise, self.radius, 2.0 * self.radius)
        noise += self.radius * (_root(search.bound + search.noise) - bound)
        found = CertifiedGap(gap, at.decrease, noise, at.at_start)
        ends = self.target.ends(found)
        if not (ends or least > threshold or gap - least <= _ACCURACY * threshold or search.ended):
            return (np.array([Command.CERTIFY], dtype=np.float64), search.block), 1.0
        self.agent.certify(found)
        if ends:
            return (np.array([Command.STOP, *found.as_array()]),), 1.0
        known = least if least > threshold else gap
        return None, min(_MOST_TRUST, known / max(at.estimate, EPS * gap))

    def _threshold(self, at: GapEstimate) -> float:
        """Return the largest gap that is small enough, or that is rounding error."""
        return max(self.target.threshold(at.decrease), self.radius * at.noise)


def _root(eigenvalue: float) -> float:
    """Return the singular value for an eigenvalue of GᵀG, which may be negative by rounding error."""
    return math.sqrt(max(0.0, eigenvalue))
