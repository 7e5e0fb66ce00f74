"""Secure sums: the same bits with and without masks, everywhere; overflows, checks, magnitudes."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from itertools import product
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcgs.protocol import Program
from dcgs.secure import sum as sum_module
from dcgs.secure.fixed_point import exponent_for
from dcgs.secure.masks import Masks, NoMasks, PairwiseMasks
from dcgs.secure.sum import (
    EXPONENT_STEP,
    MaskedReduction,
    Reduce,
    SecureSumError,
    Total,
    Value,
    secure_answer,
    secure_any,
    secure_integers,
    secure_max_exponent,
    sum_once,
)
from dcgs.tree import TreeNode
from secure_runs import (
    GRAPHS,
    Record,
    agent_keys,
    all_masks,
    along_tree,
    chi_square,
    in_one_round,
    no_masks,
    run_masked,
)
from test_mpi import start

Answered = tuple[Value, tuple[int, ...]]


def values_of(agents: int, seed: int = 0) -> list[Value]:
    """Return a matrix and a vector of very different sizes for every agent."""
    rng = np.random.default_rng(seed)
    return [(rng.standard_normal((4, 3)), 1e9 * rng.standard_normal(7)) for _ in range(agents)]


def told(total: Total) -> Value:
    return *total.arrays, np.array(total.errors)


def summing(
    values: Sequence[Value], exponents: tuple[int, ...] = (40, 20), name: str = "values"
) -> Callable[[int, MaskedReduction], Program[Answered]]:
    """Return the program that sums the agents' values and tells all of them the total and its errors."""
    return lambda i, reduction: secure_answer(values[i], reduction, told, exponents, name)


def bits(answered: Answered) -> list[bytes]:
    return [array.tobytes() for array in answered[0]]


# Equal bits.


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_a_masked_sum_has_the_bits_of_an_open_one_on_every_tree_and_in_pieces(graph: nx.Graph) -> None:
    agents = len(graph)
    program = summing(values_of(agents))
    answers, rounds = run_masked(graph, program, no_masks(agents))
    assert len({tuple(bits(each)) for each in answers}) == 1
    for masks in (all_masks(agents), all_masks(agents, seed=1)):
        masked, masked_rounds = run_masked(graph, program, masks)
        assert [bits(each) for each in masked] == [bits(each) for each in answers]
        assert masked_rounds == rounds
    pieces, _ = run_masked(graph, program, all_masks(agents), reduce_of=partial(along_tree, pieces=3))
    assert [bits(each) for each in pieces] == [bits(each) for each in answers]
    assert rounds == 2 * nx.radius(graph)  # those of an open sum along the tree


@pytest.mark.parametrize("agents", [3, 5, 8])
def test_bits_do_not_depend_on_the_graph(agents: int) -> None:
    graphs = [
        nx.path_graph(agents),
        nx.star_graph(agents - 1),
        nx.cycle_graph(agents),
        nx.complete_graph(agents),
    ]
    program = summing(values_of(agents))
    answers = [run_masked(graph, program, all_masks(agents, seed))[0][0] for seed, graph in enumerate(graphs)]
    flood, rounds = run_masked(nx.complete_graph(agents), program, all_masks(agents), reduce_of=in_one_round)
    assert rounds == 1
    assert len({tuple(bits(each)) for each in (*answers, *flood)}) == 1


@given(
    values=st.lists(st.lists(st.floats(-1e4, 1e4), min_size=3, max_size=3), min_size=3, max_size=6),
    exponent=st.integers(0, 45),
)
@settings(max_examples=60, deadline=None, derandomize=True)
def test_a_total_is_that_of_the_values_to_the_error_that_is_told(
    values: list[list[float]], exponent: int
) -> None:
    arrays = [(np.array(own),) for own in values]
    answers, _ = run_masked(nx.path_graph(len(values)), summing(arrays, (exponent,)), no_masks(len(values)))
    (total, errors), used = answers[0]
    assert used == (exponent,)
    for entry, column in zip(total, zip(*values, strict=True), strict=True):
        assert abs(Fraction(float(entry)) - sum(map(Fraction, column))) <= Fraction(float(errors[0]))


