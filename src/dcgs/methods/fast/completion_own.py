"""Matrix completion where every row is with one agent: its rows of the left factor stay there.

The agents multiply Z = y − ∇f(y)/L with a block Q of k vectors, and one sum of (columns + k) × k numbers goes
to the root of the spanning tree. The line numbers are those of the box "FastDCGS for matrix completion" in
docs/completion.md.
"""

from __future__ import annotations

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
    gap_answer,
    gram_products,
    rounded,
    with_errors,
)
from dcgs.methods.reduction import Value, network_answer
from dcgs.momentum import Momentum
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.nuclear_norm_ball import NuclearNormBall, extended, onto_ball

# Vectors of the first block.
_FIRST = 8
# A block has _SPARE + rank // _SHARE vectors more than the last step needed; if all were needed, it grows by
# the factor _GROWTH.
_SPARE, _SHARE, _GROWTH = 6, 6, 1.6
# Singular values below this share of the largest are rounding error.
_LEAST = 1e-13
# A smoothness that was too small is multiplied by this factor.
_INCREASE = 2.0


@final
@dataclass(eq=False)
class RootState:
    """The right factors of the last two iterates, the momentum, and how far estimates were off.

    ``bounds`` has the best lower bound of f*.
    """

    V: Matrix
    V_prev: Matrix
    momentum: Momentum = field(default_factory=Momentum)
    trust: float = 1.0
    bounds: Bounds = field(default_factory=Bounds)


@final
@dataclass(eq=False)
class Iterate:
    """This agent's rows of the left factor U, and the observed entries; the right factor is V = Q[:, :rank].

    ``squared`` is the sum of the squares of all entries in the rows of this agent.
    """

    U: Matrix
    image: Point
    squared: float

    @property
    def rank(self) -> int:
        """The number of columns of U."""
        return int(self.U.shape[1])


@final
@dataclass(eq=False)
class CompletionState:
    """The last two iterates, and what the next step depends on.

    ``Q`` is the block of the next products; ``before`` is V_prevᵀ Q, for the right factor of the iterate
    before. ``theta`` is the weight of the momentum, ``L`` the smoothness in use. ``dot`` is the inner product
    of the two iterates in the rows of this agent. ``judged`` has this agent's part of what decides about
    the last step. ``root`` is that of the root only.
    """

    x: Iterate
    x_prev: Iterate
    Q: Matrix
    before: Matrix
    L: float
    dot: float = 0.0
    theta: float = 0.0
    judged: Point = field(default_factory=lambda: np.zeros(4))
    root: RootState | None = None


def first_state(
    agent: Agent, ratings: LocalRatings, U: Matrix, Q: Matrix, root: RootState | None = None
) -> CompletionState:
    """Return the state before the first step from U Vᵀ, where V are the first columns of the block Q."""
    V = np.ascontiguousarray(Q[:, : U.shape[1]])
    x = Iterate(U, ratings.entries.image(U, V), float(np.sum(U**2)))
    return CompletionState(x, x, Q, V.T @ Q, agent.facts.entry_smoothness or 1.0, root=root)


