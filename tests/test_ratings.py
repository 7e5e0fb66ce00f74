"""Ratings with ids and offsets: what is fitted, what is sent, and that nothing dense is made."""

from __future__ import annotations

import csv
import gzip
import json
import shlex
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.cli import main
from dcgs.learn.files import ratings as reader
from dcgs.learn.files.layout import EntriesLayout
from dcgs.learn.files.model import RatingsFile, load_model
from dcgs.learn.files.ratings import split_places
from dcgs.learn.files.source import DataSource
from dcgs.learn.ratings.fit import RatingsFit, RatingsSpec, fit_ratings
from dcgs.learn.ratings.ids import Ids
from dcgs.learn.ratings.model import AgentRatings, Numbering
from dcgs.learn.ratings.offsets import Offsets, OffsetsTask, Part, facts_steps, prepare
from dcgs.learn.sites import Sites
from dcgs.learn.sums import Reductions
from dcgs.runtime import Job, Lockstep, ProcessGroup, Runtime

SHAPE = (12, 7)


def some_ratings(seed: int = 0, count: int = 60) -> Part:
    rng = np.random.default_rng(seed)
    flat = np.sort(rng.choice(SHAPE[0] * SHAPE[1], count, replace=False))
    rows, cols = np.divmod(flat, SHAPE[1])
    return Part(rows, cols, rng.integers(1, 6, count).astype(float))


def split(part: Part, agents: int, by_rows: bool) -> dict[int, Part]:
    owner = part.rows * agents // SHAPE[0] if by_rows else np.arange(len(part.rows)) % agents
    return {
        i: Part(part.rows[owner == i], part.cols[owner == i], part.values[owner == i]) for i in range(agents)
    }


