"""The root of the spanning tree in FastDCGS by sums: it judges the last step and takes the next one."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import final

import numpy as np

from dcgs.inner import Accuracy, Inner, Solver, Subproblem, Task, gap_at_most
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Bounds, CertifiedGap, GapKind, gap_noise, summable_tolerance
from dcgs.methods.fast.preconditioner import summed_preconditioner
from dcgs.methods.fast.sums_control import AcceleratedSteps, SummedModel
from dcgs.methods.reduction import Value, is_flooded
from dcgs.objectives import LeastSquares, Objective
from dcgs.points import Point, norm, vdot

# Shares of the dual function may be asked for in iteration _FIRST, and then in iterations that grow by the
# factor _GROWTH. They are, if f has fallen by at most _NEAR times the gap asked for since the last of these
# iterations. An agent computes its share up to _SHARE of the gap asked for, divided by the number of agents.
# If another bound was better, the next request is not before _PAUSE times as many iterations. They are not
# asked for if f has fallen by more than the share _FALLS of what it is above the least value of the losses.
# With the root's data as the model f falls faster: _SOON is the first iteration then, and _FASTER replaces
# _NEAR.
_FIRST, _GROWTH, _NEAR, _SHARE, _PAUSE, _FALLS = 4, 1.15, 3.0, 0.25, 1.3, 0.2
_SOON, _FASTER = 2, 30.0
# With the root's data as the model, a step that was too long counts nevertheless if f has fallen by this
# share of what its slope at z promised; errors of steps are relative to their lengths; and momentum restarts
# when its t is above _LONGEST, after about twice as many steps.
_FALL, _PRECISION, _LONGEST = 0.3, 0.05, 30.0


@final
@dataclass
class DualRequests:
    """When the agents' shares of the dual function are asked for.

    ``mark`` is the next iteration in which they may be, and ``value`` is f − f(x⁰) in the last one. f is near
    f* if it has fallen by at most ``near`` times the gap asked for. If
    ``is_pending``, the shares are in the next sum.
    """

    mark: int = _FIRST
    value: float = 0.0
    is_pending: bool = False
    near: float = _NEAR

    @classmethod
    def with_data(cls) -> DualRequests:
        """Return the requests of steps with the root's data as the model."""
        return cls(_SOON, near=_FASTER)

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
            self.is_pending = (
                fall <= self.near * threshold and 0.0 < threshold < gap.gap - fall and not to_least
            )
        return self.is_pending


