"""Step sizes of FastDCGS over edges: the weights ρᵢⱼ of edges, and η of the agents' subproblems.

At first the weight of an edge depends on its two ends only: ρᵢⱼ = rᵢⱼ √(eᵢ eⱼ), where eᵢ is the local η of
agent i divided by its degree. If messages may be lost, it is divided by the mean degree of all agents: agents
with equal local η then have the common scale from the start, and an epoch takes long. After the first epoch
all agents use one common scale s: ρᵢⱼ = rᵢⱼ s. After each further epoch, s changes if the primal and the dual
half of the residual differ too much.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import final

from dcgs.methods.base import Agent
from dcgs.methods.fast.preconditioner import as_preconditioner
from dcgs.points import Point

# The first η is this share of √(largest · mean curvature) · connectivity^(−1/4), averaged over agents. The
# share was chosen on instances of `dcgs bench rounds`, the power on Lassos over several graphs.
_SHARE = 0.6
# If the ratio of the two halves of the residual is between these bounds, the scale stays.
_LEAST, _MOST = 0.1, 5.0
# After epoch j the logarithm of the scale changes by at most _FIRST/j^_POWER: the sum over j is finite.
_FIRST, _POWER = 3.0, 1.1
# If the ratio was outside of the bounds by more than the factor _FAR for _PATIENCE epochs, always on the same
# side, the scale is far off. j is then counted from _AGAIN again, at most _MOST_RESTARTS times in a run, so
# that the sum stays finite.
_FAR, _PATIENCE, _AGAIN, _MOST_RESTARTS = 100.0, 4, 2, 6
# If no message is lost, η exceeds half of the norm of the weighted Laplacian by this factor: then the metric
# of the proof is positive definite.
_MARGIN = 1.01


@final
@dataclass(eq=False)
class StepSize:
    """One agent's step sizes, and the diagonal preconditioner if there is one.

    ``local_eta`` suits its own objective; ``eta`` and the ``weights`` of its edges are in use. ``scale`` is
    sent to the neighbors: the agent's own eᵢ, or the common s. ``theirs`` are the last scales of neighbors.
    Before there is a common scale, η is ``margin`` times the sum of the weights; then ``common_margin`` times
    that sum. The agent's own scale is its local η divided by ``scale_degree``.
    ``epochs`` counts those with a common scale, again from _AGAIN after each of the ``restarts``. ``far``
    counts epochs in a row in which the scale was far too small, or, negative, far too large. ``is_fixed`` is
    True if the scale does not change after that.
    ``next_preconditioner`` and ``next_scale`` are used after iteration ``switch``; ``is_common`` is True from
    the first common scale on.
    """

    local_eta: float
    degree: float
    scale: float
    eta: float
    resistances: dict[int, float]
    weights: dict[int, float]
    common_margin: float
    is_fixed: bool
    scale_degree: float
    margin: float = 1.0
    switches_together: bool = True
    theirs: dict[int, float] = field(default_factory=dict)
    epochs: int = 0
    restarts: int = 0
    far: int = 0
    preconditioner: Point | None = None
    next_preconditioner: Point | None = None
    next_scale: float | None = None
    switch: int = 0
    is_common: bool = False

    @classmethod
    def local(cls, agent: Agent, local_eta: float, is_fixed: bool = False) -> StepSize:
        """Return the step sizes of an agent that knows nothing of the others."""
        resistances = dict(agent.resistances or dict.fromkeys(agent.degrees, 1.0))
        degree = sum(resistances.values()) or 1.0
        eta = local_eta or 1.0
        scale_degree = degree if agent.reliable else agent.facts.mean_degree
        weights = {j: r * eta / scale_degree for j, r in resistances.items()}
        # Only if no message is lost, a non-bipartite graph allows a smaller η.
        margin = _MARGIN if agent.reliable else 1.0
        common_margin = 0.5 * margin * agent.facts.normalized_norm if agent.reliable else 1.0
        is_fixed = is_fixed or not agent.reliable
        own = local_eta, degree, local_eta / scale_degree, eta
        return cls(*own, resistances, weights, common_margin, is_fixed, scale_degree, margin, agent.reliable)

    def meet(self, scales: Mapping[int, float]) -> None:
        """Set the weights of edges and η, given the scales of neighbors."""
        self.theirs.update(scales)
        for j, scale in self.theirs.items():
            self.weights[j] = self.resistances[j] * _between(self.scale, scale)
        total = self.margin * sum(self.weights[j] for j in sorted(self.weights))
        self.eta = (self.common_margin * self.degree * self.scale if self.is_common else total) or self.eta

    def precondition(self, agent: Agent, curvature: Point, switch: int) -> None:
        """Use a preconditioner after iteration ``switch``, with local step sizes that suit it.

        If messages always arrive, all agents must switch after the same iteration. Else one end of an edge
        would change its dual variable by more than the other, and the dual variables would not sum to zero.
        """
        self.next_preconditioner, self.switch = as_preconditioner(curvature), switch
        self.local_eta = local_eta(agent, self.next_preconditioner)

    def update(self, sums: Sequence[float], switch: int) -> None:
        """Find the common scale from the sums over all agents, or balance it; use it after ``switch``.

        ``sums`` are Σ local η, Σ degrees, and the two halves of the squared residual. If messages always
        arrive, all agents must switch after the same iteration: then only the metric of the proof changes.
        """
        total_eta, total_degree, primal, dual = sums
        self.next_scale, self.switch = self.scale, switch
        if self.epochs == 0:  # the mean of all η is the mean of all local η
            self.next_scale = (total_eta or 1.0) / (self.common_margin * total_degree)
        elif not self.is_fixed:
            self._restart(primal, dual)
            self.next_scale = self.scale * balancing_factor(primal, dual, self.epochs)
        self.epochs += 1

    def _restart(self, primal: float, dual: float) -> None:
        """Allow large changes again if the two halves of the residual have long been far apart."""
        excess = _excess(primal, dual)
        side = (excess < math.log(_LEAST / _FAR)) - (excess > math.log(_MOST * _FAR))
        self.far = self.far + side if side * self.far > 0 else side
        is_late = self.epochs > _AGAIN + _PATIENCE
        if abs(self.far) >= _PATIENCE and is_late and self.restarts < _MOST_RESTARTS:
            self.epochs, self.far = _AGAIN, 0
            self.restarts += 1

    def advance(self, k: int) -> None:
        """Switch to the next preconditioner or scale, if it is time after iteration k."""
        if k < self.switch:
            return
        if self.next_preconditioner is not None:
            self.preconditioner, self.next_preconditioner = self.next_preconditioner, None
            self.scale = self.local_eta / self.scale_degree
        if self.next_scale is not None:
            self.scale, self.next_scale, self.is_common = self.next_scale, None, True
            self.meet(dict.fromkeys(self.theirs, self.scale) if self.switches_together else {})

    def preconditioned(self, v: Point) -> Point:
        """Return v times the preconditioner, if there is one."""
        return v if self.preconditioner is None else self.preconditioner * v


def _between(a: float, b: float) -> float:
    """Return the geometric mean; of an agent without curvature any scale is as good."""
    return math.sqrt(a) * math.sqrt(b) if a > 0.0 and b > 0.0 else max(a, b) or 1.0


def local_eta(agent: Agent, preconditioner: Point | None = None) -> float:
    """Return the η that suits the agent's own objective, from its largest and its mean curvature.

    With a preconditioner, curvatures are relative to it.
    """
    f = agent.f
    largest, mean = f.smoothness_by(preconditioner), f.mean_curvature
    if preconditioner is not None:
        mean = f.loss.curvature[1] * float((f.map.column_squares / preconditioner).mean())
    return float(_SHARE * math.sqrt(largest * mean) * agent.facts.connectivity**-0.25)


def balancing_factor(primal: float, dual: float, epoch: int) -> float:
    """Return the factor by which all agents multiply the common scale after an epoch.

    ``primal`` is Σ η‖x − v/(2η) − c‖² and ``dual`` Σ ρᵢⱼ‖xᵢ − xⱼ‖², the two halves of the squared residual.
    If the scale is too large, the primal half dominates; if it is too small, the dual half does.
    """
    excess, change = _excess(primal, dual), 0.0
    if excess > math.log(_MOST):
        change = -0.5 * (excess - math.log(_MOST))
    elif excess < math.log(_LEAST):
        change = 0.5 * (math.log(_LEAST) - excess)
    limit = _FIRST / epoch**_POWER
    return math.exp(min(limit, max(-limit, change)))


def _excess(primal: float, dual: float) -> float:
    """Return the logarithm of the ratio of the two halves; without a primal half, that of a balance."""
    if primal <= 0.0:
        return 0.0
    # Logarithms, because the ratio might overflow.
    return math.inf if dual <= 0.0 else math.log(primal) - math.log(dual)
