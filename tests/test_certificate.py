"""The certificate: when agents stop by themselves, the gap that they certify is true."""

from __future__ import annotations

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
from dcgs.methods.certificate import Certificate, Proposal
from dcgs.methods.target import CertifiedGap, GapTarget
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


def assert_certified(result: Result, objectives: list[Objective], X: ConvexSet, gap: float) -> None:
    """Assert that all hold one point of X whose Wolfe gap, by everyone's data, is what was asked for."""
    np.testing.assert_array_equal(result.agents, np.broadcast_to(result.agents[0], result.agents.shape))
    # Rounding of a convex combination, relative to the size of the set.
    assert X.violation(result.agents[0]) <= 1e-12 * X.diameter
    value, wolfe_gap = certify(objectives, X, result.agents[0])
    assert wolfe_gap <= gap * (certify(objectives, X, X.start())[0] - value)


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


Part: TypeAlias = tuple[float, float, Point | None]
CONTRIBUTION: Callable[[Certificate, Agent], Part] = Certificate.contribution


def corrupted(monkeypatch: pytest.MonkeyPatch, agent: int, factor: float) -> None:
    """Multiply the gradient at a model that one agent contributes by this factor."""

    def wrong(self: Certificate, at: Agent) -> Part:
        decrease, noise, grad = CONTRIBUTION(self, at)
        return decrease, noise, None if grad is None else (factor if at.index == agent else 1.0) * grad

    monkeypatch.setattr(Certificate, "contribution", wrong)


def test_a_wrong_gradient_of_an_agent_is_noticed_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    # The largest data: with its gradient turned, no model has a small gap, or a wrong one has.
    sizes = [f.smoothness for f in OBJECTIVES]
    corrupted(monkeypatch, int(np.argmax(sizes)), -1.0)
    result = minimize(rounds=400)
    certified = certify(OBJECTIVES, X, result.agents[0])
    start = certify(OBJECTIVES, X, X.start())[0]
    assert result.status is not Status.AGREED or certified[1] > 1e-2 * (start - certified[0])


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
def test_the_root_gets_the_gradient_of_everyone_s_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GRAPHS[name]
    objectives = random_fits(len(graph), rows=5, columns=6, seed=92).objectives()
    seen: list[tuple[int, float, Array, Array]] = []
    gap: Callable[..., CertifiedGap] = Certificate.gap

    def recorded(self: Certificate, agent: Agent, decrease: float, noise: float, grad: Point) -> CertifiedGap:
        assert self.model is not None
        seen.append((agent.index, decrease, self.model, grad))
        return gap(self, agent, decrease, noise, grad)

    monkeypatch.setattr(Certificate, "gap", recorded)
    dcgs.minimize(objectives, X, graph, EDGES, gap=1e-3, iterations=3000, every=0)
    (root,) = [i for i, node in enumerate(as_network(graph).tree) if node.parent is None]
    assert {i for i, *_ in seen} == {root}
    for _, decrease, y, grad in seen:
        # A dozen gradients of size 100, added up.
        np.testing.assert_allclose(grad, sum(f.grad(y) for f in objectives), rtol=0.0, atol=1e-11)
        fall = sum(f.value(X.start()) - f.value(y) for f in objectives)
        assert decrease == pytest.approx(fall, rel=1e-11, abs=1e-11)


def test_everyone_has_the_model_of_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[bytes] = []

    def recorded(self: Certificate, agent: Agent) -> Part:
        models.extend([] if self.model is None else [self.model.tobytes()])
        return CONTRIBUTION(self, agent)

    monkeypatch.setattr(Certificate, "contribution", recorded)
    result = minimize()
    counts = Counter(models)
    # Agents may be at different epochs by one, and each contributes once.
    assert set(counts.values()) == {7}
    assert models[-1] == result.agents[0].tobytes()


def test_a_certificate_costs_no_round_and_its_bytes_are_counted() -> None:
    graph = nx.star_graph(5)
    objectives = objectives_for(X, 6, seed=3)
    alone = dcgs.minimize(objectives, X, graph, EDGES, gap=1e-2)
    watching = replace(EDGES, stops_itself=False)
    watched = dcgs.minimize(objectives, X, graph, watching, iterations=alone.iterations)
    assert alone.status is Status.AGREED
    assert alone.rounds == alone.iterations == watched.rounds
    np.testing.assert_array_equal(alone.messages, watched.messages)
    # The root sends models to its children, and each of these sends a gradient for every model.
    more = alone.bytes - watched.bytes
    vector = EncodedArray(np.ones(6)).nbytes
    assert (more % vector == 0).all()
    # A gradient at x⁰, which all agents have, is sent without a model.
    assert 0 < more[0] <= more[1:].sum() <= more[0] + 5 * vector
    assert len(set(more[1:].tolist())) == 1


@pytest.mark.parametrize("gap", [0.1, 1e-2, 1e-3])
def test_an_observer_who_sees_everything_ends_a_run_no_later(gap: float) -> None:
    agents, observer = minimize(gap), minimize(gap, replace(EDGES, stops_itself=False))
    assert (agents.status, observer.status) == (Status.AGREED, Status.GAP)
    assert observer.rounds <= agents.rounds


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
        observe=lambda k, answer: None,
        target=None if gap is None else GapTarget(gap),
    )


def test_without_a_gap_no_model_is_sent() -> None:
    agent = agent_of(0, nx.path_graph(3), gap=None)
    certificate = Certificate()
    found = {certificate.propose(agent, epoch, 0.0, None, sent=10**6) for epoch in range(30)}
    assert found == {Proposal.NOTHING}
    assert certificate.contribution(agent) == (0.0, 0.0, None)


def test_models_are_sent_when_they_are_likely_to_be_good_enough_or_cheap() -> None:
    """An agent's point has 2 numbers. The gap is 100 times too large, so the residual must fall by 10⁴."""
    agent = agent_of(0, nx.path_graph(3))
    certificate = Certificate()
    assert certificate.propose(agent, 0, 0.0, None, sent=0) is Proposal.MODEL  # the first costs least
    last = CertifiedGap(1.0, 1.0, 0.0)  # the threshold is 0.01
    assert certificate.propose(agent, 1, 1.0, last, sent=0) is Proposal.NOTHING  # that of the first epoch
    assert certificate.propose(agent, 2, 1e-3, last, sent=0) is Proposal.NOTHING
    assert certificate.propose(agent, 3, 8e-4, None, sent=0) is Proposal.MODEL  # below (3/100)²
    assert certificate.propose(agent, 4, 8e-4, last, sent=7) is Proposal.NOTHING
    assert certificate.propose(agent, 5, 8e-4, last, sent=8) is Proposal.MODEL  # a quarter of what is sent
    assert certificate.propose(agent, 10, 1.0, last, sent=0) is Proposal.MODEL  # every tenth in any case


def test_if_no_model_is_better_than_the_start_the_start_is_proposed_once() -> None:
    agent = agent_of(0, nx.path_graph(3))
    certificate = Certificate()
    worse = CertifiedGap(1.0, -1.0, 0.0)
    assert certificate.propose(agent, 1, 1.0, worse, sent=100) is Proposal.START
    assert certificate.propose(agent, 2, 1.0, worse, sent=100) is Proposal.MODEL
    certificate.accept(agent, Proposal.START, None)
    assert certificate.model is agent.x0
    certificate.accept(agent, Proposal.NOTHING, None)
    assert certificate.model is None
