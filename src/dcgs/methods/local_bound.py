"""A lower bound of the minimum of fᵢ + ⟨wᵢ, ·⟩ over X: one agent's share of the dual function.

For all w₁, …, wₘ that sum to zero, f* is at least the sum of these minima over all agents.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple, final

from dcgs.inner import Inner, Solver, Subproblem
from dcgs.methods.base import Agent
from dcgs.methods.certificate import gap_noise
from dcgs.methods.step_size import StepSize
from dcgs.points import EPS, Point, norm, vdot

# Proximal-point steps x ← argmin fᵢ + ⟨w, x⟩ + η/2 ‖x − x_prev‖². η starts at the share _FIRST of that of the
# method, and then falls at most by the factor _FASTEST and at least by _SLOWEST. If a step was cut short and
# has not raised the bound, η grows by _BACK.
_FIRST, _FASTEST, _SLOWEST, _BACK = 0.3, 0.2, 0.3, 3.0
# The error of a step, relative to its length; and relative to the tolerance, for solvers that stop by a gap.
_PRECISION, _SHARE = 0.2, 0.3
# The most proximal-point steps, the most steps of the inner solver in one of them, and in all of them.
_SOLVES, _STEPS, _TOTAL = 12, 8, 20
# Rounding errors of inner products with w, in units of EPS.
_ROUNDINGS = 4.0


class DualShare(NamedTuple):
    """A lower bound of min fᵢ(x) − fᵢ(x⁰) + ⟨w, x − x⁰⟩ and its rounding error.

    It is the linear approximation at ``x``, where the Wolfe gap is ``gap``.
    """

    value: float
    noise: float
    gap: float
    x: Point


@final
@dataclass(frozen=True, eq=False)
class LocalBound:
    """Computes lower bounds for one agent, by the inner solver of the method.

    Every request starts a second solver at the agent's point, so that the solver of the method is not
    disturbed, and nothing needs to be saved in checkpoints.
    """

    agent: Agent
    inner: Inner
    solver: Solver

    def __call__(self, w: Point, x: Point, step: StepSize, tolerance: float) -> DualShare:
        """Return a lower bound that is at most ``tolerance`` below the minimum, or what was reached.

        The effort is limited. Every point gives a valid bound, the linear approximation there.
        """
        best, eta = self.at(w, x), _FIRST * step.eta
        task = replace(self.agent.task, x0=x, saved=None, outcomes=Counter())
        solver, left = self.inner.start_beside(self.solver, task), _TOTAL
        for _ in range(_SOLVES):
            if best.gap <= tolerance or left <= 0 or not eta > 0.0:
                break
            phi = Subproblem(self.agent.f, w, eta, x, step.preconditioner)
            accuracy = _Limited(phi, _SHARE * tolerance if self.inner.stops_by_gap else 0.0)
            trial = solver(phi, accuracy)
            left -= accuracy.calls
            found, is_cut = self.at(w, trial), accuracy.calls > _STEPS
            is_better = found.value > best.value
            best = found if is_better else best
            if is_better or not is_cut:
                x = trial
            if not is_cut:
                eta *= max(_FASTEST, min(_SLOWEST, 0.5 * tolerance / max(found.gap, tolerance)))
            elif not is_better:
                eta *= _BACK
        return best

    def at(self, w: Point, x: Point) -> DualShare:
        """Return the lower bound by the linear approximation of fᵢ at x, which need not be in X."""
        agent, f = self.agent, self.agent.f
        image = f.map.image(x)
        gap, oracle_error = agent.proven_gap(f.map.adjoint(f.loss.grad(image)) + w, x)
        decrease, error = agent.baseline.decrease(x, image)
        d, size = x - agent.x0, norm(w)
        noise = error + gap_noise(f.grad_error(x, image) + EPS * size, norm(x), agent.X.diameter)
        noise += oracle_error
        value = vdot(w, d) - decrease - gap
        return DualShare(value, noise + _ROUNDINGS * EPS * (size * norm(d) + abs(value)), gap, x)


@final
class _Limited:
    """The accuracy of a proximal-point step. After _STEPS calls every point is accurate enough."""

    def __init__(self, phi: Subproblem, least: float) -> None:
        self.phi, self.least, self.calls = phi, least, 0

    def __call__(self, x: Point) -> float:
        """Return the bound of φ(x) − min φ with which x is accurate enough."""
        self.calls += 1
        if self.calls > _STEPS:
            return math.inf
        return max(self.least, 0.5 * _PRECISION**2 * self.phi.eta * self.phi.squared(x - self.phi.center))
