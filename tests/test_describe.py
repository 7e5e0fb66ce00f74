"""``dcgs describe``: table one of all sites, what is not told in it, and what is noted about columns."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

import networkx as nx
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dcgs.cli import main
from dcgs.datasets import write_patients
from dcgs.learn.files.table_one import SiteTable, agree_on_tables, column_facts, site_table
from dcgs.learn.files.tables import Column, Table
from dcgs.learn.sums import Reductions
from dcgs.runtime import Lockstep

FLOOR = 10
Columns: TypeAlias = dict[str, Any]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def described(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main(shlex.split(f"describe {command}")) == 0
    return " ".join(capsys.readouterr().out.split())


def refused(command: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(f"describe {command}"))
    assert ended.value.code == 2
    return " ".join(capsys.readouterr().err.split())


def columns_of(site: Mapping[str, Any]) -> dict[str, Any]:
    return {column["name"]: column for column in site["columns"]}


def test_the_table_has_the_counts_means_and_deviations_of_each_site_and_of_all(
    capsys: pytest.CaptureFixture[str],
) -> None:
    files = write_patients(Path(), sites=2, rows=60)
    printed = described("--data hospital-{agent}.csv --name ulm,graz --out t.json", capsys)
    ages, wards = [], []
    sites = json.loads(Path("t.json").read_text())["sites"]
    for file, site in zip(files, sites, strict=True):
        lines = [line.split(",") for line in file.read_text().splitlines()]
        rows = [dict(zip(lines[0], line, strict=True)) for line in lines[1:]]
        ages.append(np.array([float(row["age"]) for row in rows]))
        wards.append([row["ward"] for row in rows])
        columns = columns_of(site)
        assert site["rows"] == len(rows)
        assert columns["age"]["mean"] == pytest.approx(ages[-1].mean())
        assert columns["age"]["deviation"] == pytest.approx(ages[-1].std())
        assert columns["ward"]["levels"]["surgery"] == wards[-1].count("surgery")
    assert [site["name"] for site in sites] == ["ulm", "graz"]
    both, surgery = np.concatenate(ages), sum(some.count("surgery") for some in wards)
    assert f"│ age │ {both.mean():.4g} ± {both.std():.3g} │ {ages[0].mean():.4g} ±" in printed
    assert f"│ ward=surgery │ {surgery} ({surgery / len(both):.0%}) │" in printed


@settings(derandomize=True, deadline=None, max_examples=200)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(0, 40))
def test_no_small_count_is_told_or_follows_from_what_is(counts: list[int], missing: int) -> None:
    texts = [f"level {k}" for k, count in enumerate(counts) for _ in range(count)] + ["NA"] * missing
    assume(len(texts) >= FLOOR)  # of fewer nothing is told
    facts = column_facts("c", Column.of_texts(texts), True, FLOOR)
    told = [*facts.levels.values(), *(count for count in (facts.missing, facts.others) if count is not None)]
    assert all(count == 0 or count >= FLOOR for count in told)
    assert all(facts.levels[level] == texts.count(level) for level in facts.levels)
    rest = len(texts) - sum(told)  # follows from the number of rows
    assert rest == 0 or rest >= FLOOR


def test_a_flag_of_few_and_a_column_of_few_values_have_no_mean() -> None:
    flag = np.zeros(200)
    flag[:3] = 1.0
    few = np.full(200, np.nan)
    few[:5] = [1.0, 2.0, 3.0, 4.0, 5.0]
    for numbers in (flag, few):
        facts = column_facts("c", Column(numbers), False, FLOOR)
        assert facts.mean is facts.deviation is None
    flag[:30] = 1.0
    assert column_facts("c", Column(flag), False, FLOOR).mean == pytest.approx(0.15)


def test_a_mean_that_few_people_dominate_is_not_sent() -> None:
    numbers = np.random.default_rng(0).normal(50.0, 10.0, 200)
    assert column_facts("crp", Column(numbers), False, FLOOR).mean == pytest.approx(numbers.mean())
    numbers[7] = 1e7
    facts = column_facts("crp", Column(numbers), False, FLOOR)
    assert facts.mean is facts.deviation is None


def test_of_a_site_with_few_rows_nothing_but_its_name_is_sent() -> None:
    column = Column(np.arange(9.0))
    table = Table(Path("s.csv"), (column,), None, ("age",), None, None, np.arange(9))
    assert site_table("ulm", table, (), FLOOR) == SiteTable("ulm")
    assert site_table("ulm", table, (), 9).rows == 9


def test_a_rare_level_is_in_no_message() -> None:
    sent: list[bytes] = []
    words = Column.of_texts(["surgery"] * 40 + ["medicine"] * 30 + ["prison"] * 2)
    table = Table(Path("s.csv"), (words,), None, ("ward",), None, None, np.arange(72))
    tables = {i: site_table(f"agent {i}", table, (), FLOOR) for i in range(3)}
    runtime = Lockstep(on_message=lambda k, i, j, arrays: sent.extend(array.tobytes() for array in arrays))
    found = agree_on_tables(tables, Reductions(nx.path_graph(3), runtime), FLOOR)
    assert any(b"surgery" in content for content in sent)
    assert not any(b"prison" in content for content in sent)
    assert (found.sites[2].columns[0].levels, found.sites[2].columns[0].others) == ({"surgery": 40}, 32)


# What is odd, in every format.


def write_csv(file: str, columns: Columns) -> None:
    rows = zip(*columns.values(), strict=True)
    lines = [",".join(columns), *(",".join(map(repr, map(float, row))) for row in rows)]
    Path(f"{file}.csv").write_text("\n".join(lines) + "\n")


def write_parquet(file: str, columns: Columns) -> None:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table(columns), f"{file}.parquet")


def write_npz(file: str, columns: Columns) -> None:
    *features, target = columns.values()
    np.savez(f"{file}.npz", A=np.column_stack(features), b=target)


def write_svm(file: str, columns: Columns) -> None:
    *features, target = columns.values()
    lines = [
        f"{t} " + " ".join(f"{k + 1}:{v}" for k, v in enumerate(row) if v)
        for t, *row in zip(target, *features, strict=True)
    ]
    Path(f"{file}.svm").write_text("\n".join(lines) + "\n")


FORMATS: dict[str, tuple[Callable[[str, Columns], None], bool]] = {
    "csv": (write_csv, True),
    "parquet": (write_parquet, True),
    "npz": (write_npz, False),
    "svm": (write_svm, False),
}
NAMES = ("creatinine", "age", "pid", "copy", "fixed", "flag")


def write_odd(kind: str) -> list[str]:
    """Write three sites whose columns are odd; return the names of columns as notes have them."""
    rng = np.random.default_rng(3)
    write, has_names = FORMATS[kind]
    for i in range(3):
        died = (rng.random(60) < 0.4).astype(float)
        creatinine = rng.normal(1.0, 0.2, 60) * (88.4 if i == 1 else 1.0)
        age = rng.normal(60.0, 10.0, 60)
        age[: 12 * (i == 2)] = -999.0
        columns = [creatinine, age, 1000.0 + rng.permutation(60), died * 2.0 + 1.0, np.full(60, 7.0)]
        columns.append((rng.random(60) < (0.9 if i == 0 else 0.1)).astype(float))  # a share is no unit
        write(f"s-{i}", dict(zip((*NAMES, "died"), [*columns, died], strict=True)))
    return list(NAMES) if has_names else [f"feature {k + 1}" for k in range(len(NAMES))]


@pytest.mark.parametrize("kind", FORMATS)
def test_odd_columns_are_noted_alike_for_every_format_by_describe_and_fit(
    kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    creatinine, age, pid, copy, fixed, flag = write_odd(kind)
    target = " --target died" if FORMATS[kind][1] else ""
    text = described(f"--data s-{{agent}}.{kind}{target} --name ulm,graz,bern", capsys)
    for note in (
        f"bern has 12 × -999 in '{age}'; if such a value stands for a missing one",
        f"ulm, graz and bern have another whole number in each row of '{pid}'; if these are ids",
        f"ulm, graz and bern have a copy of the target in '{copy}'; leave it out",
        f"ulm, graz and bern have one value only in '{fixed}', which cannot help",
    ):
        assert f"note: {note}" in text
    assert "note: graz has a mean of 8" in text
    assert f"in '{creatinine}', far from that of the others (ten deviations, or a power of ten)" in text
    assert f"'{flag}'" not in text

    fit = f"fit logistic --data s-{{agent}}.{kind} --open --radius 2 --held-out 0 --no-report --out m{target}"
    assert main(shlex.split(f"{fit} --name ulm,graz,bern")) == 0
    notes = " ".join(json.loads(Path("m/summary.json").read_text())["data_notes"])
    for note in (
        f"bern (s-2.{kind}) has 12 × -999 in '{age}'; if such a value stands for a missing one",
        f"ulm (s-0.{kind}), graz (s-1.{kind}) and bern (s-2.{kind}) have another whole number in each row of "
        f"'{pid}'; if these are ids",
        f"bern (s-2.{kind}) have a copy of the target in '{copy}'; leave it out",
        f"'{fixed}' has the same value in all rows of all sites, and cannot help to predict.",
        f"graz (s-1.{kind}) has a mean of '{creatinine}' far from that of the others",
    ):
        assert note in notes
    assert f"'{flag}'" not in notes


def test_few_codes_are_noted_without_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    age = rng.normal(60.0, 10.0, 40)
    age[:3] = -999.0
    write_csv("s-0", {"age": age, "y": rng.normal(size=40)})
    text = described("--data s-{agent}.csv", capsys)
    assert "agent 0 has a code such as -999 in 'age'; if" in text
    assert "3 ×" not in text


def test_columns_that_sites_lack_or_have_in_words_are_noted(capsys: pytest.CaptureFixture[str]) -> None:
    for i, line in enumerate(("1.5,2", "1.5,2", "low,2")):
        names = "a,b" if i != 1 else "c,b"
        Path(f"s-{i}.csv").write_text("\n".join([names, *[line] * 12]) + "\n")
    text = described("--data s-{agent}.csv", capsys)
    assert "note: column 'a' is at other sites, and not at agent 1." in text
    assert "note: column 'a' has words at agent 2, and numbers at other sites." in text
    assert "note: column 'c' is at other sites, and not at agents 0 and 2." in text


def test_libsvm_text_without_a_column_is_not_said_to_lack_it(capsys: pytest.CaptureFixture[str]) -> None:
    for i, features in enumerate(("1:1.5 2:2", "1:1.5")):
        Path(f"s-{i}.svm").write_text(f"1 {features}\n0 {features}\n" * 10)
    assert "at other sites" not in described("--data s-{agent}.svm", capsys)


def test_a_file_that_cannot_be_read_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    Path("s-0.csv").write_text("a,b\n1,2\n1\n")
    assert "line 3 of s-0.csv must have 2 columns" in refused("--data s-{agent}.csv", capsys)
