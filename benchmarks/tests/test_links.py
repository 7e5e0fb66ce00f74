"""The benchmark of real links: its pure parts anywhere, and a small run where root may make namespaces."""

from __future__ import annotations

import doctest
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import analysis
import dcgs
import instances
import lockstep_run
import mpich
import netns
import output
import problem
import recorder
import run
import timetable
from dcgs.datasets import completion_synthetic
from dcgs.link import Link
from dcgs.low_rank import LowRank
from dcgs_bench.entries import entry_named
from dcgs_bench.instances import INSTANCES, LARGE, instance_named
from dcgs_bench.optimum import Optimum
from dcgs_bench.rounds import GridStudy, RoundsGrid
from dcgs_bench.study import Records, StudyProblem
from recorder import Recorded, Recorder

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "benchmarks" / "links" / "results.json"
KEPT_INSTANCES = KEPT.with_name("instances.json")


def namespaces_work() -> bool:
    """Return whether root runs this and the machine lets it make a namespace."""
    if netns.refusal() is not None:
        return False
    name = f"dcgs-links-{netns.identity(os.getpid())}-0"
    made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True).returncode == 0
    subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    return made


needs_namespaces = pytest.mark.skipif(
    not namespaces_work(), reason="needs root, iproute2 and a machine that lets it make network namespaces"
)


@pytest.mark.parametrize(
    "module", [analysis, lockstep_run, mpich, netns, output, problem], ids=lambda module: module.__name__
)
def test_the_examples_in_the_benchmark_are_true(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


# Refusals


def test_a_user_who_is_not_root_gets_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("shutil.which", lambda name, path=None: f"/sbin/{name}")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert run.main([]) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("links: only root may make network namespaces")
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("system", "path", "printed"),
    [("darwin", None, "must be Linux's"), ("linux", "/nowhere", "ip and tc must be on the path")],
)
def test_a_machine_without_the_tools_is_refused(system: str, path: str | None, printed: str) -> None:
    reason = netns.refusal(root=True, system=system, path=path)
    assert reason is not None
    assert printed in reason


