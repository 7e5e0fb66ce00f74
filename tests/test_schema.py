"""What sites agree on: the merge of their schemas is pure, and names what differs with site and value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx
import pytest

from dcgs.cli import REMEDIES
from dcgs.learn.schema import (
    MOST_LEVELS,
    ColumnSchema,
    MergeRules,
    Note,
    Schema,
    SiteSchema,
    agree,
    merge,
    packed,
    unpacked,
)
from dcgs.learn.sites import Remedy, SitesError
from dcgs.learn.sums import Reductions

NUMBER, WORD = "a number in line 2", "the word 'x' in line 3"


def table(i: int, *columns: ColumnSchema, **more: Any) -> SiteSchema:
    """Return the schema of a table with these columns."""
    return SiteSchema(
        f"agent {i} (t-{i}.csv)", rows=5, width=len(columns), has_names=True, columns=columns, **more
    )


def numbers(name: str, **more: Any) -> ColumnSchema:
    return ColumnSchema(name, number=NUMBER, **more)


def words(name: str, levels: int = 2) -> ColumnSchema:
    return ColumnSchema(name, word=WORD, levels=levels)


def labeled(*sites: list[Any]) -> dict[int, SiteSchema]:
    return {
        i: replace(table(i, numbers("a")), labels=tuple(map(json.dumps, labels)))
        for i, labels in enumerate(sites)
    }


def merged(
    sites: Mapping[int, SiteSchema],
    levels: Mapping[str, tuple[str, ...]] | None = None,
    rules: MergeRules | None = None,
) -> Schema:
    return merge(sites, levels or {}, rules or MergeRules(ordered=True))


def test_columns_are_in_the_order_of_the_first_site_and_words_have_the_levels_of_all() -> None:
    sites = {0: table(0, numbers("age"), words("ward")), 1: table(1, words("ward"), numbers("age"))}
    schema = merged(sites, {"ward": ("east", "west")})
    assert schema.columns == ("age", "ward")
    assert schema.levels == {1: ("east", "west")}
    assert (schema.width, schema.labels, schema.notes) == (2, None, ())


def test_a_column_of_numbers_that_the_user_calls_a_category_is_one() -> None:
    sites = {0: table(0, numbers("code"), numbers("age"))}
    for name in ("code", "1"):
        assert merged(sites, {"code": ("1", "2")}, MergeRules(categorical=(name,))).levels == {0: ("1", "2")}


A, B = numbers("a"), numbers("b")
PLAIN = table(0, A, B)
DIFFERENCES: dict[str, tuple[dict[int, SiteSchema], MergeRules, str]] = {
    "options": (
        {
            0: replace(PLAIN, name="agent 0 (a.csv)", options={"--missing": "'mean'", "--gap": "not given"}),
            1: replace(PLAIN, name="agent 1", options={"--missing": "'drop'", "--gap": "0.01"}),
            2: replace(PLAIN, name="agent 2", options={"--missing": "'mean'"}),
        },
        MergeRules(),
        "all sites must be given the same options; --missing is 'mean' at agents 0 and 2, and 'drop' at "
        "agent 1; --gap is not given at agents 0 and 2, and 0.01 at agent 1. Give the same at all sites.",
    ),
    "a file that cannot be read": (
        {0: PLAIN, 1: SiteSchema("agent 1 (b.csv)", error="b.csv must have a column 'y'.")},
        MergeRules(),
        "agent 1 failed: b.csv must have a column 'y'.",
    ),
    "no rows": (
        {0: PLAIN, 1: replace(table(1, A, B), rows=0)},
        MergeRules(),
        "every site must have rows; there are none at agent 1 (t-1.csv). Leave it out.",
    ),
    "names at some": (
        {0: PLAIN, 1: replace(table(1, A, B), has_names=False)},
        MergeRules(),
        "must have names of columns, or none; agent 0 (t-0.csv) has names; agent 1 (t-1.csv) has no names. "
        "Add names to the first line of each, or give --no-header.",
    ),
    "a column that one lacks": (
        {0: PLAIN, 1: table(1, A)},
        MergeRules(),
        "all sites must have the same columns; agent 1 (t-1.csv) has no column 'b'. Rename them, or leave "
        "them out at all sites with --drop, which takes columns that some sites lack.",
    ),
    "a column to drop that nobody has": (
        {0: replace(PLAIN, lacking=("z",)), 1: replace(PLAIN, lacking=("z",))},
        MergeRules(drop=("z",)),
        "some site must have each column of --drop; none has 'z', and the columns are 'a', 'b'. Correct the "
        "name.",
    ),
    "another order": (
        {0: PLAIN, 1: table(1, B, A)},
        MergeRules(),
        "in the same order; agent 1 (t-1.csv) has 'b', 'a' where the first site has 'a', 'b'. Give X its",
    ),
    "words among numbers": (
        {0: PLAIN, 1: table(1, A, replace(B, word=WORD)), 2: table(2, A, words("b"))},
        MergeRules(),
        "column 'b' must be of numbers or of words; agent 0 (t-0.csv) has a number in line 2; agent 1 "
        "(t-1.csv) has the word 'x' in line 3 and a number in line 2; agent 2 (t-2.csv) has the word 'x' in "
        "line 3. Correct it, make it a category with --categorical b, or leave it out with --drop b.",
    ),
    "an empty column": (
        {0: table(0, A, ColumnSchema("b")), 1: table(1, A, ColumnSchema("b"))},
        MergeRules(),
        "column 'b' must have a value at some site; it is empty at all of them. Leave it out with --drop b.",
    ),
    "names of patients": (
        {0: table(0, words("name", MOST_LEVELS + 1)), 1: table(1, words("name", 3))},
        MergeRules(),
        "at most 100 levels at each site; agent 0 (t-0.csv) has 'name with 101 levels'. Leave it out with",
    ),
    "no such category": (
        {0: PLAIN},
        MergeRules(categorical=("z",)),
        "--categorical must name a column of features; got 'z', and the columns are 'a', 'b'.",
    ),
    "other widths": (
        {0: SiteSchema("agent 0 (a.npz)", 3, width=6), 1: SiteSchema("agent 1 (b.npz)", 3, width=4)},
        MergeRules(),
        "all sites must have the same features; agent 1 (b.npz) has 4, and 6 are asked for or another site",
    ),
    "one class": (labeled(["no"], ["no"]), MergeRules(), "all rows are of one class, no."),
    "words and numbers as labels": (
        labeled(["no", "yes"], [0.0, 1.0]),
        MergeRules(),
        "labels must be of the same classes, written the same at all sites; agent 0 (t-0.csv) has 'no', "
        "'yes'; agent 1 (t-1.csv) has '0', '1'. Write them alike.",
    ),
    "labels in two spellings": (
        labeled(["ill", "well"], ["Ill", "well"], ["well"]),
        MergeRules(),
        "agent 0 (t-0.csv) has 'ill'; agent 1 (t-1.csv) has 'Ill'. Write them alike.",
    ),
    "a site with labels of its own": (
        labeled(["a", "b"], ["c", "d"], ["c", "d"]),
        MergeRules(own_labels=True),
        "agent 0 (t-0.csv) has 'a', 'b'; agents 1 (t-1.csv) and 2 (t-2.csv) have 'c', 'd'.",
    ),
}


@pytest.mark.parametrize("name", DIFFERENCES)
def test_what_differs_is_named_with_the_site_the_value_and_what_to_do(name: str) -> None:
    sites, rules, sentence = DIFFERENCES[name]
    with pytest.raises(SitesError) as refused:
        merged(sites, rules=rules)
    assert sentence in refused.value.worded(REMEDIES)


def test_the_command_and_python_word_the_remedy_of_one_error() -> None:
    with pytest.raises(SitesError) as refused:
        merged({0: table(0, A, ColumnSchema("b"))})
    error = refused.value
    assert (error.remedy, error.about) == (Remedy.LEAVE_OUT_COLUMN, "b")
    assert str(error).endswith("it is empty at all of them. Leave b out of X at all sites.")
    assert error.worded(REMEDIES).endswith("it is empty at all of them. Leave it out with --drop b.")


def test_labels_of_all_sites_are_in_their_order_and_who_lacks_one_is_noted() -> None:
    schema = merged(labeled([10.0, 2.0], [2.0, 3.0]))
    assert schema.labels == (2.0, 3.0, 10.0)
    assert schema.notes == (
        "agent 0 (t-0.csv) has no rows of class '3'; agent 1 (t-1.csv) has no rows of class '10'.",
    )
    assert merged(labeled(["no"], ["yes", "no"])).notes == ("agent 0 (t-0.csv) has only rows of class 'no'.",)
    # Labels that one program wrote are not compared by their spelling at sites.
    assert merged(labeled(["a", "b"], ["c", "d"])).labels == ("a", "b", "c", "d")


def test_libsvm_files_of_different_widths_get_the_largest_width_or_the_given_one() -> None:
    sites = {i: SiteSchema(f"agent {i}", 3, width=width, is_open=True) for i, width in enumerate((4, 7, 5))}
    assert merged(sites).width == 7
    assert merged(sites, rules=MergeRules(features=9)).width == 9


def test_notes_of_one_kind_are_one_sentence() -> None:
    odd = {Note.IDS.name: "another whole number in each row of 'id'"}
    sites = {0: replace(PLAIN, facts=odd), 1: table(1, A, B), 2: replace(table(2, A, B), facts=odd)}
    assert merged(sites).notes == (
        "agents 0 (t-0.csv) and 2 (t-2.csv) have another whole number in each row of 'id'; if these are ids, "
        "leave them out (of tables with --drop).",
    )


def test_what_is_equal_at_several_sites_is_sent_once_and_levels_without_their_site() -> None:
    options = {f"--option-{k}": "'value'" for k in range(40)}
    sites = {
        i: table(i, words("ward"), options=options, levels={"ward": ("east", f"own-{i}")}) for i in range(3)
    }
    texts = [text for i, site in sites.items() for text in packed(i, site)]
    union = set(texts)
    assert len(texts) - len(union) == 2 * 3  # columns, options and the level east, of two sites
    found, levels = unpacked(union)
    assert found == {i: replace(site, levels={}) for i, site in sites.items()}
    assert levels == {"ward": ("east", "own-0", "own-1", "own-2")}
    tagged = [json.loads(text) for text in union if "own-1" in text]
    assert tagged == [["level", "ward", "own-1"]]


def test_sites_of_two_versions_are_named() -> None:
    texts = [packed(i, table(i, A)) for i in range(2)]
    other = [text.replace('"version": "', '"version": "9') for text in texts[1]]
    with pytest.raises(SitesError, match=r"the version of dcgs is [\d.]+ at agent 0, and 9[\d.]+ at agent 1"):
        unpacked([*texts[0], *other])


def test_all_sites_agree_by_one_union() -> None:
    network = Reductions(nx.cycle_graph(4))
    sites = {i: table(i, A, words("ward"), levels={"ward": (f"w{i}",)}) for i in range(4)}
    schema = agree(network, sites, MergeRules(ordered=True))
    assert schema.levels == {1: ("w0", "w1", "w2", "w3")}
    assert [(record.operation, record.rounds) for record in network.sent] == [("union", 4)]
