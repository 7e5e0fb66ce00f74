"""What processes tell each other before they read data, compared without a network."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from dcgs.datasets import BrokenDataError
from dcgs.fitting.site_records import SiteRecord, check_options, file_notes, has_own_files, option_text

SAME = {"--missing": "'mean'", "--gap": "not given", "--agents": "3"}


def record(
    *agents: int, options: Mapping[str, str] = SAME, files: str = "a", numbered: bool = False
) -> SiteRecord:
    """Return the record of a process whose files have these checksums."""
    return SiteRecord(agents, options, tuple(("p.csv", checksum) for checksum in files), numbered)


def test_equal_options_pass() -> None:
    check_options([record(0), record(1), record(2)])


def test_every_option_that_differs_is_named_with_its_values_and_sites() -> None:
    odd = SAME | {"--missing": "'drop'", "--gap": "0.01"}
    with pytest.raises(BrokenDataError) as refused:
        check_options([record(0), record(1, options=odd), record(2, 3)])
    assert str(refused.value) == (
        "all sites must be given the same options; --missing is 'mean' at agents 0, 2 and 3, and 'drop' at "
        "agent 1; --gap is not given at agents 0, 2 and 3, and 0.01 at agent 1. Give the same at all sites."
    )


def test_sites_that_differ_in_the_number_of_agents_are_named_by_their_process() -> None:
    with pytest.raises(BrokenDataError, match="--agents is 3 at process 0, and 4 at process 1"):
        check_options([record(0), record(1, options=SAME | {"--agents": "4"})])


def test_an_option_that_one_version_does_not_have_is_not_given_there() -> None:
    with pytest.raises(BrokenDataError, match="--new is 1 at agent 0, and not given at agent 1"):
        check_options([record(0, options=SAME | {"--new": "1"}), record(1)])


def test_one_file_in_all_processes_is_split_and_noted() -> None:
    records = [record(0), record(1, 2)]
    assert not has_own_files(records)
    assert file_notes(records) == [
        "all 2 processes have the same p.csv, by its checksum: it was split into parts, one for each agent."
    ]


def test_different_files_of_one_name_are_those_of_the_processes() -> None:
    records = [record(0, files="a"), record(1, files="b"), record(2, files="a")]
    assert has_own_files(records)
    assert file_notes(records) == [
        "processes have different files p.csv: each was taken as that of its own agent.",
        "agents 0 and 2 have the same file, by its checksum: its rows count 2 times.",
    ]


def test_a_process_of_several_agents_cannot_have_one_file_of_its_own() -> None:
    with pytest.raises(
        BrokenDataError, match="the files of processes differ; agents 1 and 2 are in one process"
    ):
        has_own_files([record(0, files="a"), record(1, 2, files="b")])


def test_numbered_files_are_no_files_of_processes_and_equal_ones_are_noted() -> None:
    records = [record(0, 1, files="ab", numbered=True), record(2, files="b", numbered=True)]
    assert not has_own_files(records)
    assert file_notes(records) == [
        "agents 1 and 2 have the same file, by its checksum: its rows count 2 times."
    ]
    assert file_notes([record(0, 1, files="ab", numbered=True)]) == []


def test_a_file_that_is_an_option_is_compared_by_its_content(tmp_path: Path) -> None:
    for name, edges in (("a.edges", "0 1\n"), ("b.edges", "0 1\n"), ("c.edges", "0 2\n")):
        (tmp_path / name).write_text(edges)
    one, same, other = (option_text(str(tmp_path / f"{name}.edges"), may_be_file=True) for name in "abc")
    assert one == same != other
    assert option_text(str(tmp_path / "a.edges")).endswith("a.edges'")