def test_data_that_are_not_there_are_asked_for_before_anything_is_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(netns, "refusal", lambda: None)
    assert run.main(["--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    assert "grouplens.org" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "printed"),
    [
        (["--methods", "dfw,adam"], "got adam."),
        (["--methods", ","], "got none."),
        (["--seconds", "0"], "must be a positive number of seconds"),
        (["--agents", "1"], "must be between 2 and 200"),
        (["--link", "fast"], "such as 10MB/s"),
        (["--instances", "lasso-papers"], "invalid choice: 'lasso-papers'"),
        (["--instances", "lasso-paper", "--seconds", "9"], "must stand without --seconds:"),
        (["--instances", "lasso-paper", "--quick", "--agents", "3"], "without --agents and --quick:"),
        (["--instances", "lasso-paper", "--methods", "dfw,dcgs-last"], "pg-extra; got dcgs-last."),
        (["--instances", "lasso-paper", "--link", "10MB/s,5ms"], "no latency of their own; got 0.005 s."),
        (["--instances", "lasso-paper", "--repeats", "0"], "must be at least 1; got '0'."),
    ],
)
def test_what_cannot_be_run_is_refused(
    argv: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        run.parsed(argv)
    assert caught.value.code == 2
    assert printed in capsys.readouterr().err


def test_methods_that_finish_no_iteration_run_for_a_third_of_the_time_unless_seconds_are_given() -> None:
    own = run.Plan([], 10, None, Link(), False, Path("out"))
    assert {key for key in problem.ENTRIES if own.limit(key) == 30.0} == {
        "dcgs-average",
        "dcgs-last",
        "dcgs-scaled",
        "primal-dual",
    }
    assert own.limit("fast-dcgs") == 90.0
    assert run.Plan([], 10, 600.0, Link(), False, Path("out")).limit("dcgs-last") == 600.0


def test_every_instance_of_the_time_table_can_be_named() -> None:
    names = [one.name for one in (*INSTANCES, *LARGE)]
    assert run.parsed(["--instances", *names]).instances == names


# Commands


def test_the_host_is_not_connected() -> None:
    made = netns.Network(3, "7-100")
    commands = made.commands()
    assert [" ".join(c) for c in commands[:4]] == [f"ip netns add {name}" for name in made.names]
    links = [c for c in commands if c[:3] == ["ip", "link", "add"]]
    # Both ends of every pair are made in namespaces, and all else is done inside one.
    assert [c.count("netns") for c in links] == [2, 2, 2]
    others = [c for c in commands[4:] if c not in links]
    assert {c[1] for c in others} == {"-n"}
    assert {c[2] for c in others} == set(made.names)


def test_every_link_has_large_frames_and_an_address_of_its_own() -> None:
    commands = [" ".join(c) for c in netns.Network(10, "7-100").commands()]
    assert sum(c.count("mtu 9000") for c in commands) == 2 * 10 + 1
    addresses = [c.split()[5] for c in commands if "addr add" in c]
    assert len(set(addresses)) == 11


def test_ten_megabytes_a_second_are_eighty_megabits() -> None:
    command = netns.shaping(10e6)
    assert command[command.index("rate") + 1] == "80000000bit"
    assert command[command.index("dev") + 1] == netns.INTERFACE


def test_the_launcher_enters_the_namespace_of_the_address(tmp_path: Path) -> None:
    fake = tmp_path / "ip"
    fake.write_text('#!/bin/sh\nfor word in "$@"; do echo "[$word]"; done\n')
    enter = tmp_path / "enter"
    enter.write_text(mpich.launcher("7-100"))
    for script in (fake, enter):
        script.chmod(0o755)
    printed = subprocess.run(
        [str(enter), "-x", "10.77.0.3", '"proxy"', "--port", "10.77.0.254:4"],
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert printed.split("\n")[:6] == [
        "[netns]",
        "[exec]",
        "[dcgs-links-7-100-2]",
        "[sh]",
        "[-c]",
        '["proxy" --port 10.77.0.254:4]',
    ]


def test_mpiexec_starts_where_everyone_reaches_it_and_not_over_shared_memory(tmp_path: Path) -> None:
    made = netns.Network(2, "7-100")
    command = mpich.Launcher(made, tmp_path).command(["rank.py", "dfw"])
    assert command[:4] == ["ip", "netns", "exec", made.hub]
    assert command[command.index("-hosts") + 1] == "10.77.0.1,10.77.0.2"
    assert command[command.index("-launcher-exec") + 1] == str(tmp_path / "enter")
    assert " -genv FI_PROVIDER tcp " in " ".join(command)
    assert command[-3:] == [sys.executable, "rank.py", "dfw"]


def test_a_process_is_known_by_its_number_and_its_start() -> None:
    mine = netns.identity(os.getpid())
    pid, started = mine.split("-")
    stale = f"{pid}-{int(started) + 1}"
    names = [f"dcgs-links-{mine}-0", f"dcgs-links-{stale}-0", f"dcgs-links-{stale}-hub", "dcgs-links-x"]
    assert netns.leftovers(names, netns._is_running) == names[1:3]


# What is recorded and computed


class Ends:
    """A small problem of three agents, and its evaluator."""

    def __init__(self, folder: Path) -> None:
        data = completion_synthetic(side=12, rank=2, entries=90, seed=1)
        self.known, self.held_out = problem.write_shares(folder, data, 3, 40.0)
        self.evaluator = analysis.Evaluator(self.known, self.held_out, 3)
        self.problem = problem.ProblemFolder(folder)


@pytest.fixture(scope="module")
def ends(tmp_path_factory: pytest.TempPathFactory) -> Ends:
    return Ends(tmp_path_factory.mktemp("problem"))


def test_each_agent_has_its_own_ratings_and_nobody_elses(ends: Ends) -> None:
    whole = ends.known.objectives(3)
    x = np.random.default_rng(0).standard_normal((12, 12))
    assert [ends.problem.objective(i).value(x) for i in range(3)] == [f.value(x) for f in whole]
    with np.load(ends.problem.folder / "places.npz") as places:
        assert set(places.files) == {"rows", "cols"}  # and no values


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30, deadline=None, derandomize=True)
def test_samples_of_models_give_the_losses_of_the_models(ends: Ends, seed: int) -> None:
    models = np.random.default_rng(seed).standard_normal((3, 12, 12))
    rows, cols = ends.problem.places()
    found = ends.evaluator.losses(models[:, rows, cols])
    objectives = ends.known.objectives(3)
    on_all = [sum(f.value(x) for f in objectives) for x in models]
    wanted = {
        "worst_loss": max(on_all),
        "mean_loss": sum(f.value(models.mean(axis=0)) for f in objectives),
        "local_loss": sum(f.value(x) for f, x in zip(objectives, models, strict=True)),
        "test_rmse": max(
            float(np.sqrt(np.mean((x[ends.held_out.rows, ends.held_out.cols] - ends.held_out.values) ** 2)))
            for x in models
        ),
    }
    # Sums of a hundred numbers in another order.
    assert found == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("key", problem.ENTRIES)
def test_a_recorder_changes_nothing_of_a_run(key: str, ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "sent_on_wire", lambda: 0)
    method = problem.ENTRIES[key].make(ends.problem.facts["distance"])
    notes = Recorder(lambda x: np.asarray(x)[0], speed=None)

    def solve(chosen: dcgs.Method) -> dcgs.Result:
        objectives = ends.known.objectives(3)
        once = dcgs.Lockstep(threads=1)
        return dcgs.minimize(
            objectives, ends.problem.ball, ends.problem.graph, chosen, rounds=6, runtime=once
        )

    plain, recorded = solve(method), solve(Recorded(method, notes))
    np.testing.assert_array_equal(list(map(np.asarray, recorded.agents)), list(map(np.asarray, plain.agents)))
    assert recorded.bytes.tolist() == plain.bytes.tolist()
    # What was noted is all that was sent, but for a message that no round took; the graph is a cycle.
    assert sum(notes.sent[: 3 * plain.rounds]) == pytest.approx(plain.bytes.sum() / 2, rel=1e-12)
    assert recorded.rounds == plain.rounds
    # Three agents take a step before the first message and after each; every answer is sampled.
    assert len(notes.steps) == 3 * (plain.rounds + 1)
    assert len(notes.waits) == 3 * plain.rounds
    assert len(notes.samples) == 3 * plain.iterations


def record(steps: Any, sent: Any) -> analysis.Record:
    nothing = np.zeros((2, 0))
    return analysis.Record([], np.array(steps), np.array(sent), nothing, nothing, nothing)


def test_the_model_adds_the_slowest_of_each_step_and_the_largest_message() -> None:
    # Two agents, three steps of (seconds, CPU seconds), two rounds.
    noted = record(
        [[[1.0, 0.5], [2.0, 0.5], [0.5, 0.5]], [[3.0, 0.25], [1.0, 1.0], [0.25, 0.25]]],
        [[10e6, 20e6], [10e6, 10e6]],
    )
    measured = analysis.Model.of(noted, Link(10e6), 2, cpu=False)
    assert measured.computing.tolist() == [3.0, 2.0, 0.5]
    assert measured.traveling.tolist() == [2.0, 4.0]
    assert measured.seconds == 11.5
    assert measured.waiting_share == 6.0 / 11.5
    assert [measured.at(step) for step in range(3)] == [3.0, 7.0, 11.5]
    alone = analysis.Model.of(noted, Link(10e6), 1, cpu=True)
    assert alone.seconds == 0.5 + 1.0 + 0.5 + 3.0


def noted(folder: Path, i: int, looks: int, rounds: int, done: int) -> None:
    notes = Recorder(lambda x: x, speed=None)
    notes.steps, notes.sent, notes.waits = [(1.0, 0.5)] * (rounds + 1), [8] * (rounds + 1), [0.1] * rounds
    for _ in range(looks):
        notes.observed(np.ones(4))
    notes.save(folder / f"dfw-{i}.npz")
    (folder / f"dfw-{i}.json").write_text(json.dumps({"rounds": rounds, "iterations": done}))


@pytest.mark.parametrize(("done", "shape"), [(0, (2, 0)), (2, (2, 2, 4))])
def test_an_iteration_counts_when_all_have_finished_it(
    tmp_path: Path, done: int, shape: tuple[int, ...]
) -> None:
    noted(tmp_path, 0, done + 1, 3, done)
    noted(tmp_path, 1, done, 3, done)
    found = analysis.Record.read(tmp_path, "dfw", 2)
    assert found.samples.shape[: len(shape)] == shape
    assert found.steps.shape == (2, 4, 2)
    assert found.sent.shape == found.waits.shape == (2, 3)  # a message that nobody got is not one


def made_up(label: str) -> dict[str, Any]:
    return {
        "label": label,
        "seconds": 90.5,
        "rounds": 30,
        "iterations": 15,
        "lmo_calls": 15,
        "projections": 0,
        "bytes": [1_000_000, 1_000_000],
        "wire": [1_004_000, 1_010_000],
        "waiting_share": {"mean": 0.912, "most": 0.934},
        "predicted": {"seconds": 88.0},
        "own_core": {"seconds": 80.0, "waiting_share": 0.981},
        "history": {
            name: [4.0, value]
            for name, value in {
                "seconds": 90.0,
                "own_core": 79.0,
                "worst_loss": 3.0,
                "mean_loss": 2.5,
                "local_loss": 0.5,
            }.items()
        },
    }


@pytest.fixture
def results() -> dict[str, Any]:
    row = {"bytes": 80_000, "seconds": 0.02, "ideal": 0.016, "ratio": 1.25, "wire_over_bytes": 1.01}
    return {
        "environment": {"machine": {"cores": 2}},
        "problem": "a problem",
        "link": "10 MB/s",
        "agents": 2,
        "exchange": [row],
        "runs": [made_up("DFW")],
    }


def test_the_tables_say_what_was_measured(results: dict[str, Any]) -> None:
    lines = output.tables(results).splitlines()
    assert "| 0.08 MB | 0.020 | 0.016 | 1.25 | 1.0100 |" in lines
    assert "| DFW | 90.5 | 30 | 91% (93%) | 88.0 | 80.0 | 98.1% | 1 | +0.4 to 1.0% |" in lines
    assert "| DFW | 15 | 15 | 3 | 2.5 | 0.5 |" in lines


def test_who_finished_nothing_is_named_in_the_figure(results: dict[str, Any]) -> None:
    results["runs"].append(made_up("DCGS") | {"iterations": 0})
    (legend,) = output.figure(results).legends
    assert [text.get_text() for text in legend.get_texts()] == ["DFW", "DCGS (no iteration finished)"]


def test_the_papers_loss_is_never_drawn_alone(results: dict[str, Any]) -> None:
    for axes in output.figure(results).axes:
        worst, own = axes.lines
        assert np.asarray(worst.get_ydata()).tolist() == [4.0, 3.0]
        assert np.asarray(own.get_ydata()).tolist() == [4.0, 0.5]


# Instances of the time table


def small_problem(kind: str) -> StudyProblem:
    """Return a problem of four agents of each kind of data that instances have."""
    rng = np.random.default_rng(0)
    graph = instance_named("quick-completion").make(0).graph
    parts = [(rng.standard_normal((6, 5)), rng.standard_normal(6)) for _ in range(4)]
    if kind == "completion":
        return instance_named("quick-completion").make(0)
    if kind == "logistic":
        return StudyProblem([dcgs.Logistic(A, np.sign(b)) for A, b in parts], dcgs.L1Ball(5, 2.0), graph)
    if kind == "sparse":
        sparse = [dcgs.LeastSquares(sp.csr_array(A * (A > 0.3)), b) for A, b in parts]
        return StudyProblem(sparse, dcgs.L1Ball(5, 2.0), graph)
    return StudyProblem([dcgs.LeastSquares(A, b) for A, b in parts], dcgs.L2Ball(5, 0.5), graph)


@pytest.mark.parametrize("kind", ["completion", "logistic", "sparse", "dense"])
def test_agents_read_the_problem_that_was_written(kind: str, tmp_path: Path) -> None:
    made = small_problem(kind)
    instances.write_instance(tmp_path, made)
    read = instances.InstanceFolder(tmp_path)
    assert read.ball == made.X
    assert sorted(read.graph.nodes) == sorted(made.graph.nodes)
    assert {frozenset(edge) for edge in read.graph.edges} == {frozenset(edge) for edge in made.graph.edges}
    x = np.random.default_rng(1).standard_normal(made.X.shape)
    for i, f in enumerate(made.objectives):
        own = read.objective(i)
        assert own.value(x) == f.value(x)
        np.testing.assert_array_equal(own.grad(x), f.grad(x))
        assert sp.issparse(own.data().get("A")) == sp.issparse(f.data().get("A"))


def test_a_set_that_no_instance_has_is_refused(tmp_path: Path) -> None:
    made = small_problem("dense")
    with pytest.raises(ValueError, match="must be one of L1Ball, L2Ball, NuclearNormBall; it is a Simplex"):
        instances.write_instance(tmp_path, StudyProblem(made.objectives, dcgs.Simplex(5), made.graph))


def test_a_reference_ends_where_the_time_table_does(tmp_path: Path) -> None:
    chosen = instance_named("quick-lasso")
    grid = RoundsGrid(GridStudy(Records(tmp_path), 600.0), 1e-3)
    made = chosen.make(0)
    found = lockstep_run.reference(grid, chosen, "fast-dcgs", made)
    error = float(found.optimum.relative(lockstep_run.worst_loss(made, found.models)))
    assert error <= 1e-3
    trial = grid.trial(chosen, entry_named("FastDCGS"))
    assert trial is not None
    assert trial.costs[1e-3] is not None
    assert found.rounds == trial.costs[1e-3].rounds


def test_a_checksum_is_that_of_the_matrix_whoever_has_its_rows() -> None:
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((4, 2)), rng.standard_normal((3, 2))
    parts = [LowRank(U[rows], V, (4, 3), np.array(rows)) for rows in ([0, 2], [1, 3])]
    whole = [LowRank(U, V, (4, 3))] * 2
    assert lockstep_run.checksum(parts) == lockstep_run.checksum(whole)
    moved = [parts[0], LowRank(np.nextafter(U[[1, 3]], 9.0), V, (4, 3), np.array([1, 3]))]
    assert lockstep_run.checksum(parts) != lockstep_run.checksum(moved)


def write_repeat(folder: Path, repeat: int, seconds: float) -> None:
    """Write what two agents have recorded in two rounds, the second of which begins 0.1 s later."""
    for i, (steps, sent) in enumerate(
        [
            ([(0.1, 0.05), (0.2, 0.1), (0.1, 0.1)], 2_000_000),
            ([(0.3, 0.01), (0.1, 0.02), (0.2, 0.2)], 1_000_000),
        ]
    ):
        notes = Recorder(lambda x: x, speed=None)
        notes.steps, notes.began, notes.ended = list(steps), 5.0 + 0.1 * i, 5.0 + seconds - 0.5 * i
        notes.save(folder / f"nids-{repeat}-{i}.npz")
        facts = {"method": "NIDS()", "rounds": 2, "bytes": sent, "wire": sent + 1000, "latency": 0.25}
        (folder / f"nids-{repeat}-{i}.json").write_text(json.dumps(facts))
        instances.save_model(folder / f"model-nids-{repeat}-{i}.npz", np.full(3, float(repeat)))


@pytest.fixture
def recorded_instance(tmp_path: Path) -> instances.InstanceFolder:
    (tmp_path / "facts.json").write_text(json.dumps({"agents": 2}))
    # Of 2 and 1 MB, most went in the first round here and in the second there.
    np.save(tmp_path / "nids-bytes-0.npy", np.array([1.8e6, 0.2e6]))
    np.save(tmp_path / "nids-bytes-1.npy", np.array([0.1e6, 0.9e6]))
    for repeat, seconds in enumerate([4.0, 1.0, 2.0]):
        write_repeat(tmp_path, repeat, seconds)
    return instances.InstanceFolder(tmp_path)


def test_the_median_repeat_is_modeled_by_its_slowest_steps_and_the_busiest_agent_of_each_round(
    recorded_instance: instances.InstanceFolder,
) -> None:
    found = timetable.measured(recorded_instance, "nids", 3, Link(10e6))
    assert found["seconds_of_repeats"] == [4.0, 1.0, 2.0]
    assert (found["repeat"], found["seconds"], found["rounds"], found["agents"]) == (2, 2.0, 2, 2)
    # By hand: 0.3 + 0.2 + 0.2, CPU seconds 0.05 + 0.1 + 0.2.
    assert found["computing"] == pytest.approx({"shared": 0.7, "own_core": 0.35}, rel=1e-12)
    # 1.8 + 0.9 MB at 10 MB/s, and then two rounds of 0.25 s.
    wanted = {"shared": 0.97, "own_core": 0.62, "latency": 1.47}
    assert found["peak_bytes"] == 2_700_000
    assert found["model"] == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, []),
        ({"rounds": 3}, ["rounds"]),
        ({"bytes": [1, 2]}, ["bytes"]),
        ({"models": [np.full(3, 2.0), np.full(3, np.nextafter(2.0, 3.0))]}, ["models"]),
    ],
)
def test_a_run_that_is_not_that_of_lockstep_is_named(
    change: dict[str, Any], differs: list[str], recorded_instance: instances.InstanceFolder
) -> None:
    same: dict[str, Any] = {"rounds": 2, "bytes": [2_000_000, 1_000_000], "models": [np.full(3, 2.0)] * 2}
    known = lockstep_run.Reference(optimum=Optimum(1.0, 5.0, 0.0, 1), **(same | change))
    found = timetable.measured(recorded_instance, "nids", 3, Link(10e6))
    compared = timetable.compared(recorded_instance, found, known, lambda models: float(models[0].sum()))
    assert compared["differs"] == differs
    assert (compared["worst_loss"], compared["relative"]) == (6.0, 1.25)


