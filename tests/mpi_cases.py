"""Many small runs under mpiexec, each compared with the same run in a single process.

Prints, in the first process, one line of JSON: how many cases there were, and what went wrong in which.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, final

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from mpi4py import MPI as WORLD

import dcgs
from dcgs.methods import Agent
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.run.result import Result, Snapshot
from dcgs.runtime import Job, Traffic
from problems import METHODS

MEASURES = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap", "certified_gap")
COUNTS = ("messages", "bytes", "lmo_calls", "projections")


def random_graph(rng: np.random.Generator, agents: int) -> nx.Graph:
    """Return a random connected graph: a random tree, and some more edges."""
    graph = nx.empty_graph(agents)
    graph.add_edges_from((i, int(rng.integers(i))) for i in range(1, agents))
    for _ in range(int(rng.integers(agents + 1))):
        i, j = rng.integers(agents, size=2).tolist()
        graph.add_edges_from([(i, j)] if i != j else [])
    return graph


def problem(rng: np.random.Generator, agents: int, kind: int) -> tuple[list[dcgs.Objective], dcgs.ConvexSet]:
    """Return everyone's objectives and a set, of one of four kinds; agents have unequally much data."""
    rows = rng.integers(3, 9, size=agents)
    if kind == 0:
        ball = dcgs.NuclearNormBall((4, 5), 2.0)
        cells = [(rng.integers(4, size=n), rng.integers(5, size=n), rng.standard_normal(n)) for n in rows]
        return [dcgs.MatrixCompletion(*cell, shape=(4, 5)) for cell in cells], ball
    A = [rng.standard_normal((n, 7)) for n in rows]
    if kind == 1:
        return [dcgs.Logistic(a, np.sign(a[:, 0] + 0.1)) for a in A], dcgs.L2Ball(7, 1.5)
    sets: dict[int, dcgs.ConvexSet] = {2: dcgs.L1Ball(7, 2.0), 3: dcgs.Simplex(7)}
    return [dcgs.LeastSquares(a, rng.standard_normal(len(a))) for a in A], sets[kind]


FORMS = [*METHODS, dcgs.FastDCGS(form="sums"), dcgs.FastDCGS(form="root"), dcgs.FastDCGS(inner="oracle")]


def digest(result: Result) -> str:
    """Return a digest of all that must be equal to the bit."""
    hashed = sha256()
    for model in (result.x, *result.agents):
        # Of a matrix in factors the factors: their product has the same bits for some other factors.
        factors = (model.U, model.V) if isinstance(model, dcgs.LowRank) else (model,)
        for array in factors:
            hashed.update(repr(array.shape).encode() + array.tobytes())
    for name in COUNTS:
        hashed.update(getattr(result, name).tobytes())
    for name in ("iterations", "rounds", "peak_bytes", *COUNTS, *MEASURES):
        hashed.update(getattr(result.history, name).tobytes())
    hashed.update(f"{result.status} {result.iterations} {result.rounds} {result.notes}".encode())
    hashed.update(f"{result.certificates.tolist()}".encode())
    return hashed.hexdigest()


def same(runtime: dcgs.MPI, alone: dict[str, Any], here: dict[str, Any] | None = None) -> None:
    """Assert that a run over MPI gives every process what one process gets alone."""
    result = dcgs.minimize(**(alone | (here or {})), runtime=runtime)
    group = runtime.group()
    digests = [
        bytes(text).decode() for text in group.allgather([np.frombuffer(digest(result).encode(), np.uint8)])
    ]
    if group.is_root:
        assert set(digests) == {digest(dcgs.minimize(**alone))}


