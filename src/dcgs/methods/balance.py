"""The balance of FastDCGS: how strongly an agent holds on to its point, against how fast prices move."""

from __future__ import annotations

import math

from dcgs.methods.base import Agent
from dcgs.points import Point

# The first η is this share of √(largest · mean curvature) · connectivity^(−1/4), averaged over agents. The
# share was chosen on instances of `dcgs bench rounds`, the power on Lassos over several graphs.
_SHARE = 0.6
# While the two halves of the residual are within these factors of each other, η is left alone.
_LEAST, _MOST = 0.7, 3.0
# The logarithm of η changes by at most _FIRST/j^_POWER after epoch j: in all by a finite amount.
_FIRST, _POWER = 3.0, 1.1
# diag(η) exceeds the weighted Laplacian by this factor, so that the metric of the proof is definite.
_MARGIN = 1.01


def wished(agent: Agent, weights: Point | None = None) -> float:
    """Return the η that suits the agent's own objective, by its largest and its average curvature.

    With weights, curvatures are relative to them.
    """
    f = agent.f
    if weights is None:
        largest, mean = f.smoothness, f.mean_curvature
    else:
        most = f.loss.curvature[1]
        largest = most * f.map.largest_eigenvalue_by(weights)
        mean = most * float((f.map.column_squares / weights).mean())
    return float(_SHARE * math.sqrt(largest * mean) * agent.facts.connectivity**-0.25)


def own_scale(eta: float, degree: float) -> float:
    """Return the scale of an agent that knows nobody else's: its η is then twice degree × scale.

    The degree is the sum of its edges' weights. An edge takes the smaller scale of its two ends, and
    diag(η) ⪰ Σ weight · scale (eᵢ − eⱼ)(eᵢ − eⱼ)ᵀ holds, as (a − b)² ≤ 2a² + 2b². An agent without
    curvature takes any scale, and so the neighbors' smaller one.
    """
    return (eta or 1.0) / (2.0 * _MARGIN * degree)


def eta_of_own(scale: float, degree: float) -> float:
    """Return the η of an agent while scales differ."""
    return 2.0 * _MARGIN * degree * scale


def common_scale(total_eta: float, total_degree: float, spread: float) -> float:
    """Return the scale by which all agents' η are their wishes on average."""
    return (total_eta or 1.0) / (_MARGIN * spread * total_degree)


def eta_of_common(scale: float, degree: float, spread: float) -> float:
    """Return the η of an agent once all have one scale: spread · D ⪰ L, D the degrees, is enough."""
    return _MARGIN * spread * degree * scale


def change(primal: float, dual: float, epoch: int) -> float:
    """Return the factor by which all change their scale after an epoch.

    ``primal`` is Σ η‖x − c‖² and ``dual`` Σ weight · scale ‖x̃ᵢ − x̃ⱼ‖²: the halves of the squared residual.
    Too large an η shows in a primal half that dominates, too small a one in a dual half.
    """
    if primal <= 0.0:
        return 1.0
    # Logarithms, as a ratio of sizes far apart would over- or underflow.
    excess = math.inf if dual <= 0.0 else math.log(primal) - math.log(dual)
    wanted = 0.0
    if excess > math.log(_MOST):
        wanted = -0.5 * (excess - math.log(_MOST))
    elif excess < math.log(_LEAST):
        wanted = 0.5 * (math.log(_LEAST) - excess)
    limit = _FIRST / epoch**_POWER
    return math.exp(min(limit, max(-limit, wanted)))
