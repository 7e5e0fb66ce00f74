"""DCGS and the primal-dual algorithm: Algorithms 1, 2 and 3 of the paper, which share one outer loop.

Li, Qu and Xu, *Communication-Efficient Projection-Free Algorithm for Distributed Optimization*. Algorithm 1
is the primal-dual algorithm of Chambolle and Pock, distributed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, final

from dcgs.facts import Facts
from dcgs.inner import Exact, Inner, Solver, Subproblem, check_inner, choose_inner, gap_at_most
from dcgs.methods.base import Agent, Dual, Method
from dcgs.methods.mixing import laplacian, sized_laplacian
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Params, Schedule, Theorem1, Theorem2
from dcgs.sets.base import ConvexSet
from dcgs.validation import instance, number, one_of


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


def _sliding(
    agent: Agent, schedule: Schedule, inner: Solver, last: bool, e: float | None = None
) -> Program[Point]:
    """Run Algorithm 2 for one agent; ``last`` asks for the last iterate, not the weighted average."""
    x0 = agent.x0
    state = agent.restore(SlidingState) or SlidingState(x0, x0, x0, 0.0 * x0, 0.0, e)  # line 1
    for k in agent.iterations_left:  # line 2
        p = schedule(k)
        x_tilde = p.alpha * (state.x - state.x_prev) + state.x  # line 4
        v = yield from laplacian(x_tilde)  # line 5
        state.y = state.y + v / p.tau  # line 6
        w, drift = yield from sized_laplacian(state.y)  # line 7
        del x_tilde, v  # two points fewer in memory during the inner solve
        e = p.e if state.e is None else state.e
        state.x_prev, state.x = (
            state.x,
            inner(Subproblem(agent.f, w, p.eta, state.x), gap_at_most(e)),
        )  # line 8
        state.total = state.total + p.theta
        state.x_bar = state.x_bar + (p.theta / state.total) * (state.x - state.x_bar)  # line 10
        agent.observe(k, state.x if last else state.x_bar, Dual(w, drift, p.eta))
        agent.save(k, state, inner)
    return state.x if last else state.x_bar


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

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> method = dcgs.DCGS(inner="pcg", answer="last")
    >>> result = dcgs.minimize(data.objectives(4), X, graph, method, iterations=10)
    >>> result.rounds
    20
    """

    inner: Literal["auto", "cg", "pcg"] | Inner = "auto"
    schedule: Literal["auto", "theorem1", "theorem2"] | Theorem1 | Theorem2 | Schedule = "auto"
    answer: Literal["average", "last"] = "average"
    rounds_per_iteration = 2
    State = SlidingState

    def __post_init__(self) -> None:
        _check_settings(self.inner, self.schedule, self.answer)

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self.inner_solver(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None) or _schedule_incompatibility(self.schedule, objectives)

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner:
        return choose_inner(self.inner, X)

    def program(self, agent: Agent) -> Program[Point]:
        schedule = _bind(self.schedule, agent.facts)
        inner = self.inner_solver(agent.f, agent.X).start(agent.task)
        return (yield from _sliding(agent, schedule, inner, self.answer == "last"))

    def schedule_fingerprint(self, facts: Facts) -> str:
        return repr(_bind(self.schedule, facts)(1))  # e depends on the horizon


@final
@dataclass(frozen=True)
class PrimalDual(Method):
    """Algorithm 1: DCGS with every subproblem solved exactly; two rounds an iteration.

    ``inner="auto"`` takes the closed form where there is one (least squares with a dense matrix over an ℓ₂
    ball), pcg over polytopes and cg over other sets. Iterative solvers stop at a Wolfe gap of ``precision``
    times the gap of fᵢ at x⁰, or at rounding error. cg needs about 1/precision steps for that: choose a
    larger precision where X is not a polytope.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> method = dcgs.PrimalDual(precision=1e-3)
    >>> result = dcgs.minimize(data.objectives(4), X, graph, method, iterations=10)
    >>> result.rounds
    20
    """

    inner: Literal["auto", "cg", "pcg", "exact"] | Inner = "auto"
    schedule: Literal["auto", "theorem1", "theorem2"] | Theorem1 | Theorem2 | Schedule = "auto"
    answer: Literal["average", "last"] = "average"
    precision: float = 1e-12
    rounds_per_iteration = 2
    State = SlidingState

    def __post_init__(self) -> None:
        _check_settings(self.inner, self.schedule, self.answer)
        number("be in [0, 1)", lambda x: 0.0 <= x < 1.0)(self.precision, "precision")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self.inner_solver(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None) or _schedule_incompatibility(self.schedule, objectives)

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner:
        if self.inner == "auto" and Exact().incompatibility(f, X) is None:
            return Exact()
        return choose_inner(self.inner, X)

    def program(self, agent: Agent) -> Program[Point]:
        schedule = _bind(self.schedule, agent.facts)
        inner = self.inner_solver(agent.f, agent.X).start(agent.task)
        e = None
        if agent.resume is None:  # a run that is resumed has counted this oracle call
            e = self.precision * agent.wolfe_gap(agent.f.grad(agent.x0), agent.x0)
        return (yield from _sliding(agent, schedule, inner, self.answer == "last", e))

    def schedule_fingerprint(self, facts: Facts) -> str:
        return repr(replace(_bind(self.schedule, facts)(1), e=0.0))


def _bind(schedule: str | Theorem1 | Theorem2 | Schedule, facts: Facts) -> Schedule:
    """Return the schedule as a function of k; ``"auto"`` is Theorem 2 if objectives are strongly convex."""
    if schedule == "auto":
        schedule = "theorem2" if facts.strong_convexity > 0.0 else "theorem1"
    if isinstance(schedule, str):
        schedule = _SCHEDULES[schedule]
    if isinstance(schedule, Theorem1 | Theorem2):
        return schedule.bind(facts)
    return lambda k: instance(schedule(k), Params, "schedule", "be a function that returns a dcgs.Params")


def _check_settings(inner: str | Inner, schedule: object, answer: str) -> None:
    """Raise ValueError unless inner, schedule and answer are valid."""
    check_inner(inner)
    one_of("average", "last")(answer, "answer")
    known = isinstance(schedule, Theorem1 | Theorem2) or callable(schedule)
    if not known or isinstance(schedule, type):
        objects = ("a Theorem1(...)", "a Theorem2(...)", "a function of k")
        one_of("auto", *_SCHEDULES, also=objects)(schedule, "schedule")


def _schedule_incompatibility(schedule: object, objectives: Mapping[int, Objective]) -> str | None:
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
