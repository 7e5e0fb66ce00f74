"""The certificate: when agents stop by themselves, the gap that they certify is true."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dcgs
from dcgs import FastDCGS, LeastSquares, Objective, Result, Status
from dcgs.facts import Facts
from dcgs.front.history import certify
from dcgs.front.network import as_network
from dcgs.methods import Agent
from dcgs.methods.certificate import CertifiedGap, GapTarget
from dcgs.methods.edge_variables import ReliableEdgeVariables
from dcgs.methods.local_bound import DualShare, LocalBound
from dcgs.methods.network_certificate import Bound, Certificate, Found, Proposal, Request, Shares
from dcgs.methods.outlook import Outlook
from dcgs.methods.step_size import StepSize
from dcgs.points import Point
from dcgs.runtime.encoding import EncodedArray
from dcgs.sets import ConvexSet
from problems import GRAPHS, Array, neighbors_of, random_fits

SETS: dict[str, ConvexSet] = {
    "l1": dcgs.L1Ball(6, radius=2.0),
    "simplex": dcgs.Simplex(6),
    "box": dcgs.Box(-np.ones(6), np.ones(6)),
    "l2": dcgs.L2Ball(6),
    "matrices": dcgs.NuclearNormBall((2, 3)),
}
SHORTEST = 4
"""The least rounds of an epoch."""
EDGES = FastDCGS(form="edges")
"""The form that needs a certificate; in the others the root knows the sum of gradients anyway."""


def objectives_for(X: ConvexSet, agents: int, seed: int) -> list[Objective]:
    """Return agents with different optima and data of different size."""
    rng = np.random.default_rng(seed)
    sizes = 10.0 ** rng.uniform(-1.0, 1.0, agents)
    data = [(s * rng.standard_normal((5, 6)), s * rng.standard_normal(5)) for s in sizes]
    return [LeastSquares(A, b, shape=X.shape) for A, b in data]


def connected(agents: int, seed: int) -> nx.Graph:
    """Return a random tree with some more edges."""
    rng = np.random.default_rng(seed)
    graph = nx.empty_graph(agents)
    graph.add_edges_from((i, int(rng.integers(0, i))) for i in range(1, agents))
    more = rng.integers(0, agents, size=(int(rng.integers(0, agents)), 2)).tolist()
    graph.add_edges_from((i, j) for i, j in more if i != j)
    return graph


def optimum(objectives: list[Objective], X: ConvexSet) -> tuple[float, float]:
    """Return bounds of f*, by the Wolfe gap at a point that was found with everyone's Hessian."""
    method, alone = FastDCGS(form="newton", stops_itself=False), nx.complete_graph(len(objectives))
    best = dcgs.minimize(objectives, X, alone, method, gap=1e-9, iterations=60)
    value, wolfe_gap = certify(objectives, X, best.x)
    return value - wolfe_gap, value


def assert_certified(result: Result, objectives: list[Objective], X: ConvexSet, gap: float) -> None:
    """Assert that all hold one point of X with f(y) − f* at most what they claim and what was asked for."""
    np.testing.assert_array_equal(result.agents, np.broadcast_to(result.agents[0], result.agents.shape))
    # Rounding of a convex combination, relative to the size of the set.
    assert X.violation(result.agents[0]) <= 1e-12 * X.diameter
    value, (lower, upper) = certify(objectives, X, result.agents[0])[0], optimum(objectives, X)
    claimed = result.about["certified"]
    assert value - upper <= claimed["gap"] + claimed["noise"]
    assert value - lower <= gap * (certify(objectives, X, X.start())[0] - value)


@given(
    agents=st.integers(1, 12),
    where=st.sampled_from(sorted(SETS)),
    gap=st.sampled_from([0.3, 1e-2]),
    method=st.sampled_from([FastDCGS(form="sums"), FastDCGS(form="newton"), EDGES]),
    seed=st.integers(0, 10_000),
)
@settings(max_examples=30, deadline=None, derandomize=True)
def test_what_agents_certify_is_true(
    agents: int, where: str, gap: float, method: FastDCGS, seed: int
) -> None:
    X, graph = SETS[where], connected(agents, seed)
    objectives = objectives_for(X, agents, seed)
    result = dcgs.minimize(objectives, X, graph, method, gap=gap, iterations=5000, every=0)
    assert result.status is Status.AGREED
    assert result.status.success
    assert_certified(result, objectives, X, gap)