def test_the_time_table_is_read_without_its_latency() -> None:
    path = ROOT / "benchmarks" / "time.json"
    first = json.loads(path.read_text())["instances"]["lasso-paper"]["trials"][0]
    cost = first["costs"]["1e-03"]
    assert first["entry"] == "FastDCGS"
    assert timetable.recorded(path, "lasso-paper", "FastDCGS", Link(10e6)) == pytest.approx(
        cost["computing"] + cost["peak_bytes"] / 10e6, rel=1e-12
    )
    assert timetable.recorded(path, "quick-lasso", "FastDCGS", Link(10e6)) is None


@pytest.fixture
def instance_results() -> dict[str, Any]:
    run = {
        "instance": "lasso-paper",
        "key": "fast-dcgs",
        "agents": 10,
        "rounds": 1053,
        "bytes": [5_390_000, 5_000_000],
        "wire": [5_400_000, 5_100_000],
        "seconds": 1.0,
        "latency": 0.002,
        "peak_bytes": 6_000_000,
        "model": {"shared": 0.8, "own_core": 0.75, "latency": 0.9},
        "table": None,
        "relative": 0.00091,
        "differs": [],
    }
    made = {
        "versions": {"dcgs": "0.7.0"},
        "machine": {"processor": "a processor", "cores": 2},
        "load": [0.04, 0.0, 0.0],
    }
    return {"environment": made, "link": "10 MB/s", "level": 1e-3, "runs": [run]}


