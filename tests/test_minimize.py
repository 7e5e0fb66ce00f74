"""The front door: what ends a run, what is recorded of it, and that all of it is true."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, final

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

import dcgs
from dcgs.atoms import Atom
from dcgs.methods import Agent
from dcgs.network import Network, as_network
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.run.result import Result, Snapshot
from dcgs.run.stopping import Status
from dcgs.runtime import Job, ProcessGroup, Runtime, SingleProcess
from dcgs.sets import ConvexSet
from problems import EndedByObserver
from reference import optimum

Array = NDArray[np.float64]
Pairs = list[tuple[Array, Array]]

WORK = ("iterations", "rounds", "messages", "bytes", "lmo_calls", "projections")
QUALITY = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap")

ASKING: dict[str, dcgs.Method] = {
    "DCGS": dcgs.DCGS(),
    "DCGS, theorem 1, last": dcgs.DCGS(schedule="theorem1", answer="last"),
    "DCGS, cg": dcgs.DCGS(inner="cg", schedule="theorem1"),
    "DFW": dcgs.DFW(),
    "DFW, averaging": dcgs.DFW(tracking=False),
    "PrimalDual": dcgs.PrimalDual(),
}
METHODS = ASKING | {
    "FastDCGS": dcgs.FastDCGS(),
    "FastDCGS, edges": dcgs.FastDCGS(form="edges"),
    "FastDCGS, sums": dcgs.FastDCGS(form="sums"),
    "PGExtra": dcgs.PGExtra(),
    "NIDS": dcgs.NIDS(),
    "ProjectedAGD": dcgs.ProjectedAGD(gossip="chebyshev"),
}
ONE_MODEL = [dcgs.FastDCGS(), dcgs.FastDCGS(form="sums")]
"""Those whose agents all have the same model, to the bit."""
# Those that ask the oracle, in two rounds an iteration.
every_asking_method = pytest.mark.parametrize("method", ASKING.values(), ids=ASKING.keys())
every_method = pytest.mark.parametrize("method", METHODS.values(), ids=METHODS.keys())


def lasso(agents: int = 4, rows: int = 8, d: int = 6, seed: int = 0) -> Pairs:
    """Return private data (A, b) with a sparse model in common, for L1Ball(d, radius=2)."""
    rng = np.random.default_rng(seed)
    x = np.zeros(d)
    x[:3] = [1.5, -1.0, 0.5]
    matrices = [rng.standard_normal((rows, d)) for _ in range(agents)]
    return [(A, A @ x + 0.3 * rng.standard_normal(rows)) for A in matrices]


def least_squares(pairs: Pairs) -> list[dcgs.Objective]:
    return [dcgs.LeastSquares(A, b) for A, b in pairs]


PAIRS = lasso()
OBJECTIVES = least_squares(PAIRS)
X = dcgs.L1Ball(6, radius=2.0)
PATH = nx.path_graph(4)


def loss(pairs: Pairs, x: Array) -> float:
    """Return f(x) on everyone's data, in plain NumPy."""
    return sum(float(np.sum((A @ x - b) ** 2)) for A, b in pairs)


def assert_same(one: Result, other: Result) -> None:
    """Assert that two runs gave the same answers for the same work, to the bit; seconds aside."""
    assert_array_equal(one.agents, other.agents)
    assert_array_equal(one.x, other.x)
    assert one.status is other.status
    for name in WORK:
        assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def assert_same_rows(part: dcgs.History, whole: dcgs.History, rows: Any) -> None:
    for name in WORK + QUALITY:
        assert_array_equal(getattr(part, name), getattr(whole, name)[rows], err_msg=name)


@final
@dataclass(eq=False)
class Spy(ConvexSet):
    """A set that notes who called its oracle, and lets each call take a second of the clock."""

    inner: ConvexSet
    clock: list[float] = field(default_factory=lambda: [0.0])
    caller: int | None = None
    callers: list[int | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.shape, self.polytope = self.inner.shape, self.inner.polytope

    @property
    def diameter(self) -> float:
        return self.inner.diameter

    def lmo(self, direction: Point, near: Atom | None = None) -> Atom:
        self.callers.append(self.caller)
        self.clock[0] += 1.0
        return self.inner.lmo(direction, near)

    def violation(self, x: Point) -> float:
        return self.inner.violation(x)

    def start(self) -> Point:
        return self.inner.start()


@final
@dataclass(eq=False)
class Attributing(Runtime):
    """Lockstep, telling the spy which agent is at work; None is whoever measures."""

    spy: Spy

    def run(self, job: Job) -> None:
        def program(i: int) -> Program[Point]:
            self.spy.caller = i
            inner = job.program(i)
            message = next(inner)
            while True:
                inbox = yield message
                self.spy.caller = i
                try:
                    message = inner.send(inbox)
                except StopIteration as stop:
                    return np.asarray(stop.value)

        def after_round() -> bool:
            self.spy.caller = None
            return job.after_round()

        dcgs.Lockstep().run(Job(program, job.neighbors, job.traffic, after_round))
        self.spy.caller = None

    def hosts(self, agents: int) -> range:
        return range(agents)

    def group(self) -> ProcessGroup:
        return SingleProcess()


@final
@dataclass(frozen=True, eq=False)
class Idle(dcgs.Method):
    """A method that sends messages and never moves; it records its agents."""

    agents: list[Agent] = field(default_factory=list)
    rounds_per_iteration = 1

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        self.agents.append(agent)
        for k in range(1, agent.iterations + 1):
            yield agent.x0
            agent.observe(k, agent.x0)
        return agent.x0


@final
@dataclass(frozen=True)
class Staggered(dcgs.Method):
    """A method whose agents with two neighbors are done a round before the others."""

    rounds_per_iteration = 2

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        for k in range(1, agent.iterations + 1):
            for done_in in (2, 1):
                yield agent.x0
                if len(agent.degrees) == done_in:
                    agent.observe(k, agent.x0)
        return agent.x0


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    """A spying L1 ball, whose calls are all that makes the clock of runs go on."""
    spy = Spy(X)
    clock = SimpleNamespace(perf_counter=lambda: spy.clock[0])
    monkeypatch.setattr("dcgs.run.stopping.time", clock)
    return spy


# What ends a run.


@every_method
def test_iterations_end_a_run_after_exactly_that_many(method: dcgs.Method) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=7)
    assert (result.status, result.iterations) == (Status.ITERATIONS, 7)
    assert_array_equal(result.history.iterations, np.arange(8))