@final
class OwnRows(Form):
    """The form for agents that share no rows."""

    def __init__(self, agent: Agent, state: CompletionState | None = None) -> None:
        self.agent, self.ratings = agent, LocalRatings(agent, all_rows=False)
        self.entries, self.shape = self.ratings.entries, self.ratings.shape
        self.at = state or agent.restore(CompletionState) or self._first_state()
        self.root = Root(agent, self.at.root)
        self._W: Matrix = np.empty((0, 0))

    @property
    def state(self) -> CompletionState:
        self.at.root = self.root.state
        return self.at

    def _first_state(self) -> CompletionState:
        """Return the state before the first iteration."""
        start = self.agent.low_rank_start
        assert start is not None
        V, R = np.linalg.qr(start.V)
        U = start.rows_of(self.entries.rows) @ R.T
        Q = extended(V, min(max(_FIRST, 2 * start.rank), *self.shape))
        return first_state(self.agent, self.ratings, U, Q)

    @property
    def model(self) -> LowRank:
        V = np.ascontiguousarray(self.at.Q[:, : self.at.x.rank])
        return LowRank(self.at.x.U, V, self.shape, self.entries.rows)

    def products(self) -> Program[Value]:
        at = self.at
        x, before, theta = at.x, at.x_prev, at.theta
        image = x.image + theta * (x.image - before.image)  # line 3: y = x + θ (x − x_prev)
        G, slope = self.ratings.gradient(image)
        GQ = np.asarray(G @ at.Q)
        numbers = np.array([*self.ratings.numbers(self.model, x.image), slope, *at.judged])
        W = -GQ / at.L  # line 4
        W[:, : x.rank] += (1.0 + theta) * x.U
        if theta:
            W -= theta * (before.U @ at.before)
        self._W = W
        own = (
            as_sent(np.asarray(G.T @ W), block_type(self.agent)),
            x.U.T @ W,
            before.U.T @ W,
            W.T @ W,
            GQ.T @ GQ,
            numbers,
        )
        decide = partial(self.root.answer, at.Q, x.rank, theta, at.L)
        return (yield from network_answer(own, self.agent, decide))  # lines 5 and 6

    def gram_product(self, B: Matrix) -> Program[Value]:
        G, slope = self.ratings.gradient(self.at.x.image)
        own = gram_products(G, B), np.array([slope])
        return (yield from gap_answer(own, self.agent, self.root.certify))

    def step(self, answer: Value, is_back: bool) -> None:
        at, (numbers, Q, M, before, with_prev) = self.at, answer
        Q = Q.astype(np.float64)
        if is_back:
            at.x, at.dot, at.judged = at.x_prev, at.x_prev.squared, np.zeros(4)
        else:
            U = self._W @ M
            rank = U.shape[1]
            x = Iterate(U, self.entries.image(U, np.ascontiguousarray(Q[:, :rank])), float(np.sum(U**2)))
            # Inner products of matrices with the right factors V, V_prev: (U⁺ᵀ U) against V⁺ᵀ V.
            with_x = float(np.sum((at.x.U.T @ U) * before[:, :rank]))
            at.judged = self._judged(x, with_x, float(np.sum((at.x_prev.U.T @ U) * with_prev)))
            at.x_prev, at.x, at.dot = at.x, x, with_x
        at.Q, at.before = Q, before
        _, at.theta, at.L = numbers.tolist()

    def _judged(self, x: Iterate, with_x: float, with_prev: float) -> Point:
        """Return this agent's part of what decides about the step from y to the new x.

        That is f(y) − f(x⁰), ⟨∇f(y), x − y⟩, ‖x − y‖², and ⟨y − x, x − x_before⟩.
        """
        at, loss, t = self.at, self.agent.f.loss, self.at.theta
        image = at.x.image + t * (at.x.image - at.x_prev.image)
        y_x = (1.0 + t) * with_x - t * with_prev
        y_y = (1.0 + t) ** 2 * at.x.squared - 2.0 * t * (1.0 + t) * at.dot + t**2 * at.x_prev.squared
        y_before = (1.0 + t) * at.x.squared - t * at.dot
        slope = float(loss.grad(image) @ (x.image - image))
        squared = x.squared - 2.0 * y_x + y_y
        ascent = y_x - y_before - x.squared + with_x
        fall, _ = loss.decrease(self.agent.baseline.image, image)
        return np.array([-fall, slope, squared, ascent])


