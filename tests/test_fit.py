"""``dcgs fit``: its models are those of ``dcgs.minimize``, and what cannot be has a sentence."""

from __future__ import annotations

import errno
import json
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
import scipy.sparse as sp

import dcgs
from dcgs.cli import main
from dcgs.learn.files.folder import models_in
from dcgs.learn.files.layout import SamplesLayout
from dcgs.learn.files.model import Model, RatingsFile, load_model
from dcgs.learn.files.rows import Preparation, RowsLoader
from dcgs.learn.files.source import DataSource
from dcgs.learn.files.specs import PROBLEMS
from dcgs.learn.sums import Reductions
from dcgs.runtime import Runtime
from dcgs.sets import ConvexSet
from fit_runs import patient
from thread_runtime import OverThreads
from thread_transport import Network

RNG = np.random.default_rng(0)
A = RNG.standard_normal((24, 6))
B = A @ [1.0, -0.5, 0.0, 0.0, 0.25, 0.0] + 0.1 * RNG.standard_normal(24)
SIGNS = np.where(B > 0.0, 1.0, -1.0)
M = RNG.standard_normal((6, 2)) @ RNG.standard_normal((2, 6))
ROWS, COLS = np.divmod(np.sort(RNG.permutation(36)[:24]), 6)


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("d.npy", np.column_stack([A, B]))
    np.save("c.npy", np.column_stack([A, SIGNS]))
    np.savez("r.npz", rows=ROWS, cols=COLS, values=M[ROWS, COLS])
    for i in range(3):
        np.savez(f"site-{i}.npz", A=A[8 * i : 8 * i + 8], b=B[8 * i : 8 * i + 8])


def plain(command: str) -> str:
    """Return a fit to all rows as they are, as ``dcgs.minimize`` would: no intercept, no scales, no page."""
    own = "" if "completion" in command else "--no-intercept --no-standardize --held-out 0"
    return f"{command} --no-report {own}" if command.startswith("fit") else command


def run(command: str) -> int:
    return main(shlex.split(plain(command)))


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        run(command)
    assert ended.value.code == 2
    return capsys.readouterr().err


def written(folder: str = "m") -> list[Model]:
    return [Model.load(file) for file in models_in(Path(folder))]


def points(folder: str = "m") -> np.ndarray[Any, Any]:
    return np.stack([model.x for model in written(folder)])


def summary(folder: str = "m") -> dict[str, Any]:
    printed: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return printed


def squares(parts: int = 3) -> list[dcgs.Objective]:
    size = len(B) // parts
    return [dcgs.LeastSquares(A[i : i + size], B[i : i + size]) for i in range(0, len(B), size)]


BY_HAND: dict[str, tuple[str, list[dcgs.Objective], ConvexSet]] = {
    "lasso": ("d.npy --radius 1.5", squares(), dcgs.L1Ball(6, radius=1.5)),
    "least-squares": ("d.npy --radius 0.8", squares(), dcgs.L2Ball(6, radius=0.8)),
    "logistic": (
        "c.npy --radius 4",
        [dcgs.Logistic(A[i : i + 8], SIGNS[i : i + 8]) for i in (0, 8, 16)],
        dcgs.L1Ball(6, radius=4.0),
    ),
    "completion": (
        "r.npz --shape 6,6 --radius 8",
        [
            dcgs.MatrixCompletion(ROWS[i : i + 8], COLS[i : i + 8], M[ROWS, COLS][i : i + 8], (6, 6))
            for i in (0, 8, 16)
        ],
        dcgs.NuclearNormBall((6, 6), radius=8.0),
    ),
}