@pytest.mark.parametrize("method", [dcgs.DCGS(), dcgs.DFW(), dcgs.PrimalDual()], ids=repr)
def test_an_iteration_of_the_papers_methods_is_two_rounds(method: dcgs.Method) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=7)
    assert result.rounds == 14
    assert_array_equal(result.history.rounds, 2 * np.arange(8))


@pytest.mark.parametrize("rounds", [2, 3, 7, 8])
def test_rounds_end_a_run_after_exactly_that_many_and_the_last_whole_iteration_is_the_answer(
    rounds: int,
) -> None:
    method = dcgs.DCGS(schedule=dcgs.Theorem1(horizon=10))
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, rounds=rounds)
    whole = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=rounds // 2)
    assert (result.status, result.rounds, result.iterations) == (Status.ROUNDS, rounds, rounds // 2)
    assert_array_equal(result.agents, whole.agents)
    assert_array_equal(result.history.iterations, np.arange(rounds // 2 + 1))


@every_asking_method
def test_fewer_rounds_than_one_iteration_takes_leave_all_agents_at_x0(method: dcgs.Method) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, rounds=1)
    assert (result.status, result.rounds, result.iterations) == (Status.ROUNDS, 1, 0)
    assert_array_equal(result.agents, np.zeros((4, 6)))
    assert_array_equal(result.messages, [1, 2, 2, 1])


@pytest.mark.parametrize(("rounds", "iterations"), [(2, 1), (5, 1), (6, 2), (11, 2), (12, 3)])
def test_rounds_are_counted_where_their_number_grows_with_the_iterations(
    rounds: int, iterations: int
) -> None:
    # ⌈log t + 1⌉ is 1, 2 and 3 for t = 1, 2 and 3, each twice: 2, 6 and 12 rounds in all.
    result = dcgs.minimize(OBJECTIVES, X, PATH, dcgs.DFW(tracking=False), rounds=rounds)
    assert (result.rounds, result.iterations) == (rounds, iterations)


def test_seconds_end_a_run_when_the_clock_has_run_so_long(spy: Spy) -> None:
    result = dcgs.minimize(OBJECTIVES[:1], spy, nx.path_graph(1), dcgs.DFW(), seconds=5.0, iterations=50)
    assert (result.status, result.iterations, result.seconds) == (Status.SECONDS, 5, 5.0)


def test_the_seconds_of_the_set_up_count(spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(graph: nx.Graph) -> Network:
        spy.clock[0] += 3.0
        return as_network(graph)

    monkeypatch.setattr("dcgs.run.checks.as_network", slow)
    result = dcgs.minimize(OBJECTIVES[:1], spy, nx.path_graph(1), dcgs.DFW(), seconds=5.0, iterations=50)
    assert (result.status, result.iterations, result.seconds) == (Status.SECONDS, 2, 2.0)


def test_seconds_end_a_run_also_in_the_midst_of_an_iteration(spy: Spy) -> None:
    # Three seconds an iteration: in the second one the third agent's call comes too late.
    result = dcgs.minimize(OBJECTIVES[:3], spy, nx.path_graph(3), dcgs.DFW(), seconds=5.0, iterations=50)
    assert (result.status, result.iterations, result.seconds) == (Status.SECONDS, 1, 5.0)
    assert_array_equal(result.lmo_calls, [2, 2, 1])
    assert_array_equal(result.history.iterations, [0, 1])


def test_seconds_end_a_run_also_in_the_midst_of_an_inner_solve(spy: Spy) -> None:
    # e = 0 is never reached, so the inner solver takes all of its 1000 steps, a second each.
    never = dcgs.DCGS(dcgs.CG(max_steps=1000), schedule=lambda k: dcgs.Params(1.0, 1.0, 1.0, 1.0, e=0.0))
    result = dcgs.minimize(OBJECTIVES[:1], spy, nx.path_graph(1), never, seconds=40.0, iterations=1)
    assert (result.status, result.iterations, result.seconds) == (Status.SECONDS, 0, 40.0)


@pytest.mark.parametrize("limit", [1, 2, 5, 17, 60])
@pytest.mark.parametrize("inner", ["cg", "pcg"])
@pytest.mark.parametrize("threads", [1, 2])
def test_no_agent_calls_the_oracle_more_often_than_the_limit(limit: int, inner: Any, threads: int) -> None:
    # e is so small that one inner solve takes more calls than all but the largest limit.
    method = dcgs.DCGS(inner=inner, schedule=dcgs.Theorem1(horizon=10**6))
    runtime = dcgs.Lockstep(threads=threads)
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, lmo_calls=limit, runtime=runtime)
    assert result.status is Status.LMO_CALLS
    assert result.lmo_calls.max() == limit


@pytest.mark.parametrize("limit", [1, 2, 7])
def test_a_limit_on_calls_allows_exactly_that_many_iterations_of_one_call_each(limit: int) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, dcgs.DFW(), lmo_calls=limit)
    assert (result.status, result.iterations, result.rounds) == (Status.LMO_CALLS, limit, 2 * limit)
    assert_array_equal(result.lmo_calls, [limit] * 4)


@pytest.mark.parametrize(
    "method", [dcgs.FastDCGS(), dcgs.FastDCGS("oracle", form="edges"), dcgs.FastDCGS(form="sums"), dcgs.DFW()]
)
def test_a_limit_of_as_many_calls_as_a_gap_needs_changes_nothing_and_one_less_ends_the_run(
    method: dcgs.Method,
) -> None:
    """All calls may have been made while the answer is on its way to the last agents."""
    whole = dcgs.minimize(OBJECTIVES, X, PATH, method, gap=0.1)
    most = int(whole.lmo_calls.max())
    assert whole.status is Status.AGREED
    assert_same(dcgs.minimize(OBJECTIVES, X, PATH, method, gap=0.1, lmo_calls=most), whole)
    cut = dcgs.minimize(OBJECTIVES, X, PATH, method, gap=0.1, lmo_calls=most - 1)
    assert cut.status is Status.LMO_CALLS
    assert cut.lmo_calls.max() <= most - 1


def test_an_unfinished_iteration_changes_no_answer() -> None:
    method = dcgs.DCGS(inner="cg", schedule=dcgs.Theorem1(horizon=1000))
    full = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=2)
    # One call short of the second iteration of whoever calls most.
    cut = dcgs.minimize(OBJECTIVES, X, PATH, method, lmo_calls=int(full.lmo_calls.max()) - 1)
    one = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=1)
    assert cut.iterations == 1
    assert_array_equal(cut.agents, one.agents)