def check_equal(runtime: dcgs.MPI, seed: int, number: int) -> None:
    """One random case: graph, problem and rules, with each process holding its own data only.

    Methods are taken in turn, so that 13 cases on more than one process have all of them.
    """
    rng = np.random.default_rng(seed)
    agents = runtime.transport.size + int(rng.integers(4)) * int(rng.integers(3))
    objectives, X = problem(rng, agents, int(rng.integers(4)))
    method = FORMS[number % len(FORMS)]
    if method.incompatibility(dict(enumerate(objectives)), X):  # pcg over balls that are round
        method = dcgs.DCGS(inner="cg")
    choices: list[dict[str, Any]] = [
        {"iterations": 5},
        {"rounds": 7, "every": 0},
        {"iterations": 4, "lmo_calls": 9, "every": 2},
        {"gap": 0.5, "iterations": 6},
    ]
    rules = choices[int(rng.integers(4))]
    if method.projects:
        rules.pop("lmo_calls", None)
    alone = {"objectives": objectives, "X": X, "graph": random_graph(rng, agents), "method": method} | rules
    same(runtime, alone, {"objectives": {i: objectives[i] for i in runtime.hosts(agents)}})


LASSO = problem(np.random.default_rng(5), 6, 2)
CYCLE = nx.cycle_graph(6)


def check_agents_of_every_method_certify(runtime: dcgs.MPI) -> None:
    """Certificates are equal to the bit, also where nothing is measured and no process knows them all."""
    held = {i: LASSO[0][i] for i in runtime.hosts(6)}
    for method in (dcgs.DFW(), dcgs.NIDS(), dcgs.PGExtra(), dcgs.ProjectedAGD()):
        alone = {"objectives": LASSO[0], "X": LASSO[1], "graph": CYCLE, "method": method, "gap": 0.5}
        same(runtime, alone | {"rounds": 300, "every": 0}, {"objectives": held})
        local = dcgs.minimize(**alone | {"objectives": held}, rounds=300, every=None, runtime=runtime)
        first = dcgs.minimize(**alone, rounds=300, every=None)
        assert local.certificates.tolist() == first.certificates.tolist()
        assert (local.rounds, local.bytes.tolist()) == (first.rounds, first.bytes.tolist())
        assert local.agents.tobytes() == first.agents[local.hosted].tobytes()
        assert first.status is dcgs.Status.AGREED


def check_the_root(runtime: dcgs.MPI) -> None:
    """On a complete graph all processes take the same agent as the root: one with many rows."""
    rng = np.random.default_rng(8)
    A = [rng.standard_normal((rows, 7)) for rows in (3, 5, 4, 30, 6, 5)]
    objectives = [dcgs.LeastSquares(a, rng.standard_normal(len(a))) for a in A]
    alone = {"objectives": objectives, "X": dcgs.L1Ball(7, 2.0), "graph": nx.complete_graph(6), "gap": 1e-2}
    held = {i: objectives[i] for i in runtime.hosts(6)}
    same(runtime, alone | {"method": dcgs.FastDCGS(form="root")}, {"objectives": held})


def check_the_link(runtime: dcgs.MPI) -> None:
    """Told the link, all processes choose the same form, from sizes that none of them has alone."""
    alone = {"objectives": LASSO[0], "X": LASSO[1], "graph": CYCLE, "iterations": 3}
    same(runtime, alone | {"method": dcgs.FastDCGS("oracle", link="1GB/s")})
    same(runtime, alone | {"method": dcgs.FastDCGS("oracle", link="1GB/s,1s")})


def check_sparse_columns(runtime: dcgs.MPI) -> None:
    """All processes take sums where every agent has data for some features only, with equal bits."""
    rng = np.random.default_rng(6)
    data = [rng.standard_normal((5, 80)) * (rng.random(80) < 0.5) for _ in range(6)]
    objectives = [dcgs.LeastSquares(sp.csr_array(A), rng.standard_normal(5)) for A in data]
    alone = {"objectives": objectives, "X": dcgs.L1Ball(80, 2.0), "graph": CYCLE, "gap": 1e-2}
    same(runtime, alone, {"objectives": {i: objectives[i] for i in runtime.hosts(6)}})


