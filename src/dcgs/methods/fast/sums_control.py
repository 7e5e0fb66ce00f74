"""Accelerated steps along sums, judged by the root: by FastDCGS, and for the models of a path of radii."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import final

from dcgs.methods.base import Agent
from dcgs.momentum import Momentum
from dcgs.points import Point, vdot

# A smoothness that was too small is increased by this factor at least.
_INCREASE = 1.5
# If the curvature seen is below _SLACK of the smoothness, the smoothness falls to _MORE times that curvature,
# by the factor _DECREASE at most. This happens at most _MOST_DECREASES times, and not after _MOST_INCREASES
# increases.
_SLACK, _MORE, _DECREASE = 0.5, 1.2, 0.7
_MOST_DECREASES, _MOST_INCREASES = 20, 2
# With the root's data as the model, Λ starts at _FIRST of the mean curvature, grows by the factor _CHANGE at
# least, and falls by the factor _FALL at most; it falls after increases, too.
_FIRST, _CHANGE, _FALL = 1e-3, 2.0, 0.5
# If the root's data explain less than _EXPLAINED of the curvature of f in _STEPS steps, they are no model;
# steps in which f was nearly linear, with a curvature below _FLAT of Λ, do not count.
_EXPLAINED, _STEPS, _FLAT = 0.15, 3, 0.1


@final
@dataclass(frozen=True, eq=False)
class SummedModel:
    """The value and the gradient of f, the sum over all agents, at one point.

    Smoothness and curvatures are relative to ‖x‖², which is Σ hⱼ xⱼ² with a diagonal preconditioner h.
    """

    at: Point
    value: float
    grad: Point
    preconditioner: Point | None = None

    def excess(self, x: Point, value: float) -> tuple[float, float]:
        """Return ‖x − y‖² for this point y, and what ``value`` exceeds the linear approximation at x by."""
        d = x - self.at
        return self.dot(d, d), value - self.value - vdot(self.grad, d)

    def curvature(self, x: Point, value: float) -> float:
        """Return the mean curvature of f between this point and x, where f has ``value``."""
        squared, excess = self.excess(x, value)
        return 2.0 * excess / squared if squared > 0.0 else 0.0

    def dot(self, a: Point, b: Point) -> float:
        """Return ⟨a, b⟩, with the preconditioner if there is one."""
        return vdot(a, b) if self.preconditioner is None else vdot(a, self.preconditioner * b)

    def gap(self, agent: Agent) -> float:
        """Return ⟨∇f(y), y⟩ minus its minimum over X: the Wolfe gap, if y is in X."""
        return agent.wolfe_gap(self.grad, self.at)


@final
@dataclass
class SmoothnessEstimate:
    """Λ, an estimate of the smoothness of f − c·f_root, and how often it was increased and decreased.

    ``weight`` is c, the weight of the root's data in the model of f; without them it is 0. ``unlike`` counts
    steps along which they explained little of the curvature of f.
    """

    L: float = 0.0
    increases: int = 0
    decreases: int = 0
    weight: float = 0.0
    unlike: int = 0

    def start(self, smoothness: float, mean_curvature: float) -> None:
        """Start between the sums of the agents' mean curvatures and of their smoothness."""
        self.L = math.sqrt(smoothness * mean_curvature) or 1.0

    def start_with_data(self, mean_curvature: float, own: float, agents: int) -> None:
        """Start with the root's data as the model, given the mean curvatures of f and of f_root."""
        self.weight = min(float(agents), mean_curvature / own)
        self.L = _FIRST * mean_curvature

    def increase(self, curvature: float) -> None:
        """Use a larger Λ, because a step has shown this curvature."""
        self.increases += 1
        factor, more = (_CHANGE, _MORE) if self.weight else (_INCREASE, 1.0)
        self.L = max(factor * self.L, more * curvature)

    def decrease(self, curvature: float) -> None:
        """Use a smaller Λ if a step has shown a much smaller curvature."""
        with_data = self.weight > 0.0
        allowed = (with_data or self.increases < _MOST_INCREASES) and self.decreases < _MOST_DECREASES
        if (with_data or curvature > 0.0) and curvature < _SLACK * self.L and allowed:
            self.decreases += 1
            self.L = max((_FALL if with_data else _DECREASE) * self.L, _MORE * curvature)

    def leaves_data(self, curvature: float, own: float) -> bool:
        """Return True if the root's data are no model of f from now on.

        ``curvature`` is that of f along a step, and ``own`` that of the root's data with their weight.
        """
        self.unlike += curvature > _FLAT * self.L and own < _EXPLAINED * curvature
        if self.unlike < _STEPS:
            return False
        self.weight, self.L = 0.0, max(self.L, curvature)
        return True


@final
@dataclass(eq=False)
class AcceleratedSteps:
    """The last step x, the last accepted point ``best``, where f is ``lowest``, and what the next step needs.

    ``model`` is f at y, where the next step begins; None after one that was undone.
    """

    x: Point
    best: Point
    model: SummedModel | None = None
    lowest: float = math.inf
    smoothness: SmoothnessEstimate = field(default_factory=SmoothnessEstimate)
    momentum: Momentum = field(default_factory=Momentum)

    def restart(self, x: Point) -> None:
        """Continue from x, without momentum and without a model."""
        self.x, self.model, self.momentum = x, None, Momentum()

    def judge(
        self,
        at_y: SummedModel,
        value: float,
        most: float,
        curvature: float | None,
        is_long: bool,
        counts: bool,
    ) -> bool:
        """Return True if x is the best point now: f is ``value`` there, and as ``at_y`` says at y.

        ``curvature`` was seen along the step, None if there was none. A step that was too long is repeated
        with a larger Λ, unless it ``counts``. If f has increased to above ``most``, the step is undone.
        """
        last, self.model = self.model, at_y
        if is_long and not counts:
            assert curvature is not None
            self.smoothness.increase(curvature)
            self.model, self.momentum = last, Momentum()
            return False
        if value > most:
            self.restart(self.best)
            return False
        self.best, self.lowest = self.x, value
        if curvature is not None:
            (self.smoothness.increase if is_long else self.smoothness.decrease)(curvature)
        return True

    def move(self, x: Point, restart: bool = False) -> float:
        """Step to x; return how far to extrapolate beyond it, as a share of the way from the last step."""
        assert self.model is not None
        uphill = self.model.dot(self.model.at - x, x - self.x) > 0.0
        self.x = x
        return self.momentum.weight(restart=uphill or restart)
