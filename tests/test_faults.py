"""Faults: lost, late and noisy messages, sleeping agents, partitions, schedules, checkpoints, and no lies."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.methods.base import Dual
from dcgs.methods.certifier import Certifier, Lane
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import FaultSchedule, Job, Traffic
from dcgs.runtime.faults import RecordedFaults, RoundFaults
from fault_fuzz import COUNT, faulty, faulty_peer
from fuzz import Judgment, Verdict, judge
from problems import neighbors_of

CHUNK = 15
CYCLE = nx.cycle_graph(4)


def problem(agents: int = 4) -> tuple[list[dcgs.Objective], dcgs.ConvexSet]:
    rng = np.random.default_rng(agents)
    A = rng.standard_normal((agents, 6, 8))
    return [dcgs.LeastSquares(a, rng.standard_normal(6)) for a in A], dcgs.L1Ball(8, 1.5)


def run(faults: FaultSchedule, method: dcgs.Method | None = None, **arguments: Any) -> dcgs.Result:
    objectives, X = problem()
    settings: dict[str, Any] = {"graph": CYCLE, "gap": 1e-3, "rounds": 400, "every": 0} | arguments
    runtime = dcgs.Lockstep(faults=faults, allow_faults=method is not None)
    return dcgs.minimize(objectives, X, method=method or dcgs.FastDCGS(), runtime=runtime, **settings)


@cache
def judged(first: int) -> list[Judgment]:
    return [judge(faulty(seed)) for seed in range(first, first + CHUNK)]


@pytest.mark.parametrize("first", range(0, COUNT, CHUNK))
def test_no_status_lies_under_random_faults_and_no_run_hangs(first: int) -> None:
    bad = [judgment for judgment in judged(first) if judgment.verdict.bad]
    assert not bad, "repeat with: python tests/fault_fuzz.py SEED\n" + "\n".join(map(str, bad))
    # Runs that claim nothing cannot lie: some of the problems must end by their gap.
    assert sum(judgment.verdict is Verdict.TRUE for judgment in judged(first)) >= CHUNK // 4


@pytest.mark.parametrize("first", [0, 15])
def test_no_status_lies_where_faults_are_allowed_for_methods_that_do_not_tolerate_them(first: int) -> None:
    found = [judge(faulty_peer(seed)) for seed in range(first, first + CHUNK)]
    bad = [judgment for judgment in found if judgment.verdict.bad]
    assert not bad, "repeat with: python tests/fault_fuzz.py SEED --peers\n" + "\n".join(map(str, bad))
    assert sum(judgment.verdict is Verdict.TRUE for judgment in found) >= CHUNK // 4


@pytest.mark.parametrize(
    "faults",
    [
        dcgs.Faults(loss=0.3, seed=1),
        dcgs.Faults(sleep=0.4, seed=1),
        dcgs.Faults(down=0.6, seed=1),
        dcgs.Faults(delay=4, seed=1),
        dcgs.Faults(loss={(0, 1): 0.8}, sleep={2: 0.5}, delay={(3, 2): 5}, down={(1, 2): 0.5}),
    ],
    ids=["loss", "sleep", "down", "delay", "single edges and agents"],
)
def test_agents_certify_the_gap_and_agree_on_one_model_under_each_fault(faults: dcgs.Faults) -> None:
    result = run(faults)
    assert result.status is dcgs.Status.AGREED
    assert (result.agents == result.agents[0]).all()
    assert result.history.gap[-1] <= 1e-3 * (result.history.mean_loss[0] - result.history.mean_loss[-1])


@pytest.mark.parametrize("loss", [0.0, 0.3])
def test_delays_of_ten_rounds_with_sleep_need_no_shorter_steps(loss: float) -> None:
    """The theorem in docs/faults.md has no condition on delays: the default relaxation reaches small gaps."""
    result = run(dcgs.Faults(delay=10, loss=loss, sleep=loss, seed=1), gap=1e-6, rounds=1000)
    assert result.status is dcgs.Status.AGREED


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = (run(dcgs.Faults(loss=0.3, sleep=0.2, delay=2, seed=s)) for s in (5, 5, 6))
    assert first.agents.tobytes() == again.agents.tobytes()
    assert (first.rounds, first.bytes.tolist()) == (again.rounds, again.bytes.tolist())
    assert (first.rounds, first.bytes.tolist()) != (other.rounds, other.bytes.tolist())


def test_a_saved_schedule_replays_to_the_bit(tmp_path: Path) -> None:
    faults = dcgs.Faults(loss=0.3, sleep=0.2, delay=2, seed=5)
    first = run(faults)
    saved = faults.save(tmp_path / "faults.npz", neighbors_of(CYCLE), first.rounds + 1)
    again = run(dcgs.load_faults(saved))
    assert first.agents.tobytes() == again.agents.tobytes()
    assert (first.status, first.rounds, first.bytes.tolist()) == (
        again.status,
        again.rounds,
        again.bytes.tolist(),
    )


def test_noise_is_replayed_as_well(tmp_path: Path) -> None:
    faults = dcgs.Faults(noise=0.01, seed=5)
    rules: dict[str, Any] = {"gap": None, "rounds": 20, "method": dcgs.FastDCGS(stops_itself=False)}
    first = run(faults, **rules)
    again = run(dcgs.load_faults(faults.save(tmp_path / "f.npz", neighbors_of(CYCLE), 21)), **rules)
    exact = run(dcgs.Faults(seed=5), **rules)
    assert first.agents.tobytes() == again.agents.tobytes()
    # Relative noise of 1 % changes answers by about as much.
    assert 1e-5 < np.abs(first.x - exact.x).max() < 0.1 * np.abs(exact.x).max()


@pytest.mark.parametrize("method", [None, dcgs.DFW(), dcgs.NIDS()], ids=["FastDCGS", "DFW", "NIDS"])
def test_with_noise_agents_cannot_certify_and_are_told_so(method: dcgs.Method | None) -> None:
    with pytest.raises(ValueError, match="agents cannot certify a gap if messages are noisy"):
        run(dcgs.Faults(noise=0.01), method)


@pytest.mark.parametrize("form", ["sums", "newton"])
def test_sums_of_which_a_part_may_be_older_certify_nothing_and_are_refused(
    form: Literal["sums", "newton"],
) -> None:
    with pytest.raises(ValueError, match="cannot certify a gap if messages are replaced by older ones"):
        run(dcgs.Faults(loss=0.2), dcgs.FastDCGS(form=form))


def test_multipliers_of_methods_are_not_used_where_messages_may_be_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They need not sum to zero then; those of gradients do."""
    multiplier: Callable[[Certifier, Lane, Dual | None], Dual | None] = Certifier._multiplier
    found: list[tuple[bool, bool]] = []

    def noted(self: Certifier, lane: Lane, dual: Dual | None) -> Dual | None:
        made = multiplier(self, lane, dual)
        found.append((lane.center is None, made is None))
        return made

    monkeypatch.setattr(Certifier, "_multiplier", noted)
    result = run(dcgs.Faults(loss=0.1, seed=3), dcgs.NIDS(), gap=1e-2, rounds=200)
    # Without a center the root asks for no share; if it did, there would be no multiplier.
    assert {made for without_center, made in found if without_center} <= {True}
    assert {made for without_center, made in found if not without_center} == {False}
    assert result.status in (dcgs.Status.AGREED, dcgs.Status.ROUNDS)