def reached(result: dcgs.Result, share: float) -> Any:
    """Return the entries where the worst agent's model is certified to a share of the decrease from x⁰."""
    h = result.history
    above = h.gap + h.worst_loss - h.mean_loss
    return np.flatnonzero(above[1:] <= share * (h.worst_loss[0] - h.worst_loss[1:])) + 1


def test_a_gap_ends_a_run_at_the_first_iteration_that_reaches_it() -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, EndedByObserver(dcgs.DFW()), gap=0.05)
    assert result.status is Status.GAP
    assert result.status.success
    assert_array_equal(reached(result, 0.05), [len(result.history) - 1])


def test_a_gap_is_only_looked_at_where_it_is_recorded() -> None:
    each = dcgs.minimize(OBJECTIVES, X, PATH, EndedByObserver(dcgs.DFW()), gap=0.05)
    tenth = dcgs.minimize(OBJECTIVES, X, PATH, EndedByObserver(dcgs.DFW()), gap=0.05, every=10)
    assert tenth.status is Status.GAP
    assert tenth.iterations >= each.iterations
    assert tenth.iterations % 10 == 0
    assert_array_equal(reached(tenth, 0.05), [len(tenth.history) - 1])


@pytest.mark.parametrize("limit", ["iterations", "rounds", "lmo_calls"])
def test_a_gap_reached_just_at_a_limit_is_a_success(limit: str) -> None:
    first = dcgs.minimize(OBJECTIVES, X, PATH, EndedByObserver(dcgs.DFW()), gap=0.05)
    needed: dict[str, Any] = {limit: int(np.max(getattr(first, limit)))}
    again = dcgs.minimize(OBJECTIVES, X, PATH, EndedByObserver(dcgs.DFW()), gap=0.05, **needed)
    assert_same(again, first)


def test_a_gap_first_seen_at_the_end_is_a_success_too() -> None:
    first = dcgs.minimize(OBJECTIVES, X, PATH, EndedByObserver(dcgs.DFW()), gap=0.05)
    last = dcgs.minimize(
        OBJECTIVES, X, PATH, EndedByObserver(dcgs.DFW()), gap=0.05, iterations=first.iterations, every=1000
    )
    assert_array_equal(last.history.iterations, [0, first.iterations])
    assert_array_equal(reached(last, 0.05), [1])
    assert last.status is Status.GAP


PLENTY = {"iterations": 200, "rounds": 500, "seconds": 1000.0, "lmo_calls": 300, "gap": 1e-9}


@pytest.mark.parametrize(
    ("rule", "status", "iterations"),
    [
        ({"iterations": 4}, Status.ITERATIONS, 4),
        ({"rounds": 10}, Status.ROUNDS, 5),
        ({"lmo_calls": 6}, Status.LMO_CALLS, 6),
        ({"seconds": 28.0}, Status.SECONDS, 7),  # four agents, a second a call
        ({"gap": 0.9}, Status.GAP, 3),
    ],
    ids=["iterations", "rounds", "lmo_calls", "seconds", "gap"],
)
def test_whichever_rule_holds_first_ends_the_run_and_the_status_says_which(
    spy: Spy, rule: dict[str, Any], status: Status, iterations: int
) -> None:
    result = dcgs.minimize(OBJECTIVES, spy, PATH, EndedByObserver(dcgs.DFW()), **(PLENTY | rule))
    assert (result.status, result.iterations) == (status, iterations)