GRAPH = GRAPHS["random of 7"]
X = SETS["l1"]
OBJECTIVES = objectives_for(X, 7, seed=2)


def minimize(gap: float = 1e-2, method: FastDCGS | None = None, **rules: Any) -> Result:
    return dcgs.minimize(OBJECTIVES, X, GRAPH, method or EDGES, gap=gap, **rules)


Part: TypeAlias = tuple[Shares, Point | None]
CONTRIBUTION: Callable[[Certificate, Agent, Point, Bound | None], Part] = Certificate.contribution


def test_a_wrong_bound_of_an_agent_is_noticed_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = int(np.argmax([f.smoothness for f in OBJECTIVES]))

    def wrong(self: Certificate, agent: Agent, x: Point, bound: Bound | None) -> Part:
        shares, grad = CONTRIBUTION(self, agent, x, bound)
        more = 0.05 * (agent.index == largest) * shares.local_decrease
        return shares._replace(bound=shares.bound + more), grad

    monkeypatch.setattr(Certificate, "contribution", wrong)
    result = minimize(rounds=400)
    assert result.status is Status.AGREED
    with pytest.raises(AssertionError):
        assert_certified(result, OBJECTIVES, X, 1e-2)


@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.star_graph(3)], ids=["path", "star"])
@pytest.mark.parametrize("form", ["edges", "sums", "newton"])
@pytest.mark.parametrize("stops_itself", [True, False], ids=["agents", "observer"])
def test_a_gap_that_is_rounding_error_ends_the_run_with_a_status_and_a_note(
    stops_itself: bool, form: Literal["edges", "sums", "newton"], graph: nx.Graph
) -> None:
    method = FastDCGS(form=form, stops_itself=stops_itself)
    rng = np.random.default_rng(5)
    objectives = [LeastSquares(np.eye(3), rng.standard_normal(3)) for _ in range(4)]
    result = dcgs.minimize(objectives, dcgs.L2Ball(3, 9.0), graph, method, gap=1e-18, rounds=2000)
    assert (result.status, result.status.success) == (Status.ROUNDING, False)
    assert result.notes[0].startswith("the gap that was reached is ")
    # Four roundings of four gradients of size up to 5, and of images of size up to 2 with curvature 2, times
    # the Frobenius norm √3 of the data, times the diameter of 18 and the size of x.
    assert (
        certify(objectives, dcgs.L2Ball(3, 9.0), result.x)[1] <= 4 * 4 * (5 + 2 * 2 * 2) * 1.8 * 20 * 2.3e-16
    )


