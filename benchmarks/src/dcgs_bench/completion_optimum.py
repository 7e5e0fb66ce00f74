"""The centralized optimum of matrix completion, without dense matrices: all ratings are in one place.

It is FISTA (Beck and Teboulle 2009), restarted where the momentum is an ascent direction. The singular
triples that a projection needs come from ARPACK, for a sparse matrix plus matrices in factors. Nothing is
shared with the decentralized method but the momentum and the rule that finds the threshold.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.sparse.linalg import LinearOperator, svds

from dcgs.low_rank import Index, LowRank, inner
from dcgs.momentum import Momentum

Numbers = NDArray[np.float64]

# Triples beyond those that the last projection needed; how fast their number grows while all are needed.
_SPARE, _GROWTH = 5, 1.5


@final
@dataclass(frozen=True, eq=False)
class Observed:
    """The distinct observed entries of a matrix: how often each was observed, and the sums of its values.

    ``squares`` is the sum of the squares of all values.
    """

    rows: Index
    cols: Index
    counts: Numbers
    sums: Numbers
    squares: float
    shape: tuple[int, int]

    @classmethod
    def of(cls, rows: Index, cols: Index, values: Numbers, shape: tuple[int, int]) -> Observed:
        """Return the distinct entries of a list."""
        distinct, where = np.unique(rows * shape[1] + cols, return_inverse=True)
        counts = np.bincount(where).astype(np.float64)
        sums = np.asarray(np.bincount(where, weights=values), dtype=np.float64)
        first, second = np.divmod(distinct, shape[1])
        return cls(first, second, counts, sums, float(values @ values), shape)

    def value(self, image: Numbers) -> float:
        """Return Σ (x − value)² over all observations, given the entries of x."""
        return float((self.counts * image - 2.0 * self.sums) @ image) + self.squares

    def grad(self, image: Numbers) -> Numbers:
        """Return the gradient with respect to the distinct entries."""
        return 2.0 * (self.counts * image - self.sums)


@final
@dataclass(eq=False)
class Solution:
    """The solution: a matrix in factors, f(x), f(0), and the Wolfe gap; how many iterations found it."""

    x: LowRank
    value: float
    start: float
    gap: float
    iterations: int

    @property
    def share(self) -> float:
        """The gap as a share of the decrease of f."""
        return self.gap / (self.start - self.value)


def solve(data: Observed, radius: float, target: float, seconds: float = np.inf) -> Solution:
    """Minimize Σ (x[row, col] − value)² over the nuclear-norm ball to a gap of ``target`` · (f(0) − f(x))."""
    S = _Sparse(data)
    x = x_prev = LowRank(np.zeros((data.shape[0], 0)), np.zeros((data.shape[1], 0)), data.shape)
    image = image_prev = np.zeros(len(data.counts))
    start, L = data.squares, 2.0 * float(data.counts.max())
    best = Solution(x, start, start, np.inf, 0)
    momentum, theta, count, begin = Momentum(), 0.0, 2 * _SPARE, time.process_time()
    while time.process_time() - begin < seconds:
        best.iterations += 1
        y_image = image + theta * (image - image_prev)
        Z = S.plus_factors(-data.grad(y_image) / L, [(1.0 + theta, x), (-theta, x_prev)])  # y − ∇f(y)/L
        new, count = _projection(Z, radius, count)
        ascent = _ascent(x, x_prev, theta, new)
        x_prev, x, image_prev = x, new, image
        image = x.entries(data.rows, data.cols)
        theta = momentum.weight(restart=ascent > 0.0)
        grad = data.grad(image)
        best.x, best.value = x, data.value(image)
        best.gap = float(grad @ image) + radius * S.norm(grad)
        if best.gap <= target * (start - best.value):
            break
    return best


def _ascent(x: LowRank, x_prev: LowRank, theta: float, new: LowRank) -> float:
    """Return ⟨y − x⁺, x⁺ − x⟩ for y = x + θ (x − x_prev)."""
    y_new, y_x = ((1.0 + theta) * inner(z, x) - theta * inner(z, x_prev) for z in (new, x))
    return y_new - y_x - inner(new, new) + inner(new, x)


def _projection(Z: LinearOperator, radius: float, count: int) -> tuple[LowRank, int]:
    """Return the nearest point of the ball to Z, and how many singular triples to ask for next time."""
    side = min(Z.shape)
    while True:
        count = min(count, side - 1)
        U, sigma, Vt = svds(Z, k=count, tol=1e-10, rng=np.random.default_rng(0))
        order = np.argsort(-sigma)
        sigma = sigma[order]
        means = (np.cumsum(sigma) - radius) / np.arange(1, count + 1)
        used = int(np.count_nonzero(sigma > means))
        if used < count or count == side - 1:
            break
        count = int(_GROWTH * count) + 1
    kept = order[:used]
    threshold = max(0.0, float(means[used - 1]))
    factors = np.ascontiguousarray(U[:, kept] * (sigma[:used] - threshold)), np.ascontiguousarray(Vt[kept].T)
    return LowRank(*factors, (Z.shape[0], Z.shape[1])), used + _SPARE + used // 10


@final
class _Sparse:
    """Sparse matrices with the pattern of the observed entries."""

    def __init__(self, data: Observed) -> None:
        self.shape = data.shape
        numbers = np.arange(1.0, len(data.counts) + 1)
        order = sp.csr_array((numbers, (data.rows, data.cols)), shape=data.shape)
        other = sp.csr_array(order.T)
        self.order, self.other_order = (pattern.data.astype(np.intp) - 1 for pattern in (order, other))
        self.matrix, self.transposed = order, other

    def plus_factors(self, values: Numbers, parts: list[tuple[float, LowRank]]) -> LinearOperator:
        """Return the operator of the sparse matrix of these values plus weighted matrices in factors."""
        self.matrix.data, self.transposed.data = values[self.order], values[self.other_order]
        used = [(weight, x) for weight, x in parts if weight != 0.0 and x.rank > 0]
        U = np.hstack([np.zeros((self.shape[0], 0)), *(weight * x.U for weight, x in used)])
        V = np.hstack([np.zeros((self.shape[1], 0)), *(x.V for _, x in used)])
        UT, VT = np.ascontiguousarray(U.T), np.ascontiguousarray(V.T)

        def forward(v: Any) -> Any:
            return self.matrix @ v + U @ (VT @ v)

        def backward(u: Any) -> Any:
            return self.transposed @ u + V @ (UT @ u)

        products = {"matvec": forward, "rmatvec": backward, "matmat": forward, "rmatmat": backward}
        return LinearOperator(self.shape, **products, dtype=np.float64)

    def norm(self, values: Numbers) -> float:
        """Return the largest singular value of the sparse matrix of these values."""
        Z = self.plus_factors(values, [])
        return float(svds(Z, k=1, return_singular_vectors=False, rng=np.random.default_rng(0))[0])
