"""The certificate of FastDCGS for matrix completion: the root finds the Wolfe gap at x from products with ∇f.

The gap is ⟨∇f(x), x⟩ + radius · σ₁(∇f(x)). The agents multiply the gradient G with blocks of vectors, and the
root finds an upper bound of the spectral norm σ₁ by block Lanczos steps. It holds with probability 1 − 1e-10:
see :class:`~dcgs.sets.top_eigenvalue.TopEigenvalue`. Where rows are apart and the matrix has few columns, the
agents send GᵀG instead, in one sum.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import IntEnum
from typing import Any, NamedTuple, final

import numpy as np
import scipy.sparse as sp

from dcgs.link import ASSUMED
from dcgs.low_rank import Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Bounds, CertifiedGap, GapTarget, gap_noise
from dcgs.methods.reduction import Value, network_answer
from dcgs.points import EPS, Point, content_rng, symmetric
from dcgs.protocol import Program
from dcgs.sets.nuclear_norm_ball import NuclearNormBall
from dcgs.sets.top_eigenvalue import TopEigenvalue, largest_eigenvalue

# An estimate of the gap must be below this share of the target before the gap is computed. It is the same for
# GᵀG and for products, so that masked runs, which never send GᵀG, end where open ones do.
_LIKELY = 0.9
# Estimates count as too small by at most this factor, however small they once were.
_MOST_TRUST = 100.0
# The error of the gap that is aimed at, as a share of what would still do; and an error that needs no
# improvement, as a share of the target.
_SHARE, _ACCURACY = 0.5, 0.01
# The number of products with blocks that the gap takes, after a first one with all vectors near.
_PRODUCTS = 5
# Rows of GᵀG that are computed at once, and power steps for its top vectors.
_ROWS, _POWERS = 256, 4
# Blocks are float32 if the gap asked for is at least this multiple of the number of agents and two more.
_PRECISE = 4e-5
# The relative rounding error of a number in float32.
_ROUNDING = 2.0**-24


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
    SWITCH = 4
    """Go on with steps from x, whose rows were solved at home."""


def block_type(agent: Agent) -> type[np.float64] | type[np.float32]:
    """Return the type of blocks in messages: float32, if rounding is at most a small part of the gap.

    Products GᵀG B with k orthonormal vectors are summed over m agents. Rows are separate, so each partial sum
    is at most σ₁² √k long, and all roundings together are at most (m + 2) 2⁻²⁴ √k σ₁² long. The Wolfe gap
    then changes by at most 1.7e-6 (m + 2) of the decrease, if k is 200, since radius · σ₁ is at most
    f(0) − f(x) at the optimum.
    """
    relative = (agent.target and agent.target.relative) or 0.0
    is_precise = relative >= _PRECISE * (agent.facts.agents + 2) and agent.secure is None
    return np.float32 if is_precise else np.float64


def as_sent(block: Matrix, kind: type[np.floating[Any]]) -> Point:
    """Return a block of vectors as it is sent; the receiver computes with ``astype(np.float64)``."""
    sent: Any = block.astype(kind)
    return np.asarray(sent)


def rounded(block: Matrix, kind: type[np.floating[Any]]) -> Matrix:
    """Return a block of vectors as the receiver computes with it."""
    return as_sent(block, kind).astype(np.float64)


class ModelValue(NamedTuple):
    """f(x) − f(x⁰), its rounding error, and what f(x) is above the least value of the losses.

    ``at_start`` is True if x is x⁰.
    """

    value: float
    error: float
    excess: float
    at_start: bool

    @property
    def decrease(self) -> float:
        """A lower bound of f(x⁰) − f(x)."""
        return -self.value - self.error


class GapEstimate(NamedTuple):
    """An estimate of the gap that is too small, the noise of ∇f(x), and how far estimates were off."""

    estimate: float
    noise: float
    trust: float


def packed_gram(G: sp.csr_array, kind: type[np.floating[Any]]) -> Point:
    """Return the upper triangle of GᵀG, row by row, as it is sent."""
    side, transposed = G.shape[1], G.T.tocsr()
    packed, at = np.empty(side * (side + 1) // 2, dtype=kind), 0
    for start in range(0, side, _ROWS):
        for i, row in enumerate((transposed[start : start + _ROWS] @ G).toarray(), start):
            packed[at : at + side - i] = row[i:]
            at += side - i
    sent: Any = packed
    return np.asarray(sent)


def gram_products(G: sp.csr_array, B: Matrix) -> Point:
    """Return GᵀG B as it is sent; the triangle of GᵀG if B has no columns."""
    if B.shape[1] == 0:
        return packed_gram(G, B.dtype.type)
    return as_sent(np.asarray(G.T @ (G @ B)), B.dtype.type)


def gap_answer(own: Value, agent: Agent, certify: Callable[[Value], Value]) -> Program[Value]:
    """Return the answer of the root to products for the gap. Those to GᵀG itself are short."""
    is_whole = own[0].ndim == 1
    name = "gram" if is_whole else "gap"
    return (yield from network_answer(own, agent, certify, sparse_answer=is_whole, name=name))


class _Found(NamedTuple):
    """What a search knows: a lower bound and an upper bound of σ₁², and the error of the latter."""

    value: float
    bound: float
    noise: float


@final
class GapSearch:
    """The search for the gap at one x. Only the root has one. ``kind`` is the type of blocks in messages.

    GᵀG may be asked for whole if every row is ``with_one`` agent: it is then the sum of the agents' own. If
    sums are masked it is not: an entry may be the product of two ratings of one customer.
    """

    def __init__(
        self, agent: Agent, kind: type[np.floating[Any]] = np.float64, with_one: bool = False
    ) -> None:
        assert isinstance(agent.X, NuclearNormBall)
        self.agent = agent
        self.radius = agent.X.radius
        self.target = agent.target or GapTarget()
        self._kind, self._with_one = kind, with_one
        self._rounding = (agent.facts.agents + 2) * _ROUNDING if kind is np.float32 else 0.0
        self._search: tuple[ModelValue, GapEstimate, TopEigenvalue] | None = None
        self._whole: Matrix | None = None

    def end(self, at: ModelValue, bounds: Bounds) -> Value | None:
        """Return the end of the run if the best lower bound of f* so far certifies x, else None."""
        bounds.add_least(at.error - at.value, at.excess)
        gap = bounds.gap(at.decrease, at.at_start)
        return self._certify(gap) if gap.gap < math.inf else None

    def _certify(self, gap: CertifiedGap) -> Value | None:
        """Record a gap; return the end of the run if it ends it."""
        self.agent.certify(gap)
        if self.agent.target is None or not self.target.ends(gap):
            return None
        return (np.array([Command.STOP, *gap.as_array()]),)

    def begin(self, at: ModelValue, gap: GapEstimate, near: Matrix) -> Value | None:
        """Return the first block of vectors if the gap may be small enough, else None.

        ``near`` are vectors near the top singular vectors. A block of none asks for GᵀG.
        """
        if self.agent.target is None or gap.estimate * gap.trust > _LIKELY * self._threshold(at, gap):
            return None
        content = np.array([gap.estimate, at.decrease, gap.noise])
        search = TopEigenvalue.start(near, content_rng(near, content))
        is_whole = self._is_whole(search.block.shape[1], max(search.random.shape[1], near.shape[1] // 2))
        self._search, self._whole = (at, gap, search), None
        block = search.block[:, :0] if is_whole else search.block
        return np.array([Command.CERTIFY], dtype=np.float64), as_sent(block, self._kind)

    def _is_whole(self, first: int, later: int) -> bool:
        """Return True if GᵀG is sent in less time than products with blocks of so many vectors."""
        if not self._with_one or self.agent.secure is not None:
            return False
        link, side = self.agent.link or ASSUMED, min(self.agent.X.shape)
        column = np.dtype(self._kind).itemsize * side
        blocks = 2 * column * (first + _PRODUCTS * later)  # up and down
        more_rounds = 2 * self.agent.tree.height * _PRODUCTS
        return link.waiting(column * (side + 1) // 2) <= link.seconds(blocks, more_rounds)

    def judge(self, at: ModelValue, noise: float) -> None:
        """Take what is now known of the model whose gap is searched for, and the noise of ∇f."""
        assert self._search is not None
        _, gap, search = self._search
        self._search = at, gap._replace(noise=noise), search

    def found(self, known: int) -> tuple[Matrix, Matrix]:
        """Return vectors of the search beside the first ones, which are known, and GᵀG times them."""
        assert self._search is not None
        search, A = self._search[2], self._whole
        if A is None:
            return search.basis[:, known:], search.images[:, known:]
        first, block = search.block[:, :known], search.block[:, known:]
        for _ in range(_POWERS):
            block = A @ block
            block = np.linalg.qr(block - first @ (first.T @ block))[0]
        return block, A @ block

    def proceed(self, total: Value, bounds: Bounds, error: float = 0.0) -> tuple[Value | None, float]:
        """Return the next block, or the end of the run; None if the gap is too large, and by how much.

        ``total`` is Gᵀ(G B) for the block B and the gradient G at x, or the triangle of GᵀG; and ⟨G, x⟩. The
        number is the gap divided by its estimate. ``error`` bounds the length of the error of G B, where that
        is a sum as well.
        """
        assert self._search is not None
        at, (estimate, grad_noise, _), search = self._search
        image, (slope,) = total
        threshold = self._threshold(at, self._search[1])
        least = max(estimate, float(slope) + self.radius * _root(search.value))
        if image.ndim == 1:
            found = self._from_whole(image, search, _ACCURACY * threshold / self.radius)
        else:
            tolerance = max(_ACCURACY * threshold, _SHARE * (threshold - least)) / self.radius
            search.add(image.astype(np.float64), tolerance * (2.0 * _root(search.value) + tolerance))
            search.disturbance += self.agent.sum_noise(0, image.size) + error * _root(search.bound)
            search.relative += self._rounding * math.sqrt(image.shape[1])
            found = _Found(search.value, search.bound, search.noise)
        value, bound = _root(found.value), _root(found.bound)
        gap, least = (float(slope) + self.radius * sigma for sigma in (bound, value))
        noise = gap_noise(grad_noise, self.radius, 2.0 * self.radius) + float(np.max(self.agent.sum_error(1)))
        noise += self.radius * (_root(found.bound + found.noise) - bound)
        wolfe = CertifiedGap(gap, at.decrease, noise, at.at_start)
        bounds.add_wolfe(wolfe, at.error)
        best = bounds.best(wolfe, self.target)
        is_close = gap - least <= max(_ACCURACY * threshold, noise)
        is_over = least > threshold or is_close or image.ndim == 1 or search.ended
        if not (is_over or self.target.ends(best)):
            return (np.array([Command.CERTIFY], dtype=np.float64), as_sent(search.block, self._kind)), 1.0
        known = least if least > threshold else gap
        # At a gap of 0 there is nothing to learn about estimates.
        ratio = known / max(estimate, EPS * gap) if gap > 0.0 else 1.0
        return self._certify(best), min(_MOST_TRUST, ratio)

    def _from_whole(self, packed: Point, search: TopEigenvalue, tolerance: float) -> _Found:
        """Return what is known of σ₁² by all of A = GᵀG.

        Each of m + 2 roundings to float32 changes a partial sum P by at most 2⁻²⁴ ‖P‖, and ‖P‖² ≤ σ₁² tr A.
        """
        side = len(search.block)
        A = self._whole = symmetric(packed, side)
        trace, near = float(np.trace(A)), search.block
        scale = float(np.linalg.norm(A @ near[:, :1]))  # about σ₁²
        bound, error = largest_eigenvalue(
            A.__matmul__,
            near,
            content_rng(near, packed[:side]),
            2.0 * tolerance * math.sqrt(scale),
            max(A.shape),
        )
        error += math.sqrt(2.0) * self.agent.sum_noise(0, packed.size)
        error += 2.0 * self._rounding * math.sqrt(max(0.0, bound * trace))
        return _Found(bound, bound, error)

    def _threshold(self, at: ModelValue, gap: GapEstimate) -> float:
        """Return the largest gap that is small enough, or that is rounding error."""
        return max(self.target.threshold(at.decrease), self.radius * gap.noise)


def with_errors(numbers: Point, fixed: Point | float) -> list[float]:
    """Return the sums over agents that begin with f(x) − f(x⁰), its error, excess and noise.

    The errors of fixed point, of sums that are masked, are added to the three latter.
    """
    value, error, above, noise, *others = numbers.tolist()
    of_value, *errors = np.broadcast_to(fixed, numbers.shape)[:4].tolist()
    return [value, error + of_value + errors[0], above + errors[1], noise + errors[2], *others]


def _root(eigenvalue: float) -> float:
    """Return the singular value for an eigenvalue of GᵀG, which may be negative by rounding error."""
    return math.sqrt(max(0.0, eigenvalue))
