"""The certificate: when agents stop by themselves, the gap that they certify is true."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from dcgs.methods.messages import ALL, AttachedVector, Message, Row
from hypothesis import given, settings
from hypothesis import strategies as st

import dcgs
from dcgs import FastDCGS, LeastSquares, Objective, Result, Status
from dcgs.front.history import certify
from dcgs.methods import Agent
from dcgs.methods.certificate import Certificate, Phase
from dcgs.methods.target import CertifiedGap, GapTarget
from dcgs.points import Point
from dcgs.schedules import Facts
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
"""The form that needs a certificate; with a hub every agent knows the sum of gradients."""


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
    method=st.sampled_from([FastDCGS(), EDGES]),
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
    return dcgs.minimize(OBJECTIVES, X, GRAPH, method or FastDCGS(), gap=gap, **rules)


def corrupted(monkeypatch: pytest.MonkeyPatch, agent: int, factors: tuple[float, float, float]) -> None:
    """Multiply the scalars that one agent floods about a model by these factors."""
    scalars: Callable[[Certificate, Agent], Row] = Certificate._scalars
    factor = {agent: factors}

    def wrong(self: Certificate, agent: Agent) -> Row:
        by = factor.get(agent.index, (1.0, 1.0, 1.0))
        return tuple(number * times for number, times in zip(scalars(self, agent), by, strict=True))

    monkeypatch.setattr(Certificate, "_scalars", wrong)
    # Models are sent at once, so that the first of them are bad.
    monkeypatch.setattr(Certificate, "_is_due", lambda self, epoch, residual: True)


@pytest.mark.parametrize(("agent", "factors"), [(0, (1e-3, 1.0, 1.0)), (0, (-1.0, 1.0, 1.0))])
def test_wrong_scalars_of_an_agent_are_noticed_by_these_tests(
    monkeypatch: pytest.MonkeyPatch, agent: int, factors: tuple[float, float, float]
) -> None:
    corrupted(monkeypatch, agent, factors)
    result = minimize()
    assert result.status is Status.AGREED
    with pytest.raises(AssertionError):
        assert_certified(result, OBJECTIVES, X, gap=1e-2)


@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.star_graph(3)], ids=["edges", "hub"])
@pytest.mark.parametrize("method", [FastDCGS(), FastDCGS(stops_itself=False)], ids=["agents", "observer"])
def test_a_gap_that_is_rounding_error_ends_the_run_with_a_status_and_a_note(
    method: FastDCGS, graph: nx.Graph
) -> None:
    rng = np.random.default_rng(5)
    objectives = [LeastSquares(np.eye(3), rng.standard_normal(3)) for _ in range(4)]
    result = dcgs.minimize(objectives, dcgs.L2Ball(3, 9.0), graph, method, gap=1e-18, rounds=2000)
    assert (result.status, result.status.success) == (Status.ROUNDING, False)
    assert result.notes[0].startswith("the gap that was reached is ")
    # A gap of a few rounding errors of gradients of size 1, times the diameter.
    assert certify(objectives, dcgs.L2Ball(3, 9.0), result.x)[1] <= 1e-13


def test_right_scalars_are_not_reported_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    corrupted(monkeypatch, 3, (1.0, 1.0, 1.0))
    assert_certified(minimize(), OBJECTIVES, X, gap=1e-2)


@pytest.mark.parametrize("name", GRAPHS)
def test_agent_0_gets_the_gradient_of_everyone_s_data(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    graph = GRAPHS[name]
    objectives = random_fits(len(graph), rows=5, columns=6, seed=92).objectives()
    seen: list[tuple[int, Array, Array]] = []
    scalars: Callable[[Certificate, Agent], Row] = Certificate._scalars

    def recorded(self: Certificate, agent: Agent) -> Row:
        assert self.model is not None
        seen.append((agent.index, self.model, self.total))
        return scalars(self, agent)

    monkeypatch.setattr(Certificate, "_scalars", recorded)
    dcgs.minimize(objectives, X, graph, EDGES, gap=1e-3, iterations=3000, every=0)
    sums = [(y, total) for i, y, total in seen if i == 0]
    assert len(seen) == len(graph) * len(sums) > 0
    for y, total in sums:
        expected = sum(f.grad(y) for f in objectives)
        # Gradients and dual variables of size 100 are added up, a few dozen times for each iteration before.
        np.testing.assert_allclose(total, expected, rtol=0.0, atol=1e-9)


def test_everyone_has_the_model_of_agent_0(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[bytes] = []
    scalars: Callable[[Certificate, Agent], Row] = Certificate._scalars

    def recorded(self: Certificate, agent: Agent) -> Row:
        models.append(b"" if self.model is None else self.model.tobytes())
        return scalars(self, agent)

    monkeypatch.setattr(Certificate, "_scalars", recorded)
    result = minimize()
    assert all(len(set(models[at : at + 7])) == 1 for at in range(0, len(models), 7))
    assert models[-1] == result.agents[0].tobytes()


def test_a_model_and_its_gradient_cost_no_round_and_are_counted_in_bytes() -> None:
    graph = nx.star_graph(5)
    objectives = objectives_for(X, 6, seed=3)
    alone = dcgs.minimize(objectives, X, graph, EDGES, gap=1e-2)
    watching = replace(EDGES, stops_itself=False)
    watched = dcgs.minimize(objectives, X, graph, watching, iterations=alone.iterations)
    assert alone.status is Status.AGREED
    assert alone.rounds == alone.iterations == watched.rounds
    np.testing.assert_array_equal(alone.messages, watched.messages)
    # Agent 0 sends a model, the others pass it on and send a gradient: d numbers to every neighbor. The first
    # model is x⁰, which nobody sends.
    one = 8 * 6 * np.array([graph.degree[i] for i in range(6)])
    vectors = (alone.bytes - watched.bytes) / one
    assert vectors[0] >= 1.0
    assert vectors[0] == int(vectors[0])
    np.testing.assert_array_equal(vectors[1:], np.full(5, 2.0 * vectors[0] + 1.0))


@pytest.mark.parametrize("gap", [0.1, 1e-2, 1e-3])
def test_an_observer_who_sees_everything_ends_a_run_no_later(gap: float) -> None:
    agents, observer = minimize(gap), minimize(gap, FastDCGS(stops_itself=False))
    assert (agents.status, observer.status) == (Status.AGREED, Status.GAP)
    assert observer.rounds <= agents.rounds


def test_a_gap_without_any_measuring_is_enough_where_agents_decide() -> None:
    seldom, often = minimize(every=0), minimize(every=1)
    assert (seldom.status, seldom.rounds) == (Status.AGREED, often.rounds)
    np.testing.assert_array_equal(seldom.agents, often.agents)
    np.testing.assert_array_equal(seldom.bytes, often.bytes)
    np.testing.assert_array_equal(seldom.history.iterations, [0, seldom.iterations])


def test_without_a_rule_agents_stop_at_a_gap_of_a_thousandth() -> None:
    result = dcgs.minimize(OBJECTIVES, X, GRAPH, every=0)
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
    # The first epoch tells the agents how sums travel, the second sums gradients at x⁰, the third floods.
    assert result.rounds == 3 * max(SHORTEST, nx.diameter(graph))
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
        (GapTarget(0.1), CertifiedGap(1.0, 9.9, 2.0), False, True),
        # An optimal start: exactly, and up to rounding.
        (GapTarget(0.1), CertifiedGap(0.0, 0.0, 0.0), True, True),
        (GapTarget(0.1), CertifiedGap(1e-17, 0.0, 1e-16), True, True),
        (GapTarget(0.1), CertifiedGap(1e-15, 0.0, 1e-16), False, False),
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
        facts=Facts(len(graph), 1.0, 0.0, 2.0, graph_diameter=nx.diameter(graph)),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, answer: None,
        target=None if gap is None else GapTarget(gap),
    )


def certificate_of(agent: Agent) -> Certificate:
    return Certificate(agent.f.value(agent.x0), agent.x0)


def message(vector: Point, to: int) -> Message:
    return Message(np.zeros(2), 1.0, {}, AttachedVector(vector, to))


def test_a_vector_attached_for_another_agent_is_ignored() -> None:
    middle = agent_of(1, nx.path_graph(3))
    certificate = certificate_of(middle)
    model = np.array([0.25, 0.5])
    certificate.receive(middle, {0: message(model, ALL)}, step=1)
    certificate.start_epoch(middle, np.zeros(2), np.zeros(2), epoch=1, residual=1.0)
    assert certificate.phase is Phase.REDUCE
    received = {0: message(np.array([100.0, 100.0]), 2), 2: message(np.array([1.0, 2.0]), 1)}
    certificate.receive(middle, received, step=1)
    attached = certificate.attached(middle, step=2)
    assert attached is not None
    assert attached.to == 0
    np.testing.assert_array_equal(attached.vector, middle.f.grad(model) + np.array([1.0, 2.0]))


def test_the_first_of_several_models_is_kept_and_the_sum_goes_to_its_lowest_sender() -> None:
    last = agent_of(3, nx.cycle_graph(4))
    certificate = certificate_of(last)
    model = np.array([0.25, 0.5])
    certificate.receive(last, {0: message(model, ALL), 2: message(model, ALL)}, step=1)
    certificate.receive(last, {2: message(np.zeros(2), ALL)}, step=2)
    np.testing.assert_array_equal(certificate.model, model)
    certificate.start_epoch(last, np.zeros(2), np.ones(2), epoch=1, residual=1.0)
    # Two hops in all, and one from here: its sum is due in the second step.
    assert certificate.attached(last, step=1) is None
    attached = certificate.attached(last, step=2)
    assert attached is not None
    assert attached.to == 0
    np.testing.assert_array_equal(attached.vector, last.f.grad(model) + 1.0)


@pytest.mark.parametrize(("i", "gap"), [(0, None), (1, 1e-2)])
def test_without_a_gap_or_by_another_agent_than_0_no_model_is_sent(i: int, gap: float | None) -> None:
    agent = agent_of(i, nx.path_graph(3), gap)
    certificate = certificate_of(agent)
    for epoch in range(30):
        certificate.start_epoch(agent, np.zeros(2), np.zeros(2), epoch, residual=0.0)
        assert certificate.phase is Phase.BROADCAST
        assert certificate.attached(agent, step=1) is None
