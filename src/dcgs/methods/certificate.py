"""The certificate by which the agents of FastDCGS stop: a Wolfe gap of f that they compute together.

It takes three epochs, each long enough for a message to reach every agent. In the first, agent 0's point is
broadcast as a model y. In the second, the vectors ∇fᵢ(y) + wᵢ are summed up along the edges by which y came,
so that agent 0 gets ∇f(y) and computes the Wolfe gap. In the third, the gap and f(y) are flooded, and all
agents come to the same decision in the same round. The first model is x⁰. All agents hold it, so that no
epoch is needed to broadcast it. Its gradients are summed up along the edges by which agent 0's scalars came
in the first epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import final

from dcgs.methods.base import Agent
from dcgs.methods.messages import AttachedVector, FloodedScalars, Message, Row
from dcgs.methods.target import CertifiedGap, gap_noise
from dcgs.points import EPS, Point, frozen, norm

WIDTH = 3
"""Scalars that an agent floods about a model: gap, decrease of its loss from x⁰, rounding error."""

# After a gap that was too large, the next model is sent when the residual has fallen by the factor that the
# gap must still fall by, up to this constant; and every _ALWAYS epochs in any case.
_TOLERANCE = 3.0
_ALWAYS = 10


class Phase(Enum):
    """What the epoch is used for."""

    BROADCAST = auto()
    """Agent 0 sends a model to all agents, or there is none."""
    REDUCE = auto()
    """Gradients at the model are summed up."""
    FLOOD = auto()
    """The gap is made known to all agents."""


@final
@dataclass(eq=False)
class Certificate:
    """One agent's part in the certificate. Without ``agent.target`` no model is ever sent.

    ``loss`` is fᵢ(x⁰). ``total`` is the sum of gradients so far, which goes to the agent ``parent``, and
    ``noise`` the rounding error of this agent's part of it. ``depth`` is the round of the epoch in which the
    model arrived. ``missing`` is the factor by which the gap of the last model must still fall, and
    ``residual`` the residual when that model was sent.
    """

    loss: float
    total: Point
    noise: float = 0.0
    phase: Phase = Phase.BROADCAST
    model: Point | None = None
    row: Row = (0.0,) * WIDTH
    unsent: AttachedVector | None = None
    depth: int = 0
    parent: int = 0
    missing: float = 1.0
    residual: float | None = None

    def join(self, parent: int, depth: int) -> None:
        """Note from whom agent 0's scalars came, and in which round: the way on which sums go back."""
        self.parent, self.depth = parent, depth

    def attached(self, agent: Agent, step: int) -> AttachedVector | None:
        """Return the vector to attach to the messages of this step of the epoch."""
        if self.phase is Phase.REDUCE:
            is_due = self.depth > 0 and step == agent.facts.graph_diameter - self.depth + 1
            return AttachedVector(self.total, self.parent) if is_due else None
        unsent, self.unsent = self.unsent, None
        return unsent

    def receive(self, agent: Agent, messages: Mapping[int, Message], step: int) -> None:
        """Process the vectors attached to the messages of this step."""
        received = {j: message.attached for j, message in messages.items() if message.attached is not None}
        if self.phase is Phase.REDUCE:
            for attached in received.values():
                if attached.to == agent.index:
                    self.total = self.total + attached.vector
        elif received and self.model is None:
            self.join(min(received), step)
            self.model = frozen(received[self.parent].vector)
            self.unsent = AttachedVector(self.model)

    def certified(self, agent: Agent, scalars: FloodedScalars) -> CertifiedGap | None:
        """Return the gap of the model if it ends the run; None before all agents know it."""
        if self.phase is not Phase.FLOOD or agent.target is None:
            return None
        at = CertifiedGap(*(scalars.total(column) for column in range(-WIDTH, 0)))
        if at.gap > 0.0:
            # The gap bounds the decrease that is still possible.
            self.missing = agent.target.threshold(at.decrease if at.decrease > 0.0 else at.gap) / at.gap
        return at if agent.target.ends(at) else None

    def start_epoch(self, agent: Agent, x: Point, w: Point, epoch: int, residual: float) -> None:
        """Enter the next phase; x and w are the agent's point and dual variable at the end of ``epoch``."""
        self.row, self.unsent = (0.0,) * WIDTH, None
        if self.residual is None and epoch > 0:
            # The scalars of the first epoch are older than all iterations.
            self.residual = residual
        if self.phase is Phase.REDUCE:
            self.phase = Phase.FLOOD
            self.row = self._scalars(agent)
        elif self.phase is Phase.BROADCAST and self.model is not None:
            self.phase = Phase.REDUCE
            image = agent.f.map.image(self.model)
            self.total = agent.f.map.adjoint(agent.f.loss.grad(image)) + w
            # The dual variables sum to zero up to a rounding error of each iteration.
            iterations = (epoch + 1) * (agent.facts.graph_diameter + 4)
            self.noise = agent.f.grad_noise(image) + math.sqrt(iterations) * EPS * norm(w)
        else:
            self.phase, self.model = Phase.BROADCAST, None
            if agent.target is not None and agent.index == 0 and self._is_due(epoch, residual):
                self.model = frozen(x)
                self.unsent = AttachedVector(self.model)

    def _scalars(self, agent: Agent) -> Row:
        """Return this agent's scalars about the model."""
        f, y = agent.f, self.model
        assert y is not None
        image = f.map.image(y)
        gap, noise = 0.0, self.noise * agent.X.diameter
        if agent.index == 0:
            gap = agent.wolfe_gap(self.total, y)
            noise = gap_noise(self.noise, self.total, y, agent.X.diameter)
        return gap, self.loss - f.loss.value(image), noise

    def _is_due(self, epoch: int, residual: float) -> bool:
        """Return True if a model is likely to have the required gap: the residual falls as its square."""
        assert self.residual is not None
        likely = residual <= self.residual * (_TOLERANCE * self.missing) ** 2
        if not likely and epoch % _ALWAYS:
            return False
        self.residual = residual
        return True