def check_the_dual_bound(runtime: dcgs.MPI) -> None:
    """Agents over edges certify a gap by bounds that each computes from its own data, with equal bits."""
    rng = np.random.default_rng(7)
    data = [rng.standard_normal((25, 30)) for _ in range(6)]
    objectives = [dcgs.LeastSquares(A, A[:, 0] + rng.standard_normal(25)) for A in data]
    alone = {"objectives": objectives, "X": dcgs.L1Ball(30, 2.0), "graph": CYCLE, "gap": 1e-3}
    alone |= {"method": dcgs.FastDCGS(form="edges")}
    assert dcgs.minimize(**alone).about["certified"]["kind"] == "dual"
    same(runtime, alone, {"objectives": {i: objectives[i] for i in runtime.hosts(6)}})


def check_whole_sequences(runtime: dcgs.MPI) -> None:
    """Every process may be given a list of all objectives; entries of other agents are ignored."""
    held = runtime.hosts(6)
    given: list[Any] = [f if i in held else None for i, f in enumerate(LASSO[0])]
    alone = {"objectives": LASSO[0], "X": LASSO[1], "graph": CYCLE, "iterations": 3}
    same(runtime, alone, {"objectives": given})


def check_oracle_calls_end_a_run_before_the_first_round(runtime: dcgs.MPI) -> None:
    """FastDCGS calls the oracle before its first message, so one call ends it, in all processes."""
    alone = {"objectives": LASSO[0], "X": LASSO[1], "graph": CYCLE, "lmo_calls": 1}
    same(runtime, alone | {"method": dcgs.FastDCGS("oracle", form="edges")})
    same(runtime, alone | {"method": dcgs.DCGS(), "lmo_calls": 30})


@final
@dataclass(frozen=True)
class Asking(dcgs.Method):
    """A method whose agent i asks the oracle i + 1 times a round, and takes no notice of the answer."""

    rounds_per_iteration = 1

    def incompatibility(self, objectives: Mapping[int, dcgs.Objective], X: dcgs.ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Point]:
        for k in range(1, agent.iterations + 1):
            yield agent.x0
            for _ in range(agent.index + 1):
                agent.lmo(agent.x0, None)
            agent.observe(k, agent.x0)
        return agent.x0


def check_the_largest_number_of_calls_of_any_agent_ends_a_run(runtime: dcgs.MPI) -> None:
    """Agent 5 has made its 12 calls after two rounds; that is known elsewhere as well."""
    rules: dict[str, Any] = {"method": Asking(), "lmo_calls": 12, "every": 0}
    result = dcgs.minimize(LASSO[0], LASSO[1], CYCLE, **rules, runtime=runtime)
    assert (result.status, result.rounds) == (dcgs.Status.LMO_CALLS, 2)
    same(runtime, {"objectives": LASSO[0], "X": LASSO[1], "graph": CYCLE} | rules)


def check_nothing_measured(runtime: dcgs.MPI) -> None:
    """With every=None a process has its own agents' answers, equal to those of a run that is measured."""
    rules: dict[str, Any] = {"X": LASSO[1], "graph": CYCLE, "method": dcgs.DFW(), "iterations": 5}
    held = runtime.hosts(6)
    mine = dcgs.minimize({i: LASSO[0][i] for i in held}, **rules, runtime=runtime, every=None)
    alone = dcgs.minimize(LASSO[0], **rules)
    assert len(mine.history) == 0
    assert mine.hosted.tolist() == list(held)
    assert mine.agents.tobytes() == alone.agents[list(held)].tobytes()
    assert mine.bytes.tolist() == alone.bytes.tolist()
    assert (mine.status, mine.iterations, mine.rounds) == (alone.status, 5, 10)
    assert len(mine.waiting) == len(mine.computing) == 6
    assert (mine.computing > 0.0).all()
    stopped = dcgs.minimize(LASSO[0], LASSO[1], CYCLE, gap=0.1, runtime=runtime, every=None)
    assert stopped.status is dcgs.Status.AGREED


