"""FastDCGS over edges: one round and one inner solve an iteration.

The line numbers are those of the box "FastDCGS over edges" in docs/methods.md.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.inner import Accuracy, Inner, Solver, Subproblem
from dcgs.methods.base import Agent
from dcgs.methods.epoch import Epoch
from dcgs.methods.links import Links, LossyLinks, ReliableLinks
from dcgs.methods.preconditioner import uneven_curvatures
from dcgs.methods.step_size import StepSize, local_eta
from dcgs.points import Point, norm
from dcgs.protocol import Program

# The error of the k-th inner solve is at most the length of the first move times k^(−_POWER), so that the
# errors have a finite sum.
_POWER = 1.1


@final
@dataclass(eq=False)
class EdgesState:
    """One agent's point x, its links to neighbors, its step sizes, and the current epoch.

    ``first_move`` is ‖x¹ − x⁰‖, by which the errors of inner solves are bounded.
    """

    x: Point
    links: Links
    step: StepSize
    epoch: Epoch
    first_move: float


def over_edges(agent: Agent, inner: Inner, sigma: float, eta: float | None, rho: float) -> Program[Point]:
    """Run FastDCGS over edges for one agent, with relaxation ρ; the agents find η if it is None."""
    solver = inner.start(agent.task)
    at = agent.restore(EdgesState) or _first_state(agent, inner, solver, sigma, eta)  # line 1
    for k in agent.iterations_left:  # line 2
        inbox = yield at.epoch.messages(agent, at.links.outgoing(at.x, at.step), at.step)  # line 3
        received = at.epoch.receive(agent, inbox, at.step)
        at.epoch.measure(*at.links.update(at.x, at.step, received, rho))  # lines 4 to 6
        certified = at.epoch.advance(agent, k, at.x, at.step)  # line 7
        if certified is not None:
            model = at.epoch.certificate.model
            assert model is not None
            agent.observe(k, model)
            agent.agree(certified)
            if agent.reliable:
                return model
            agent.save(k, at, solver)
            continue  # neighbors may not know the answer yet: send it until the run ends
        phi, most = at.links.subproblem(agent.f, at.step), at.first_move * (k + 1) ** -_POWER
        at.x = solver(phi, relative_accuracy(phi, at.links.reference(at.x), sigma, most))  # line 8
        agent.observe(k, at.x)
        agent.save(k, at, solver)
    return at.x


def relative_accuracy(phi: Subproblem, reference: Point, sigma: float, most: float) -> Accuracy:
    """Return the accuracy that implies ‖x − x̂‖ ≤ σ ‖x − reference‖ and ≤ ``most``, x̂ the minimizer of φ.

    φ is η-strongly convex, so that φ(x) − φ(x̂) ≥ η/2 ‖x − x̂‖².
    """
    return lambda x: 0.5 * phi.eta * min(sigma**2 * phi.squared(x - reference), most**2)


def _first_state(agent: Agent, inner: Inner, solver: Solver, sigma: float, eta: float | None) -> EdgesState:
    """Return the state after the first solve, from x⁰ with the dual variable 0."""
    f, x0 = agent.f, agent.x0
    step = StepSize.local(agent, local_eta(agent) if eta is None else eta, is_fixed=eta is not None)
    phi = Subproblem(f, 0.0 * x0, step.eta, x0)
    x = solver(phi, relative_accuracy(phi, x0, sigma, agent.facts.set_diameter))
    uses_preconditioner = inner.supports_preconditioner(f, agent.X) and eta is None
    epoch = Epoch.first(agent, step, uneven_curvatures(f) if uses_preconditioner else None)
    # A single agent has no links that could fail.
    is_reliable = agent.reliable or not agent.degrees
    links = ReliableLinks(x0, phi.w) if is_reliable else LossyLinks.at(x0, step)
    return EdgesState(x, links, step, epoch, norm(x - x0) or agent.facts.set_diameter)
