"""The agents of every method stop by themselves, with a certificate that another solver confirms."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeAlias, final

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs import Agent, ConvexSet, LeastSquares, Method, Objective, Point, Program, Result, Status
from dcgs.facts import Facts
from dcgs.inner import Newton
from dcgs.methods.base import Dual
from dcgs.methods.certificate import UNKNOWN, CertifiedGap, GapTarget
from dcgs.methods.certifier import Certifier, Lane, Shares
from dcgs.methods.local_bound import DualShare, LocalBound
from dcgs.methods.outlook import Outlook, Proposal, Request, View
from dcgs.methods.reduction import Value
from dcgs.objectives.objective import Baseline
from dcgs.points import EPS
from problems import Array
from reference import optimum

Data: TypeAlias = list[tuple[Array, Array]]

# Heavier η than the paper's: agreement comes sooner. Its steps do not depend on limits.
T1 = dcgs.Theorem1(balance=4.0, horizon=500)
METHODS: dict[str, Method] = {
    "edges": dcgs.FastDCGS(form="edges"),
    "edges, oracle": dcgs.FastDCGS(form="edges", inner="oracle"),
    "DCGS": dcgs.DCGS(schedule=T1),
    "DCGS, last": dcgs.DCGS(schedule=T1, answer="last"),
    "PrimalDual": dcgs.PrimalDual(precision=1e-3),
    "DFW": dcgs.DFW(),
    "DFW, repeated": dcgs.DFW(tracking=False),
    "NIDS": dcgs.NIDS(),
    "PGExtra": dcgs.PGExtra(),
    "AGD, exact": dcgs.ProjectedAGD(gossip="exact"),
    "AGD, chebyshev": dcgs.ProjectedAGD(gossip="chebyshev"),
}
WITH_DUAL = [name for name in METHODS if "AGD" not in name]
GRAPHS: dict[str, nx.Graph] = {
    "cycle": nx.cycle_graph(5),
    "star": nx.star_graph(4),
    "path": nx.path_graph(4),
    "complete": nx.complete_graph(4),
    "one": nx.empty_graph(1),
}
SETS: dict[str, ConvexSet] = {"l1": dcgs.L1Ball(6, 1.5), "l2": dcgs.L2Ball(6)}
GAP = 0.3
"""What the slowest methods reach in some hundred rounds."""


def data_of(graph: nx.Graph, seed: int = 0) -> Data:
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((8, 6)), rng.standard_normal(8)) for _ in graph]


def objectives_of(data: Data) -> list[Objective]:
    return [LeastSquares(A, b) for A, b in data]


def value_of(data: Data, x: Array) -> float:
    return sum(float(np.sum((A @ x - b) ** 2)) for A, b in data)


def assert_true(result: Result, data: Data, X: ConvexSet, gap: float) -> None:
    """Assert that all have one model, that its error is at most what they claim and what was asked for."""
    assert result.status is Status.AGREED
    np.testing.assert_array_equal(result.agents, np.broadcast_to(result.agents[0], result.agents.shape))
    x, claimed = result.agents[0], result.about["certified"]
    # Rounding of a convex combination or of a projection, relative to the size of the set.
    assert X.violation(x) <= 1e-12 * X.diameter
    _, least = optimum(data, X)
    first, value = value_of(data, X.start()), value_of(data, x)
    # Values are of the size 100, and the other solver is precise up to 1e-9 of them.
    assert value - least <= claimed["gap"] + claimed["noise"] + 1e-6
    assert first - value >= claimed["decrease"] - 1e-9
    assert value - least <= gap * (first - value) + 1e-6


@cache
def run(method: str, graph: str, where: str, every: int | None = None) -> tuple[Result, Data]:
    data = data_of(GRAPHS[graph])
    made = METHODS[method]
    return dcgs.minimize(
        objectives_of(data), SETS[where], GRAPHS[graph], made, gap=GAP, rounds=2000, every=every
    ), data


@pytest.mark.parametrize(("graph", "where"), [*((name, "l2") for name in GRAPHS), ("cycle", "l1")])
@pytest.mark.parametrize("method", METHODS)
def test_agents_of_every_method_stop_with_a_certificate_that_another_solver_confirms(
    method: str, graph: str, where: str
) -> None:
    """Nothing is measured: the observer of the run knows nothing of the others' data."""
    result, data = run(method, graph, where)
    assert_true(result, data, SETS[where], GAP)
    assert len(result.certificates) >= 1
    assert result.certificates["gap"][-1] == result.about["certified"]["gap"]
    assert result.certificates["kind"][-1] == result.about["certified"]["kind"]