def check_the_callback_of_the_first_process_decides(runtime: dcgs.MPI) -> None:
    """Callbacks elsewhere are not called."""
    seen: list[int] = []

    def stop(snapshot: Snapshot) -> bool:
        seen.append(snapshot.iterations)
        return snapshot.iterations == 3

    rules: dict[str, Any] = {"method": dcgs.DFW(), "iterations": 9, "callback": stop}
    result = dcgs.minimize(LASSO[0], LASSO[1], CYCLE, **rules, runtime=runtime)
    assert (result.status, result.iterations) == (dcgs.Status.CALLBACK, 3)
    assert seen == ([0, 1, 2, 3] if runtime.transport.rank == 0 else [])


def check_seconds(runtime: dcgs.MPI) -> None:
    """A limit on seconds ends all processes after the same round."""
    result = dcgs.minimize(LASSO[0], LASSO[1], CYCLE, dcgs.DFW(), seconds=0.05, every=0, runtime=runtime)
    assert result.status is dcgs.Status.SECONDS
    rounds = runtime.group().allgather([np.array([result.rounds])])
    assert len({int(count[0]) for count in rounds}) == 1


def refusal(runtime: dcgs.MPI, **arguments: Any) -> str:
    """Return the sentence that all processes refuse a run with, which must be one."""
    kind, sentence = "", "nothing was refused"
    try:
        dcgs.minimize(**arguments, runtime=runtime)
    except (ValueError, TypeError) as error:
        kind, sentence = type(error).__name__, str(error)
    text = f"{kind}: {sentence}"
    refusals = runtime.group().allgather([np.frombuffer(text.encode(), np.uint8)])
    assert {bytes(each).decode() for each in refusals} == {text}
    return text


def check_bad_input_in_one_process_ends_all(runtime: dcgs.MPI) -> None:
    """The sentence is the same everywhere, whoever was given what is wrong."""
    last = runtime.transport.rank == runtime.transport.size - 1
    good: dict[str, Any] = {"objectives": LASSO[0], "X": LASSO[1], "graph": CYCLE, "iterations": 2}
    data = np.zeros((2, 7))
    broken = [*LASSO[0][:-1], dcgs.LeastSquares(data, np.zeros(2))]
    data[:] = np.nan
    sentence = refusal(runtime, **good | {"objectives": broken if last else LASSO[0]})
    assert sentence == "ValueError: data must be finite; agent 5: A[0, 0] is nan and 13 more."
    odd = [*LASSO[0][:-1], dcgs.LeastSquares(np.ones((2, 3)), np.zeros(2))]
    sentence = refusal(runtime, **good | {"objectives": odd if last else LASSO[0]})
    assert sentence == "ValueError: all objectives must take points of shape (7,), as X; agent 5 takes (3,)."
    sentence = refusal(runtime, **good | {"iterations": 0 if last else 2})
    assert sentence == "ValueError: iterations must be a whole number of at least 1, or None; got 0."
    sentence = refusal(runtime, **good | {"objectives": {} if last else LASSO[0]})
    assert "those of all agents that this process runs" in sentence
    sentence = refusal(runtime, **good | {"seed": int(last)})
    assert sentence.startswith("ValueError: all processes must be given the same seed; process ")
    sentence = refusal(runtime, **good | {"graph": nx.path_graph(6) if last else CYCLE})
    assert "the same graph; process" in sentence
    sentence = refusal(runtime, **good | {"method": dcgs.FastDCGS(relaxation=1.2 if last else 1.85)})
    assert "the same method; process" in sentence
    assert "relaxation=1.2" in sentence
    sentence = refusal(runtime, **good | {"X": dcgs.L1Ball(7, 1.0) if last else LASSO[1]})
    assert "the same set; process" in sentence


def check_processes_without_agents_are_refused(runtime: dcgs.MPI) -> None:
    """More processes than agents."""
    sentence = refusal(runtime, objectives=LASSO[0][:1], X=LASSO[1], graph=nx.path_graph(1), iterations=1)
    assert sentence == (
        "ValueError: there must be at least one agent for each process; got 1 agents and "
        f"{runtime.transport.size} processes. Start 1, or fewer."
    )