@pytest.mark.parametrize("problem", [problem for problem in PROBLEMS if problem != "completion"])
def test_models_are_those_of_minimize_to_the_bit(problem: str) -> None:
    data, objectives, X = BY_HAND[problem]
    assert run(f"fit {problem} --data {data} --agents 3 --rounds 30 --seed 5 --out m") == 0
    result = dcgs.minimize(objectives, X, nx.cycle_graph(3), rounds=30, every=0, seed=5)
    np.testing.assert_array_equal(points(), result.agents)
    printed = summary()
    assert (printed["status"], printed["rounds"]) == (str(result.status), result.rounds)
    for name in ("messages", "bytes", "lmo_calls"):
        assert [agent[name] for agent in printed["agents"]] == getattr(result, name).tolist()


def test_a_file_for_each_agent_gives_the_models_of_one_file() -> None:
    assert run("fit lasso --data d.npy --agents 3 --graph path --radius 1.5 --out one") == 0
    assert run("fit lasso --data site-{rank}.npz --open --graph path --radius 1.5 --out each") == 0
    np.testing.assert_array_equal(points("one"), points("each"))
    assert list(summary("each")["data"]["files"]) == ["site-0.npz", "site-1.npz", "site-2.npz"]


def test_the_same_numbers_in_any_format_give_the_same_models() -> None:
    np.savetxt("d.csv", np.column_stack([B, A]), "%.17g", ",", header="y,a,b,c,d,e,f", comments="")
    pairs = [" ".join(f"{j + 1}:{v!r}" for j, v in enumerate(row.tolist())) for row in A]
    Path("d.svm").write_text("".join(f"{b!r} {line}\n" for b, line in zip(B.tolist(), pairs, strict=True)))
    for data in ("d.npy", "d.csv --target y", "d.svm"):
        assert run(f"fit lasso --data {data} --agents 3 --radius 1.5 --rounds 20 --force --out m") == 0
        # A sparse matrix sums in another order than a dense one.
        np.testing.assert_allclose(points(), points_of_lasso(), rtol=1e-9, atol=1e-12)


def points_of_lasso() -> Any:
    X = dcgs.L1Ball(6, radius=1.5)
    return dcgs.minimize(squares(), X, nx.cycle_graph(3), rounds=20, every=0).agents


def test_random_and_sorted_splits_give_each_agent_the_right_rows() -> None:
    order = np.random.default_rng(7).permutation(24)
    by_target = np.argsort(B, kind="stable")
    for split, rows in (("random", order), ("sorted", by_target)):
        parts = [dcgs.LeastSquares(A[rows[i : i + 8]], B[rows[i : i + 8]]) for i in (0, 8, 16)]
        by_hand = dcgs.minimize(
            parts, dcgs.L1Ball(6, radius=1.5), nx.cycle_graph(3), rounds=9, every=0, seed=7
        )
        command = "fit lasso --data d.npy --agents 3 --radius 1.5 --rounds 9 --seed 7 --force --out m"
        assert run(f"{command} --split {split}") == 0
        np.testing.assert_array_equal(points(), by_hand.agents)


def _set_files() -> None:
    np.save("low.npy", np.linspace(-1.0, 0.0, 6))
    np.save("points.npy", np.vstack([np.eye(6), -np.eye(6)]))
    np.savetxt("points.csv", np.vstack([np.eye(6), -np.eye(6)]), delimiter=",")
    np.save("matrices.npy", np.stack([np.eye(6), -np.eye(6), np.ones((6, 6))]))
    np.savez(
        "p.npz", A_ub=np.vstack([np.eye(6), -np.eye(6)]), b_ub=np.ones(12), A_eq=np.ones((1, 6)), b_eq=[1.0]
    )
    eye = sp.csr_array(np.vstack([np.eye(6), -np.eye(6)]))
    np.savez(
        "sparse-p.npz",
        A_ub_data=eye.data,
        A_ub_indices=eye.indices,
        A_ub_indptr=eye.indptr,
        A_ub_shape=eye.shape,
        b_ub=np.ones(12),
    )
    Path("groups.txt").write_text("a\nb\na\nc\nb\nc\n")


