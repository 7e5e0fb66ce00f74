"""The certificate of FastDCGS for matrix completion: the root finds the Wolfe gap at x from products with ∇f.

The gap is ⟨∇f(x), x⟩ + radius · σ₁(∇f(x)). The agents multiply the gradient with blocks of vectors, and the
root finds the spectral norm σ₁ by block Lanczos steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import final

import numpy as np

from dcgs.low_rank import Matrix
from dcgs.methods.base import Agent
from dcgs.methods.reduction import Value
from dcgs.methods.target import CertifiedGap, GapTarget, gap_noise
from dcgs.points import EPS
from dcgs.sets.nuclear_norm_ball import NuclearNormBall

# An estimate of the gap must be below this share of the target before the gap is computed.
_LIKELY = 0.9
# Estimates count as too small by at most this factor, however small they once were.
_MOST_TRUST = 100.0
# The error of the spectral norm, as a share of what the target allows.
_ACCURACY = 0.1
# Random vectors that are added to the first block, and the most vectors of a block after the first.
_RANDOM, _BLOCK = 4, 16
_MOST_STEPS = 20
# Residuals below this share of the largest Ritz value are rounding error.
_LEAST = 1e-11
_SEED = 2017


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
@dataclass(eq=False)
class SpectralNorm:
    """An estimate of the largest singular value of a matrix G, by products Gᵀ(G B) with blocks of vectors B.

    ``error`` is estimated from residual and growth. ``block`` are the vectors B of the next product.
    """

    block: Matrix
    basis: Matrix
    images: Matrix
    value: float = 0.0
    error: float = np.inf
    steps: int = 0

    @classmethod
    def start(cls, near: Matrix) -> SpectralNorm:
        """Return a search that starts with vectors that are expected to be near the top singular vectors.

        Random vectors are added: they have a component along every singular vector.
        """
        size = len(near)
        noise = np.random.default_rng(_SEED).standard_normal((size, _RANDOM))
        block = np.linalg.qr(np.hstack([near, noise]))[0][:, :size]
        return cls(block, np.empty((size, 0)), np.empty((size, 0)))

    def add(self, image: Matrix, tolerance: float) -> bool:
        """Use the product Gᵀ(G B) with the block; return True if the error is at most the tolerance."""
        self.basis, self.images = np.hstack([self.basis, self.block]), np.hstack([self.images, image])
        self.steps += 1
        values, vectors = np.linalg.eigh(self.basis.T @ self.images)
        top = float(max(values[-1], 0.0))
        v = vectors[:, -1]
        residual = float(np.linalg.norm(self.images @ v - top * (self.basis @ v)))
        before, self.value = self.value, float(np.sqrt(top))
        # The residual bounds the distance from the nearest singular value. If that is not the largest, which
        # may be very close, the value grows with the next block.
        growth = self.value - before if self.steps > 1 else np.inf
        self.error = max(float(np.sqrt(top + residual)) - self.value, growth)
        size, count = self.basis.shape
        if count >= size:  # the basis is complete
            self.error = float(np.sqrt(top + residual)) - self.value
        if self.error <= tolerance or count >= size or self.steps == _MOST_STEPS:
            return True
        # The next block: the residuals of the largest Ritz values. What is rounding error of them is left
        # out: it is not orthogonal to the basis, and would make Ritz values too large.
        rest = self.images @ vectors[:, -min(_BLOCK, size - count) :]
        left, sizes, _ = np.linalg.svd(self._orthogonal(self._orthogonal(rest)), full_matrices=False)
        left = left[:, sizes > _LEAST * top]
        if left.shape[1] == 0:  # the basis has all singular vectors that products can lead to
            self.error = float(np.sqrt(top + residual)) - self.value
            return True
        self.block = np.linalg.qr(self._orthogonal(left))[0]
        return False

    def _orthogonal(self, block: Matrix) -> Matrix:
        """Return the part of a block that is orthogonal to the basis."""
        return np.asarray(block - self.basis @ (self.basis.T @ block))


@final
class GapSearch:
    """The search for the gap at one x. Only the root has one."""

    def __init__(self, agent: Agent) -> None:
        assert isinstance(agent.X, NuclearNormBall)
        self.agent = agent
        self.radius = agent.X.radius
        self.target = agent.target or GapTarget()
        self._search: tuple[GapEstimate, SpectralNorm] | None = None

    def begin(self, at: GapEstimate, near: Matrix, trust: float) -> Value | None:
        """Return the first block of vectors if the gap may be small enough, else None.

        ``near`` are vectors near the top singular vectors, ``trust`` is how far estimates were off.
        """
        if self.agent.target is None or at.estimate * trust > _LIKELY * self._threshold(at):
            return None
        search = SpectralNorm.start(near)
        self._search = at, search
        return np.array([Command.CERTIFY], dtype=np.float64), search.block

    def proceed(self, total: Value) -> tuple[Value | None, float]:
        """Return the next block, or the end of the run; None if the gap is too large, and by how much.

        ``total`` is Gᵀ(G B) for the block B and the gradient G at x, and ⟨G, x⟩. The number is the gap
        divided by its estimate.
        """
        assert self._search is not None
        at, search = self._search
        image, slope = total
        if not search.add(image, _ACCURACY * self._threshold(at) / self.radius):
            return (np.array([Command.CERTIFY], dtype=np.float64), search.block), 1.0
        gap = float(slope[0]) + self.radius * (search.value + search.error)
        noise = gap_noise(at.noise, self.radius, 2.0 * self.radius)
        found = CertifiedGap(gap, at.decrease, noise, at.at_start)
        self.agent.certify(found)
        if self.target.ends(found):
            return (np.array([Command.STOP, *found.as_array()]),), 1.0
        return None, min(_MOST_TRUST, gap / max(at.estimate, EPS * gap))

    def _threshold(self, at: GapEstimate) -> float:
        """Return the largest gap that is small enough, or that is rounding error."""
        return max(self.target.threshold(at.decrease), self.radius * at.noise)
