"""DCGS: Algorithms 2 and 3 of the paper.

Li, Qu and Xu, *Communication-Efficient Projection-Free Algorithm for Distributed Optimization*.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, final

from dcgs.inner import Inner, choose_inner
from dcgs.methods.base import Agent, Method
from dcgs.methods.sliding import SlidingState, bind, check_settings, schedule_incompatibility, sliding
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Facts, Schedule, Theorem1, Theorem2
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True)
class DCGS(Method):
    """Distributed conditional gradient sliding, as printed: two rounds an iteration.

    ``inner``: ``"cg"`` is Algorithm 2, ``"pcg"`` Algorithm 3; ``"auto"`` takes pcg over polytopes.
    ``schedule``: ``"theorem1"``, ``"theorem2"``, a :class:`Theorem1` or :class:`Theorem2` with other
    parameters, or any function ``k -> Params``; ``"auto"`` takes Theorem 2 if every objective is
    strongly convex. ``answer``: the paper's θ-weighted ``"average"``, or the ``"last"`` iterate.

    The theorems bound Σ fᵢ(xᵢ), the loss of each agent's model on its own data. The loss on everyone's data
    is measured as well, and with these parameters it is often large.
    """

    inner: Literal["auto", "cg", "pcg"] | Inner = "auto"
    schedule: Literal["auto", "theorem1", "theorem2"] | Theorem1 | Theorem2 | Schedule = "auto"
    answer: Literal["average", "last"] = "average"
    rounds_per_iteration = 2
    State = SlidingState

    def __post_init__(self) -> None:
        check_settings(self.inner, self.schedule, self.answer)

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self.inner_solver(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None) or schedule_incompatibility(self.schedule, objectives)

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner:
        return choose_inner(self.inner, X)

    def program(self, agent: Agent) -> Program[Point]:
        schedule = bind(self.schedule, agent.facts)
        inner = self.inner_solver(agent.f, agent.X).start(agent.task)
        return (yield from sliding(agent, schedule, inner, self.answer == "last"))

    def schedule_fingerprint(self, facts: Facts) -> str:
        return repr(bind(self.schedule, facts)(1))  # e depends on the horizon
