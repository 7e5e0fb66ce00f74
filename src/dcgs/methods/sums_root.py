"""The root of the spanning tree in FastDCGS by sums: it judges the last step and takes the next one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from dcgs.inner import Inner, Solver, Subproblem, gap_at_most
from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap, gap_noise
from dcgs.methods.preconditioner import summed_preconditioner
from dcgs.methods.reduction import Value
from dcgs.methods.sums_control import SmoothnessEstimate, SummedModel, SumsStopping
from dcgs.methods.tolerance import summable_tolerance
from dcgs.momentum import Momentum
from dcgs.objectives import LeastSquares, Objective
from dcgs.points import Point, norm


@final
@dataclass(eq=False)
class SumsRootState:
    """The last step x, the last accepted point ``best``, and what the next step needs.

    ``at_x`` is True if the next gradient is taken at x, hence in X. ``model`` is f at the last y, None after
    a rejected step. ``lowest`` is f(best) − f(x⁰). ``preconditioner`` is h, if there is one.
    """

    x: Point
    best: Point
    at_x: bool = True
    model: SummedModel | None = None
    lowest: float = 0.0
    smoothness: SmoothnessEstimate = field(default_factory=SmoothnessEstimate)
    momentum: Momentum = field(default_factory=Momentum)
    preconditioner: Point | None = None
    stopping: SumsStopping = field(default_factory=SumsStopping)


@final
@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over all agents: f as seen from y, f(x) − f(x⁰), curvatures, and rounding errors.

    ``error`` is that of the values of f at x and at y, ``noise`` that of ∇f(y).
    """

    model: SummedModel
    value: float
    error: float
    smoothness: float
    mean_curvature: float
    noise: float


@final
class SumsRoot:
    """What the root computes; on a complete graph, where sums need no tree, every agent does."""

    def __init__(
        self,
        agent: Agent,
        inner: Callable[[Objective], Inner],
        preconditioned: bool,
        state: SumsRootState | None,
    ) -> None:
        zero = LeastSquares(np.zeros((1, agent.x0.size)), [0.0], agent.x0.shape)  # of line 6
        self.preconditioned = preconditioned and inner(zero).supports_preconditioner(zero, agent.X)
        self.state = state
        self.solver: Solver | None = None
        if agent.tree.parent is None or agent.facts.is_complete:
            self.state = state or SumsRootState(agent.x0, agent.x0)
            self.solver = inner(zero).start(replace(agent.task, f=zero))
        self._agent, self._zero = agent, zero

    def answer(self, k: int, y: Point, total: Value) -> Value:
        """Return θ and the next point; at the end the gap, and no point. The gradients are those at y."""
        at, agent = self.state, self._agent
        assert at is not None
        sums = self._split(at, y, total[0])
        certified = self._certified(at, k, sums)
        if certified is not None:  # line 4
            return certified.as_array(), np.empty(0)
        scale = -at.lowest if at.lowest < 0.0 else sums.model.gap(agent)
        e = summable_tolerance(k, scale)  # by so much f may increase
        self._judge(at, k, e, sums)  # line 5
        theta = 0.0 if at.model is None else self._step(at, at.model, e / k**2)
        return np.array([theta]), at.x.reshape(-1)

    def _split(self, at: SumsRootState, y: Point, total: Point) -> _Sums:
        """Return the sums by name. If curvatures of coordinates are among them, a preconditioner follows."""
        size, shape = self._agent.x0.size, self._agent.x0.shape
        value, value_y, error, smoothness, mean_curvature, noise = total[size : size + 6].tolist()
        curvatures = total[size + 6 :]
        h = summed_preconditioner(curvatures.reshape(shape)) if len(curvatures) else at.preconditioner
        model = SummedModel(y, value_y, total[:size].reshape(shape), h)
        return _Sums(model, value, error, smoothness, mean_curvature, noise)

    def _certified(self, at: SumsRootState, k: int, sums: _Sums) -> CertifiedGap | None:
        """Return the gap at y if the run ends there."""
        agent, model = self._agent, sums.model
        if agent.target is None:
            return None
        noise = gap_noise(sums.noise, norm(model.at), agent.X.diameter)
        decrease = -model.value - sums.error
        gap = agent.certified_gap(model.grad, model.at, decrease, noise, at_start=k == 1)
        at.stopping.update(model.value, gap)
        if not at.at_x:
            return None
        agent.certify(gap)
        return gap if agent.target.ends(gap) else None

    def _judge(self, at: SumsRootState, k: int, e: float, sums: _Sums) -> None:
        """Judge the last step: accept it, shorten it, or undo it if it increased f by more than e."""
        value, rounding = sums.value, sums.error
        last, at.model = at.model, sums.model
        if k == 1:
            at.smoothness.start(sums.smoothness, sums.mean_curvature)
            at.preconditioner = sums.model.preconditioner
        elif last is not None and value > last.bound(at.x, at.smoothness.L) + rounding:
            # The step was too long: repeat it with a larger Λ.
            at.smoothness.increase(last.curvature(at.x, value))
            at.model, at.momentum = last, Momentum()
        elif value > at.lowest + e + rounding:
            # f has increased: go back to the best point, without momentum.
            at.x, at.at_x = self._agent.X.restore(at.best), True
            at.model, at.momentum = None, Momentum()
        else:
            at.best, at.lowest = at.x, value
            if last is not None:
                at.smoothness.decrease(last.curvature(at.x, value))

    def _step(self, at: SumsRootState, model: SummedModel, gap: float) -> float:
        """Move x to the minimizer of the model, up to this gap; return θ."""
        assert self.solver is not None
        phi = Subproblem(self._zero, model.grad, at.smoothness.L, model.at, at.preconditioner)
        x_prev, at.x = at.x, self.solver(phi, gap_at_most(gap))  # line 6
        uphill = model.dot(model.at - at.x, at.x - x_prev) > 0.0
        theta = at.momentum.weight(restart=uphill)
        at.at_x = at.stopping.is_near(self._agent, at.lowest)
        if at.at_x:  # its gap may be certified
            at.x = self._agent.X.restore(at.x)
        return 0.0 if at.at_x else theta  # line 7