def counting(i: int, seen: dict[int, list[dict[int, float]]], rounds: int) -> Program[Point]:
    """Send the number of the own step, and note what arrives."""
    for step in range(1, rounds + 1):
        inbox = yield np.array([float(step)])
        seen[i].append({j: float(message[0]) for j, message in inbox.items()})
    return np.zeros(1)


def heard(rounds: list[RoundFaults], graph: nx.Graph, steps: int) -> dict[int, list[dict[int, float]]]:
    """Return what every agent received in each of its steps."""
    seen: dict[int, list[dict[int, float]]] = {i: [] for i in graph}
    traffic = Traffic(len(graph))
    job = Job(lambda i: counting(i, seen, 99), neighbors_of(graph), traffic, lambda: traffic.rounds < steps)
    dcgs.Lockstep(faults=RecordedFaults(rounds)).run(job)
    return seen


def test_a_lost_message_does_not_arrive() -> None:
    seen = heard([RoundFaults(), RoundFaults(lost=frozenset({(0, 1)}))], nx.path_graph(2), 3)
    assert seen == {0: [{1: 1.0}, {1: 2.0}, {1: 3.0}], 1: [{0: 1.0}, {}, {0: 3.0}]}


def test_a_late_message_arrives_later_unless_a_newer_one_came_first() -> None:
    late = [RoundFaults(late={(0, 1): 2, (1, 0): 1}), RoundFaults(late={(1, 0): 1}), RoundFaults()]
    seen = heard(late, nx.path_graph(2), 4)
    # Of agent 0, the message of round 1 would come in round 3, after that of round 2.
    assert seen[1] == [{}, {0: 2.0}, {0: 3.0}, {0: 4.0}]
    # Of agent 1, two messages come in round 3; the newer one counts.
    assert seen[0] == [{}, {1: 1.0}, {1: 3.0}, {1: 4.0}]


