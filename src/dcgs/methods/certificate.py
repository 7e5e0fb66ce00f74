"""The certificate by which the agents of FastDCGS stop: a Wolfe gap of f that they compute together.

The root of the spanning tree sends its point down as a model y, with the answer of a reduction. In the next
reduction the gradients ∇fᵢ(y) and the losses are summed up. The root computes the Wolfe gap from the sums,
and sends it down. So all agents come to the same decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import final

from dcgs.methods.base import Agent
from dcgs.methods.target import CertifiedGap, gap_noise
from dcgs.points import Point, frozen, norm

# A certificate costs one gradient for each edge of the tree. A model is sent in every epoch if that is at
# most this share of what is sent anyway. Else the next model is sent when the residual has fallen by the
# factor that the gap must still fall by, up to the constant _TOLERANCE; and every _ALWAYS epochs in any case.
_SHARE = 0.25
_TOLERANCE = 3.0
_ALWAYS = 10


class Proposal(IntEnum):
    """What the root proposes for the next certificate."""

    NOTHING = 0
    """No certificate."""
    START = 1
    """The starting point x⁰, which all agents have."""
    MODEL = 2
    """A model that is sent down the tree."""


@final
@dataclass(eq=False)
class Certificate:
    """One agent's part in the certificate.

    ``model`` is the point whose gap is to be certified, if there is one, and ``proposal`` says what it is.
    The root has also: ``missing``, the factor by which the gap of the last model must still fall, and
    ``residual``, the residual when that model was sent.
    """

    model: Point | None = None
    proposal: Proposal = Proposal.NOTHING
    missing: float = 1.0
    residual: float | None = None
    tried_start: bool = False

    def contribution(self, agent: Agent) -> tuple[float, float, Point | None]:
        """Return a lower bound of this agent's decrease, the rounding error of its gradient, and the latter.

        All three are those at the model.
        """
        if self.model is None:
            return 0.0, 0.0, None
        f = agent.f
        image = f.map.image(self.model)
        decrease, error = agent.baseline.decrease(self.model, image)
        noise = f.grad_error(self.model, image)
        return decrease - error, noise, f.map.adjoint(f.loss.grad(image))

    def gap(self, agent: Agent, decrease: float, noise: float, grad: Point) -> CertifiedGap:
        """Return the gap at the model, from the sums over all agents; the root calls the oracle."""
        assert self.model is not None
        total = gap_noise(noise, norm(self.model), agent.X.diameter)
        return agent.certified_gap(grad, self.model, decrease, total, self.proposal is Proposal.START)

    def propose(
        self, agent: Agent, epoch: int, residual: float, last: CertifiedGap | None, sent: int
    ) -> Proposal:
        """Return what the root proposes after an epoch with this residual; ``last`` is the gap just found.

        ``sent`` is the number of nonzeros of points that the root sends in an epoch.
        If x⁰ is optimal, no model is better. Then x⁰ itself is proposed, once.
        """
        if agent.target is None:
            return Proposal.NOTHING
        if last is not None and last.gap > 0.0:
            # The gap bounds the decrease that is still possible. A gap may be far below its target, or even
            # so small that the ratio overflows.
            self.missing = min(1.0, agent.target.threshold(max(last.decrease, last.gap)) / last.gap)
            if last.decrease <= last.noise and not self.tried_start:
                self.tried_start = True
                return Proposal.START
        if self.residual is None and epoch > 0:
            self.residual = residual  # that of the first epoch
        likely = self.residual is None or residual <= self.residual * (_TOLERANCE * self.missing) ** 2
        cheap = agent.x0.size <= _SHARE * sent
        if not (likely or cheap) and epoch % _ALWAYS:
            return Proposal.NOTHING
        self.residual = None if epoch == 0 else residual
        return Proposal.MODEL

    def accept(self, agent: Agent, proposal: Proposal, model: Point | None) -> None:
        """Store the model that the root proposed."""
        self.model, self.proposal = None, proposal
        if proposal is Proposal.START:
            self.model = agent.x0
        elif proposal is Proposal.MODEL:
            assert model is not None
            self.model = frozen(model)