@pytest.mark.parametrize("status", Status)
def test_only_a_certified_gap_is_a_success(status: Status) -> None:
    assert status.success is (status in {Status.GAP, Status.AGREED})


def test_without_a_rule_a_run_ends_at_a_gap_of_a_thousandth() -> None:
    result = dcgs.minimize(OBJECTIVES[:1], X, nx.path_graph(1), dcgs.DCGS(answer="last"))
    assert result.status is Status.AGREED
    first, value = (loss(PAIRS[:1], x) for x in (np.zeros(6), result.x))
    # The reference is precise up to 1e-9.
    assert value - optimum(PAIRS[:1], X)[1] <= 1e-3 * (first - value) + 1e-8 * first


@pytest.mark.parametrize("rules", [{"every": 1000}, {"every": 1000, "gap": 0.5}, {"every": 0}], ids=repr)
def test_without_a_limit_a_run_ends_after_ten_thousand_iterations(rules: dict[str, Any]) -> None:
    result = dcgs.minimize(OBJECTIVES[:1], X, nx.path_graph(1), Idle(), **rules)
    assert (result.status, result.iterations) == (Status.ITERATIONS, 10_000)


def test_more_than_ten_thousand_iterations_run_where_they_are_asked_for() -> None:
    result = dcgs.minimize(OBJECTIVES[:1], X, nx.path_graph(1), Idle(), iterations=10_001, every=0)
    assert (result.status, result.iterations) == (Status.ITERATIONS, 10_001)


@pytest.mark.parametrize(
    ("rules", "horizon"),
    [
        ({"iterations": 30}, 30),
        ({"rounds": 30}, 30),  # Idle has one round an iteration
        ({"iterations": 20, "rounds": 30}, 20),
        ({"iterations": 30, "rounds": 20}, 20),
        ({"iterations": 12_000, "every": 0}, 12_000),
        ({"gap": 0.5, "rounds": 7}, 7),
    ],
    ids=repr,
)
def test_the_schedules_reckon_with_the_iterations_the_run_can_have(
    rules: dict[str, Any], horizon: int
) -> None:
    idle = Idle()
    dcgs.minimize(OBJECTIVES[:1], X, nx.path_graph(1), idle, **rules)
    assert [agent.facts.horizon for agent in idle.agents] == [horizon]


# The callback.


def test_the_callback_sees_each_snapshot_of_the_history() -> None:
    seen: list[Snapshot] = []
    result = dcgs.minimize(OBJECTIVES, X, PATH, iterations=7, every=3, callback=seen.append)
    assert [s.iterations for s in seen] == [0, 3, 6, 7]
    for name, column in result.history.columns().items():
        assert_array_equal([getattr(s, name) for s in seen], column, err_msg=name)


def test_the_callback_sees_the_answers_that_were_measured() -> None:
    seen: list[Snapshot] = []
    result = dcgs.minimize(OBJECTIVES, X, PATH, iterations=3, callback=seen.append)
    assert_array_equal(np.stack(seen[0].agents), np.zeros((4, 6)))
    assert_array_equal(np.stack(seen[-1].agents), result.agents)
    for snapshot in seen:
        losses = [sum(f.value(np.asarray(x)) for f in OBJECTIVES) for x in snapshot.agents]
        assert max(losses) == pytest.approx(snapshot.worst_loss, rel=1e-12)  # summed in another order


@every_method
def test_the_callback_ends_the_run_by_returning_true(method: dcgs.Method) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=50, callback=lambda s: s.iterations == 3)
    assert (result.status, result.iterations) == (Status.CALLBACK, 3)
    assert_array_equal(result.history.iterations, [0, 1, 2, 3])


def test_the_callback_can_end_a_run_before_it_begins() -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, iterations=50, callback=lambda s: True)
    assert (result.status, result.iterations, result.rounds) == (Status.CALLBACK, 0, 0)
    assert_array_equal(result.agents, np.zeros((4, 6)))


def test_the_callback_can_end_the_run_with_the_true_of_numpy() -> None:
    def stop(snapshot: Snapshot) -> Any:
        return np.float64(snapshot.iterations) >= 3.0

    result = dcgs.minimize(OBJECTIVES, X, PATH, iterations=50, callback=stop)
    assert (result.status, result.iterations) == (Status.CALLBACK, 3)


@pytest.mark.parametrize("answer", [None, False])
def test_a_callback_that_does_not_say_true_ends_nothing(answer: bool | None) -> None:
    plain = dcgs.minimize(OBJECTIVES, X, PATH, iterations=7)
    result = dcgs.minimize(OBJECTIVES, X, PATH, iterations=7, callback=lambda s: answer)
    assert_same(result, plain)


def test_a_run_that_the_oracle_limit_ended_was_not_ended_by_the_callback() -> None:
    method = dcgs.DCGS(schedule=dcgs.Theorem1(horizon=10**6))
    result = dcgs.minimize(
        OBJECTIVES, X, PATH, method, lmo_calls=100, every=0, callback=lambda s: s.iterations > 0
    )
    assert result.iterations > 0
    assert result.status is Status.LMO_CALLS


