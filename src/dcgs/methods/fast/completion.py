"""FastDCGS for matrix completion: accelerated steps on a matrix that all agents hold in factors.

The gradient of f is sparse, and every agent has its own part of it. A step needs singular vectors of the
matrix Z = y − ∇f(y)/L. The agents multiply Z with a block Q of k vectors. Every row of the matrix is with one
agent here: its rows of the left factor stay there, and one sum of (columns + k) × k numbers goes to the root
of the spanning tree. ``completion_shared.py`` is for agents that share rows. ``completion_root.py`` has what
the root computes. The line numbers are those of the box "FastDCGS for matrix completion" in
docs/completion.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import final

import numpy as np

from dcgs.low_rank import LowRank, Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap, excess
from dcgs.methods.fast.completion_gap import Command
from dcgs.methods.fast.completion_root import Root, RootState
from dcgs.methods.reduction import Value, network_answer
from dcgs.objectives.sampling import SampledEntries, Sampling
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.nuclear_norm_ball import extended

# Vectors of the first block.
_FIRST = 8


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


def complete(agent: Agent) -> Program[LowRank]:
    """Run FastDCGS for matrix completion, for one agent that shares no rows."""
    worker = _Worker(agent)
    at = agent.restore(CompletionState) or worker.first_state()  # line 1
    root = Root(agent, at.root)
    for k in agent.iterations_left:  # line 2
        W, answer = yield from worker.block(at, root)  # lines 3 to 6
        while Command(int(answer[0][0])) is Command.CERTIFY:
            answer = yield from worker.gram_product(at, answer[1], root)
        command = Command(int(answer[0][0]))
        if command is Command.STOP:  # line 7
            agent.observe(k, worker.model(at))
            agent.agree(CertifiedGap.of(answer[0][1:].tolist()))
            return worker.model(at)
        worker.step(at, W, answer, is_back=command is Command.BACK)  # lines 8 and 9
        at.root = root.state
        agent.observe(k, worker.model(at))
        agent.save(k, at)
    return worker.model(at)


@final
class _Worker:
    """One agent's part of the method."""

    def __init__(self, agent: Agent) -> None:
        assert isinstance(agent.f.map, Sampling)
        self.agent = agent
        self.shape = agent.X.shape[0], agent.X.shape[1]
        self.entries = SampledEntries(agent.f.map, all_rows=False)

    def first_state(self) -> CompletionState:
        """Return the state before the first iteration."""
        start = self.agent.low_rank_start
        assert start is not None
        V, R = np.linalg.qr(start.V)
        U = start.rows_of(self.entries.rows) @ R.T
        Q = extended(V, min(max(_FIRST, 2 * start.rank), *self.shape))
        x = Iterate(U, self.entries.image(U, V), float(np.sum(U**2)))
        return CompletionState(x, x, Q, V.T @ Q, self.agent.facts.entry_smoothness or 1.0)

    def model(self, at: CompletionState) -> LowRank:
        """Return the model: the factors, with the rows that this agent has."""
        V = np.ascontiguousarray(at.Q[:, : at.x.rank])
        return LowRank(at.x.U, V, self.shape, self.entries.rows)

    def block(self, at: CompletionState, root: Root) -> Program[tuple[Matrix, Value]]:
        """Return this agent's rows of W = Z Q, and the answer of the root to the sums over all agents."""
        f, x, before, theta = self.agent.f, at.x, at.x_prev, at.theta
        image = x.image + theta * (x.image - before.image)  # line 3: y = x + θ (x − x_prev)
        grad = f.loss.grad(image)
        G = self.entries.adjoint(grad)
        GQ = np.asarray(G @ at.Q)
        slope = float(grad @ image)
        model = self.model(at)
        fall, error = self.agent.baseline.decrease(model, x.image)
        above = excess(f, f.loss.value(x.image)) + error
        numbers = np.array([-fall, error, above, f.grad_error(model, x.image), slope, *at.judged])
        W = -GQ / at.L  # line 4
        W[:, : x.rank] += (1.0 + theta) * x.U
        if theta:
            W -= theta * (before.U @ at.before)
        own = (np.asarray(G.T @ W), x.U.T @ W, before.U.T @ W, W.T @ W, GQ.T @ GQ, numbers)
        decide = partial(root.answer, at.Q, x.rank, theta, at.L)
        answer = yield from network_answer(own, self.agent, decide)  # lines 5 and 6
        return W, answer

    def gram_product(self, at: CompletionState, B: Matrix, root: Root) -> Program[Value]:
        """Return the answer of the root to Gᵀ(G B) and ⟨G, x⟩, for the gradient G at x."""
        grad = self.agent.f.loss.grad(at.x.image)
        G = self.entries.adjoint(grad)
        slope = np.array([float(grad @ at.x.image)])
        return (
            yield from network_answer(
                (np.asarray(G.T @ (G @ B)), slope), self.agent, root.certify, name="gap"
            )
        )

    def step(self, at: CompletionState, W: Matrix, answer: Value, is_back: bool) -> None:
        """Move x to the projection of Z that the root has found, or back if the last step was too long."""
        numbers, Q, M, before, with_prev = answer
        if is_back:
            at.x, at.dot, at.judged = at.x_prev, at.x_prev.squared, np.zeros(4)
        else:
            U = W @ M
            rank = U.shape[1]
            x = Iterate(U, self.entries.image(U, np.ascontiguousarray(Q[:, :rank])), float(np.sum(U**2)))
            # Inner products of matrices with the right factors V, V_prev: (U⁺ᵀ U) against V⁺ᵀ V.
            with_x = float(np.sum((at.x.U.T @ U) * before[:, :rank]))
            at.judged = self._judged(at, x, with_x, float(np.sum((at.x_prev.U.T @ U) * with_prev)))
            at.x_prev, at.x, at.dot = at.x, x, with_x
        at.Q, at.before = Q, before
        _, at.theta, at.L = numbers.tolist()

    def _judged(self, at: CompletionState, x: Iterate, with_x: float, with_prev: float) -> Point:
        """Return this agent's part of what decides about the step from y to the new x.

        That is f(y) − f(x⁰), ⟨∇f(y), x − y⟩, ‖x − y‖², and ⟨y − x, x − x_before⟩.
        """
        loss, t = self.agent.f.loss, at.theta
        image = at.x.image + t * (at.x.image - at.x_prev.image)
        y_x = (1.0 + t) * with_x - t * with_prev
        y_y = (1.0 + t) ** 2 * at.x.squared - 2.0 * t * (1.0 + t) * at.dot + t**2 * at.x_prev.squared
        y_before = (1.0 + t) * at.x.squared - t * at.dot
        slope = float(loss.grad(image) @ (x.image - image))
        squared = x.squared - 2.0 * y_x + y_y
        ascent = y_x - y_before - x.squared + with_x
        fall, _ = loss.decrease(self.agent.baseline.image, image)
        return np.array([-fall, slope, squared, ascent])
