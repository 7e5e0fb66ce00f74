"""FastDCGS over edges: one round and one inner solve an iteration.

The line numbers are those of the box "FastDCGS over edges" in docs/methods.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

from dcgs.inner import Inner, Solver, Subproblem
from dcgs.methods.base import Agent
from dcgs.methods.certificate import Certificate
from dcgs.methods.coordination import Coordination, epoch_length
from dcgs.methods.messages import Message
from dcgs.methods.preconditioner import CurvatureMaximum
from dcgs.methods.step_size import StepSize, local_eta
from dcgs.objectives.objective import Objective
from dcgs.points import Point, vdot
from dcgs.protocol import Program


@final
@dataclass(eq=False)
class EdgesState:
    """One agent's point x, center c and dual variable w, and what it agrees on with the others."""

    x: Point
    c: Point
    w: Point
    coordination: Coordination

    def subproblem(self, f: Objective) -> Subproblem:
        """Return φ(x) = f(x) + ⟨w, x⟩ + η/2 ‖x − c‖²."""
        return Subproblem(f, self.w, self.coordination.step.eta, self.c, self.coordination.preconditioner)


Gap: TypeAlias = Callable[[int, float], float]
"""``gap(k, scale)`` is the gap of the k-th inner solve, for losses of this scale."""


def over_edges(agent: Agent, inner: Inner, gap: Gap, eta: float | None, rho: float) -> Program[Point]:
    """Run FastDCGS over edges for one agent, with relaxation ρ; the agents find η if it is None."""
    solver = inner.start(agent.task)
    edge_weights = _edge_weights(agent)
    at = agent.restore(EdgesState) or _first_state(agent, inner, solver, gap, eta)  # line 1
    for k in agent.iterations_left:  # line 2
        x_tilde = 2.0 * at.x - at.c  # line 3
        inbox = yield at.coordination.message(agent, k, x_tilde)  # line 4
        v = _weighted_laplacian(at, edge_weights, x_tilde, at.coordination.receive(agent, k, inbox))  # line 5
        at.coordination.primal += at.subproblem(agent.f).prox_curvature(at.x - at.c)
        at.coordination.dual += vdot(x_tilde, v)
        at.c = at.c + rho * (at.x - at.c)  # line 6
        at.w = at.w + rho * v  # line 7
        if k % epoch_length(agent) == 0:  # line 8
            certified = at.coordination.end_of_epoch(agent, k, at.x, at.w)
            model = at.coordination.certificate.model
            if certified is not None and model is not None:
                agent.observe(k, model)
                agent.agree(certified)
                return model
        at.x = solver(at.subproblem(agent.f), gap(k + 1, at.coordination.loss_scale))  # line 9
        agent.observe(k, at.x)
        agent.save(k, at, solver)
    return at.x


def _weighted_laplacian(
    at: EdgesState, weights: Mapping[int, float], x_tilde: Point, messages: Mapping[int, Message]
) -> Point:
    """Return Σⱼ rᵢⱼ min(s, sⱼ) (x̃ − x̃ⱼ), times the preconditioner if there is one."""
    coordination, v = at.coordination, 0.0 * at.x
    for j, theirs in messages.items():
        v = v + weights[j] * min(coordination.step.edge_step, theirs.edge_step) * (x_tilde - theirs.point)
    return v if coordination.preconditioner is None else coordination.preconditioner * v


def _first_state(agent: Agent, inner: Inner, solver: Solver, gap: Gap, eta: float | None) -> EdgesState:
    """Return the state after the first solve, from x⁰ with the dual variable 0."""
    f, x0 = agent.f, agent.x0
    degree = sum(_edge_weights(agent).values()) or 1.0
    step = StepSize.local(local_eta(agent) if eta is None else eta, degree)
    image = f.map.image(x0)
    loss, first_gap = f.loss.value(image), agent.wolfe_gap(f.map.adjoint(f.loss.grad(image)), x0)
    largest = step.eta * agent.facts.set_diameter**2
    uses_preconditioner = inner.supports_preconditioner and eta is None
    w = 0.0 * x0
    x = solver(Subproblem(f, w, step.eta, x0), gap(1, first_gap or largest))
    decrease = max(loss - f.value(x), 0.0)
    coordination = Coordination(
        step,
        Certificate(loss, x0, model=None if agent.target is None else x0),
        CurvatureMaximum.of(f) if uses_preconditioner else CurvatureMaximum(),
        decrease,
        loss_scale=decrease or first_gap or largest,
        eta_is_given=eta is not None,
    )
    coordination.flood(agent.index)
    return EdgesState(x, x0, w, coordination)


def _edge_weights(agent: Agent) -> Mapping[int, float]:
    return agent.weights or dict.fromkeys(agent.degrees, 1.0)
