"""Ledgers: every message of a fit has its line, lines are chained, and what was sent is told by its form."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.cli import main
from dcgs.datasets import write_patients
from dcgs.learn.summary import ledger_table
from dcgs.learn.sums import Reductions, Request
from dcgs.runtime.ledger import (
    FLAGS,
    HESSIANS,
    KEYS,
    MASKED,
    NUMBERS,
    TEXTS,
    TEXTS_AND_KEYS,
    VECTORS,
    Entry,
    Ledger,
    added,
    last_fit,
    read,
    totals,
)

FIT = "fit logistic --data hospital-{agent}.csv --open --target ill --radius 2 --out m"
NEWTON = "--method-option form=newton"  # all forms are told; of these, few take Hessians


@pytest.fixture
def ledger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the ledger of a fit of three hospitals, whose messages were also recorded."""
    monkeypatch.chdir(tmp_path)
    write_patients(Path(), sites=3, rows=60)
    assert main(shlex.split(f"{FIT} {NEWTON} --record-messages messages.npz")) == 0
    return Path("m/ledger-000.jsonl")


def test_every_message_of_a_fit_has_its_line(ledger: Path) -> None:
    file, messages = read(ledger), list(dcgs.recorded_messages("messages.npz"))
    assert file.broken == ()
    assert file.lines[0].agents == (0, 1, 2)
    assert file.lines[0].command.startswith("dcgs fit logistic")
    sent = [(line.round, line.sender, j, line.bytes) for line in file.lines for j in line.to]
    assert sent == [(m.round, m.sender, m.receiver, sum(a.nbytes for a in m.arrays)) for m in messages]
    entries = totals(file.lines)
    assert sum(entry.messages for entry in entries) == len(messages)
    assert not any(entry.masked or entry.sum == "" for entry in entries)


def test_hessians_of_a_run_are_named_in_the_summary_and_on_the_page(ledger: Path) -> None:
    summary = json.loads(Path("m/summary.json").read_text())
    forms = {entry["form"] for entry in summary["ledger"] if entry["sum"] == "the run"}
    assert HESSIANS in forms
    page = Path("m/report.html").read_text()
    assert HESSIANS in page
    assert "were never sent" not in page
    assert "There were no floors" in page


def test_the_command_adds_the_ledger_up(ledger: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "m"]) == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "ledger-000.jsonl: agents 0 to 2, 1 fit" in text
    assert "the chain is whole" in text
    assert f"last hash {read(ledger).last}" in text
    assert "0 bytes left masked" in text
    assert "Hessians" in text