CORNERS = np.vstack([np.eye(6), -np.eye(6)])
MATRICES = np.stack([np.eye(6), -np.eye(6), np.ones((6, 6))])
VECTORS = "fit lasso --data d.npy"
MATRIX = "fit completion --data r.npz --shape 6,6 --no-offsets --split even --held-out 0"
MADE: dict[str, tuple[str, ConvexSet]] = {
    f"{VECTORS} --set l1 --radius 2": ("l1", dcgs.L1Ball(6, 2.0)),
    f"{VECTORS} --set l2 --radius 2": ("l2", dcgs.L2Ball(6, 2.0)),
    f"{VECTORS} --set linf --radius 0.5": ("linf", dcgs.LInfBall(6, 0.5)),
    f"{VECTORS} --set simplex": ("simplex", dcgs.Simplex(6)),
    f"{VECTORS} --set simplex --radius 2": ("simplex", dcgs.Simplex(6, 2.0)),
    f"{VECTORS} --set box --lower 0 --upper 1": ("box", dcgs.Box(np.zeros(6), np.ones(6))),
    f"{VECTORS} --set box --lower low.npy --upper 1": (
        "box",
        dcgs.Box(np.linspace(-1.0, 0.0, 6), np.ones(6)),
    ),
    f"{VECTORS} --set k-sparse --k 2 --radius 1": ("k-sparse", dcgs.KSparseBall(6, 2)),
    f"{VECTORS} --set group-l1 --groups 2 --radius 1": (
        "group-l1",
        dcgs.GroupL1Ball(6, [[0, 1], [2, 3], [4, 5]]),
    ),
    f"{VECTORS} --set group-l1 --groups groups.txt --radius 1": (
        "group-l1",
        dcgs.GroupL1Ball(6, [[0, 2], [1, 4], [3, 5]]),
    ),
    f"{VECTORS} --set hull --points points.npy": ("hull", dcgs.ConvexHull(CORNERS)),
    f"{VECTORS} --set hull --points points.csv": ("hull", dcgs.ConvexHull(CORNERS)),
    f"{VECTORS} --set polytope --polytope p.npz": (
        "polytope",
        dcgs.Polytope(CORNERS, np.ones(12), np.ones((1, 6)), [1.0]),
    ),
    f"{VECTORS} --set polytope --polytope sparse-p.npz": ("polytope", dcgs.Polytope(CORNERS, np.ones(12))),
    f"{MATRIX} --radius 3": ("nuclear", dcgs.NuclearNormBall((6, 6), 3.0)),
    f"{MATRIX} --set l1 --radius 3": ("l1", dcgs.L1Ball((6, 6), 3.0)),
    f"{MATRIX} --set spectraplex --radius 2": ("spectraplex", dcgs.Spectraplex(6, 2.0)),
    f"{MATRIX} --set birkhoff": ("birkhoff", dcgs.BirkhoffPolytope(6)),
    f"{MATRIX} --set hull --points matrices.npy": ("hull", dcgs.ConvexHull(MATRICES)),
}


@pytest.mark.parametrize("command", MADE)
def test_every_set_is_the_one_of_the_library(command: str) -> None:
    _set_files()
    _, X = MADE[command]
    objectives = squares() if command.startswith(VECTORS) else BY_HAND["completion"][1]
    by_hand = dcgs.minimize(objectives, X, nx.cycle_graph(3), iterations=4, every=0)
    assert run(f"{command} --agents 3 --iterations 4 --out m") == 0
    if command.startswith(VECTORS):
        np.testing.assert_array_equal(points(), by_hand.agents)
        return
    files = [load_model(file) for file in models_in(Path("m"))]
    matrices = [np.asarray(file.agent.model.x) for file in files if isinstance(file, RatingsFile)]
    # Models of matrices are written in factors, which are exact up to rounding.
    np.testing.assert_allclose(matrices, np.stack(list(by_hand.agents)), rtol=1e-12, atol=1e-13)