@final
@dataclass(eq=False)
class SumsRootState:
    """The steps, and what else the root needs.

    ``preconditioner`` is h, if there is one. ``bounds`` has the best lower bound of f*.
    """

    steps: AcceleratedSteps
    preconditioner: Point | None = None
    bounds: Bounds = field(default_factory=Bounds)
    dual: DualRequests = field(default_factory=DualRequests)


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
    """What the root computes; where sums are flooded, every agent does."""

    def __init__(
        self,
        agent: Agent,
        inner: Callable[[Objective], Inner],
        own_data: bool,
        state: SumsRootState | None,
    ) -> None:
        zero = LeastSquares(np.zeros((1, agent.x0.size)), [0.0], agent.x0.shape)  # of line 6
        facts = agent.facts
        floods = is_flooded(agent, 8 * agent.x0.size)
        self.everywhere = facts.agents == 1 or (floods and not own_data)
        is_sparse = facts.hub is None and facts.sparse_columns
        preconditioned = is_sparse or facts.sizes.has_uneven_columns
        self.preconditioned = preconditioned and inner(zero).supports_preconditioner(zero, agent.X)
        self.state = state
        self.solver: Solver | None = None
        self._agent, self._zero, self._inner, self._model = agent, zero, inner, zero
        if agent.tree.parent is None or self.everywhere:
            self.state = state or SumsRootState(AcceleratedSteps(agent.x0, agent.x0))
            starts = own_data and state is None
            self._start(agent.f if starts or self.state.steps.smoothness.weight else zero, agent.task)

    @property
    def _is_relative(self) -> bool:
        """True if the errors of solves are bounded by the lengths of steps alone."""
        return self._model is not self._zero and not self._inner(self._model).stops_by_gap

    def _start(self, model: Objective, task: Task) -> None:
        """Use a new solver, for steps with this part of the model of f."""
        self._model, self.solver = model, self._inner(model).start(replace(task, f=model))

    def answer(self, k: int, y: Point, total: Value) -> Value:
        """Return θ and the next point; at the end the gap, and no point. The gradients are those at y.

        If shares of the dual function are asked for, their tolerance and ∇f(y) follow.
        """
        at, agent = self.state, self._agent
        assert at is not None
        steps = at.steps
        sums = self._split(at, y, total)
        gap, is_rounding = self._gap(at, k, sums)
        ends = gap is not None and agent.target is not None and agent.target.ends(gap)
        inside = agent.X.restore(steps.x) if ends and k > 1 else steps.x
        if gap is not None and ends and inside is steps.x:  # line 4
            return gap.as_array(), np.empty(0)
        scale = -steps.lowest if steps.lowest < 0.0 else sums.model.gap(agent)
        # By so much f may increase: not at all if no solve stops by its Wolfe gap.
        e = 0.0 if self._is_relative else summable_tolerance(k, scale)
        if ends:
            steps.restart(inside)
        else:
            self._judge(at, k, e, sums)  # line 5
        theta = 0.0 if steps.model is None else self._step(steps, steps.model, e / k**2)
        # A gap that is rounding error is measured where it has the least: at y = x.
        return (
            np.array([0.0 if is_rounding else theta]),
            steps.x.reshape(-1),
            *self._request(at, k, gap, sums),
        )

    def _split(self, at: SumsRootState, y: Point, total: Value) -> _Sums:
        """Return the sums by name. If curvatures of coordinates are among them, a preconditioner follows."""
        agent, shape = self._agent, self._agent.x0.shape
        grad, numbers, *curvatures = total
        # Errors of fixed point, where sums are masked: (f(x), f(y)), error, …, noise, excess, dual.
        fixed = np.broadcast_to(agent.sum_error(1), numbers.shape)
        numbers = numbers + fixed * (0.0, 0.0, 1.0, 0.0, 0.0, 1.0, 1.0, -1.0)
        numbers[2] += fixed[:2].max()
        numbers[5] += agent.sum_noise(0, grad.size)
        h = at.preconditioner
        if curvatures:
            h = summed_preconditioner(curvatures[0].reshape(shape), agent.facts.sizes.has_uneven_columns)
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
        apart = 0.0 if np.array_equal(model.at, at.steps.x) else 2.0 * sums.error
        noise = gap_noise(sums.noise, norm(model.at), agent.X.diameter)
        at_start = k == 1 and agent.origin is None
        above = CertifiedGap(sums.value - model.value + apart, -sums.value - sums.error, noise, at_start)
        at.bounds.add_least(sums.error - sums.value, sums.excess)
        if at.dual.is_pending:
            at.bounds.add(sums.dual, GapKind.DUAL)
        wolfe, gap = agent.gaps(model.grad, model.at, above, sums.error, at.bounds)
        if at.dual.is_pending and (gap.kind is not GapKind.DUAL or wolfe.gap <= gap.gap):
            at.dual.mark = math.ceil(_PAUSE * k)
        if gap.gap < math.inf:
            agent.certify(gap)
        return gap, wolfe.gap <= noise + 2.0 * apart

    def _request(self, at: SumsRootState, k: int, gap: CertifiedGap | None, sums: _Sums) -> Value:
        """Return the tolerance of shares of the dual function and ∇f(y), if shares are asked for."""
        target = self._agent.target
        if target is None or gap is None:
            return ()
        threshold = target.threshold(gap.decrease)
        if not at.dual.is_due(k, min(at.steps.lowest, sums.value), gap, threshold):
            return ()
        return np.array([_SHARE * threshold / self._agent.facts.agents]), sums.model.grad.reshape(-1)

    def _judge(self, at: SumsRootState, k: int, e: float, sums: _Sums) -> None:
        """Judge the last step: accept it, shorten it, or undo it if it increased f by more than e."""
        steps, last, value, rounding = at.steps, at.steps.model, sums.value, sums.error
        x, unlike, is_long, counts = steps.x, None, False, False
        if last is not None:
            explained, error = self._explained(steps, last)
            squared, excess = last.excess(x, value - explained)
            unlike = 2.0 * excess / squared if squared > 0.0 else 0.0
            is_long = excess > 0.5 * steps.smoothness.L * squared + rounding + error
            fall = _FALL * vdot(last.grad, last.at - x)
            counts = steps.smoothness.weight > 0.0 and value + rounding < steps.lowest - fall
        if k == 1:
            self._first(at, sums)
        steps.judge(sums.model, value, steps.lowest + e + rounding, unlike, is_long, counts)
        if steps.model is None:
            steps.x = self._agent.X.restore(steps.x)
        if last is not None and unlike is not None and steps.smoothness.weight:
            curvature = last.curvature(x, value)
            if steps.smoothness.leaves_data(curvature, curvature - unlike):
                self._start(self._zero, replace(self._agent.task, x0=steps.x, saved=None))

    def _first(self, at: SumsRootState, sums: _Sums) -> None:
        """Start Λ, and the preconditioner if there is one."""
        at.preconditioner, own = sums.model.preconditioner, self._agent.f.mean_curvature
        if self._model is not self._zero and own <= 0.0:  # the root's data say nothing
            self._start(self._zero, self._agent.task)
        if self._model is self._zero:
            at.steps.smoothness.start(sums.smoothness, sums.mean_curvature)
        else:
            at.steps.smoothness.start_with_data(sums.mean_curvature, own, self._agent.facts.agents)
            at.dual = DualRequests.with_data()

    def _explained(self, steps: AcceleratedSteps, last: SummedModel) -> tuple[float, float]:
        """Return c (f_root(x) − f_root(z) − ⟨∇f_root(z), x − z⟩) and its rounding error."""
        f, weight = self._agent.f, steps.smoothness.weight
        if weight == 0.0:
            return 0.0, 0.0
        image = f.map.image(last.at)
        (fall, error), (fall_z, error_z) = (
            self._agent.baseline.decrease(p, f.map.image(p)) for p in (steps.x, last.at)
        )
        slope = vdot(f.map.adjoint(f.loss.grad(image)), steps.x - last.at)
        noise = f.grad_error(last.at, image) * norm(steps.x - last.at)
        return weight * (fall_z - fall - slope), weight * (error + error_z + noise)

    def _step(self, steps: AcceleratedSteps, model: SummedModel, gap: float) -> float:
        """Move x to the minimizer of the model, up to this gap; return θ."""
        assert self.solver is not None
        f, weight = self._agent.f, steps.smoothness.weight
        c = weight or 1.0
        w = model.grad if self._model is self._zero else model.grad / c - f.grad(model.at)
        phi = Subproblem(self._model, w, steps.smoothness.L / c, model.at, model.preconditioner)
        accuracy = gap_at_most(gap) if self._model is self._zero else relative(phi, gap / c)
        x = self.solver(phi, accuracy)  # line 6
        return steps.move(x, restart=weight > 0.0 and steps.momentum.t > _LONGEST)  # line 7


def relative(phi: Subproblem, least: float) -> Accuracy:
    """Return the accuracy with which φ(x) − min φ is small beside the term of the step's length."""
    return lambda x: max(least, 0.5 * phi.eta * _PRECISION**2 * phi.squared(x - phi.center))
