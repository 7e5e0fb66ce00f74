"""Step sizes of FastDCGS: η of the agents' subproblems, and the steps of the dual variables of edges.

In the first epoch every agent uses its local η, and an edge the smaller step of its two ends. Then all agents
use one common edge step s, and agent i has η = 1.01 ν dᵢ s, dᵢ its weighted degree. After each epoch, s
changes so that the primal and the dual half of the residual stay balanced.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

from dcgs.methods.base import Agent
from dcgs.points import Point

# The first η is this share of √(largest · mean curvature) · connectivity^(−1/4), averaged over agents. The
# share was chosen on instances of `dcgs bench rounds`, the power on Lassos over several graphs.
_SHARE = 0.6
# If the ratio of the two halves of the residual is between these bounds, η stays.
_LEAST, _MOST = 0.7, 3.0
# After epoch j the logarithm of η changes by at most _FIRST/j^_POWER: the sum over j is finite.
_FIRST, _POWER = 3.0, 1.1
# diag(η) exceeds the weighted Laplacian by this factor, so that the metric of the proof is positive definite.
_MARGIN = 1.01


@final
@dataclass
class StepSize:
    """One agent's step sizes. ``local_eta`` suits its own objective, ``edge_step`` and ``eta`` are in use.

    ``degree`` is the sum of the weights of the agent's edges.
    """

    local_eta: float
    degree: float
    edge_step: float
    eta: float

    @classmethod
    def local(cls, local_eta: float, degree: float) -> StepSize:
        """Return the step sizes of an agent that does not know those of the others.

        diag(η) ⪰ Σ weight · step (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ holds if an edge takes the smaller step of its ends,
        because (a − b)² ≤ 2a² + 2b². An agent without curvature takes any positive step.
        """
        edge_step = (local_eta or 1.0) / (2.0 * _MARGIN * degree)
        return cls(local_eta, degree, edge_step, 2.0 * _MARGIN * degree * edge_step)

    def use_common(self, edge_step: float, norm: float) -> None:
        """Use an edge step common to all agents; ``norm`` is ν, with ν D ⪰ L for the degrees D."""
        self.edge_step, self.eta = edge_step, _MARGIN * norm * self.degree * edge_step


def local_eta(agent: Agent, preconditioner: Point | None = None) -> float:
    """Return the η that suits the agent's own objective, from its largest and its mean curvature.

    With a preconditioner, curvatures are relative to it.
    """
    f = agent.f
    if preconditioner is None:
        largest, mean = f.smoothness, f.mean_curvature
    else:
        most = f.loss.curvature[1]
        largest = most * f.map.largest_eigenvalue_by(preconditioner)
        mean = most * float((f.map.column_squares / preconditioner).mean())
    return float(_SHARE * math.sqrt(largest * mean) * agent.facts.connectivity**-0.25)


def common_edge_step(total_eta: float, total_degree: float, norm: float) -> float:
    """Return the edge step with which the mean of all η is the mean of all local η."""
    return (total_eta or 1.0) / (_MARGIN * norm * total_degree)


def balancing_factor(primal: float, dual: float, epoch: int) -> float:
    """Return the factor by which all agents multiply the edge step after an epoch.

    ``primal`` is Σ η‖x − c‖² and ``dual`` Σ weight · edge step ‖x̃ᵢ − x̃ⱼ‖², the two halves of the squared
    residual. If η is too large, the primal half dominates; if it is too small, the dual half does.
    """
    if primal <= 0.0:
        return 1.0
    # Logarithms, because the ratio might overflow.
    excess = math.inf if dual <= 0.0 else math.log(primal) - math.log(dual)
    change = 0.0
    if excess > math.log(_MOST):
        change = -0.5 * (excess - math.log(_MOST))
    elif excess < math.log(_LEAST):
        change = 0.5 * (math.log(_LEAST) - excess)
    limit = _FIRST / epoch**_POWER
    return math.exp(min(limit, max(-limit, change)))