def test_an_agent_that_sleeps_neither_sends_nor_computes_and_reads_its_messages_when_it_wakes() -> None:
    asleep = [RoundFaults(), RoundFaults(asleep=frozenset({1})), RoundFaults(asleep=frozenset({1}))]
    seen = heard(asleep, nx.path_graph(2), 4)
    # It reads the newest message, that of round 3, before it sends in round 4.
    assert seen[1] == [{0: 3.0}, {0: 4.0}]
    assert seen[0] == [{1: 1.0}, {}, {}, {1: 2.0}]


def test_a_partition_that_never_heals_ends_with_a_status_and_its_parts() -> None:
    cut = dict.fromkeys([(0, 1), (1, 0), (2, 3), (3, 2)], 1.0)
    result = run(dcgs.Faults(loss=cut, patience=50))
    assert result.status is dcgs.Status.PARTITIONED
    assert not result.status.success
    assert result.notes == (
        "no message crossed between the agents [[0, 3], [1, 2]]; mend the links between them.",
    )


@pytest.mark.parametrize("dead", [[(0, 1)], [(0, 1), (1, 0)]])
def test_links_that_are_silent_for_good_in_a_connected_network_are_named(dead: list[tuple[int, int]]) -> None:
    result = run(dcgs.Faults(loss=dict.fromkeys(dead, 1.0), patience=50), gap=1e-9, rounds=60)
    assert result.status is dcgs.Status.ROUNDS
    by_receiver = sorted(dead, key=lambda edge: edge[1])
    assert result.notes == (
        f"no message arrived in the last 50 rounds over the links {by_receiver}, each from sender to "
        "receiver; mend them, or take these edges out of the graph.",
    )


@pytest.mark.parametrize("rounds", [40, 60])
def test_links_that_carry_a_message_now_and_then_are_not_named(rounds: int) -> None:
    # After 40 rounds a link that never carried any was not silent for 50; after 60 all have carried some.
    cut = {(0, 1): 1.0 if rounds < 50 else 0.7}
    result = run(dcgs.Faults(loss=cut, patience=50), gap=1e-9, rounds=rounds)
    assert result.status is dcgs.Status.ROUNDS
    assert result.notes == ()


def test_a_link_that_an_early_message_crossed_is_named_once_it_was_silent_for_too_long() -> None:
    early = nx.Graph([(0, 1), (1, 2), (2, 3), (3, 0)])
    late = nx.Graph([(1, 2), (2, 3), (3, 0)])
    result = run(dcgs.Faults(patience=50), graph=lambda k: early if k <= 9 else late, gap=1e-9, rounds=59)
    assert "over the links [(1, 0), (0, 1)]" in result.notes[0]
    result = run(dcgs.Faults(patience=50), graph=lambda k: early if k <= 10 else late, gap=1e-9, rounds=59)
    assert result.notes == ()


def test_a_graph_that_falls_apart_ends_with_its_parts() -> None:
    halves = nx.Graph([(0, 1), (2, 3)])
    result = run(dcgs.Faults(patience=50), graph=lambda k: CYCLE if k < 3 else halves)
    assert result.status is dcgs.Status.PARTITIONED
    assert "[[0, 1], [2, 3]]" in result.notes[0]


def test_a_graph_that_is_connected_only_over_time_is_enough() -> None:
    objectives, X = problem()
    graphs = [nx.Graph([(0, 1), (2, 3)]), nx.Graph([(1, 2)])]
    for graph in graphs:
        graph.add_nodes_from(range(4))
    result = dcgs.minimize(objectives, X, graphs, rounds=400, gap=1e-3)
    assert result.status is dcgs.Status.AGREED


@pytest.mark.parametrize("method", [dcgs.DFW(), dcgs.DCGS(), dcgs.NIDS(), dcgs.FastDCGS(form="sums")])
def test_a_method_that_needs_all_messages_is_refused_at_the_door(method: dcgs.Method) -> None:
    objectives, X = problem()
    with pytest.raises(ValueError, match=r"needs all of them\. Use dcgs\.FastDCGS\(\), or allow_faults=True"):
        dcgs.minimize(objectives, X, CYCLE, method, runtime=dcgs.Lockstep(faults=dcgs.Faults(loss=0.1)))


@pytest.mark.parametrize(
    "method",
    [
        dcgs.DFW(),
        dcgs.DFW(tracking=False),
        dcgs.DCGS(),
        dcgs.PGExtra(),
        dcgs.NIDS(),
        dcgs.ProjectedAGD(),
    ],
)
def test_it_runs_where_faults_are_allowed_with_older_messages_for_missing_ones(method: dcgs.Method) -> None:
    faults = dcgs.Faults(loss=0.3, sleep=0.3, delay=2)
    result = run(faults, method, gap=None, rounds=30)
    assert (result.status, result.rounds) == (dcgs.Status.ROUNDS, 30)
    assert all(problem()[1].holds(x) for x in result.agents)


