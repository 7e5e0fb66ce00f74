"""The primal-dual algorithm: Algorithm 1 of the paper (Chambolle and Pock), distributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, final

from dcgs.inner import Exact, Inner, choose_inner
from dcgs.methods.base import Agent, Method
from dcgs.methods.sliding import SlidingState, bind, check_settings, schedule_incompatibility, sliding
from dcgs.objectives.objective import Objective
from dcgs.points import Point, vdot
from dcgs.protocol import Program
from dcgs.schedules import Facts, Schedule, Theorem1, Theorem2
from dcgs.sets.base import ConvexSet
from dcgs.validation import number


@final
@dataclass(frozen=True)
class PrimalDual(Method):
    """Algorithm 1: DCGS with every subproblem solved exactly; two rounds an iteration.

    ``inner="auto"`` takes the closed form where there is one (least squares with a dense matrix over an ℓ₂
    ball), pcg over polytopes and cg over other sets. Iterative solvers stop at a Wolfe gap of ``precision``
    times the gap of fᵢ at x⁰, or at rounding error. cg needs about 1/precision steps for that: choose a
    larger precision where X is not a polytope.
    """

    inner: Literal["auto", "cg", "pcg", "exact"] | Inner = "auto"
    schedule: Literal["auto", "theorem1", "theorem2"] | Theorem1 | Theorem2 | Schedule = "auto"
    answer: Literal["average", "last"] = "average"
    precision: float = 1e-12
    rounds_per_iteration = 2
    State = SlidingState

    def __post_init__(self) -> None:
        check_settings(self.inner, self.schedule, self.answer)
        number("be in [0, 1)", lambda x: 0.0 <= x < 1.0)(self.precision, "precision")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self.inner_solver(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None) or schedule_incompatibility(self.schedule, objectives)

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner:
        if self.inner == "auto" and Exact().incompatibility(f, X) is None:
            return Exact()
        return choose_inner(self.inner, X)

    def program(self, agent: Agent) -> Program[Point]:
        schedule = bind(self.schedule, agent.facts)
        inner = self.inner_solver(agent.f, agent.X).start(agent.task)
        # The oracle call for the gap at x⁰ is already counted in a run that is resumed.
        e = self._gap(agent) if agent.resume is None else None
        return (yield from sliding(agent, schedule, inner, self.answer == "last", e))

    def schedule_fingerprint(self, facts: Facts) -> str:
        return repr(replace(bind(self.schedule, facts)(1), e=0.0))

    def _gap(self, agent: Agent) -> float:
        """Return the gap asked of iterative solvers."""
        g = agent.f.grad(agent.x0)
        return self.precision * (vdot(g, agent.x0) - agent.lmo(g, None).dot(g))
