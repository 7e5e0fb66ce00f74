"""FastDCGS over edges: one round and one inner solve an iteration.

The line numbers are those of the box "FastDCGS over edges" in docs/methods.md, and of the box for messages
that may be lost in docs/faults.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.inner import Accuracy, DistanceAccuracy, Inner, Solver, Subproblem
from dcgs.methods.base import Agent
from dcgs.methods.certificate import summable_tolerance
from dcgs.methods.fast.edge_variables import EdgeVariables, LossyEdgeVariables, ReliableEdgeVariables
from dcgs.methods.fast.epoch import Epoch
from dcgs.methods.fast.step_size import StepSize, local_eta
from dcgs.points import Point, norm
from dcgs.protocol import Program

# The error of the k-th inner solve is at most the length of the first move times k^(−_POWER), so that the
# errors have a finite sum. A solver that stops by its Wolfe gap may stop at a summable tolerance: the root of
# that bounds the error, up to a constant, and has a finite sum as well.
_POWER = 1.1


@final
@dataclass(eq=False)
class EdgesState:
    """One agent's point x, the variables of its edges, its step sizes, and the current epoch.

    ``first_move`` is ‖x¹ − x⁰‖, by which the errors of inner solves are bounded. ``loss_scale`` is the
    decrease of f in the first solve, if the inner solver stops by its gap; else 0.
    """

    x: Point
    edges: EdgeVariables
    step: StepSize
    epoch: Epoch
    first_move: float
    loss_scale: float


def over_edges(agent: Agent, inner: Inner, sigma: float, eta: float | None, omega: float) -> Program[Point]:
    """Run FastDCGS over edges for one agent, with relaxation ω; the agents find η if it is None."""
    solver = inner.start(agent.task)
    at = agent.restore(EdgesState) or _first_state(agent, inner, solver, sigma, eta)  # line 1
    for k in agent.iterations_left:  # line 2
        inbox = yield at.epoch.messages(agent, at.edges.outgoing(at.x, at.step), at.step)  # line 3
        received = at.epoch.receive(agent, inbox, at.step)
        primal, dual = at.edges.update(at.x, at.step, received, omega)  # lines 4 to 6
        at.epoch.measure(primal, dual)
        at.epoch.advance(agent, k, at.step)  # line 7
        phi, most = at.edges.subproblem(agent.f, at.step), at.first_move * (k + 1) ** -_POWER
        least = summable_tolerance(k + 1, at.loss_scale)
        at.x = solver(phi, relative_accuracy(phi, at.edges.reference(at.x), sigma, most, least))  # line 8
        agent.observe(k, at.x, at.edges.dual(at.step, at.epoch.scale * dual, solver))
        agent.save(k, at, solver)
    return at.x


def relative_accuracy(
    phi: Subproblem, reference: Point, sigma: float, most: float, least: float = 0.0
) -> Accuracy:
    """Return the accuracy that implies ‖x − x̂‖ ≤ σ ‖x − reference‖ and ≤ ``most``, x̂ the minimizer of φ.

    φ is η-strongly convex, so that φ(x) − φ(x̂) ≥ η/2 ‖x − x̂‖². An error of ``least`` in φ is always allowed.
    """

    def bound(x: Point) -> float:
        return max(least, 0.5 * phi.eta * min(sigma**2 * phi.squared(x - reference), most**2))

    return DistanceAccuracy(bound)


def _first_state(agent: Agent, inner: Inner, solver: Solver, sigma: float, eta: float | None) -> EdgesState:
    """Return the state after the first solve, from x⁰ with the dual variable 0."""
    f, x0, diameter = agent.f, agent.x0, agent.facts.set_diameter
    step = StepSize.local(agent, local_eta(agent) if eta is None else eta, is_fixed=eta is not None)
    phi = Subproblem(f, 0.0 * x0, step.eta, x0)
    first_gap = agent.wolfe_gap(f.grad(x0), x0) if inner.stops_by_gap else 0.0
    x = solver(phi, relative_accuracy(phi, x0, sigma, diameter, summable_tolerance(1, first_gap)))
    scale = f.value(x0) - f.value(x) if inner.stops_by_gap else 0.0
    if first_gap > 0.0 and scale <= 0.0:  # the first solve has left x⁰ where it was
        scale = first_gap
    uses_preconditioner = inner.supports_preconditioner(f, agent.X) and eta is None
    epoch = Epoch.first(step, f.uneven_curvatures if uses_preconditioner else None)
    # A single agent has no links that could fail.
    is_reliable = agent.reliable or not agent.degrees
    edges = ReliableEdgeVariables(x0, phi.w) if is_reliable else LossyEdgeVariables.at(x0, step)
    return EdgesState(x, edges, step, epoch, norm(x - x0) or diameter, scale)