def test_the_table_of_instances_says_what_was_measured(instance_results: dict[str, Any]) -> None:
    *_, row = timetable.instance_table(instance_results).splitlines()
    assert row == (
        "| lasso-paper (10) | FastDCGS | 1,053 | 5.39 | 6 | +0.2 to 2.0% | 1 | 0.8 | 1.25 | 2 | 0.9 | 1.11 "
        "| 0.75 | – | 9.10e-04 |"
    )


def test_the_summary_has_the_machine_its_load_and_the_range_of_ratios(
    instance_results: dict[str, Any],
) -> None:
    instance_results["runs"].append(instance_results["runs"][0] | {"seconds": 2.7})
    assert timetable.instance_summary(instance_results) == (
        "Measured with dcgs 0.7.0, a processor, 2 cores, load 0.0 at the start. Measured seconds are 1.25 to "
        "3.38 times the model's, and 1.11 to 3.00 times those of the model with bare rounds."
    )


def test_the_figure_of_instances_has_both_models_and_the_diagonal(instance_results: dict[str, Any]) -> None:
    (axes,) = timetable.instance_figure(instance_results).axes
    points = [np.asarray(drawn.get_offsets()).tolist() for drawn in axes.collections]
    assert points == [[[0.8, 1.0]], [[0.9, 1.0]]]
    (diagonal,) = axes.lines
    assert np.asarray(diagonal.get_xdata()).tolist() == np.asarray(diagonal.get_ydata()).tolist()


