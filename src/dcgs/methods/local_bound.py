"""A lower bound of the minimum of fᵢ + ⟨wᵢ, ·⟩ over X: one agent's share of the dual function.

For all w₁, …, wₘ that sum to zero, f* is at least the sum of these minima over all agents.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple, final

from dcgs.inner import Corrective, Inner, Subproblem, Task
from dcgs.methods.base import Agent, Dual
from dcgs.methods.certificate import gap_noise
from dcgs.methods.fast.step_size import local_eta
from dcgs.points import EPS, Point, norm, vdot

# Proximal-point steps x ← argmin fᵢ + ⟨w, x⟩ + η/2 ‖x − x_prev‖². η starts at the share _FIRST of that of the
# method, and is multiplied by _FALL after each step. If a step was cut short and has not raised the bound, it
# grows by _BACK.
_FIRST, _FALL, _BACK = 0.3, 0.5, 3.0
# No η is below this share of that of the method.
_LEAST = 1e-9
# The error of a step, relative to its length. No smaller error is asked for than a share of the tolerance:
# the first number for solvers that stop by a gap, the second for others.
_PRECISION, _SHARE, _OTHER_SHARE = 0.2, 0.3, 0.01
# The most proximal-point steps; and the most steps of the inner solver in one of them, which is doubled after
# every one that was cut short.
_SOLVES, _STEPS = 40, 8
# Corrective steps for each step that is allowed, and the most: they get longer with the number of atoms.
_CORRECTIONS, _MOST_CORRECTIONS = 8, 1000
# Rounding errors of inner products with w, and of sums in addition to one for each agent, in units of EPS.
_ROUNDINGS = 4.0


class DualShare(NamedTuple):
    """A lower bound of min fᵢ(x) − fᵢ(x⁰) + ⟨w, x − x⁰⟩ and its rounding error, also in the sum of all.

    It is the linear approximation at ``x``, where the Wolfe gap is ``gap``.
    """

    value: float
    noise: float
    gap: float
    x: Point


@final
@dataclass(frozen=True, eq=False)
class LocalBound:
    """Computes lower bounds for one agent.

    For quadratic losses over polytopes it takes corrective steps: on a function without the term of a
    proximal point they need a tenth of the time of other solvers, if the data are ill-conditioned. Else it
    takes proximal-point steps by ``inner``. Every request starts a solver beside that of the method, so that
    the latter is not disturbed.
    """

    agent: Agent
    inner: Inner

    def __call__(self, dual: Dual, x: Point, tolerance: float, effort: int) -> DualShare:
        """Return a lower bound that is at most ``tolerance`` below the minimum, or what was reached.

        ``effort`` limits the steps of the inner solver, which starts at x. Every point gives a valid bound,
        the linear approximation there.
        """
        best = self.at(dual.w, x)
        if best.gap <= tolerance or effort <= 0:
            return best
        task = replace(self.agent.task, x0=x, saved=None, outcomes=Counter())
        lower, upper = task.f.loss.curvature
        if lower == upper and Corrective().incompatibility(task.f, task.X) is None:
            phi = Subproblem(task.f, dual.w, 0.0, x)
            solver = Corrective(max_steps=min(effort * _CORRECTIONS, _MOST_CORRECTIONS)).start(task)
            improved = self.at(dual.w, solver(phi, _Limited(phi, tolerance, effort)))
            return max(best, improved, key=lambda share: share.value)
        return self._by_proximal_points(dual, best, task, tolerance, effort)

    def _by_proximal_points(
        self, dual: Dual, best: DualShare, task: Task, tolerance: float, effort: int
    ) -> DualShare:
        """Return the best bound of proximal-point steps from the point of a first bound."""
        w, x, eta, most, left = dual.w, best.x, _FIRST * dual.eta, _STEPS, effort
        inner = self.inner
        solver = inner.start(task) if dual.solver is None else inner.start_beside(dual.solver, task)
        for _ in range(_SOLVES):
            if best.gap <= tolerance or left <= 0 or eta <= _LEAST * dual.eta:
                break
            phi = Subproblem(task.f, w, eta, x, dual.preconditioner)
            share = _SHARE if inner.stops_by_gap else _OTHER_SHARE
            accuracy = _Limited(phi, share * tolerance, min(most, left))
            trial = solver(phi, accuracy)
            left -= accuracy.calls
            candidate, is_cut = self.at(w, trial), accuracy.calls > accuracy.most
            most *= 1 + is_cut
            is_better = candidate.value > best.value
            best = candidate if is_better else best
            if is_better or not is_cut:
                x = trial
            if not is_cut:
                eta *= _FALL
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
        noise += EPS * (_ROUNDINGS * size * norm(d) + (_ROUNDINGS + agent.facts.agents) * abs(value))
        return DualShare(value, noise, gap, x)


def gradient_multiplier(agent: Agent, mean: Point, grad: Point) -> Dual:
    """Return the multiplier ∇f(y)/m − ∇fᵢ(y), given the mean of all gradients at y and the agent's own."""
    # What rounding leaves of the sum of all agents: that of adding the gradients, and of their mean.
    drift = EPS * (agent.facts.agents + _ROUNDINGS) * (norm(grad) + norm(mean))
    return Dual(mean - grad, drift, local_eta(agent))


@final
class _Limited:
    """The accuracy of a solve: after so many calls every point is accurate enough.

    Before, an error is small enough if it is at most ``least``, or small beside the length of a
    proximal-point step.
    """

    def __init__(self, phi: Subproblem, least: float, most: int) -> None:
        self.phi, self.least, self.most, self.calls = phi, least, most, 0

    def __call__(self, x: Point) -> float:
        """Return the bound of φ(x) − min φ with which x is accurate enough."""
        self.calls += 1
        if self.calls > self.most:
            return math.inf
        return max(self.least, 0.5 * _PRECISION**2 * self.phi.eta * self.phi.squared(x - self.phi.center))
