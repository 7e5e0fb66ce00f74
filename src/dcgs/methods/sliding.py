"""The outer loop that DCGS and the primal-dual algorithm share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import final

from dcgs.inner import Inner, Solver, Subproblem, check_inner
from dcgs.methods.base import Agent
from dcgs.methods.mixing import laplacian
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Facts, Params, Schedule, Theorem1, Theorem2
from dcgs.validation import instance, one_of


@final
@dataclass(eq=False)
class SlidingState:
    """The variables of Algorithm 2 after an iteration; ``total`` is Σ θ so far.

    ``e`` replaces the schedule's e in the primal-dual algorithm; it is None in DCGS.
    """

    x_prev: Point
    x: Point
    x_bar: Point
    y: Point
    total: float
    e: float | None


def sliding(
    agent: Agent, schedule: Schedule, inner: Solver, last: bool, e: float | None = None
) -> Program[Point]:
    """Run Algorithm 2 for one agent; ``last`` asks for the last iterate, not the weighted average."""
    x0 = agent.x0
    at = agent.restore(SlidingState) or SlidingState(x0, x0, x0, 0.0 * x0, 0.0, e)  # line 1
    for k in agent.iterations_left:  # line 2
        p = schedule(k)
        x_tilde = p.alpha * (at.x - at.x_prev) + at.x  # line 4
        v = yield from laplacian(x_tilde)  # line 5
        at.y = at.y + v / p.tau  # line 6
        w = yield from laplacian(at.y)  # line 7
        del x_tilde, v  # two points fewer in memory during the inner solve
        e = p.e if at.e is None else at.e
        at.x_prev, at.x = at.x, inner(Subproblem(agent.f, w, p.eta, at.x), e)  # line 8
        at.total = at.total + p.theta
        at.x_bar = at.x_bar + (p.theta / at.total) * (at.x - at.x_bar)  # line 10
        agent.observe(k, at.x if last else at.x_bar)
        agent.save(k, at, inner)
    return at.x if last else at.x_bar


def bind(schedule: str | Theorem1 | Theorem2 | Schedule, facts: Facts) -> Schedule:
    """Return the schedule as a function of k; ``"auto"`` is Theorem 2 if objectives are strongly convex."""
    if schedule == "auto":
        schedule = "theorem2" if facts.strong_convexity > 0.0 else "theorem1"
    if isinstance(schedule, str):
        schedule = _SCHEDULES[schedule]
    if isinstance(schedule, Theorem1 | Theorem2):
        return schedule.bind(facts)
    return lambda k: instance(schedule(k), Params, "schedule", "be a function that returns a dcgs.Params")


def check_settings(inner: str | Inner, schedule: object, answer: str) -> None:
    """Raise ValueError unless inner, schedule and answer are valid."""
    check_inner(inner)
    one_of("average", "last")(answer, "answer")
    known = isinstance(schedule, Theorem1 | Theorem2) or callable(schedule)
    if not known or isinstance(schedule, type):
        objects = ("a Theorem1(...)", "a Theorem2(...)", "a function of k")
        one_of("auto", *_SCHEDULES, also=objects)(schedule, "schedule")


def schedule_incompatibility(schedule: object, objectives: Mapping[int, Objective]) -> str | None:
    """Return why the schedule cannot be used for these objectives, or None if it can."""
    named = _SCHEDULES.get(schedule) if isinstance(schedule, str) else schedule
    if not isinstance(named, Theorem2) or named.strong_convexity is not None:
        return None
    flat = [i for i, f in objectives.items() if f.strong_convexity <= 0.0]
    if not flat:
        return None
    return (
        f"Theorem 2 needs strongly convex objectives; those of agents {flat} are not known to be. "
        "Use schedule='theorem1', or Theorem2(strong_convexity=...) if you know a bound."
    )


_SCHEDULES: dict[str, Theorem1 | Theorem2] = {"theorem1": Theorem1(), "theorem2": Theorem2()}
