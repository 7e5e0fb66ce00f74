"""``dcgs fit`` on tables as people have them: words, holes, scales, and labels that are words."""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

import dcgs
from dcgs.cli import main, make_parser
from dcgs.cli.fit_options import config_of
from dcgs.datasets.synthetic import write_patients
from dcgs.learn.files.describe import describe
from dcgs.learn.files.fit import FileFit, FitConfig, fit_files
from dcgs.learn.files.model import Model
from dcgs.learn.files.tables import Column
from dcgs.learn.linear.fit import RowsFit
from dcgs.runtime import Runtime
from thread_runtime import OverThreads
from thread_transport import Network

FOUR = "fit logistic --data hospital-{agent}.csv --open --target ill"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def summary(folder: str = "m") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


def model(folder: str = "m") -> Model:
    return Model.load(Path(folder, "agent-000.npz"))


def sites(*tables: str) -> None:
    for i, table in enumerate(tables):
        Path(f"s-{i}.csv").write_text(table)


def rows_of(files: Sequence[Path]) -> list[dict[str, str]]:
    return [row for file in files for row in csv.DictReader(file.read_text().splitlines())]


def pooled(rows: list[dict[str, str]]) -> tuple[Any, Any]:
    """Return features and labels of patients as one would by hand: levels, means, scales."""
    words, numbers = ("sex", "smoker", "ward"), ("age", "pressure", "bmi", "creatinine", "visits")
    columns = [
        np.array([float(row[name] == level) for row in rows])
        for name in words
        for level in sorted({row[name] for row in rows} - {""})
    ]
    for name in numbers:
        column = np.array([float("nan") if row[name] in ("", "NA") else float(row[name]) for row in rows])
        columns.append(np.where(np.isnan(column), np.nanmean(column), column))
    A = np.column_stack(columns)
    return (A - A.mean(axis=0)) / A.std(axis=0), np.array([row["ill"] == "yes" for row in rows])


# A new user: four files, one command.


