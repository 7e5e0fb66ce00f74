"""``dcgs fit logistic`` with more than two classes: one model for each, against all others."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from html import unescape
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score

import dcgs
from dcgs.cli import main, make_parser
from dcgs.cli.fit_options import config_of
from dcgs.estimators import DecentralizedLogisticRegression
from dcgs.learn.files.describe import describe
from dcgs.learn.files.fit import FileFit, fit_files
from dcgs.learn.files.model import Model
from dcgs.learn.linear.classes import class_probabilities
from dcgs.learn.linear.design import LinearModel
from dcgs.learn.linear.fit import RowsFit
from dcgs.learn.linear.scores import fit_scores, label_calibration, several_class_scores
from dcgs.learn.sites import Rows
from dcgs.learn.sums import Reductions
from dcgs.report.numbers import number
from dcgs.runtime import Runtime
from thread_runtime import OverThreads
from thread_transport import Network

KINDS = ("ash", "birch", "cedar")
NAMES = ["height", "leaf", "soil=clay", "soil=sand"]
FIT = "fit logistic --data trees-{agent}.csv --open --target kind"


def tree(kind: int, rng: np.random.Generator) -> str:
    height = "" if rng.random() < 0.1 else f"{rng.normal(10.0 + 4.0 * kind, 3.0):.2f}"
    leaf = rng.normal((3.0, 8.0, 5.0)[kind], 2.0)
    soil = "clay" if rng.random() < (0.2, 0.5, 0.8)[kind] else "sand"
    return f"{height},{leaf:.2f},{soil},{KINDS[kind]}\n"


def write_trees(folder: Path) -> None:
    """Write three sites; the last has no cedar."""
    rng = np.random.default_rng(5)
    for i, kinds in enumerate([(0, 1, 2), (0, 1, 1, 2), (0, 1)]):
        rows = "".join(tree(kinds[k % len(kinds)], rng) for k in range(40))
        (folder / f"trees-{i}.csv").write_text("height,leaf,soil,kind\n" + rows)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the data of three sites, and a model of three classes in ``m``."""
    place = tmp_path_factory.mktemp("trees")
    write_trees(place)
    data = f"{place}/trees-{{agent}}.csv"
    assert main(["fit", "logistic", "--data", data, "--open", "--radius", "auto", "--out", f"{place}/m"]) == 0
    return place