# The recorded run


def test_what_was_counted_crossed_the_wire() -> None:
    kept = json.loads(KEPT.read_text())
    assert [each["key"] for each in kept["runs"]] == list(problem.ENTRIES)
    for each in kept["runs"]:
        more = np.array(each["wire"]) / np.array(each["bytes"]) - 1.0
        assert len(more) == kept["agents"]
        # Headers and acknowledgments by the bytes; heartbeat messages by the second, a few kilobytes in each.
        counted = np.array(each["bytes"])
        assert (more >= 0.0).all()
        assert (more * counted < 0.03 * counted + 10e3 * each["seconds"]).all()


def test_the_docs_show_the_tables_of_the_recorded_run() -> None:
    page = (ROOT / "docs" / "links.md").read_text()
    rows = [line for line in output.tables(json.loads(KEPT.read_text())).splitlines() if line.startswith("|")]
    assert [row for row in rows if row not in page] == []
    longer = output.tables(json.loads(KEPT.with_name("longer.json").read_text())).splitlines()
    assert [row for row in longer if row.startswith("| DCGS") and row not in page] == []


def test_recorded_instances_are_the_runs_of_lockstep_to_the_level() -> None:
    kept = json.loads(KEPT_INSTANCES.read_text())
    assert kept["failed"] == {}
    assert len({each["instance"] for each in kept["runs"]}) >= 3
    for each in kept["runs"]:
        assert each["differs"] == []
        assert each["relative"] <= kept["level"]
        assert min(each["seconds_of_repeats"]) <= each["seconds"] <= max(each["seconds_of_repeats"])
        # All messages crossed the links, with headers, acknowledgments and heartbeat messages.
        assert all(on >= of for on, of in zip(each["wire"], each["bytes"], strict=True))
        # The busiest agent of a round sends at least as much as the busiest agent of the run does in it.
        assert each["peak_bytes"] >= max(each["bytes"])


