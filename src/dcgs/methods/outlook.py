"""When the root of FastDCGS over edges proposes a model, and by which bounds of f* it is to be certified.

Numbers are cheap, models are not, and gradients are dense where models are sparse. So the root asks for what
is likely to be enough, by the residual of the method, whose unit is that of f.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.methods.base import Agent
from dcgs.methods.network_certificate import Found, Proposal, Request, Shares
from dcgs.points import Point

# The residual falls from one epoch to the next by a factor between these; _UNKNOWN before two are known.
_FASTEST, _UNKNOWN = 0.01, 0.3
# The error f(y) − f* of the root's point is about the half of the residual that measures disagreement. After
# the first epoch, which has no residual, it is expected to be this share of the decrease.
_FIRST = 0.01
# A model is proposed if its error is expected to be at most this share of the gap asked for; if models are
# _CHEAP beside what is sent anyway, this multiple.
_GOOD, _GENEROUS, _CHEAP = 0.7, 3.0, 0.01
# A bound is asked for if the gap by it is expected to be at most this multiple of the gap asked for.
_DUAL, _WOLFE = 1.5, 2.0
# An agent's share of the dual function may be wrong by this share of the gap asked for, over all agents.
_TOLERANCE = 0.25
# x⁰ may be optimal if Σ fᵢ(x⁰) − fᵢ(xᵢ) has fallen to this share of what it was: agents return to x⁰.
_VANISHED = 0.2
# In every so many epochs all that can be asked for is asked for.
_ALWAYS = 10
# Where messages may be lost: a gradient is cheap if it is at most this share of what is sent in an epoch. The
# next one is likely to be enough if the residual has fallen by the factor that the gap must still fall by, up
# to a constant.
_SHARE, _MARGIN = 0.25, 3.0


@final
@dataclass(eq=False)
class Outlook:
    """What the root knows about the gaps to come.

    ``residual`` is that of the epoch before. The gap by the dual function is about ``dual`` times the
    residual, the Wolfe gap about ``wolfe`` times its root; None if they were never measured. ``epochs``
    counts all epochs, and ``waited`` those since the last request. ``first`` is Σ fᵢ(x⁰) − fᵢ(xᵢ) in the
    first epoch. ``spent`` is the number of entries of models and gradients that were sent along the tree.
    """

    residual: float | None = None
    dual: float | None = None
    wolfe: float | None = None
    epochs: int = 0
    first: float = -1.0
    waited: int = 0
    tried_start: bool = False
    spent: float = 0.0

    def request(self, agent: Agent, k: int, x: Point, sums: Shares, halves: tuple[float, float]) -> Request:
        """Return what the root asks for after iteration k at its point x, if messages always arrive.

        ``halves`` are the primal and the dual half of the residual when the agents made their shares.
        """
        target = agent.target
        assert target is not None
        residual, ratio = sum(halves), _UNKNOWN
        if self.residual:
            ratio = min(1.0, max(_FASTEST, residual / self.residual))
        error = halves[1] * math.sqrt(ratio)
        if self.epochs == 0:
            error, self.first = _FIRST * sums.local_decrease, sums.local_decrease
        self.residual, self.epochs = residual, self.epochs + 1
        decrease = sums.decrease if sums.decrease > 0.0 else sums.local_decrease
        goal = target.threshold(max(decrease, 0.0))
        if goal <= 0.0 and not self.tried_start:
            return self._start(agent)
        dual = 0.0 if self.dual is None else self.dual * residual * ratio
        wolfe = None if self.wolfe is None else self.wolfe * math.sqrt(residual * math.sqrt(ratio))
        wants_dual = goal > 0.0 and dual <= _DUAL * goal
        is_least = sums.local_excess + error <= goal  # f is near the least value of the losses
        wants_gradient = not (wants_dual or is_least) if wolfe is None else wolfe <= _WOLFE * goal
        wants_any = wants_dual or wants_gradient or is_least
        is_good = error <= (_GENEROUS if self._is_cheap(agent, k, x) else _GOOD) * goal
        self.waited += 1
        if self.waited >= _ALWAYS:
            wants_dual = wants_gradient = True
        elif not (wants_any and is_good):
            may_be_optimal = sums.local_decrease <= _VANISHED * self.first and not self.tried_start
            return self._start(agent) if may_be_optimal else Request()
        tolerance = _TOLERANCE * goal / agent.facts.agents if wants_dual else 0.0
        return self._sent(agent, x, Request(Proposal.MODEL, tolerance, wants_gradient))

    def measure(self, found: Found, residual: float) -> None:
        """Calibrate with a certificate, and with the residual when the agents made their shares of it."""
        if residual > 0.0 and found.dual is not None:
            self.dual = found.dual / residual
        if residual > 0.0 and found.wolfe is not None:
            self.wolfe = found.wolfe.gap / math.sqrt(residual)

    def restart(self, agent: Agent, found: Found) -> Request | None:
        """Return a request for the gap at x⁰ if a model was no better; once, for x⁰ may be optimal."""
        if self.tried_start or found.best.decrease > found.best.noise:
            return None
        return self._start(agent)

    def _start(self, agent: Agent) -> Request:
        self.tried_start = True
        return self._sent(agent, np.empty(0), Request(Proposal.START, 0.0, gradient=True))

    def _sent(self, agent: Agent, x: Point, request: Request) -> Request:
        """Return the request, after counting what it costs."""
        entries = int(np.count_nonzero(x)) + request.gradient * agent.x0.size
        self.spent += (agent.facts.agents - 1) * entries
        self.waited = 0
        return request

    def _is_cheap(self, agent: Agent, k: int, x: Point) -> bool:
        """Return True if a model costs little beside all that has been sent so far."""
        facts, entries = agent.facts, int(np.count_nonzero(x))
        traffic = k * facts.agents * facts.mean_degree * entries
        return self.spent + (facts.agents - 1) * entries <= _CHEAP * traffic

    def lossy_request(
        self, agent: Agent, epoch: int, x: Point, residual: float, found: Found | None
    ) -> Request:
        """Return what the root asks for after an epoch with this residual, if messages may be lost.

        Then the dual variables need not sum to zero, and gradients serve.
        """
        missing = 1.0 if self.wolfe is None else self.wolfe
        if found is not None and found.best.gap > 0.0:
            assert agent.target is not None
            # The gap bounds the decrease that is still possible. It may be far below its target, or even so
            # small that the ratio overflows.
            decrease = max(found.best.decrease, found.best.gap)
            self.wolfe = missing = min(1.0, agent.target.threshold(decrease) / found.best.gap)
        if self.residual is None and epoch > 0:
            self.residual = residual  # that of the first epoch
        sent = int(np.count_nonzero(x)) * len(agent.degrees) * max(2 * agent.tree.height, 4)
        is_likely = self.residual is None or residual <= self.residual * (_MARGIN * missing) ** 2
        if not (is_likely or agent.x0.size <= _SHARE * sent) and epoch % _ALWAYS:
            return Request()
        self.residual = None if epoch == 0 else residual
        return Request(Proposal.MODEL, 0.0, gradient=True)