def test_an_error_in_the_callback_reaches_the_caller() -> None:
    def fail(snapshot: Snapshot) -> None:
        raise LookupError(f"at {snapshot.iterations}")

    with pytest.raises(LookupError, match="at 0"):
        dcgs.minimize(OBJECTIVES, X, PATH, iterations=7, callback=fail)


# What is recorded, and that recording it changes nothing.


@pytest.mark.parametrize(
    ("every", "recorded"),
    [(1, [0, 1, 2, 3, 4, 5, 6, 7]), (3, [0, 3, 6, 7]), (7, [0, 7]), (20, [0, 7]), (0, [0, 7])],
)
@every_method
def test_measuring_more_or_less_often_changes_nothing_else(
    method: dcgs.Method, every: int, recorded: list[int]
) -> None:
    full = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=7)
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=7, every=every)
    assert_array_equal(result.history.iterations, recorded)
    assert_same(result, full)
    assert_same_rows(result.history, full.history, recorded)


def test_a_large_run_is_measured_alike_on_the_way_and_at_its_end() -> None:
    # Large enough for a BLAS that has threads to use them, and then to sum in another order.
    rng = np.random.default_rng(4)
    wide = [(rng.standard_normal((20, 50_000)), rng.standard_normal(20)) for _ in range(2)]
    ball = dcgs.L2Ball(50_000, radius=3.0)
    with threadpool_limits(2, user_api="blas"):
        full, ends = (
            dcgs.minimize(least_squares(wide), ball, nx.path_graph(2), dcgs.DFW(), iterations=2, every=every)
            for every in (1, 0)
        )
    assert_same(ends, full)
    assert_same_rows(ends.history, full.history, [0, 2])


def test_an_iteration_is_over_when_every_agent_is_done_with_it() -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, Staggered(), iterations=3)
    assert_array_equal(result.history.iterations, [0, 1, 2, 3])
    assert_array_equal(result.history.rounds, [0, 2, 4, 6])


def test_measuring_and_the_callback_take_no_time_of_the_run(spy: Spy) -> None:
    def slow(snapshot: Snapshot) -> None:
        spy.clock[0] += 1000.0

    result = dcgs.minimize(OBJECTIVES, spy, PATH, dcgs.DFW(), iterations=7, seconds=100.0, callback=slow)
    assert result.seconds == 4 * 7.0
    assert_array_equal(result.history.seconds, 4.0 * np.arange(8))


@pytest.mark.parametrize("every", [0, 1, 3])
@every_asking_method
def test_each_agents_oracle_calls_are_counted_and_those_of_measuring_are_not(
    method: dcgs.Method, every: int
) -> None:
    spy = Spy(X)
    result = dcgs.minimize(OBJECTIVES, spy, PATH, method, iterations=5, every=every, runtime=Attributing(spy))
    assert_array_equal(result.lmo_calls, [spy.callers.count(i) for i in range(4)])
    assert spy.callers.count(None) == len(result.history)
    assert result.history.lmo_calls[-1] == result.lmo_calls.max()


HORIZON = dcgs.Theorem1(horizon=12)


@pytest.mark.parametrize("k", [1, 2, 7, 11])
@pytest.mark.parametrize(
    "method",
    [dcgs.DCGS(schedule=HORIZON), dcgs.DCGS(schedule=HORIZON, answer="last"), dcgs.DFW()],
    ids=["average", "last", "DFW"],
)
def test_the_history_at_k_measures_what_the_method_would_answer_if_it_stopped_at_k(
    method: dcgs.Method, k: int
) -> None:
    long = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=12)
    short = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=k)
    assert_same_rows(short.history, long.history, np.arange(k + 1))


@pytest.mark.parametrize("iterations", [2, 9])
@every_method
def test_every_measure_is_what_its_definition_says(method: dcgs.Method, iterations: int) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=iterations)
    agents, history = result.agents, result.history
    x_bar = agents.sum(axis=0) / 4.0
    gradient = sum((2.0 * A.T @ (A @ x_bar - b) for A, b in PAIRS), start=np.zeros(6))
    # Over an ℓ₁ ball the least ⟨∇f, s⟩ is −radius · max|∇f|.
    expected = {
        "local_loss": sum(float(np.sum((A @ x - b) ** 2)) for (A, b), x in zip(PAIRS, agents, strict=True)),
        "mean_loss": loss(PAIRS, x_bar),
        "worst_loss": max(loss(PAIRS, x) for x in agents),
        "disagreement": max(float(np.linalg.norm(x - x_bar)) for x in agents),
        "gap": float(gradient @ x_bar) + 2.0 * float(np.abs(gradient).max()),
    }
    measured = {name: getattr(history, name)[-1] for name in expected}
    # Sums of at most 32 products in another order: a few dozen units of 1e-16, relative to the
    # largest term, which is no more than 100 times the sum.
    assert_allclose(list(measured.values()), list(expected.values()), rtol=1e-12)
    # Where all agents have one model, three of the losses are the same; elsewhere nothing is.
    losses = {value for name, value in expected.items() if name != "gap"}  # the gap may be 0, too
    assert len(losses) == (2 if expected["disagreement"] == 0.0 else 4)
    assert (expected["disagreement"] == 0.0) == (method in ONE_MODEL)


