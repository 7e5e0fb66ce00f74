"""FastDCGS with few unknowns: Newton steps at the root of the spanning tree.

Values, gradients and Hessians of all agents are summed along the tree. The root minimizes their quadratic
model over X, and sends the next point down. An iteration takes twice the height of the tree rounds; as many
as the graph has diameter, if all agents get the values of all and do what the root does. The line
numbers are those of the box "FastDCGS with Hessians" in docs/methods.md.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.inner.quadratic import Domain, Quadratic, minimize_quadratic
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Bounds, CertifiedGap, excess, gap_noise
from dcgs.methods.reduction import Value, flooded_answer, network_answer
from dcgs.points import Point, frozen, norm, symmetric, upper_triangle, vdot
from dcgs.protocol import Program

# The Wolfe gap of the model at its approximate minimizer, relative to the gap that is asked for, and to the
# last gap of f.
_SHARE, _FALL = 0.3, 0.03
# Over polytopes, the gap, as a share of the decrease of f, that steps on a model go on to if they are few. A
# minimizer is then the same to nine digits or so whatever the last bits of sums are, as of masked ones.
_AIM = 1e-9
# After a step that did not decrease f, or only within _SHORT of its length, the Hessian of the model is mixed
# with its upper bound; _BOUND is the first share of the bound. After each such step the share is raised to
# the power _ROOT, and multiplied by _MORE at least: the share that is needed may be tiny. After other steps
# it is multiplied by _LESS.
_BOUND, _MORE, _LESS, _ROOT, _SHORT = 0.02, 4.0, 0.25, 0.75, 0.1
# If f does not decrease in a step, it is known also for these shares of the step.
_LENGTHS = tuple(0.5**j for j in range(1, 11))
# A step is accepted if f decreases by this share of what its slope promises, and of the decrease that the
# minimizer of the model with the upper bound is sure to give.
_DECREASE = 1e-4
# If such a step is rejected as well, its model was not minimized well enough: the next Wolfe gaps of models
# are smaller by this factor.
_TIGHTER = 0.1
# The run ends if in so many steps the gap was not halved, and f(x⁰) − f(x) grew by less than this share.
_PATIENCE, _GROWTH = 500, 0.01


class Verdict(IntEnum):
    """What the root says of the point that the agents have evaluated."""

    ACCEPTED = 0
    REJECTED = 1
    FINAL = 2
    """It is the answer of the run."""
    STALLED = 3
    """It is rejected, and the best point so far is the answer: further steps would not reach the gap."""


@final
@dataclass
class Progress:
    """Steps since the gap was last halved or f had decreased enough, and the gap and the decrease then."""

    steps: int = 0
    gap: float = math.inf
    decrease: float = 0.0

    def is_over(self, at: CertifiedGap) -> bool:
        """Return True if the steps have made no progress for long, given the best point so far."""
        self.steps += 1
        if at.gap <= 0.5 * self.gap or at.decrease > (1.0 + _GROWTH) * self.decrease:
            self.steps, self.gap, self.decrease = 0, at.gap, at.decrease
        return self.steps >= _PATIENCE


@final
@dataclass(eq=False)
class RootState:
    """What the root knows: the best point, f and its derivatives there, and the upper bound H of the Hessian.

    ``value`` is f(x) − f(x⁰), and ``wolfe`` the Wolfe gap at x. ``constant`` is the sum of the Hessians of
    agents whose f is quadratic. ``share`` is that of the upper bound in the Hessian of the model.
    ``curvature`` is D²‖H‖, D the diameter of X: no ⟨d, H d⟩ between two points of X is larger. ``tightness``
    is a factor of the Wolfe gap to which the model is minimized. ``bounds`` has the best lower bound of f*.
    """

    constant: NDArray[np.float64]
    bound: NDArray[np.float64]
    curvature: float
    x: Point
    value: float
    grad: Point
    hess: NDArray[np.float64]
    wolfe: CertifiedGap
    share: float = 0.0
    tightness: float = 1.0
    progress: Progress = field(default_factory=Progress)
    bounds: Bounds = field(default_factory=Bounds)

    @property
    def gap(self) -> float:
        """The Wolfe gap at x."""
        return self.wolfe.gap

    @property
    def sure_decrease(self) -> float:
        """What f decreases by, at least, at the minimizer of the model with the upper bound of the Hessian.

        A step of length a toward the oracle's answer decreases this model by a · gap − a²/2 · curvature.
        """
        return 0.5 * self.gap * min(1.0, self.gap / self.curvature if self.curvature > 0.0 else 1.0)

    def least_decrease(self, trial: Point) -> float:
        """Return the decrease of f with which a trial is accepted."""
        return _DECREASE * max(self.sure_decrease, -vdot(self.grad, trial - self.x))

    def accepts(self, trial: Point, value: float, rounding: float, gap: float) -> bool:
        """Return True if f has decreased enough; where that is rounding error, if the gap has."""
        least = max(rounding, self.least_decrease(trial))
        return value < self.value - least or (abs(value - self.value) <= rounding and gap < self.gap)

    def reject(self, agent: Agent, trial: Point, values: Sequence[float]) -> Point | None:
        """Use a model that is a better bound of f; if it is one already, minimize it more accurately.

        Return a point on the way if f is low enough there. ``values`` are those of f at the shares _LENGTHS
        of the step.
        """
        best = int(np.argmin(values))
        between = agent.X.restore(self.x + _LENGTHS[best] * (trial - self.x))
        is_lower = values[best] < self.value - self.least_decrease(between)
        if not (trial != self.x).any():  # the bound is so large that no step is left
            self.share *= _LESS**2
        elif not is_lower or _LENGTHS[best] < _SHORT:
            self.tightness *= _TIGHTER if self.share == 1.0 else 1.0
            self.share = min(1.0, max(_MORE * self.share, self.share**_ROOT)) or _BOUND
        return between if is_lower else None

    def next_trial(self, agent: Agent) -> Point:
        """Return a point of X that about minimizes the model of f."""
        H = (1.0 - self.share) * self.hess + self.share * self.bound
        q = Quadratic(H, self.grad.reshape(-1), self.x.reshape(-1))
        target, before = agent.target, -self.value

        def tolerance(decrease: float) -> float:
            asked = _FALL * self.gap if target is None else target.threshold(max(0.0, before + decrease))
            relative = _FALL**2 * self.gap if self.share > 0.0 else 0.0
            return self.tightness * max(_SHARE * asked, relative)

        def aim(decrease: float) -> float:
            return min(tolerance(decrease), _AIM * max(0.0, before + decrease))

        domain = Domain(agent.X, agent.lmo, agent.projections)
        more = aim if target is not None and agent.X.polytope else None
        return agent.X.restore(minimize_quadratic(q, domain, self.x, tolerance, more))


@final
@dataclass(eq=False)
class SecondOrderState:
    """The point to evaluate next, and the last accepted one; ``root`` is that of the root only."""

    trial: Point
    x: Point
    root: RootState | None = None


def by_second_order(agent: Agent, floods: bool) -> Program[Point]:
    """Run FastDCGS with Hessians for one agent; the values of all are flooded, or summed along the tree."""
    at = agent.restore(SecondOrderState) or SecondOrderState(agent.x0, agent.x0)  # line 1
    for k in agent.iterations_left:  # line 2
        sums = _derivatives(agent, at.x, at.trial, first=k == 1)
        add_up = flooded_answer if floods else network_answer
        decide = partial(_answer, agent, at)
        numbers, trial = yield from add_up(sums, agent, decide, name="derivatives")  # line 3
        verdict = Verdict(int(numbers[0]))
        if verdict in (Verdict.ACCEPTED, Verdict.FINAL):
            at.x = at.trial
        agent.observe(k, at.x)
        if verdict in (Verdict.FINAL, Verdict.STALLED):  # line 4
            agent.agree(CertifiedGap.of(numbers[1:].tolist()))
            return at.x
        at.trial = frozen(trial)
        agent.save(k, at)
    return at.x


def _derivatives(agent: Agent, x: Point, trial: Point, first: bool) -> Value:
    """Return numbers; the gradient at the trial; and Hessians.

    The numbers are f − f(x⁰) at the trial, its rounding error and that of the gradient there, f minus the
    least value of its loss, and f − f(x⁰) on the way from x. In the first iteration the first matrix is the
    Hessian if f is quadratic, else 0. Unless all agents have a quadratic f, the upper bound of the Hessian
    follows, in the first iteration, and the Hessian at the trial: 0 for a quadratic f.
    """
    f, baseline = agent.f, agent.baseline
    image = f.map.image(trial)
    before = f.map.image(x)
    falls = [f.loss.decrease(baseline.image, before + t * (image - before))[0] for t in _LENGTHS]
    fall, error = baseline.decrease(trial, image)
    above = excess(f, f.loss.value(image)) + error
    numbers = np.array([-fall, error, f.grad_error(trial, image), above, *(-each for each in falls)])
    lower, upper = f.loss.curvature
    hessians = [f.map.gram(np.full(f.map.size, upper))] if first else []
    if not agent.facts.sizes.all_quadratic:
        none, is_curved = np.zeros((trial.size, trial.size)), lower < upper
        if first:
            hessians.insert(0 if is_curved else 1, none)
        hessians.append(f.map.gram(f.loss.hess(image)) if is_curved else none)
    return numbers, f.map.adjoint(f.loss.grad(image)), *map(upper_triangle, hessians)


def _answer(agent: Agent, at: SecondOrderState, total: Value) -> Value:
    """Return the answer of the root: its verdict on the point that was evaluated, and the next point."""
    numbers, grad, *hessians = total
    # Where sums are masked, the errors of fixed point count.
    fixed = np.broadcast_to(agent.sum_error(0), numbers.shape)
    numbers = numbers + fixed * ([0.0, 1.0, 1.0, 1.0] + [0.0] * len(_LENGTHS))
    value, error, noise, above, *values = numbers.tolist()
    error, noise = error + float(fixed[0]), noise + agent.sum_noise(1, grad.size)
    root = at.root
    bounds = Bounds() if root is None else root.bounds
    noise = gap_noise(noise, norm(at.trial), agent.X.diameter)
    gap = CertifiedGap(0.0, -value - error, noise, at_start=root is None and agent.origin is None)
    bounds.add_least(error - value, above)
    wolfe, certified = agent.gaps(grad, at.trial, gap, error, bounds)
    if certified.gap < math.inf:
        agent.certify(certified)
    if agent.target is not None and agent.target.ends(certified):
        return _end(Verdict.FINAL, certified), at.trial
    matrices = [symmetric(triangle, at.trial.size) for triangle in hessians]
    verdict, trial = Verdict.ACCEPTED, None
    if root is None:
        constant, *curved = matrices
        bound, hess = (constant + H for H in curved) if curved else (constant, constant)
        curvature = agent.X.diameter**2 * float(np.linalg.norm(bound, 2))
        root = RootState(constant, bound, curvature, at.trial, value, grad, hess, wolfe, bounds=bounds)
        at.root = root
    elif root.accepts(at.trial, value, error, wolfe.gap):
        root.x, root.value, root.grad, root.wolfe = at.trial, value, grad, wolfe
        root.hess = root.constant + matrices[0] if matrices else root.constant
        root.share *= _LESS
    else:
        verdict, trial = Verdict.REJECTED, root.reject(agent, at.trial, values)
    if agent.target is not None and root.progress.is_over(root.wolfe):
        verdict = Verdict.FINAL if verdict is Verdict.ACCEPTED else Verdict.STALLED
        return _end(verdict, bounds.best(root.wolfe, agent.target)), root.x
    trial = root.next_trial(agent) if trial is None else trial  # lines 5 and 6
    return np.array([verdict], dtype=np.float64), trial


def _end(verdict: Verdict, at: CertifiedGap) -> Point:
    """Return the numbers with which the root ends the run."""
    return np.array([verdict, *at.as_array()])