@pytest.mark.parametrize("method", METHODS)
def test_it_is_the_same_run_where_the_observer_measures(method: str) -> None:
    seldom, often = run(method, "star", "l2")[0], run(method, "star", "l2", every=1)[0]
    assert seldom.agents.tobytes() == often.agents.tobytes()
    assert (seldom.rounds, seldom.bytes.tolist()) == (often.rounds, often.bytes.tolist())
    assert seldom.certificates.tolist() == often.certificates.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_the_last_gap_of_the_history_is_the_best_that_was_certified(method: str) -> None:
    result, _ = run(method, "star", "l2", every=1)
    history, certificates = result.history, result.certificates
    known = [
        min(certificates["gap"][certificates["rounds"] <= rounds], default=math.nan)
        for rounds in history.rounds
    ]
    np.testing.assert_array_equal(history.certified_gap, known)
    assert math.isnan(history.certified_gap[0])
    assert history.certified_gap[-1] == min(certificates["gap"])
    assert (np.diff(certificates["bytes"]) >= 0).all()
    assert certificates["bytes"][-1] <= result.bytes.sum()


def test_the_bytes_of_a_certificate_are_those_of_all_agents_up_to_its_round() -> None:
    result, data = run("NIDS", "cycle", "l2")
    for row in result.certificates:
        cut = dcgs.minimize(
            objectives_of(data),
            SETS["l2"],
            GRAPHS["cycle"],
            METHODS["NIDS"],
            gap=GAP,
            rounds=int(row["rounds"]),
        )
        assert row["bytes"] == cut.bytes.sum()


@pytest.mark.parametrize("graph", ["star", "path", "one"])
@pytest.mark.parametrize("method", METHODS)
def test_a_start_at_the_optimum_ends_with_success_and_stays_there(method: str, graph: str) -> None:
    """x⁰ = 0 fits the data of all: no f can decrease, so that no relative gap is ever reached elsewhere."""
    objectives = [LeastSquares(A, 0.0 * b) for A, b in data_of(GRAPHS[graph])]
    result = dcgs.minimize(
        objectives, SETS["l1"], GRAPHS[graph], METHODS[method], gap=1e-3, rounds=200, every=None
    )
    assert (result.status, result.about["certified"]["gap"]) == (Status.AGREED, 0.0)
    np.testing.assert_array_equal(result.agents, np.zeros((len(GRAPHS[graph]), 6)))


