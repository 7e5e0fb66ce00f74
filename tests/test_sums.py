"""FastDCGS by sums: all agents take the same steps, those of the reference, and certificates are true."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import dcgs
from dcgs import FastDCGS, LeastSquares, Lockstep, Logistic, Objective, Result, Snapshot, Status
from dcgs.atoms import Atom
from dcgs.counting import CountedOracle
from dcgs.inner import Accuracy, Exact, Inner, Solver, Subproblem, Task
from dcgs.methods import Agent
from dcgs.methods.certificate import Bounds, CertifiedGap, GapKind, GapTarget, summable_tolerance
from dcgs.methods.fast import sums_root
from dcgs.methods.fast.sums import Sample
from dcgs.methods.fast.sums_control import AcceleratedSteps, SmoothnessEstimate, SummedModel
from dcgs.momentum import Momentum
from dcgs.network import as_network
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.run.distributed import facts_of
from dcgs.runtime import Job, Traffic
from dcgs.runtime.encoding import EncodedArray
from dcgs.runtime.wire import FRAME, HEADER
from dcgs.sets import ConvexSet, L1Ball, L2Ball, LowerBound, NuclearNormBall, Simplex
from loss_cases import LOSSES, least_value
from problems import Array, Fits, neighbors_of, random_fits
from reference import constraints, cp, optimum

NUMBERS = 8
"""What travels beside a gradient."""


def around(hub: int, others: int, rim: bool = False) -> nx.Graph:
    """Return a star of so many others around the hub, which need not be the first; a wheel with a rim."""
    graph = nx.wheel_graph(others + 1) if rim else nx.star_graph(others)
    return nx.relabel_nodes(graph, {0: hub, hub: 0})


STAR, COMPLETE, WHEEL = around(3, 4), nx.complete_graph(4), around(5, 5, rim=True)
GRAPHS: dict[str, nx.Graph] = {
    "one edge": nx.path_graph(2),
    "path of 3": nx.path_graph(3),
    "star": nx.star_graph(4),
    "star around 3": STAR,
    "complete": COMPLETE,
    "wheel": WHEEL,
    "two hubs": nx.Graph([(0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]),
    "path of 5": nx.path_graph(5),
}
every_graph = pytest.mark.parametrize("name", GRAPHS)


BALL = L1Ball(6, 2.0)
SUMS = FastDCGS(form="sums")
Form: TypeAlias = Literal["edges", "sums", "root", "newton"]


def rounds_of(graph: nx.Graph) -> int:
    """Return the rounds of a sum: one on a complete graph, else twice the radius."""
    return 1 if nx.diameter(graph) == 1 else 2 * int(nx.radius(graph))


# Which agent is the hub.

HUBS: list[tuple[str, nx.Graph, int | None]] = [
    ("star", nx.star_graph(4), 0),
    ("star around 3", STAR, 3),
    ("one edge", nx.path_graph(2), 0),
    ("complete", COMPLETE, 0),
    ("path of 3", nx.path_graph(3), 1),
    ("path of 4", nx.path_graph(4), None),
    ("cycle of 4", nx.cycle_graph(4), None),
    ("one node", nx.empty_graph(1), None),
    ("wheel", WHEEL, 5),
    ("two hubs", GRAPHS["two hubs"], 2),
    ("named", nx.Graph([("a", "c"), ("b", "c"), ("c", "d")]), 1),
]


@pytest.mark.parametrize(("graph", "hub"), [row[1:] for row in HUBS], ids=[row[0] for row in HUBS])
def test_the_hub_is_the_first_neighbor_of_all_others(graph: nx.Graph, hub: int | None) -> None:
    network, X = as_network(graph), L1Ball(2)
    objectives = [LeastSquares(np.eye(2), [1.0, 0.0]) for _ in range(len(graph))]
    assert network.hub == hub
    assert [facts_of(objectives, X, network, smoothness).hub for smoothness in (False, True)] == [hub, hub]


# Sums.


def agents_of(
    objectives: Sequence[Objective],
    X: ConvexSet,
    graph: nx.Graph,
    gap: float | None = None,
    agree: Callable[[int], None] = lambda i: None,
) -> list[Agent]:
    """Return agents as the front door makes them, whom nobody observes."""
    network = as_network(graph)

    def agent(i: int) -> Agent:
        return Agent(
            index=i,
            f=objectives[i],
            X=X,
            lmo=CountedOracle(X),
            x0=X.start(),
            degrees=network.degrees(i),
            tree=network.tree[i],
            facts=facts_of(objectives, X, network, smoothness=False, sizes=True),
            iterations=1000,
            rng=np.random.default_rng(0),
            observe=lambda k, answer, dual=None: None,
            target=None if gap is None else GapTarget(gap),
            agree=lambda certified: agree(i),
        )

    return [agent(i) for i in range(len(graph))]


@every_graph
def test_an_iteration_is_one_sum_of_a_gradient_and_a_few_numbers(name: str) -> None:
    graph = GRAPHS[name]
    objectives = random_fits(len(graph), rows=3, columns=6, seed=102).objectives()
    result = dcgs.minimize(objectives, L1Ball(6), graph, SUMS, iterations=9)
    assert (result.iterations, result.rounds) == (9, 9 * rounds_of(graph))
    # A value up, and an answer to each child: a number and a point. On a complete graph each agent sends a
    # row of each array to all, the first after its own number; zeros are left out.
    value = FRAME + EncodedArray(np.ones(6)).nbytes + EncodedArray(np.ones(NUMBERS)).nbytes
    answer = FRAME + EncodedArray(np.ones(1)).nbytes + EncodedArray(np.ones(6)).nbytes
    if rounds_of(graph) == 1:
        row = FRAME + EncodedArray(np.ones((1, 7))).nbytes + EncodedArray(np.ones((1, NUMBERS))).nbytes
        sent = [row * graph.degree[i] for i in range(len(graph))]
    else:
        tree = as_network(graph).tree
        sent = [value * (node.parent is not None) + answer * len(node.children) for node in tree]
    headers = [HEADER * graph.degree[i] * result.rounds for i in range(len(graph))]
    most = 9 * np.array(sent) + headers
    least = 0.85 * most if rounds_of(graph) == 1 else most
    assert ((least <= result.bytes) & (result.bytes <= most)).all()


def test_the_hub_sends_points_which_are_sparse_and_no_gradients() -> None:
    objectives = random_fits(5, rows=3, columns=400, seed=102).objectives()
    points: list[Point] = []

    def look(snapshot: Snapshot) -> None:
        points.append(np.asarray(snapshot.agents[0]))

    result = dcgs.minimize(objectives, L1Ball(400), STAR, SUMS, iterations=9, callback=look)
    number = EncodedArray(np.ones(1)).nbytes
    answers = sum(HEADER + FRAME + number + EncodedArray(x).nbytes for x in points[1:])
    assert result.bytes[3] == 4 * (9 * HEADER + answers)
    assert answers < 0.2 * 9 * EncodedArray(np.ones(400)).nbytes


# Which form is taken.


def answers_of(method: FastDCGS, graph: nx.Graph, columns: int, rows: int = 9) -> tuple[int, bytes]:
    objectives = random_fits(len(graph), rows=rows, columns=columns, seed=103).objectives()
    result = dcgs.minimize(objectives, L1Ball(columns), graph, method, iterations=3, every=0)
    return result.rounds, result.agents.tobytes()


def test_with_few_unknowns_hessians_are_sent_with_more_the_root_takes_steps_if_it_is_a_hub_else_points() -> (
    None
):
    cases: list[tuple[nx.Graph, int, Form, Form]] = [
        (STAR, 200, "newton", "root"),
        (STAR, 501, "root", "newton"),
        (COMPLETE, 200, "newton", "sums"),
        (COMPLETE, 501, "sums", "root"),
        (nx.cycle_graph(8), 64, "newton", "edges"),
        (nx.cycle_graph(8), 501, "edges", "newton"),
    ]
    for graph, columns, form, other in cases:
        chosen = answers_of(FastDCGS(), graph, columns)
        assert chosen == answers_of(FastDCGS(form=form), graph, columns)
        assert chosen != answers_of(FastDCGS(form=other), graph, columns)


def test_the_root_takes_steps_along_gradients_if_it_has_few_rows() -> None:
    chosen = answers_of(FastDCGS(), STAR, 501, rows=7)
    assert chosen == answers_of(FastDCGS(form="sums"), STAR, 501, rows=7)
    assert answers_of(FastDCGS(), STAR, 501, rows=8) == answers_of(FastDCGS(form="root"), STAR, 501, rows=8)


def test_with_an_eta_the_form_is_edges() -> None:
    assert answers_of(FastDCGS(eta=3.0), STAR, 6) == answers_of(FastDCGS(eta=3.0, form="edges"), STAR, 6)


# All agents take the same steps.


def mixed(X: ConvexSet, seed: int, agents: int = 5) -> list[Objective]:
    """Return agents with data of several sizes and kinds: dense, sparse, logistic, Huber."""
    rng = np.random.default_rng(seed)
    d = math.prod(X.shape)
    sizes = 10.0 ** rng.uniform(-1.0, 1.0, agents)
    A = [size * rng.standard_normal((7, d)) for size in sizes]
    b = [size * rng.standard_normal(7) for size in sizes]
    kinds: list[Callable[[int], Objective]] = [
        lambda i: LeastSquares(A[i], b[i], shape=X.shape),
        lambda i: LeastSquares(sp.csr_array(np.where(A[i] > 0.0, A[i], 0.0)), b[i], shape=X.shape),
        lambda i: Logistic(A[i], np.sign(b[i]), shape=X.shape),
        lambda i: Objective(dcgs.HuberLoss(b[i], delta=0.1), dcgs.matrix_map(A[i], X.shape)),
    ]
    return [kinds[i % len(kinds)](i) for i in range(agents)]


SETS: dict[str, ConvexSet] = {
    "ℓ₁ ball": BALL,
    "simplex": Simplex(6),
    "ℓ₂ ball": L2Ball(6),
    "matrices": NuclearNormBall((2, 3)),
    "box": dcgs.Box(-np.ones(6), np.ones(6)),
}


@pytest.mark.parametrize("where", SETS)
@pytest.mark.parametrize("name", ["complete", "wheel"])
def test_all_agents_have_the_same_answer_to_the_bit_after_every_iteration(name: str, where: str) -> None:
    X, graph = SETS[where], GRAPHS[name]
    different: list[bytes] = []

    def look(snapshot: Snapshot) -> None:
        (answer,) = {np.asarray(x).tobytes() for x in snapshot.agents}
        different.append(answer)

    dcgs.minimize(mixed(X, 104, len(graph)), X, graph, SUMS, iterations=9, callback=look)
    # And it moves; not always, as steps that led uphill are taken back, and a step may not be worth it.
    assert len(set(different)) >= 5


# The reference: accelerated steps over a ball on everyone's data at once.

RADIUS = 0.5


@dataclass(frozen=True, eq=False)
class Ball:
    """‖A x − b‖² of all data over the ball of that radius."""

    A: Array
    b: Array

    def value(self, x: Array) -> float:
        return float(np.sum((self.A @ x - self.b) ** 2))

    def grad(self, x: Array) -> Array:
        return np.asarray(2.0 * self.A.T @ (self.A @ x - self.b))

    def gap(self, y: Array) -> float:
        """Return ⟨∇f(y), y⟩ less the least ⟨∇f(y), s⟩ in the ball."""
        return float(self.grad(y) @ y + RADIUS * np.linalg.norm(self.grad(y)))

    def curvature(self, y: Array, x: Array) -> float:
        """Return the curvature from y to x, twice what f exceeds its tangent by, for a step of length 1."""
        d = x - y
        return 2.0 * (self.value(x) - self.value(y) - float(self.grad(y) @ d)) / float(d @ d)

    def step(self, y: Array, L: float) -> Array:
        """Return the point of the ball nearest to y − ∇f(y)/L."""
        z = y - self.grad(y) / L
        return np.asarray(z / max(1.0, float(np.linalg.norm(z)) / RADIUS))


def accelerated(
    fits: Fits, iterations: int, share: float = 1.0, target: float | None = None
) -> tuple[Array, list[str]]:
    """Return the answers after each iteration, and what happened: raise, fall, turn, back, plain, end.

    It ends by the best linear approximation at a y so far, or because no square is negative.
    """
    f = Ball(np.vstack(list(fits.A)), np.concatenate(list(fits.b)))
    curvatures = [np.linalg.eigvalsh(2.0 * A.T @ A) for A in fits.A]
    L = math.sqrt(sum(c[-1] for c in curvatures) * sum(c.mean() for c in curvatures))
    x = y = best = np.zeros(fits.A.shape[2])
    start = least = f.value(x)
    lower = 0.0
    tangent: Array | None = None  # where the last step was taken from
    t, raises, falls = 1.0, 0, 0
    answers: list[Array] = []
    events: list[str] = []
    for k in range(1, iterations + 1):
        lower = max(lower, f.value(y) - f.gap(y))
        if target is not None and f.value(x) - lower <= target * (start - f.value(x)):
            return np.array([*answers, x]), [*events, "end"]
        rounding = 1e3 * 2.0**-52 * f.value(x)
        size = start - least if start > least else f.gap(y)
        allowed = share * size / ((k + 1) ** 1.5 * max(k / 100.0, 1.0))
        last, tangent = tangent, y
        # f is a parabola along a line, so it lies below one of curvature L just if L is at least its own.
        curvature = f.curvature(last, x) if last is not None else 0.0
        excess = 0.5 * (curvature - L) * float((x - last) @ (x - last)) if last is not None else 0.0
        event = "plain"
        if excess > rounding:
            event, raises = "raise", raises + 1
            L = max(1.5 * L, curvature)
            tangent, x, t = last, best, 1.0
        elif f.value(x) > least + allowed + rounding:
            x = y = best
            tangent, t = None, 1.0
            answers.append(x)
            events.append("back")
            continue
        else:
            best, least = x, f.value(x)
            if 0.0 < curvature < 0.5 * L and raises < 2 and falls < 20:
                event, falls = "fall", falls + 1
                L = max(0.7 * L, 1.2 * curvature)
        assert tangent is not None
        before, x = x, f.step(tangent, L)
        if float((tangent - x) @ (x - before)) > 0.0 and t > 1.0:
            event, t = "turn", 1.0
        t, t_before = (1.0 + math.sqrt(1.0 + 4.0 * t**2)) / 2.0, t
        y = x + (t_before - 1.0) / t * (x - before)
        answers.append(x)
        events.append(event)
    return np.array(answers), events


def heavy_fits(agents: int, seed: int) -> Fits:
    """Return agents whose first column weighs most: the mean curvature is then far below the largest."""
    fits = random_fits(agents, rows=3, columns=5, seed=seed)
    return Fits(fits.A * np.array([3.0, 1.0, 1.0, 1.0, 1.0]), fits.b)


def shown(fits: Fits, X: ConvexSet, graph: nx.Graph, method: FastDCGS, **rules: Any) -> tuple[Array, Result]:
    """Return all agents' answers after each iteration, and the result."""
    answers: list[Array] = []

    def look(snapshot: Snapshot) -> None:
        answers.append(np.stack(snapshot.agents))

    result = dcgs.minimize(fits.objectives(), X, graph, method, callback=look, **rules)
    return np.stack(answers[1:]), result


