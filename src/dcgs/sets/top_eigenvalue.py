"""An upper bound of the largest eigenvalue of a symmetric operator, from its products with blocks of vectors.

The eigenvalues of a small operator are computed densely, and the bound is exact to rounding. For a large one
it may fail, if random vectors have nearly no component along the top eigenvector: with probability FAILURE.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaincinv

from dcgs.points import EPS

Matrix: TypeAlias = NDArray[np.float64]
Vector: TypeAlias = NDArray[np.float64]

FAILURE = 1e-10
"""The probability that the largest eigenvalue of a large operator exceeds its bound."""
MOST_STEPS = 40
"""The largest number of products with a block."""
DENSE_SIDE = 2048
"""The largest side of an operator that is formed as a matrix."""
# The fewest and the most random vectors in the first block: as many as there are vectors near the top
# eigenvectors. With more of them, later blocks are larger and the bound is closer after fewer steps.
_RANDOM, _MOST_RANDOM = 24, 64
# The columns of an operator that are computed at once, and the most entries of a basis.
_COLUMNS, _MOST_ENTRIES = 64, 1 << 24
# Residuals below this share of the largest Ritz value are rounding error.
_LEAST = 1e-11
# An eigenvalue changes by at most this multiple of the errors of products.
_SUMMED = 4.0
# The residual h(λ) is bounded on intervals of λ by Taylor polynomials with this number of terms. Half the
# width of an interval is this share of the distance of its center from the largest Ritz value.
_TERMS, _WIDTH = 16, 0.2


@final
@dataclass(eq=False)
class TopEigenvalue:
    """The search for the largest eigenvalue λ₁ of a symmetric A: ``value`` ≤ λ₁ ≤ ``bound``.

    ``block`` are the vectors B of the next product A B. The bound holds with probability 1 − FAILURE.
    ``disturbance`` bounds the length of the errors of products, beyond rounding; ``relative`` does as a
    multiple of λ₁. ``near`` is the number of vectors that a search began with, without random ones.

    Theorem. Let the columns of Ω be r independent Gaussian vectors that do not depend on A. Let Q be any
    orthonormal basis whose span contains them, T = QᵀAQ, and R = A Q − Q T. For λ above all eigenvalues of T
    let h(λ) = ‖R (λ − T)⁻¹ QᵀΩ‖₂. Let t be such that ‖g‖ ≤ t has probability FAILURE for a Gaussian vector g
    of r entries. If h(λ) < t for all λ > b, then λ₁ ≤ b, except with probability FAILURE.

    Proof. Let A u = λ₁ u, ‖u‖ = 1, and assume λ₁ > b. With W = Q (λ₁ − T)⁻¹ QᵀΩ we have Ω − (λ₁ − A) W =
    R (λ₁ − T)⁻¹ QᵀΩ. Since uᵀ(λ₁ − A) = 0, it follows that ‖Ωᵀu‖ ≤ h(λ₁) < t. But Ωᵀu is a Gaussian vector of
    r entries, whatever Q is. ∎

    The first block contains Ω. Later blocks are residuals of the systems (λ − A) W = Ω for a λ as close to λ₁
    as the bound is to be, and residuals of the largest Ritz values.
    """

    block: Matrix
    basis: Matrix
    images: Matrix
    random: Matrix
    value: float = 0.0
    bound: float = np.inf
    steps: int = 0
    disturbance: float = 0.0
    relative: float = 0.0
    near: int = 0

    @classmethod
    def start(cls, near: Matrix, rng: np.random.Generator) -> TopEigenvalue:
        """Return a search that starts with vectors expected to be near the top eigenvectors, and with Ω."""
        size = len(near)
        random = rng.standard_normal((size, min(max(_RANDOM, near.shape[1]), _MOST_RANDOM)))
        block = np.linalg.qr(np.hstack([near, random]))[0]
        return cls(block, np.empty((size, 0)), np.empty((size, 0)), random, near=near.shape[1])

    @property
    def noise(self) -> float:
        """The error of the value and the bound: by rounding, and 4 ‖E‖ by errors E of products.

        For there is a symmetric Δ with Δ Q = E up to the skew part of QᵀE, and ‖Δ‖ ≤ 2 ‖E‖.
        """
        rounding = len(self.basis) * EPS * max(abs(self.value), abs(self.bound))
        most = _SUMMED * self.relative  # λ₁ ≤ bound + disturbances + most · λ₁
        of_products = _SUMMED * self.disturbance + most * max(0.0, self.bound)
        return rounding + (of_products / (1.0 - most) if most < 1.0 else math.inf)

    @property
    def ended(self) -> bool:
        """True if the basis is complete, or as large as it may be."""
        size, count = self.basis.shape
        is_full = (count + self._most) * size > _MOST_ENTRIES
        return self.block.shape[1] == 0 or self.steps == MOST_STEPS or is_full

    @property
    def _most(self) -> int:
        """The most vectors of a block after the first."""
        return max(int(self.random.shape[1]), self.near // 2)

    def add(self, image: Matrix, tolerance: float) -> None:
        """Use the product A B with the block; the bound is to be as close to the value as the tolerance."""
        self.basis, self.images = np.hstack([self.basis, self.block]), np.hstack([self.images, image])
        self.steps += 1
        T = self.basis.T @ self.images
        values, vectors = np.linalg.eigh(0.5 * (T + T.T))
        residual = self.images @ vectors - self.basis @ (vectors * values)
        a = vectors.T @ (self.basis.T @ self.random)
        size, count = self.basis.shape
        self.value = float(values[-1])
        if count == size:
            self.bound, self.block = self.value + float(np.linalg.norm(residual, 2)), self.block[:, :0]
            return
        self.bound = self.value + _distance(values, residual, a, tolerance)
        self.block = self._next(values, residual, a, tolerance)

    def _next(self, values: Vector, residual: Matrix, a: Matrix, tolerance: float) -> Matrix:
        """Return the next block; rounding error is left out, because it is not orthogonal to the basis."""
        size, count = self.basis.shape
        scale = float(np.abs(values).max())
        if scale == 0.0:
            return self.block[:, :0]
        shift = max(tolerance, _LEAST * scale)
        weights = shift / (shift + values[-1] - values)
        rest = np.hstack([residual @ (a * weights[:, None]), residual[:, -self._most :]])
        left, sizes, _ = np.linalg.svd(self._orthogonal(self._orthogonal(rest)), full_matrices=False)
        left = left[:, sizes > _LEAST * scale][:, : min(self._most, size - count)]
        return np.asarray(np.linalg.qr(self._orthogonal(left))[0])

    def _orthogonal(self, block: Matrix) -> Matrix:
        """Return the part of a block that is orthogonal to the basis."""
        return np.asarray(block - self.basis @ (self.basis.T @ block))


def _distance(values: Vector, residual: Matrix, a: Matrix, tolerance: float) -> float:
    """Return an s with h(λ) < t for all λ > max(values) + s; it need not be below the tolerance.

    From right to left, h is bounded on the intervals θ + c·[1 − w, 1 + w], θ = max(values), w = _WIDTH. With
    D = (θ + c − T)⁻¹ it is at most the sum of (w c)ᵏ ‖R Dᵏ⁺¹ a‖ for k < K = _TERMS, and of what bounds all
    other terms, wᴷ ‖R‖ ‖a‖ / (c (1 − w)).
    """
    t = float(np.sqrt(2.0 * gammaincinv(0.5 * a.shape[1], FAILURE)))
    R: Matrix = np.linalg.qr(residual)[1]
    length = float(np.linalg.norm(a, 2))
    rounding = len(residual) * EPS * float(np.abs(values).max()) * length
    rest = float(np.linalg.norm(R, 2)) * length * _WIDTH**_TERMS / (1.0 - _WIDTH) + rounding
    s = (float(np.linalg.norm(R, 2)) * length + rounding) / t
    while s > tolerance:
        center = s / (1.0 + _WIDTH)
        if not _is_below(t * center - rest, R, a, center / (center + values[-1] - values)):
            break
        s = center * (1.0 - _WIDTH)
    return s


def _is_below(limit: float, R: Matrix, a: Matrix, ratios: Vector) -> bool:
    """Return True if the sum of ‖R (w ratios)ᵏ ratios a‖ over k < _TERMS is below the limit."""
    weights = ratios * (_WIDTH * ratios) ** np.arange(_TERMS)[:, None]
    terms = R @ (weights.T[:, :, None] * a[:, None, :]).reshape(len(a), -1)
    images = terms.reshape(len(R), _TERMS, -1).transpose(1, 0, 2)
    frobenius = np.sqrt(np.einsum("kij,kij->k", images, images))
    # The spectral norm of a matrix with r columns is between 1/√r of the Frobenius norm, and that.
    if frobenius.sum() < limit:
        return True
    if frobenius.sum() >= limit * np.sqrt(a.shape[1]):
        return False
    squares = np.linalg.eigvalsh(images.transpose(0, 2, 1) @ images)[:, -1]
    return bool(np.sqrt(np.maximum(squares, 0.0)).sum() < limit)


def largest_eigenvalue(
    apply: Callable[[Matrix], Matrix], near: Matrix, rng: np.random.Generator, tolerance: float, terms: int
) -> tuple[float, float]:
    """Return an upper bound of the largest eigenvalue of the symmetric operator ``apply``, and an error.

    The error is rounding error: the eigenvalue is at most the sum of both. Up to DENSE_SIDE rows the bound is
    the eigenvalue of a dense matrix. ``terms`` is the number of terms of the sums that its entries are,
    beyond one. A larger operator is multiplied with blocks, until the bound is as close to a lower bound as
    the tolerance, or for MOST_STEPS steps; the bound then holds with probability 1 − FAILURE.
    """
    size = len(near)
    if size <= DENSE_SIDE:
        unit = np.eye(size)
        columns = [apply(unit[:, i : i + _COLUMNS]) for i in range(0, size, _COLUMNS)]
        values = np.linalg.eigvalsh(np.hstack(columns))
        error = size * float(np.abs(values).max()) + terms * float(np.abs(values).sum())
        return float(values[-1]), EPS * error
    search = TopEigenvalue.start(near, rng)
    while search.bound - search.value > tolerance and not (search.steps and search.ended):
        search.add(apply(search.block), tolerance)
    return search.bound, search.noise