@pytest.mark.parametrize("method", METHODS)
def test_without_a_gap_no_byte_and_no_oracle_call_is_spent(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, graph = data_of(GRAPHS["path"]), GRAPHS["path"]
    free = dcgs.minimize(objectives_of(data), SETS["l2"], graph, METHODS[method], rounds=24, every=None)
    monkeypatch.setattr("dcgs.run.build.program_of", lambda made, agent: made.program(agent))
    plain = dcgs.minimize(objectives_of(data), SETS["l2"], graph, METHODS[method], rounds=24, every=None)
    for name in ("bytes", "messages", "lmo_calls", "projections"):
        assert getattr(free, name).tolist() == getattr(plain, name).tolist(), name
    assert free.agents.tobytes() == plain.agents.tobytes()
    assert len(free.certificates) == 0


def test_a_gap_costs_bytes_and_calls_but_no_message_and_changes_no_iterate() -> None:
    data, graph = data_of(GRAPHS["path"]), GRAPHS["path"]
    rules: dict[str, Any] = {"rounds": 120, "every": 1}
    free = dcgs.minimize(objectives_of(data), SETS["l2"], graph, dcgs.DFW(), **rules)
    asked = dcgs.minimize(objectives_of(data), SETS["l2"], graph, dcgs.DFW(), gap=1e-9, **rules)
    assert asked.status is Status.ROUNDS
    assert asked.agents.tobytes() == free.agents.tobytes()
    assert asked.messages.tolist() == free.messages.tolist()
    assert (asked.bytes > free.bytes).all()
    assert (asked.lmo_calls > free.lmo_calls).all()
    assert asked.history.worst_loss.tolist() == free.history.worst_loss.tolist()


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_attached_before_the_root_asks_for_it(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, graph = data_of(GRAPHS["path"]), GRAPHS["path"]
    free = dcgs.minimize(objectives_of(data), SETS["l2"], graph, METHODS[method], rounds=24, every=None)
    monkeypatch.setattr(Outlook, "request", lambda self, view, is_alone: None)
    asked = dcgs.minimize(
        objectives_of(data), SETS["l2"], graph, METHODS[method], rounds=24, gap=1e-3, every=None
    )
    assert asked.bytes.tolist() == free.bytes.tolist()
    assert len(asked.certificates) == 0


@pytest.mark.parametrize("method", WITH_DUAL)
def test_an_agent_alone_certifies_by_its_dual_function(method: str) -> None:
    """Its multiplier is 0, so that its share is the minimum itself: the first bound is nearly sharp.

    The least value of the losses is known beside every model, and is the better bound before that.
    """
    result, data = run(method, "one", "l2")
    kinds = result.certificates["kind"].tolist()
    assert "dual" in kinds
    first = kinds.index("dual")
    assert set(kinds[:first]) <= {"least"}
    assert set(kinds[first:]) == {"dual"}
    _, least = optimum(data, SETS["l2"])
    error = value_of(data, result.agents[0]) - least
    # An agent's share may be wrong by a part of the gap asked for.
    assert result.certificates["gap"][-1] <= error + 0.5 * GAP * result.certificates["decrease"][-1]


# Shares that are flooded.


@pytest.fixture
def flooding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages of these small problems are short: flooding would be too dear."""
    monkeypatch.setattr(Outlook, "_may_flood", lambda self, view: view.agent.reliable)


@pytest.mark.usefixtures("flooding")
@pytest.mark.parametrize("graph", ["cycle", "path", "complete", "one"])
@pytest.mark.parametrize("method", [name for name in WITH_DUAL if "oracle" not in name])
def test_agents_that_flood_their_shares_stop_together_with_a_true_certificate(
    method: str, graph: str
) -> None:
    data = data_of(GRAPHS[graph], seed=3)
    result = dcgs.minimize(
        objectives_of(data), SETS["l2"], GRAPHS[graph], METHODS[method], gap=GAP, rounds=2000, every=None
    )
    assert_true(result, data, SETS["l2"], GAP)


@pytest.mark.usefixtures("flooding")
def test_flooded_shares_give_the_same_gaps_to_all_agents_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of older shares, which took a longer way, are still there when the next ones come."""
    graph = nx.random_regular_graph(3, 10, seed=1)
    gaps: dict[int, set[CertifiedGap]] = {}
    read: Callable[[Certifier, Lane], tuple[CertifiedGap, int]] = Certifier._read

    def noted(self: Certifier, lane: Lane) -> tuple[CertifiedGap, int]:
        found = read(self, lane)
        if lane.request.floods:
            gaps.setdefault(lane.round or lane.due, set())
            gaps[lane.round or lane.due].add(found[0])
        return found

    def always(self: Outlook, view: View, is_alone: bool) -> Request:
        return Request(Proposal.MODEL, tolerance=1e-3, effort=20, floods=True)

    monkeypatch.setattr(Certifier, "_read", noted)
    monkeypatch.setattr(Outlook, "request", always)
    data = data_of(graph)
    result = dcgs.minimize(
        objectives_of(data), SETS["l2"], graph, dcgs.NIDS(), gap=1e-3, rounds=100, every=None
    )
    assert len(gaps) >= 5
    assert {len(found) for found in gaps.values()} == {1}
    assert_true(result, data, SETS["l2"], 1e-3)


@pytest.mark.usefixtures("flooding")
@pytest.mark.parametrize("method", ["edges", "NIDS", "DCGS"])
def test_a_run_that_was_interrupted_while_shares_were_flooded_goes_on_as_before(
    method: str, tmp_path: Path
) -> None:
    data, graph = data_of(GRAPHS["cycle"]), GRAPHS["cycle"]

    def run(**rules: Any) -> Result:
        return dcgs.minimize(objectives_of(data), SETS["l2"], graph, METHODS[method], gap=0.3, **rules)

    whole = run(rounds=600)
    assert whole.status is Status.AGREED
    for k in range(max(1, whole.iterations - 6), whole.iterations):
        saved = tmp_path / str(k)
        run(iterations=k, checkpoint=dcgs.Checkpoint(saved, every=k))
        same(run(rounds=600, checkpoint=dcgs.Checkpoint(saved, every=1000, resume=True)), whole)


def test_on_a_cycle_flooding_saves_rounds() -> None:
    """Nine agents: the height is four, as the diameter. So the answer comes four rounds sooner."""
    data, graph, rounds = data_of(nx.cycle_graph(9)), nx.cycle_graph(9), []
    for floods in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Outlook, "_may_flood", lambda self, view, floods=floods: floods)
            result = dcgs.minimize(
                objectives_of(data), SETS["l2"], graph, METHODS["edges"], gap=GAP, every=None
            )
        assert_true(result, data, SETS["l2"], GAP)
        rounds.append(result.rounds)
    assert rounds[1] <= rounds[0] - 4


# Methods of a user's own.


@final
@dataclass(frozen=True)
class Tracking(Method):
    """Projected gradient steps along a tracked gradient; with ``says`` it says its multipliers.

    ``wrong`` is added to the multiplier of agent 0, ``late`` agents say that of the iteration before, and
    iterations are observed ``every`` so many.
    """

    says: Literal["nothing", "dual"] = "nothing"
    wrong: float = 0.0
    late: tuple[int, ...] = ()
    every: int = 1
    projects = True

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        project = dcgs.projector(agent)
        x, grad = agent.x0, agent.f.grad(agent.x0)
        s, w_prev = grad, 0.0 * grad
        alpha = 0.1 / agent.facts.smoothness
        for k in agent.iterations_left:
            x, s = yield from dcgs.average(np.stack([x, s]), agent.metropolis)
            w = s - grad + self.wrong * (agent.index == 0)
            # Rounding errors of all iterations, of numbers up to 10³.
            dual = Dual(w_prev if agent.index in self.late else w, 1e-12 * k)
            w_prev = w
            x = project(x - alpha * s)
            before, grad = grad, agent.f.grad(x)
            s = s + grad - before
            for number in [k] if k % self.every == 0 else []:
                agent.observe(number, x, dual if self.says == "dual" else None)
        return x


def tracked(method: Tracking, graph: nx.Graph, gap: float = GAP) -> tuple[Result, Data]:
    data = data_of(graph)
    X = SETS["l2"]
    return dcgs.minimize(objectives_of(data), X, graph, method, gap=gap, rounds=1000, every=None), data


@pytest.mark.parametrize("graph", GRAPHS)
@pytest.mark.parametrize("says", ["nothing", "dual"])
def test_a_method_of_one_s_own_stops_with_a_true_certificate(
    says: Literal["nothing", "dual"], graph: str
) -> None:
    result, data = tracked(Tracking(says), GRAPHS[graph])
    assert_true(result, data, SETS["l2"], GAP)


def test_a_method_that_skips_iterations_is_refused_where_agents_certify() -> None:
    """The observer of a run would not see the model that they certified."""
    with pytest.raises(
        ValueError, match=r"after each iteration, k = 1, 2, …; it was called with k = 3 after"
    ):
        tracked(Tracking(every=3), GRAPHS["path"])


def test_multipliers_of_a_method_of_one_s_own_save_bytes() -> None:
    gradients, multipliers = (tracked(Tracking(says), GRAPHS["path"])[0] for says in ("nothing", "dual"))
    assert "dual" in multipliers.certificates["kind"]
    per_round = [each.bytes.sum() / each.rounds for each in (gradients, multipliers)]
    assert per_round[1] < per_round[0]


@pytest.mark.parametrize(
    "wrong",
    [Tracking("dual", wrong=2.0), Tracking("dual", late=(0, 1))],
    ids=["a sum that is not zero", "another iteration"],
)
def test_multipliers_that_do_not_sum_to_zero_are_noticed_by_these_tests(wrong: Tracking) -> None:
    verdicts = []
    for graph in ("cycle", "star", "path", "complete"):
        for seed in range(3):
            data = data_of(GRAPHS[graph], seed)
            duals = duals_of(wrong, objectives_of(data), SETS["l2"], GRAPHS[graph], iterations=4)
            verdicts.append(exact_sum(duals) <= sum(dual.drift for dual in duals))
    assert not any(verdicts)


def test_a_certificate_by_multipliers_that_do_not_sum_to_zero_is_noticed_by_these_tests() -> None:
    """The bound is too high by ⟨Σ wᵢ, x* − x⁰⟩ − O(‖Σ wᵢ‖²), a thousandth of the decrease."""
    result, data = tracked(Tracking("dual", wrong=0.3), GRAPHS["path"], gap=1e-3)
    assert result.status is Status.AGREED
    with pytest.raises(AssertionError):
        assert_true(result, data, SETS["l2"], 1e-3)


# Multipliers of all agents after the same iteration.


def duals_of(
    method: Method, objectives: list[Objective], X: ConvexSet, graph: nx.Graph, iterations: int
) -> list[Dual]:
    """Return what every agent says after its last iteration."""
    last: dict[int, Dual] = {}

    def noted(made: Method, agent: Agent) -> Program[Any]:
        def observe(k: int, x: Any, dual: Dual | None = None) -> None:
            assert dual is not None
            last[agent.index] = dual
            agent.observe(k, x)

        return made.program(replace(agent, observe=observe))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dcgs.run.build.program_of", noted)
        dcgs.minimize(objectives, X, graph, method, iterations=iterations, every=None)
    return [last[i] for i in range(len(graph))]


def exact_sum(duals: list[Dual]) -> float:
    """Return ‖Σ wᵢ‖, added without rounding errors."""
    vectors = [dual.w.reshape(-1).tolist() for dual in duals]
    return float(np.linalg.norm([math.fsum(entries) for entries in zip(*vectors, strict=True)]))


def spread_objectives(graph: nx.Graph, spread: float) -> list[Objective]:
    """Return agents whose data differ by factors up to 10^spread."""
    rng = np.random.default_rng(11)
    sizes = 10.0 ** rng.uniform(-0.5 * spread, 0.5 * spread, len(graph))
    return [LeastSquares(s * A, s * b) for s, (A, b) in zip(sizes, data_of(graph, 5), strict=True)]


@pytest.mark.parametrize("spread", [0.0, 6.0])
@pytest.mark.parametrize("graph", ["cycle", "star", "complete"])
@pytest.mark.parametrize(
    "method", [name for name in WITH_DUAL if name not in ("DCGS, last", "edges, oracle")]
)
def test_multipliers_of_one_iteration_sum_to_zero_within_their_drift(
    method: str, graph: str, spread: float
) -> None:
    """And not because the drift is large: it is rounding error, after many iterations as well."""
    objectives = spread_objectives(GRAPHS[graph], spread)
    made, X = METHODS[method], SETS["l2"]
    duals = {k: duals_of(made, objectives, X, GRAPHS[graph], k) for k in (1, 2, 7, 100)}
    for each in duals.values():
        assert exact_sum(each) <= sum(dual.drift for dual in each)
    for k in (7, 100):
        size = sum(float(np.linalg.norm(dual.w)) for dual in duals[k])
        assert sum(dual.drift for dual in duals[k]) <= 1e-10 * size


@pytest.mark.parametrize("spread", [0.0, 6.0])
@pytest.mark.parametrize("method", ["AGD, exact", "AGD, chebyshev"])
def test_multipliers_from_gradients_sum_to_zero_within_their_drift(
    method: str, spread: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = GRAPHS["path"]
    made: Callable[[Certifier, Lane, Dual | None], Dual | None] = Certifier._multiplier
    requests: dict[bytes, list[Dual]] = {}

    def noted(self: Certifier, lane: Lane, dual: Dual | None) -> Dual | None:
        assert dual is None
        multiplier = made(self, lane, dual)
        if multiplier is not None and lane.center is not None:
            requests.setdefault(lane.center.tobytes(), []).append(multiplier)
        return multiplier

    monkeypatch.setattr(Certifier, "_multiplier", noted)
    objectives = spread_objectives(graph, spread)
    dcgs.minimize(objectives, SETS["l2"], graph, METHODS[method], gap=1e-6, rounds=200, every=None)
    complete = [duals for duals in requests.values() if len(duals) == len(graph)]
    assert len(complete) >= 2
    for duals in complete:
        drift = sum(dual.drift for dual in duals)
        assert exact_sum(duals) <= drift
        assert drift <= 1e-10 * sum(float(np.linalg.norm(dual.w)) for dual in duals)


def test_an_agent_whose_share_is_of_another_iteration_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its share of the dual function must not be added to those of the others."""
    made: Callable[[Certifier, Lane, Point, Dual | None], Value] = Certifier._contribution
    said: list[tuple[bool, float]] = []

    def noted(self: Certifier, lane: Lane, x: Point, dual: Dual | None) -> Value:
        lane.due -= 3 * (self.agent.index == 2)
        value = made(self, lane, x, dual)
        if lane.request.tolerance > 0.0:
            said.append((self.agent.index == 2, Shares(*value[0].tolist()).bound))
        return value

    monkeypatch.setattr(Certifier, "_contribution", noted)
    result, data = tracked(Tracking("dual"), GRAPHS["path"])
    assert {bound for is_late, bound in said if is_late} == {-UNKNOWN}
    assert all(bound > -UNKNOWN for is_late, bound in said if not is_late)
    assert "dual" not in result.certificates["kind"]
    assert_true(result, data, SETS["l2"], GAP)


# Rounding.


def test_rounding_errors_count_against_a_bound_and_against_a_decrease(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of the share itself, and what multipliers leave of their sum, over the diameter of the set."""
    X = SETS["l2"]
    agent = Agent(
        index=0,
        f=LeastSquares(np.eye(6), np.ones(6)),
        X=X,
        lmo=dcgs.counting.CountedOracle(X),
        x0=np.zeros(6),
        degrees={},
        facts=Facts(1, 1.0, 0.0, X.diameter),
        iterations=1,
        rng=np.random.default_rng(0),
        observe=lambda k, x, dual=None: None,
        target=GapTarget(0.1),
    )
    share = DualShare(value=-5.0, noise=0.25, gap=0.125, x=np.zeros(6))
    monkeypatch.setattr(LocalBound, "__call__", lambda self, dual, x, tolerance, effort: share)
    monkeypatch.setattr(Baseline, "decrease", lambda self, x, image: (4.0, 0.5))
    given = Certifier(agent, Newton())
    given.at.k = 7
    lane = Lane(due=7, request=Request(Proposal.MODEL, tolerance=1.0), model=np.zeros(6))
    (numbers,) = given._contribution(lane, np.zeros(6), Dual(np.zeros(6), drift=0.5, eta=1.0))
    shares = Shares(*numbers.tolist())
    assert shares.bound == -5.0 - 0.25 - 0.5 * X.diameter
    # The sum over one agent rounds the decrease of 4 once.
    error = 0.5 + EPS * 4.0
    assert shares.decrease == 4.0 - error
    # f(x⁰) − f(x) is at most 4.5, and f = 6 above the least value 0 of squares.
    assert -shares.decrease - shares.excess <= -4.5 - 6.0


@pytest.mark.parametrize("method", METHODS)
def test_no_certificate_is_false_where_f_is_far_larger_than_its_decrease(method: str) -> None:
    """The targets are orthogonal to the range of A: they add 10¹⁸ to f, and nothing to its decrease."""
    rng, graph, offset = np.random.default_rng(12), GRAPHS["path"], 1e9
    data, objectives = data_of(graph), list[Objective]()
    for A, b in data:
        normal = np.linalg.qr(np.column_stack([A, rng.standard_normal(8)]))[0][:, -1]
        objectives.append(LeastSquares(A, b + offset * normal))
    result = dcgs.minimize(objectives, SETS["l2"], graph, METHODS[method], gap=GAP, rounds=250, every=None)
    assert result.status in (Status.AGREED, Status.ROUNDS, Status.ROUNDING, Status.STALLED)
    _, least = optimum(data, SETS["l2"])
    first, value = value_of(data, np.zeros(6)), value_of(data, result.agents[0])
    # Σ 2 Aᵀ normal · offset is rounding error of 1e-16 · offset for each entry, over a ball of diameter 2.
    assert not result.status.success or value - least <= GAP * (first - value) + 1e-13 * offset


@pytest.mark.parametrize("method", METHODS)
def test_a_gap_below_rounding_error_ends_without_success(method: str) -> None:
    graph = GRAPHS["complete"]
    objectives = [LeastSquares(np.eye(2), b) for b in ([3.0, 1.0], [1.0, 1.0], [1.0, -1.0], [2.0, 0.5])]
    result = dcgs.minimize(objectives, dcgs.L2Ball(2), graph, METHODS[method], gap=1e-17, rounds=300)
    assert result.status in (Status.ROUNDING, Status.ROUNDS)
    assert not result.status.success


# Faults.


@pytest.mark.parametrize(
    "faults",
    [
        dcgs.Faults(loss=0.3, seed=1),
        dcgs.Faults(delay=3, seed=1),
        dcgs.Faults(sleep=0.3, seed=1),
        dcgs.Faults(loss=0.2, sleep=0.2, delay=2, seed=1),
    ],
    ids=["lost", "late", "asleep", "all"],
)
@pytest.mark.parametrize("method", METHODS)
def test_no_certificate_is_false_where_messages_are_lost_late_or_repeated(
    method: str, faults: dcgs.Faults
) -> None:
    """Multipliers do not sum to zero then: gradients serve. Most methods need not get near the optimum."""
    made, data, graph = METHODS[method], data_of(GRAPHS["cycle"]), GRAPHS["cycle"]
    runtime = dcgs.Lockstep(faults=faults, allow_faults=not made.tolerates_faults)
    result = dcgs.minimize(
        objectives_of(data), SETS["l2"], graph, made, gap=0.5, rounds=150, runtime=runtime, every=0
    )
    # Points of a method may leave the set where older messages, of another kind, replace missing ones.
    assert result.status in (Status.AGREED, Status.ROUNDS, Status.OUTSIDE)
    for claim in [result] if result.status.success else []:
        assert_true(claim, data, SETS["l2"], 0.5)


@pytest.mark.parametrize("method", [name for name in METHODS if name != "DFW, repeated"])
def test_some_runs_of_every_method_are_certified_under_faults(method: str) -> None:
    data, graph = data_of(GRAPHS["complete"]), GRAPHS["complete"]
    made = METHODS[method]
    runtime = dcgs.Lockstep(faults=dcgs.Faults(loss=0.05, seed=1), allow_faults=not made.tolerates_faults)
    result = dcgs.minimize(
        objectives_of(data), SETS["l2"], graph, made, gap=0.9, rounds=400, runtime=runtime, every=0
    )
    assert_true(result, data, SETS["l2"], 0.9)


# Checkpoints.


def same(again: Result, whole: Result) -> None:
    assert (again.status, again.rounds, again.iterations) == (whole.status, whole.rounds, whole.iterations)
    assert again.agents.tobytes() == whole.agents.tobytes()
    for name in ("bytes", "messages", "lmo_calls", "projections", "certificates"):
        assert getattr(again, name).tolist() == getattr(whole, name).tolist(), name
    np.testing.assert_array_equal(again.history.certified_gap, whole.history.certified_gap)
    assert again.about["certified"] == whole.about["certified"]


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_was_interrupted_has_the_same_certificates(method: str, tmp_path: Path) -> None:
    """Also between a request and its answer."""
    data, graph = data_of(GRAPHS["complete"]), GRAPHS["complete"]

    def run(**rules: Any) -> Result:
        return dcgs.minimize(objectives_of(data), SETS["l2"], graph, METHODS[method], gap=0.3, **rules)

    whole = run(rounds=600)
    assert whole.status is Status.AGREED
    stops = {1, 2, 3, 4, 6, whole.iterations // 2, whole.iterations - 1}
    for k in sorted(stops & set(range(1, whole.iterations))):
        saved = tmp_path / str(k)
        run(iterations=k, checkpoint=dcgs.Checkpoint(saved, every=k))
        same(run(rounds=600, checkpoint=dcgs.Checkpoint(saved, every=1000, resume=True)), whole)


def test_certificates_survive_a_file(tmp_path: Path) -> None:
    result, _ = run("DFW", "star", "l2", every=1)
    again = Result.load(result.save(tmp_path / "run.npz"))
    assert again.certificates.dtype == result.certificates.dtype
    assert again.certificates.tolist() == result.certificates.tolist()
    np.testing.assert_array_equal(again.history.certified_gap, result.history.certified_gap)
    assert result.certificates.dtype.names == ("rounds", "bytes", "gap", "decrease", "kind")
