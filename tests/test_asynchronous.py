"""Agents at their own pace: the simulated clock, records and replays, and the same over MPI."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import Job, Traffic
from dcgs.runtime.asynchronous import Ending, Mailbox, MailExchange, Record
from dcgs.runtime.messages import packets
from dcgs.runtime.wire import MessageError
from fit_runs import own_lines
from problems import neighbors_of

HERE = Path(__file__).parent
MPIEXEC = Path(sys.executable).with_name("mpiexec")
CYCLE = nx.cycle_graph(5)


def problem() -> tuple[list[dcgs.Objective], dcgs.ConvexSet]:
    rng = np.random.default_rng(3)
    A = rng.standard_normal((5, 6, 80))
    return [dcgs.LeastSquares(a, rng.standard_normal(6)) for a in A], dcgs.L1Ball(80, 1.5)


EDGES = dcgs.FastDCGS(form="edges")


def run(runtime: dcgs.Lockstep, **arguments: Any) -> dcgs.Result:
    """Run the form that an asynchronous run has, also where all wait for each other."""
    settings: dict[str, Any] = {"gap": 1e-2, "rounds": 500, "every": 0, "method": EDGES} | arguments
    return dcgs.minimize(*problem(), CYCLE, runtime=runtime, **settings)


@pytest.mark.parametrize(
    "pace", [{"speeds": 1.0}, {"speeds": {0: 0.2}}, {"speeds": [1, 1, 2, 2, 1], "latency": 0.4}]
)
def test_a_run_on_the_simulated_clock_is_certified_and_its_record_replays_to_the_bit(
    pace: dict[str, Any], tmp_path: Path
) -> None:
    first = run(dcgs.Lockstep(**pace, record=tmp_path / "record.npz"))
    assert first.status is dcgs.Status.AGREED
    assert (first.agents == first.agents[0]).all()
    again = run(dcgs.Lockstep(replay=tmp_path / "record.npz"))
    assert again.status is dcgs.Status.AGREED
    assert again.agents.tobytes() == first.agents.tobytes()
    assert again.x.tobytes() == first.x.tobytes()


def test_a_slow_agent_costs_less_than_half_of_what_waiting_for_it_costs() -> None:
    """Time is simulated, so the comparison does not depend on the machine."""
    best = float(run(dcgs.Lockstep(), gap=1e-6).history.mean_loss[-1])

    def rounds_to_1e3(runtime: dcgs.Lockstep) -> int:
        history = run(runtime, gap=None, rounds=150, every=1).history
        relative = (history.worst_loss - best) / (history.worst_loss[0] - best)
        return int(history.rounds[relative <= 1e-3][0])

    assert rounds_to_1e3(dcgs.Lockstep(speeds={0: 0.2})) <= 0.5 * 5 * rounds_to_1e3(dcgs.Lockstep())


def counts(speeds: list[float], staleness: int, units: int) -> list[int]:
    """Return how many steps each agent of a path has taken after so many units of time."""
    steps = [0] * len(speeds)

    def program(i: int) -> Program[Point]:
        while True:
            yield np.zeros(1)
            steps[i] += 1

    graph, traffic = nx.path_graph(len(speeds)), Traffic(len(speeds))
    job = Job(program, neighbors_of(graph), traffic, lambda: traffic.rounds < units)
    dcgs.Lockstep(speeds=speeds, staleness=staleness).run(job)
    return steps


def test_agents_take_steps_at_their_own_speed() -> None:
    assert counts([1.0, 1.0, 0.25], 100, 40) == pytest.approx([40, 40, 10], abs=1)


def test_no_agent_is_ahead_of_a_silent_neighbor_by_more_than_the_staleness() -> None:
    """Agent 2 takes one step in 100 units; agent 1 waits for it after 5 of its own."""
    first, second, third = counts([1.0, 1.0, 0.01], 5, 99)
    assert (second, third) == (5, 0)
    assert first in (5, 6)


def test_a_method_that_needs_all_messages_is_refused() -> None:
    with pytest.raises(
        ValueError, match=r"^a method must tolerate missing messages .* Use dcgs\.FastDCGS\(\)\.$"
    ):
        run(dcgs.Lockstep(speeds=1.0), method=dcgs.NIDS(), gap=None)


def test_a_run_that_its_agents_end_has_a_status() -> None:
    """Agents that are twice as fast have done 10 iterations after 5 units of time."""
    result = run(dcgs.Lockstep(speeds=2.0), gap=None, rounds=None, iterations=10)
    assert (result.status, result.rounds) == (dcgs.Status.ITERATIONS, 5)


def test_a_replay_without_a_limit_that_is_reached_says_that_it_was_replayed(tmp_path: Path) -> None:
    run(dcgs.Lockstep(speeds=1.0, record=tmp_path / "record.npz"), gap=None, rounds=9)
    again = run(dcgs.Lockstep(replay=tmp_path / "record.npz"), gap=None, rounds=99)
    assert again.status is dcgs.Status.REPLAYED


def test_a_record_of_other_agents_is_refused(tmp_path: Path) -> None:
    path = Record([(0, 1, 1, 7)], {0: 1}).save(tmp_path / "record.npz")
    with pytest.raises(ValueError, match=r"agents \[0\] wait for messages that nobody sends"):
        run(dcgs.Lockstep(replay=path))


def test_what_is_no_record_is_refused_with_its_name(tmp_path: Path) -> None:
    (tmp_path / "record.npz").write_bytes(b"PK\x03\x04 nothing")
    with pytest.raises(ValueError, match=r"record\.npz' must be the record of an asynchronous run"):
        run(dcgs.Lockstep(replay=tmp_path / "record.npz"))


def test_a_record_of_a_run_in_rounds_is_refused() -> None:
    for made in (lambda: dcgs.Lockstep(record="record.npz"), lambda: dcgs.MPI(record="record.npz")):
        with pytest.raises(
            ValueError, match=r"^record must be None unless .*: other runs repeat by themselves\.$"
        ):
            made()


def test_a_checkpoint_of_an_asynchronous_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="asynchronous runs have none; leave checkpoint out"):
        run(dcgs.Lockstep(speeds=1.0), checkpoint=dcgs.Checkpoint(tmp_path))


def test_a_mailbox_keeps_the_newest_message_of_each_neighbor() -> None:
    box = Mailbox([1, 2])
    for sender, step in ((2, 4), (1, 3), (2, 2)):
        box.put(sender, step, np.array([float(step)]))
    inbox, used = box.take(1)
    assert {j: float(message[0]) for j, message in inbox.items()} == {1: 3.0, 2: 4.0}
    assert list(inbox) == [1, 2]
    assert used == {1: 3, 2: 4}
    assert not box.is_ready(1, 50)


def deliver(exchanges: list[MailExchange]) -> None:
    """Deliver all that the exchanges want to send to each other, in turns, until there is no more."""
    while any(exchange.outgoing for exchange in exchanges):
        for rank, exchange in enumerate(exchanges):
            outgoing, exchange.outgoing = exchange.outgoing, []
            for peer, buffer in outgoing:
                exchanges[peer].receive(buffer, rank)


def exchanges() -> list[MailExchange]:
    return [MailExchange(neighbors_of(nx.path_graph(3)), rank, 3) for rank in range(3)]


def test_messages_of_other_processes_arrive_in_the_mailboxes() -> None:
    made = exchanges()
    made[1].post(1, 4, packets(1, {0: np.array([1.0]), 2: (np.array([2.0]), np.zeros(0))}, [0, 2]))
    deliver(made)
    assert made[0].boxes[0].arrived[1] == (4, np.array([1.0]))
    step, (numbers, nothing) = made[2].boxes[2].arrived[1]
    assert (step, numbers.tolist(), nothing.size) == (4, [2.0], 0)


@pytest.mark.parametrize(
    ("announced", "decision"),
    [
        ([Ending.AGREED, Ending.AGREED, None], None),
        ([Ending.AGREED] * 3, Ending.AGREED),
        ([None, Ending.LIMIT, None], Ending.LIMIT),
        ([Ending.AGREED, Ending.AGREED, Ending.SPENT], Ending.SPENT),
    ],
)
def test_a_run_ends_when_all_have_agreed_or_one_has_reached_a_limit(
    announced: list[Ending | None], decision: Ending | None
) -> None:
    made = exchanges()
    for exchange, ending in zip(made, announced, strict=True):
        if ending is not None:
            exchange.announce(ending)
    deliver(made)
    assert [exchange.decision for exchange in made] == [decision] * 3


def test_a_limit_after_an_agreement_still_ends_the_run() -> None:
    made = exchanges()
    made[2].announce(Ending.AGREED)
    made[2].announce(Ending.LIMIT)
    deliver(made)
    assert [exchange.decision for exchange in made] == [Ending.LIMIT] * 3


def test_no_message_is_left_on_its_way_when_a_run_ends() -> None:
    made = exchanges()
    made[0].post(0, 1, packets(0, np.zeros(2), [1]))
    late, made[0].outgoing = made[0].outgoing, []
    made[1].announce(Ending.LIMIT)
    deliver(made)
    for exchange in made:
        exchange.close()
    deliver(made)
    assert [exchange.is_complete for exchange in made] == [True, False, True]
    made[1].receive(late[0][1], 0)
    assert made[1].is_complete


def test_a_message_between_agents_that_are_no_neighbors_names_its_sender() -> None:
    made = exchanges()
    made[0].post(0, 1, packets(0, np.zeros(2), [1]))
    ((_, buffer),) = made[0].outgoing
    with pytest.raises(
        MessageError, match=r"messages must be between neighbors; agent 2 \(rank 2\) sent one"
    ):
        made[1].receive(buffer, 2)


def start(processes: int, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(MPIEXEC), "-n", str(processes), sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=600.0,
        env=os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
        cwd=HERE,
    )


def test_asynchronous_runs_over_mpi_replay_in_one_process_to_the_bit() -> None:
    """On 1 to 3 processes, with every kind of limit; 30 cases with: mpiexec -n 3 python async_cases.py 30."""
    done = start(3, "async_cases.py", "6")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["cases"] == 6
    assert outcome["agreed"] >= 1


def test_an_agent_that_is_killed_ends_an_asynchronous_run_with_one_sentence() -> None:
    done = start(3, "async_fault.py", "is killed")
    assert done.returncode != 0
    (printed,) = own_lines(done.stderr)
    assert re.match(r"dcgs: error: agent 2 \(rank 2\) was killed by SIGKILL;", printed)