@every_method
def test_the_gap_is_a_certificate(method: dcgs.Method) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=40)
    excess = result.history.mean_loss - optimum(PAIRS, X)[1]
    # Ten times what the reference promises.
    tolerance = 1e-8 * loss(PAIRS, np.zeros(6))
    assert np.all(excess <= result.history.gap + tolerance)
    assert np.all(excess >= -tolerance)


@every_method
def test_the_answer_is_the_average_of_agents_that_are_all_in_the_set(method: dcgs.Method) -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=9)
    assert result.agents.shape == (4, 6)
    # Four numbers, added in the same order or not.
    assert_allclose(result.x, result.agents.mean(axis=0), rtol=0.0, atol=1e-15)
    # Convex combinations of a few hundred atoms: as many units of 1e-16 times the radius.
    assert max(X.violation(x) for x in result.agents) <= 1e-12


STAR, CYCLE = nx.star_graph(4), nx.cycle_graph(5)


@pytest.mark.parametrize(
    ("graph", "degrees"), [(STAR, [4, 1, 1, 1, 1]), (CYCLE, [2] * 5)], ids=["star", "cycle"]
)
@pytest.mark.parametrize("method", [dcgs.DFW(), dcgs.DCGS()], ids=repr)
def test_messages_and_bytes_are_exactly_those_that_cross_an_edge(
    graph: nx.Graph, degrees: list[int], method: dcgs.Method
) -> None:
    result = dcgs.minimize(least_squares(lasso(agents=5)), X, graph, method, iterations=6)
    assert_array_equal(result.messages, 12 * np.array(degrees))
    # The headers of a round and of a message, the description of a vector, six numbers of 8 bytes.
    each = 32 + 24 + (16 + 8) + 8 * 6
    assert_array_equal(result.bytes, each * 12 * np.array(degrees))
    assert_array_equal(result.history.messages, 2 * max(degrees) * np.arange(7))
    assert_array_equal(result.history.bytes, each * 2 * max(degrees) * np.arange(7))


@pytest.mark.parametrize("graph", [STAR, CYCLE], ids=["star", "cycle"])
def test_dfw_calls_each_oracle_once_an_iteration(graph: nx.Graph) -> None:
    result = dcgs.minimize(least_squares(lasso(agents=5)), X, graph, dcgs.DFW(), iterations=6)
    assert_array_equal(result.lmo_calls, [6] * 5)
    assert_array_equal(result.history.lmo_calls, np.arange(7))


@pytest.mark.parametrize("graph", [STAR, CYCLE], ids=["star", "cycle"])
def test_dcgs_calls_each_oracle_as_often_as_its_inner_solver_steps(graph: nx.Graph) -> None:
    # No gap is small enough for e = 0, so each of the 6 inner solves takes its 3 steps.
    never = dcgs.DCGS(inner=dcgs.CG(max_steps=3), schedule=lambda k: dcgs.Params(1.0, 9.0, 9.0, 1.0, e=0.0))
    result = dcgs.minimize(least_squares(lasso(agents=5)), X, graph, never, iterations=6)
    assert_array_equal(result.lmo_calls, [18] * 5)


def test_a_small_matrix_is_a_message_of_as_many_bytes_as_it_has_entries() -> None:
    rng = np.random.default_rng(2)
    objectives = [
        dcgs.MatrixCompletion([0, 1, 2], [i, 2, 3], rng.standard_normal(3), shape=(3, 4)) for i in range(2)
    ]
    ball = dcgs.NuclearNormBall((3, 4), radius=2.0)
    result = dcgs.minimize(objectives, ball, nx.path_graph(2), dcgs.DFW(), iterations=3)
    # The headers of a round and of a message, the description of a matrix, 12 numbers of 8 bytes.
    assert_array_equal(result.bytes, [(32 + 24 + (16 + 2 * 8) + 8 * 12) * 6] * 2)
    assert result.x.shape == (3, 4)
    assert result.agents.shape == (2, 3, 4)


# One agent alone.


@pytest.mark.parametrize(
    ("method", "relative"),
    [
        (dcgs.DCGS(answer="last"), 1e-6),
        (dcgs.PrimalDual(answer="last"), 1e-8),
        # Frank-Wolfe is that slow: its gap falls like 1/t.
        (dcgs.DFW(), 1e-2),
    ],
    ids=["DCGS", "PrimalDual", "DFW"],
)
def test_an_agent_alone_reaches_the_optimum(method: dcgs.Method, relative: float) -> None:
    result = dcgs.minimize(OBJECTIVES[:1], X, nx.empty_graph(1), method, gap=relative, iterations=5000)
    excess = loss(PAIRS[:1], result.x) - optimum(PAIRS[:1], X)[1]
    assert result.status is Status.AGREED
    # Ten times what the reference promises.
    assert abs(excess) <= result.history.gap[-1] + 1e-8 * loss(PAIRS[:1], np.zeros(6))
    # The agent may stop after the first round of an iteration.
    assert result.rounds in (2 * result.iterations, 2 * result.iterations - 1)
    assert_array_equal([*result.messages, *result.bytes], [0, 0])
    assert_array_equal(result.history.disagreement, np.zeros(len(result.history)))
    assert_array_equal(result.history.local_loss, result.history.worst_loss)


# Where a run starts.


