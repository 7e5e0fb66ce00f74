"""Whose file is whose, by what processes tell each other before they read data."""

from __future__ import annotations

from pathlib import Path

import pytest

from dcgs.datasets import BrokenDataError
from dcgs.learn.files.source import (
    DataSource,
    ProcessRecord,
    exchange_records,
    file_notes,
    has_own_files,
    option_text,
)
from dcgs.learn.sites import SitesError
from thread_runtime import OverThreads
from thread_transport import Network


def record(*agents: int, files: str = "a", is_numbered: bool = False) -> ProcessRecord:
    """Return the record of a process whose files have these contents."""
    names = tuple(f"agent {i}" for i in agents)
    return ProcessRecord(agents, {}, tuple(("p.csv", checksum) for checksum in files), is_numbered, names)


def test_processes_of_different_fits_are_named_before_they_read(tmp_path: Path) -> None:
    (tmp_path / "p.csv").write_text("a,y\n1,2\n")
    source = DataSource(str(tmp_path / "p.csv"))

    def exchanged(runtime: OverThreads) -> str:
        rank = runtime.hosts(2)[0]
        options = {"--agents": str(3 + rank), "--graph": "'cycle'"}
        with pytest.raises(SitesError) as refused:
            exchange_records(source, None, [rank], options, runtime)
        return str(refused.value)

    texts = Network(2).run(lambda transport: exchanged(OverThreads(transport)))
    assert (
        texts
        == [
            "all sites must be given the same options; --agents is 3 at process 0, and 4 at process 1. Give "
            "the same at all sites."
        ]
        * 2
    )


def test_one_file_in_all_processes_is_split_and_noted() -> None:
    records = [record(0), record(1, 2)]
    assert not has_own_files(records)
    assert file_notes(records) == [
        "all 2 processes have the same p.csv, by its content: it was split into parts, one for each agent."
    ]


def test_different_files_of_one_name_are_those_of_the_processes() -> None:
    records = [record(0, files="a"), record(1, files="b"), record(2, files="a")]
    assert has_own_files(records)
    assert file_notes(records) == [
        "processes have different files p.csv: each was taken as that of its own agent.",
        "agents 0 and 2 have the same file, by its content: its rows count 2 times.",
    ]


def test_a_process_of_several_agents_cannot_have_one_file_of_its_own() -> None:
    with pytest.raises(
        BrokenDataError, match="the files of processes differ; agents 1 and 2 are in one process"
    ):
        has_own_files([record(0, files="a"), record(1, 2, files="b")])


def test_numbered_files_are_no_files_of_processes_and_equal_ones_are_noted() -> None:
    records = [record(0, 1, files="ab", is_numbered=True), record(2, files="b", is_numbered=True)]
    assert not has_own_files(records)
    assert file_notes(records) == [
        "agents 1 and 2 have the same file, by its content: its rows count 2 times."
    ]
    assert file_notes([record(0, 1, files="ab", is_numbered=True)]) == []


def test_a_file_that_is_an_option_is_compared_by_its_content(tmp_path: Path) -> None:
    for name, edges in (("a.edges", "0 1\n"), ("b.edges", "0 1\n"), ("c.edges", "0 2\n")):
        (tmp_path / name).write_text(edges)
    one, same, other = (option_text(str(tmp_path / f"{name}.edges"), may_be_file=True) for name in "abc")
    assert one == same != other
    assert option_text(str(tmp_path / "a.edges")).endswith("a.edges'")