def test_only_the_root_computes_the_answer_and_others_send_no_total() -> None:
    graph, called, record = GRAPHS["star"], list[int](), Record()

    def program(i: int, reduction: MaskedReduction) -> Program[Answered]:
        def answer(total: Total) -> Value:
            called.append(i)
            return (np.array([float(total.arrays[0].sum() > 0.0)]),)

        return secure_answer((np.ones(5),), reduction, answer, (30,), "ones")

    answers, _ = run_masked(graph, program, all_masks(5), record)
    assert called == [0]
    assert {float(value[0][0]) for value, _ in answers} == {1.0}
    # Down the tree go the flag of the exponent and the answer, two numbers in all.
    downward = [arrays for _, sender, _, arrays in record.messages if sender == 0]
    assert {tuple(array.size for array in arrays) for arrays in downward} == {(1, 1)}


def test_runs_over_mpi_have_the_bits_of_one_process() -> None:
    done = start(3, "secure_mpi.py")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"graphs": 3}


# Exponents that are too large.


@pytest.mark.parametrize("masks_of", [all_masks, no_masks], ids=["masked", "open"])
def test_a_value_that_is_too_large_costs_one_more_sum_with_a_smaller_exponent(
    masks_of: Callable[[int], list[Masks]],
) -> None:
    graph, values = GRAPHS["path"], values_of(5)
    fitting, rounds = run_masked(graph, summing(values, (40, 20)), masks_of(5))
    values[3][1][0] = 1e13  # 2^(20 + 43.2) · 5 > 2⁶³
    lowered, more = run_masked(graph, summing(values, (40, 20)), masks_of(5))
    assert more == 2 * rounds
    assert {used for _, used in fitting} == {(40, 20)}
    assert {used for _, used in lowered} == {(40, 20 - EXPONENT_STEP)}
    again, same = run_masked(graph, summing(values, (40, 20 - EXPONENT_STEP)), no_masks(5))
    assert same == rounds
    assert [bits(each) for each in lowered] == [bits(each) for each in again]