SET_FAULTS = {
    f"{VECTORS}": "the set l1 needs --radius: how large a model may be",
    f"{VECTORS} --set box --lower 0": "the set box needs --upper: a number, or an .npy file",
    f"{VECTORS} --set k-sparse --radius 1": "the set k-sparse needs --k",
    f"{VECTORS} --set simplex --k 2": "the set simplex takes --radius; got --k. Leave it out.",
    f"{MATRIX} --set birkhoff --radius 2": "the set birkhoff takes no option; got --radius.",
    f"{VECTORS} --set nuclear --radius 2": "the set nuclear must be of matrices; the model has shape 6.",
    f"{VECTORS} --set birkhoff": "the set birkhoff must be of square matrices; the model has shape 6.",
    f"{MATRIX} --set polytope --polytope p.npz": "must be of vectors; the model has shape 6,6.",
    f"{VECTORS} --set hull --points matrices.npy": "models of shape 6; hull as given is of shape 6,6.",
    f"{VECTORS} --set hull --points none.npy": "none.npy must be a file that can be read",
    f"{VECTORS} --set box --lower points.npy --upper 1": "lower must be a number or an array of shape 6;",
    f"{VECTORS} --set polytope --polytope r.npz": "must have arrays A_ub and b_ub, or A_eq and b_eq",
    f"{VECTORS} --set group-l1 --radius 1 --groups d.svm": "must have a line for each of the 6 features",
    f"{VECTORS} --set group-l1 --radius 1 --groups gap.txt": "line 2 of gap.txt must name a group",
}


