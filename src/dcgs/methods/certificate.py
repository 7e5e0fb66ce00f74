"""The certificate by which the agents of FastDCGS stop: a Wolfe gap of f that they compute together.

It takes three epochs, each long enough for a message to reach every agent. In the first, agent 0's point is
broadcast as a model y. In the second, the vectors ∇fᵢ(y) + wᵢ are summed up along the edges by which y came,
so that agent 0 gets ∇f(y) and computes the Wolfe gap. In the third, the gap and f(y) are flooded, and all
agents come to the same decision in the same round.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import final

from dcgs.methods.base import Agent
from dcgs.methods.messages import AttachedVector, FloodedScalars, Message, Row
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
    """One agent's part in the certificate. Without ``agent.gap`` no model is ever sent.

    ``loss`` is fᵢ(x⁰). ``total`` is the sum of gradients so far, which goes to the agent ``parent``;
    ``depth`` is the round of the epoch in which the model arrived. ``gap`` is that of the last model relative
    to the decrease of f, and ``residual`` the residual when it was sent.
    """

    loss: float
    total: Point
    phase: Phase = Phase.BROADCAST
    model: Point | None = None
    row: Row = (0.0,) * WIDTH
    unsent: AttachedVector | None = None
    depth: int = 0
    parent: int = 0
    gap: float = 1.0
    residual: float | None = None

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
            self.parent = min(received)
            self.depth = step
            self.model = frozen(received[self.parent].vector)
            self.unsent = AttachedVector(self.model)

    def certified(self, agent: Agent, scalars: FloodedScalars) -> Point | None:
        """Return the model if its gap is small enough, once all agents know it; the same at every agent.

        The required gap is relative to the gap at x⁰, which is at least f(x⁰) − f(y). Testing with the latter
        is on the safe side. A gap at the level of rounding errors is accepted, because it cannot get smaller.
        """
        if self.phase is not Phase.FLOOD or agent.gap is None:
            return None
        gap, decrease, noise = (scalars.total(column) for column in range(-WIDTH, 0))
        self.gap = gap / decrease if decrease > 0.0 else 1.0
        return self.model if gap <= max(agent.gap * decrease, noise) else None

    def start_epoch(self, agent: Agent, x: Point, w: Point, epoch: int, residual: float) -> None:
        """Enter the next phase; x and w are the agent's point and dual variable at the end of ``epoch``."""
        self.row, self.unsent = (0.0,) * WIDTH, None
        if self.phase is Phase.REDUCE:
            self.phase = Phase.FLOOD
            self.row = self._scalars(agent)
        elif self.phase is Phase.BROADCAST and self.model is not None:
            self.phase = Phase.REDUCE
            self.total = agent.f.grad(self.model) + w
        else:
            self.phase, self.model = Phase.BROADCAST, None
            if agent.gap is not None and agent.index == 0 and self._is_due(agent.gap, epoch, residual):
                self.model = frozen(x)
                self.unsent = AttachedVector(self.model)

    def _scalars(self, agent: Agent) -> Row:
        """Return this agent's scalars about the model."""
        f, y = agent.f, self.model
        assert y is not None
        image = f.map.image(y)
        gap = agent.wolfe_gap(self.total, y) if agent.index == 0 else 0.0
        noise = (f.grad_noise(image) + EPS * norm(self.total)) * agent.X.diameter
        return gap, self.loss - f.loss.value(image), noise

    def _is_due(self, required: float, epoch: int, residual: float) -> bool:
        """Return True if a model is likely to have the required gap: the residual falls as its square."""
        if epoch == 0:
            return False  # the scalars of the first epoch are older than all iterations
        if self.residual is None:
            self.residual = residual
        likely = residual <= self.residual * (_TOLERANCE * required / self.gap) ** 2
        if not likely and epoch % _ALWAYS:
            return False
        self.residual = residual
        return True