def test_the_docs_show_the_table_of_the_recorded_instances() -> None:
    page = (ROOT / "docs" / "links.md").read_text()
    kept = json.loads(KEPT_INSTANCES.read_text())
    assert timetable.instance_table(kept) in page
    assert timetable.instance_summary(kept) in page


# For real


def names() -> list[str]:
    return [name for name in netns._listed() if netns.identity(os.getpid()) in name]


@needs_namespaces
def test_a_network_is_gone_after_an_interruption_and_was_never_the_hosts() -> None:
    before = sorted(os.listdir("/sys/class/net"))

    def interrupted() -> None:
        with netns.network(2) as made:
            assert sorted(names()) == sorted(made.names)
            assert sorted(os.listdir("/sys/class/net")) == before
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert names() == []


@needs_namespaces
def test_what_a_killed_run_left_is_removed_with_its_processes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    # A process that is long over: its number is mine, its start is not.
    left = netns.Network(1, f"{os.getpid()}-1")
    for command in left.commands():
        subprocess.run(command, check=True)
    sleeper = subprocess.Popen(["ip", "netns", "exec", left.name(0), "sleep", "600"])
    while not subprocess.run(["ip", "netns", "pids", left.name(0)], capture_output=True, check=True).stdout:
        time.sleep(0.02)
    work = tmp_path / f"dcgs-links-{left.owner}-work"
    work.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    removed = netns.clean()
    assert {*left.names, work.name} <= set(removed)
    assert not work.exists()
    assert sleeper.wait() == -9
    assert set(left.names) & set(netns._listed()) == set()


