"""The certificate: when agents stop by themselves, the gap that they certify is true."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dcgs
import stacked
from dcgs import FastDCGS, LeastSquares, Objective, Result, Status
from dcgs.methods import certifier
from dcgs.methods.attachment import Parts, attached
from dcgs.methods.base import Dual
from dcgs.methods.certificate import UNKNOWN, Bounds, CertifiedGap, GapKind, GapTarget, excess
from dcgs.methods.certifier import Certifier, Lane, Shares
from dcgs.methods.outlook import Outlook, Request, View
from dcgs.methods.reduction import Value
from dcgs.points import Point
from dcgs.protocol import Outbox
from dcgs.run.measuring import certify
from dcgs.runtime.messages import Packet
from dcgs.sets import ConvexSet
from problems import GRAPHS, Array, random_fits

SETS: dict[str, ConvexSet] = {
    "l1": dcgs.L1Ball(6, radius=2.0),
    "simplex": dcgs.Simplex(6),
    "box": dcgs.Box(-np.ones(6), np.ones(6)),
    "l2": dcgs.L2Ball(6),
    "matrices": dcgs.NuclearNormBall((2, 3)),
}
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
    method=st.sampled_from([FastDCGS(form="sums"), FastDCGS(form="root"), FastDCGS(form="newton"), EDGES]),
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


CONTRIBUTION: Callable[[Certifier, Lane, Point, Dual | None], Value] = Certifier._contribution


def test_a_wrong_bound_of_an_agent_is_noticed_by_these_tests(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = int(np.argmax([f.smoothness for f in OBJECTIVES]))

    def wrong(self: Certifier, lane: Lane, x: Point, dual: Dual | None) -> Value:
        numbers, *grad = CONTRIBUTION(self, lane, x, dual)
        shares = Shares(*numbers.tolist())
        more = 0.05 * (self.agent.index == largest) * max(shares.decrease, 0.0)
        return np.array(shares._replace(bound=shares.bound + more))[: len(numbers)], *grad

    monkeypatch.setattr(Certifier, "_contribution", wrong)
    result = minimize(rounds=400)
    assert result.status is Status.AGREED
    with pytest.raises(AssertionError):
        assert_certified(result, OBJECTIVES, X, 1e-2)


@pytest.mark.parametrize("graph", [nx.path_graph(4), nx.star_graph(3)], ids=["path", "star"])
@pytest.mark.parametrize("form", ["edges", "sums", "root", "newton"])
@pytest.mark.parametrize("stops_itself", [True, False], ids=["agents", "observer"])
def test_a_gap_that_is_rounding_error_ends_the_run_with_a_status_and_a_note(
    stops_itself: bool, form: Literal["edges", "sums", "root", "newton"], graph: nx.Graph
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
    fits = random_fits(len(graph), rows=5, columns=6, seed=92)
    objectives = fits.objectives()
    seen: list[tuple[int, Array, Shares, Array, float]] = []
    read: Callable[[Certifier, Lane], tuple[CertifiedGap, int]] = Certifier._read
    request: Callable[..., Request | None] = Outlook.request

    def recorded(self: Certifier, lane: Lane) -> tuple[CertifiedGap, int]:
        gap, (numbers, *vectors) = read(self, lane), lane.reduction.total()
        seen.extend(
            (self.agent.index, lane.model, Shares(*numbers.tolist()), grad, self.at.bounds.lower)
            for grad in vectors
            if lane.model is not None
        )
        return gap

    def with_gradient(self: Outlook, view: View, is_alone: bool) -> Request | None:
        asked = request(self, view, is_alone)
        return None if asked is None else replace(asked, gradient=True, floods=False)

    monkeypatch.setattr(Certifier, "_read", recorded)
    monkeypatch.setattr(Outlook, "request", with_gradient)
    dcgs.minimize(objectives, X, graph, EDGES, gap=1e-3, iterations=3000, every=0)
    root = int(stacked.depths(nx.laplacian_matrix(graph).toarray(), fits.A).argmin())
    assert {i for i, *_ in seen} == {root}
    (least, _), start = optimum(objectives, X), sum(f.value(X.start()) for f in objectives)
    for _, y, sums, grad, lower in seen:
        # A dozen gradients of size 100, added up.
        np.testing.assert_allclose(grad, sum(f.grad(y) for f in objectives), rtol=0.0, atol=1e-11)
        fall = start - sum(f.value(y) for f in objectives)
        assert sums.decrease == pytest.approx(fall, rel=1e-11, abs=1e-11)
        assert sums.excess == pytest.approx(start - fall, rel=1e-11, abs=1e-11)
        # The reference is within 1e-9 of the decrease, which is at most a thousand.
        assert lower <= least - start + 1e-6


def test_everyone_has_the_model_of_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    models: list[bytes] = []

    def recorded(self: Certifier, lane: Lane, x: Point, dual: Dual | None) -> Value:
        models.extend([lane.model.tobytes()] if lane.request.proposal and lane.model is not None else [])
        return CONTRIBUTION(self, lane, x, dual)

    monkeypatch.setattr(Certifier, "_contribution", recorded)
    result = minimize()
    counts = Counter(models)
    # Each agent contributes once; the last models may still be on their way when the run ends.
    assert max(counts.values()) == 7
    assert counts[result.agents[0].tobytes()] == 7


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e6])
def test_all_agents_bound_f_by_dual_variables_of_one_iteration_which_sum_to_zero(
    scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns are uneven, so that a preconditioner changes the steps of the dual variables."""
    rng = np.random.default_rng(8)
    columns = scale * 10.0 ** np.linspace(0.0, 3.0, 6)
    data = [(columns * rng.standard_normal((5, 6)), scale * rng.standard_normal(5)) for _ in range(7)]
    objectives = [LeastSquares(A, b) for A, b in data]
    used: dict[tuple[int, bytes], list[Dual]] = {}

    def recorded(self: Certifier, lane: Lane, x: Point, dual: Dual | None) -> Value:
        value = CONTRIBUTION(self, lane, x, dual)
        if lane.request.tolerance > 0.0 and dual is not None and lane.model is not None:
            used.setdefault((lane.due, lane.model.tobytes()), []).append(dual)
            assert Shares(*value[0].tolist()).bound > -UNKNOWN
        return value

    monkeypatch.setattr(Certifier, "_contribution", recorded)
    result = dcgs.minimize(objectives, X, GRAPH, EDGES, gap=1e-5, rounds=500, every=0)
    assert result.status is Status.AGREED
    complete = [duals for duals in used.values() if len(duals) == 7]
    assert len(complete) >= 1
    for duals in complete:
        exact = [math.fsum(entries) for entries in zip(*(dual.w for dual in duals), strict=True)]
        drift = sum(dual.drift for dual in duals)
        assert np.linalg.norm(exact) <= drift
        assert max(np.linalg.norm(dual.w) for dual in duals) > 1e6 * drift