@final
class Root:
    """What the root computes; other agents have one and do not call it.

    Its answer has the command, θ and L; the next block Q, whose first columns are the right factor of the new
    x; M, with U = W M the left factor; and Vᵀ Q and V_prevᵀ V⁺, for the right factors of the iterates before.
    """

    def __init__(self, agent: Agent, state: RootState | None) -> None:
        assert isinstance(agent.X, NuclearNormBall)
        self.radius = agent.X.radius
        self.side = min(agent.X.shape)
        self.state = state
        self.kind: type[np.floating[Any]] = block_type(agent)
        self._search = GapSearch(agent, self.kind, with_one=True)
        self._sums: tuple[Matrix, Matrix, float] | None = None  # Zᵀ Z Q, (Z Q)ᵀ Z Q, and L

    def answer(self, Q: Matrix, rank: int, theta: float, L: float, total: Value) -> Value:
        """Return what follows from the sums over all agents; Q, θ and L are those they were made with."""
        S, T, T_prev, C, CG, numbers = total
        value, error, above, noise, slope, before, promised, squared, ascent = with_errors(
            numbers, self._search.agent.sum_error(5)
        )
        at_start = self.state is None
        state = self.state = self.state or RootState(Q[:, :rank], Q[:, :rank])
        at = ModelValue(value, error, above, at_start)
        end = self._search.end(at, state.bounds)
        if end is not None:
            return end
        bound = before + promised + 0.5 * L * squared
        if squared > 0.0 and value > bound + error:  # the last step was too long
            state.V, state.momentum = state.V_prev, Momentum()
            Q = extended(state.V, min(max(Q.shape[1], state.V.shape[1]), self.side))
            none = np.zeros((0, 0))
            Q = rounded(Q, self.kind)
            numbers = np.array([Command.BACK, 0.0, _INCREASE * L])
            return numbers, as_sent(Q, self.kind), none, state.V.T @ Q, none
        if ascent > 0.0:
            state.momentum = Momentum()
        S = S.astype(np.float64)
        P = (1.0 + theta) * (state.V @ T) - theta * (state.V_prev @ T_prev) - S / L
        estimate = slope + self.radius * float(np.sqrt(max(0.0, np.linalg.eigvalsh(CG)[-1])))
        self._sums = P, C, L
        return self._search.begin(at, GapEstimate(estimate, noise, state.trust), Q) or self._step(state)

    def certify(self, total: Value) -> Value:
        """Return the next block of the certificate, or what follows from the gap at x."""
        assert self.state is not None
        answer, ratio = self._search.proceed(total, self.state.bounds)
        self.state.trust = max(self.state.trust, ratio)
        return answer or self._step(self.state)

    def _step(self, state: RootState) -> Value:
        """Return the step to the projection of Z, from the singular triples that the block gives."""
        assert self._sums is not None
        P, C, L = self._sums
        values, R = np.linalg.eigh(C)
        kept = values > _LEAST * float(values[-1])
        R = R[:, kept] / np.sqrt(values[kept])  # W R is orthonormal
        B = P @ R  # Zᵀ W R
        squares, T = np.linalg.eigh(B.T @ B)
        sigma = np.sqrt(np.maximum(squares[::-1], 0.0))
        positive = sigma > _LEAST * float(sigma[0])
        sigma, T = sigma[positive], T[:, ::-1][:, positive]
        c = onto_ball(sigma, self.radius)
        rank = int(np.count_nonzero(c))
        wanted = rank + rank // _SHARE + _SPARE if rank < len(sigma) else round(_GROWTH * rank) + _SPARE
        Q = rounded(extended(B @ (T / sigma), min(wanted, self.side)), self.kind)
        V, M = Q[:, :rank], R @ (T[:, :rank] * c[:rank])
        if self.kind is np.float32:  # V is orthonormal up to rounding: x must stay in the ball
            M /= max(1.0, float(np.linalg.norm(V, 2)))
        numbers = np.array([Command.STEP, state.momentum.weight(), L])
        answer = numbers, as_sent(Q, self.kind), M, state.V.T @ Q, state.V_prev.T @ V
        state.V_prev, state.V = state.V, V
        return answer