@pytest.fixture(autouse=True)
def here(fitted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for file in fitted.glob("trees-*.csv"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def models_of(fit: FileFit) -> dict[int, LinearModel]:
    assert isinstance(fit.fit, RowsFit)
    return fit.fit.models


def fit_of(command: str, runtime: Runtime | None = None) -> FileFit:
    """Return the result of a fit that writes no files."""
    config = config_of(make_parser().parse_args(shlex.split(f"{command} --out none")))
    where = dcgs.Lockstep() if runtime is None else runtime
    return fit_files(config, where)


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def summary(folder: Path | str = "m") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


def model(folder: Path | str = "m", agent: int = 0) -> Model:
    return Model.load(Path(folder, f"agent-{agent:03d}.npz"))


def bits(folder: Path | str) -> list[tuple[bytes, bytes]]:
    models = [model(folder, agent) for agent in range(3)]
    return [(each.x.tobytes(), np.asarray(each.intercept).tobytes()) for each in models]


def rows_of(file: Path | str) -> list[dict[str, str]]:
    return list(csv.DictReader(Path(file).read_text().splitlines()))


# The model.


@pytest.mark.parametrize(
    "options",
    ["--radius auto --folds 3", "--radius 2 --set l2 --no-intercept --no-standardize --missing drop"],
)
def test_the_model_of_a_class_is_that_of_the_class_against_all_others_to_the_bit(options: str) -> None:
    several = fit_of(f"{FIT} {options}")
    for at, kind in enumerate(KINDS):
        for i in range(3):
            text = Path(f"trees-{i}.csv").read_text()
            for other in KINDS:
                text = text.replace(f",{other}\n", ",yes\n" if other == kind else ",no\n")
            Path(f"two-{i}.csv").write_text(text)
        two = fit_of(f"fit logistic --data two-{{agent}}.csv --open {options}")
        for agent in range(3):
            own, expected = models_of(several)[agent], models_of(two)[agent]
            assert own.coef[at].tobytes() == expected.coef.tobytes()
            assert np.asarray(own.intercept)[at] == expected.intercept
        assert describe(several)["classes"][kind]["gap"] == describe(two)["gap"]


def test_balanced_classes_count_as_in_the_estimator() -> None:
    for i in range(3):
        text = Path(f"trees-{i}.csv").read_text().replace("clay", "1").replace("sand", "0")
        Path(f"trees-{i}.csv").write_text(text)
    run(f"{FIT} --radius 3 --class-weight balanced --missing drop --held-out 0 --gap 1e-6 --out m")
    rows = [(i, row) for i in range(3) for row in rows_of(f"trees-{i}.csv") if row["height"]]
    A = np.array([[float(row[name]) for name in ("height", "leaf", "soil")] for _, row in rows])
    kinds = [row["kind"] for _, row in rows]
    estimator = DecentralizedLogisticRegression(3.0, class_weight="balanced", gap=1e-6)
    estimator.fit(A, kinds, sites=[i for i, _ in rows])
    # Both losses are within 1e-6 of the least one, and the losses are strongly convex here.
    np.testing.assert_allclose(model().x, estimator.coef_, atol=2e-3)
    np.testing.assert_allclose(model().intercept, estimator.intercept_, atol=2e-2)
    run("predict m --data trees-0.csv --out p.csv")
    found = [[float(row[f"probability={kind}"]) for kind in KINDS] for row in rows_of("p.csv") if row]
    own = [row for row, line in zip(found, rows_of("trees-0.csv"), strict=True) if line["height"]]
    np.testing.assert_allclose(own, estimator.predict_proba(A[[i == 0 for i, _ in rows]]), atol=2e-3)


def test_processes_give_the_models_scores_and_counts_of_one_process() -> None:
    command = f"{FIT} --agents 3 --radius auto --class-weight balanced"
    alone = fit_of(command)
    names = ("scores", "sent", "paths", "classes", "rounds", "bytes", "gap", "data_notes")
    for part in Network(2).run(lambda transport: fit_of(command, OverThreads(transport))):
        assert [describe(part)[name] for name in names] == [describe(alone)[name] for name in names]
        for i, found in models_of(part).items():
            expected = models_of(alone)[i]
            assert found.coef.tobytes() == expected.coef.tobytes()
            assert np.asarray(found.intercept).tobytes() == np.asarray(expected.intercept).tobytes()


@pytest.mark.parametrize("lost", [(), ("class-002",), ("class-001", "class-002")])
def test_a_resumed_fit_has_the_bits_of_one_that_was_not_interrupted(lost: tuple[str, ...]) -> None:
    fixed = f"{FIT} --graph path --radius 3 --no-report --checkpoint saved --every 2"
    run(f"{FIT} --graph path --radius 3 --no-report --rounds 9 --out whole")
    run(f"{fixed} --rounds 5 --out m")
    for folder in lost:  # as if the fit had been ended during an earlier class
        shutil.rmtree(Path("saved", folder))
    run(f"{fixed} --rounds 9 --resume --out m")
    assert bits("m") == bits("whole")
    assert summary()["checkpoint"]["resumed"] > 0
    assert summary()["rounds"] == summary("whole")["rounds"]


def test_a_fit_that_is_resumed_after_its_end_has_the_same_certificates() -> None:
    fixed = f"{FIT} --radius 3 --method-option form=edges --no-report --checkpoint saved --every 3"
    run(f"{fixed} --out whole")
    run(f"{fixed} --resume --out m")
    assert summary("whole")["certified"]
    assert summary()["classes"] == summary("whole")["classes"]
    assert (summary()["gap"], bits("m")) == (summary("whole")["gap"], bits("whole"))


def test_a_fit_without_any_checkpoint_cannot_be_resumed(capsys: pytest.CaptureFixture[str]) -> None:
    text = refused(f"{FIT} --radius 3 --checkpoint saved --resume --out m", capsys)
    assert "there must be a checkpoint to resume" in text


def test_numbers_are_labels_in_their_order(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(1)
    labels = np.repeat([2.0, -1.0, 10.0], 10)
    A = np.column_stack([labels + rng.standard_normal(30), rng.standard_normal(30)])
    np.save("d.npy", np.column_stack([A, labels]))
    run("fit logistic --data d.npy --agents 2 --radius 5 --split sorted --out m")
    assert model().reading.labels == (-1.0, 2.0, 10.0)
    text = printed(capsys)
    assert "3 classes: -1, 2, 10" in text
    # One file is in one spelling: agents that have other classes than all others are only noted.
    assert "agent 0 (d.npy) has no rows of class '10'; agent 1 (d.npy) has no rows of class '-1'." in text
    run("predict m --data d.npy --out p.csv")
    found = rows_of("p.csv")
    assert list(found[0]) == ["label", "probability=-1", "probability=2", "probability=10", "target"]
    assert accuracy_score([row["target"] for row in found], [row["label"] for row in found]) > 0.7


def test_measures_have_the_class_they_belong_to(capsys: pytest.CaptureFixture[str]) -> None:
    run(f"{FIT} --radius 3 --method dfw --rounds 6 --measure --out m")
    history = rows_of("m/history.csv")
    assert [row["class"] for row in history] == [kind for kind in KINDS for _ in range(4)]  # 0 to 3
    assert list(summary()["measures"]) == list(KINDS)
    assert summary()["measures"]["cedar"]["gap"] == float(history[-1]["gap"])
    assert "cedar: local_loss" in printed(capsys)
    assert summary()["gap"] is None


# What is printed, predicted and shown.


def test_the_summary_has_a_certificate_for_each_class_and_their_sum(fitted: Path) -> None:
    told = summary(fitted / "m")
    assert told["certified"]
    assert list(told["classes"]) == list(told["paths"]) == list(KINDS)
    gaps = [each["gap"]["gap"] for each in told["classes"].values()]
    assert told["gap"]["gap"] == pytest.approx(sum(gaps), rel=1e-12)
    assert told["rounds"] == sum(each["rounds"] for each in told["classes"].values())
    assert told["set"]["radius"] == [path["best_radius"] for path in told["paths"].values()]
    assert json.loads((fitted / "m" / "path.json").read_text()) == told["paths"]
    assert any(note.endswith("trees-2.csv) has no rows of class 'cedar'.") for note in told["data_notes"])
    rounds = {each["name"]: each["rounds"] for each in told["sent"]}
    # Columns have the same statistics for all classes, and the sums of each class are in one sum with them.
    (shared,) = (name for name in rounds if "sums of the columns of one class" in name)
    assert shared.startswith("counts, and sums of columns and targets; ")
    assert rounds[shared] == rounds["squared differences from the means"] == 1


def test_predictions_have_the_scores_of_scikit_learn(
    fitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(f"predict {fitted}/m --data trees-1.csv --out p.csv")
    found = rows_of("p.csv")
    target = [row["target"] for row in found]
    P = np.array([[float(row[f"probability={kind}"]) for kind in KINDS] for row in found])
    assert [row["label"] for row in found] == [KINDS[at] for at in P.argmax(axis=1)]
    text = printed(capsys)
    shares = summary(fitted / "m")["constant"]
    majority = KINDS[int(np.argmax(shares))]
    for name, value, constant in (
        ("accuracy", accuracy_score(target, P.argmax(axis=1).choose(KINDS)), target.count(majority) / 40),
        ("AUC", roc_auc_score(target, P, multi_class="ovr"), 0.5),
        ("log loss", log_loss(target, P), log_loss(target, [shares] * 40)),
    ):
        assert f"{name} {value:.6g} (without features: {constant:.6g})" in text
    assert "share that is right" in text
    assert "warning" not in text


def test_a_model_no_better_than_the_shares_of_classes_is_warned_of(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rng = np.random.default_rng(3)
    for name in ("old.csv", "new.csv"):
        rows = "".join(f"{rng.normal():.3f},{rng.normal():.3f},{rng.choice(KINDS)}\n" for _ in range(40))
        Path(name).write_text("a,b,kind\n" + rows)
    run("fit logistic --data old.csv --agents 2 --radius 9 --held-out 0 --no-report --out m")
    assert "warning" not in printed(capsys)
    run("predict m --data new.csv")
    text = printed(capsys)
    assert "warning: the model is no better than the same probability for every row: its log loss" in text


def test_an_unknown_label_gives_predictions_and_no_scores(
    fitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("new.csv").write_text("height,leaf,soil,kind\n9,3,clay,oak\n")
    run(f"predict {fitted}/m --data new.csv --out p.csv")
    assert "the model knows labels ash, birch and cedar, and the data have oak." in printed(capsys)
    assert rows_of("p.csv")[0]["label"] in KINDS


def test_show_lists_the_coefficients_of_each_class_by_name(
    fitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    run(f"show {fitted}/m --top 2")
    text, found = printed(capsys), model(fitted / "m")
    assert found.x.shape == (3, 4)
    assert found.features == NAMES
    for kind, x in zip(KINDS, found.x, strict=True):
        largest = np.argsort(-np.abs(found.effects(x)))[:2]
        part = text.partition(f"{kind}: {np.count_nonzero(x)} of 4 are not 0")[2]
        places = [part.index(f"{NAMES[at]} │ {x[at]:+.6g}") for at in largest if x[at]]
        assert places == sorted(places)
        assert f"radius of {kind}: best of" in text
    assert "labels: ash, birch, cedar; one model for each, against all others" in text


def test_the_page_has_the_coefficients_and_the_path_of_each_class(fitted: Path) -> None:
    html = (fitted / "m" / "report.html").read_text()
    charts = json.loads(html.partition('id="study-data">')[2].partition("</script>")[0])
    assert [chart["name"] for chart in charts] == ["gap", "path-0", "path-1", "path-2"]
    assert [curve["label"] for curve in charts[0]["curves"]] == list(KINDS)
    text = unescape(html).partition('id="coefficients"')[2].partition("</section>")[0]
    parts = text.split("<h3>")[1:]
    for kind, part, x in zip(KINDS, parts, model(fitted / "m").x, strict=True):
        assert part.startswith(f"Class {kind}</h3>")
        for name, value in zip(NAMES, x, strict=True):
            line = part.partition(f'<th scope="row">{name}</th>')[2].partition("</tr>")[0]
            assert line.endswith(f"<td>{number(value)}</td>") == (value != 0.0)


def test_a_model_whose_rows_are_not_those_of_its_labels_is_refused(
    fitted: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = dict(np.load(fitted / "m" / "agent-000.npz"))
    meta = json.loads(str(found["meta"]))
    meta["reading"]["labels"].append("oak")
    np.savez("bad.npz", **found | {"meta": np.array(json.dumps(meta))})
    text = refused("predict bad.npz --data trees-0.csv", capsys)
    assert "its x and intercept must be of 4 models; they have shapes (3, 4) and (3,)" in text
    np.savez("bad.npz", **found | {"intercept": np.float64(0.0)})
    assert "they have shapes (3, 4) and ()" in refused("predict bad.npz --data trees-0.csv", capsys)


# Scores, by network sums.


def test_scores_of_several_classes_are_those_of_pooled_rows() -> None:
    rng = np.random.default_rng(4)
    shares = (0.2, 0.5, 0.3)
    sites = {}
    for i, rows in enumerate((40, 0, 25, 60)):
        codes = rng.choice(3, rows, p=shares).astype(float)
        scores = 2.0 * rng.standard_normal((rows, 3)) + 2.0 * (codes[:, None] == np.arange(3))
        sites[i] = Rows(np.zeros((rows, 1)), codes), scores
    each, everyone = fit_scores(sites, Reductions(nx.cycle_graph(4)), shares, labels=True)
    codes = np.concatenate([site.targets for site, _ in sites.values()])
    scores = np.concatenate([scores for _, scores in sites.values()])
    P, expected = class_probabilities(scores), several_class_scores(scores, codes, shares)
    for name in ("accuracy", "log loss"):
        assert everyone.scores[name].model == pytest.approx(expected[name].model, rel=1e-12)
        assert everyone.scores[name].constant == pytest.approx(expected[name].constant, rel=1e-12)
    area = roc_auc_score(codes, P, multi_class="ovr")
    assert expected["AUC"].model == pytest.approx(area, rel=1e-12)
    # Two rows whose log odds are in one bin, of width 0.05, count as a tie.
    assert everyone.scores["AUC"].model == pytest.approx(area, abs=3e-3)
    assert expected["log loss"].model == pytest.approx(log_loss(codes, P), rel=1e-12)
    assert expected["log loss"].constant == pytest.approx(log_loss(codes, [shares] * len(codes)), rel=1e-12)
    assert (each[1].rows, each[1].scores) == (0, {})
    groups = label_calibration(scores, codes)
    right = sum(group.rows * group.observed for group in groups) / len(codes)
    assert right == pytest.approx(expected["accuracy"].model, rel=1e-12)


def test_a_class_without_rows_has_no_part_in_the_auc() -> None:
    scores = np.array([[2.0, -1.0, 0.0], [-1.0, 1.0, 0.0], [0.5, 1.0, 0.0]])
    found = several_class_scores(scores, np.array([0.0, 1.0, 1.0]), (0.3, 0.6, 0.1))
    assert found["AUC"].model == 1.0
    one = several_class_scores(scores, np.zeros(3), (0.3, 0.6, 0.1))
    assert np.isnan(one["AUC"].model)


# Labels that sites do not agree on.

SITE = "a,y\n1,no\n2,yes\n3,no\n4,maybe\n"
BAD = {
    "capital letters": (
        [SITE, "a,y\n1,No\n2,yes\n"],
        "written the same at all sites; agent 0 (s-0.csv) has 'no'; agent 1 (s-1.csv) has 'No'. Write them",
    ),
    "another language": (
        [SITE, "a,y\n1,nein\n2,ja\n"],
        "agent 0 (s-0.csv) has 'maybe', 'no', 'yes'; agent 1 (s-1.csv) has 'ja', 'nein'. Write them alike.",
    ),
    "a word among numbers": (
        ["a,y\n1,1\n2,2\n", "a,y\n1,1\n2,two\n"],
        "agent 0 (s-0.csv) has '1', '2'; agent 1 (s-1.csv) has '1', 'two'. Write them alike.",
    ),
    "a number to predict": (
        [SITE, "a,y\n" + "".join(f"{k},{k}.5\n" for k in range(101))],
        "labels must be of at most 100 classes at each site; agent 1 (s-1.csv) has 101 different ones.",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_labels_in_several_spellings_name_the_site(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tables, sentence = BAD[name]
    for i, table in enumerate(tables):
        Path(f"s-{i}.csv").write_text(table)
    assert sentence in refused("fit logistic --data s-{agent}.csv --open --radius 1 --out m", capsys)
    assert not Path("m").exists()


def test_a_class_of_few_rows_is_noted_and_one_that_is_held_out_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = "".join(f"{k % 7},{('no', 'yes')[k % 2]}\n" for k in range(19))
    Path("s-0.csv").write_text("a,y\n" + lines + "5,yse\n")
    command = "fit logistic --data s-{agent}.csv --open --radius 1 --no-report --out m"
    run(f"{command} --held-out 0")
    assert "'yse' has fewer than 5 rows to fit to, of all sites: correct the label if it is" in printed(
        capsys
    )
    text = refused(f"{command} --held-out 0.95 --force", capsys)
    assert "there must be rows of every class to fit to; all rows of" in text


# Folds.


def test_folds_find_errors_on_all_rows(fitted: Path) -> None:
    paths = summary(fitted / "m")["paths"]
    found = fit_of(f"{FIT} --radius auto --folds 1").paths
    assert [path.folds for path in found.values()] == [1, 1, 1]
    assert [path["folds"] for path in paths.values()] == [5, 5, 5]
    # Five folds hold out all rows, one a quarter: the standard error of the loss without a model is half as
    # large, up to the part of each class in the quarter, which is rounded to whole rows at each site.
    ratio = paths["birch"]["null"]["standard_error"] / found["birch"].null.standard_error
    assert ratio == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        (f"{FIT} --radius 3 --folds 5", "--folds is for --radius auto, which finds errors on them."),
        ("fit completion --data r.npz --radius auto --folds 5", "--folds must be left out for completion"),
    ],
)
def test_folds_without_a_path_of_samples_are_refused(
    command: str, sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sentence in refused(f"{command} --agents 3 --out m", capsys)