def test_agents_know_within_three_heights_of_the_tree_after_it_is_so() -> None:
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
    # The model goes down, sums go up, and the answer goes down; the bound may be late by a height more.
    assert agents.rounds <= so + 4 * nx.radius(graph)


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


def test_a_certificate_costs_no_round_and_its_bytes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = nx.star_graph(5)
    objectives = objectives_for(X, 6, seed=3)
    spent = 0

    def weighed(outbox: Outbox, parts: Mapping[int, Parts], neighbors: Iterable[int]) -> Outbox:
        nonlocal spent
        messages = attached(outbox, parts, neighbors)
        assert isinstance(outbox, Mapping)
        assert isinstance(messages, Mapping)
        spent += sum(Packet(0, messages[j]).nbytes - Packet(0, outbox[j]).nbytes for j in outbox)
        return messages

    monkeypatch.setattr(certifier, "attached", weighed)
    alone = dcgs.minimize(objectives, X, graph, EDGES, gap=1e-2)
    watching = replace(EDGES, stops_itself=False)
    watched = dcgs.minimize(objectives, X, graph, watching, iterations=alone.iterations)
    assert alone.status is Status.AGREED
    assert alone.rounds == alone.iterations == watched.rounds
    np.testing.assert_array_equal(alone.messages, watched.messages)
    assert int((alone.bytes - watched.bytes).sum()) == spent
    # The root sends a request with a model to each of five children, which answer with eight numbers.
    assert spent >= len(alone.certificates) * 5 * (8 * 8 + 5 * 8)


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
    # Σ fᵢ(x⁰) − fᵢ(xᵢ) is known after one height of the tree, and is 0. Then x⁰ is proposed.
    height = int(nx.radius(graph))
    assert result.rounds <= 4 * height + 3
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


# Bounds of f*.


