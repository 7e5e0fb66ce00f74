"""Unions of texts: all agents agree, nobody learns whose, and a text below the floors is never sent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dcgs.floors import Floors
from dcgs.protocol import Program
from dcgs.secure import union as union_module
from dcgs.secure.fixed_point import Integers
from dcgs.secure.lookup_table import Entry, read_table, table, table_width
from dcgs.secure.masks import Masks
from dcgs.secure.sum import MaskedReduction, Reduce, SecureSumError, Value
from dcgs.secure.union import SecureUnion, secure_union
from dcgs.tree import TreeNode
from secure_runs import GRAPHS, Record, all_masks, along_tree, chi_square, no_masks, run_masked

ALL = Floors(min_count=1, min_sites=1)
Texts = list[dict[str, int]]


def union(
    texts: Texts,
    floors: Floors = ALL,
    masks: list[Masks] | None = None,
    record: Record | None = None,
    reduce_of: Callable[[TreeNode], Reduce] = along_tree,
) -> SecureUnion:
    """Return the union, which must be the same for all agents of a path."""

    def program(i: int, reduction: MaskedReduction) -> Program[SecureUnion]:
        return secure_union(texts[i], floors, reduction, "ward")

    masks = all_masks(len(texts)) if masks is None else masks
    answers, _ = run_masked(nx.path_graph(len(texts)), program, masks, record, reduce_of)
    assert len(set(answers)) == 1
    return answers[0]


def expected(texts: Texts, floors: Floors) -> SecureUnion:
    """Return the union by someone who sees all texts."""
    counts, sites = Counter[str](), Counter[str]()
    for own in texts:
        counts.update(own)
        sites.update(own.keys())
    kept = sorted(t for t in counts if counts[t] >= floors.min_count and sites[t] >= floors.min_sites)
    rest = sum(counts.values()) - sum(counts[text] for text in kept)
    return SecureUnion(
        tuple(kept), tuple(counts[text] for text in kept), None if 0 < rest < floors.min_count else rest
    )


WARDS: Texts = [
    {"surgery": 40, "intensive care": 3, "prison": 1},
    {"surgery": 12, "intensive care": 4, "": 8},
    {"surgery": 9, "intensive care": 4, "": 9, "a ward that one hospital has": 90},
    {"intensive care": 2, "Kinder- und Jugendpsychiatrie, Station 4, geschützter Bereich": 30, "": 1},
    {"Kinder- und Jugendpsychiatrie, Station 4, geschützter Bereich": 5, "surgery": 1},
    {"Kinder- und Jugendpsychiatrie, Station 4, geschützter Bereich": 1, "x\x00y\n": 20},
]


@pytest.mark.parametrize("floors", [ALL, Floors(), Floors(10, 2), Floors(14, 3), Floors(1000, 1)], ids=str)
def test_a_union_is_that_of_all_texts_above_the_floors(floors: Floors) -> None:
    assert union(WARDS, floors) == union(WARDS, floors, no_masks(6)) == expected(WARDS, floors)


def test_the_default_floors_merge_what_few_people_or_few_sites_have() -> None:
    agreed = union(WARDS, Floors())
    long = "Kinder- und Jugendpsychiatrie, Station 4, geschützter Bereich"
    assert agreed.texts == ("", long, "intensive care", "surgery")
    assert (agreed.counts, agreed.rest) == ((18, 36, 13, 62), 1 + 90 + 20)


@pytest.mark.parametrize(("rest", "told"), [(0, 0), (1, None), (9, None), (10, 10)])
def test_the_count_of_the_rest_is_told_from_the_floor_on(rest: int, told: int | None) -> None:
    texts: Texts = [{"a": 5, **({"rare": rest} if i == 1 and rest else {})} for i in range(4)]
    assert union(texts, Floors()).rest == told


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_all_agents_agree_on_every_graph(graph: nx.Graph) -> None:
    texts = [{f"text {k}": 1 for k in range(i % 3, 6)} for i in range(len(graph))]

    def program(i: int, reduction: MaskedReduction) -> Program[SecureUnion]:
        return secure_union(texts[i], ALL, reduction, "texts")

    answers, rounds = run_masked(graph, program, all_masks(len(graph)))
    assert set(answers) == {expected(texts, ALL)}
    assert rounds == 3 * 2 * nx.radius(graph)


@given(
    texts=st.lists(
        st.dictionaries(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=40), st.integers(1, 20), max_size=8
        ),
        min_size=3,
        max_size=5,
    ),
    least=st.integers(1, 12),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_texts_can_be_united(texts: Texts, least: int) -> None:
    floors = Floors(least, 2)
    assert union(texts, floors, no_masks(len(texts))) == expected(texts, floors)


def test_agents_without_texts_and_a_union_of_nothing() -> None:
    assert union([{}, {"a": 2}, {}]) == SecureUnion(("a",), (2,), 0)
    assert union([{}, {}, {}]) == SecureUnion((), (), 0)


def test_many_texts_are_agreed_on() -> None:
    rng = np.random.default_rng(0)
    texts = [{f"item {k}": 1 for k in rng.integers(0, 3000, 800)} for _ in range(5)]
    assert union(texts) == expected(texts, ALL)


# What messages tell.


def test_a_text_below_the_floors_is_in_no_message_not_even_in_the_open() -> None:
    """Without masks every agent's words are readable: it is not there that the text is kept back."""
    record = Record()
    union(WARDS, Floors(), no_masks(6), record)
    content = record.content().replace(b"\x00", b"")  # words have seven bytes of text and one of 0
    assert b"surgery" in content
    for below in (b"prison", b"a ward ", b"hospital"):
        assert below not in content


