"""``dcgs predict``: a model applied to new data, in every format, with and without targets."""

from __future__ import annotations

import csv
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

from dcgs.cli import main
from dcgs.learn.files.model import Model

RNG = np.random.default_rng(1)
A = RNG.standard_normal((30, 4))
B = A @ [2.0, 0.0, -1.0, 0.5] + 0.05 * RNG.standard_normal(30)
LABELS = np.where(B > 0.0, 5.0, 3.0)
M = RNG.standard_normal((5, 1)) @ RNG.standard_normal((1, 4))
ROWS, COLS = np.divmod(np.arange(20), 4)
NAMES = ["a", "b", "c", "d"]


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    table("d.csv", [*NAMES, "y"], np.column_stack([A, B]))
    table("c.csv", [*NAMES, "y"], np.column_stack([A, LABELS]))
    table("r.csv", ["user", "item", "rating"], np.column_stack([ROWS + 1, COLS + 1, M[ROWS, COLS]]))


def table(file: str, names: list[str], numbers: Any) -> None:
    lines = [",".join(map(repr, row)) for row in np.asarray(numbers, dtype=float).tolist()]
    Path(file).write_text("\n".join([",".join(names), *lines]) + "\n")


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 2
    return capsys.readouterr().err


MODELS: dict[str, dict[str, bytes]] = {}


def fitted(problem: str) -> Model:
    """Put a fitted folder ``m`` here; each problem is fitted once."""
    data = {"lasso": "d.csv --radius 3", "logistic": "c.csv --radius 20"}
    if problem not in MODELS:
        run(f"fit {problem} --data {data[problem]} --agents 3 --rounds 40 --out m")
        MODELS[problem] = {file.name: file.read_bytes() for file in Path("m").iterdir()}
    Path("m").mkdir(exist_ok=True)
    for name, content in MODELS[problem].items():
        Path("m", name).write_bytes(content)
    return Model.load(Path("m/agent-000.npz"))


def columns(file: str = "p.csv") -> dict[str, np.ndarray[Any, Any]]:
    with open(file, newline="") as stream:
        rows = list(csv.DictReader(stream))
    return {name: np.array([float(row[name]) for row in rows]) for name in rows[0]}


def _libsvm(path: str) -> None:
    lines = [
        " ".join([repr(b), *(f"{j + 1}:{v!r}" for j, v in enumerate(r))])
        for r, b in zip(A.tolist(), B.tolist(), strict=True)
    ]
    Path(path).write_text("\n".join(lines) + "\n")


def _parquet(path: str) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"y": B, **{name: A[:, j] for j, name in reversed(list(enumerate(NAMES)))}}), path
    )


NEW: dict[str, tuple[Callable[[str], Any], bool]] = {
    "n.csv": (lambda path: table(path, ["y", "d", "c", "b", "a"], np.column_stack([B, A[:, ::-1]])), True),
    "without-y.csv": (lambda path: table(path, NAMES, A), False),
    "more.csv": (lambda path: table(path, ["id", *NAMES, "y"], np.column_stack([A[:, 0], A, B])), True),
    "nameless.tsv": (lambda path: np.savetxt(path, np.column_stack([A, B]), "%.17g", "\t"), True),
    "nameless-without-y.tsv": (lambda path: np.savetxt(path, A, "%.17g", "\t"), False),
    "n.npy": (lambda path: np.save(path, np.column_stack([A, B])), True),
    "without-b.npy": (lambda path: np.save(path, A), False),
    "n.npz": (lambda path: np.savez(path, A=A, b=B), True),
    "without-b.npz": (lambda path: np.savez(path, A=A), False),
    "sparse.npz": (lambda path: sp.save_npz(path, sp.csr_array(A)), False),
    "n.svm": (_libsvm, True),
    "n.parquet": (_parquet, True),
}