@needs_namespaces
def test_agents_in_namespaces_send_what_is_counted_and_learn(tmp_path: Path) -> None:
    program: Sequence[str] = [sys.executable, str(ROOT / "benchmarks" / "links" / "run.py")]
    options = ["--quick", "--agents", "3", "--seconds", "600", "--rounds", "20", "--methods", "nids"]
    done = subprocess.run(
        [*program, *options, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "results.json").read_text())
    for each in results["runs"]:
        assert each["rounds"] == 20
        # Messages are small here, so that headers weigh more; by shared memory nothing would cross.
        assert all(of <= on <= 1.2 * of + 50_000 for on, of in zip(each["wire"], each["bytes"], strict=True))
        assert each["history"]["worst_loss"][-1] < each["history"]["worst_loss"][0]
    assert (tmp_path / "links.png").read_bytes().startswith(b"\x89PNG")
    assert str(tmp_path) in done.stdout


@needs_namespaces
def test_an_instance_over_real_links_is_the_run_of_lockstep(tmp_path: Path) -> None:
    program: Sequence[str] = [sys.executable, str(ROOT / "benchmarks" / "links" / "run.py")]
    options = ["--instances", "quick-completion", "--methods", "fast-dcgs", "--repeats", "1"]
    done = subprocess.run(
        [*program, *options, "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (each,) = json.loads((tmp_path / "instances.json").read_text())["runs"]
    assert each["differs"] == []
    assert each["relative"] <= 1e-3
    assert all(of <= on for on, of in zip(each["wire"], each["bytes"], strict=True))