@pytest.mark.parametrize("change", ["a number", "a line less", "a line twice", "two lines exchanged"])
def test_a_ledger_that_was_changed_is_broken(
    change: str, ledger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = ledger.read_bytes().splitlines(keepends=True)
    changed = {
        "a number": [*lines[:4], lines[4].replace(b'"round": 1', b'"round": 2'), *lines[5:]],
        "a line less": [*lines[:4], *lines[5:]],
        "a line twice": [*lines[:5], *lines[4:]],
        "two lines exchanged": [*lines[:4], lines[5], lines[4], *lines[6:]],
    }[change]
    assert changed != lines
    ledger.write_bytes(b"".join(changed))
    assert read(ledger).broken[0] in (5, 6)
    assert main(["ledger", "m"]) == 1
    assert "BROKEN: line" in capsys.readouterr().out


def test_a_second_fit_goes_on_with_the_chain(ledger: Path) -> None:
    first = ledger.read_bytes()
    assert main(shlex.split(f"{FIT} --force")) == 0
    assert ledger.read_bytes().startswith(first)
    file = read(ledger)
    assert file.broken == ()
    assert sum(bool(line.agents) for line in file.lines) == 2
    assert 2 * len(last_fit(file.lines)) == len(file.lines)


def test_a_fit_that_failed_where_all_agents_are_here_leaves_the_ledger_as_it_was(ledger: Path) -> None:
    before = ledger.read_bytes()
    with pytest.raises(SystemExit, match="2"):
        main(shlex.split(f"{FIT} --force --min-count 50"))
    assert ledger.read_bytes() == before


def test_a_process_that_is_not_alone_keeps_what_it_sent_before_it_failed(tmp_path: Path) -> None:
    path = tmp_path / "ledger-000.jsonl"
    written = Ledger(path, [0])
    written(1, 0, 1, (np.ones(2),))
    written.__exit__(RuntimeError, RuntimeError(), None)
    assert [line.to for line in read(path).lines] == [(), (1,)]


def test_a_line_that_was_cut_by_a_kill_is_named_and_the_chain_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger-000.jsonl"
    with Ledger(path, [0]) as written:
        written(1, 0, 1, (np.ones(2),))
    path.write_bytes(path.read_bytes()[:-20])
    with Ledger(path, [0]) as written:
        written(1, 0, 1, (np.ones(2),))
    assert read(path).broken == (2,)


def test_forms_are_told_by_kind_and_length(tmp_path: Path) -> None:
    path, d = tmp_path / "ledger-000.jsonl", 5
    messages: list[tuple[Any, ...]] = [
        (np.zeros(3), np.zeros(d), np.zeros(15)),
        (np.zeros((d, d)),),
        (np.zeros((4, 1 + d)), np.zeros((4, d * (d + 1) // 2))),  # flooded, of four agents
        (np.zeros(8),),  # the longer one of two pieces
        (np.zeros(3), np.zeros(d)),
        (np.zeros((d, 3)), np.zeros((3, 3))),  # factors
        (np.zeros(3),),
        (np.frombuffer(b"ward", dtype=np.uint8),),
        (np.zeros(0, dtype=np.uint8), np.zeros(2), np.full((2, 21), 97, dtype=np.uint8)),
        (np.zeros(8, dtype=np.uint8),),
        (np.zeros((3, 32), dtype=np.uint8),),
        (np.zeros((3, 32), dtype=np.uint8), np.frombuffer(b"ward", dtype=np.uint8)),
        (np.zeros(12, dtype=np.uint64),),
    ]
    with Ledger(path, [0]) as written:
        written.named("the run", d)
        for arrays in messages:
            written(1, 0, 1, arrays)
            written(1, 0, 2, arrays)  # one message to two neighbors
    lines = read(path).lines[1:]
    assert [line.form for line in lines] == [
        *4 * [HESSIANS],
        *2 * [VECTORS],
        NUMBERS,
        *2 * [TEXTS],
        FLAGS,
        KEYS,
        TEXTS_AND_KEYS,
        MASKED,
    ]
    assert [line.sum for line in lines] == ["the run"] * 10 + [KEYS, "the run", "the run"]
    assert [line.masked for line in lines] == [False] * 12 + [True]
    assert {line.to for line in lines} == {(1, 2)}
    both = added([totals(lines), totals(lines)])
    numbers = 4 * (23 + 25 + 84 + 8)
    assert (both[0].messages, both[0].numbers, both[0].bytes) == (16, numbers, 8 * numbers)


def test_a_masked_purpose_has_one_line_with_its_answer() -> None:
    entries = [
        Entry("weights", MASKED, True, 3, 30, 240),
        Entry("weights", FLAGS, False, 3, 3, 3),
        Entry("weights", NUMBERS, False, 3, 6, 48),
        Entry("names", TEXTS, False, 4, 40, 40),
    ]
    assert ledger_table(entries).rows == [
        ["weights", MASKED, "flags, numbers", 9, 291],
        ["names", "texts, open", None, 4, 40],
    ]


def test_what_sites_say_themselves_is_not_beside_what_is_masked(tmp_path: Path) -> None:
    path = tmp_path / "ledger-000.jsonl"
    with Ledger(path, range(3)) as written:
        runtime = dcgs.Lockstep(on_message=written)
        network = Reductions(nx.path_graph(3), runtime, named=written.named, secure=True)

        def both() -> Any:
            rows = Request("rows", {i: [float(i)] for i in range(3)})
            names = Request("names", {i: [f"n{i}"] for i in range(3)}, "union")
            return (yield [rows, names])

        (((rows,), names),) = network.run(both())
    assert (float(rows), names) == (3.0, ("n0", "n1", "n2"))
    sums = {
        entry.sum: entry for entry in totals(read(path).lines) if entry.form == TEXTS_AND_KEYS or entry.masked
    }
    assert {name: entry.masked for name, entry in sums.items()} == {"names": False, "rows": True}


def test_a_folder_without_ledgers_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["ledger", str(tmp_path)])
    assert "must hold ledgers" in " ".join(capsys.readouterr().err.split())