def test_a_missing_point_of_dfw_is_replaced_by_a_point_and_a_gradient_by_a_gradient() -> None:
    """Without tracking, iteration t averages points over ⌈log t + 1⌉ rounds, and then gradients."""
    slots = [dcgs.DFW(tracking=False).slot(message) for message in range(36)]
    assert slots == [0, 1] + [0, 0, 1, 1] + 5 * [0, 0, 0, 1, 1, 1]
    assert [dcgs.DFW().slot(message) for message in range(4)] == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("faults", "sentence"),
    [
        ({"loss": 1.0}, "loss must be at least 0 and less than 1; got 1.0."),
        ({"loss": {(0, 1): 1.5}}, "loss[(0, 1)] must be between 0 and 1; got 1.5."),
        ({"delay": -1}, "delay must be a whole number of at least 0; got -1."),
    ],
)
def test_wrong_faults_are_refused_with_their_numbers(faults: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(sentence)}$"):
        dcgs.Faults(**faults)


def test_faults_of_edges_that_are_not_in_the_graph_are_refused() -> None:
    with pytest.raises(ValueError, match=r"loss must be of edges of the graph; it has none for \[\(0, 2\)\]"):
        run(dcgs.Faults(loss={(0, 2): 0.5}))
    with pytest.raises(ValueError, match=r"sleep must be of agents 0 to 3; got \[9\]"):
        run(dcgs.Faults(sleep={9: 0.5}))
    with pytest.raises(ValueError, match=r"recorded faults must be of the agents and edges of the graph"):
        run(RecordedFaults([RoundFaults(lost=frozenset({(0, 2)}))]))


@pytest.mark.parametrize("limit", ["rounds", "iterations"])
@pytest.mark.parametrize("stop", [1, 20, 45])
def test_a_run_with_faults_resumes_from_a_checkpoint_to_the_bit(
    stop: int, limit: str, tmp_path: Path
) -> None:
    """Messages on their way, sleeping agents and those with all their iterations are in the checkpoint."""
    faults = dcgs.Faults(loss=0.2, sleep=0.5, delay=3, seed=2)
    whole = run(faults, every=1)
    assert whole.rounds > 50
    limits: dict[str, Any] = {limit: stop}
    run(faults, every=1, **limits, checkpoint=dcgs.Checkpoint(tmp_path, every=stop))
    again = run(faults, every=1, checkpoint=dcgs.Checkpoint(tmp_path, every=30, resume=True))
    assert again.agents.tobytes() == whole.agents.tobytes()
    for name in ("messages", "bytes", "lmo_calls", "projections"):
        assert getattr(again, name).tolist() == getattr(whole, name).tolist(), name
    assert (again.status, again.rounds) == (whole.status, whole.rounds)
    assert again.history.worst_loss.tobytes() == whole.history.worst_loss.tobytes()


def test_it_resumes_as_well_between_the_first_and_the_last_agent_that_knows_the_answer(
    tmp_path: Path,
) -> None:
    faults = dcgs.Faults(loss=0.2, sleep=0.5, delay=3, seed=2)
    whole = run(faults)
    run(faults, rounds=whole.rounds - 1, checkpoint=dcgs.Checkpoint(tmp_path, every=whole.rounds - 1))
    again = run(faults, checkpoint=dcgs.Checkpoint(tmp_path, resume=True))
    assert (again.status, again.rounds) == (dcgs.Status.AGREED, whole.rounds)
    assert again.agents.tobytes() == whole.agents.tobytes()


def test_a_checkpoint_of_a_run_with_other_faults_is_refused(tmp_path: Path) -> None:
    run(dcgs.Faults(loss=0.2), rounds=4, checkpoint=dcgs.Checkpoint(tmp_path, every=2))
    with pytest.raises(
        ValueError, match=r"is of another run: it was made with faults .*loss=0\.2.*loss=0\.3"
    ):
        run(dcgs.Faults(loss=0.3), checkpoint=dcgs.Checkpoint(tmp_path, resume=True))


def test_a_method_that_does_not_tolerate_faults_cannot_be_checkpointed_with_them(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match="can be checkpointed only if its method tolerates them; DFW does not"
    ):
        run(dcgs.Faults(loss=0.2), dcgs.DFW(), gap=None, checkpoint=dcgs.Checkpoint(tmp_path))
