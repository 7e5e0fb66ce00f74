"""The primal-dual algorithm: Algorithm 1 of the paper (Chambolle and Pock), distributed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, final

from dcgs.inner import Exact, Inner, choose_inner
from dcgs.methods.base import Agent, Method, solver_forgets
from dcgs.methods.sliding import bind, check_settings, schedule_incompatibility, sliding
from dcgs.objectives.objective import Objective
from dcgs.points import Point, vdot
from dcgs.protocol import Program
from dcgs.schedules import Facts, Params, Schedule, Theorem1, Theorem2
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True)
class PrimalDual(Method):
    """Algorithm 1: DCGS with every subproblem solved exactly; two rounds an iteration.

    ``inner="auto"`` takes the closed form where there is one (least squares with a dense matrix
    over an ℓ₂ ball), pcg over polytopes and cg over what remains. Iterative solvers go on to
    a Wolfe gap of ``precision`` times the gap of fᵢ at x⁰, or to rounding error. A cg needs about
    1/precision steps for that: choose a looser precision where X is no polytope.
    """

    inner: Literal["auto", "cg", "pcg", "exact"] | Inner = "auto"
    schedule: Literal["auto", "theorem1", "theorem2"] | Theorem1 | Theorem2 | Schedule = "auto"
    answer: Literal["average", "last"] = "average"
    precision: float = 1e-12
    rounds_per_iteration = 2

    def __post_init__(self) -> None:
        check_settings(self.inner, self.schedule, self.answer)
        if not 0.0 <= self.precision < 1.0:
            raise ValueError(f"precision must be in [0, 1); got {self.precision!r}.")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self._inner(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None) or schedule_incompatibility(self.schedule, objectives)

    def program(self, agent: Agent) -> Program[Point]:
        inner = self._inner(agent.f, agent.X).start(agent.task)
        schedule = bind(self.schedule, agent.facts)
        e = self._e(agent) if agent.past is None else agent.past.number("e")

        def exact(k: int) -> Params:
            return replace(schedule(k), e=e)

        return (yield from sliding(agent, exact, inner, self.answer == "last", e=e))

    def forgets(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (solver_forgets(self, self._inner(f, X)) for f in objectives.values())
        return next(filter(None, reasons), None)

    def plan(self, facts: Facts) -> str:
        return repr(replace(bind(self.schedule, facts)(1), e=0.0))

    def _e(self, agent: Agent) -> float:
        """Return the gap asked of iterative solvers."""
        g = agent.f.grad(agent.x0)
        return self.precision * (vdot(g, agent.x0) - agent.lmo(g, None).dot(g))

    def _inner(self, f: Objective, X: ConvexSet) -> Inner:
        if self.inner == "auto" and Exact().incompatibility(f, X) is None:
            return Exact()
        return choose_inner(self.inner, X)
