"""A run that is resumed from a checkpoint equals the one that never stopped, to the bit."""

from __future__ import annotations

import errno
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import dcgs
from dcgs import Checkpoint, ConvexSet, Method, Objective, Result
from dcgs.atoms import Spike, Vertex
from dcgs.checkpoints import fingerprint
from dcgs.checkpoints import folder as checkpoint_file
from dcgs.checkpoints.folder import common
from dcgs.checkpoints.manager import CheckpointManager
from dcgs.inner import Exact, Inner, Solver, Task
from dcgs.inner.active_set import ActiveSet
from dcgs.run import build
from dcgs.runtime import SingleProcess
from dcgs.state import from_plain, to_plain
from problems import GRAPHS, Array

Make = Callable[[np.random.Generator], Objective]
# Measured seconds differ from run to run; everything else of a history may not.
TIMES = {"seconds", "computing"}
D, SHAPE = 12, (6, 9)


def vectors(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(rng.standard_normal((5, D)), 3.0 * rng.standard_normal(5))


def full_rank(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(rng.standard_normal((D + 4, D)), 3.0 * rng.standard_normal(D + 4))


def sparse(rng: np.random.Generator) -> Objective:
    A = rng.standard_normal((7, D)) * (rng.random((7, D)) < 0.4)
    return dcgs.LeastSquares(sp.csr_array(A), 3.0 * rng.standard_normal(7))


def half_of_the_columns(rng: np.random.Generator) -> Objective:
    A = rng.standard_normal((7, D)) * (rng.permutation(D) < D // 2)
    return dcgs.LeastSquares(sp.csr_array(A), 3.0 * rng.standard_normal(7))


def many_columns(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(rng.standard_normal((5, 900)), 3.0 * rng.standard_normal(5))


def labels(rng: np.random.Generator) -> Objective:
    return dcgs.Logistic(rng.standard_normal((8, D)), rng.choice([-1.0, 1.0], size=8))


def by_columns(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(np.asfortranarray(rng.standard_normal((5, D))), rng.standard_normal(5))


def entries(rng: np.random.Generator) -> Objective:
    flat = rng.choice(SHAPE[0] * SHAPE[1], size=20, replace=False)
    return dcgs.MatrixCompletion(flat // SHAPE[1], flat % SHAPE[1], rng.standard_normal(20), SHAPE)


def squares(rng: np.random.Generator) -> Objective:
    return dcgs.LeastSquares(rng.standard_normal((5, 9)), rng.standard_normal(5), (3, 3))


def wide_entries(rng: np.random.Generator) -> Objective:
    flat = rng.choice(30 * 40, size=200, replace=False)
    return dcgs.MatrixCompletion(flat // 40, flat % 40, rng.standard_normal(200), (30, 40))


L1, L2 = dcgs.L1Ball(D, 2.0), dcgs.L2Ball(D, 1.5)
NUCLEAR = dcgs.NuclearNormBall(SHAPE, 4.0)
BOX = dcgs.Box(-0.3 * np.ones(D), 0.5 * np.ones(D))
HULL = dcgs.ConvexHull(np.random.default_rng(7).standard_normal((15, D)))
T1 = dcgs.Theorem1(horizon=10)
T2 = dcgs.Theorem2(horizon=10)

CASES: list[tuple[Method, ConvexSet, Make]] = [
    (dcgs.DCGS(inner="cg", schedule=T1), L1, vectors),
    (dcgs.DCGS(inner="cg", schedule=T1, answer="last"), NUCLEAR, entries),
    (dcgs.DCGS(inner=dcgs.CG(step="agnostic"), schedule=T1), L2, labels),
    (dcgs.DCGS(inner="pcg", schedule=T1), L1, vectors),
    (dcgs.DCGS(inner="pcg", schedule=T2, answer="last"), BOX, full_rank),
    (dcgs.DCGS(inner="pcg", schedule=T1), dcgs.BirkhoffPolytope(3), squares),
    (dcgs.DCGS(schedule=T2), HULL, full_rank),
    (dcgs.PrimalDual(schedule=T1), L2, vectors),
    (dcgs.PrimalDual(schedule=T1, precision=1e-6), L1, sparse),
    (dcgs.PrimalDual(schedule=T2, inner="cg", precision=1e-3, answer="last"), L2, full_rank),
    (dcgs.DFW(), NUCLEAR, entries),
    (dcgs.DFW(), dcgs.Simplex(D, 2.0), sparse),
    (dcgs.DFW(tracking=False), dcgs.KSparseBall(D, 3, 1.0), vectors),
    (dcgs.DFW(tracking=False), dcgs.Spectraplex(3, 2.0), squares),
    # With at most 64 unknowns these send Hessians.
    (dcgs.FastDCGS(), L1, vectors),
    (dcgs.FastDCGS(), L1, labels),
    (dcgs.FastDCGS(), HULL, vectors),
    (dcgs.FastDCGS(), L2, vectors),
    (dcgs.FastDCGS(), NUCLEAR, entries),
    (dcgs.FastDCGS(), dcgs.GroupL1Ball(D, [range(4), range(4, D)], 2.0), sparse),
    (dcgs.FastDCGS(form="edges"), L1, by_columns),
    (dcgs.FastDCGS(form="edges"), NUCLEAR, entries),
    (dcgs.FastDCGS(form="edges"), L2, full_rank),
    (dcgs.FastDCGS(form="edges", inner=Exact()), L2, vectors),
    (dcgs.FastDCGS(form="edges", inner="corrective"), BOX, labels),
    (dcgs.FastDCGS(inner="corrective"), dcgs.BirkhoffPolytope(3), squares),
    (dcgs.FastDCGS(form="sums", inner="pcg"), HULL, vectors),
    (dcgs.FastDCGS(form="sums"), L1, labels),
    (dcgs.FastDCGS(form="edges", inner="pcg", eta=2.0), L1, sparse),
    (dcgs.FastDCGS(form="sums", inner="cg", precision=0.5), L2, labels),
    (dcgs.FastDCGS(form="edges", inner="cg", stops_itself=False), NUCLEAR, entries),
    # Inner solves that end at max_steps, which a note counts; matrices of which a few triples are enough.
    (dcgs.DCGS(inner=dcgs.CG(max_steps=2), schedule=T1), L1, vectors),
    (dcgs.FastDCGS(form="edges"), dcgs.NuclearNormBall((30, 40), 4.0), wide_entries),
    (dcgs.PGExtra(), L1, vectors),
    (dcgs.PGExtra(laziness=0.0, step=0.01), NUCLEAR, entries),
    (dcgs.NIDS(), BOX, sparse),
    (dcgs.NIDS(step=0.02), dcgs.Spectraplex(3, 2.0), squares),
    (dcgs.ProjectedAGD(), L1, vectors),
    (dcgs.ProjectedAGD(gossip="exact"), L2, labels),
    (dcgs.ProjectedAGD(gossip="chebyshev"), NUCLEAR, entries),
    (dcgs.ProjectedAGD(gossip="repeated", gossip_rounds=3), dcgs.Simplex(D, 2.0), full_rank),
    (dcgs.FastDCGS(form="sums"), L1, half_of_the_columns),
    (dcgs.FastDCGS(form="root"), L1, labels),
    (dcgs.FastDCGS(form="root"), L1, half_of_the_columns),
    (dcgs.FastDCGS(form="root", inner="pcg"), HULL, vectors),
    # Sums in pieces, on a path.
    (dcgs.FastDCGS(link="1kB/s,1ms"), dcgs.NuclearNormBall((30, 40), 4.0), wide_entries),
    (dcgs.FastDCGS(form="sums", link="1kB/s,1ms"), dcgs.L1Ball(900, 2.0), many_columns),
]


@dataclass(frozen=True, eq=False)
class Problem:
    """All arguments of minimize except limits and checkpoints."""

    objectives: list[Objective]
    X: ConvexSet
    graph: nx.Graph
    method: Method

    def run(self, **rules: Any) -> Result:
        return dcgs.minimize(self.objectives, self.X, self.graph, self.method, **rules)


def problem(case: int, graph: nx.Graph, seed: int) -> Problem:
    method, X, make = CASES[case]
    rng = np.random.default_rng(seed)
    return Problem([make(rng) for _ in graph], X, graph, method)


def bits(array: Any) -> tuple[str, tuple[int, ...], bytes]:
    a = np.asarray(array)
    return a.dtype.str, a.shape, a.tobytes()


def everything(result: Result) -> dict[str, Any]:
    """Return all of a result that does not depend on the clock, arrays as their bits."""
    names = ("x", "agents", "rounds", "messages", "bytes", "lmo_calls", "projections", "iterations")
    parts = {name: bits(getattr(result, name)) for name in names}
    columns = result.history.columns().items()
    history = {f"history.{name}": bits(column) for name, column in columns if name not in TIMES}
    return parts | history | {"status": result.status, "notes": result.notes}


@pytest.fixture(autouse=True)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out fsync, which helps against a power failure only."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)


def once(seed: int = 0) -> Problem:
    """Return a small problem that all agents work on for some hundred iterations."""
    return problem(20, nx.cycle_graph(4), seed)


@pytest.mark.parametrize(
    "case", range(len(CASES)), ids=lambda i: f"{CASES[i][0]} {type(CASES[i][1]).__name__}"
)
def test_a_resumed_run_equals_the_uninterrupted_one_to_the_bit(case: int) -> None:
    """Each case has a graph, a gap, an interval and iterations of its own, at random."""
    rng = np.random.default_rng(case)
    name = rng.choice(sorted(GRAPHS))
    at = problem(case, GRAPHS["path" if getattr(CASES[case][0], "link", None) else name], case)
    stop, more, every = (int(rng.integers(*limits)) for limits in ((2, 13), (3, 13), (1, 7)))
    gap = [None, 1e-2, 1e-6][case % 3]
    whole = at.run(iterations=stop + more, gap=gap)
    if getattr(at.method, "link", None):
        assert whole.rounds > 2 * 2 * whole.iterations  # the tree has height 2, and sums are cut
    with tempfile.TemporaryDirectory() as folder:
        at.run(iterations=stop, gap=gap, checkpoint=Checkpoint(folder, every))
        resumed = at.run(iterations=stop + more, gap=gap, checkpoint=Checkpoint(folder, every, resume=True))
    assert everything(resumed) == everything(whole)


@pytest.mark.parametrize("every", [0, 4])
def test_bytes_of_rounds_that_were_not_measured_yet_are_in_a_checkpoint(every: int, tmp_path: Path) -> None:
    whole = once().run(iterations=11, every=every)
    once().run(iterations=6, every=every, checkpoint=Checkpoint(tmp_path, 1))
    resumed = once().run(iterations=11, every=every, checkpoint=Checkpoint(tmp_path, 1, resume=True))
    assert resumed.history.peak_bytes[-1] == whole.history.peak_bytes[-1] > 0


@pytest.mark.parametrize("threads", [1, 3])
def test_a_run_resumed_many_times_on_any_threads_equals_the_uninterrupted_one(
    threads: int, tmp_path: Path
) -> None:
    at = once()
    whole = at.run(iterations=20)
    runtime = dcgs.Lockstep(threads=threads)
    at.run(iterations=1, checkpoint=Checkpoint(tmp_path))
    for n in range(2, 20, 3):
        at.run(iterations=n, checkpoint=Checkpoint(tmp_path, resume=True), runtime=runtime)
    resumed = at.run(iterations=20, checkpoint=Checkpoint(tmp_path, resume=True))
    assert everything(resumed) == everything(whole)


def test_checkpoints_change_nothing_in_a_run(tmp_path: Path) -> None:
    at = once()
    assert everything(at.run(gap=1e-3, checkpoint=Checkpoint(tmp_path, every=2))) == everything(
        at.run(gap=1e-3)
    )


def test_a_run_whose_agents_agreed_ends_with_the_same_model_when_resumed(tmp_path: Path) -> None:
    at = once()
    first = at.run(gap=1e-3, checkpoint=Checkpoint(tmp_path, every=3))
    again = at.run(gap=1e-3, checkpoint=Checkpoint(tmp_path, every=3, resume=True))
    assert first.status is dcgs.Status.AGREED
    assert everything(again) == everything(first)


def test_a_run_that_the_observer_ended_at_a_checkpoint_does_not_go_on(tmp_path: Path) -> None:
    at = replace(once(), method=dcgs.FastDCGS(form="edges", stops_itself=False))
    first = at.run(gap=0.5, checkpoint=Checkpoint(tmp_path, every=1))
    again = at.run(gap=0.5, checkpoint=Checkpoint(tmp_path, every=1, resume=True))
    assert first.status is dcgs.Status.GAP
    assert everything(again) == everything(first)


def test_limits_on_calls_and_rounds_may_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    at = replace(once(), method=dcgs.FastDCGS("oracle", form="edges"))
    at.run(lmo_calls=40, checkpoint=Checkpoint(tmp_path, every=2))
    resumed = at.run(rounds=30, checkpoint=Checkpoint(tmp_path, every=2, resume=True))
    assert everything(resumed) == everything(at.run(rounds=30))


@pytest.mark.parametrize("every", [1, 2, 3, 5])
@pytest.mark.parametrize(("first", "then"), [(1e-2, 1e-4), (1e-3, 1e-2)])
def test_another_gap_than_at_the_start_is_noted_and_certified(
    first: float, then: float, every: int, tmp_path: Path
) -> None:
    """Also if some agents have the answer that ends the first run, and others do not have it yet."""
    at = replace(once(), graph=nx.path_graph(4))
    at.run(gap=first, checkpoint=Checkpoint(tmp_path, every))
    resumed = at.run(gap=then, checkpoint=Checkpoint(tmp_path, every, resume=True))
    assert resumed.status is dcgs.Status.AGREED
    assert f"started with gap {first!r} and resumed with gap {then!r}" in resumed.notes[0]
    certified, loss = resumed.about["certified"], resumed.history.worst_loss
    assert certified["gap"] <= then * certified["decrease"]
    best = float(at.run(gap=1e-8).history.worst_loss[-1])  # f* up to 1e-8 of the decrease, which is added
    assert loss[-1] - best <= (then + 1e-8) * (loss[0] - best)


def test_the_files_of_the_two_newest_iterations_stay(tmp_path: Path) -> None:
    once().run(iterations=17, checkpoint=Checkpoint(tmp_path, every=5))
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert names == {f"agent-{i:04}/{k:06}.dcgs" for i in range(4) for k in (15, 17)}


def newest(folder: Path) -> list[Path]:
    return [max((folder / f"agent-{i:04}").glob("*.dcgs")) for i in range(4)]


def spoil_truncated(path: Path, share: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(share * len(data))])


def spoil_flipped(path: Path, share: float) -> None:
    data = bytearray(path.read_bytes())
    data[int(share * (len(data) - 1))] ^= 0x10
    path.write_bytes(data)


@pytest.mark.parametrize("spoil", [spoil_truncated, spoil_flipped])
@pytest.mark.parametrize("share", [0.0, 1e-4, 0.2, 0.9, 1.0 - 1e-9])
def test_a_damaged_file_is_detected_and_the_checkpoint_before_is_used(
    spoil: Callable[[Path, float], None], share: float, tmp_path: Path
) -> None:
    at = once()
    whole = at.run(iterations=20)
    at.run(iterations=15, checkpoint=Checkpoint(tmp_path, every=5))
    spoil(newest(tmp_path)[2], share)
    resumed = at.run(iterations=20, checkpoint=Checkpoint(tmp_path, every=5, resume=True))
    assert resumed.about["checkpoint"]["resumed"] == 10
    assert len(resumed.notes) == 1
    assert "agent-0002/000015.dcgs' is damaged, and was ignored" in resumed.notes[0]
    assert everything(resumed) | {"notes": ()} == everything(whole)


@given(where=st.floats(0.0, 1.0), bit=st.integers(0, 7))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_flipped_bit_is_detected(where: float, bit: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "000001.dcgs"
        checkpoint_file.write_files({path: {"x": np.arange(5.0), "s": "word", "n": -0.0}})
        assert checkpoint_file.iteration_in(path) is not None
        data = bytearray(path.read_bytes())
        data[int(where * (len(data) - 1))] ^= 1 << bit
        path.write_bytes(data)
        assert checkpoint_file.iteration_in(path) is None


def test_a_run_of_which_only_some_agents_have_the_newest_checkpoint_resumes_from_the_one_all_have(
    tmp_path: Path,
) -> None:
    at = once()
    at.run(iterations=15, checkpoint=Checkpoint(tmp_path, every=5))
    newest(tmp_path)[1].unlink()
    resumed = at.run(iterations=20, checkpoint=Checkpoint(tmp_path, every=5, resume=True))
    assert resumed.about["checkpoint"]["resumed"] == 10
    assert everything(resumed) == everything(at.run(iterations=20))


def test_a_run_that_ended_before_its_first_checkpoint_starts_from_the_beginning(tmp_path: Path) -> None:
    at = once()
    at.run(rounds=3, checkpoint=Checkpoint(tmp_path, every=50))
    resumed = at.run(iterations=20, checkpoint=Checkpoint(tmp_path, every=50, resume=True))
    assert everything(resumed) == everything(at.run(iterations=20))


def test_without_a_complete_checkpoint_resume_true_is_refused(tmp_path: Path) -> None:
    at = once()
    with pytest.raises(
        ValueError, match=r"there must be a checkpoint to resume; .* has none that is complete"
    ):
        at.run(iterations=5, checkpoint=Checkpoint(tmp_path / "none", resume=True))
    started = at.run(iterations=5, checkpoint=Checkpoint(tmp_path / "auto", resume="auto"))
    assert started.about["checkpoint"]["resumed"] is None
    for path in newest(tmp_path / "auto"):
        path.unlink()
    (tmp_path / "auto" / "agent-0000" / "000000.dcgs").write_bytes(b"")
    for i in range(1, 4):
        (tmp_path / "auto" / f"agent-{i:04}" / "000000.dcgs").unlink()
    with pytest.raises(ValueError, match=r"none that is complete. the checkpoint .*000000.dcgs' is damaged"):
        at.run(iterations=5, checkpoint=Checkpoint(tmp_path / "auto", resume=True))


def test_agents_without_a_common_checkpoint_are_named(tmp_path: Path) -> None:
    at = once()
    at.run(iterations=5, checkpoint=Checkpoint(tmp_path, every=5))
    for path in (tmp_path / "agent-0002").iterdir():
        path.unlink()
    with pytest.raises(ValueError, match=r"all agents must have .* agents \[2\] have none"):
        at.run(iterations=9, checkpoint=Checkpoint(tmp_path, every=5, resume=True))


def test_a_new_run_does_not_overwrite_checkpoints(tmp_path: Path) -> None:
    at = once()
    at.run(iterations=5, checkpoint=Checkpoint(tmp_path))
    with pytest.raises(ValueError, match=r"must hold no checkpoints; .* has iterations \[0, 5\]. Resume"):
        at.run(iterations=5, checkpoint=Checkpoint(tmp_path))


def moved(graph: nx.Graph) -> nx.Graph:
    """Return a graph with as many edges, two of them elsewhere."""
    return nx.path_graph(4) if len(graph.edges) == 3 else nx.Graph([(0, 1), (1, 2), (2, 3), (1, 3)])


def other_data(at: Problem) -> list[Objective]:
    f = at.objectives[1]
    b = f.data()["b"] + np.array([0.0, 0.0, 1e-15, 0.0, 0.0])
    return [at.objectives[0], dcgs.LeastSquares(f.data()["A"], b), *at.objectives[2:]]


DIFFERENCES: dict[str, tuple[Callable[[Problem], Problem], dict[str, Any], str]] = {
    "data": (lambda at: replace(at, objectives=other_data(at)), {}, r"the data of agent 1 differ"),
    "set": (
        lambda at: replace(at, X=dcgs.L1Ball(D, 2.5)),
        {},
        r"made with set L1Ball\(.*radius=2.0\), the run has L1Ball\(.*radius=2.5\)",
    ),
    "graph": (lambda at: replace(at, graph=moved(at.graph)), {}, r"made with graph 4 nodes and 4 edges \["),
    "method": (
        lambda at: replace(at, method=dcgs.DFW()),
        {},
        r"made with method FastDCGS\(.*\), the run has DFW\(tracking=True\)",
    ),
    "seed": (lambda at: at, {"seed": 3}, r"made with seed 0, the run has 3"),
    "x0": (lambda at: at, {"x0": np.full(D, 0.01)}, r"made with x0 \[\w+\], the run has \[\w+\]"),
    "gap": (lambda at: at, {"gap": 1e-3}, r"made with certifies a gap no, the run has yes"),
    "limits": (lambda at: at, {"iterations": 7}, r"iterations must be at least the 8 of the checkpoint"),
    "rounds": (lambda at: at, {"rounds": 7}, r"rounds must be at least the 8 of the checkpoint .* got 7"),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_a_checkpoint_of_another_run_is_refused_and_the_difference_named(name: str, tmp_path: Path) -> None:
    at = once()
    other, rules, sentence = DIFFERENCES[name]
    at.run(iterations=8, checkpoint=Checkpoint(tmp_path))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*.dcgs")}
    with pytest.raises(ValueError, match=sentence):
        other(at).run(**{"iterations": 9} | rules, checkpoint=Checkpoint(tmp_path, resume=True))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*.dcgs")} == before


def test_a_checkpoint_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = once()
    at.run(iterations=8, checkpoint=Checkpoint(tmp_path))
    monkeypatch.setattr(fingerprint, "version", lambda name: "9.9")
    with pytest.raises(ValueError, match=r"made with dcgs \S+, the run has 9.9"):
        at.run(iterations=9, checkpoint=Checkpoint(tmp_path, resume=True))


def test_other_versions_of_what_computes_are_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at = once()
    at.run(iterations=8, checkpoint=Checkpoint(tmp_path))
    monkeypatch.setattr(build, "library_versions", lambda: {"numpy": "9.9"})
    resumed = at.run(iterations=9, checkpoint=Checkpoint(tmp_path, resume=True))
    assert "now 9.9: the last bits of results may differ" in resumed.notes[0]


def test_a_schedule_made_for_a_horizon_is_refused_for_another(tmp_path: Path) -> None:
    at = replace(once(), method=dcgs.DCGS())
    at.run(iterations=8, checkpoint=Checkpoint(tmp_path))
    with pytest.raises(ValueError, match=r"the schedule depends on the limits of the run, and they differ"):
        at.run(iterations=9, checkpoint=Checkpoint(tmp_path, resume=True))


def test_another_number_of_agents_is_refused(tmp_path: Path) -> None:
    once().run(iterations=8, checkpoint=Checkpoint(tmp_path))
    with pytest.raises(ValueError, match=r"agents \[4\] have none"):
        problem(20, nx.cycle_graph(5), 0).run(iterations=9, checkpoint=Checkpoint(tmp_path, resume=True))


@dataclass(frozen=True)
class Stateless(Inner):
    """A user's solver that declares no State."""

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        return dcgs.CG().start(task)


def test_a_solver_without_a_state_is_named_at_the_start(tmp_path: Path) -> None:
    for method in (dcgs.FastDCGS(inner=Stateless()), dcgs.DCGS(inner=Stateless())):
        at = replace(once(), method=method)
        with pytest.raises(
            ValueError, match=r"DCGS cannot be checkpointed: Stateless declares no State. Declare the state"
        ):
            at.run(iterations=5, checkpoint=Checkpoint(tmp_path / "new"))
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"every": 0}, "every must be a whole number of at least 1; got 0"),
        ({"resume": "yes"}, "resume must be 'auto', True or False; got 'yes'"),
    ],
)
def test_settings_of_a_checkpoint_are_checked(wrong: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Checkpoint("here", **wrong)


def test_a_checkpoint_of_a_wrong_type_is_refused() -> None:
    with pytest.raises(
        TypeError, match=r"checkpoint must be a dcgs.Checkpoint\(folder\), or None; got 'here'"
    ):
        once().run(iterations=1, checkpoint="here")
    with pytest.raises(ValueError, match=r"folder must be a path; got 3"):
        Checkpoint(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(("count", "saved"), [(18, 5), (22, 10)])
def test_a_full_disk_ends_the_run_with_a_sentence_and_earlier_checkpoints_stay(
    count: int, saved: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = once()
    calls = 0

    def full(handle: int) -> None:
        nonlocal calls
        calls += 1
        if calls > count:  # of four agents, four files and four folders: iterations 0 and 5, and some of 10
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(
            OSError, match=r"iteration 10 cannot be written to .*: No space left on device. Earl"
        ):
            at.run(iterations=20, checkpoint=Checkpoint(tmp_path, every=5))
    assert not list(tmp_path.rglob("*.part"))
    resumed = at.run(iterations=20, checkpoint=Checkpoint(tmp_path, every=5, resume=True))
    assert resumed.about["checkpoint"]["resumed"] == saved
    assert everything(resumed) == everything(at.run(iterations=20))


def test_all_files_of_a_process_are_written_before_the_disk_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def noted(handle: int) -> None:
        written.append(sum(path.stat().st_size > 0 for path in tmp_path.rglob("*.part")))

    monkeypatch.setattr(os, "fsync", noted)
    once().run(iterations=5, checkpoint=Checkpoint(tmp_path, every=5))
    # Of four agents first the files, then the folders in which they got their names: iterations 0 and 5.
    assert written == 2 * [4, 4, 4, 4, 0, 0, 0, 0]


@pytest.mark.parametrize("size", [100, 100_000])
def test_the_hash_of_data_sees_every_bit_their_order_and_their_shape(size: int) -> None:
    data = np.random.default_rng(0).standard_normal(size)
    others = [data.copy(), data[::-1].copy(), data[:-1].copy(), data.reshape(-1, 2), np.append(data, 0.0)]
    others[0].view(np.uint8)[size // 2] ^= 1
    hashes = [fingerprint.settings_of(array).rpartition("[")[2] for array in (data, data.copy(), *others)]
    assert hashes[0] == hashes[1]
    assert len(set(hashes)) == 1 + len(others)


def test_a_folder_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"cannot be written to .*file/inside': Not a directory"):
        once().run(iterations=5, checkpoint=Checkpoint(tmp_path / "file" / "inside"))


SIGNALS = [(signal.SIGINT, KeyboardInterrupt), (signal.SIGTERM, SystemExit)]


@pytest.mark.parametrize(("number", "raised"), SIGNALS)
def test_a_signal_ends_the_run_after_a_last_checkpoint(
    number: signal.Signals, raised: type[BaseException], tmp_path: Path
) -> None:
    at = once()

    def interrupt(snapshot: dcgs.Snapshot) -> None:
        if snapshot.iterations == 7:
            signal.raise_signal(number)

    before = [signal.getsignal(each) for each, _ in SIGNALS]
    with pytest.raises(raised) as caught:
        at.run(iterations=20, callback=interrupt, checkpoint=Checkpoint(tmp_path, every=50))
    assert [signal.getsignal(each) for each, _ in SIGNALS] == before
    assert isinstance(caught.value, KeyboardInterrupt) or caught.value.args == (143,)
    resumed = at.run(iterations=20, checkpoint=Checkpoint(tmp_path, every=50, resume=True))
    assert resumed.about["checkpoint"]["resumed"] == 8
    assert everything(resumed) == everything(at.run(iterations=20))


def test_a_second_signal_ends_the_run_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(snapshot: dcgs.Snapshot) -> None:
        if snapshot.iterations == 7:
            signal.raise_signal(signal.SIGINT)
            later = time.monotonic() + 1.0  # sooner it would be taken for the first one
            with monkeypatch.context() as patch:
                patch.setattr(time, "monotonic", lambda: later)
                signal.raise_signal(signal.SIGINT)

    at = once()
    with pytest.raises(KeyboardInterrupt):
        at.run(iterations=20, callback=interrupt, checkpoint=Checkpoint(tmp_path, every=3))
    resumed = at.run(iterations=20, checkpoint=Checkpoint(tmp_path, every=3, resume=True))
    assert resumed.about["checkpoint"]["resumed"] == 6
    assert everything(resumed) == everything(at.run(iterations=20))


# An interpreter that forks a process for each line n it reads. The process kills itself at the n-th fsync or
# rename.
SERVER = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from test_checkpoint import medium
from dcgs import Checkpoint

def killing(call, left):
    def called(*args):
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*args)
    return called

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        left = [int(line)]
        os.fsync, os.replace = killing(lambda handle: None, left), killing(os.replace, left)
        checkpoint = Checkpoint({folder!r}, every=2, resume="auto")
        medium().run(iterations=30, checkpoint=checkpoint).save({out!r})
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def medium() -> Problem:
    return problem(18, nx.cycle_graph(5), 4)


def test_a_process_killed_at_any_write_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    rng = np.random.default_rng(11)
    out, folder = tmp_path / "result.npz", tmp_path / "saved"
    code = SERVER.format(tests=str(Path(__file__).parent), folder=str(folder), out=str(out))
    # Three calls for each file of five agents: within the first files, and up to four iterations later.
    kills = [1, 2, 3, *rng.integers(10, 60, size=4).tolist()]
    lines = "\n".join(map(str, [*kills, 10**9])) + "\n"
    server = subprocess.run(
        [sys.executable, "-c", code], input=lines, capture_output=True, text=True, check=True
    )
    assert [int(end) for end in server.stdout.split()] == [-signal.SIGKILL] * len(kills) + [0]
    assert not list(folder.rglob("*.part"))
    assert everything(Result.load(out)) == everything(medium().run(iterations=30))


KINDS: list[np.dtype[Any]] = [np.dtype("f8"), np.dtype("i8"), np.dtype("i4")]
arrays: st.SearchStrategy[Array] = hnp.arrays(
    st.sampled_from(KINDS),
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4),
)


@given(array=arrays, fortran=st.booleans(), cut=st.integers(0, 3), frozen=st.booleans())
@settings(deadline=None, derandomize=True)
def test_an_array_is_restored_with_its_bits_and_its_memory_layout(
    array: Array, fortran: bool, cut: int, frozen: bool
) -> None:
    there = np.asarray(array, order="F" if fortran else "C")[..., : array.shape[-1] - cut]
    there.flags.writeable = not frozen
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_file.write_files({Path(folder) / "a": {"one": there, "two": [there]}})
        back: Any = checkpoint_file.read_file(Path(folder) / "a")
    assert back["one"] is back["two"][0]
    assert bits(back["one"]) == bits(there)
    assert back["one"].flags.writeable == there.flags.writeable
    assert there.size == 0 or back["one"].strides == there.strides


numbers = st.floats(allow_nan=False) | st.integers() | st.booleans() | st.none() | st.text()
plain_values = st.recursive(
    numbers, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text("abc"), each, max_size=3)
)


@given(plain=plain_values)
@settings(max_examples=50, deadline=None, derandomize=True)
def test_plain_values_are_restored(plain: Any) -> None:
    with tempfile.TemporaryDirectory() as folder:
        checkpoint_file.write_files({Path(folder) / "a": {"plain": plain}})
        assert repr(checkpoint_file.read_file(Path(folder) / "a")) == repr({"plain": plain})


@pytest.mark.parametrize("odd", [np.int64(1), np.array(["a"]), object()])
def test_a_value_that_is_not_plain_is_refused(odd: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"must hold (plain values and arrays|numbers); got"):
        checkpoint_file.write_files({tmp_path / "a": {"odd": odd}})
    assert not list(tmp_path.iterdir())


def test_a_file_of_a_later_format_is_refused(tmp_path: Path) -> None:
    once().run(iterations=5, checkpoint=Checkpoint(tmp_path))
    path = newest(tmp_path)[0]
    data = bytearray(path.read_bytes())
    data[7] = 9
    path.write_bytes(data[:-32] + hashlib.sha256(data[:-32]).digest())
    with pytest.raises(ValueError, match=r"must be of format 8; .* has 9. Resume with the version"):
        once().run(iterations=9, checkpoint=Checkpoint(tmp_path, resume=True))


POINTS = 100_000
LARGE: dict[str, tuple[Method, ConvexSet, Make]] = {
    "DFW": (
        dcgs.DFW(),
        dcgs.L1Ball(POINTS, 5.0),
        lambda rng: dcgs.LeastSquares(rng.standard_normal((4, POINTS)), rng.standard_normal(4)),
    ),
    "DCGS": (
        dcgs.DCGS(inner="cg", schedule=T1),
        dcgs.NuclearNormBall((250, 400), 50.0),
        lambda rng: dcgs.MatrixCompletion(range(250), range(250), rng.standard_normal(250), (250, 400)),
    ),
}


@pytest.mark.parametrize("name", LARGE)
def test_runs_that_save_and_resume_hold_at_most_12_points_per_agent(name: str, tmp_path: Path) -> None:
    method, X, make = LARGE[name]
    rng = np.random.default_rng(8)
    at = Problem([make(rng) for _ in range(3)], X, nx.path_graph(3), method)
    held = []
    for resume in (False, True):
        tracemalloc.start()
        at.run(
            iterations=6 if resume else 3,
            runtime=dcgs.Lockstep(threads=1),
            checkpoint=Checkpoint(tmp_path, every=1, resume=resume),
        )
        held.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Beside points there is a Lanczos basis of 64 kB, the history and small change.
    assert max(held) <= 12 * 3 * 8 * POINTS + 300_000


def test_files_that_other_processes_may_still_resume_from_stay(tmp_path: Path) -> None:
    """Agents of other processes may be behind by one checkpoint."""
    at = Checkpoint(tmp_path)
    manager = CheckpointManager(at, [0], None, SingleProcess())
    at.file(0, 0).parent.mkdir()
    for k in range(0, 70, 10):
        at.file(0, k).touch()
    manager.delete_old(60)
    assert sorted(at.files(0)) == [50, 60]


def test_the_newest_iteration_that_all_have_is_taken() -> None:
    assert common([[10, 20, 30], [20, 10], [30, 20, 10]]) == 20
    assert common([[10], [20]]) is None
    assert common([[], [20]]) is None


def test_in_another_thread_a_run_saves_its_state_and_catches_no_signals(tmp_path: Path) -> None:
    before = signal.getsignal(signal.SIGINT)
    handlers = []
    with ThreadPoolExecutor(1) as pool:
        pool.submit(
            once().run,
            iterations=5,
            checkpoint=Checkpoint(tmp_path),
            callback=lambda snapshot: handlers.append(signal.getsignal(signal.SIGINT)),
        ).result()
    assert set(handlers) == {before}
    assert len(newest(tmp_path)) == 4


@pytest.mark.parametrize(
    ("name", "case", "gap"),
    [
        ("path", 20, 0.1),
        ("random of 7", 20, 0.03),
        ("star", 14, 1e-6),
        ("complete", 18, 1e-4),
        ("star", 27, 1e-4),
    ],
)
def test_a_run_that_certifies_its_gap_can_be_resumed_from_any_of_its_iterations(
    name: str, case: int, gap: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate takes three epochs, here of at most five rounds; its state must not be lost."""
    monkeypatch.setattr(CheckpointManager, "delete_old", lambda manager, k: None)
    at = problem(case, GRAPHS[name], 3)
    whole = at.run(gap=gap, checkpoint=Checkpoint(tmp_path, every=1))
    assert whole.status is dcgs.Status.AGREED
    saved = Checkpoint(tmp_path, every=10**6, resume=True)
    for k in reversed(range(max(1, whole.iterations - 16), whole.iterations)):
        resumed = at.run(gap=gap, checkpoint=saved)
        assert resumed.about["checkpoint"]["resumed"] == k
        assert everything(resumed) == everything(whole)
        for i in range(len(at.objectives)):
            saved.file(i, k).unlink()


@pytest.mark.parametrize("stacked", [False, True])
def test_a_restored_active_set_sums_in_the_same_order(stacked: bool) -> None:
    rng = np.random.default_rng(2)
    S = ActiveSet.of(Vertex(rng.standard_normal(D)), (D,))
    for place in range(6):
        S.append(Vertex(rng.standard_normal(D)) if place % 3 else Spike(place, 2.0, (D,)))
    S.drop(1)
    S.drop(2)
    S.weights[:] = rng.dirichlet(np.ones(len(S)))
    for _ in range(stacked):
        S.stack()
    restored = from_plain(ActiveSet, to_plain(S))
    direction = rng.standard_normal(D)
    assert restored.atoms == S.atoms
    assert bits(restored.dots(direction)) == bits(S.dots(direction))
    assert bits(restored.dense()) == bits(S.dense())
    assert repr(to_plain(restored)) == repr(to_plain(S))
