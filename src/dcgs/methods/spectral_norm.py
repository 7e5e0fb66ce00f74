"""The spectral norm of a matrix G by block Lanczos steps, from products Gᵀ(G B) with blocks of vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from dcgs.low_rank import Matrix

# Random vectors that are added to the first block, and the most vectors of a block after the first.
_RANDOM, _BLOCK = 4, 16
_MOST_STEPS = 20
# Residuals below this share of the largest Ritz value are rounding error.
_LEAST = 1e-11
_SEED = 2017


@final
@dataclass(eq=False)
class SpectralNorm:
    """An estimate of the largest singular value, and an estimate of its error from residual and growth.

    ``block`` are the vectors B of the next product.
    """

    block: Matrix
    basis: Matrix
    images: Matrix
    value: float = 0.0
    error: float = np.inf
    steps: int = field(default=0)

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
