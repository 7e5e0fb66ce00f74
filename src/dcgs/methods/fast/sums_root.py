"""The root of the spanning tree in FastDCGS by sums: it judges the last step and takes the next one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from dcgs.inner import Inner, Solver, Subproblem, gap_at_most
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Bounds, CertifiedGap, GapKind, gap_noise, summable_tolerance
from dcgs.methods.fast.preconditioner import summed_preconditioner
from dcgs.methods.fast.sums_control import SmoothnessEstimate, SummedModel
from dcgs.methods.reduction import Value
from dcgs.momentum import Momentum
from dcgs.objectives import LeastSquares, Objective
from dcgs.points import Point, norm

# Shares of the dual function may be asked for in iteration _FIRST, and then in iterations that grow by the
# factor _GROWTH. They are, if f has fallen by at most _NEAR times the gap asked for since the last of these
# iterations. An agent computes its share up to _SHARE of the gap asked for, divided by the number of agents.
# If another bound was better, the next request is not before _PAUSE times as many iterations. They are not
# asked for if f has fallen by more than the share _FALLS of what it is above the least value of the losses.
_FIRST, _GROWTH, _NEAR, _SHARE, _PAUSE, _FALLS = 4, 1.15, 3.0, 0.25, 2, 0.2


@final
@dataclass
class DualRequests:
    """When the agents' shares of the dual function are asked for.

    ``mark`` is the next iteration in which they may be, and ``value`` is f − f(x⁰) in the last one. If
    ``is_pending``, the shares are in the next sum.
    """

    mark: int = _FIRST
    value: float = 0.0
    is_pending: bool = False

    def is_due(self, k: int, value: float, gap: CertifiedGap, threshold: float) -> bool:
        """Return True if shares are to be asked for in iteration k: f is near f*, as far as its fall tells.

        Not if the gap will be small enough when f has fallen once more as far, or if f falls fast toward the
        least value of the losses.
        """
        self.is_pending = False
        if k >= self.mark:
            fall = self.value - value
            self.mark, self.value = math.ceil(_GROWTH * k), value
            to_least = gap.kind is GapKind.LEAST and fall > _FALLS * gap.gap
            self.is_pending = fall <= _NEAR * threshold and 0.0 < threshold < gap.gap - fall and not to_least
        return self.is_pending


@final
@dataclass(eq=False)
class SumsRootState:
    """The last step x, the last accepted point ``best``, and what the next step needs.

    ``model`` is f at the last y, None after a rejected step. ``lowest`` is f(best) − f(x⁰).
    ``preconditioner`` is h, if there is one. ``bounds`` has the best lower bound of f*.
    """

    x: Point
    best: Point
    model: SummedModel | None = None
    lowest: float = 0.0
    smoothness: SmoothnessEstimate = field(default_factory=SmoothnessEstimate)
    momentum: Momentum = field(default_factory=Momentum)
    preconditioner: Point | None = None
    bounds: Bounds = field(default_factory=Bounds)
    dual: DualRequests = field(default_factory=DualRequests)

    def restart(self, x: Point) -> None:
        """Continue from x, without momentum and without a model."""
        self.x, self.model, self.momentum = x, None, Momentum()


@final
@dataclass(frozen=True, eq=False)
class _Sums:
    """Sums over all agents: f as seen from y, f(x) − f(x⁰), curvatures, and rounding errors.

    ``error`` is that of the values of f at x and at y, ``noise`` that of ∇f(y). ``excess`` is what f(x) is
    above the least value of the losses, and ``dual`` a lower bound of f* − f(x⁰), if it was asked for.
    """

    model: SummedModel
    value: float
    error: float
    smoothness: float
    mean_curvature: float
    noise: float
    excess: float
    dual: float


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
        """Return θ and the next point; at the end the gap, and no point. The gradients are those at y.

        If shares of the dual function are asked for, their tolerance and ∇f(y) follow.
        """
        at, agent = self.state, self._agent
        assert at is not None
        sums = self._split(at, y, total)
        gap, is_rounding = self._gap(at, k, sums)
        ends = gap is not None and agent.target is not None and agent.target.ends(gap)
        inside = agent.X.restore(at.x) if ends and k > 1 else at.x
        if gap is not None and ends and inside is at.x:  # line 4
            return gap.as_array(), np.empty(0)
        scale = -at.lowest if at.lowest < 0.0 else sums.model.gap(agent)
        e = summable_tolerance(k, scale)  # by so much f may increase
        if ends:
            at.restart(inside)
        else:
            self._judge(at, k, e, sums)  # line 5
        theta = 0.0 if at.model is None else self._step(at, at.model, e / k**2)
        # A gap that is rounding error is measured where it has the least: at y = x.
        return np.array([0.0 if is_rounding else theta]), at.x.reshape(-1), *self._request(at, k, gap, sums)

    def _split(self, at: SumsRootState, y: Point, total: Value) -> _Sums:
        """Return the sums by name. If curvatures of coordinates are among them, a preconditioner follows."""
        agent, shape = self._agent, self._agent.x0.shape
        grad, numbers, *curvatures = total
        # Errors of fixed point, where sums are masked: (f(x), f(y)), error, …, noise, excess, dual.
        fixed = np.broadcast_to(agent.sum_error(1), numbers.shape)
        numbers = numbers + fixed * (0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, -1.0)
        numbers[2] += fixed[:2].max()
        numbers[5] += agent.sum_noise(0, grad.size)
        h = summed_preconditioner(curvatures[0].reshape(shape)) if curvatures else at.preconditioner
        value, value_y, *others = numbers.tolist()
        return _Sums(SummedModel(y, value_y, grad.reshape(shape), h), value, *others)

    def _gap(self, at: SumsRootState, k: int, sums: _Sums) -> tuple[CertifiedGap | None, bool]:
        """Return f(x) minus the best lower bound of f* so far, and True if the Wolfe gap is rounding error.

        Without a target there is no gap. The Wolfe gap is f(x) minus the minimum over X of the linear
        approximation of f at y.
        """
        agent, model = self._agent, sums.model
        if agent.target is None:
            return None, False
        # If y is x, both values have the same bits.
        apart = 0.0 if np.array_equal(model.at, at.x) else 2.0 * sums.error
        noise = gap_noise(sums.noise, norm(model.at), agent.X.diameter)
        above = CertifiedGap(sums.value - model.value + apart, -sums.value - sums.error, noise, k == 1)
        at.bounds.add_least(sums.error - sums.value, sums.excess)
        if at.dual.is_pending:
            at.bounds.add(sums.dual, GapKind.DUAL)
        wolfe, gap = agent.gaps(model.grad, model.at, above, sums.error, at.bounds)
        if at.dual.is_pending and (gap.kind is not GapKind.DUAL or wolfe.gap <= gap.gap):
            at.dual.mark = _PAUSE * k
        if gap.gap < math.inf:
            agent.certify(gap)
        return gap, wolfe.gap <= noise + 2.0 * apart

    def _request(self, at: SumsRootState, k: int, gap: CertifiedGap | None, sums: _Sums) -> Value:
        """Return the tolerance of shares of the dual function and ∇f(y), if shares are asked for."""
        target = self._agent.target
        if target is None or gap is None:
            return ()
        threshold = target.threshold(gap.decrease)
        if not at.dual.is_due(k, min(at.lowest, sums.value), gap, threshold):
            return ()
        return np.array([_SHARE * threshold / self._agent.facts.agents]), sums.model.grad.reshape(-1)

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
            at.restart(self._agent.X.restore(at.best))
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
        return at.momentum.weight(restart=uphill)  # line 7