@pytest.mark.parametrize("file", NEW)
def test_every_format_gives_the_same_predictions(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    write, with_targets = NEW[file]
    write(file)
    model = fitted("lasso")
    capsys.readouterr()
    run(f"predict m --data {file} --out p.csv")
    found = columns()
    np.testing.assert_allclose(found["prediction"], (A @ model.x + model.intercept), rtol=1e-12)
    assert ("target" in found) == with_targets
    rmse = np.sqrt(np.mean((A @ model.x + model.intercept - B) ** 2))
    assert (f"RMSE {rmse:.6g}" in capsys.readouterr().out) == with_targets


def test_predicted_labels_are_the_labels_of_the_data(capsys: pytest.CaptureFixture[str]) -> None:
    model = fitted("logistic")
    run("predict m --data c.csv --out p.csv")
    found = columns()
    assert set(found["label"]) == {3.0, 5.0}
    np.testing.assert_array_equal(found["label"], np.where((A @ model.x + model.intercept) > 0.0, 5.0, 3.0))
    np.testing.assert_allclose(
        found["probability"], 1.0 / (1.0 + np.exp(-(A @ model.x + model.intercept))), rtol=1e-12
    )
    printed = capsys.readouterr().out
    assert f"accuracy {np.mean(found['label'] == LABELS):.6g}" in printed
    signs = np.where(LABELS == 5.0, 1.0, -1.0)
    assert f"log loss {np.mean(np.log1p(np.exp(-signs * (A @ model.x + model.intercept)))):.6g}" in printed


def test_unknown_labels_are_reported_and_predictions_are_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    fitted("logistic")
    table("n.csv", [*NAMES, "y"], np.column_stack([A, np.zeros(30)]))
    capsys.readouterr()
    run("predict m --data n.csv")
    printed = " ".join(capsys.readouterr().out.split())
    assert "no error is computed: the model knows labels 3 and 5, and the data have 0." in printed
    assert "accuracy" not in printed


def test_without_an_output_file_the_first_predictions_are_printed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = fitted("lasso")
    capsys.readouterr()
    run("predict m --data d.csv")
    printed = capsys.readouterr().out
    assert f"{float(A[0] @ model.x + model.intercept):.6g}" in printed
    assert "and 20 more; write all with --out FILE" in printed


def test_the_model_of_any_agent_can_be_chosen() -> None:
    run(
        "fit lasso --data d.csv --agents 3 --radius 3 --rounds 1 --method nids --no-intercept --out m"
    )  # agents still differ
    assert not np.array_equal(Model.load(Path("m/agent-000.npz")).x, Model.load(Path("m/agent-002.npz")).x)
    run("predict m --agent 2 --data d.csv --out folder.csv")
    run("predict m/agent-002.npz --data d.csv --out file.csv")
    np.testing.assert_array_equal(columns("folder.csv")["prediction"], columns("file.csv")["prediction"])
    np.testing.assert_allclose(
        columns("file.csv")["prediction"], A @ Model.load(Path("m/agent-002.npz")).x, rtol=1e-12
    )


FAULTS = {
    "predict m": "there must be data to predict for; give --data FILE.",
    "predict nothing --data d.csv": "nothing must be a file that can be read",
    "predict . --data d.csv": "must hold models, as dcgs fit writes them; . holds none.",
    "predict m --agent 3 --data d.csv": "must hold agent-003.npz; m holds agent-000.npz to agent-002.npz.",
    "predict m/agent-000.npz --agent 1 --data d.csv": "--agent chooses a model in a folder",
    "predict d.csv --data d.csv": "d.csv must be a model written by dcgs fit; it cannot be read as one.",
    "predict other.npz --data d.csv": "other.npz must be a model written by dcgs fit",
    "predict m --data narrow.csv": "narrow.csv must have a column 'c'; its columns are 'a', 'b'.",
    "predict m --data narrow.npy": "narrow.npy must have 4 features, as the model; it has 3.",
    "predict m --data d.csv --target z": "d.csv must have a column 'z'",
    "predict m --data wide.svm": "line 1 of wide.svm must have indices from 1 to 4",
    "predict m --data none.csv": "none.csv must be a file that can be read",
    "predict m --data d.csv --row 1": "--row must be left out for a model of lasso",
    "predict m --data d.csv --out d.csv/p.csv": "p.csv must be a file that can be written",
}


@pytest.mark.parametrize("command", FAULTS)
def test_an_impossible_prediction_ends_with_its_error_message(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    fitted("lasso")
    table("narrow.csv", ["a", "b"], A[:, :2])
    np.save("narrow.npy", A[:, :3])
    np.savez("other.npz", x=A)
    Path("wide.svm").write_text("1 5:1\n")
    assert FAULTS[command] in refused(command, capsys)


def test_a_model_of_another_format_is_refused_with_its_number(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted("lasso")
    monkeypatch.setattr("dcgs.learn.files.model.FORMAT", 3)
    printed = refused("predict m --data d.csv", capsys)
    assert "a model must be of format 3; m/agent-000.npz has 2. Read it with the version" in printed


def test_a_model_that_is_cut_short_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    fitted("lasso")
    file = Path("m/agent-000.npz")
    file.write_bytes(file.read_bytes()[:-40])
    assert "cannot be read as one. Fit it again." in refused("predict m --data d.csv", capsys)


@pytest.mark.parametrize("problem", ["lasso", "logistic"])
def test_a_model_is_loaded_as_it_was_saved(problem: str, tmp_path: Path) -> None:
    model = fitted(problem)
    with (tmp_path / "copy.npz").open("wb") as file:
        model.save(file)
    copy = Model.load(tmp_path / "copy.npz")
    np.testing.assert_array_equal(copy.x, model.x)
    assert (copy.problem, copy.reading, copy.about) == (model.problem, model.reading, model.about)
    assert copy.intercept == model.intercept


OLD = Path(__file__).parent / "models"
# A row or a pair of new data, and the prediction of version 0.8.0, which wrote these models.
OF_0_8 = {
    "kinds": ("age,ward,dose\n53.5,east,NA\n", "probability=birch", 0.9999867335512584),
    "ages": ("ward,dose\neast,NA\n", "prediction", 51.93568665121283),
    "films": ("user,item\nu0,film 0\n", "prediction", 1.259317061332862),
}


@pytest.mark.parametrize("name", OF_0_8)
def test_a_model_of_version_0_8_predicts_the_same_bits(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table, column, expected = OF_0_8[name]
    (tmp_path / "new.csv").write_text(table)
    model = str(OLD / f"{name}-0.8.npz")
    data, out = str(tmp_path / "new.csv"), str(tmp_path / "p.csv")
    assert main(["predict", model, "--data", data, "--out", out]) == 0
    (row,) = csv.DictReader((tmp_path / "p.csv").read_text().splitlines())
    assert float(row[column]) == expected
    capsys.readouterr()
    assert main(["show", model]) == 0
    shown = capsys.readouterr().out
    assert "certified gap: " in shown
    assert "what was sent" in shown