def test_masked_tables_are_uniform_and_open_ones_are_not() -> None:
    texts = [{f"text {k}": 1 + k for k in range(300)} for _ in range(3)]
    for masks, is_uniform in ((all_masks(3), True), (no_masks(3), False)):
        record = Record()
        union(texts, ALL, masks, record)
        statistic = chi_square(b"".join(words.tobytes() for words in record.words()))
        assert (170.0 < statistic < 360.0) == is_uniform  # 255 degrees of freedom; fixed keys


def totals_of(texts: Texts, floors: Floors = ALL) -> tuple[SecureUnion, list[bytes]]:
    """Return the union, and the totals that the root reads, without the checks of each sum."""
    totals: list[bytes] = []

    def listening(tree: TreeNode) -> Reduce:
        def reduce(value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
            def heard(total: Value) -> Value:
                totals.append(total[0][2:-4].tobytes())
                return answer(total)

            return along_tree(tree)(value, answer=heard)

        return reduce

    return union(texts, floors, reduce_of=listening), totals


def test_the_root_reads_the_same_whoever_has_a_text() -> None:
    worlds = []
    for holder in range(4):
        texts: Texts = [{"all": 9} for _ in range(4)]
        texts[holder]["prison"] = 1
        worlds.append(totals_of(texts, Floors()))
    assert all(world == worlds[0] for world in worlds)


def test_the_root_can_find_a_text_that_it_guesses_and_its_count_but_no_other() -> None:
    """What is left: every agent can compute keys. docs/privacy.md says so."""
    texts: Texts = [{"all": 9} for _ in range(4)]
    texts[2]["prison"] = 1
    _, totals = totals_of(texts, Floors())
    numbers: Integers = np.frombuffer(totals[1], dtype=np.int64).reshape(-1, 5)
    entries = read_table(numbers, attempt=0)
    assert entries is not None
    transcript = all_masks(4)[0].transcript
    guesses = {text: entries.get(union_module._key(transcript, text)) for text in ("prison", "burns")}
    assert guesses == {"prison": Entry(agents=1, count=1), "burns": None}
    assert sorted(entry.count for entry in entries.values()) == [1, 36]


# Tables.


def keys_of(count: int, seed: int = 0) -> list[bytes]:
    return [
        row.tobytes() for row in np.random.default_rng(seed).integers(0, 256, (count, 10), dtype=np.uint8)
    ]


@given(
    held=st.lists(
        st.dictionaries(st.integers(0, 60), st.integers(1, 2**50), max_size=40), min_size=1, max_size=9
    ),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_sum_of_tables_has_all_keys_with_their_multiplicities(held: list[dict[int, int]]) -> None:
    keys = keys_of(61)
    tables = [table({keys[k]: count for k, count in counts.items()}, 60, attempt=3) for counts in held]
    expected = {
        keys[k]: Entry(sum(k in counts for counts in held), sum(counts.get(k, 0) for counts in held))
        for k in {k for counts in held for k in counts}
    }
    assert read_table(sum(tables[1:], start=tables[0]), attempt=3) == expected


def test_a_table_that_is_too_small_cannot_be_read() -> None:
    counts = dict.fromkeys(keys_of(100), 1)
    assert read_table(table(counts, 20, attempt=0), attempt=0) is None


def test_a_changed_table_is_not_read_wrongly() -> None:
    cells = table(dict.fromkeys(keys_of(5), 1), 32, attempt=0)
    for row in np.flatnonzero(cells[:, 0]).tolist():
        for column in range(5):
            changed = cells.copy()
            changed[row, column] += 1
            assert read_table(changed, attempt=0) is None
        moved = cells.copy()
        moved[[row, -1]] = moved[[-1, row]]
        assert read_table(moved, attempt=0) is None


def test_every_attempt_has_other_places_and_every_run_other_keys() -> None:
    counts = dict.fromkeys(keys_of(5), 1)
    assert not (table(counts, 32, attempt=0) == table(counts, 32, attempt=1)).all()
    assert len({union_module._key(masks.transcript, "a") for s in (0, 1) for masks in all_masks(3, s)}) == 2


@pytest.mark.parametrize("distinct", [1, 10, 80])
def test_a_table_of_the_width_for_its_texts_is_hardly_ever_unreadable(distinct: int) -> None:
    # The probability is below 2e-4: three failures of 2,000 have one of 0.8 %, four one of 0.08 %.
    trials = 2000
    width = table_width(distinct)
    failures = 0
    for trial in range(trials):
        cells = table(dict.fromkeys(keys_of(distinct, trial), 1), width, attempt=trial)
        failures += read_table(cells, attempt=trial) is None
    assert failures <= 3


def test_the_bound_of_failures_by_pairs_holds_for_every_number_of_texts() -> None:
    numbers = np.arange(1, 100_000)
    widths = np.array([table_width(int(n)) for n in numbers], dtype=float)
    assert (numbers**2 / 2 * widths**-4).max() < 2e-4


def test_a_table_that_cannot_be_read_is_sent_again_twice_as_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(union_module, "table_width", lambda distinct: 2)
    texts = [{f"text {k}": 1 for k in range(40)} for _ in range(3)]
    record = Record()
    assert union(texts, record=record) == expected(texts, ALL)
    sizes = [len(words) for words in record.words()]
    tables = sorted({size for size in sizes if (size - 6) % 40 == 0 and size > 40})
    assert [(size - 6) // 40 for size in tables][:3] == [1 << k for k in range(3)]


def test_a_table_that_is_never_readable_ends_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(union_module, "read_table", lambda total, attempt: None)
    with pytest.raises(
        SecureSumError, match=r"readable after 8 attempts; that of 'ward' is not, for at most 3"
    ):
        union([{"a": 1} for _ in range(3)])


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        (
            [{"a": 1}, {"b": 1}, {"a": 1}],
            r"^all holders of a text must send the same bytes; those of a text of 'ward'",
        ),
        (
            [{"a": 1}, {"c": 1}, {}],
            r"^a text of a union must have the key by which it was asked for; 1 of 1 texts of",
        ),
    ],
    ids=["bytes that cannot be divided", "bytes in between"],
)
def test_two_texts_with_the_same_key_are_noticed(
    texts: Texts, sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    same, key = {text for own in texts for text in own}, union_module._key
    monkeypatch.setattr(union_module, "_key", lambda t, text: bytes(10) if text in same else key(t, text))
    with pytest.raises(SecureSumError, match=sentence):
        union(texts)


def test_a_count_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match=r"must have a count of at least 1; 1 have not\."):
        union([{"a": 1, "b": 0}, {}, {}])
