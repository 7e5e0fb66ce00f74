"""The outer loop that DCGS and the primal-dual algorithm share."""

from __future__ import annotations

from collections.abc import Mapping

from dcgs.inner import Inner, Solver, Subproblem, check_inner
from dcgs.memory import Memory
from dcgs.methods.base import Agent
from dcgs.methods.talk import laplacian
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Facts, Schedule, Theorem1, Theorem2


def sliding(agent: Agent, schedule: Schedule, inner: Solver, last: bool, **more: Memory) -> Program[Point]:
    """Run Algorithm 2 for one agent; ``last`` asks for the last iterate, not the weighted average.

    ``more`` is kept beside its own state.
    """
    f = agent.f
    x_prev = x = x_bar = agent.x0  # line 1
    y = 0.0 * x
    total = 0.0
    if agent.past is not None:
        x_prev, x, x_bar, y = agent.past.points("x_prev", "x", "x_bar", "y")
        total = agent.past.number("total")
    for k in agent.ks:  # line 2
        at = schedule(k)
        x_tilde = at.alpha * (x - x_prev) + x  # line 4
        v = yield from laplacian(x_tilde)  # line 5
        y = y + v / at.tau  # line 6
        w = yield from laplacian(y)  # line 7
        del x_tilde, v  # two points fewer while the inner solver works
        x_prev, x = x, inner(Subproblem(f, w, at.eta, x), at.e)  # line 8
        total = total + at.theta
        x_bar = x_bar + (at.theta / total) * (x - x_bar)  # line 10
        agent.observe(k, x if last else x_bar)
        agent.keep(k, inner=inner, x_prev=x_prev, x=x, x_bar=x_bar, y=y, total=total, **more)
    return x if last else x_bar


def bind(schedule: str | Theorem1 | Theorem2 | Schedule, facts: Facts) -> Schedule:
    """Return the function of k that ``schedule`` names; ``"auto"`` goes by strong convexity."""
    if schedule == "auto":
        schedule = "theorem2" if facts.strong_convexity > 0.0 else "theorem1"
    if isinstance(schedule, str):
        schedule = _SCHEDULES[schedule]
    return schedule.bind(facts) if isinstance(schedule, Theorem1 | Theorem2) else schedule


def check_settings(inner: str | Inner, schedule: object, answer: str) -> None:
    """Raise unless inner, schedule and answer are such as the loop knows."""
    check_inner(inner)
    if answer not in ("average", "last"):
        raise ValueError(f"answer must be 'average' or 'last'; got {answer!r}.")
    known = isinstance(schedule, Theorem1 | Theorem2) or (
        callable(schedule) and not isinstance(schedule, type)
    )
    if not known and schedule not in ("auto", *_SCHEDULES):
        names = ", ".join(map(repr, ("auto", *_SCHEDULES)))
        raise ValueError(
            f"schedule must be one of {names}, a Theorem1(...), a Theorem2(...) or a function of k; "
            f"got {schedule!r}."
        )


def schedule_incompatibility(schedule: object, objectives: Mapping[int, Objective]) -> str | None:
    """Return why the schedule cannot serve these agents, or None if it can."""
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