def test_the_best_bound_so_far_counts_with_its_kind() -> None:
    bounds = Bounds()
    assert bounds.gap(2.0).gap == math.inf
    bounds.add(-5.0, GapKind.DUAL)
    bounds.add(-7.0, GapKind.WOLFE)
    assert bounds.gap(2.0) == CertifiedGap(3.0, 2.0, 0.0, False, GapKind.DUAL)
    bounds.add(-4.0, GapKind.WOLFE)
    assert bounds.gap(3.5, at_start=True) == CertifiedGap(0.5, 3.5, 0.0, True, GapKind.WOLFE)


def test_the_least_value_of_losses_is_a_bound_unless_one_is_unknown() -> None:
    bounds = Bounds()
    bounds.add_least(2.0, 3.0)  # f(x⁰) − f* ≤ 2 + 3
    assert (bounds.lower, bounds.kind) == (-5.0, GapKind.LEAST)
    for unknown in (1e300, 5e300):  # of one agent, or of five
        bounds.add_least(2.0, unknown)
        other = Bounds()
        other.add_least(-math.inf, unknown)
        assert (bounds.lower, other.lower) == (-5.0, -math.inf)


@dataclass(frozen=True, eq=False)
class Shifted(dcgs.Loss):
    """½ (zᵢ − bᵢ)² − 3 for each entry, which may know that no entry is less than −3."""

    b: Array
    known: float
    curvature = 1.0, 1.0

    @property
    def least(self) -> float:
        return -math.inf if math.isnan(self.known) else self.known

    def value(self, z: Array) -> float:
        return float(np.sum(0.5 * (z - self.b) ** 2 - 3.0))

    def grad(self, z: Array) -> Array:
        return z - self.b

    def hess(self, z: Array) -> Array:
        return np.ones_like(z)

    def data(self) -> dict[str, Array]:
        return {"b": self.b}


def test_the_excess_of_a_loss_is_its_distance_from_the_least_value_rounded_up() -> None:
    f = LeastSquares(np.eye(2), [1.0, 0.0])
    assert 4.0 < excess(f, 4.0) <= 4.0 * (1.0 + 1e-15)
    assert excess(f, 0.0) == 0.0
    unknown = Objective(Shifted(np.array([2.0, 2.0]), math.nan), f.map)
    assert excess(unknown, 4.0) == 1e300
    # A least value that is not 0 counts once for each entry.
    shifted = Objective(Shifted(np.array([2.0, 2.0]), -3.0), f.map)
    assert excess(shifted, shifted.value(np.zeros(2))) == pytest.approx(4.0, rel=1e-14)


WOLFE = CertifiedGap(1.0, 10.0, 0.5)


@pytest.mark.parametrize(
    ("wolfe", "lower", "target", "best"),
    [
        # f(x) − f* is 1.5 at most by the Wolfe gap; the bound counts if it says less.
        (WOLFE, -12.0, GapTarget(0.01), WOLFE),
        (WOLFE, -11.5, GapTarget(0.01), WOLFE),
        (WOLFE, -11.4, GapTarget(0.01), CertifiedGap(-10.0 + 11.4, 10.0, 0.0, False, GapKind.DUAL)),
        # A Wolfe gap that is rounding error ends the run, unless the bound is good enough for success.
        (replace(WOLFE, gap=0.1), -10.3, GapTarget(0.01), replace(WOLFE, gap=0.1)),
        (
            replace(WOLFE, gap=0.1),
            -10.3,
            GapTarget(0.1),
            CertifiedGap(-10.0 + 10.3, 10.0, 0.0, False, GapKind.DUAL),
        ),
        (replace(WOLFE, gap=0.1), -10.3, None, CertifiedGap(-10.0 + 10.3, 10.0, 0.0, False, GapKind.DUAL)),
    ],
)
def test_the_better_of_the_wolfe_gap_and_the_best_bound_counts(
    wolfe: CertifiedGap, lower: float, target: GapTarget | None, best: CertifiedGap
) -> None:
    assert Bounds(lower, GapKind.DUAL).best(wolfe, target) == best


def test_a_certified_gap_survives_its_way_as_an_array() -> None:
    for kind in GapKind:
        given = CertifiedGap(1.5, -2.0, 0.25, kind is GapKind.DUAL, kind)
        assert CertifiedGap.of(given.as_array().tolist()) == given


def test_noise_in_the_numbers_of_a_gap_names_no_kind_that_there_is_not() -> None:
    found = [CertifiedGap.of([1.0, 2.0, 0.0, 0.2, kind]) for kind in (-3.0, 0.4, 1.4, 9.0)]
    assert [gap.kind for gap in found] == [GapKind.WOLFE, GapKind.WOLFE, GapKind.DUAL, GapKind.LEAST]
    assert not any(gap.at_start for gap in found)