def ridge_solution(part: Part, ridge: float) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return the offsets of rows and of columns from the normal equations of all ratings."""
    A = np.zeros((len(part.rows), sum(SHAPE)))
    A[np.arange(len(A)), part.rows] = 1.0
    A[np.arange(len(A)), SHAPE[0] + part.cols] = 1.0
    b = part.values - part.values.mean()
    both = np.linalg.solve(A.T @ A + ridge * np.eye(sum(SHAPE)), A.T @ b)
    return both[: SHAPE[0]], both[SHAPE[0] :]


@pytest.mark.parametrize("by_rows", [True, False])
@pytest.mark.parametrize("ridge", [0.1, 5.0])
def test_offsets_are_those_of_the_normal_equations(by_rows: bool, ridge: float) -> None:
    part = some_ratings()
    parts, task = split(part, 3, by_rows), OffsetsTask(SHAPE, by_rows, ridge)
    network = Reductions(nx.path_graph(3))
    (facts,) = network.run(facts_steps(parts))
    rows, cols = ridge_solution(part, ridge)
    for offsets in prepare(parts, task, facts, network).offsets.values():
        # Conjugate gradients end at a relative residual of 1e-8; the matrix has a condition below 1e3.
        np.testing.assert_allclose(offsets.col_offsets, cols, atol=1e-6)
        np.testing.assert_allclose(offsets.row_offsets, rows[offsets.rows], atol=1e-6)
        assert (offsets.low, offsets.high) == (part.values.min(), part.values.max())
    assert [record.rounds > 0 for record in network.sent] == [True, True]


@dataclass
class Spy(Runtime):
    """Lockstep, with a list of the shapes of all arrays that agents send."""

    shapes: set[tuple[int, ...]] = field(default_factory=set)

    def hosts(self, agents: int) -> range:
        return Lockstep(threads=1).hosts(agents)

    def group(self) -> ProcessGroup:
        return Lockstep(threads=1).group()

    def run(self, job: Job) -> None:
        Lockstep(threads=1).run(replace(job, program=lambda i: self._watched(job.program(i))))

    def _watched(self, program: Any) -> Any:
        message = next(program)
        while True:
            for part in message.values() if isinstance(message, dict) else [message]:
                self.shapes |= {array.shape for array in (part if isinstance(part, tuple) else [part])}
            inbox = yield message
            try:
                message = program.send(inbox)
            except StopIteration as stop:
                return stop.value


USERS, ITEMS = 31, 17


def text_sites(agents: int = 4, seed: int = 3) -> list[tuple[Any, Any, Any]]:
    """Return ratings by users of text ids; every agent has ``USERS`` users, and no number equals it."""
    sites = []
    for i in range(agents):
        rng = np.random.default_rng(seed + i)
        flat = np.sort(rng.choice(USERS * ITEMS, 260, replace=False))
        users, items = np.divmod(flat, ITEMS)
        stars = np.clip(np.round(3.0 + (users % 3 - 1) * (items % 2 - 0.5) + rng.standard_normal(260)), 1, 5)
        ids = np.array([f"site{i}-u{user}" for user in users])
        sites.append((ids, np.array([f"film {item}" for item in items]), stars))
    return sites


def agent_of(path: str) -> AgentRatings:
    """Return the model in a file."""
    file = load_model(Path(path))
    assert isinstance(file, RatingsFile)
    return file.agent


def fitted_ratings(
    sites: list[tuple[Any, Any, Any]], graph: nx.Graph, spec: RatingsSpec, runtime: Runtime | None = None
) -> RatingsFit:
    return fit_ratings(Sites.of(sites, graph, runtime), spec)


def test_no_message_has_a_dimension_of_users() -> None:
    spy = Spy()
    fitted = fitted_ratings(text_sites(), nx.cycle_graph(4), RatingsSpec(20.0), spy)
    assert fitted.result.status.success
    users = {USERS, 4 * USERS}
    assert spy.shapes
    assert not users & {side for shape in spy.shapes for side in shape}
    # Rows that several agents share are sent, so that a spy that sees nothing would be noticed.
    part = some_ratings()
    parts, task = split(part, 3, by_rows=False), OffsetsTask(SHAPE, False, 1.0)
    network = Reductions(nx.path_graph(3), spy)
    (facts,) = network.run(facts_steps(parts))
    prepare(parts, task, facts, network)
    assert (SHAPE[0],) in spy.shapes


def test_a_model_predicts_better_than_offsets_and_within_the_range() -> None:
    sites = text_sites()
    fitted = fitted_ratings(sites, nx.cycle_graph(4), RatingsSpec(40.0))
    users, items = np.concatenate([s[0] for s in sites]), np.concatenate([s[1] for s in sites])
    stars = np.concatenate([site[2] for site in sites])
    predicted = fitted.predict(users, items)
    assert predicted.min() >= 1.0
    assert predicted.max() <= 5.0
    offsets = fitted_ratings(sites, nx.cycle_graph(4), RatingsSpec(1e-9)).predict(users, items)
    assert np.mean((predicted - stars) ** 2) < 0.8 * np.mean((offsets - stars) ** 2)
    agent = fitted.agents[2]
    np.testing.assert_array_equal(agent.predict(sites[2][0], sites[2][1]), predicted[520:780])


def test_unseen_users_and_items_get_the_offsets() -> None:
    agent = fitted_ratings(text_sites(), nx.cycle_graph(4), RatingsSpec(40.0)).agents[0]
    offsets = agent.model.offsets
    (place,), (user,) = agent.naming.cols_of(["film 3"]), agent.rows_of(["site0-u5"])
    expected = [
        offsets.mean + offsets.col_offsets[place],
        offsets.mean + offsets.row_offsets[user],
        offsets.mean,
    ]
    found = agent.predict(["nobody", "site0-u5", "nobody"], ["film 3", "no film", "no film"])
    np.testing.assert_allclose(found, expected, rtol=1e-14)  # sums of three numbers
    best = agent.top("nobody", 3)
    assert [name for name, _ in best] == agent.naming.col_names(
        np.argsort(-offsets.col_offsets, kind="stable")[:3]
    )


def test_without_offsets_the_model_is_that_of_minimize() -> None:
    sites = text_sites(2)
    fitted = fitted_ratings(sites, nx.path_graph(2), RatingsSpec(30.0, ridge=None))
    items = Ids.of(np.concatenate([site[1] for site in sites]))
    objectives = [
        dcgs.MatrixCompletion(
            Ids.of(site[0]).places(site[0]) + USERS * i, items.places(site[1]), site[2], (2 * USERS, ITEMS)
        )
        for i, site in enumerate(sites)
    ]
    X = dcgs.NuclearNormBall((2 * USERS, ITEMS), 30.0)
    by_hand = dcgs.minimize(objectives, X, nx.path_graph(2), every=None)
    np.testing.assert_array_equal(np.asarray(fitted.result.x), np.asarray(by_hand.x))


def test_the_best_columns_of_many_rows_are_those_of_each_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dcgs.learn.ratings.model._BLOCK", 3 * ITEMS)  # three rows at a time
    agent = fitted_ratings(text_sites(), nx.cycle_graph(4), RatingsSpec(40.0)).agents[1]
    rows = np.asarray(agent.model.x.rows)
    rated = np.array([0, 0, 4, 7]), np.array([3, 5, 0, 1])
    found = list(agent.model.top_of_rows(rows, 4, rated))
    assert len(found) > 5
    cols, scores = np.concatenate([f[1] for f in found]), np.concatenate([f[2] for f in found])
    for place, row in enumerate(rows):
        best, values = agent.model.top(int(row), 4, rated[1][rated[0] == place])
        assert cols[place].tolist() == best.tolist()
        np.testing.assert_allclose(scores[place], values, rtol=1e-12)  # sums in another order


READ: dict[str, tuple[bytes, list[tuple[str, str, float]]]] = {
    "commas and names": (b"userId,movieId,rating,time\nann,7,3.5,1\nbob,8,4,2\n", []),
    "double colons": (b"ann::7::3.5::1\nbob::8::4::2\n", []),
    "tabs, CR LF, a byte order mark": (b"\xef\xbb\xbfann\t7\t3.5\r\nbob\t8\t4\r\n", []),
    "quotes": (b'"ann","7","3.5"\n"bob",8,4\n', []),
    "blanks and comments": (b"# ratings\n\nann 7 3.5\n\nbob 8 4\n", []),
    "no last line break": (b"ann,7,3.5\nbob,8,4", []),
    "other order, by name": (b"rating,item,user\n3.5,7,ann\n4,8,bob\n", []),
    "a time before the item": (b"cust,when,sku,stars\nann,100,7,3.5\nbob,200,8,4\n", []),
    "names of which one is known": (b"who,date,stars,what\nann,100,3.5,7\nbob,200,4,8\n", []),
    "whole numbers as floats": (b"user,item,rating\nann,7.0,3.5\nbob,8.0,4\n", []),
}


@pytest.mark.parametrize("text", READ)
@pytest.mark.parametrize("chunk", [8, 1 << 20])
def test_ratings_are_read_in_any_chunks(
    text: str, chunk: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "_CHUNK", chunk)
    file = tmp_path / "ratings.csv"
    file.write_bytes(READ[text][0])
    rated = reader.read_rated(file, EntriesLayout())
    assert rated.rows.ids[rated.rows.codes] == ["ann", "bob"]
    assert rated.cols.ids[rated.cols.codes] == ["7", "8"]
    assert rated.values is not None
    assert rated.values.tolist() == [3.5, 4.0]
    file.with_suffix(".csv.gz").write_bytes(gzip.compress(READ[text][0]))
    assert len(reader.read_rated(file.with_suffix(".csv.gz"), EntriesLayout())) == 2


BROKEN = {
    b"who,what,how,much\na,b,c,3\n": "'who', 'what', 'how', 'much', and user and item and rating could be",
    b"cust,when,stars\na,100,3\n": "they are 'cust', 'when', 'stars', and item could be any. Give --columns",
    b"user,item,rating\na,b,3\na,b\n": "line 3 of ratings.csv must have 3 columns",
    b"user,item,rating\na,b,3\n,b,2\n": "line 3 of ratings.csv must have an id in column 1, 'user'",
    b"user,item,rating\na,b,x\n": "line 2 of ratings.csv must have a finite number in column 3, 'rating'",
    b"a,b,3\nc,d,nan\n": "line 2 of ratings.csv must have a finite number in column 3; it has 'nan'",
    b"user,item,rating\n": "ratings.csv must have at least one rating; it has none.",
    b"": "ratings.csv must have at least one rating; it has none.",
}


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_line_is_named(text: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("ratings.csv").write_bytes(text)
    with pytest.raises(ValueError, match=BROKEN[text].replace(".", r"\.")):
        reader.read_rated(Path("ratings.csv"), EntriesLayout())


def test_the_quick_reader_agrees_with_the_one_that_goes_line_by_line(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    lines = [f"u{a:x},ü{b},{c / 2}" for a, b, c in rng.integers(1, 400, (3000, 3)).tolist()]
    quick, slow = tmp_path / "quick.csv", tmp_path / "slow.csv"
    quick.write_text("\n".join(lines))
    slow.write_text("# a comment makes it slow\n" + "\n".join(lines))
    a, b = (reader.read_rated(file, EntriesLayout()) for file in (quick, slow))
    for one, other in ((a.rows, b.rows), (a.cols, b.cols)):
        assert one.ids.tolist() == other.ids.tolist()
        np.testing.assert_array_equal(one.codes, other.codes)
    np.testing.assert_array_equal(a.values, b.values)


@pytest.mark.parametrize("agents", [1, 3, 9])
def test_a_file_is_split_at_the_ends_of_rows(agents: int) -> None:
    rng = np.random.default_rng(agents)
    rows = np.concatenate([np.arange(9), rng.zipf(1.5, 200) % 9])
    places = split_places(DataSource("x", "sorted"), rows, agents)
    assert sorted(np.concatenate(places).tolist()) == list(range(len(rows)))
    owned = [set(rows[part].tolist()) for part in places]
    assert all(owned)
    assert sum(map(len, owned)) == 9
    with pytest.raises(ValueError, match="there are 9 rows and 10 agents"):
        split_places(DataSource("x", "sorted"), rows, 10)


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def table(file: str) -> list[dict[str, str]]:
    with open(file, newline="") as stream:
        return list(csv.DictReader(stream))


def write_sites(folder: Path) -> None:
    for i, (users, items, stars) in enumerate(text_sites(3)):
        lines = [f'{u},"{item}",{s:g}' for u, item, s in zip(users, items, stars, strict=True)]
        (folder / f"site-{i}.csv").write_text("\n".join(["user,item,rating", *lines]))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_sites(tmp_path)
    return tmp_path


def test_a_fit_of_sites_predicts_by_ids(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run("fit completion --data 'site-{agent}.csv' --open --radius 40 --graph path --held-out 0 --out m")
    assert "93 rows and 17 columns, by their ids" in capsys.readouterr().out
    fitted = fitted_ratings(text_sites(3), nx.path_graph(3), RatingsSpec(40.0))
    for i in range(3):
        file = agent_of(f"m/agent-{i:03d}.npz")
        np.testing.assert_array_equal(file.model.x.V, fitted.result.x.V)
        text = Path(f"m/agent-{i:03d}.npz").read_bytes()
        names = [fitted.agents[i].naming, file.naming]
        rows = [naming.row_names(np.asarray(file.model.x.rows)) for naming in names]
        assert rows[0] == rows[1]
        assert f"site{(i + 1) % 3}-u".encode() not in text
    Path("new.csv").write_text("item,user\nfilm 3,site2-u7\nfilm 5,stranger\nno film,site0-u0\n")
    run("predict m --data new.csv --out p.csv")
    expected = fitted.predict(["site2-u7", "stranger", "site0-u0"], ["film 3", "film 5", "no film"])
    assert [float(line["prediction"]) for line in table("p.csv")] == expected.tolist()
    assert "1 pairs have a row and 1 a column that the model does not have" in capsys.readouterr().out
    run("predict m --row site1-u4 --top 3 --out p.csv")
    assert [line["column"] for line in table("p.csv")] == [
        name for name, _ in fitted.agents[1].top("site1-u4", 3)
    ]
    printed = json.loads(Path("m/summary.json").read_text())
    assert printed["range of ratings"] == [1.0, 5.0]
    assert [each["name"] for each in printed["sent"]][-2:] == [
        "offsets of ratings",
        "products of residuals and factors",
    ]
    assert printed["offsets"]["ridge"] == 5.0


ODD = """cust,when,sku,stars
ann,100,film 1,4
ann,101,film 1,4
ann,102,film 2,2
ann,103,film 2,5
bob,104,film 1,3
bob,105,film 3,500
"""


def test_a_fit_says_which_columns_were_used_and_what_is_odd_in_the_ratings(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("odd-0.csv").write_text(ODD)
    Path("odd-1.csv").write_text("user,item,rating\neve,Film 1,3\neve,film 2,4\nkim,film 2,5\n")
    run("fit completion --data 'odd-{agent}.csv' --open --radius 2 --held-out 0 --out m")
    printed = capsys.readouterr().out
    notes = [
        "agent 0 (odd-0.csv) has 2 ratings that repeat a pair, 1 of them with another value; the mean "
        "counts.",
        "agent 0 (odd-0.csv) has 1 rating far outside the others, such as 500; half of all are from 3.25 to "
        "4.75.",
        "2 ids of columns differ only in case or blanks, such as 'Film 1' and 'film 1': they are not the "
        "same",
    ]
    assert "columns used: 'cust' (user), 'sku' (item), 'stars' (rating)\n" in printed
    assert "columns used: 'user' (user), 'item' (item), 'rating' (rating)\n" in printed
    assert [line.removeprefix("note: ") for line in printed.splitlines()[1:] if "note: " in line] == notes
    assert json.loads(Path("m/summary.json").read_text())["data_notes"] == notes
    assert "such as 500" in Path("m/report.html").read_text()
    kept = [line for line in ODD.splitlines() if "101" not in line and "103" not in line]
    Path("odd-0.csv").write_text("\n".join(kept).replace("film 2,2", "film 2,3.5"))
    run("fit completion --data 'odd-{agent}.csv' --open --radius 2 --held-out 0 --out merged")
    for name in ("U", "V", "row_offsets", "col_offsets"):
        with np.load("m/agent-000.npz") as odd, np.load("merged/agent-000.npz") as merged:
            np.testing.assert_array_equal(odd[name], merged[name])


def test_items_that_look_like_times_are_noted(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("times.csv").write_text("ann,1600000000,242,3\nbob,1600000060,243,4\nann,1600000090,243,2\n")
    run("fit completion --data times.csv --agents 2 --radius 2 --no-report --out m")
    printed = capsys.readouterr().out
    assert "columns used: column 1 (user), column 2 (item), column 3 (rating)" in printed
    assert "note: all ids of columns look like times, such as '1600000000'. Choose other columns" in printed


@pytest.mark.parametrize("option", ["--missing drop", "--missing mean"])
def test_an_option_for_rows_is_refused_for_ratings(
    option: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(shlex.split(f"fit completion --data site-0.csv --agents 2 --radius 5 {option} --out m"))
    assert f"{option.split()[0]} must be left out for completion" in capsys.readouterr().err


def test_the_best_items_of_all_users_leave_out_what_they_rated(folder: Path) -> None:
    run("fit completion --data site-0.csv --agents 3 --radius 20 --out m")
    run("predict m --top 4 --data site-0.csv --out best.csv")
    rated = {(line["user"], line["item"]) for line in table("site-0.csv")}
    best = table("best.csv")
    assert not rated & {(line["row"], line["column"]) for line in best}
    counts = {line["user"]: 0 for line in table("site-0.csv")}
    for line in best:
        counts[line["row"]] += 1
    assert set(counts.values()) <= {0, 1, 2, 3, 4}
    assert len(best) > 3 * len(counts)
    run("predict m --row site0-u3 --top 4 --data site-0.csv --out p.csv")
    assert [line["column"] for line in table("p.csv")] == [
        line["column"] for line in best if line["row"] == "site0-u3"
    ]


def test_a_user_of_two_agents_must_be_asked_for_by_agent(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("site-1.csv").write_text(Path("site-1.csv").read_text().replace("site1-u4", "site0-u4"))
    run("fit completion --data 'site-{agent}.csv' --open --radius 40 --graph path --out m")
    with pytest.raises(SystemExit):
        main(shlex.split("predict m --row site0-u4"))
    assert "several agents have a user 'site0-u4'. Choose with --agent." in " ".join(
        capsys.readouterr().err.split()
    )
    run("predict m --row site0-u4 --agent 1")


FAULTS = {
    "fit completion --data site-0.csv --agents 40 --radius 5 --out m": "there are 31 rows and 40 agents",
    "fit completion --data site-0.csv --agents 2 --radius 5 --no-offsets --ridge 2 --out m": "--ridge must",
    "fit lasso --data site-0.csv --agents 2 --radius 5 --ridge 2 --out m": "--ridge must be left out",
    "predict m": "there must be data to predict for; give --data FILE, or a row with --row.",
    "predict m --top 3": "the best columns of all rows are written to a file; give --out FILE, or --row.",
    "predict m --row a --target 2": "--target must be left out for a model of completion",
}


@pytest.mark.parametrize("command", FAULTS)
def test_an_impossible_command_ends_with_its_error_message(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if command.startswith("predict"):
        run("fit completion --data site-0.csv --agents 2 --radius 5 --iterations 1 --out m")
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 2
    assert FAULTS[command] in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("damage", ["U", "row_offsets", "users"])
def test_a_model_whose_parts_do_not_fit_is_refused(
    damage: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run("fit completion --data site-0.csv --agents 2 --radius 5 --iterations 1 --out m")
    with np.load("m/agent-000.npz") as npz:
        arrays = dict(npz)
    arrays[damage] = arrays[damage][:-1]
    np.savez("m/agent-000.npz", **arrays)
    with pytest.raises(SystemExit):
        main(shlex.split("predict m --row site0-u1"))
    assert "must be a model written by dcgs fit; it cannot be read" in " ".join(
        capsys.readouterr().err.split()
    )


def peak(work: Callable[[], object]) -> int:
    tracemalloc.start()
    work()
    _, largest = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return largest


def test_no_path_makes_anything_of_size_rows_times_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A matrix of 2·10⁵ × 10⁵ has 160 GB if it is dense; one byte for each entry would be 20 GB."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    shape, count = (200_000, 100_000), 1000
    rows, cols = rng.integers(0, shape[0], count), rng.integers(0, shape[1], count)
    np.savez("r.npz", rows=rows, cols=cols, values=rng.integers(1, 6, count) * 1.0)
    command = f"fit completion --data r.npz --shape {shape[0]},{shape[1]} --radius 9 --agents 2"
    command += " --measure --checkpoint saved --every 1 --out m --iterations"

    def work() -> None:
        run(f"{command} 1")
        run(f"{command} 2 --resume")
        run("predict m --row 5 --top 3 --out p.csv")
        run("predict m --data r.npz --out p.csv")

    # Factors and blocks of 8 vectors with 3·10⁵ rows are 20 MB each; there are a few for each agent.
    assert peak(work) < 600_000_000


def test_offsets_that_are_not_there_are_zero() -> None:
    offsets = Offsets.none(1.0, 5.0, 4)
    assert offsets.of(np.array([0, -1]), np.array([3, -1])).tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    ("first", "option", "base"),
    [(0, "", 0), (1, "", 1), (1, "--zero-based", 0), (1, "--one-based", 1), (0, "--zero-based", 0)],
)
def test_numbers_count_from_0_or_1(
    first: int, option: str, base: int, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    part = some_ratings()
    np.save("r.npy", np.column_stack([part.rows + first, part.cols + first, part.values]))
    run(f"fit completion --data r.npy --radius 5 --agents 2 --iterations 2 {option} --out m")
    assert f"rows and columns were counted from {base}" in capsys.readouterr().out
    model = agent_of("m/agent-000.npz").model
    assert model.x.shape == (SHAPE[0] + first - base, SHAPE[1] + first - base)
    np.savez("n.npz", rows=[2 + first - base], cols=[3 + first - base])  # such files count from 0
    run("predict m --data n.npz --out npz.csv")
    Path("n.csv").write_text(f"user,item\n{2 + first},{3 + first}\n")
    run("predict m --data n.csv --out text.csv")
    assert [table(file)[0]["prediction"] for file in ("npz.csv", "text.csv")] == [
        table("npz.csv")[0]["prediction"]
    ] * 2


def test_agents_agree_on_the_first_number_and_on_the_shape(folder: Path) -> None:
    np.save("r-0.npy", [[1.0, 1.0, 2.0], [2.0, 2.0, 3.0]])  # alone it would be taken to count from 1
    np.save("r-1.npy", [[0.0, 3.0, 2.0]])
    run("fit completion --data 'r-{agent}.npy' --open --radius 5 --iterations 2 --out m")
    file = agent_of("m/agent-000.npz")
    assert isinstance(file.naming, Numbering)
    assert file.naming.base == 0
    assert file.model.x.shape == (3, 4)


def test_a_number_outside_the_matrix_is_refused_in_a_fit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    np.save("r.npy", [[0.0, 1.0, 2.0], [2.0, 2.0, 3.0]])
    with pytest.raises(SystemExit):
        main(shlex.split("fit completion --data r.npy --radius 5 --agents 2 --shape 3,2 --out m"))
    assert "a column must be from 0 to 1, for shape 3,2 counted from 0" in capsys.readouterr().err