def test_a_run_starts_at_the_sets_own_point() -> None:
    simplex = dcgs.Simplex(6, radius=2.0)
    result = dcgs.minimize(OBJECTIVES, simplex, PATH, iterations=3)
    given = dcgs.minimize(OBJECTIVES, simplex, PATH, iterations=3, x0=np.full(6, 2.0 / 6.0))
    # f at the barycenter, summed in another order.
    assert_allclose(result.history.mean_loss[0], loss(PAIRS, np.full(6, 2.0 / 6.0)), rtol=1e-14)
    assert_same(result, given)


@every_asking_method
def test_a_run_starts_at_the_point_it_is_given(method: dcgs.Method) -> None:
    x0 = np.array([0.5, 0.0, 0.0, -1.0, 0.0, 0.25])
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, rounds=1, x0=x0)
    assert_array_equal(result.agents, np.tile(x0, (4, 1)))
    # f at x0, summed in another order.
    assert_allclose(result.history.worst_loss[0], loss(PAIRS, x0), rtol=1e-14)


def test_every_agent_is_given_the_starting_point() -> None:
    x0 = np.array([0.5, 0.0, 0.0, -1.0, 0.0, 0.25])
    idle = Idle()
    dcgs.minimize(OBJECTIVES, X, PATH, idle, iterations=1, x0=x0)
    assert_array_equal([agent.x0 for agent in idle.agents], np.tile(x0, (4, 1)))


INSIDE = np.array([0.3, -0.2, 0.0, 0.1, 0.0, 0.7])


@pytest.mark.parametrize(
    ("targets", "x0"),
    [
        ([np.zeros(8)] * 4, np.zeros(6)),  # ∇f = 0 exactly
        ([A @ INSIDE for A, _ in PAIRS], INSIDE),  # ∇f = 0 up to rounding
        ([A @ np.eye(6)[2] * 9.0 for A, _ in PAIRS], 2.0 * np.eye(6)[2]),  # at a vertex, ∇f ≠ 0
    ],
    ids=["zero", "inside", "vertex"],
)
def test_a_start_at_the_optimum_is_certified_at_once_where_the_observer_decides(
    targets: list[Array], x0: Array
) -> None:
    objectives = [dcgs.LeastSquares(A, b) for (A, _), b in zip(PAIRS, targets, strict=True)]
    result = dcgs.minimize(objectives, X, PATH, EndedByObserver(dcgs.DCGS()), gap=1e-3, x0=x0)
    assert (result.status, result.rounds, result.iterations) == (Status.GAP, 0, 0)
    assert_array_equal(result.agents, np.tile(x0, (4, 1)))
    assert_array_equal(result.lmo_calls, [0] * 4)


def test_what_the_caller_owns_is_not_changed() -> None:
    pairs = lasso()
    before = [(A.copy(), b.copy()) for A, b in pairs]
    x0 = np.full(6, 0.25)
    dcgs.minimize(least_squares(pairs), X, PATH, iterations=5, x0=x0)
    assert_array_equal(x0, np.full(6, 0.25))
    for (A, b), (A_before, b_before) in zip(pairs, before, strict=True):
        assert_array_equal(A, A_before)
        assert_array_equal(b, b_before)


# The same again.


@every_method
def test_a_run_repeats_from_its_seed_to_the_bit(method: dcgs.Method) -> None:
    one = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=9, seed=5)
    two = dcgs.minimize(least_squares(lasso()), X, nx.path_graph(4), method, iterations=9, seed=5)
    assert_same(one, two)
    assert_same_rows(one.history, two.history, np.arange(10))


def test_each_agent_has_random_numbers_of_its_own_and_the_same_for_the_same_seed() -> None:
    def drawn(seed: int) -> list[float]:
        idle = Idle()
        dcgs.minimize(OBJECTIVES, X, PATH, idle, iterations=1, seed=seed)
        return [agent.rng.random() for agent in idle.agents]

    assert drawn(5) == drawn(5)
    assert len({*drawn(5), *drawn(6)}) == 8


def test_the_result_says_how_to_repeat_the_run() -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, dcgs.DCGS(inner="cg"), iterations=2, seed=5)
    assert result.about["method"] == repr(dcgs.DCGS(inner="cg"))
    assert result.about["runtime"] == repr(dcgs.Lockstep())
    assert (result.about["seed"], result.about["agents"], result.about["edges"]) == (5, 4, 3)
    assert (result.about["set"], result.about["shape"]) == ("L1Ball", [6])
    assert {"dcgs", "numpy", "scipy", "networkx", "python"} <= set(result.about["versions"])


# The graph: who is who.


def graph_of(nodes: Sequence[Any]) -> nx.Graph:
    """Return a graph with these nodes, in this order."""
    graph = nx.Graph()
    graph.add_nodes_from(nodes)
    return graph


@pytest.mark.parametrize(
    "nodes",
    [
        ["c", "a", "d", "b"],
        [(1, 1), (0, 1), (0, 0), (1, 0)],
        [7, "a", (0,), 1.5],
        [30, 10, 40, 20],  # integers, but not 0 … m−1
        [1, 2, 3, 4],
    ],
    ids=repr,
)
def test_agent_i_is_the_ith_node_where_nodes_are_not_0_to_m(nodes: list[Any]) -> None:
    graph = graph_of(nodes)
    nx.add_path(graph, nodes)
    result = dcgs.minimize(OBJECTIVES, X, graph, dcgs.DFW(), iterations=3)
    assert_same(result, dcgs.minimize(OBJECTIVES, X, PATH, dcgs.DFW(), iterations=3))


