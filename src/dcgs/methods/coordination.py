"""What the agents of FastDCGS agree on: step sizes, a preconditioner, the scale of losses, and when to stop.

All of it is sent with messages that the method sends anyway. An epoch is long enough for the scalars of
every agent to reach all others. At its end all agents take the same decisions from the same sums.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import final

from dcgs.methods.base import Agent
from dcgs.methods.certificate import WIDTH as CERTIFICATE_WIDTH
from dcgs.methods.certificate import Certificate
from dcgs.methods.messages import FloodedScalars, Message, unpacked_all
from dcgs.methods.preconditioner import CurvatureMaximum
from dcgs.methods.step_size import StepSize, balancing_factor, common_edge_step, local_eta
from dcgs.methods.target import CertifiedGap
from dcgs.points import Point
from dcgs.protocol import Inbox

# The least number of rounds of an epoch.
_SHORTEST = 4
# The flooded scalars of an agent, before those of the certificate.
_LOCAL_ETA, _DEGREE, _PRIMAL, _DUAL, _DECREASE = range(5)
WIDTH = 5 + CERTIFICATE_WIDTH


@final
@dataclass(eq=False)
class Coordination:
    """One agent's share. ``primal`` and ``dual`` are its parts of the squared residual of the epoch.

    Inner gaps are relative to ``loss_scale``. It is the ``decrease`` of the agent's loss in the first solve,
    and after the first epoch the mean decrease over agents. ``eta_is_given`` is True if
    the user chose η.
    """

    step: StepSize
    certificate: Certificate
    curvature: CurvatureMaximum
    decrease: float
    loss_scale: float
    eta_is_given: bool
    scalars: FloodedScalars = field(default_factory=FloodedScalars)
    preconditioner: Point | None = None
    primal: float = 0.0
    dual: float = 0.0

    def message(self, agent: Agent, k: int, x_tilde: Point) -> Point:
        """Return the message of iteration k."""
        epoch, step = divmod(k - 1, epoch_length(agent))
        attached = self.certificate.attached(agent, step + 1) if epoch else self.curvature.attached()
        return Message(x_tilde, self.step.edge_step, self.scalars.take_unsent(), attached).packed()

    def receive(self, agent: Agent, k: int, inbox: Inbox) -> dict[int, Message]:
        """Return the neighbors' messages of iteration k, after processing all but their points."""
        messages = unpacked_all(inbox, agent.x0.shape, WIDTH)
        epoch, step = divmod(k - 1, epoch_length(agent))
        if epoch:
            self.certificate.receive(agent, messages, step + 1)
        else:
            senders = [j for j, message in messages.items() if 0 in message.rows]
            if senders and 0 not in self.scalars.rows:
                self.certificate.join(min(senders), step + 1)
            self.curvature.receive(messages.values())
        self.scalars.receive(messages.values())
        return messages

    def end_of_epoch(self, agent: Agent, k: int, x: Point, w: Point) -> CertifiedGap | None:
        """Return the gap of the model if all agents stop with it; else update steps, start the next epoch."""
        epoch = (k - 1) // epoch_length(agent)
        certified = self.certificate.certified(agent, self.scalars)
        if certified is not None:
            return certified
        if epoch == 0:
            self.loss_scale = self.scalars.total(_DECREASE) / agent.facts.agents or self.loss_scale
            self.preconditioner = self.curvature.preconditioner()
        self._update_step(agent, epoch)
        residual = self.scalars.total(_PRIMAL) + self.scalars.total(_DUAL)
        self.certificate.start_epoch(agent, x, w, epoch, residual)
        self.flood(agent.index)
        return None

    def flood(self, i: int) -> None:
        """Start to flood the scalars of this agent, which is number i, and reset its residual."""
        own = (self.step.local_eta, self.step.degree, self.primal, self.dual, self.decrease)
        self.scalars.start(i, (*own, *self.certificate.row))
        self.primal = self.dual = 0.0

    def _update_step(self, agent: Agent, epoch: int) -> None:
        """Use a common edge step once all local η are known: one epoch later with a preconditioner."""
        total, norm = self.scalars.total, agent.facts.normalized_norm
        first_common = 0 if self.preconditioner is None else 1
        edge_step = self.step.edge_step
        if epoch < first_common:
            self.step = StepSize.local(local_eta(agent, self.preconditioner), self.step.degree)
            return
        if epoch == first_common:
            edge_step = common_edge_step(total(_LOCAL_ETA), total(_DEGREE), norm)
        elif not self.eta_is_given:
            edge_step *= balancing_factor(total(_PRIMAL), total(_DUAL), epoch - first_common)
        self.step.use_common(edge_step, norm)


def epoch_length(agent: Agent) -> int:
    """Return the rounds of an epoch: the diameter of the graph, and at least 4."""
    return max(agent.facts.graph_diameter, _SHORTEST)
