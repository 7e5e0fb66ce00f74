"""The root of the spanning tree in FastDCGS for matrix completion, where every row is with one agent.

It decides on steps and when to stop.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

import numpy as np

from dcgs.low_rank import Matrix
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Bounds
from dcgs.methods.fast.completion_gap import Command, GapEstimate, GapSearch, ModelValue, with_errors
from dcgs.methods.reduction import Value
from dcgs.momentum import Momentum
from dcgs.sets.nuclear_norm_ball import NuclearNormBall, extended, onto_ball

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
        self._search = GapSearch(agent)
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
            return np.array([Command.BACK, 0.0, _INCREASE * L]), Q, none, state.V.T @ Q, none
        if ascent > 0.0:
            state.momentum = Momentum()
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
        Q = extended(B @ (T / sigma), min(wanted, self.side))
        V, M = Q[:, :rank], R @ (T[:, :rank] * c[:rank])
        numbers = np.array([Command.STEP, state.momentum.weight(), L])
        answer = numbers, Q, M, state.V.T @ Q, state.V_prev.T @ V
        state.V_prev, state.V = state.V, V
        return answer