@pytest.mark.parametrize("order", [[2, 0, 3, 1], [1, 3, 0, 2]], ids=repr)
@pytest.mark.parametrize("integer", [int, np.int64], ids=["int", "int64"])
def test_agent_i_is_node_i_in_whatever_order_the_nodes_came(
    order: list[int], integer: Callable[[int], Any]
) -> None:
    graph = graph_of([integer(i) for i in order])
    nx.add_path(graph, [integer(i) for i in range(4)])
    result = dcgs.minimize(OBJECTIVES, X, graph, dcgs.DFW(), iterations=3)
    assert_same(result, dcgs.minimize(OBJECTIVES, X, PATH, dcgs.DFW(), iterations=3))


def test_the_order_of_agents_along_the_graph_matters() -> None:
    other = nx.Graph([(2, 0), (0, 3), (3, 1)])
    result = dcgs.minimize(OBJECTIVES, X, other, dcgs.DFW(), iterations=3)
    plain = dcgs.minimize(OBJECTIVES, X, PATH, dcgs.DFW(), iterations=3)
    assert not np.array_equal(result.agents, plain.agents)


@every_method
def test_edge_weights_are_not_used(method: dcgs.Method) -> None:
    weighted = nx.path_graph(4)
    nx.set_edge_attributes(weighted, {(0, 1): 5.0, (1, 2): -2.0, (2, 3): 0.0}, "weight")
    result = dcgs.minimize(OBJECTIVES, X, weighted, method, iterations=5)
    assert_same(result, dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=5))


# The data, dense or sparse; and what a user should know.


@pytest.mark.parametrize("kind", [sp.csr_array, sp.csc_array, sp.coo_matrix])
@pytest.mark.parametrize(
    "method",
    [
        dcgs.DCGS(inner="cg"),
        # After an exact line search two active atoms tie, and rounding says which is the away atom. So
        # pairwise steps give the same answer in both forms only where they go on to the minimizer.
        dcgs.DCGS(inner="pcg", schedule=dcgs.Theorem1(horizon=10**14)),
        dcgs.PrimalDual(),
        dcgs.DFW(),
        dcgs.DFW(tracking=False),
    ],
    ids=["DCGS, cg", "DCGS, pcg", "PrimalDual", "DFW", "DFW, averaging"],
)
def test_sparse_and_dense_data_give_the_same_answers(method: dcgs.Method, kind: Callable[..., Any]) -> None:
    rng = np.random.default_rng(3)
    thinned = [(A * (rng.random(A.shape) < 0.5), b) for A, b in PAIRS]
    dense = dcgs.minimize(least_squares(thinned), X, PATH, method, iterations=9)
    objectives = [dcgs.LeastSquares(kind(A), b) for A, b in thinned]
    sparse = dcgs.minimize(objectives, X, PATH, method, iterations=9)
    # Sums in another order, over a few hundred steps; 1e-9 is what users are promised.
    assert_allclose(sparse.agents, dense.agents, rtol=0.0, atol=1e-9)


def test_the_notes_say_which_inner_solves_fell_short() -> None:
    never = dcgs.DCGS(inner=dcgs.CG(max_steps=3), schedule=lambda k: dcgs.Params(1.0, 9.0, 9.0, 1.0, e=0.0))
    result = dcgs.minimize(OBJECTIVES, X, PATH, never, iterations=6)
    (note,) = result.notes
    assert note.startswith("24 of 24 inner solves, of agents [0, 1, 2, 3], ended at max_steps")
    assert note.endswith(".")


@every_method
def test_a_run_without_shortfalls_has_no_notes(method: dcgs.Method) -> None:
    assert dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=5).notes == ()


# Processes that hold some agents' data; here one holds all.


@every_method
def test_objectives_may_be_given_by_agent(method: dcgs.Method) -> None:
    by_agent = {i: OBJECTIVES[i] for i in (2, 0, 3, 1)}
    assert_same(
        dcgs.minimize(by_agent, X, PATH, method, iterations=4),
        dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=4),
    )


@every_method
def test_a_run_that_is_not_measured_gives_the_same_answers_and_no_history(method: dcgs.Method) -> None:
    measured = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=4)
    result = dcgs.minimize(OBJECTIVES, X, PATH, method, iterations=4, every=None)
    assert_same(result, measured)
    assert len(result.history) == 0
    assert {column.dtype for column in result.history.columns().values()} == {np.dtype("i8"), np.dtype("f8")}


def test_a_run_that_is_not_measured_asks_the_oracle_for_its_agents_only(spy: Spy) -> None:
    result = dcgs.minimize(
        OBJECTIVES, spy, PATH, dcgs.DFW(), iterations=3, every=None, runtime=Attributing(spy)
    )
    assert None not in spy.callers
    assert len(spy.callers) == result.lmo_calls.sum() == 12


def test_agents_that_are_not_measured_stop_by_themselves() -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, gap=0.1, every=None)
    assert result.status is Status.AGREED


def test_seconds_computing_and_waiting_are_counted_for_each_agent() -> None:
    result = dcgs.minimize(OBJECTIVES, X, PATH, dcgs.DFW(), iterations=3)
    assert (result.computing > 0.0).all()
    assert result.computing.max() <= result.history.computing[-1] <= result.computing.sum()
    assert_array_equal(result.waiting, np.zeros(4))
    assert_array_equal(result.hosted, np.arange(4))