# Both work to rounding error, 1e-16, on steps that do not enlarge errors much; decisions are not close.
TOLERANCE = 1e-11 * RADIUS
EVENTS: list[tuple[int, float, set[str]]] = [
    (2, 1e-3, {"raise", "fall", "back", "plain"}),
    (5, 1e-6, {"raise", "fall", "turn", "back", "plain"}),
    (101, 1e-3, {"raise", "fall", "turn", "back", "plain"}),
    (1, 1.0, {"raise", "fall", "plain"}),
    (19, 1.0, {"raise", "fall", "turn", "plain"}),
]


def allow(share: float, patch: pytest.MonkeyPatch) -> None:
    """Allow steps to increase f by a share of the tolerance only, so that some are undone."""
    patch.setattr(sums_root, "summable_tolerance", lambda k, scale: share * summable_tolerance(k, scale))


@pytest.mark.parametrize(("seed", "share", "expected"), EVENTS)
@pytest.mark.parametrize("name", ["star around 3", "path of 5"])
def test_it_equals_the_reference_over_a_ball(
    name: str, seed: int, share: float, expected: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    allow(share, monkeypatch)
    fits = heavy_fits(5, seed)
    reference, events = accelerated(fits, 16, share)
    assert set(events) == expected
    found, _ = shown(fits, L2Ball(5, RADIUS), GRAPHS[name], SUMS, iterations=16)
    np.testing.assert_allclose(found, np.repeat(reference[:, None], 5, axis=1), rtol=0.0, atol=TOLERANCE)


# Such that a bound is lower than one before (10, 45, 36). Without noise the least value of losses is best.
@pytest.mark.parametrize("noise", [1.0, 0.0])
@pytest.mark.parametrize(
    ("seed", "target"), [(1, 0.1), (10, 0.1), (17, 1e-2), (45, 1e-3), (36, 1e-4), (2, 1e-6), (5, 1e-6)]
)
def test_it_stops_when_the_reference_does(
    seed: int, target: float, noise: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without shares of the dual function."""
    monkeypatch.setattr(sums_root.DualRequests, "is_due", lambda *args: False)
    fits = heavy_fits(4, seed)
    fits = Fits(fits.A, noise * fits.b + (1.0 - noise) * fits.A @ np.full(5, 0.1))
    reference, events = accelerated(fits, 200, target=target)
    found, result = shown(fits, L2Ball(5, RADIUS), COMPLETE, SUMS, gap=target, iterations=200)
    assert (events[-1], result.status) == ("end", Status.AGREED)
    assert result.about["certified"]["kind"] == ("wolfe" if noise else "least")
    assert (result.iterations, result.rounds) == (len(reference), len(reference))
    np.testing.assert_allclose(found, np.repeat(reference[:, None], 4, axis=1), rtol=0.0, atol=TOLERANCE)


# The optimum.

OPTIMA: dict[str, tuple[ConvexSet, nx.Graph]] = {
    "ℓ₁ ball": (L1Ball(8, 2.0), STAR),
    "simplex": (Simplex(8, 1.5), WHEEL),
    "matrices": (NuclearNormBall((3, 4), 1.2), STAR),
    "ℓ₂ ball": (L2Ball(8), COMPLETE),
}
# What is asked for of f, relative to its least value, and the accuracy of the reference.
ENOUGH, KNOWN = 1e-6, 1e-8


@pytest.mark.parametrize("where", OPTIMA)
def test_every_agent_reaches_the_optimum(where: str) -> None:
    X, graph = OPTIMA[where]
    fits = random_fits(len(graph), rows=6, columns=math.prod(X.shape), seed=105)
    pairs = list(zip(fits.A, fits.b, strict=True))
    _, least = optimum(pairs, X)
    objectives = [LeastSquares(A, b, shape=X.shape) for A, b in pairs]
    result = dcgs.minimize(objectives, X, graph, SUMS, iterations=100, every=0)
    assert -KNOWN * least <= result.history.worst_loss[-1] - least <= ENOUGH * least


@pytest.mark.parametrize("where", ["ℓ₁ ball", "ℓ₂ ball"])
def test_every_agent_reaches_the_optimum_of_a_logistic_loss(where: str) -> None:
    X, graph = OPTIMA[where]
    rng = np.random.default_rng(106)
    A = rng.standard_normal((len(graph), 9, math.prod(X.shape)))
    labels = rng.choice([-1.0, 1.0], (len(graph), 9))
    x = cp.Variable(X.shape)
    margins = cp.multiply(labels.reshape(-1), A.reshape(labels.size, -1) @ cp.vec(x, order="C"))
    problem = cp.Problem(cp.Minimize(cp.sum(cp.logistic(-margins))), constraints(X, x))
    least = problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    objectives = [Logistic(Ai, y, shape=X.shape) for Ai, y in zip(A, labels, strict=True)]
    result = dcgs.minimize(objectives, X, graph, SUMS, iterations=100, every=0)
    assert -KNOWN * least <= result.history.worst_loss[-1] - least <= ENOUGH * least


# What a step may do to the loss.


@final
@dataclass(frozen=True, eq=False)
class Recording(Inner):
    """An inner solver for any objective, and what every agent asked of it; agents start in order."""

    inner: Inner
    asked: list[list[tuple[Subproblem, float]]] = field(default_factory=list)

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        self.asked.append([])
        return _Recorder(self.inner.start(task), self.asked[-1])


@final
class _Recorder(Solver):
    def __init__(self, solver: Solver, asked: list[tuple[Subproblem, float]]) -> None:
        self.solver = solver
        self.asked = asked

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        self.asked.append((phi, accuracy(phi.center)))
        return self.solver(phi, accuracy)


@final
@dataclass(frozen=True, eq=False)
class Walk:
    """A run as one agent sees it: answers and their losses from x⁰ on, and what was asked for each."""

    answers: list[bytes]
    losses: list[float]
    asked: list[tuple[Subproblem, float] | None]

    def accepted(self) -> list[tuple[int, int, float]]:
        """Return for each accepted answer: when it was, which one it replaced, and its inner gap.

        A step from where the one before came from is repeated; without any the answer is not accepted either.
        """
        found, last = [], 0
        for k in range(1, len(self.answers)):
            now, before = self.asked[k], self.asked[k - 1]
            again = now is not None and before is not None and now[0].center is before[0].center
            if now is not None and not again:
                found.append((k, last, now[1]))
                last = k - 1
        return found

    def back(self) -> list[int]:
        """Return the iterations without a step."""
        return [k for k in range(1, len(self.answers)) if self.asked[k] is None]


# Seeds, precisions and iterations; with these, steps are undone, or increase f and are accepted.
BACK = [(2, 1e-3, 20), (101, 1e-3, 20), (5, 1e-6, 20)]
RISING = [(24, 1e-3, 120), (101, 0.1, 20), (8, 1e-6, 20)]


@cache
def walk(seed: int, precision: float, iterations: int) -> Walk:
    run, steps = Recording(Exact()), [0]
    answers: list[bytes] = []
    losses: list[float] = []

    def look(snapshot: Snapshot) -> None:
        answers.append(np.asarray(snapshot.agents[1]).tobytes())
        losses.append(snapshot.worst_loss)
        steps.append(len(run.asked[0]) if run.asked else 0)

    objectives, method = heavy_fits(5, seed).objectives(), FastDCGS(form="sums", inner=run)
    with pytest.MonkeyPatch.context() as patch:
        allow(precision, patch)
        dcgs.minimize(objectives, L2Ball(5, RADIUS), STAR, method, iterations=iterations, callback=look)
    asked = [run.asked[0][after - 1] if after > before else None for before, after in pairwise(steps)]
    return Walk(answers, losses, asked)


@pytest.mark.parametrize(("seed", "precision", "iterations"), BACK + RISING)
def test_an_accepted_point_increases_f_by_little(seed: int, precision: float, iterations: int) -> None:
    run = walk(seed, precision, iterations)
    kept = [(k, before, e) for k, before, e in run.accepted() if before > 0]
    rises = np.array([run.losses[k - 1] - run.losses[before] for k, before, _ in kept])
    falls = np.array([run.losses[0] - run.losses[before] for _, before, _ in kept])
    k = np.array([k for k, _, _ in kept])
    # A share of what the loss fell by so far, smaller from step to step.
    allowed = precision * falls / ((k + 1) ** 1.5 * np.maximum(k / 100.0, 1.0))
    # Losses are right to 1e-15, and rounding is not held against a step.
    assert (rises <= allowed + 1e-12 * run.losses[0]).all()
    assert ((seed, precision, iterations) in RISING) == (rises.max() > 1e-10 * run.losses[0])
    # Gaps asked of inner solves are smaller still; losses are added up in another order.
    np.testing.assert_allclose([e for _, _, e in kept], allowed / k**2, rtol=1e-9)


@pytest.mark.parametrize(("seed", "precision", "iterations"), BACK)
def test_a_step_that_increases_f_is_undone(seed: int, precision: float, iterations: int) -> None:
    run = walk(seed, precision, iterations)
    assert run.back() != []
    for k in run.back():
        kept = next(before for at, before, _ in run.accepted() if at > k)
        assert kept < k - 1
        assert run.answers[k] == run.answers[kept]
        assert run.losses[k] < run.losses[k - 1]


@pytest.mark.parametrize("where", SETS)
def test_no_answer_is_worse_than_the_start(where: str) -> None:
    X = SETS[where]
    result = dcgs.minimize(mixed(X, 107), X, STAR, SUMS, iterations=25)
    # Losses are sums of a hundred terms.
    assert result.history.worst_loss.max() <= (1.0 + 1e-13) * result.history.worst_loss[0]
    assert result.history.worst_loss[-1] < result.history.worst_loss[0]


def test_a_first_step_that_was_too_long_is_repeated_at_once() -> None:
    rng = np.random.default_rng(108)
    # One direction has all the curvature: the first guess of it is √30 times too small.
    A = rng.standard_normal((5, 4, 1)) * rng.standard_normal(30) + 0.01 * rng.standard_normal((5, 4, 30))
    fits = Fits(A, rng.standard_normal((5, 4)))
    result = dcgs.minimize(fits.objectives(), L2Ball(30), STAR, SUMS, iterations=20)
    assert result.history.worst_loss[1] > result.history.worst_loss[0]
    assert result.history.worst_loss[2:].max() < result.history.worst_loss[0]


def test_the_smoothness_decreases_twenty_times_at_most() -> None:
    rng, run = np.random.default_rng(0), Recording(Exact())
    A, x = rng.standard_normal((5, 8, 6)), rng.standard_normal(6)
    # Separable classes, from a far point: the loss has almost no curvature there.
    objectives = [Logistic(1e3 * Ai, np.sign(Ai @ x)) for Ai in A]
    dcgs.minimize(objectives, L2Ball(6), STAR, FastDCGS(form="sums", inner=run), iterations=40, every=0)
    factors = [after[0].eta / before[0].eta for before, after in pairwise(run.asked[0])]
    # Products of a few numbers: rounding.
    assert sorted(factors) == pytest.approx([0.7] * 20 + [1.0] * 19, rel=1e-12)


# The end.


def least_on(X: ConvexSet, g: Array) -> float:
    """Return the least ⟨g, s⟩ over s ∈ X, by its formula."""
    match X:
        case L1Ball():
            return -X.radius * float(np.abs(g).max())
        case Simplex():
            return X.radius * float(g.min())
        case L2Ball():
            return -X.radius * float(np.linalg.norm(g))
        case NuclearNormBall():
            return -X.radius * float(np.linalg.norm(g, 2))
        case _:
            raise TypeError(X)


def wolfe_gap(pairs: Sequence[tuple[Array, Array]], X: ConvexSet, x: Array) -> float:
    """Return the gap at x of Σ ‖A x − b‖²."""
    flat = x.reshape(-1)
    g = sum((2.0 * A.T @ (A @ flat - b) for A, b in pairs), start=np.zeros(flat.size))
    return float(g @ flat) - least_on(X, g.reshape(X.shape))


def loss(pairs: Sequence[tuple[Array, Array]], x: Array) -> float:
    """Return Σ ‖A x − b‖²."""
    return float(sum(np.sum((A @ x.reshape(-1) - b) ** 2) for A, b in pairs))


def fits_of(pairs: Sequence[tuple[Array, Array]], X: ConvexSet) -> list[Objective]:
    return [LeastSquares(A, b, shape=X.shape) for A, b in pairs]


def assert_certified(
    result: Result, pairs: Sequence[tuple[Array, Array]], X: ConvexSet, gap: float, size: float = 1.0
) -> None:
    """Assert that all agents hold one point of X that is as good as what was asked for.

    The reference has the data divided by their size.
    """
    assert result.status is Status.AGREED
    assert len({x.tobytes() for x in result.agents}) == 1
    # Rounding of a convex combination, relative to the size of the set.
    assert X.violation(result.agents[0]) <= 1e-12 * X.diameter
    value = loss(pairs, result.agents[0])
    least = size**2 * optimum([(A / size, b / size) for A, b in pairs], X)[1]
    # The reference is right to 1e-9, relative or absolute.
    assert value - least <= gap * (loss(pairs, X.start()) - value) + 1e-9 * max(1.0, least)


def data(agents: int, d: int = 6, rows: int = 8, seed: int = 109) -> list[tuple[Array, Array]]:
    """Return noisy measurements of a sparse x by agents whose data differ in size."""
    rng = np.random.default_rng(seed)
    x = np.zeros(d)
    x[:3] = [1.5, -1.0, 0.5]
    sizes = 10.0 ** rng.uniform(-1.0, 1.0, agents)
    A = sizes[:, None, None] * rng.standard_normal((agents, rows, d))
    return [(Ai, Ai @ x + 0.3 * size * rng.standard_normal(rows)) for Ai, size in zip(A, sizes, strict=True)]


ROUND: dict[str, ConvexSet] = {name: SETS[name] for name in ("ℓ₁ ball", "simplex", "ℓ₂ ball", "matrices")}


@given(
    others=st.integers(1, 9),
    hub=st.integers(0, 9),
    rim=st.booleans(),
    where=st.sampled_from(sorted(ROUND)),
    gap=st.sampled_from([0.3, 1e-3, 1e-6]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=20, deadline=None, derandomize=True)
def test_what_agents_certify_is_true(
    others: int, hub: int, rim: bool, where: str, gap: float, seed: int
) -> None:
    X, graph = ROUND[where], around(min(hub, others), others, rim and others > 2)
    pairs = data(others + 1, rows=5, seed=seed)
    result = dcgs.minimize(fits_of(pairs, X), X, graph, SUMS, gap=gap, iterations=1000, every=0)
    assert_certified(result, pairs, X, gap)
    assert result.rounds == rounds_of(graph) * result.iterations


@every_graph
def test_all_agents_return_after_the_same_round_and_call_agree(name: str) -> None:
    graph, X = GRAPHS[name], BALL
    traffic, agreed, answers = Traffic(len(graph)), [], {}
    objectives = fits_of(data(len(graph)), X)
    agents = agents_of(objectives, X, graph, 1e-3, lambda i: agreed.append((i, traffic.rounds)))

    def program(i: int) -> Program[Any]:
        answers[i] = yield from SUMS.program(agents[i])
        return answers[i]

    # Nobody ends the run: Lockstep raises if one agent returns while others send.
    Lockstep().run(Job(program, neighbors_of(graph), traffic, lambda: True))
    assert agreed == [(i, traffic.rounds) for i in range(len(graph))]
    same = dcgs.minimize(objectives, X, graph, SUMS, gap=1e-3, every=0)
    assert (same.rounds, {x.tobytes() for x in answers.values()}) == (
        traffic.rounds,
        {same.agents[0].tobytes()},
    )


@pytest.mark.parametrize("where", ROUND)
@pytest.mark.parametrize("name", ["path of 3", "complete", "wheel"])
def test_a_start_at_the_optimum_ends_with_the_first_sum(name: str, where: str) -> None:
    graph, X = GRAPHS[name], ROUND[where]
    x0 = X.start()
    pairs = [(A, A @ x0.reshape(-1)) for A, _ in data(len(graph))]
    result = dcgs.minimize(fits_of(pairs, X), X, graph, SUMS, gap=1e-3, every=0)
    assert (result.status, result.rounds) == (Status.AGREED, rounds_of(graph))
    np.testing.assert_array_equal(result.agents, np.broadcast_to(x0, result.agents.shape))


def test_a_start_at_the_optimum_up_to_rounding_ends_with_the_first_sum() -> None:
    pairs, X = data(5), L2Ball(6, 5.0)
    A, b = np.vstack([A for A, _ in pairs]), np.concatenate([b for _, b in pairs])
    x0 = np.linalg.lstsq(A, b, rcond=None)[0]
    result = dcgs.minimize(fits_of(pairs, X), X, STAR, SUMS, gap=1e-3, x0=x0)
    assert wolfe_gap(pairs, X, x0) > 0.0
    assert (result.status, result.rounds) == (Status.AGREED, 2)
    np.testing.assert_array_equal(result.agents, np.tile(x0, (5, 1)))


@pytest.mark.parametrize("where", SETS)
def test_with_a_constant_f_all_agents_stay_at_the_start(where: str) -> None:
    X = SETS[where]
    objectives = [LeastSquares(np.zeros((2, 6)), [1.0, -2.0], shape=X.shape) for _ in range(5)]
    starts = np.broadcast_to(X.start(), (5, *X.shape))
    asked = dcgs.minimize(objectives, X, STAR, SUMS, gap=1e-3)
    assert (asked.status, asked.rounds) == (Status.AGREED, 2)
    np.testing.assert_array_equal(asked.agents, starts)
    watched = dcgs.minimize(objectives, X, STAR, FastDCGS(form="sums", stops_itself=False), gap=1e-3)
    assert (watched.status, watched.rounds) == (Status.GAP, 0)
    limited = dcgs.minimize(objectives, X, STAR, SUMS, iterations=4)
    assert (limited.status, limited.rounds) == (Status.ITERATIONS, 8)
    # Weights of atoms that sum to 1 up to rounding, which the box has dozens of.
    np.testing.assert_allclose(limited.agents, starts, rtol=0.0, atol=1e-14)


@pytest.mark.parametrize("where", ["ℓ₁ ball", "matrices"])
def test_the_observer_ends_the_run_if_agents_do_not_stop_themselves(where: str) -> None:
    X, pairs = ROUND[where], data(5)
    method = FastDCGS(form="sums", stops_itself=False)
    watched = dcgs.minimize(fits_of(pairs, X), X, STAR, method, gap=1e-3, iterations=300)
    assert watched.status is Status.GAP
    history = watched.history
    targets = 1e-3 * (history.mean_loss[0] - history.mean_loss)
    # The observer's gap is at the average of equal answers: rounding.
    assert wolfe_gap(pairs, X, watched.agents[0]) <= targets[-1] * (1.0 + 1e-9)
    assert history.gap[-2] > targets[-2]
    free = dcgs.minimize(fits_of(pairs, X), X, STAR, SUMS, iterations=watched.iterations)
    np.testing.assert_array_equal(watched.agents, free.agents)


@pytest.mark.parametrize("rounds", [2, 7])
def test_a_gap_that_is_not_reached_in_time_ends_by_the_limit(rounds: int) -> None:
    result = dcgs.minimize(fits_of(data(5), BALL), BALL, STAR, SUMS, gap=1e-9, rounds=rounds)
    assert (result.status, result.rounds) == (Status.ROUNDS, rounds)


# The bounds of f* by which agents stop.


def ask_always(self: sums_root.DualRequests, k: int, value: float, gap: float, threshold: float) -> bool:
    """Ask for shares of the dual function in each iteration, once f has decreased."""
    self.is_pending = threshold > 0.0
    return self.is_pending


@pytest.mark.parametrize("where", ["ℓ₁ ball", "ℓ₂ ball", "matrices", "box"])
@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("name", ["complete", "path of 5"])
def test_no_bound_is_above_the_optimum_and_the_dual_one_is_near(
    name: str, kind: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, graph = SETS[where], GRAPHS[name]
    rng = np.random.default_rng(112)
    A = rng.standard_normal((len(graph), 20, 6)) * 10.0 ** rng.uniform(-0.5, 0.5, (len(graph), 1, 1))
    b = A[..., 0] + rng.standard_normal((len(graph), 20))
    objectives = [LOSSES[kind][0](*own, X) for own in zip(A, b, strict=True)]
    bounds: dict[GapKind, list[float]] = {each: [] for each in GapKind}
    add = Bounds.add

    def recorded(self: Bounds, lower: float, kind: GapKind) -> None:
        bounds[kind].append(lower)
        add(self, lower, kind)

    monkeypatch.setattr(Bounds, "add", recorded)
    monkeypatch.setattr(sums_root.DualRequests, "is_due", ask_always)
    result = dcgs.minimize(objectives, X, graph, SUMS, gap=1e-6, iterations=300, every=0)
    assert result.status is Status.AGREED
    start = sum(f.value(X.start()) for f in objectives)
    least = least_value(kind, A.reshape(-1, 6), b.reshape(-1), X) - start
    # The reference is right to 1e-9 or so, relative or absolute; losses are some hundreds.
    for lowers in bounds.values():
        assert max(lowers, default=-math.inf) <= least + 1e-6
    assert (bounds[GapKind.LEAST] != []) == (kind != "log cosh")
    assert len(bounds[GapKind.DUAL]) >= 2 * (len(graph) if name == "complete" else 1)
    # An agent has more rows than unknowns. Its share may be off by a quarter of the gap, or by its effort.
    assert max(bounds[GapKind.DUAL]) >= least - 1e-3 * abs(least)


@pytest.mark.parametrize("name", ["complete", "star around 3", "path of 5"])
@pytest.mark.parametrize("target", [1e-2, 1e-4])
def test_agents_know_soon_after_it_is_so(name: str, target: float) -> None:
    graph, X, rng = GRAPHS[name], L1Ball(30, 6.0), np.random.default_rng(113)
    scales = np.geomspace(1.0, 0.05, 30)
    A = rng.standard_normal((len(graph), 200, 30)) * scales
    labels = np.sign(A[..., 0] - A[..., 1] + 3.0 * A[..., 29] + 0.5 * rng.standard_normal((len(graph), 200)))
    objectives = [Logistic(*own) for own in zip(A, labels, strict=True)]
    agents = dcgs.minimize(objectives, X, graph, SUMS, gap=target)
    assert agents.status is Status.AGREED
    least = least_value("logistic", A.reshape(-1, 30), labels.reshape(-1), X)
    losses = agents.history.worst_loss
    assert losses[-1] - least <= target * (losses[0] - losses[-1])
    so = agents.history.rounds[np.argmax(losses - least <= target * (losses[0] - losses))]
    assert agents.rounds <= 1.4 * so + 2 * rounds_of(graph)


@pytest.mark.parametrize("where", SETS)
def test_a_certificate_changes_no_step(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums_root.DualRequests, "is_due", ask_always)
    X = SETS[where]

    def steps(**rules: Any) -> list[bytes]:
        found: list[bytes] = []
        callback = lambda at: found.append(np.asarray(at.agents[0]).tobytes())  # noqa: E731
        dcgs.minimize(mixed(X, 107), X, STAR, SUMS, callback=callback, **rules)
        return found

    certified = steps(gap=1e-3, iterations=500)
    # The last answer is the one before, which was certified.
    assert certified[-1] == certified[-2]
    assert certified[:-1] == steps(iterations=len(certified) - 2)


@final
@dataclass(frozen=True)
class Doubtful(ConvexSet):
    """An ℓ₁ ball whose bounds prove nothing until the fourth."""

    ball: L1Ball
    proofs: list[float] = field(default_factory=list)

    @property
    def shape(self) -> tuple[int, ...]:  # type: ignore[override]
        return self.ball.shape

    @property
    def diameter(self) -> float:
        return self.ball.diameter

    def lmo(self, direction: Point, near: Atom | None = None) -> Atom:
        return self.ball.lmo(direction)

    def lower_bound(self, direction: Point, s: Atom, slack: float = 0.0) -> LowerBound:
        self.proofs.append(slack)
        return LowerBound(s.dot(direction) - (1e3 if len(self.proofs) < 4 else 0.0))

    def violation(self, x: Point) -> float:
        return self.ball.violation(x)

    def start(self) -> Point:
        return self.ball.start()


def test_a_bound_is_proven_only_where_it_would_end_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over a set whose oracle is not trusted."""
    monkeypatch.setattr(sums_root.DualRequests, "is_due", lambda *args: False)
    pairs, X = data(5), Doubtful(BALL)
    result = dcgs.minimize(fits_of(pairs, BALL), X, STAR, SUMS, gap=1e-4, iterations=500, every=0)
    trusted = dcgs.minimize(
        fits_of(pairs, BALL), BALL, STAR, replace(SUMS, inner="cg"), gap=1e-4, iterations=500, every=0
    )
    assert_certified(result, pairs, BALL, 1e-4)
    assert len(X.proofs) == 4
    assert min(X.proofs) >= 0.0
    assert result.iterations == trusted.iterations + 3


def test_a_point_that_the_set_does_not_hold_is_restored_before_it_is_certified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of a ball that is a little smaller than the one over which the solver minimizes."""
    smaller = (1.0 - 1e-10) * BALL.radius

    def restore(self: L1Ball, x: Point) -> Point:
        return x if np.abs(x).sum() <= smaller else (1.0 - 2e-10) * x

    monkeypatch.setattr(L1Ball, "restore", restore)
    pairs = data(5)
    result = dcgs.minimize(fits_of(pairs, BALL), BALL, STAR, SUMS, gap=1e-3, every=0)
    assert np.abs(result.x).sum() <= smaller
    assert_certified(result, pairs, BALL, 1e-3)


@pytest.mark.parametrize(
    ("k", "value", "gap", "kind", "threshold", "due", "next_mark"),
    [
        # f fell from −10 to −10.2, and 0.2 is at most 3 · 0.1. After as much again the gap is 0.3.
        (20, -10.2, 0.5, GapKind.WOLFE, 0.1, True, 23),
        (19, -10.2, 0.5, GapKind.WOLFE, 0.1, False, 20),
        (20, -10.4, 1.5, GapKind.WOLFE, 0.1, False, 23),  # f fell by 0.4
        (20, -10.2, 0.29, GapKind.WOLFE, 0.1, False, 23),  # the gap is 0.09 after as much again
        (20, -10.0, 0.5, GapKind.WOLFE, 0.0, False, 23),
        (20, -10.2, 0.5, GapKind.LEAST, 0.1, False, 23),  # f falls fast toward the least value of the losses
        (20, -10.05, 0.5, GapKind.LEAST, 0.1, True, 23),  # f stays above it
    ],
)
def test_shares_are_asked_for_when_f_has_nearly_stopped_falling(
    k: int, value: float, gap: float, kind: GapKind, threshold: float, due: bool, next_mark: int
) -> None:
    requests = sums_root.DualRequests(20, -10.0, is_pending=True)
    assert requests.is_due(k, value, CertifiedGap(gap, -value, 0.0, False, kind), threshold) is due
    assert (requests.is_pending, requests.mark) == (due, next_mark)


def test_if_another_bound_is_better_the_next_request_for_shares_waits() -> None:
    """An agent has 2 rows for 30 unknowns, and the model fits all data."""
    rng, X = np.random.default_rng(114), L1Ball(30, 3.0)
    pairs = [(A, A[:, 0]) for A in rng.standard_normal((5, 2, 30))]
    asked: list[int] = []
    due = sums_root.DualRequests.is_due

    def noted(self: sums_root.DualRequests, k: int, *rest: Any) -> bool:
        asked.extend([k] if due(self, k, *rest) else [])
        return self.is_pending

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums_root.DualRequests, "is_due", noted)
        patch.setattr(sums_root, "_FALLS", np.inf)  # else nothing would be asked for
        result = dcgs.minimize(fits_of(pairs, X), X, STAR, SUMS, gap=1e-4, iterations=1000, every=0)
    assert (result.status, result.about["certified"]["kind"]) == (Status.AGREED, "least")
    # The bound is known one iteration after it was asked for.
    assert len(asked) >= 1
    assert all(after >= 2 * (before + 1) for before, after in pairwise(asked))


def test_the_rounding_error_of_an_extrapolated_image_is_that_of_its_terms() -> None:
    """y = x + 1 · (x − x_prev) is nearly 0, but its image is a difference of large numbers."""
    f = LeastSquares(np.random.default_rng(116).standard_normal((50, 6)), np.zeros(50))
    before = np.random.default_rng(117).standard_normal(6)
    x = 0.5 * before * (1.0 + 1e-12)
    samples = [Sample(point, f.map.image(point)) for point in (before, x)]
    y = samples[1].extrapolated(samples[0], 1.0)
    # Exactly, in fractions.
    exact = [
        sum(Fraction(a) * Fraction(b) for a, b in zip(row, y.x, strict=True)) for row in f.map.data()["A"]
    ]
    errors = np.array([abs(float(Fraction(z) - e)) for z, e in zip(y.image, exact, strict=True)])
    assert (errors <= f.map.image_error(y.size)).all()
    assert errors.max() > 100.0 * f.map.image_error(y.x).max()


def test_a_gap_that_is_rounding_error_is_measured_without_momentum(monkeypatch: pytest.MonkeyPatch) -> None:
    """At y = x its error is the smallest, so the run ends earlier than with momentum."""
    find = sums_root.SumsRoot._gap
    X = Simplex(12)

    def iterations() -> int:
        total = 0
        for seed in (117, 120, 133, 135):
            rng = np.random.default_rng(seed)
            A, labels = rng.standard_normal((5, 40, 12)), np.sign(rng.standard_normal((5, 40)))
            objectives = [Logistic(*own) for own in zip(A, labels, strict=True)]
            result = dcgs.minimize(objectives, X, STAR, SUMS, gap=1e-13, iterations=1000, every=0)
            assert result.status is Status.ROUNDING
            total += result.iterations
        return total

    without = iterations()
    monkeypatch.setattr(sums_root.SumsRoot, "_gap", lambda *args: (find(*args)[0], False))
    assert without < iterations()


# Hard cases.

GAP = 1e-2
SOUND = data(5, seed=110)
ZERO = (np.zeros((8, 6)), SOUND[0][1])
HARD: dict[str, tuple[list[tuple[Array, Array]], ConvexSet]] = {
    "the hub is a million times smoother": (
        [(1e3 * A, 1e3 * b) if i != 3 else (A, b) for i, (A, b) in enumerate(SOUND)],
        BALL,
    ),
    "the hub is a million times less smooth": (
        [(1e3 * A, 1e3 * b) if i == 3 else (A, b) for i, (A, b) in enumerate(SOUND)],
        BALL,
    ),
    "one column is fifty times larger": (
        [(A * np.array([50.0, 1.0, 1.0, 1.0, 1.0, 1.0]), b) for A, b in SOUND],
        BALL,
    ),
    "all rows are the same": ([(np.tile(SOUND[0][0][:1], (8, 1)), SOUND[0][1])] * 5, BALL),
    "the hub knows nothing": ([*SOUND[:3], ZERO, SOUND[4]], BALL),
    "only one leaf knows anything": ([SOUND[0], ZERO, ZERO, ZERO, ZERO], Simplex(6)),
}


@pytest.mark.parametrize("case", HARD)
def test_a_hard_case_ends_with_a_model_that_is_certified(case: str) -> None:
    pairs, X = HARD[case]
    # Oracle calls are limited so that an inner solve that never ends is a status and no hang.
    result = dcgs.minimize(
        fits_of(pairs, X), X, STAR, SUMS, gap=GAP, iterations=1000, lmo_calls=100_000, every=0
    )
    assert_certified(result, pairs, X, GAP, size=max(np.abs(A).max() for A, _ in pairs))


@pytest.mark.parametrize("graph", [nx.star_graph(29), around(29, 29, rim=True)])
def test_thirty_agents_end_with_a_model_that_is_certified(graph: nx.Graph) -> None:
    pairs, X = data(30, d=40, rows=3), L1Ball(40, 2.0)
    result = dcgs.minimize(fits_of(pairs, X), X, graph, SUMS, gap=1e-4, iterations=1000, every=0)
    assert_certified(result, pairs, X, 1e-4)


# The same again.


@pytest.mark.parametrize(
    ("name", "where"),
    [("star around 3", "ℓ₁ ball"), ("complete", "ℓ₂ ball"), ("wheel", "simplex"), ("complete", "matrices")],
)
def test_a_run_repeats_to_the_bit_whatever_the_threads(name: str, where: str) -> None:
    X, graph = ROUND[where], GRAPHS[name]
    objectives = mixed(X, 111, len(graph))

    def run(threads: int) -> tuple[bytes, bytes, int, list[int]]:
        runtime = Lockstep(threads=threads)
        result = dcgs.minimize(objectives, X, graph, SUMS, gap=1e-2, runtime=runtime, seed=7, iterations=300)
        losses = result.history.worst_loss
        return result.agents.tobytes(), losses.tobytes(), result.rounds, result.lmo_calls.tolist()

    assert run(1) == run(1) == run(2)


@pytest.mark.parametrize("name", ["complete", "path of 5"])
@pytest.mark.parametrize("stop", [3, 4, 7])
def test_a_run_that_was_interrupted_between_request_and_shares_resumes_to_the_bit(
    name: str, stop: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sums_root.DualRequests, "is_due", ask_always)
    graph = GRAPHS[name]
    run = partial(dcgs.minimize, mixed(BALL, 115, len(graph)), BALL, graph, SUMS, gap=1e-3, every=0)
    whole = run(iterations=500)
    run(iterations=stop, checkpoint=dcgs.Checkpoint(tmp_path, 1))
    resumed = run(iterations=500, checkpoint=dcgs.Checkpoint(tmp_path, 1, resume=True))
    assert whole.iterations > stop + 2
    for part in ("agents", "bytes", "lmo_calls", "projections"):
        np.testing.assert_array_equal(getattr(resumed, part), getattr(whole, part))
    assert resumed.about["certified"] == whole.about["certified"]


# What is refused.


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"form": "x"}, r"^form must be 'auto', 'edges', 'sums', 'root' or 'newton'; got 'x'\.$"),
        ({"form": None}, r"^form must be 'auto', 'edges', 'sums', 'root' or 'newton'; got None\.$"),
        (
            {"form": "sums", "eta": 2.0},
            r"^eta must be None with form='sums', which has no such weight; got 2\.0\.$",
        ),
    ],
)
def test_a_wrong_form_is_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        FastDCGS(**arguments)


@pytest.mark.parametrize(
    ("value", "is_long", "counts", "outcome"),
    [
        (0.5, False, False, (True, 3.0, "seen", 1.0, 2.0)),
        (0.5, True, False, (False, 3.0, "last", 4.0, 1.0)),  # repeated
        (0.5, True, True, (True, 3.0, "seen", 4.0, 2.0)),
        (2.0, False, False, (False, 0.0, None, 1.0, 1.0)),  # undone
        (2.0, True, True, (False, 0.0, None, 1.0, 1.0)),
    ],
)
def test_a_step_is_accepted_repeated_or_undone(
    value: float, is_long: bool, counts: bool, outcome: tuple[bool, float, str | None, float, float]
) -> None:
    """The outcome: if x is the best point now, x, the model of the next step, Λ, and t of the momentum."""
    best, x = np.zeros(1), np.full(1, 3.0)
    last, seen = SummedModel(best, 1.0, x), SummedModel(x, 1.0, x)
    steps = AcceleratedSteps(x, best, last, 1.0, SmoothnessEstimate(1.0), Momentum(2.0))
    is_better = steps.judge(seen, value, 1.5, 4.0 if is_long else 0.8, is_long, counts)
    names = {id(last): "last", id(seen): "seen"}
    found = is_better, float(steps.x[0]), names.get(id(steps.model)), steps.smoothness.L, steps.momentum.t
    assert found == outcome
    assert (steps.best is x) is is_better
