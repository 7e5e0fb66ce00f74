"""FastDCGS for matrix completion where agents share rows: one sum an iteration.

All agents hold the same iterates in factors, and blocks of k orthonormal vectors on both sides, which begin
with the factors of x. A step needs singular vectors of Z = y − ∇f(y)/L. The agents multiply their part of the
gradient with both blocks, and the root of the spanning tree finds the nearest point of X to the part of Z
that these products determine. The line numbers are those of the box "Shared rows" in docs/completion.md.
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
from dcgs.methods.fast.completion_shared_root import FEWEST, Blocks, SharedRoot, SharedRootState
from dcgs.methods.reduction import Value, network_answer
from dcgs.objectives.sampling import SampledEntries, Sampling
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.nuclear_norm_ball import extended

# The first L, relative to the largest second derivative of an entry.
_SHORTER = 0.75


@final
@dataclass(eq=False)
class SharedState:
    """The last two iterates in factors, their observed entries here, and what the next step depends on.

    ``theta`` is the weight of the momentum, ``L`` the smoothness in use. ``judged`` has this agent's parts of
    f(y) − f(x⁰) and ⟨∇f(y), x − y⟩ of the last step. ``root`` is that of the root only.
    """

    blocks: Blocks
    blocks_prev: Blocks
    image: Point
    image_prev: Point
    L: float
    theta: float = 0.0
    judged: Point = field(default_factory=lambda: np.zeros(2))
    root: SharedRootState | None = None


def complete_shared(agent: Agent) -> Program[LowRank]:
    """Run FastDCGS for matrix completion, for one agent of those that share rows."""
    worker = _Worker(agent)
    at = agent.restore(SharedState) or worker.first_state()  # line 1
    root = SharedRoot(agent, at.root)
    for k in agent.iterations_left:  # line 2
        answer = yield from worker.products(at, root)  # lines 3 to 6
        while Command(int(answer[0][0])) is Command.CERTIFY:
            answer = yield from worker.gram_product(at, answer[1], root)
        command = Command(int(answer[0][0]))
        if command is Command.STOP:  # line 7
            agent.observe(k, worker.model(at))
            agent.agree(CertifiedGap.of(answer[0][1:].tolist()))
            return worker.model(at)
        worker.step(at, answer, is_back=command is Command.BACK)  # lines 8 and 9
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
        self.entries = SampledEntries(agent.f.map, all_rows=True)

    def first_state(self) -> SharedState:
        """Return the state before the first iteration."""
        start = self.agent.low_rank_start
        assert start is not None
        U, R = np.linalg.qr(start.rows_of(self.entries.rows))
        V, S = np.linalg.qr(start.V)
        u, c, vt = np.linalg.svd(R @ S.T)
        columns = min(max(FEWEST, 2 * start.rank), *self.shape)
        x = Blocks(extended(U @ u, columns), extended(V @ vt.T, columns), c)
        image = self.entries.image(x.left_factor, x.right_factor)
        return SharedState(x, x, image, image, _SHORTER * (self.agent.facts.entry_smoothness or 1.0))

    def model(self, at: SharedState) -> LowRank:
        """Return the model in factors."""
        return LowRank(at.blocks.left_factor, at.blocks.right_factor, self.shape)

    def products(self, at: SharedState, root: SharedRoot) -> Program[Value]:
        """Return the answer of the root to the gradient's products with both blocks."""
        f = self.agent.f
        image = at.image + at.theta * (at.image - at.image_prev)  # line 3
        grad = f.loss.grad(image)
        G = self.entries.adjoint(grad)
        slope = float(grad @ image)
        model = self.model(at)
        fall, error = self.agent.baseline.decrease(model, at.image)
        above = excess(f, f.loss.value(at.image)) + error
        numbers = np.array([-fall, error, above, f.grad_error(model, at.image), slope, *at.judged])
        own = (np.asarray(G @ at.blocks.right), np.asarray(G.T @ at.blocks.left), numbers)  # line 4
        decide = partial(root.answer, at.blocks, at.blocks_prev, at.theta, at.L)
        return (yield from network_answer(own, self.agent, decide))  # lines 5 and 6

    def gram_product(self, at: SharedState, B: Matrix, root: SharedRoot) -> Program[Value]:
        """Return the answer of the root to Gᵀ(G B) and ⟨G, x⟩, for the gradient G at x.

        G B is summed first: Gᵀ G is not the sum of the agents' products.
        """
        grad = self.agent.f.loss.grad(at.image)
        G = self.entries.adjoint(grad)
        slope = np.array([float(grad @ at.image)])
        (GB,) = yield from network_answer((np.asarray(G @ B),), self.agent, root.product, name="product")
        return (
            yield from network_answer((np.asarray(G.T @ GB), slope), self.agent, root.certify, name="gap")
        )

    def step(self, at: SharedState, answer: Value, is_back: bool) -> None:
        """Move x to the point that the root has found, or back if the last step was too long."""
        numbers, left, right, c = answer
        _, theta, L, columns = numbers.tolist()
        x = Blocks(extended(left, int(columns)), extended(right, int(columns)), c)
        image = self.entries.image(x.left_factor, x.right_factor)
        loss, y = self.agent.f.loss, at.image + at.theta * (at.image - at.image_prev)
        fall, _ = loss.decrease(self.agent.baseline.image, y)
        at.judged = np.array([-fall, float(loss.grad(y) @ (image - y))])
        before = (x, image) if is_back else (at.blocks, at.image)
        at.blocks_prev, at.image_prev = before
        at.blocks, at.image, at.theta, at.L = x, image, theta, L