def check_messages_of_every_size(runtime: dcgs.MPI) -> None:
    """Messages grow and shrink over all borders; what was received stays as it was received."""
    sizes = [3, 0, 9000, 40_000, 2, 300_000, 20, 300_001, 1, 0, 70_000]
    agents = 6
    kept: dict[int, list[tuple[int, int, Point]]] = {i: [] for i in range(agents)}

    def program(i: int) -> Program[Point]:
        mine = np.empty((0, 1))
        for k, size in enumerate(sizes):
            mine = np.full((size, 1), float(100 * k + i))
            inbox = yield mine[::-1]
            mine[:] = -1.0  # nobody may see this
            kept[i] += [(j, k, theirs) for j, theirs in inbox.items()]
        return mine

    neighbors = [tuple(sorted(CYCLE[i])) for i in range(agents)]
    traffic = Traffic(agents)
    runtime.run(Job(program, neighbors, traffic, lambda: True))
    for i in runtime.hosts(agents):
        assert [(j, k) for j, k, _ in kept[i]] == [(j, k) for k in range(len(sizes)) for j in neighbors[i]]
        for j, k, theirs in kept[i]:
            assert theirs.shape == (sizes[k], 1)
            assert not theirs.flags.writeable
            np.testing.assert_array_equal(theirs, 100.0 * k + j)
        # To both neighbors: the headers of the round and of the message, an array with two sides.
        assert traffic.bytes[i] == 2 * sum(32 + 24 + 16 + 2 * 8 + 8 * size for size in sizes)


def check_messages_for_some_neighbors(runtime: dcgs.MPI) -> None:
    """Each neighbor gets its own tuple, or none, in the same process and in another."""
    neighbors = [tuple(sorted(CYCLE[i])) for i in range(6)]

    def program(i: int) -> Program[Point]:
        for k in range(4):
            to = [j for j in neighbors[i] if (i + j + k) % 3]
            sparse = np.where(np.arange(50) == k, float(i), 0.0)
            inbox = yield {j: (np.array([10.0 * i + j]), sparse) for j in to}
            assert list(inbox) == [j for j in neighbors[i] if (i + j + k) % 3]
            for j, (numbers, theirs) in inbox.items():
                assert numbers.tolist() == [10.0 * j + i]
                assert theirs.tobytes() == np.where(np.arange(50) == k, float(j), 0.0).tobytes()
        return np.zeros(1)

    runtime.run(Job(program, neighbors, Traffic(6), lambda: True))


def ratings(own_rows: bool) -> tuple[list[dcgs.Objective], dcgs.ConvexSet]:
    """Return observed entries of a matrix of rank 2 at six agents; with ``own_rows`` no row is at two."""
    rng = np.random.default_rng(12)
    truth = rng.standard_normal((18, 2)) @ rng.standard_normal((2, 9))
    parts = []
    for i in range(6):
        rows = rng.integers(3 * i, 3 * i + 3, 20) if own_rows else rng.integers(0, 18, 20)
        cols = rng.integers(0, 9, 20)
        parts.append(dcgs.MatrixCompletion(rows, cols, truth[rows, cols], (18, 9)))
    return parts, dcgs.NuclearNormBall((18, 9), 10.0)


def check_completion_with_rows_solved_at_home(runtime: dcgs.MPI) -> None:
    """Blocks of float32, and a run that begins with ridge regressions, have the same bits."""
    rng, held = np.random.default_rng(13), runtime.hosts(6)
    truth = rng.standard_normal((132, 2)) @ rng.standard_normal((2, 130))
    parts = []
    for i in range(6):
        rows, cols = rng.integers(22 * i, 22 * i + 22, 500), rng.integers(0, 130, 500)
        values = truth[rows, cols] + 0.3 * rng.standard_normal(500)
        parts.append(dcgs.MatrixCompletion(rows, cols, values, (132, 130)))
    X = dcgs.NuclearNormBall((132, 130), 60.0)
    alone: dict[str, Any] = {"objectives": parts, "X": X, "graph": CYCLE, "gap": 1e-3}
    same(runtime, alone, {"objectives": {i: parts[i] for i in held}})


