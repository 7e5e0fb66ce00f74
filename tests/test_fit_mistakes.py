"""Mistakes in files and options of ``dcgs fit`` and ``dcgs predict`` are refused, done right, or noted."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dcgs.cli import main
from dcgs.datasets import DataNotFoundError
from dcgs.learn.files.folder import take_lock
from dcgs.learn.files.layout import EntriesLayout
from dcgs.learn.files.model import Model
from dcgs.learn.files.ratings import read_rated
from dcgs.learn.files.source import DataSource
from fit_runs import children, same, until


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(command: str) -> None:
    assert main(shlex.split(command)) == 0


def status_of(command: str) -> int | str | None:
    try:
        return main(shlex.split(command))
    except SystemExit as ended:
        return ended.code


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().out.split())


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def summary(folder: str = "m") -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    return found


def sites(*tables: str) -> None:
    for i, table in enumerate(tables):
        Path(f"s-{i}.csv").write_text(table)


PLAIN = "a,b,y\n1,2,1\n2,1,2.5\n3,5,2\n4,4,4\n"
FIT = "fit lasso --data s-{agent}.csv --open --radius 2 --held-out 0"


# Parts that are not installed.


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after ``pip install dcgs``: neither jinja2 nor matplotlib."""
    for name in [name for name in sys.modules if name.startswith("dcgs.report.page")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delitem(sys.modules, "dcgs.report.figures", raising=False)
    for name in ("jinja2", "matplotlib"):
        monkeypatch.setitem(sys.modules, name, None)


@pytest.mark.usefixtures("bare")
def test_without_optional_packages_the_model_is_written_and_a_note_says_what_is_left_out(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN, PLAIN.replace("4,4,4", "5,4,4"))
    run("fit lasso --data s-{agent}.csv --open --radius auto --out m")
    assert sorted(file.name for file in Path("m").iterdir()) == [
        "agent-000.npz",
        "agent-001.npz",
        "ledger-000.jsonl",
        "path.json",
        "summary.json",
    ]
    text = printed(capsys)
    assert "note: report.html needs jinja2, which is not installed, and is left out. Install it with:" in text
    assert "note: path.png needs matplotlib, which is not installed, and is left out." in text
    assert text.endswith("notes: 2, above and in summary.json written: m/agent-000.npz …, summary.json")


@pytest.mark.usefixtures("bare")
def test_a_page_that_is_asked_for_and_cannot_be_written_is_refused_before_the_fit(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sites(PLAIN)
    monkeypatch.setattr("dcgs.cli.fit.fit_files", None)  # a fit would be an error of another kind
    text = refused(f"{FIT} --report --out m", capsys)
    assert (
        "--report needs jinja2, which is not installed. Install it with: pip install 'dcgs[report]'" in text
    )


def test_estimators_without_scikit_learn_say_what_to_install() -> None:
    program = "import sys; sys.modules['sklearn'] = None; import dcgs.estimators"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "needs scikit-learn, which is not installed. Install it with: pip install 'dcgs[sk" in done.stderr


# Files that are missing.


def test_a_gap_in_the_numbers_of_files_and_a_dangling_link_are_named(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN, PLAIN, PLAIN, PLAIN)
    Path("s-1.csv").unlink()
    text = refused(f"{FIT} --out m", capsys)
    assert "counted from 0; there is no s-1.csv, and there is s-3.csv. Add it, or number all" in text
    Path("s-1.csv").symlink_to("nowhere.csv")
    assert "s-1.csv is a link to a file that does not exist" in refused(f"{FIT} --out m", capsys)
    Path("s-3.csv").unlink()
    Path("s-3.csv").symlink_to("nowhere.csv")
    Path("s-1.csv").unlink()
    Path("s-1.csv").write_text(PLAIN)
    assert "s-3.csv is a link to a file that does not exist" in refused(f"{FIT} --out m", capsys)


@pytest.mark.parametrize("form", ["g-{agent:03d}.csv", "d-{rank}/x-{rank}.csv", "[a]-{agent}.csv"])
def test_files_are_counted_in_every_form_of_a_name(form: str) -> None:
    source = DataSource(form)
    for i in range(3):
        source.file(i).parent.mkdir(exist_ok=True)
        source.file(i).write_text(PLAIN)
    Path("g-1.csv").write_text(PLAIN)  # not of the form
    assert source.count_files() == 3
    source.file(20240101).parent.mkdir(exist_ok=True)
    source.file(20240101).write_text(PLAIN)  # a date
    with pytest.raises(DataNotFoundError, match=r"there is no .*3\.csv, and there is .*20240101\.csv"):
        source.count_files()
    source.file(20240101).unlink()
    source.file(0).unlink()
    with pytest.raises(DataNotFoundError, match="there is no "):
        source.count_files()


def test_files_beyond_the_agents_are_refused_also_where_there_is_no_first_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN, PLAIN, PLAIN)
    Path("s-0.csv").unlink()
    text = refused(f"{FIT} --agents 2 --out m", capsys)
    assert "there are 2 agents and a file s-2.csv. Give --agents 3, or move the file away." in text


def test_the_same_file_at_two_sites_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    sites(PLAIN, PLAIN.replace("4,4,4", "4,5,4"), PLAIN)
    run(f"{FIT} --no-report --out m")
    note = "agents 0 and 2 have the same file, by its content: its rows count 2 times."
    assert f"note: {note}" in printed(capsys)
    assert note in summary()["data_notes"]


# Text as other programs write it.


def test_a_row_that_begins_with_a_missing_value_is_no_comment() -> None:
    sites("# from the lab\na,b,y\n#N/A,2,1\n2,1,2.5\n#3,5,2\n", "a,b,y\n4,4,4\n#N/A,1,3\n")
    run(f"{FIT} --no-report --out m")
    assert [agent["rows"] for agent in summary()["agents"]] == [2, 2]
    run("predict m --data s-0.csv --out p.csv")
    assert len(Path("p.csv").read_text().splitlines()) == 3
    rated = "user,item,rating\nu,i,1\n#N/A,i,3\n#no,i,3\n"
    Path("r.csv").write_text(rated)
    assert len(read_rated(Path("r.csv"), EntriesLayout())) == 2


GERMAN = "alter;ort;y\n63,5;Köln;1,5\n48;Ulm;2\n71,25;Köln;0,5\n55,5;Ulm;1\n"
PLAIN_GERMAN = GERMAN.replace(",", ".")


def test_decimal_commas_are_found_in_each_file_and_noted(capsys: pytest.CaptureFixture[str]) -> None:
    sites(GERMAN, PLAIN_GERMAN)
    run(f"{FIT} --no-report --out m")
    assert "note: agent 0 (s-0.csv) has decimal commas, which were read as such." in printed(capsys)
    Path("t-0.csv").write_text(PLAIN_GERMAN)
    Path("t-1.csv").write_text(PLAIN_GERMAN)
    run(f"{FIT.replace('s-', 't-')} --no-report --out n")
    assert same("m", "n")
    run("predict m --data s-0.csv --out p.csv")
    run("predict m --data s-1.csv --out q.csv")
    assert Path("p.csv").read_text() == Path("q.csv").read_text()
    assert "s-0.csv has decimal commas, which were read as such." in printed(capsys)


def test_a_table_of_decimal_commas_without_names_keeps_its_first_row() -> None:
    sites("63,5;2;1,5\n48;1;2\n71,25;5;0,5\n")
    run(f"{FIT} --no-report --out m")
    assert [agent["rows"] for agent in summary()["agents"]] == [3]


@pytest.mark.parametrize(
    ("table", "cell"),
    [
        (
            "a;b;y\n1;1,234;2\n2;12,500;3\n",
            "column 'b' of s-0.csv must be of numbers or of words; line 2 has '1,234'",
        ),
        (
            "a;b;y\n1.5;1;2\n2;2,5;3\n3;7,5;1\n",
            "column 'b' of s-0.csv must be of numbers or of words; line 3 has '2,5'",
        ),
        (
            'a,b,y\n1,"3,5",2\n2.5,"2,5",3\n',
            "column 'b' of s-0.csv must be of numbers or of words; line 2 has '3,5'",
        ),
    ],
)
def test_commas_that_may_mean_something_else_are_refused_with_the_cell(
    table: str, cell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sites(table)
    text = refused(f"{FIT} --out m", capsys)
    assert cell in text
    assert "Give --decimal , if the comma is a decimal mark, or --decimal . if it is not." in text


def test_the_decimal_mark_can_be_given() -> None:
    sites("a;b;y\n1;1,234;2\n2;12,500;3\n1.000,5;2;1\n")
    run(f"{FIT} --decimal , --no-report --out m")
    columns = Model.load(Path("m/agent-000.npz")).reading.columns or ()
    assert [column.fill[0] for column in columns] == pytest.approx([1003.5 / 3, 15.734 / 3])
    run(f"{FIT} --decimal . --categorical a b --no-report --out n")
    assert "b=1,234" in Model.load(Path("n/agent-000.npz")).features


def test_a_decimal_point_among_decimal_commas_is_refused_with_its_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites("a;b;y\n1;1,5;2\n2;2.5;3\n")
    text = refused(f"{FIT} --decimal , --out m", capsys)
    assert "with --decimal , line 3 of s-0.csv must have a decimal comma in column 'b'; it has '2.5'." in text


def test_a_word_among_numbers_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    sites("a,b,y\n1,2,3\n1,x7,3\n")
    text = refused(f"{FIT} --out m", capsys)
    assert "agent 0 (s-0.csv) has the word 'x7' in line 3 and a number in line 2" in text


def test_text_that_is_not_utf8_is_refused_with_its_line_and_read_with_its_encoding(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites("", GERMAN)
    Path("s-0.csv").write_bytes(GERMAN.encode("latin-1"))
    text = refused(f"{FIT} --out m", capsys)
    assert (
        r"line 2 of s-0.csv must be text in utf-8; it has '63,5;K\xf6ln;1,5'. Give its encoding, such" in text
    )
    sites("", "")
    for i in range(2):
        Path(f"s-{i}.csv").write_bytes(GERMAN.encode("latin-1"))
    run(f"{FIT} --encoding latin-1 --no-report --out m")
    assert Model.load(Path("m/agent-000.npz")).features == ["alter", "ort=Köln", "ort=Ulm"]
    refused("predict m --data s-0.csv --out p.csv", capsys)
    run("predict m --data s-0.csv --encoding cp1252 --out p.csv")
    assert "unknown to the model" not in printed(capsys)
    text = refused(f"{FIT} --encoding utf-16 --out n", capsys)
    assert "argument --encoding: must be an encoding that extends ASCII, such as utf-8" in text


def test_ids_of_ratings_are_read_in_their_encoding(capsys: pytest.CaptureFixture[str]) -> None:
    Path("r.csv").write_bytes("user,item,rating\nu,Käse,1\nv,Brot,3\nv,Käse,2\n".encode("latin-1"))
    command = "fit completion --data r.csv --agents 1 --radius 1"
    assert "line 2 of r.csv must be text in utf-8; it has" in refused(f"{command} --out m", capsys)
    run(f"{command} --encoding latin-1 --no-report --out m")
    run("predict m --row u --top 2")
    assert "Käse" in printed(capsys)


# Columns that one site lacks.


def test_a_column_that_one_site_lacks_can_be_dropped(capsys: pytest.CaptureFixture[str]) -> None:
    sites(PLAIN, "a,y\n1,1\n2,2.5\n3,2\n")
    assert "agent 1 (s-1.csv) has no column 'b'. Rename" in refused(f"{FIT} --out m", capsys)
    run(f"{FIT} --drop b --no-report --out m")
    assert Model.load(Path("m/agent-000.npz")).features == ["a"]


def test_a_column_to_drop_that_no_site_has_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    sites(PLAIN, PLAIN)
    text = refused(f"{FIT} --drop b z --out m", capsys)
    assert "some site must have each column of --drop; none has 'z', and the columns are 'a'." in text


# What is written.


def test_the_only_model_of_a_folder_is_used_whatever_its_number() -> None:
    sites(PLAIN, PLAIN)
    run(f"{FIT} --no-report --out m")
    Path("m/agent-000.npz").unlink()
    run("predict m --data s-0.csv --out p.csv")
    run("show m")


def test_a_second_fit_into_the_same_folder_is_refused_while_the_first_runs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN)
    slow = "fit lasso --data s-0.csv --agents 1 --radius 2 --method dfw --seconds 100 --out m"
    first = subprocess.Popen(
        [sys.executable, "-m", "dcgs", *shlex.split(slow)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert first.stderr is not None
        assert first.stderr.readline().startswith("lasso: 1 round, ")  # the run has begun
        text = refused(f"{FIT} --agents 1 --force --out m", capsys)
        assert "m must be written by one fit at a time; process " in text
        assert "is writing to it. Wait for its end, or choose another folder with --out." in text
    finally:
        (worker,) = children(first.pid)
        first.kill()  # its worker is killed with it
        first.communicate()
    until(lambda: not Path(f"/proc/{worker}").exists())
    left = sorted(file.name for file in Path("m").iterdir())
    assert left == [".dcgs-fit.lock", "ledger-000.jsonl"]  # the lock is held by no process
    run(f"{FIT} --no-report --out m")
    written = ["agent-000.npz", "ledger-000.jsonl", "summary.json"]
    assert sorted(file.name for file in Path("m").iterdir()) == written


def test_an_empty_name_of_a_folder_or_file_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    sites(PLAIN)
    assert "argument --out: must be a name; got ''" in refused(f"{FIT} --out ''", capsys)
    assert "argument --checkpoint: must be a name" in refused(f"{FIT} --checkpoint ' ' --out m", capsys)
    run(f"{FIT} --no-report --out m")
    assert "argument --out: must be a name" in refused("predict m --data s-0.csv --out ''", capsys)


# What is shown.


def test_show_sorts_coefficients_by_their_effect_in_deviations(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    age, share = rng.normal(60.0, 20.0, 80), rng.normal(0.5, 0.01, 80)
    y = 0.5 * age + 4.0 * share  # a deviation of age counts 10, one of the share 0.04
    sites("age,share,y\n" + "".join(f"{a},{s},{t}\n" for a, s, t in zip(age, share, y, strict=True)))
    run("fit lasso --data s-0.csv --agents 1 --radius 50 --gap 1e-9 --no-report --out m")
    capsys.readouterr()
    run("show m")
    text = printed(capsys)
    assert "largest first per deviation of the column" in text
    assert text.index("│ age │") < text.index("│ share │")
    model = Model.load(Path("m/agent-000.npz"))
    assert model.deviation is not None
    effect = model.x[0] * model.deviation[0]
    assert f"│ {model.x[0]:+.6g} │ {effect:+.4g} │" in text
    with np.load("m/agent-000.npz") as arrays:
        old = {name: arrays[name] for name in arrays.files if name != "deviation"}
    np.savez("old.npz", **old)  # as versions before wrote it
    run("show old.npz")
    text = printed(capsys)
    assert "largest first in the units of the columns; the model has no deviations" in text
    assert text.index("│ share │") < text.index("│ age │")
    run("predict old.npz --data s-0.csv --out p.csv")


@pytest.fixture
def model() -> None:
    """A model ``m`` of the file s-0.csv."""
    sites(PLAIN)
    run(f"{FIT} --no-report --out m")


@pytest.mark.usefixtures("model")
def test_predictions_are_written_through_links_and_into_pipes() -> None:
    run("predict m --data s-0.csv --out p.csv")
    expected = Path("p.csv").read_bytes()
    Path("real").mkdir()
    Path("real/q.csv").write_text("old")
    Path("link.csv").symlink_to("real/q.csv")
    run("predict m --data s-0.csv --out link.csv")
    assert Path("link.csv").is_symlink()
    assert Path("real/q.csv").read_bytes() == expected
    os.mkfifo("pipe")
    reader = subprocess.Popen(["cat", "pipe"], stdout=subprocess.PIPE)
    run("predict m --data s-0.csv --out pipe")
    assert reader.communicate(timeout=60)[0] == expected
    assert Path("pipe").is_fifo()


@pytest.mark.usefixtures("model")
def test_predictions_for_standard_output_are_alone_there() -> None:
    run("predict m --data s-0.csv --out p.csv")
    Path("out").symlink_to("/proc/self/fd/1")  # as /dev/stdout is, which a mistake would replace
    command = "predict m --data s-0.csv --out out"
    done = subprocess.run(
        [sys.executable, "-m", "dcgs", *shlex.split(command)], capture_output=True, text=True, check=True
    )
    assert done.stdout == Path("p.csv").read_text()
    assert "RMSE" in done.stderr
    assert Path("out").is_symlink()


@pytest.mark.usefixtures("model")
def test_predictions_carry_the_ids_of_their_rows(capsys: pytest.CaptureFixture[str]) -> None:
    Path("n.csv").write_text("pid,b,a\n007,2,1\nx;1,#N/A,2\n#N/A,1,1\n")
    run("predict m --data n.csv --id pid --out p.csv")
    lines = Path("p.csv").read_text().splitlines()
    assert [line.rpartition(",")[0] for line in lines] == ["pid", "007", "x;1", "#N/A"]
    text = refused("predict m --data n.csv --id name --out p.csv", capsys)
    assert "n.csv must have a column 'name'; its columns are 'pid', 'b', 'a'." in text
    np.savez("n.npz", A=np.ones((2, 2)))
    assert "--id is for tables with such a column; n.npz is not one." in refused(
        "predict m --data n.npz --id pid", capsys
    )


def test_ids_of_a_parquet_file_are_carried() -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    sites(PLAIN)
    run(f"{FIT} --no-report --out m")
    pq.write_table(pa.table({"pid": ["p", "q"], "a": [1.0, 2.0], "b": [1.0, 2.0]}), "n.parquet")
    run("predict m --data n.parquet --id pid --out p.csv")
    assert [line.split(",")[0] for line in Path("p.csv").read_text().splitlines()] == ["pid", "p", "q"]


HOSTILE = "\x1b[31mred"


def test_terminal_escapes_are_shown_escaped(capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{k % 7},w{HOSTILE}{k % 2},{HOSTILE if k % 3 else 'no'}\n" for k in range(30))
    sites(f"a{HOSTILE},b,y\n{rows}")
    fit = FIT.replace("lasso", "logistic")
    run(f"{fit} --no-report --out m")
    run("show m")
    run("predict m --data s-0.csv")
    ended = capsys.readouterr()
    assert "\x1b" not in ended.out + ended.err
    assert r"\x1b[31mred" in ended.out
    sites(f"a,y\n1,{HOSTILE}\n2,{HOSTILE}\n")
    with pytest.raises(SystemExit):
        main(shlex.split(f"{fit} --out n"))
    assert r"of one class, \x1b[31mred." in capsys.readouterr().err
    Path("r.csv").write_text(f"user,item,rating\nu,{HOSTILE},1\nv,{HOSTILE},3\nv,i,2\n")
    run("fit completion --data r.csv --agents 1 --radius 1 --no-report --out r")
    run("predict r --row u --top 2")
    assert "\x1b" not in capsys.readouterr().out


def test_labels_that_are_formulas_are_written_as_texts() -> None:
    labels = ["=1+1", "+cmd", "-x", "@sum", "plain", "-"]
    sites("a,y\n" + "".join(f"{k},{labels[k % 6]}\n" for k in range(60)))
    run("fit logistic --data s-0.csv --agents 1 --radius 5 --no-report --out m")
    run("predict m --data s-0.csv --out p.csv")
    lines = [line.split(",") for line in Path("p.csv").read_text().splitlines()]
    targets = [line[-1] for line in lines[1:]]
    assert targets[:6] == ["'=1+1", "'+cmd", "'-x", "'@sum", "plain", "-"]
    assert all(not line[0].startswith(("=", "+", "-x", "@")) for line in lines)
    sites("a,y\n" + "".join(f"{k},{(-1) ** k}\n" for k in range(20)))
    run("fit logistic --data s-0.csv --agents 1 --radius 5 --no-report --out n")
    run("predict n --data s-0.csv --out p.csv")
    assert Path("p.csv").read_text().splitlines()[2].endswith(",-1.0")


JUNK: list[Any] = [None, "", "x", -1, 10**400, float("inf"), True, [], {}, ["x"], {"x": 1}, [[1]], HOSTILE]


def places(entry: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all entries of a JSON value."""
    items = entry.items() if isinstance(entry, dict) else enumerate(entry) if isinstance(entry, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


@pytest.mark.parametrize(
    ("fit", "predict"),
    [
        ("logistic --data k.csv --agents 2 --radius auto --class-weight balanced", "--data k.csv"),
        ("completion --data r.csv --agents 1 --radius 2", "--row u1 --top 2"),
    ],
)
def test_a_malformed_description_in_a_model_gives_a_sentence(
    fit: str, predict: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("k.csv").write_text("a,b,y\n" + "".join(f"{k % 7},{k % 5},{'xyz'[k % 3]}\n" for k in range(60)))
    Path("r.csv").write_text(
        "user,item,rating\n" + "".join(f"u{k % 5},i{k % 7},{k % 4}\n" for k in range(30))
    )
    run(f"fit {fit} --no-report --out m")
    with np.load("m/agent-000.npz") as model:
        arrays = {name: model[name] for name in model.files}
    meta = str(arrays.pop("meta"))
    rng = np.random.default_rng(0)
    refusals = 0
    for _ in range(40):
        crafted = json.loads(meta)
        paths = list(places(crafted["about"]))
        *above, last = ("about", *paths[rng.integers(len(paths))])
        entry = crafted
        for key in above:
            entry = entry[key]
        entry[last] = JUNK[rng.integers(len(JUNK))]
        np.savez("crafted.npz", meta=np.array(json.dumps(crafted)), **arrays)
        for command in ("show crafted.npz", f"predict crafted.npz {predict}"):
            status = status_of(command)
            ended = capsys.readouterr()
            said = "crafted.npz must be a model written by dcgs fit; " in ended.err
            assert (status, said) in ((0, False), (2, True))
            assert "\x1b" not in ended.out + ended.err
            refusals += said
    assert refusals > 20


# What is odd about the columns.


def patients(site: int, rows: int = 40) -> dict[str, list[Any]]:
    """Return plain columns of a site."""
    rng = np.random.default_rng(site)
    age = rng.normal(60.0, 10.0, rows).round(1)
    return {
        "age": age.tolist(),
        "creatinine": rng.normal(1.0, 0.3, rows).round(2).tolist(),
        "icu": (rng.random(rows) < 0.2 * site).astype(int).tolist(),  # may differ at sites
        "visits": rng.integers(0, 9, rows).tolist(),
        "died": np.where(age + rng.normal(0.0, 10.0, rows) > 60.0, "yes", "no").tolist(),
    }


def noted(*tables: dict[str, list[Any]], problem: str = "logistic") -> list[str]:
    """Return the notes of a fit to the tables of sites."""
    for i, columns in enumerate(tables):
        rows = zip(*columns.values(), strict=True)
        lines = [",".join(columns), *(",".join(map(str, row)) for row in rows)]
        Path(f"s-{i}.csv").write_text("\n".join(lines) + "\n")
    run(f"fit {problem} --data s-{{agent}}.csv --open --target died --radius 1 --no-report --force --out m")
    found: list[str] = summary()["data_notes"]
    return found


def test_ordinary_columns_are_not_noted() -> None:
    assert noted(*map(patients, range(4))) == ["agent 0 (s-0.csv) has one value only in 'icu'."]


@pytest.mark.parametrize("factor", [88.4, 0.01])
@pytest.mark.parametrize("count", [2, 4])
def test_a_site_that_uses_another_unit_is_noted(factor: float, count: int) -> None:
    tables = [patients(i + 1) for i in range(count)]
    tables[1]["creatinine"] = [factor * value for value in tables[1]["creatinine"]]
    # Of two sites, nobody knows which is odd.
    odd = "agent 1 (s-1.csv) has" if count > 2 else "agents 0 (s-0.csv) and 1 (s-1.csv) have"
    (note,) = noted(*tables)
    assert note.startswith(f"{odd} a mean of 'creatinine' far from that of the others")
    assert note.endswith("(ten deviations, or a power of ten); see whether all sites use the same unit.")


def test_codes_of_missing_values_and_huge_values_are_noted() -> None:
    tables = [patients(1), patients(2), patients(3)]
    tables[0]["age"][:2] = [-999, -999]
    tables[1]["creatinine"][5] = 1e30
    tables[2]["visits"][3] = 9999
    text = " ".join(noted(*tables))
    assert "agent 0 (s-0.csv) has 2 × -999 in 'age'; agent 1 (s-1.csv) has 1 × 1e+30 in 'creatinine'" in text
    assert (
        "agent 2 (s-2.csv) has 1 × 9999 in 'visits'; if such a value stands for a missing one, write NA"
        in text
    )


def test_ids_and_copies_of_the_target_are_noted() -> None:
    tables = [patients(1), patients(2)]
    for i, table in enumerate(tables):
        table["pid"] = np.random.default_rng(i).permutation(100 + np.arange(40)).tolist()
        table["dead"] = [int(died == "yes") for died in table["died"]]
    first, second = noted(*tables)
    assert first.startswith(
        "agents 0 (s-0.csv) and 1 (s-1.csv) have another whole number in each row of 'pid'"
    )
    assert first.endswith("; if these are ids, leave them out (of tables with --drop).")
    assert "agents 0 (s-0.csv) and 1 (s-1.csv) have a copy of the target in 'dead'" in second
    for i, table in enumerate(tables):
        table |= {"died": (np.arange(40.0) ** 2 + i).tolist(), "dead": (np.arange(40.0) ** 2 + i).tolist()}
    assert "have a copy of the target in 'dead'" in noted(*tables, problem="lasso")[-1]


def test_notes_on_columns_take_one_union_and_no_further_sum() -> None:
    noted(*map(patients, range(3)))
    sent = summary()["sent"]
    assert [each["operation"] for each in sent].count("union") == 1
    # The means of other sites are known after the first sum, so that notes on them are in the second.
    (second,) = (each["name"] for each in sent if "a mean far from that of the others" in each["name"])
    assert second.startswith("counts, and sums of columns and targets; ")
    assert len(sent) == 5  # the union, means that fill holes, means, deviations, and scores


def test_a_number_whose_square_overflows_is_refused_with_its_line(capsys: pytest.CaptureFixture[str]) -> None:
    sites(PLAIN.replace("3,5,2", "3,-1e200,2"))
    text = refused(f"{FIT} --out m", capsys)
    assert "column 'b' of s-0.csv must be of numbers of at most 1e+140; line 4 has -1e+200. Correct" in text


def test_a_lock_is_shared_by_the_processes_of_one_fit_and_a_stale_one_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("old process 1 on another machine, which was killed")
    lock = take_lock(file, "new")
    assert lock is not None
    assert take_lock(file, "new") is None
    with pytest.raises(ValueError, match=rf"one fit at a time; process {os.getpid()} on .* is writing to it"):
        take_lock(file, "other")
    os.close(lock)
    other = take_lock(file, "other")
    assert other is not None
    os.close(other)


def test_a_graph_whose_names_are_no_utf8_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    sites(PLAIN, PLAIN, PLAIN)
    Path("net.edges").write_bytes("Köln Ulm\nKäln Ulm\n".encode("latin-1"))  # not one node of two names
    text = refused(f"{FIT} --graph net.edges --out m", capsys)
    assert r"line 1 of net.edges must be text in utf-8; it has 'K\xf6ln Ulm'. Save it as UTF-8." in text


# Names of sites.


def test_names_of_sites_are_in_notes_tables_the_summary_the_page_and_errors(
    capsys: pytest.CaptureFixture[str],
) -> None:
    sites(PLAIN, PLAIN, PLAIN.replace("3,5,2", "3,5,9"))
    run(f"{FIT} --out m --name ulm,graz,bern")
    out = printed(capsys)
    assert "ulm and graz have the same file" in out
    assert [out.count(f"│ {name} │") for name in ("ulm", "graz", "bern")] == [2, 2, 2]
    assert [agent["name"] for agent in summary()["agents"]] == ["ulm", "graz", "bern"]
    page = Path("m/report.html").read_text()
    assert page.count('<th scope="row">graz</th>') == 2
    Path("s-1.csv").write_text(PLAIN.replace("b", "weight"))
    error = refused(f"{FIT} --out m --force --name ulm,graz,bern", capsys)
    assert (
        "ulm (s-0.csv) and bern (s-2.csv) have no column 'weight'; graz (s-1.csv) has no column 'b'" in error
    )


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("ulm,graz,ulm", "every site must have a name of its own; agents 0 and 2 have the name 'ulm'."),
        ("x,x,bern", "every site must have a name of its own; agents 0 and 1 have the name 'x'."),
        ("ulm,graz", "--name must have a name for each of the 3 agents of this process; got 2"),
        ("ulm,,bern", "must be names of at most 60 characters without brackets, separated by commas"),
    ],
)
def test_names_that_do_not_tell_sites_apart_are_refused(
    names: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sites(PLAIN, PLAIN, PLAIN)
    assert message in refused(f"{FIT} --out m --name {shlex.quote(names)}", capsys)
