"""FastDCGS for matrix completion where agents share rows: one sum an iteration.

All agents hold the same iterates in factors, and blocks of k orthonormal vectors on both sides, which begin
with the factors of x. A step needs singular vectors of Z = y − ∇f(y)/L. The agents multiply their part of the
gradient with both blocks, and the root of the spanning tree finds the nearest point of X to the part of Z
that these products determine. The line numbers are those of the box "Shared rows" in docs/completion.md.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any, final

import numpy as np

from dcgs.low_rank import LowRank, Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Bounds
from dcgs.methods.fast.completion import Form, LocalRatings
from dcgs.methods.fast.completion_gap import (
    Command,
    GapEstimate,
    GapSearch,
    ModelValue,
    as_sent,
    block_type,
    rounded,
    with_errors,
)
from dcgs.methods.reduction import Value, network_answer
from dcgs.momentum import Momentum
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.nuclear_norm_ball import NuclearNormBall, extended, onto_ball

# The first L, relative to the largest second derivative of an entry.
_SHORTER = 0.75
# Blocks have _SPARE + rank // _SHARE vectors more than x, and at least FEWEST.
_SPARE, _SHARE = 4, 8
FEWEST = 12
"""The least number of vectors of a block, and that of the first."""
# Triples are left out of a step whose change of Z is at most this share of the length of the step.
_SIGMA = 0.3
# Singular values below this share of the largest are rounding error.
_LEAST = 1e-12
# The momentum is greater than FISTA's by this, until it leads uphill.
_AHEAD = 0.1
# Blocks that are float32 are so while steps are longer than this share of x.
_LONG = 1e-4
# A smoothness that was too small is multiplied by this factor, once it is that of an entry.
_INCREASE = 2.0


@final
@dataclass(frozen=True, eq=False)
class Blocks:
    """Orthonormal vectors on both sides; x = Σᵢ cᵢ leftᵢ rightᵢᵀ is made of the first of them."""

    left: Matrix
    right: Matrix
    c: Point

    @property
    def left_factor(self) -> Matrix:
        """The left factor of x."""
        return self.left[:, : len(self.c)] * self.c

    @property
    def right_factor(self) -> Matrix:
        """The right factor of x."""
        return np.ascontiguousarray(self.right[:, : len(self.c)])

    def dot(self, other: Blocks) -> float:
        """Return the inner product of the two matrices x."""
        left, right = self.left_factor.T @ other.left_factor, self.right_factor.T @ other.right_factor
        return float(np.sum(left * right))


@final
@dataclass(eq=False)
class SharedRootState:
    """The momentum, ‖x − y‖² of the last step (0 if it was undone), and how far estimates were off.

    ``bounds`` has the best lower bound of f*. ``is_rounded`` is True while blocks are float32.
    """

    is_rounded: bool
    momentum: Momentum = field(default_factory=Momentum)
    squared: float = 0.0
    trust: float = 1.0
    bounds: Bounds = field(default_factory=Bounds)


@final
@dataclass(eq=False)
class SharedState:
    """The last two iterates in factors, their observed entries here, and what the next step depends on.

    ``theta`` is the weight of the momentum, ``L`` the smoothness in use. ``judged`` has this agent's parts of
    f(y) − f(x⁰) and ⟨∇f(y), x − y⟩ of the last step. If ``is_rounded``, blocks are sent as float32.
    ``root`` is that of the root only.
    """

    blocks: Blocks
    blocks_prev: Blocks
    image: Point
    image_prev: Point
    L: float
    is_rounded: bool
    theta: float = 0.0
    judged: Point = field(default_factory=lambda: np.zeros(2))
    root: SharedRootState | None = None


@final
class SharedRows(Form):
    """The form for agents that share rows."""

    def __init__(self, agent: Agent) -> None:
        self.agent, self.ratings = agent, LocalRatings(agent, all_rows=True)
        self.entries, self.shape = self.ratings.entries, self.ratings.shape
        self.at = agent.restore(SharedState) or self._first_state()
        self.root = SharedRoot(agent, self.at.root)

    @property
    def state(self) -> SharedState:
        self.at.root = self.root.state
        return self.at

    def _first_state(self) -> SharedState:
        """Return the state before the first iteration."""
        start = self.agent.low_rank_start
        assert start is not None
        U, R = np.linalg.qr(start.rows_of(self.entries.rows))
        V, S = np.linalg.qr(start.V)
        u, c, vt = np.linalg.svd(R @ S.T)
        columns = min(max(FEWEST, 2 * start.rank), *self.shape)
        x = Blocks(extended(U @ u, columns), extended(V @ vt.T, columns), c)
        image = self.entries.image(x.left_factor, x.right_factor)
        agent, L = self.agent, _SHORTER * (self.agent.facts.entry_smoothness or 1.0)
        is_rounded = block_type(agent) is np.float32 or (agent.target is None and agent.secure is None)
        return SharedState(x, x, image, image, L, is_rounded)

    @property
    def model(self) -> LowRank:
        return LowRank(self.at.blocks.left_factor, self.at.blocks.right_factor, self.shape)

    def products(self) -> Program[Value]:
        at = self.at
        image = at.image + at.theta * (at.image - at.image_prev)  # line 3
        G, slope = self.ratings.gradient(image)
        numbers = np.array([*self.ratings.numbers(self.model, at.image), slope, *at.judged])
        products = np.asarray(G @ at.blocks.right), np.asarray(G.T @ at.blocks.left)  # line 4
        own = *(as_sent(product, _kind(at.is_rounded)) for product in products), numbers
        decide = partial(self.root.answer, at.blocks, at.blocks_prev, at.theta, at.L)
        return (yield from network_answer(own, self.agent, decide))  # lines 5 and 6

    def gram_product(self, B: Matrix) -> Program[Value]:
        # G B is summed first: Gᵀ G is not the sum of the agents' products.
        G, slope = self.ratings.gradient(self.at.image)
        (GB,) = yield from network_answer((np.asarray(G @ B),), self.agent, self.root.product, name="product")
        own = np.asarray(G.T @ GB), np.array([slope])
        return (yield from network_answer(own, self.agent, self.root.certify, name="gap"))

    def step(self, answer: Value, is_back: bool) -> None:
        at, (numbers, left, right, c) = self.at, answer
        _, theta, L, columns = numbers.tolist()
        left, right = (extended(block.astype(np.float64), int(columns)) for block in (left, right))
        x, at.is_rounded = Blocks(left, right, c), answer[1].dtype == np.float32
        image = self.entries.image(x.left_factor, x.right_factor)
        loss, y = self.agent.f.loss, at.image + at.theta * (at.image - at.image_prev)
        fall, _ = loss.decrease(self.agent.baseline.image, y)
        at.judged = np.array([-fall, float(loss.grad(y) @ (image - y))])
        before = (x, image) if is_back else (at.blocks, at.image)
        at.blocks_prev, at.image_prev = before
        at.blocks, at.image, at.theta, at.L = x, image, theta, L


@final
@dataclass(frozen=True, eq=False)
class _Extrapolated:
    """y = x + θ (x − x_prev), in factors, and the smoothness L with which Z = y − ∇f(y)/L is made."""

    x: Blocks
    x_prev: Blocks
    theta: float
    L: float

    def times(self, Q: Matrix) -> Matrix:
        """Return y Q."""
        ahead = (1.0 + self.theta) * (self.x.left_factor @ (self.x.right_factor.T @ Q))
        return ahead - self.theta * (self.x_prev.left_factor @ (self.x_prev.right_factor.T @ Q))

    def transposed_times(self, Q: Matrix) -> Matrix:
        """Return yᵀ Q."""
        ahead = (1.0 + self.theta) * (self.x.right_factor @ (self.x.left_factor.T @ Q))
        return ahead - self.theta * (self.x_prev.right_factor @ (self.x_prev.left_factor.T @ Q))

    def dot(self, other: Blocks) -> float:
        """Return the inner product with another matrix."""
        return (1.0 + self.theta) * self.x.dot(other) - self.theta * self.x_prev.dot(other)

    @property
    def squared(self) -> float:
        """‖y‖²."""
        return (1.0 + self.theta) * self.dot(self.x) - self.theta * self.dot(self.x_prev)


@final
class SharedRoot:
    """What the root computes; other agents have one and do not call it."""

    def __init__(self, agent: Agent, state: SharedRootState | None) -> None:
        assert isinstance(agent.X, NuclearNormBall)
        self.radius = agent.X.radius
        self.side = min(agent.X.shape)
        self.smoothness = agent.facts.entry_smoothness
        self.state = state
        self._search = GapSearch(agent)
        self._error = 0.0  # of the last product with the gradient, where sums are masked
        self._sums: tuple[_Extrapolated, Matrix, Matrix] | None = None

    def answer(self, x: Blocks, x_prev: Blocks, theta: float, L: float, total: Value) -> Value:
        """Return what follows from the sums over all agents; x, θ and L are those they were made with."""
        GQ, GtQ, numbers = total
        value, error, above, noise, slope, before, promised = with_errors(
            numbers, self._search.agent.sum_error(2)
        )
        at_start = self.state is None
        state = self.state = self.state or SharedRootState(GQ.dtype == np.float32)
        at = ModelValue(value, error, above, at_start)
        end = self._search.end(at, state.bounds)
        if end is not None:
            return end
        bound = before + promised + 0.5 * L * state.squared
        if state.squared > 0.0 and value > bound + error:
            state.momentum, state.squared = Momentum(), 0.0
            larger = self.smoothness if self.smoothness > L else _INCREASE * L
            return _described(state, Command.BACK, x_prev, 0.0, larger)
        GQ, GtQ = GQ.astype(np.float64), GtQ.astype(np.float64)
        estimate = slope + self.radius * float(np.linalg.norm(GQ, 2))
        self._sums = _Extrapolated(x, x_prev, theta, L), GQ, GtQ
        gap = GapEstimate(estimate, noise, state.trust)
        return self._search.begin(at, gap, x.right) or self._step(state)

    def product(self, total: Value) -> Value:
        """Return the product with the gradient that all agents get, and keep the error of its sum."""
        self._error = self._search.agent.sum_noise(0, total[0].size)
        return total

    def certify(self, total: Value) -> Value:
        """Return the next block of the certificate, or what follows from the gap at x."""
        assert self.state is not None
        answer, ratio = self._search.proceed(total, self.state.bounds, self._error)
        self.state.trust = max(self.state.trust, ratio)
        return answer or self._step(self.state)

    def _step(self, state: SharedRootState) -> Value:
        """Return the step to the nearest point of X to the part of Z that the products determine.

        With A = Z Q and B = Zᵀ P, for the blocks P and Q, that part is P Bᵀ + (I − P Pᵀ) A Qᵀ.
        """
        assert self._sums is not None
        y, GQ, GtQ = self._sums
        P, Q = y.x.left, y.x.right
        A, B = y.times(Q) - GQ / y.L, y.transposed_times(P) - GtQ / y.L
        C = P.T @ A
        P_new, R_left = _rest(A, P)
        Q_new, R_right = _rest(B, Q)
        core = np.block([[C, R_right.T], [R_left, np.zeros((len(R_left), len(R_right)))]])
        u, sigma, vt = np.linalg.svd(core)
        count = min(self.side, int(np.count_nonzero(sigma > _LEAST * sigma[0])))
        left = _orthonormal(np.hstack([P, P_new]) @ u[:, :count])
        right = _orthonormal(np.hstack([Q, Q_new]) @ vt[:count].T)

        def projected(rank: int) -> Blocks:
            c = onto_ball(sigma[:rank], self.radius) if rank else sigma[:0]
            return Blocks(left, right, c[: int(np.count_nonzero(c))])

        whole = projected(count)
        length = np.sqrt(max(0.0, _distance(whole, y)))
        rank = _rank(sigma[:count], self.radius, _SIGMA * float(length))
        x = projected(rank)
        state.is_rounded = state.is_rounded and _distance(x, y) > _LONG**2 * x.dot(x)
        if state.is_rounded:
            x = _rounded(x)
        state.squared = max(0.0, _distance(x, y))
        uphill = y.dot(x) - x.dot(x) - y.dot(y.x) + x.dot(y.x) > 0.0
        theta = 0.0 if uphill else _AHEAD
        theta = min(1.0, theta + state.momentum.weight(restart=uphill))
        columns = min(max(FEWEST, len(x.c) + len(x.c) // _SHARE + _SPARE), self.side)
        kept = Blocks(x.left[:, :columns], x.right[:, :columns], x.c)
        return _described(state, Command.STEP, kept, theta, y.L, columns)


def _rounded(x: Blocks) -> Blocks:
    """Return x in float32; vectors that are no longer orthonormal may not lead out of the ball."""
    left, right = (rounded(block, np.float32) for block in (x.left, x.right))
    lengths = [float(np.linalg.norm(block[:, : len(x.c)], 2)) for block in (left, right) if len(x.c)]
    return Blocks(left, right, x.c / max(1.0, math.prod(lengths)))


def _kind(is_rounded: bool) -> type[np.floating[Any]]:
    return np.float32 if is_rounded else np.float64


def _described(
    state: SharedRootState, command: Command, x: Blocks, theta: float, L: float, columns: int | None = None
) -> Value:
    """Return the answer as arrays; agents extend the blocks to this number of columns."""
    columns = x.left.shape[1] if columns is None else columns
    blocks = (as_sent(block, _kind(state.is_rounded)) for block in (x.left, x.right))
    return np.array([command, theta, L, columns], dtype=np.float64), *blocks, x.c


def _rest(A: Matrix, P: Matrix) -> tuple[Matrix, Matrix]:
    """Return an orthonormal basis of the part of A that is orthogonal to P, and its coefficients."""
    rest = A - P @ (P.T @ A)
    rest = rest - P @ (P.T @ rest)  # twice, because one pass leaves rounding errors
    basis, coefficients = np.linalg.qr(rest)
    return basis, coefficients


def _orthonormal(block: Matrix) -> Matrix:
    """Return the block with its rounding errors removed."""
    basis, coefficients = np.linalg.qr(block)
    return np.asarray(basis * np.where(np.diag(coefficients) < 0.0, -1.0, 1.0))


def _distance(x: Blocks, y: _Extrapolated) -> float:
    """Return ‖x − y‖², up to rounding error."""
    return x.dot(x) - 2.0 * y.dot(x) + y.squared


def _rank(sigma: Point, radius: float, tolerance: float) -> int:
    """Return the least number of singular values whose projection is that of a matrix near enough.

    If all triples but the first r are left out, and τ is the threshold that their projection subtracts, then
    this is the projection of a matrix at the distance √Σ_{i > r} max(σᵢ − τ, 0)².
    """
    excess = (np.cumsum(sigma) - radius) / np.arange(1, len(sigma) + 1)
    tau = np.maximum(np.maximum.accumulate(excess), 0.0)
    rank = len(sigma)
    while rank > 1:
        left_out = np.maximum(sigma[rank - 1 :] - tau[rank - 2], 0.0)
        if np.sqrt(left_out @ left_out) > tolerance:
            break
        rank -= 1
    return rank
