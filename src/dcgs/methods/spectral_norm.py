"""The spectral norm of a matrix G by block Lanczos steps, from products Gᵀ(G B) with blocks of vectors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from dcgs.low_rank import Matrix

# Random vectors that are added to the first block, and the most vectors of a block after the first.
_RANDOM, _BLOCK = 4, 16
_MOST_STEPS = 20
_SEED = 2017


@final
@dataclass(eq=False)
class SpectralNorm:
    """An estimate of the largest singular value, and the error that its residual allows.

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
        self.value = float(np.sqrt(top))
        self.error = float(np.sqrt(top + residual)) - self.value
        size, count = self.basis.shape
        if self.error <= tolerance or count >= size or self.steps == _MOST_STEPS:
            return True
        # The next block: the residuals of the largest Ritz values.
        rest = self.images @ vectors[:, -min(_BLOCK, size - count) :]
        for _ in range(2):  # twice, because one pass leaves rounding errors
            rest = rest - self.basis @ (self.basis.T @ rest)
        self.block = np.linalg.qr(rest)[0]
        return False