def test_four_files_with_words_and_holes_give_a_certified_model_as_good_as_a_pooled_one(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = write_patients(Path())
    new = write_patients(Path("new"), sites=1, rows=2000, seed=9)
    run(f"{FOUR} --radius auto --out m")
    told = summary()
    assert told["certified"]
    text = printed(capsys)
    assert "category smoker: daily, former, never" in text
    assert "label no was mapped to -1 and yes to +1" in text
    assert "agent 2 (hospital-2.csv) alone has 'ward=geriatrics'" in text
    # The path costs at most four times the rounds of the fit at the radius found.
    assert told["path"]["rounds"] <= 4 * told["rounds"]
    assert [Path("m", name).exists() for name in ("path.json", "path.png", "report.html")] == [True] * 3
    run(f"predict m --data {new[0]} --out p.csv")
    predicted = np.array([float(row["probability"]) for row in rows_of([Path("p.csv")])])
    A, ill = pooled([*rows_of(files), *rows_of(new)])
    train = len(rows_of(files))
    by_hand = LogisticRegression(C=1.0, max_iter=1000).fit(A[:train], ill[:train])
    reference = roc_auc_score(ill[train:], by_hand.decision_function(A[train:]))
    # Both are fitted to about 2,000 rows, of which a tenth is held out here: that moves the third digit.
    assert roc_auc_score(ill[train:], predicted) == pytest.approx(reference, abs=0.01)
    assert reference > 0.75


def config(command: str) -> FitConfig:
    return config_of(make_parser().parse_args(shlex.split(command)))


def test_processes_give_the_models_scores_and_counts_of_one_process() -> None:
    write_patients(Path(), sites=3, rows=40)
    asked = config(f"{FOUR} --radius auto --class-weight balanced --out m")

    def fitted(runtime: Runtime) -> FileFit:
        return fit_files(asked, runtime)

    alone = fitted(dcgs.Lockstep())
    asked = replace(asked, agents=3)  # several processes do not count files
    for part in Network(2).run(lambda transport: fitted(OverThreads(transport))):
        for name in ("scores", "sent", "path", "rounds", "bytes", "gap"):
            assert describe(part)[name] == describe(alone)[name]
        assert isinstance(part.fit, RowsFit)
        assert isinstance(alone.fit, RowsFit)
        for i, model in part.fit.models.items():
            same = alone.fit.models[i]
            assert (model.coef.tobytes(), model.intercept) == (same.coef.tobytes(), same.intercept)


def test_four_hospitals_on_a_cycle_take_at_most_48_rounds_beside_the_run() -> None:
    """A sum takes two rounds there, texts four; 0.10.0 took 68 with a given radius, 148 with one found."""
    write_patients(Path(), rows=30)
    run(f"{FOUR} --radius 3 --graph cycle --no-report --out given")
    names = [each["name"].split(";")[0] for each in summary("given")["sent"]]
    assert names == [
        "schemas: columns, types, levels, labels and options",
        "sums and squares of features, how many values are there, and how many sites have a level",
        "counts, and sums of columns and targets",
        "squared differences from the means",
        "each site's scores, and sums for those of all sites",
    ]
    assert [each["rounds"] for each in summary("given")["sent"]] == [4, 2, 2, 2, 2]
    run(f"{FOUR} --radius auto --graph cycle --no-report --out found")
    assert sum(each["rounds"] for each in summary("found")["sent"]) <= 48


@pytest.mark.parametrize(("radius", "most"), [("3", 40), ("auto", 48)])
def test_four_hospitals_with_masks_and_floors_take_at_most_48_rounds_beside_the_run(
    radius: str, most: int
) -> None:
    """On the complete graph, the default, most masked sums take one round; all took two or more before."""
    write_patients(Path())
    run(f"{FOUR.replace(' --open', '')} --radius {radius} --no-report --out m")
    assert summary()["sums"] == "masked"
    assert sum(item["rounds"] for item in summary()["sent"]) <= most


# What a model is.


def test_coefficients_are_in_the_units_of_the_user_and_the_intercept_is_free() -> None:
    rng = np.random.default_rng(0)
    size, age = rng.normal(100.0, 30.0, 60), rng.normal(3e4, 1e3, 60)
    price = 5e5 + 2000.0 * size - 3.0 * age
    sites(
        *(
            "size,age,price\n" + "".join(f"{size[k]},{age[k]},{price[k]}\n" for k in range(i, 60, 3))
            for i in range(3)
        )
    )
    run("fit lasso --data s-{agent}.csv --open --radius 1e6 --gap 1e-9 --out m")
    fitted = model()
    assert fitted.features == ["size", "age"]
    # The model is exact; the gap of 1e-9 leaves errors of its root.
    np.testing.assert_allclose(fitted.x, [2000.0, -3.0], rtol=1e-4)
    assert fitted.intercept == pytest.approx(5e5, rel=1e-4)


def test_missing_values_are_filled_with_the_mean_of_all_sites_in_the_fit_and_in_predictions(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites("a,b,y\n1,1,1\n2,,2\n", "b,a,y\n5,3,3\nNA,4,4\n")
    run("fit lasso --data s-{agent}.csv --open --radius 9 --held-out 0 --out m")
    fill = [column.fill for column in model().reading.columns or ()]
    assert (model().reading.names, fill) == (("a", "b"), [(2.5,), (3.0,)])
    assert "column 'b' has 2 missing values, filled with the mean of all sites, 3." in printed(capsys)
    Path("new.csv").write_text("b,a\n3,2\n?,2\n")
    run("predict m --data new.csv --out p.csv")
    first, second = (row["prediction"] for row in rows_of([Path("p.csv")]))
    assert first == second
    assert "column 'b' has 1 missing value, filled as in the fit." in printed(capsys)


def test_rows_with_holes_can_be_dropped_or_refused(capsys: pytest.CaptureFixture[str]) -> None:
    sites("a,b,y\n1,1,1\n2,,2\n3,1,\n", "a,b,y\n1,5,3\n7,4,4\n")
    run("fit lasso --data s-{agent}.csv --open --radius 9 --held-out 0 --missing drop --out m")
    assert [agent["rows"] for agent in summary()["agents"]] == [1, 2]
    text = refused("fit lasso --data s-{agent}.csv --open --radius 9 --missing error --out e", capsys)
    assert "s-0.csv must have no empty cell; column 'b' is empty in line 3" in text


def test_columns_are_used_dropped_and_made_categories(capsys: pytest.CaptureFixture[str]) -> None:
    table = "id,code,a,day,y\nx1,1,2,2020-01-02,1\nx2,2,3,2020-01-03,0\nx3,10,5,2020-01-04,3\n"
    sites(table, table)
    run("fit lasso --data s-{agent}.csv --open --radius 1 --drop day id --categorical code --out m")
    assert model().features == ["code=1", "code=10", "code=2", "a"]
    run("fit lasso --data s-{agent}.csv --open --radius 1 --use a --out n")
    assert model("n").features == ["a"]
    assert "must be neither in --use" in refused(
        "fit lasso --data s-{agent}.csv --open --radius 1 --use y --out o", capsys
    )


def test_parquet_and_tsv_give_the_model_of_csv() -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    table = {
        "ward": ["a", "b", None, "a"] * 3,
        "n": [1.5, None, 2.0, 4.0] * 3,
        "y": ["no", "yes", "yes", "no"] * 3,
    }
    pq.write_table(pa.table(table), "t.parquet")
    lines = ["\t".join("" if v is None else str(v) for v in row) for row in zip(*table.values(), strict=True)]
    Path("t.tsv").write_text("\n".join(["\t".join(table), *lines]) + "\n")
    for file in ("t.parquet", "t.tsv"):
        run(f"fit logistic --data {file} --agents 2 --radius 1 --out {file[2:]}")
    assert model("parquet").x.tolist() == model("tsv").x.tolist()
    assert model("parquet").reading.columns == model("tsv").reading.columns


def test_balanced_classes_call_about_as_many_ill_as_well(capsys: pytest.CaptureFixture[str]) -> None:
    write_patients(Path(), sites=2, rows=200)
    called = {}
    for name, option in (("plain", ""), ("balanced", "--class-weight balanced")):
        run(f"{FOUR} --radius 3 {option} --no-report --out {name}")
        run(f"predict {name} --data hospital-0.csv --out p.csv")
        called[name] = sum(row["label"] == "yes" for row in rows_of([Path("p.csv")]))
    assert called["plain"] < 20 < 40 < called["balanced"]
    assert "probabilities are those of classes of equal size" in printed(capsys)


def test_a_set_that_bounds_coefficients_bounds_them_in_the_units_of_the_user() -> None:
    sites("a,y\n1000,1\n2000,2.5\n3000,2.6\n4000,4\n")
    run("fit least-squares --data s-0.csv --agents 1 --set box --lower 0 --upper 0.0005 --out m")
    assert model().x.tolist() == pytest.approx([0.0005])
    assert not summary()["standardized"]


# What is told.


def test_predict_compares_with_a_constant_and_warns_of_a_model_that_is_no_better(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites("a,y\n" + "".join(f"{k % 7},{int(k % 7 > k % 5)}\n" for k in range(70)))
    run("fit logistic --data s-0.csv --agents 2 --radius 50 --out m")
    Path("new.csv").write_text("a,y\n" + "".join(f"{k % 7},{int(k % 7 < k % 5)}\n" for k in range(70)))
    capsys.readouterr()
    run("predict m --data new.csv")
    text = printed(capsys)
    assert re.search(r"AUC 0\.\d+ \(without features: 0\.5\)", text)
    assert "warning: the model is no better than the same probability for every row" in text
    assert "calibration" in text


def test_show_tells_coefficients_by_name_the_gap_and_what_was_sent(
    capsys: pytest.CaptureFixture[str],
) -> None:
    write_patients(Path(), sites=2, rows=60)
    run(f"{FOUR} --radius 1 --no-report --out m")
    capsys.readouterr()
    run("show m --top 2")
    text = printed(capsys)
    strongest = np.argsort(-np.abs(model().effects(model().x)))[:3]
    names = [model().features[at] for at in strongest]
    assert [f"│ {name} │" in text for name in names] == [True, True, False]
    for told in (
        "set: l1, radius 1 ",
        "certified gap: ",
        "rounds: ",
        "bytes sent: ",
        "schemas: columns, types,",
        "AUC",
    ):
        assert told in text


def test_show_tells_the_size_of_a_model_of_ratings(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.csv").write_text(
        "user,item,rating\n" + "".join(f"u{k % 5},i{k % 4},{1 + k % 5}\n" for k in range(20))
    )
    run("fit completion --data r.csv --agents 2 --radius 3 --out m")
    capsys.readouterr()
    run("show m")
    text = printed(capsys)
    assert "set: nuclear, radius 3" in text
    assert "4 columns, rank " in text
    assert "ratings: from 1 to 5, " in text


def test_scores_of_each_site_are_beside_those_of_everyone(capsys: pytest.CaptureFixture[str]) -> None:
    write_patients(Path(), sites=2, rows=100)
    run(f"{FOUR} --radius 3 --held-out 0.3 --no-report --out m")
    scores = summary()["scores"]
    assert [site["rows"] for site in scores["agents"]] == [30, 41]
    assert scores["everyone"]["rows"] == 71
    losses = [site["scores"]["log loss"]["model"] for site in scores["agents"]]
    mean = (30 * losses[0] + 41 * losses[1]) / 71
    assert scores["everyone"]["scores"]["log loss"]["model"] == pytest.approx(mean, rel=1e-12)
    assert "scores on rows held out" in printed(capsys)


# What cannot be.

BAD: dict[str, tuple[list[str], str, str]] = {
    "other columns": (["a,b,y\n1,2,0\n", "a,y\n1,1\n"], "", "agent 1 (s-1.csv) has no column 'b'. Rename"),
    "dates": (
        ["a,t,y\n1,2020-01-02,0\n", "a,t,y\n1,2020-01-03,1\n"],
        "",
        "column 't' of s-0.csv must be of numbers or of words; it has dates, such as '2020-01-02'.",
    ),
    "a word among numbers": (
        ["a,y\n1,0\nx,1\n", "a,y\n2,0\n"],
        "",
        "agent 0 (s-0.csv) has the word 'x' in line 3 and a number in line 2; agent 1 (s-1.csv) has a number",
    ),
    "all missing": (
        ["a,b,y\n1,,0\n", "a,b,y\n2,NA,1\n"],
        "",
        "column 'b' must have a value at some site; it is empty",
    ),
    "no target": (
        ["a,y\n1,\n2,\n", "a,y\n2,1\n3,0\n"],
        "",
        "agent 0 (s-0.csv) must have rows with a target; all of its 2",
    ),
    "other labels": (
        ["a,y\n1,yes\n2,no\n", "a,y\n2,1\n3,0\n"],
        "",
        "same at all sites; agent 0 (s-0.csv) has 'no', 'yes'; agent 1 (s-1.csv) has '0', '1'. Write them",
    ),
    "one label": (["a,y\n1,no\n2,no\n"], "", "there must be two classes; all rows are of one class, no."),
    "names of patients": (
        ["n,y\n" + "".join(f"p{k},{k % 2}\n" for k in range(120))],
        "",
        "agent 0 (s-0.csv) has 'n with 120 levels'. Leave it out with --drop",
    ),
    "no such category": (["a,y\n1,0\n2,1\n"], "--categorical z", "must name a column of features; got 'z'"),
    "no such column": (
        ["a,y\n1,0\n2,1\n"],
        "--drop z",
        "some site must have each column of --drop; none has 'z', and the columns are 'a'. Correct",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_tables_get_a_sentence_that_names_the_site(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    tables, options, sentence = BAD[name]
    sites(*tables)
    text = refused(f"fit logistic --data s-{{agent}}.csv --open --radius 1 {options} --out m", capsys)
    assert sentence in text
    assert not Path("m").exists()


def test_words_are_no_targets_of_a_regression(capsys: pytest.CaptureFixture[str]) -> None:
    sites("a,y\n1,low\n2,high\n")
    text = refused("fit lasso --data s-{agent}.csv --open --radius 1 --out m", capsys)
    assert "the target must be of numbers; line 2 of s-0.csv has 'low'. For classes, fit logistic." in text


def test_a_constant_column_and_a_site_of_one_class_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    sites("a,b,c,y\n1,7,2,no\n2,7,2,no\n3,7,2,no\n", "a,b,c,y\n1,7,3,no\n2,7,4,yes\n5,7,5,yes\n")
    run("fit logistic --data s-{agent}.csv --open --radius 1 --out m")
    text = printed(capsys)
    assert "'b' has the same value in all rows of all sites" in text
    assert "agent 0 (s-0.csv) has one value only in 'c'." in text
    assert "agent 0 (s-0.csv) has only rows of class 'no'." in text


def test_an_empty_column_of_one_site_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    sites("a,b,y\n1,,1\n2,,2\n", "a,b,y\n1,3,3\n2,5,4\n")
    run("fit lasso --data s-{agent}.csv --open --radius 1 --out m")
    text = printed(capsys)
    assert "agent 0 (s-0.csv) has no value in 'b'; the means of the other sites take its place." in text
    assert "one value only" not in text  # the column has one note, not two


def test_a_model_of_version_0_4_still_predicts() -> None:
    meta = {
        "format": 1,
        "problem": "lasso",
        "shape": [2],
        "reading": {"names": ["a", "b"], "target": "y", "target_at": 2},
        "about": {"agent": 0},
    }
    np.savez_compressed("old.npz", x=np.array([2.0, -1.0]), meta=np.array(json.dumps(meta)))
    Path("new.csv").write_text("b,a\n3,2\n")
    run("predict old.npz --data new.csv --out p.csv")
    assert rows_of([Path("p.csv")])[0]["prediction"] == "1.0"
    run("show old.npz")


def test_a_column_of_texts_knows_numbers_words_and_holes() -> None:
    column = Column.of_texts(["1", " 2.50 ", "NA", "", "1e3"])
    assert column.words is None
    assert column.texts == ["1", "2.5", None, None, "1000"]
    mixed = Column.of_texts(["01", "x", "inf", "1_0"])
    assert (mixed.texts, mixed.levels) == (["1", "x", "inf", "1_0"], ["1", "1_0", "inf", "x"])
