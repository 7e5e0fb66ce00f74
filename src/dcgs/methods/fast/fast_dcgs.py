"""FastDCGS: a method that needs few rounds and no tuning.

It has five forms. ``edges.py``: one round and one inner solve an iteration, on every graph, also if messages
are lost. ``sums.py``: accelerated steps along the sum of all gradients; or, in the form "root", steps on a
model of f that is made of this sum and the root's own data. ``second_order.py``: Newton steps with the sum of
all Hessians, for few unknowns. ``completion.py``: accelerated steps on a matrix in factors, for matrix
completion, where agents have rows of their own (``completion_own.py``) or share rows
(``completion_shared.py``). All forms but the first sum along a spanning tree. In all forms the agents decide
themselves when to stop. ``expected_rounds`` is what the form is chosen by. docs/methods.md has the algorithms
and the proofs.

What a form takes is expected from a few facts of the data, and can be far off. A run that takes far more
rounds goes on with another form (``in_turn``). Each stage of a run is one form, for a number of iterations
that all agents know before the run, so nothing is sent to change the form. A stage begins at the point where
the one before has ended, and takes at least as many rounds as all before it: so a run takes at most a few
times the rounds of the form that would have been best from there.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, cycle, pairwise
from typing import Any, Literal, TypeAlias, final

from dcgs.facts import SizeFacts
from dcgs.inner import Inner, best_inner, check_inner, choose_inner
from dcgs.link import ASSUMED, SHORTEST_ROUND, Link
from dcgs.methods.base import Agent, Method
from dcgs.methods.certificate import CertifiedGap
from dcgs.methods.certifier import certified
from dcgs.methods.fast.completion import complete
from dcgs.methods.fast.completion_home import HomeState, RowsAtHome, begins_at_home
from dcgs.methods.fast.completion_own import CompletionState, OwnRows
from dcgs.methods.fast.completion_shared import SharedRows, SharedState
from dcgs.methods.fast.edges import EdgesState, over_edges
from dcgs.methods.fast.second_order import SecondOrderState, by_second_order
from dcgs.methods.fast.sums import SumsState, by_sums
from dcgs.methods.reduction import Value, is_flooded, network_answer
from dcgs.objectives.objective import Objective
from dcgs.objectives.sampling import Sampling
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.base import ConvexSet, projects_cheaply
from dcgs.sets.nuclear_norm_ball import NuclearNormBall
from dcgs.validation import FLAG, POSITIVE, instance, number, one_of

RELAXATION, LOSSY_RELAXATION = 1.9, 1.86
"""The relaxation over edges, and that where messages may be lost or late; chosen by `dcgs bench`."""
# An η outside of these multiples of an agent's smoothness is refused.
_RANGE = 1e-12, 1e12

# What a form is expected to take was fitted to measured rounds: docs/methods.md has the formulas, `dcgs bench
# forms` compares the forms. No clock is read, so that all agents choose the same form, in every run.
# Hessians of more unknowns are never sent: what the root computes with them takes longer than rounds.
_MOST_UNKNOWNS = 500
# Losses with a smaller share of their curvature at the start are as flat as these, in the formulas.
_FLATTEST = 1e-4
# For sparse columns an iteration by sums is worth 10 to 20 over edges, on the Lassos of `dcgs bench growth`.
_SPARSE = 20.0
# The root's data say little of dense data with more unknowns for each of its rows: on dense Lassos with 30 to
# 100 steps with them took about the rounds of steps along gradients, and computed twice as long.
_SHORT = 64
# Edges and gradients take many more rounds if the curvatures of agents differ by orders of magnitude.
_APART = 6.0
# Where solves call an oracle, all forms but Newton steps have many solves, and these are less accurate.
_ORACLE = 5.0
# The agents agree on a preconditioner in the first rounds over edges.
_PRECONDITIONED = 8.0
# Edges take longer on graphs with a smaller connectivity.
_CONNECTED = 0.1

# What an iteration by sums is worth, in iterations over edges. On Lassos of `dcgs bench rounds` it is 3 to 5,
# on the other instances with even columns 1.7 to 3.
_WORTH = 2.5
# Passes over an agent's data of an iteration, the bytes of memory that one core reads in a second, and the
# seconds that an iteration takes without data: for each form, measured on the instances of `dcgs bench time`.
_EDGE_PASSES, _SUM_PASSES = 6.0, 2.0
_MEMORY = 8e9
_EDGE_SECONDS, _SUM_SECONDS = 3e-4, 1e-4

# A form gets so many times the rounds that it was expected to take, and at least those of the next one.
_PATIENCE = 3.0

Form: TypeAlias = Literal["edges", "sums", "root", "newton"]
InnerName: TypeAlias = Literal[
    "auto", "oracle", "cg", "pcg", "corrective", "block", "exact", "projected", "newton"
]


@final
@dataclass(frozen=True)
class FastDCGS(Method):
    """Steps of relaxed consensus ADMM over edges, or steps along sums over all agents.

    ``form="edges"``: one round and one inner solve an iteration. ``eta`` is the mean of η in η/2 ‖x −
    center‖², once the agents have a common scale; they find it if it is None. ``relaxation`` is in (0, 2),
    by default 1.9, and 1.86 where messages may be lost or late. Only this form tolerates such messages.
    ``form="sums"``: accelerated steps, which the root of a spanning tree takes. Gradients are summed along
    it, and points are sent down, in twice its height rounds: two if one agent is a neighbor of all others.
    Short gradients are flooded, in as many rounds as the graph has diameter: one if it is complete. Every
    agent then sees those of all others, and takes the steps itself.
    ``form="root"``: as sums, but the root's own data are a part of its model of f, so that steps are as long
    as its data are like those of the others. It takes two rounds a sum also if the graph is complete.
    ``form="newton"``: Hessians are summed or flooded as well, and the root of the tree minimizes their model
    of f. It has no inner solves, and projects at the root if the set has a projection.
    ``"auto"`` takes edges, if links are not reliable or ``eta`` is given; matrices in factors, for
    ``MatrixCompletion`` over a ``NuclearNormBall`` with ``inner="auto"``; else the form that is expected to
    take the fewest rounds (docs/methods.md), by the graph and by what the data are like; never edges if
    sums are masked (``minimize(secure=True)``). For matrices in factors, ``form="sums"`` and ``"auto"`` are
    the same.

    ``inner``: ``"auto"`` takes the closed form where there is one; Newton or projected gradient steps where
    a projection is cheap; block steps over nuclear-norm balls, corrective steps over polytopes and products,
    and cg elsewhere. ``"oracle"`` never projects: all solves call the linear oracle. Over edges, inner solves
    end when their error is at most ``precision`` times the distance from the center; solvers that stop by
    their Wolfe gap end at gaps that fall with the iterations at the latest.

    ``link`` is the speed and latency of the links between agents, such as ``"10MB/s,20ms"``. With it,
    ``form="auto"`` takes the form by sums in place of edges where a rule expects it to take less time:
    links are reliable, and an iteration by sums takes less than 2.5 times as long as one over edges. The
    times are computed from the dimension, the largest number of neighbors, the height of the tree and the
    largest number of entries of an agent's data. In all forms but edges, what is summed along the tree is
    sent in pieces where that takes less time: more rounds, of smaller messages, and the same bits.
    Without it, the aim is few rounds: gradients and factors are sent in pieces only if that saves time
    over links of 100 Mbit/s with 20 ms a round.

    Given a ``gap``, the agents stop when they have certified that relative gap for a model that they all
    have, and return this model. With ``stops_itself=False`` the observer of the run decides
    instead; it sees all data, and its work is not counted.

    >>> import dcgs, networkx as nx
    >>> from dcgs.datasets import lasso_synthetic
    >>> data = lasso_synthetic(samples=40, features=20, nonzeros=3)
    >>> X, graph = dcgs.L1Ball(20, radius=150.0), nx.cycle_graph(4)
    >>> result = dcgs.minimize(data.objectives(4), X, graph, dcgs.FastDCGS(), gap=1e-2)
    >>> print(result.status)
    the agents agreed that the gap they certified reached its target.
    """

    inner: InnerName | Inner = "auto"
    eta: float | None = None
    relaxation: float | None = None
    precision: float = 0.07
    stops_itself: bool = True
    form: Literal["auto", "edges", "sums", "root", "newton"] = "auto"
    link: str | None = None
    rounds_per_iteration = 1
    certifies = True
    uses_sizes = True
    State = EdgesState | SumsState | SecondOrderState | HomeState | CompletionState | SharedState

    def __post_init__(self) -> None:
        check_inner(self.inner, "oracle")
        POSITIVE.or_none(self.eta, "eta")
        number("be between 0 and 2", lambda x: 0.0 < x < 2.0).or_none(self.relaxation, "relaxation")
        number("be positive and less than 1", lambda x: 0.0 < x < 1.0)(self.precision, "precision")
        FLAG(self.stops_itself, "stops_itself")
        one_of("auto", "edges", "sums", "root", "newton")(self.form, "form")
        if self.link is not None:
            Link.parse(instance(self.link, str, "link", "be a text such as '10MB/s,20ms'"))
        if self.form in ("sums", "root") and self.eta is not None:
            raise ValueError(
                f"eta must be None with form={self.form!r}, which has no such weight; got {self.eta!r}."
            )

    @property
    def tolerates_faults(self) -> bool:  # type: ignore[override]  # depends on the form
        return self.form in ("auto", "edges")

    @property
    def sums_only(self) -> bool:  # type: ignore[override]  # depends on the form
        return self.form != "edges" and self.eta is None and self.stops_itself

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self.inner_solver(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None) or self._extreme_eta(objectives)

    def _extreme_eta(self, objectives: Mapping[int, Objective]) -> str | None:
        """Return why η is too large or too small to compute with, or None."""
        if self.eta is None:
            return None
        for i, f in objectives.items():
            if f.smoothness > 0.0 and not _RANGE[0] <= self.eta / f.smoothness <= _RANGE[1]:
                return (
                    f"eta must be {_RANGE[0]:.0e} to {_RANGE[1]:.0e} times the smoothness of each objective, "
                    f"else η/2 ‖x − center‖² or the objective is rounding error; agent {i} has the "
                    f"smoothness {f.smoothness:.2e}, and eta is {self.eta!r}. Leave eta out."
                )
        return None

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner:
        if self.inner not in ("auto", "oracle"):
            return choose_inner(self.inner, X)
        return best_inner(f, X, may_project=self.inner == "auto")

    def uses_factors(self, f: Objective, X: ConvexSet) -> bool:
        completes = isinstance(f.map, Sampling) and isinstance(X, NuclearNormBall)
        return completes and self.form in ("auto", "sums") and self.eta is None and self.inner == "auto"

    def program(self, agent: Agent) -> Program[Any]:
        link = None if self.link is None else Link.parse(self.link)
        agent = replace(agent, link=(link or ASSUMED) if agent.reliable else None)
        if agent.low_rank_start is not None:
            own = RowsAtHome if begins_at_home(agent) else OwnRows
            return complete(agent, own if agent.facts.separate_rows else SharedRows)
        if self.form != "auto" or self.eta is not None or not agent.reliable:
            return self._program(agent, "edges" if self.form == "auto" else self.form, link)
        expected = forms_by_rounds(agent, link, may_send_hessians=self.inner == "auto")
        forms = [self._stage(agent, form, rounds, link) for form, rounds in expected.items()]
        # Without a gap nothing says that a form takes long; where solves call an oracle, others take longer.
        stays = agent.target is None or (next(iter(expected)) == "newton" and not projects_cheaply(agent.X))
        return in_turn(agent, forms[:1] if stays else forms)

    def _stage(self, agent: Agent, form: Form, rounds: float, link: Link | None) -> Stage:
        program = partial(self._program, form=form, link=link)
        if form == "edges":  # the agents know of their certificate after some heights of the tree
            return Stage(program, rounds + 4 * agent.tree.height, 1, is_common=False)
        nbytes = _hessian_bytes(agent) if form == "newton" else 8 * agent.x0.size
        along_tree = max(1, 2 * agent.tree.height)
        return Stage(program, rounds, along_tree if form == "root" else rounds_of_sum(agent, nbytes))

    def _program(self, agent: Agent, form: Form, link: Link | None) -> Program[Any]:
        """Return what the agent does in one form; ``link`` is that which the user has told."""
        if form == "newton":
            floods = is_flooded(agent, _hessian_bytes(agent))
            return by_second_order(replace(agent, link=link if agent.reliable else None), floods)
        if form in ("sums", "root"):
            return by_sums(agent, lambda f: self.inner_solver(f, agent.X), own_data=form == "root")
        inner = self.inner_solver(agent.f, agent.X)
        omega = self.relaxation or (RELAXATION if agent.reliable else LOSSY_RELAXATION)
        return certified(agent, lambda each: over_edges(each, inner, self.precision, self.eta, omega), inner)


def forms_by_rounds(agent: Agent, link: Link | None, may_send_hessians: bool) -> dict[Form, float]:
    """Return the form for an agent whose links are reliable, then one of each other kind, and their rounds.

    Rounds are those that each form is expected to take. ``link`` is that which the user has told.
    """
    rounds = expected_rounds(agent, may_send_hessians)
    if agent.secure is not None:
        del rounds["edges"]
    first = min(rounds, key=rounds.__getitem__)
    height = max(1, 2 * agent.tree.height)
    if first == "edges" and link is not None and prefers_sums(link, agent.facts.sizes, height, agent.x0.size):
        first = "sums"
    by_gradients: Form = min(("sums", "root"), key=rounds.__getitem__)
    kinds = sorted(rounds.keys() & {"edges", "newton", by_gradients}, key=rounds.__getitem__)
    others = [form for form in kinds if form != first and {form, first} != {"sums", "root"}]
    return {form: rounds[form] for form in (first, *others)}


def expected_rounds(agent: Agent, may_send_hessians: bool) -> dict[Form, float]:
    """Return the rounds that each form is expected to take; long messages count as further rounds."""
    facts, sizes, unknowns, height = agent.facts, agent.facts.sizes, agent.x0.size, agent.tree.height
    spread = 1.0 if sizes.has_uneven_columns else max(1.0, sizes.spread)
    flat = math.log(1.0 / max(sizes.curved, _FLATTEST))
    few_rows = math.log(1.0 + unknowns / max(1, sizes.fewest_rows))

    apart = 1.0 if sizes.alike else _APART
    gradients = (5.0 * spread**1.5 + 2.2 * flat + 2.0 * few_rows) * apart
    own_data = 3.5 + (3.0 * (spread - 1.0) + 2.2) * few_rows + 0.8 * flat * spread * min(1.0, 5.0 * few_rows)
    without = 3.0 + 1.25 * gradients  # the root gives its data up and takes steps along gradients
    knows_little = not sizes.alike or (facts.sparse_columns and facts.hub is None)
    knows_little |= not facts.sparse_columns and sizes.fewest_rows * _SHORT < unknowns
    hessians = 2.0 if sizes.all_quadratic else 2.5 + 3.3 * flat / spread
    edges = (3.7 + 6.0 * few_rows) * spread**2 + 1.9 * flat**2 * (1.0 + 1.7 * few_rows)
    edges *= max(1.0, _CONNECTED / facts.connectivity) ** 0.25
    edges *= apart
    edges += _PRECONDITIONED * sizes.has_uneven_columns
    rounds: dict[Form, float] = {
        "edges": _SPARSE * gradients if facts.sparse_columns else edges,
        "root": max(1, 2 * height) * (without if knows_little else min(own_data, without)),
        "sums": rounds_of_sum(agent, 8 * unknowns) * gradients,
    }
    if may_send_hessians and unknowns <= _MOST_UNKNOWNS:
        nbytes, sends = _hessian_bytes(agent), agent.link or ASSUMED
        one, times = rounds_of_sum(agent, nbytes), 1.0 if sizes.all_quadratic else hessians
        levels = one if is_flooded(agent, nbytes) else height
        waiting = nbytes / (sends.speed * max(sends.latency, SHORTEST_ROUND))
        newton = hessians * one + times * levels * waiting
        rounds["newton"] = newton if projects_cheaply(agent.X) else newton / _ORACLE
    return rounds


def rounds_of_sum(agent: Agent, nbytes: int) -> int:
    """Return the rounds of a sum of so many bytes over the network."""
    if agent.facts.is_complete:
        return 1
    return agent.tree.diameter if is_flooded(agent, nbytes) else max(1, 2 * agent.tree.height)


def _hessian_bytes(agent: Agent) -> int:
    """Return about how many bytes the longest message of the form with Hessians takes."""
    d, hessians = agent.x0.size, 1 if agent.facts.sizes.all_quadratic else 2
    return 8 * (16 + d + hessians * d * (d + 1) // 2)


def prefers_sums(link: Link, sizes: SizeFacts, sum_rounds: int, unknowns: int) -> bool:
    """Return True if the form by sums is expected to take less time over such links.

    ``sum_rounds`` are the rounds of a sum over the network.
    """
    sending = link.waiting(8.0 * unknowns * sizes.most_neighbors)
    one_pass = 8.0 * sizes.most_entries / _MEMORY
    over_edges = link.latency + sending + _EDGE_PASSES * one_pass + _EDGE_SECONDS
    by_sums = sum_rounds * link.latency + sending + _SUM_PASSES * one_pass + _SUM_SECONDS
    return by_sums < _WORTH * over_edges


@final
@dataclass(frozen=True, eq=False)
class Stage:
    """A form: the program of an agent in it, the rounds it is expected to take, and those of an iteration.

    With ``is_common`` all agents have the same point after each iteration.
    """

    program: Callable[[Agent], Program[Point]]
    expected: float
    rounds: int
    is_common: bool = True


def lengths(forms: Sequence[Stage]) -> Iterator[tuple[Stage, int]]:
    """Yield forms and their numbers of iterations: the first form, then those with common points in turn.

    Later stages can begin at any point; edges cannot.
    """
    first, *others = forms
    if not others:
        yield first, sys.maxsize
    order = chain((first,), cycle([form for form in (*others, first) if form.is_common]))
    spent = 0.0
    for form, following in pairwise(order):
        length = round(max(_PATIENCE * form.expected, following.expected, spent) / form.rounds)
        spent += max(1, length) * form.rounds
        yield form, max(1, length)


def in_turn(agent: Agent, forms: Sequence[Stage]) -> Program[Point]:
    """Run one agent in the first form, and in others, until the agents agree or all iterations are done."""
    start, done, ended = agent.x0, 0, list[CertifiedGap]()
    resumed = 0 if agent.resume is None else agent.resume.iteration
    for form, length in lengths(forms):
        if done + length >= resumed:
            x = yield from form.program(_stage(agent, start, done, length, ended))
            if ended or done + length >= agent.iterations:
                return x
            start = x if form.is_common else (yield from _mean(agent, x))
        done += length
    raise AssertionError("there is always another form")


def _stage(agent: Agent, start: Point, done: int, length: int, ended: list[CertifiedGap]) -> Agent:
    """Return the agent for the iterations after ``done``: they count from 1, and begin at ``start``."""

    def agree(certified: CertifiedGap) -> None:
        ended.append(certified)
        agent.agree(certified)

    resume = agent.resume if agent.resume is not None and agent.resume.iteration > done else None
    return replace(
        agent,
        x0=start,
        origin=agent.x0 if done else None,
        iterations=min(length, agent.iterations - done),
        observe=lambda k, x, dual=None: agent.observe(done + k, x, dual),
        on_save=lambda k, *states: agent.on_save(done + k, *states),
        agree=agree,
        resume=None if resume is None else replace(resume, iteration=resume.iteration - done),
    )


def _mean(agent: Agent, x: Point) -> Program[Point]:
    """Return the mean of all agents' points."""

    def answer(total: Value) -> Value:
        return (agent.X.restore(total[0] / agent.facts.agents),)

    (mean,) = yield from network_answer((x,), agent, answer)
    return mean