def test_an_overflow_tells_neither_who_nor_how_many_nor_the_total_of_the_others() -> None:
    """What the root reads in the first attempt is random, though one agent sent too much and four did not."""
    totals: list[NDArray[np.uint64]] = []

    def listening(tree: TreeNode) -> Reduce:
        def reduce(value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
            def heard(total: Value) -> Value:
                totals.append(total[0])
                return answer(total)

            return along_tree(tree)(value, answer=heard)

        return reduce

    def read(large: list[int], masks: list[Masks]) -> NDArray[np.uint64]:
        values = [(np.full(3000, 1e30 if i in large else 1.0),) for i in range(5)]
        totals.clear()
        run_masked(GRAPHS["path"], summing(values, (40,)), masks, reduce_of=listening)
        assert int(totals[0][0]) == 5
        return totals[0][1:]

    for large in ([2], [1, 4], [0, 1, 2, 3, 4]):
        total = read(large, all_masks(5))
        assert total[0] > 5  # the flag
        assert 170.0 < chi_square(total.tobytes()) < 360.0  # 255 degrees of freedom; a fixed key
    assert read([2], no_masks(5))[2:].tolist()[:3] == [4 * 2**40 + 1] * 3  # in the open it is readable


def test_a_value_that_no_exponent_fits_ends_in_a_sentence() -> None:
    values = [(np.array([1.7e308 if i == 2 else 1.0]),) for i in range(5)]
    with pytest.raises(OverflowError, match=r"must be less than 2\^1023 divided by the number of agents"):
        run_masked(GRAPHS["path"], summing(values, (-930,)), no_masks(5))


def test_an_agent_whose_value_is_not_finite_sends_nothing() -> None:
    record = Record()
    values = [(np.array([1.0, np.nan if i == 0 else 1.0]),) for i in range(5)]
    with pytest.raises(
        FloatingPointError, match=r"^values of a secure sum must be finite; got nan at \(1,\)\."
    ):
        run_masked(GRAPHS["path"], summing(values, (20,)), all_masks(5), record)
    assert [sender for _, sender, *_ in record.messages if sender == 0] == []


def mixed(i: int, reduction: MaskedReduction) -> Program[Any]:
    """Sum a wide array, of which two magnitudes are told, and one with an exponent."""
    value = np.array([1e-3, float(i)]), np.array([[4.0 * i]]), np.full((2, 2), 1e9)
    return sum_once(value, reduction, lambda total: total.arrays, [None, None, 20], "mixed", told=(1, 2))


@pytest.mark.parametrize("graph", GRAPHS.values(), ids=GRAPHS)
def test_wide_numbers_have_the_same_bits_with_and_without_masks(graph: nx.Graph) -> None:
    agents = len(graph)
    plain, _ = run_masked(graph, mixed, no_masks(agents))
    masked, rounds = run_masked(graph, mixed, all_masks(agents))
    assert rounds == 2 * nx.radius(graph)
    for ours, theirs in zip(masked, plain, strict=True):
        assert [array.tobytes() for array in ours.answered] == [array.tobytes() for array in theirs.answered]
        assert ours.answered[0][1] == agents * (agents - 1) / 2
        assert ours.powers == (8, 32)  # 4 (m − 1) < 2⁸, and 1e9 < 2³²


@pytest.mark.parametrize("large", [1e40, 1e-30])
def test_numbers_of_unusual_size_hide_all_values_of_a_sum_and_tell_no_total(large: float) -> None:
    called = list[int]()

    def program(i: int, reduction: MaskedReduction) -> Program[Any]:
        def answer(total: Total) -> Value:
            called.append(i)
            return total.arrays

        value = (np.array([large if i == 2 else 1.0]),)
        return sum_once(value, reduction, answer, [None], "unusual")

    answers, _ = run_masked(GRAPHS["path"], program, all_masks(5))
    assert called == []
    assert all(each.answered is None and each.too_large[0].tolist() == [True] for each in answers)


# Checks.


def changing(change: Callable[[NDArray[np.uint64]], None]) -> Callable[[TreeNode], Reduce]:
    """Return reductions in which the words of the root are changed before they are added up."""

    def reduce_of(tree: TreeNode) -> Reduce:
        def reduce(value: Value, *, answer: Callable[[Value], Value]) -> Program[Value]:
            words = value[0].copy()
            change(words)
            return along_tree(tree)((words,), answer=answer)

        return reduce if tree.parent is None else along_tree(tree)

    return reduce_of


@pytest.mark.parametrize("masks_of", [all_masks, no_masks], ids=["masked", "open"])
@pytest.mark.parametrize("bit", [0, 31, 62, 63])
@pytest.mark.parametrize("place", [0, 2, 3, 4, 5])
def test_one_changed_bit_of_any_word_stops_the_run(
    place: int, bit: int, masks_of: Callable[[int], list[Masks]]
) -> None:
    """Words of a sum of three numbers: agents, flag, its check, numbers, check of the numbers."""
    values = [(np.array([1.0, -2.0, 3.0]),) for _ in range(3)]

    def flip(words: NDArray[np.uint64]) -> None:
        assert len(words) == 1 + 1 + 1 + 3 + 4
        words[place] ^= np.uint64(1 << bit)

    with pytest.raises(SecureSumError, match=r"^(masks must cancel|the check of a total must be)"):
        run_masked(nx.path_graph(3), summing(values, (20,)), masks_of(3), reduce_of=changing(flip))


@pytest.mark.parametrize("bit", [0, 31])
@pytest.mark.parametrize("place", [6, 7, 8, 9])
def test_a_changed_check_stops_the_run(place: int, bit: int) -> None:
    """Bits above 32 of its highest word do not count, and do no harm."""
    values = [(np.array([1.0, -2.0, 3.0]),) for _ in range(3)]

    def flip(words: NDArray[np.uint64]) -> None:
        words[place] ^= np.uint64(1 << bit)

    with pytest.raises(SecureSumError, match=r"^the check of a total must be that of its values"):
        run_masked(nx.path_graph(3), summing(values, (20,)), all_masks(3), reduce_of=changing(flip))


def test_a_changed_flag_is_noticed_or_costs_one_repetition() -> None:
    """Its highest bit is noticed in every second case, its lowest always. The total is right in any case."""
    values = [(np.ones(3),) for _ in range(3)]
    outcomes = {0: list[str](), 63: list[str]()}
    for bit, seed in product(outcomes, range(40)):
        changed = list[int]()

        def flip(words: NDArray[np.uint64], bit: int = bit, changed: list[int] = changed) -> None:
            words[1] ^= np.uint64(0 if changed else 1 << bit)
            changed.append(bit)

        try:
            answers, _ = run_masked(
                nx.path_graph(3), summing(values, (20,)), all_masks(3, seed), reduce_of=changing(flip)
            )
            outcomes[bit].append(f"{answers[0][0][0].tolist()} {answers[0][1]}")
        except SecureSumError:
            outcomes[bit].append("noticed")
    assert set(outcomes[0]) == {"noticed"}
    assert set(outcomes[63]) == {"noticed", f"[3.0, 3.0, 3.0] ({20 - EXPONENT_STEP},)"}


@pytest.mark.parametrize("places", [(3, 4), (3, 4, 5)])
def test_highest_bits_of_several_words_do_not_cancel(places: tuple[int, ...]) -> None:
    """They would in a check mod 2⁶⁴."""
    values = [(np.array([1.0, -2.0, 3.0]),) for _ in range(4)]

    def flip(words: NDArray[np.uint64]) -> None:
        words[list(places)] ^= np.uint64(1 << 63)

    for seed in range(20):
        with pytest.raises(SecureSumError, match=r"^the check of a total must be that of its values"):
            run_masked(nx.star_graph(3), summing(values, (20,)), all_masks(4, seed), reduce_of=changing(flip))


words64 = st.integers(-(2**63) + 1, 2**63 - 1)


@given(values=st.lists(words64, max_size=40), seed=st.integers(0, 1000))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_the_check_is_the_sum_of_products_mod_two_to_the_128(values: list[int], seed: int) -> None:
    weights = np.random.default_rng(seed).integers(0, 2**64 - 1, len(values), dtype=np.uint64)
    expected = sum(r * q for r, q in zip(weights.tolist(), values, strict=True)) % 2**128
    assert sum_module._check(np.array(values, dtype=np.int64).view(np.uint64), weights) == expected


def test_the_check_of_many_numbers_is_exact() -> None:
    """The largest digits everywhere, over the border of a chunk; float64 has integers up to 2⁵³."""
    assert sum_module._CHUNK * (2**16 - 1) ** 2 <= 2**53
    size = (1 << 20) + 5
    values, weights = np.full(size, 2**63 - 1, dtype=np.uint64), np.full(size, 2**64 - 1, dtype=np.uint64)
    assert sum_module._check(values, weights) == size * (2**63 - 1) * (2**64 - 1) % 2**128
    negative = np.full(size, 2**64 - 1, dtype=np.uint64)  # −1
    assert sum_module._check(negative, weights) == -size * (2**64 - 1) % 2**128


def test_an_agent_with_other_keys_is_noticed() -> None:
    keys = [*agent_keys(5)[:4], agent_keys(5, seed=1)[4]]
    masks: list[Masks] = [PairwiseMasks(each) for each in keys]
    with pytest.raises(
        SecureSumError, match=r"the number of agents came out as \d+\. An agent has other keys"
    ):
        run_masked(GRAPHS["path"], summing(values_of(5)), masks)


def test_an_agent_whose_counter_is_behind_is_noticed() -> None:
    masks = all_masks(5)
    masks[2].seal(np.zeros(1, dtype=np.uint64), "another sum")
    with pytest.raises(SecureSumError, match=r"^masks must cancel"):
        run_masked(GRAPHS["path"], summing(values_of(5)), masks)


@pytest.mark.parametrize(
    "other",
    [
        lambda values: summing(values, name="other"),
        lambda values: summing(values, (40, 21)),
        lambda values: summing([(value[0].T.copy(), value[1]) for value in values]),
    ],
    ids=["name", "exponent", "shape"],
)
def test_an_agent_that_takes_part_in_another_sum_is_noticed(other: Callable[[list[Value]], Any]) -> None:
    values = values_of(5)

    def program(i: int, reduction: MaskedReduction) -> Program[Answered]:
        each: Program[Answered] = (other(values) if i == 1 else summing(values))(i, reduction)
        return each

    for masks in (all_masks(5), no_masks(5)):
        with pytest.raises(
            SecureSumError, match=r"An agent takes part in another sum, or a message was changed"
        ):
            run_masked(GRAPHS["path"], program, masks)


def test_a_sum_without_one_agent_or_with_one_twice_is_noticed_in_the_open_too() -> None:
    def doubled(words: NDArray[np.uint64]) -> None:
        words *= np.uint64(2)

    def absent(words: NDArray[np.uint64]) -> None:
        words[:] = 0

    for change, count in ((doubled, 5), (absent, 3)):
        with pytest.raises(SecureSumError, match=rf"the number of agents came out as {count}\."):
            run_masked(nx.star_graph(3), summing(values_of(4)), no_masks(4), reduce_of=changing(change))


def test_a_total_of_other_numbers_is_refused() -> None:
    def program(i: int, reduction: MaskedReduction) -> Program[Any]:
        if i == 1:
            return reduction.reduce((np.ones(1 + 2 + 1 + 19 + 4),), answer=lambda total: total)
        return summing(values_of(3))(i, reduction)

    with pytest.raises(
        SecureSumError, match=r"^all agents must send 27 words; .* an array of float64 and shape"
    ):
        run_masked(nx.star_graph(2), program, no_masks(3))


def test_messages_of_other_shapes_are_refused_on_a_complete_graph() -> None:
    values = [*values_of(3), (np.ones(2), np.ones(1))]
    with pytest.raises(
        ValueError, match=r"^a message must be a tuple of arrays of shapes \[\(\d+,\)\]; that of"
    ):
        run_masked(nx.complete_graph(4), summing(values), all_masks(4), reduce_of=in_one_round)


@pytest.mark.parametrize("wrong", [-961, 1075])
def test_an_exponent_that_no_float64_needs_is_refused(wrong: int) -> None:
    reduction = MaskedReduction(NoMasks(3), along_tree(TreeNode()))
    with pytest.raises(ValueError, match=rf"^exponents must be between -960 and 1074; got \[{wrong}\]\.$"):
        next(secure_answer((np.ones(1),), reduction, told, (wrong,), "values"))


# Integers, flags and magnitudes.


def test_integers_of_63_bits_are_added_exactly() -> None:
    largest = (2**63 - 1) // 3
    values = [np.array([largest, -largest, i]) for i in range(3)]

    def program(i: int, reduction: MaskedReduction) -> Program[Value]:
        return secure_integers(values[i], reduction, lambda total: (total.astype(np.uint64),), "integers")

    answers, _ = run_masked(nx.path_graph(3), program, all_masks(3))
    assert answers[0][0].view(np.int64).tolist() == [3 * largest, -3 * largest, 3]


@pytest.mark.parametrize("wrong", [(2**63 - 1) // 3 + 1, -(2**63)])
def test_integers_that_are_too_large_are_refused(wrong: int) -> None:
    reduction = MaskedReduction(NoMasks(3), along_tree(TreeNode()))
    with pytest.raises(
        OverflowError, match=r"integers of a secure sum of 3 agents must be between −3074457345618"
    ):
        next(secure_integers(np.array([wrong]), reduction, lambda total: (), "integers"))


@pytest.mark.parametrize("masks_of", [all_masks, no_masks], ids=["masked", "open"])
@pytest.mark.parametrize("reduce_of", [along_tree, in_one_round], ids=["tree", "one round"])
def test_a_flag_is_raised_if_some_agent_raises_it(
    masks_of: Callable[[int], list[Masks]], reduce_of: Callable[[TreeNode], Reduce]
) -> None:
    flags = np.random.default_rng(3).random((6, 40)) < 0.1
    assert 0 < flags.any(axis=0).sum() < 40

    def program(i: int, reduction: MaskedReduction) -> Program[NDArray[np.bool_]]:
        return secure_any(flags[i], reduction, "flags")

    for raised in run_masked(nx.complete_graph(6), program, masks_of(6), reduce_of=reduce_of)[0]:
        assert raised.tolist() == flags.any(axis=0).tolist()


@pytest.mark.parametrize(
    ("largest", "magnitude"),
    [
        (0.0, -1072),
        (1.0, 8),
        (0.99, 0),
        (255.9, 8),
        (256.0, 16),
        (1e-300, -992),
        (1.7e308, 1024),
        (-300.0, 16),
    ],
)
def test_the_magnitude_is_that_of_the_largest_entry_of_any_agent(largest: float, magnitude: int) -> None:
    values = [(np.array([largest if i == 3 else 0.0]), np.zeros((2, 0))) for i in range(5)]

    def program(i: int, reduction: MaskedReduction) -> Program[tuple[int, ...]]:
        return secure_max_exponent(values[i], reduction, "magnitude")

    answers, _ = run_masked(GRAPHS["path"], program, all_masks(5))
    assert set(answers) == {(magnitude, -1072)}


def test_with_the_exponent_of_its_magnitude_a_sum_is_never_repeated() -> None:
    values = values_of(5)

    def program(i: int, reduction: MaskedReduction) -> Program[Answered]:
        magnitudes = yield from secure_max_exponent(values[i], reduction, "magnitude")
        exponents = [exponent_for(b, 5) for b in magnitudes]
        return (yield from secure_answer(values[i], reduction, told, exponents, "values"))

    answers, rounds = run_masked(GRAPHS["path"], program, all_masks(5))
    assert rounds == 8
    (_, _, errors), used = answers[0]
    assert used == (63 - 3 - 8, 63 - 3 - 32)
    assert errors[0] < 1e-14 * 5
