"""The radius of a model of ratings, found on ratings that agents hold out; and Parquet with ids."""

from __future__ import annotations

import csv
import json
import re
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.cli import main
from dcgs.learn.ratings.fit import held_out, ratings_path
from dcgs.learn.ratings.offsets import OffsetsTask, Part, best_ridge, facts_steps, prepare
from dcgs.learn.sums import Reductions
from dcgs.low_rank import LowRank
from dcgs.run.models import FACTORS

USERS, ITEMS = 24, 15


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the error of a command that cannot begin."""
    with pytest.raises(SystemExit, match="2"):
        main(shlex.split(command))
    return capsys.readouterr().err


def table(file: str) -> list[dict[str, str]]:
    with Path(file).open() as lines:
        return list(csv.DictReader(lines))


def part_of(rows: range, seed: int) -> Part:
    """Return noisy ratings of a matrix of rank 1, for some rows."""
    rng = np.random.default_rng(seed)
    flat = np.sort(rng.choice(len(rows) * ITEMS, 10 * len(rows), replace=False))
    places, cols = np.divmod(flat, ITEMS)
    signs = np.where((places + rows.start) % 2, 1.0, -1.0) * np.where(cols % 3, 1.0, -1.5)
    return Part(places + rows.start, cols, 3.0 + signs + 0.5 * rng.standard_normal(len(flat)))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for i in range(2):
        part = part_of(range(USERS), i)
        columns = (column.tolist() for column in (part.rows, part.cols, part.values))
        lines = [f"u{row},film {col},{value:.2f}" for row, col, value in zip(*columns, strict=True)]
        Path(f"site-{i}.csv").write_text("\n".join(["user,item,rating", *lines]))
    return tmp_path


def test_a_tenth_is_held_out_by_row_and_column_alone() -> None:
    rows, cols = (index.reshape(-1) for index in np.indices((100, 50)))
    part = Part(rows, cols, np.zeros(len(rows)))
    out = held_out(part, 50, seed=0)
    assert 0.08 < out.mean() < 0.12
    order = np.random.default_rng(0).permutation(len(rows))
    order = order[np.argsort(out[order], kind="stable")]  # the first one is never held out
    shuffled = Part(rows[order], cols[order], np.ones(len(rows)))
    np.testing.assert_array_equal(held_out(shuffled, 50, seed=0), out[order])
    assert (held_out(part, 50, seed=1) != out).any()
    assert not held_out(Part(rows[out], cols[out], np.ones(int(out.sum()))), 50, seed=0)[0]


def test_radii_are_judged_on_ratings_that_were_not_fitted() -> None:
    parts = {0: part_of(range(12), 0), 1: part_of(range(12, USERS), 1)}
    task, graph = OffsetsTask((USERS, ITEMS), True, 5.0), nx.path_graph(2)
    network = Reductions(graph)
    path = ratings_path(parts, task, network)
    assert path.size == "rank"
    assert path.rounds == network.rounds
    assert path.best.error < 0.7 * path.null.error
    out = {i: held_out(part, ITEMS, 0) for i, part in parts.items()}
    # With other values where ratings are held out, the same models are found and other errors.
    changed = {i: Part(part.rows, part.cols, np.where(out[i], 9.0, part.values)) for i, part in parts.items()}
    other = ratings_path(changed, task, Reductions(graph))
    np.testing.assert_array_equal(other.models[0][0].V, path.models[0][0].V)
    assert other.points[0].loss == path.points[0].loss
    assert other.points[0].error > 4.0 * path.points[0].error


def test_a_path_of_matrices_ends_after_two_radii_that_are_not_clearly_better() -> None:
    parts = {0: part_of(range(12), 0), 1: part_of(range(12, USERS), 1)}
    noise = np.random.default_rng(0)
    noisy = {i: Part(p.rows, p.cols, noise.standard_normal(len(p.values))) for i, p in parts.items()}
    task, network = OffsetsTask((USERS, ITEMS), True, 5.0), Reductions(nx.path_graph(2))
    path = ratings_path(noisy, task, network)
    assert len(path.points) == 2
    assert path.needs_no_model
    assert path.stopped == "the error on held-out ratings does not fall clearly with a larger radius"
    assert "offsets alone are as good as radius" in str(path)
    assert sum(sent.name.startswith("the model of radius") for sent in network.sent) == 2
    path = ratings_path(parts, task, Reductions(nx.path_graph(2)))
    errors = [path.null.error, *(point.error for point in path.points)]
    best = path.points[int(np.argmin(errors[1:-2]))]
    assert min(errors[-2:]) > best.error - 0.1 * best.standard_error
    assert not path.needs_no_model


def test_offsets_are_shrunk_as_is_best_on_ratings_that_are_held_out() -> None:
    rng = np.random.default_rng(2)
    rows, cols = (index.reshape(-1) for index in np.indices((80, 60)))
    means = np.linspace(-2.0, 2.0, 60)
    found = []
    for noise in (0.05, 6.0):
        chosen = rng.random(4800) < 0.15
        values = (means[cols] + noise * rng.standard_normal(4800))[chosen]
        parts = {0: Part(rows[chosen], cols[chosen], values)}
        task, out = OffsetsTask((80, 60), True), {0: held_out(parts[0], 60, 0)}
        kept, left = parts[0].some(~out[0]), parts[0].some(out[0])
        network = Reductions(nx.empty_graph(1))
        (facts,) = network.run(facts_steps({0: kept}))
        ridge = best_ridge({0: kept}, {0: left}, task, facts, network)
        errors = {}
        for each in (1.0, 2.5, 5.0, 10.0, 25.0):
            offsets = prepare({0: kept}, OffsetsTask((80, 60), True, each), facts, network).offsets[0]
            errors[each] = float(np.sum((left.values - offsets.of(left.rows, left.cols)) ** 2))
        assert ridge == min(errors, key=lambda each: errors[each])
        found.append(ridge)
    assert found[0] < found[1]


def test_a_gap_is_tightened_while_the_held_out_error_falls() -> None:
    rng = np.random.default_rng(1)
    rows, cols = (index.reshape(-1) for index in np.indices((60, 40)))
    exact = np.outer(rng.standard_normal(60), rng.standard_normal(40)).reshape(-1)
    chosen = rng.random(2400) < 0.7
    gaps = []
    for noise in (0.0, 1.0):
        values = exact + noise * rng.standard_normal(2400)
        part = Part(rows[chosen], cols[chosen], values[chosen])
        path = ratings_path({0: part}, OffsetsTask((60, 40), True), Reductions(nx.empty_graph(1)))
        gaps.append(path.gap)
    assert gaps[0] < gaps[1] == 0.1


def test_a_path_whose_run_ends_at_a_limit_says_that_it_is_not_finished(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited = partial(dcgs.minimize, iterations=1)
    monkeypatch.setattr("dcgs.learn.radius.finders.minimize", limited)
    parts = {0: part_of(range(12), 0), 1: part_of(range(12, USERS), 1)}
    path = ratings_path(parts, OffsetsTask((USERS, ITEMS), True, 5.0), Reductions(nx.path_graph(2)))
    assert path.ran_out == (path.best.radius,)
    assert "the steps ran out, so that no larger radius was tried" in str(path)
    assert "all of them: their errors are a guess" in str(path)


def test_a_fit_with_radius_auto_is_that_of_the_radius_found(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = "fit completion --data 'site-{agent}.csv' --open --radius"
    run(f"{command} auto --out auto")
    printed = capsys.readouterr().out
    summary = json.loads(Path("auto/summary.json").read_text())
    found, radius = json.loads(Path("auto/path.json").read_text()), summary["set"]["radius"]
    assert summary["path"] == found
    assert found["best_radius"] == radius
    assert "radii, with errors on ratings that the sites held out" in printed
    assert f"{len(found['points'])} radii, {found['rounds']} rounds" in printed
    sent = {each["name"]: each for each in summary["sent"]}
    assert sum(each["rounds"] for each in summary["sent"]) > found["rounds"]
    assert sent["offsets of the path"]["numbers"] == ITEMS
    assert USERS not in [each["numbers"] for each in summary["sent"]]
    page = Path("auto/report.html").read_text()
    assert "The radius was found" in page
    assert "rank of the model" in page
    assert Path("auto/path.png").stat().st_size > 0
    ridge = summary["offsets"]["ridge"]
    run(f"{command} {radius!r} --ridge {ridge!r} --gap {found['gap']!r} --no-report --out given")
    given_summary = json.loads(Path("given/summary.json").read_text())
    assert summary["rounds"] <= given_summary["rounds"]  # it starts from the model of the path
    most = summary["gap"]["gap"] + given_summary["gap"]["gap"]
    distance = 0.0
    for i in range(2):
        auto, given = (np.load(f"{name}/agent-{i:03d}.npz") for name in ("auto", "given"))
        assert json.loads(str(auto["meta"]))["about"]["path"] == found
        for name in ("row_offsets", "col_offsets", "users", "items"):
            np.testing.assert_array_equal(auto[name], given[name])
        part = part_of(range(USERS), i)
        rows = np.searchsorted(auto["users"], [f"u{row}".encode() for row in part.rows.tolist()])
        cols = np.searchsorted(auto["items"], [f"film {col}".encode() for col in part.cols.tolist()])
        first, second = (model["U"] @ model["V"].T for model in (auto, given))
        distance += float(((first - second)[rows, cols] ** 2).sum())
    # The loss is a sum of squares, and both models are at most their gap above the least one: the square of
    # their distance on the entries that are rated is at most twice the sum of the gaps.
    assert 0.0 < distance <= 2.0 * most
    capsys.readouterr()
    run("show auto")
    assert f"radius: best of {len(found['points'])}: {radius:.4g}" in capsys.readouterr().out


def test_radius_auto_needs_the_nuclear_norm(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = "fit completion --data 'site-{agent}.csv' --open --radius auto --set l2 --out m"
    assert "--radius auto of completion is for --set nuclear; got l2." in refused(command, capsys)


class _TwoProcesses:
    """What a process receives from all: here from itself, and from another that has other rows."""

    def __init__(self, other: LowRank) -> None:
        self.other = other

    def allgather_texts(self, texts: list[str]) -> list[str]:
        return [*texts, "another digest"]

    def allgather(self, arrays: list[Any]) -> list[Any]:
        return [*arrays, np.linalg.qr(self.other.U)[1]]


def test_a_start_of_several_processes_is_checked_with_the_rows_of_all() -> None:
    rng = np.random.default_rng(0)
    U, V = rng.standard_normal((6, 2)), rng.standard_normal((5, 2))
    whole = LowRank(U, V, (6, 5))
    one, other = (LowRank(U[some], V, (6, 5), some) for some in (np.array([0, 2, 4]), np.array([1, 3, 5])))
    norm = float(whole.singular_values().sum())
    group: Any = _TwoProcesses(other)
    start = FACTORS.start(one, dcgs.NuclearNormBall((6, 5), norm), is_alone=False)
    assert FACTORS.checked_start(start, dcgs.NuclearNormBall((6, 5), norm), group) is one
    assert float(one.singular_values().sum()) < 0.99 * norm
    with pytest.raises(ValueError, match=r"x0 must be in X, a NuclearNormBall; it violates it"):
        FACTORS.checked_start(start, dcgs.NuclearNormBall((6, 5), 0.99 * norm), group)


def parquet(csv_file: str, **changed: Any) -> Path:
    """Write the ratings of a CSV file as Parquet, in several row groups, with some columns changed."""
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    lines = table(csv_file)
    columns = {
        "rating": pa.array([float(line["rating"]) for line in lines]),
        "user": pa.array([line["user"] for line in lines]).dictionary_encode(),
        "item": pa.array([line["item"] for line in lines], pa.large_string()),
    }
    columns |= {name: pa.array(make(len(lines))) for name, make in changed.items()}
    path = Path(csv_file).with_suffix(".parquet")
    pq.write_table(pa.table(columns), path, row_group_size=37)
    return path


def test_parquet_with_text_ids_gives_the_model_of_csv(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for i in range(2):
        parquet(f"site-{i}.csv")
    for kind in ("csv", "parquet"):
        run(f"fit completion --data 'site-{{agent}}.{kind}' --open --radius 20 --no-report --out {kind}")
        Path(f"{kind}/summary.json").unlink()
        capsys.readouterr()
    for i in range(2):
        texts, rows = (np.load(f"{name}/agent-{i:03d}.npz") for name in ("csv", "parquet"))
        assert sorted(texts) == sorted(rows)
        for name in set(texts) - {"meta"}:  # it counts the bytes of the names of files
            np.testing.assert_array_equal(texts[name], rows[name])
    run("predict csv --agent 0 --data site-0.csv --out a.csv")
    run("predict parquet --agent 0 --data site-0.parquet --out b.csv")
    assert Path("a.csv").read_text() == Path("b.csv").read_text()
    run("predict parquet --agent 0 --row u7 --top 20 --data site-0.parquet --out top.csv")
    rated = {line["item"] for line in table("site-0.csv") if line["user"] == "u7"}
    best = {line["column"] for line in table("top.csv")}
    assert rated | best == {f"film {item}" for item in range(ITEMS)}
    assert not rated & best


def test_a_model_of_text_ids_takes_unseen_users_and_items_and_writes_all_users(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit completion --data site-0.csv --agents 3 --radius 20 --no-report --out m")
    Path("new.csv").write_text("user,item\nstranger,film 2\nu3,no film\nstranger,no film\n")
    run("predict m --data new.csv --out p.csv")
    assert "2 pairs have a row and 2 a column" in capsys.readouterr().out
    model = np.load("m/agent-000.npz")
    mean = json.loads(str(model["meta"]))["offsets"]["mean"]
    items = model["items"].tolist()
    found = [float(line["prediction"]) for line in table("p.csv")]
    assert found[0] == pytest.approx(mean + model["col_offsets"][items.index(b"film 2")], rel=1e-12)
    assert found[2] == pytest.approx(mean, rel=1e-12)
    run("predict m --row stranger --top 3")
    assert "row stranger was not in the fit" in capsys.readouterr().out
    run("predict m --top 2 --out best.csv")
    lines = table("best.csv")
    assert sorted(line["row"] for line in lines) == sorted(2 * [f"u{user}" for user in range(USERS)])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda n: ["a"] * (n - 1) + [None], r"an id in every row; that of row 240 is empty"),
        (lambda n: ["a", ""] * (n // 2), r"an id in every row; that of row 2 is empty"),
        (lambda n: [1.0, 2.5] * (n // 2), r"an id in every row; that of row 2 is no whole number"),
        (lambda n: [True] * n, r"column 'item' of .* must be of ids, texts or whole numbers; it is of bool"),
    ],
)
def test_a_parquet_column_without_ids_is_refused(
    folder: Path, make: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    file = parquet("site-0.csv", item=make)
    error = refused(f"fit completion --data {file} --agents 2 --radius 5 --out m", capsys)
    assert re.search(message, error)