def check_completion_in_factors(runtime: dcgs.MPI) -> None:
    """Factors have the same bits as in one process, with rows at one agent each or not."""
    held = runtime.hosts(6)
    for own_rows in (True, False):
        objectives, X = ratings(own_rows)
        mine = {"objectives": {i: objectives[i] for i in held}}
        alone: dict[str, Any] = {"objectives": objectives, "X": X, "graph": CYCLE, "gap": 0.02}
        same(runtime, alone, mine)
        same(runtime, alone | {"method": dcgs.FastDCGS(link="1kB/s,1ms")}, mine)  # in pieces
        first = dcgs.minimize(**alone)
        assert (type(first.x), first.status) == (dcgs.LowRank, dcgs.Status.AGREED)
        same(runtime, alone | {"x0": first.x, "gap": 0.9, "gap_abs": 1e-3, "iterations": 6}, mine)
        local = dcgs.minimize(**(alone | mine), every=None, runtime=runtime)
        rows = np.arange(18) if local.x.rows is None else local.x.rows
        expected = list(range(18)) if not own_rows else list(range(3 * held[0], 3 * held[-1] + 3))
        assert rows.tolist() == expected
        assert np.asarray(local.x)[rows].tobytes() == np.asarray(first.x)[rows].tobytes()
        # A start with the rows of the agents of this process only is that with all rows.
        again = alone | {"gap": 0.9, "gap_abs": 1e-3, "iterations": 6}
        whole = dcgs.minimize(**again | {"x0": first.x})
        parted = dcgs.minimize(**again | mine | {"x0": local.x}, runtime=runtime)
        assert parted.history.mean_loss.tolist() == whole.history.mean_loss.tolist()
        assert np.asarray(parted.x).tobytes() == np.asarray(whole.x).tobytes()


def check_an_agent_without_neighbors_must_send_numbers_too(runtime: dcgs.MPI) -> None:
    """As in one process, though nobody would see it."""

    def program(i: int) -> Program[Point]:
        yield np.array([1.0, np.nan])
        return np.zeros(1)

    with pytest.raises(FloatingPointError, match=r"^a message must be finite; agent 0 sent nan at \(1,\)\.$"):
        runtime.run(Job(program, [()], Traffic(1), lambda: True))


CHECKS: dict[int, list[Callable[[dcgs.MPI], None]]] = {
    1: [check_an_agent_without_neighbors_must_send_numbers_too],
    2: [
        check_messages_of_every_size,
        check_messages_for_some_neighbors,
        check_completion_in_factors,
        check_completion_with_rows_solved_at_home,
    ],
    3: [
        check_whole_sequences,
        check_agents_of_every_method_certify,
        check_the_link,
        check_sparse_columns,
        check_the_dual_bound,
        check_oracle_calls_end_a_run_before_the_first_round,
        check_the_largest_number_of_calls_of_any_agent_ends_a_run,
        check_nothing_measured,
        check_the_callback_of_the_first_process_decides,
        check_seconds,
        check_bad_input_in_one_process_ends_all,
        check_messages_of_every_size,
        check_messages_for_some_neighbors,
        check_processes_without_agents_are_refused,
    ],
}
"""What else is checked with so many processes."""


def main(cases: int) -> None:
    """Run all cases on 1, 2, 3, … of the processes that were started."""
    world = WORLD.COMM_WORLD
    done = 0
    for place, processes in enumerate(n for n in (1, 2, 3, 4, 6, 10) if n <= world.size):
        comm = world.Split(0 if world.rank < processes else 1, world.rank)
        if world.rank < processes:
            runtime = dcgs.MPI(timeout=120.0, comm=comm)
            for case in range(cases):
                check_equal(runtime, 1000 * processes + case, (place - 1) * cases + case)
            for check in CHECKS.get(processes, ()):
                check(runtime)
            done += cases
        all_done = world.Ibarrier()
        while not all_done.Test():
            time.sleep(0.01)  # MPI's own barrier would take the cores from the processes that compute
    if world.rank == 0:
        print(json.dumps({"cases": done}))


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        WORLD.COMM_WORLD.Abort(1)