@pytest.mark.parametrize("name", GRAPHS)
def test_the_root_gets_decreases_bounds_and_gradients_of_everyone_s_data(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = GRAPHS[name]
    objectives = random_fits(len(graph), rows=5, columns=6, seed=92).objectives()
    seen: list[tuple[int, Certificate, Array, Shares, Array]] = []
    found: Callable[..., Found | None] = Certificate.found
    request: Callable[..., Request] = Outlook.request

    def recorded(self: Certificate, agent: Agent, sums: Shares, grad: Point | None) -> Found | None:
        answer = found(self, agent, sums, grad)
        if self.model is not None and grad is not None:
            seen.append((agent.index, replace(self), self.model, sums, grad))
        return answer

    def with_gradient(*args: Any) -> Request:
        return replace(request(*args), gradient=True)

    monkeypatch.setattr(Certificate, "found", recorded)
    monkeypatch.setattr(Outlook, "request", with_gradient)
    dcgs.minimize(objectives, X, graph, EDGES, gap=1e-3, iterations=3000, every=0)
    (root,) = [i for i, node in enumerate(as_network(graph).tree) if node.parent is None]
    assert {i for i, *_ in seen} == {root}
    (least, _), start = optimum(objectives, X), sum(f.value(X.start()) for f in objectives)
    for _, certificate, y, sums, grad in seen:
        # A dozen gradients of size 100, added up.
        np.testing.assert_allclose(grad, sum(f.grad(y) for f in objectives), rtol=0.0, atol=1e-11)
        fall = start - sum(f.value(y) for f in objectives)
        assert sums.decrease == pytest.approx(fall, rel=1e-11, abs=1e-11)
        assert sums.excess == pytest.approx(start - fall, rel=1e-11)
        # The reference is within 1e-9 of the decrease, which is at most a thousand.
        assert certificate.lower is not None
        assert certificate.lower <= least - start + 1e-6


def test_everyone_has_the_model_of_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[bytes] = []

    def recorded(self: Certificate, agent: Agent, x: Point, bound: Bound | None) -> Part:
        models.extend([] if self.model is None else [self.model.tobytes()])
        return CONTRIBUTION(self, agent, x, bound)

    monkeypatch.setattr(Certificate, "contribution", recorded)
    result = minimize()
    counts = Counter(models)
    # Agents may be at different epochs by one, and each contributes once.
    assert set(counts.values()) == {7}
    assert models[-1] == result.agents[0].tobytes()


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
def test_all_agents_bound_f_by_dual_variables_of_one_iteration_which_sum_to_zero(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are uneven, so that a preconditioner changes the steps of the dual variables."""
    rng = np.random.default_rng(8)
    columns = scale * 10.0 ** np.linspace(0.0, 3.0, 6)
    data = [(columns * rng.standard_normal((5, 6)), scale * rng.standard_normal(5)) for _ in range(7)]
    objectives = [LeastSquares(A, b) for A, b in data]
    used: list[tuple[Array, float]] = []
    multiplier = ReliableEdgeVariables.multiplier
    compute = LocalBound.__call__

    def recorded(self: LocalBound, w: Point, x: Point, step: StepSize, tolerance: float) -> DualShare:
        used.append((w, drifts[id(w)]))
        return compute(self, w, x, step, tolerance)

    drifts: dict[int, float] = {}

    def noted(self: ReliableEdgeVariables) -> tuple[Point, float] | None:
        drifts[id(self.w)] = self.drift
        return multiplier(self)

    monkeypatch.setattr(LocalBound, "__call__", recorded)
    monkeypatch.setattr(ReliableEdgeVariables, "multiplier", noted)
    result = dcgs.minimize(objectives, X, GRAPH, EDGES, gap=1e-5, rounds=500, every=0)
    assert result.status is Status.AGREED
    requests = [used[at : at + 7] for at in range(0, len(used), 7)]
    assert len(requests) >= 1
    for request in requests:
        exact = [math.fsum(entries) for entries in zip(*(w for w, _ in request), strict=True)]
        assert np.linalg.norm(exact) <= sum(drift for _, drift in request)
        assert max(np.linalg.norm(w) for w, _ in request) > 1e6 * sum(drift for _, drift in request)


def test_agents_know_within_two_epochs_after_it_is_so() -> None:
    rng = np.random.default_rng(4)
    graph, ball = nx.cycle_graph(8), dcgs.L1Ball(30, radius=3.0)
    truth = np.where(np.arange(30) < 4, 1.0, 0.0)
    data = [rng.standard_normal((25, 30)) for _ in range(8)]
    objectives = [LeastSquares(A, A @ truth + rng.standard_normal(25)) for A in data]
    agents = dcgs.minimize(objectives, ball, graph, EDGES, gap=1e-3)
    watched = dcgs.minimize(objectives, ball, graph, replace(EDGES, stops_itself=False), rounds=agents.rounds)
    assert agents.status is Status.AGREED
    assert_certified(agents, objectives, ball, 1e-3)
    least, _ = optimum(objectives, ball)
    loss = watched.history.worst_loss
    so = watched.history.rounds[np.argmax(loss - least <= 1e-3 * (loss[0] - loss))]
    epoch = 2 * nx.radius(graph)
    assert agents.rounds <= so + 2 * epoch + nx.radius(graph)


def test_a_model_that_fits_everything_is_certified_by_the_least_value_of_the_losses() -> None:
    """No agent has enough data for a good bound of its own, but f* is 0, and no loss is negative."""
    rng = np.random.default_rng(6)
    ball, truth = dcgs.L1Ball(60, radius=5.0), np.where(np.arange(60) < 4, 1.0, 0.0)
    data = [rng.standard_normal((3, 60)) for _ in range(6)]
    objectives = [LeastSquares(A, A @ truth) for A in data]
    result = dcgs.minimize(objectives, ball, nx.cycle_graph(6), EDGES, gap=1e-3)
    start = sum(f.value(np.zeros(60)) for f in objectives)
    value = sum(f.value(result.x) for f in objectives)
    assert (result.status, result.about["certified"]["kind"]) == (Status.AGREED, "least")
    assert value <= 1e-3 * (start - value)


def test_a_certificate_costs_no_round_and_its_bytes_are_counted() -> None:
    graph = nx.star_graph(5)
    objectives = objectives_for(X, 6, seed=3)
    alone = dcgs.minimize(objectives, X, graph, EDGES, gap=1e-2)
    watching = replace(EDGES, stops_itself=False)
    watched = dcgs.minimize(objectives, X, graph, watching, iterations=alone.iterations)
    assert alone.status is Status.AGREED
    assert alone.rounds == alone.iterations == watched.rounds
    np.testing.assert_array_equal(alone.messages, watched.messages)
    # The root sends models to its children, which send numbers anyway.
    more, models = alone.bytes - watched.bytes, len(alone.certificates)
    vector = EncodedArray(np.ones(6)).nbytes
    assert more[0] == 5 * models * vector
    # A child sends a gradient at most for every model, and nothing else.
    assert set(more[1:].tolist()) <= {count * vector for count in range(models + 1)}


def test_a_gap_without_any_measuring_is_enough_where_agents_decide() -> None:
    seldom, often = minimize(every=0), minimize(every=1)
    assert (seldom.status, seldom.rounds) == (Status.AGREED, often.rounds)
    np.testing.assert_array_equal(seldom.agents, often.agents)
    np.testing.assert_array_equal(seldom.bytes, often.bytes)
    np.testing.assert_array_equal(seldom.history.iterations, [0, seldom.iterations])


def test_without_a_rule_agents_stop_at_a_gap_of_a_thousandth() -> None:
    result = dcgs.minimize(OBJECTIVES, X, GRAPH, EDGES, every=0)
    same = minimize(1e-3, every=0)
    assert result.status is Status.AGREED
    np.testing.assert_array_equal(result.agents, same.agents)


@pytest.mark.parametrize("name", GRAPHS)
@pytest.mark.parametrize("where", ["l1", "l2"])
def test_a_start_at_the_optimum_ends_after_the_first_certificate(name: str, where: str) -> None:
    graph = GRAPHS[name]
    fits = random_fits(len(graph), rows=9, columns=6, seed=93)
    objectives = [LeastSquares(A, np.zeros(9)) for A in fits.A]
    result = dcgs.minimize(objectives, SETS[where], graph, EDGES, gap=1e-3, iterations=200)
    assert result.status is Status.AGREED
    # The first model is the root's point, which is x⁰. Its gap is known after two epochs, and is sent down.
    height = int(nx.radius(graph))
    assert result.rounds == max(SHORTEST, height) + max(SHORTEST, 2 * height) + height
    np.testing.assert_array_equal(result.agents, np.zeros((len(graph), 6)))


@pytest.mark.parametrize("rounds", [1, 7, 20])
def test_a_gap_that_is_not_reached_in_time_ends_by_the_limit(rounds: int) -> None:
    result = minimize(1e-9, rounds=rounds)
    assert (result.status, result.rounds) == (Status.ROUNDS, rounds)
    assert not result.status.success


@pytest.mark.parametrize("limit", ["rounds", "iterations"])
def test_a_certificate_that_comes_just_at_a_limit_is_a_success(limit: str) -> None:
    first = minimize()
    again = minimize(**{limit: getattr(first, limit)})
    np.testing.assert_array_equal(again.agents, first.agents)
    assert again.status is Status.AGREED


# The target.


@pytest.mark.parametrize(
    ("target", "at", "reached", "ends"),
    [
        (GapTarget(0.1), CertifiedGap(1.0, 10.1, 0.0), True, True),
        (GapTarget(0.1), CertifiedGap(1.0, 9.9, 0.0), False, False),
        (GapTarget(None, 2.0), CertifiedGap(1.0, -5.0, 0.0), True, True),
        (GapTarget(0.1, 0.5), CertifiedGap(1.0, 10.1, 0.0), True, True),
        (GapTarget(0.1, 2.0), CertifiedGap(1.0, 1.0, 0.0), True, True),
        # Rounding error may hide a gap that is too large.
        (GapTarget(0.1), CertifiedGap(1.0, 10.1, 0.1), False, False),
        (GapTarget(0.1), CertifiedGap(1.0, 9.9, 3.9), False, False),
        # A gap that is a single rounding error, a quarter of all, cannot get smaller.
        (GapTarget(0.1), CertifiedGap(1.0, 9.9, 4.1), False, True),
        # An optimal start: exactly, and up to rounding.
        (GapTarget(0.1), CertifiedGap(0.0, 0.0, 0.0, at_start=True), True, True),
        (GapTarget(0.1), CertifiedGap(1e-17, 0.0, 1e-16, at_start=True), True, True),
        (GapTarget(0.1), CertifiedGap(1e-15, 0.0, 1e-16, at_start=True), False, False),
        # Elsewhere a gap that is rounding error ends the run, and is no success.
        (GapTarget(0.1), CertifiedGap(1e-17, 0.0, 1e-16), False, True),
    ],
)
def test_a_gap_is_compared_with_the_decrease_of_f_or_with_a_number(
    target: GapTarget, at: CertifiedGap, reached: bool, ends: bool
) -> None:
    assert (target.reached(at), target.ends(at)) == (reached, ends)


# One agent's part.


def agent_of(i: int, graph: nx.Graph, gap: float | None = 1e-2) -> Agent:
    ball = dcgs.L1Ball(2)
    return Agent(
        index=i,
        f=LeastSquares(np.eye(2), [float(i), 1.0]),
        X=ball,
        lmo=dcgs.counting.CountedOracle(ball),
        x0=np.zeros(2),
        degrees={j: graph.degree[j] for j in neighbors_of(graph)[i]},
        facts=Facts(len(graph), 1.0, 0.0, 2.0, is_complete=as_network(graph).is_complete),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, answer, dual=None: None,
        target=None if gap is None else GapTarget(gap),
    )


def test_without_a_gap_nothing_is_computed_for_a_certificate() -> None:
    agent = agent_of(0, nx.path_graph(3), gap=None)
    assert Certificate().contribution(agent, np.ones(2), None) == (Shares(), None)


# In the following tests f(x⁰) − Σ fᵢ(xᵢ) is 1, so that a gap of 0.01 is asked for.
FAR, NEAR = Shares(local_decrease=1.0, local_excess=9.0), Shares(local_decrease=1.0, local_excess=0.009)
KNOWN = Outlook(epochs=1, residual=1.0, dual=1.0, wolfe=1.0)


@pytest.mark.parametrize(
    ("outlook", "k", "sums", "halves", "dual", "gradient", "proposal"),
    [
        # After the first epoch the error of the model is taken to be 0.01, and 0.007 is small enough.
        (Outlook(), 4, FAR, (0.0, 0.0), False, False, Proposal.NOTHING),
        # Later it is the dual half times √0.3, the fall of the residual to come.
        (Outlook(epochs=1), 8, FAR, (9.0, 0.0127), True, False, Proposal.MODEL),
        (Outlook(epochs=1), 8, FAR, (9.0, 0.0129), False, False, Proposal.NOTHING),
        # After many rounds a model costs little, and 0.03 is small enough.
        (Outlook(epochs=1), 66, FAR, (9.0, 0.0129), False, False, Proposal.NOTHING),
        (Outlook(epochs=1), 67, FAR, (9.0, 0.0129), True, False, Proposal.MODEL),
        # The residual falls from 1 to 0.5, so a dual gap of 0.06 at first is expected to fall to 0.015.
        (replace(KNOWN, dual=0.06), 8, FAR, (0.499, 0.001), True, False, Proposal.MODEL),
        (replace(KNOWN, dual=0.061), 8, FAR, (0.499, 0.001), False, False, Proposal.NOTHING),
        # If the dual gap is too large and no Wolfe gap is known, gradients are tried.
        (replace(KNOWN, wolfe=None), 8, FAR, (0.499, 0.001), False, True, Proposal.MODEL),
        # A Wolfe gap of w is expected to be w times √(0.5 √0.5), and 0.02 is small enough.
        (replace(KNOWN, wolfe=0.033), 8, FAR, (0.499, 0.001), False, True, Proposal.MODEL),
        (replace(KNOWN, wolfe=0.034), 8, FAR, (0.499, 0.001), False, False, Proposal.NOTHING),
        # Near the least value of the losses a model is enough.
        (KNOWN, 8, NEAR, (0.499, 0.001), False, False, Proposal.MODEL),
        # If the agents' points return to x⁰, it may be optimal.
        (replace(KNOWN, first=5.0), 8, FAR, (0.499, 0.5), False, True, Proposal.START),
        (replace(KNOWN, first=4.9), 8, FAR, (0.499, 0.5), False, False, Proposal.NOTHING),
        (replace(KNOWN, first=5.0, tried_start=True), 8, FAR, (0.499, 0.5), False, False, Proposal.NOTHING),
        (replace(KNOWN, waited=8), 8, FAR, (0.499, 0.5), False, False, Proposal.NOTHING),
        (replace(KNOWN, waited=9), 8, FAR, (0.499, 0.5), True, True, Proposal.MODEL),
    ],
)
def test_the_root_asks_for_what_is_likely_to_be_enough(
    outlook: Outlook,
    k: int,
    sums: Shares,
    halves: tuple[float, float],
    dual: bool,
    gradient: bool,
    proposal: Proposal,
) -> None:
    agent = agent_of(0, nx.path_graph(3))
    request = replace(outlook).request(agent, k, np.array([1.0, 0.0]), sums, halves)
    assert request == Request(proposal, dual * 0.25 * 0.01 / 3, gradient)


def test_without_reliable_messages_gradients_are_sent_when_they_are_likely_to_be_enough_or_cheap() -> None:
    """An agent's point has 2 numbers. The gap is 100 times too large, so the residual must fall by 10⁴."""
    agent = agent_of(0, nx.path_graph(3))
    outlook, empty, full = Outlook(), np.zeros(2), np.ones(2)
    last, model = Found(CertifiedGap(1.0, 1.0, 0.0)), Request(Proposal.MODEL, gradient=True)
    assert outlook.lossy_request(agent, 0, empty, 0.0, None) == model  # the first costs least
    assert outlook.lossy_request(agent, 1, empty, 1.0, last) == Request()  # that of the first epoch
    assert outlook.lossy_request(agent, 2, empty, 1e-3, last) == Request()
    assert outlook.lossy_request(agent, 3, empty, 8e-4, None) == model  # below (3/100)²
    assert outlook.lossy_request(agent, 4, np.array([1.0, 0.0]), 8e-4, last) == Request()
    assert outlook.lossy_request(agent, 5, full, 8e-4, last) == model  # a quarter of 2 · 1 · 4 numbers
    assert outlook.lossy_request(agent, 10, empty, 1.0, last) == model  # every tenth in any case


def test_if_no_model_is_better_than_the_start_the_start_is_proposed_once() -> None:
    agent = agent_of(0, nx.path_graph(3))
    outlook, worse = Outlook(), Found(CertifiedGap(1.0, -1.0, 0.0))
    assert outlook.restart(agent, worse) == Request(Proposal.START, 0.0, gradient=True)
    assert outlook.restart(agent, worse) is None
    certificate = Certificate()
    certificate.accept(agent, Request(Proposal.START), None)
    assert certificate.model is agent.x0
    certificate.accept(agent, Request(), None)
    assert certificate.model is None