@pytest.mark.parametrize("command", SET_FAULTS)
def test_an_impossible_set_ends_with_its_error_message(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _set_files()
    Path("d.svm").write_text("1 1:2\n")
    Path("gap.txt").write_text("a\n\na\nb\nb\nb\n")
    assert SET_FAULTS[command] in refused(f"{command} --agents 3 --out m", capsys)
    assert not Path("m").exists()


METHODS: dict[str, dcgs.Method] = {
    "fastdcgs --eta 3 --inner cg": dcgs.FastDCGS(eta=3.0, inner="cg"),
    "dcgs --inner pcg --answer last": dcgs.DCGS(inner="pcg", answer="last"),
    "dfw": dcgs.DFW(),
    "primaldual --inner pcg": dcgs.PrimalDual(inner="pcg"),
    "pgextra --step 0.01": dcgs.PGExtra(step=0.01),
    "nids": dcgs.NIDS(),
    "projectedagd": dcgs.ProjectedAGD(),
}


@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_the_one_of_the_library(method: str) -> None:
    assert (
        run(f"fit lasso --data d.npy --agents 3 --radius 1.5 --iterations 5 --method {method} --out m") == 0
    )
    X = dcgs.L1Ball(6, radius=1.5)
    by_hand = dcgs.minimize(squares(), X, nx.cycle_graph(3), METHODS[method], iterations=5, every=0)
    np.testing.assert_array_equal(points(), by_hand.agents)
    assert summary()["method"] == repr(METHODS[method])


RULES = {
    "--gap 1e-2": "the agents agreed that the gap they certified reached its target.",
    "--rounds 3": "the limit on rounds was reached.",
    "--iterations 3": "the limit on iterations was reached.",
    "--seconds 1e-9": "the limit on seconds was reached.",
    "--lmo-calls 2": "the limit on oracle calls was reached.",
    "--method dfw --gap 0.5": "the agents agreed that the gap they certified reached its target.",
    "--method-option stops_itself=False --gap 0.5 --measure": "the certified gap reached its target.",
}


@pytest.mark.parametrize("rule", RULES)
def test_every_stopping_rule_ends_a_run(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(f"fit lasso --data d.npy --agents 3 --radius 1.5 {rule} --out m") == 0
    assert summary()["status"] == RULES[rule]
    assert RULES[rule] in capsys.readouterr().out


def test_losses_on_all_data_are_measured_only_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    command = "fit lasso --data d.npy --agents 3 --radius 1.5 --iterations 6 --force --out m"
    assert run(f"{command} --measure 2") == 0
    assert "worst_loss" in capsys.readouterr().out
    X = dcgs.L1Ball(6, radius=1.5)
    by_hand = dcgs.minimize(squares(), X, nx.cycle_graph(3), iterations=6, every=2)
    assert summary()["measures"]["worst_loss"] == by_hand.history.worst_loss[-1]
    lines = Path("m/history.csv").read_text().splitlines()
    assert len(lines) == 1 + len(by_hand.history)
    measured = points()
    assert run(command) == 0
    assert "loss" not in capsys.readouterr().out
    assert "measures" not in summary()
    assert not Path("m/history.csv").exists()
    np.testing.assert_array_equal(points(), measured)


LASSO = "fit lasso --data d.npy --radius 1.5 --rounds 2 --out m"
COMPLETION = "fit completion --radius 2 --rounds 2 --agents 1 --out m --data"
UNLIMITED = "fit lasso --data d.npy --radius 1 --agents 3 --out m"
FAULTS = {
    f"{UNLIMITED} --method-option stops_itself=False": "must have a limit; got none.",
    f"{LASSO} --agents 3 --method-option stops_itself=False --gap 0.1": "only if it is measured during",
    f"{LASSO} --agents 3 --method dfw --eta 2": "--eta must be left out for dfw; it is for fastdcgs.",
    f"{LASSO} --agents 3 --step 2": "--step must be left out for fastdcgs; it is for nids, pgextra,",
    f"{LASSO} --agents 3 --set l2 --method dcgs --inner pcg": "pcg needs a set with finitely many",
    f"{LASSO} --agents 3 --method nids --lmo-calls 3": "lmo_calls must be None for NIDS, which projects",
    LASSO: "the number of agents must be given for one file of data; give --agents N",
    f"{LASSO} --agents 25": "agents must be a whole number between 1 and 24",
    f"{LASSO} --agents 3 --shape 2,3": "--shape must be left out for lasso",
    f"{LASSO} --agents 3 --one-based": "--zero-based or --one-based must be left out for lasso",
    f"{COMPLETION} r.npz --target 2": "--target must be left out for completion",
    f"{COMPLETION} none.csv": "none.csv must be a file that can be read",
    f"{COMPLETION} r.npz --shape 6,5": "a column must be from 0 to 4, for shape 6,5 counted from 0; entry",
    f"{LASSO} --data site-{{agent}}.npz --open --agents 2": "Give --agents 3, or move the file away.",
    f"{LASSO} --data site-{{agent}}.npz --open --agents 4": "site-3.npz must be a file that can be read",
    f"{LASSO} --data none-{{agent}}.npz --open": "there is no none-0.npz",
    f"{LASSO} --agents 3 --out d.npy": "d.npy must be a folder that can be written",
    f"{LASSO} --agents 3 --graph d.csv": "got 'd.csv', and there is no such file",
}


@pytest.mark.parametrize("command", FAULTS)
def test_an_impossible_fit_ends_with_its_error_message(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert FAULTS[command] in refused(command, capsys)
    assert not Path("m").exists()


@pytest.mark.parametrize(
    "option", ["--radius 0", "--radius x", "--gap 2", "--agents 0", "--set none", "--shape 3", "--shape 0,2"]
)
def test_invalid_values_of_options_print_the_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "usage: dcgs fit" in refused(f"fit lasso --data d.npy --out m {option}", capsys)


def test_any_two_labels_are_mapped_to_minus_and_plus_one_and_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    command = "fit logistic --agents 3 --radius 4 --rounds 9 --force --out m --data"
    assert run(f"{command} c.npy") == 0
    expected = points()
    for low, high in ((0.0, 1.0), (1.0, 2.0), (-7.5, 3.0)):
        np.save("l.npy", np.column_stack([A, np.where(SIGNS > 0, high, low)]))
        assert run(f"{command} l.npy") == 0
        assert f"label {low:.12g} was mapped to -1 and {high:.12g} to +1" in capsys.readouterr().out
        np.testing.assert_array_equal(points(), expected)
        assert written()[0].reading.labels == (low, high)


def test_an_agent_may_have_rows_of_one_class_only() -> None:
    assert run("fit logistic --data c.npy --split sorted --agents 4 --radius 4 --rounds 9 --out m") == 0


def test_labels_must_be_of_two_classes(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("l.npy", np.column_stack([A, [1.0] * 24]))
    printed = refused("fit logistic --data l.npy --agents 2 --radius 1 --out m", capsys)
    assert "there must be two classes; all rows are of one class, 1." in printed


def test_libsvm_files_of_different_widths_get_the_largest_width() -> None:
    Path("s-0.svm").write_text("1 1:1\n2 1:2\n")
    Path("s-1.svm").write_text("1 3:1\n2 2:1 4:1\n")
    assert run("fit lasso --data s-{agent}.svm --open --radius 1 --rounds 2 --out m") == 0
    assert points().shape == (2, 4)
    assert run("fit lasso --data s-{agent}.svm --open --radius 1 --rounds 2 --features 9 --out wide") == 0
    assert points("wide").shape == (2, 9)


def test_an_index_above_the_given_features_names_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s-0.svm").write_text("1 1:1\n2 5:2\n")
    printed = refused("fit lasso --data s-{agent}.svm --open --radius 1 --features 4 --out m", capsys)
    assert "line 2 of s-0.svm must have indices from 1 to 4" in printed


def test_the_files_of_all_agents_must_have_the_same_columns(capsys: pytest.CaptureFixture[str]) -> None:
    np.savez("site-1.npz", A=A[:, :4], b=B)
    printed = refused("fit lasso --data site-{agent}.npz --open --radius 1 --out m", capsys)
    assert "all sites must have the same features; agent 1 (site-1.npz) has 4, and 6 are asked for" in printed
    Path("t-0.csv").write_text("a,b,y\n1,2,3\n")
    Path("t-1.csv").write_text("b,c,y\n1,2,3\n")
    printed = refused("fit lasso --data t-{agent}.csv --open --radius 1 --out m", capsys)
    assert (
        "same columns; agent 0 (t-0.csv) has no column 'c'; agent 1 (t-1.csv) has no column 'a'." in printed
    )


def load(problem: str, source: DataSource, runtime: Runtime) -> Any:
    """Load the data of those of four agents that a process hosts."""
    loader = RowsLoader(source, SamplesLayout(), Preparation(), problem == "logistic")
    return loader.load(Reductions(nx.cycle_graph(4), runtime))


def load_in_two_processes(problem: str, source: DataSource) -> list[Any]:
    """Load in two processes, each of which hosts two agents."""
    return Network(2).run(lambda transport: load(problem, source, OverThreads(transport)))


@pytest.mark.parametrize("problem", ["lasso", "logistic"])
def test_two_processes_load_the_same_objectives_as_one(problem: str) -> None:
    for i in range(4):
        signs = np.full(3, 2.0) if i > 1 else np.full(3, 1.0)  # each process alone has one class
        pairs = "".join(f"{signs[k]} 1:{k + i} {i + 2}:1\n" for k in range(3))  # and another width
        Path(f"s-{i}.svm").write_text(pairs)
    source = DataSource("s-{rank}.svm")
    alone = load(problem, source, dcgs.Lockstep())
    parts = load_in_two_processes(problem, source)
    assert [sorted(part.fitted) for part in parts] == [[0, 1], [2, 3]]
    for part in parts:
        assert (part.schema.width, part.reading) == (alone.schema.width, alone.reading)
        for i, site in part.fitted.items():
            assert site.A.toarray().tolist() == alone.fitted[i].A.toarray().tolist()
            assert site.targets.tolist() == alone.fitted[i].targets.tolist()


def test_existing_models_are_replaced_only_with_force(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit lasso --data d.npy --radius 1.5 --agents 4 --rounds 2 --out m") == 0
    before = points()
    printed = refused("fit lasso --data d.npy --radius 1 --agents 3 --rounds 2 --out m", capsys)
    assert "must hold no models; m holds agent-000.npz and 4 files more" in printed
    np.testing.assert_array_equal(points(), before)
    assert run("fit lasso --data d.npy --radius 1 --agents 3 --rounds 2 --force --out m") == 0
    assert [file.name for file in sorted(Path("m").iterdir())] == [
        "agent-000.npz",
        "agent-001.npz",
        "agent-002.npz",
        "ledger-000.jsonl",
        "summary.json",
    ]


def test_a_full_disk_ends_with_an_error_message_and_leaves_the_old_files(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "fit lasso --data d.npy --radius 1.5 --agents 3 --rounds 2"
    assert run(f"{command} --out old") == 0
    before = points("old")
    calls: list[int] = []

    def full(*_: object, **__: object) -> None:
        calls.append(1)
        if len(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("dcgs.learn.files.model.np.savez_compressed", full)
    printed = refused(f"{command} --out m", capsys)
    assert "m must be a folder that can be written; No space left on device. No incomplete file" in printed
    assert not Path("m").exists()
    calls.clear()
    refused(f"{command} --seed 2 --force --out old", capsys)
    np.testing.assert_array_equal(points("old"), before)
    assert [file.name for file in Path("old").iterdir() if "part" in file.name] == []


def test_ctrl_c_prints_one_sentence_and_writes_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dcgs.learn.linear.fit.minimize", interrupted)
    assert run("fit lasso --data d.npy --radius 1.5 --agents 3 --out m") == 130
    assert "interrupted: no model was written." in capsys.readouterr().out
    assert not Path("m").exists()


def test_a_process_that_is_interrupted_ends_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    command = "fit lasso --data d.npy --radius 1.5 --agents 3 --method dfw --seconds 1000 --out m"
    process = subprocess.Popen(
        [sys.executable, "-m", "dcgs", *shlex.split(command)],
        env=patient(tmp_path / "patient"),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("lasso: 1 round, ")  # the run has begun
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=600)
    assert process.returncode == 130, printed + errors
    assert "interrupted: no model was written." in printed
    assert "Traceback" not in errors
    assert not Path("m").exists()


def test_other_files_in_the_output_folder_stay() -> None:
    Path("m").mkdir()
    Path("m/notes.txt").write_text("mine")
    assert run("fit lasso --data d.npy --radius 1.5 --agents 3 --rounds 2 --force --out m") == 0
    assert Path("m/notes.txt").read_text() == "mine"


def test_the_summary_says_how_to_repeat_the_run() -> None:
    command = "fit lasso --data d.npy --radius 1.5 --agents 3 --rounds 2 --seed 3 --out 'my model'"
    assert run(command) == 0
    printed = summary("my model")
    assert printed["command"] == f"dcgs {plain(command)}"
    assert printed["versions"]["dcgs"] == dcgs.__version__
    assert (printed["seed"], printed["set"]) == (3, {"name": "l1", "radius": 1.5})
    assert len(printed["data"]["files"]["d.npy"]) == 64
    assert [agent["rows"] for agent in printed["agents"]] == [8, 8, 8]


def test_progress_does_not_change_the_counters(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit lasso --data d.npy --radius 1.5 --agents 3 --rounds 7 --out m") == 0
    assert "7 rounds" in capsys.readouterr().out
    assert summary()["rounds"] == 7


def test_the_table_is_limited_to_twenty_agents(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("fit lasso --data d.npy --radius 1.5 --agents 24 --rounds 2 --out m") == 0
    assert "and 4 agents more, in summary.json" in capsys.readouterr().out
    assert len(summary()["agents"]) == 24
