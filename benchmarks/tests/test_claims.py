"""The paper's claims: each verdict on curves whose truth is known by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dcgs_bench.paper.claims import PROMISES, at, first, judge
from dcgs_bench.paper.results import Claim, Curve, Verdict
from dcgs_bench.study import RunRecord


def curve(key: str, rounds: list[int], local: list[float], worst: list[float], calls: list[int]) -> Curve:
    columns: dict[str, Sequence[float]] = {
        "rounds": rounds,
        "local_loss": local,
        "worst_loss": worst,
        "lmo_calls": calls,
    }
    run = RunRecord("ROUNDS", "", "", rounds[-1], calls[-1], columns=columns)
    return Curve(key, key, "", run)


# After 800 rounds and 400 calls DFW has 100 on the paper's loss and 200 on everyone's data; what it
# does later must not count.
DFW = curve("dfw", [0, 400, 800, 900], [1e6, 1e3, 100.0, 1.0], [1e6, 2e3, 200.0, 2.0], [0, 200, 400, 450])


def theorem(local: float, worst: float, rounds: int = 6, calls: int = 50) -> Curve:
    return curve("dcgs-theorem", [0, rounds], [1e6, local], [1e6, worst], [0, calls])


def lasso(theirs: Curve) -> list[Claim]:
    return judge(PROMISES["lasso-synthetic"], theirs, DFW)


def completion(theirs: Curve) -> list[Claim]:
    return judge(PROMISES["completion-synthetic"], theirs, DFW)


def test_the_value_at_a_limit_is_that_of_the_last_entry_within_it() -> None:
    assert [at(DFW, "rounds", limit, "local_loss") for limit in (0, 399, 400, 800, 10**6)] == [
        1e6,
        1e6,
        1e3,
        100.0,
        1.0,
    ]


def test_a_level_is_first_reached_where_the_measure_is_at_most_it() -> None:
    assert [first(DFW, "rounds", "worst_loss", level) for level in (2e3, 1999.0, 1.9)] == [400, 800, None]


def test_what_x0_has_is_not_reached_by_an_iterate() -> None:
    assert first(DFW, "rounds", "worst_loss", 1e6) == 400


@pytest.mark.parametrize(
    ("local", "worst", "rounds", "verdict"),
    [
        (100.0, 200.0, 6, Verdict.HOLDS),  # as good as DFW on both, in time: 3 iterations are 6 rounds
        (100.0, 200.0, 7, Verdict.FAILS),  # a round too late
        (100.0, 200.1, 6, Verdict.PAPER_ONLY),
        (100.1, 200.1, 6, Verdict.FAILS),
        (100.1, 200.0, 6, Verdict.HOLDS),  # what counts is everyone's data
        (100.1, 200.1, 5, Verdict.OPEN),  # it ended before the rounds it may take
        (100.0, 200.1, 5, Verdict.OPEN),
    ],
)
def test_three_rounds_against_800(local: float, worst: float, rounds: int, verdict: Verdict) -> None:
    assert lasso(theorem(local, worst, rounds))[0].verdict is verdict


@pytest.mark.parametrize(("rounds", "verdict"), [(10, Verdict.HOLDS), (11, Verdict.FAILS)])
def test_five_rounds_against_800(rounds: int, verdict: Verdict) -> None:
    assert completion(theorem(100.0, 200.0, rounds))[0].verdict is verdict


@pytest.mark.parametrize(
    ("local", "worst", "verdict"),
    [
        (1.0, 2.0, Verdict.HOLDS),  # a hundred times lower on both
        (1.0, 2.1, Verdict.PAPER_ONLY),
        (1.1, 2.1, Verdict.FAILS),
        (0.0, 0.0, Verdict.HOLDS),
    ],
)
def test_orders_of_magnitude_better_loss(local: float, worst: float, verdict: Verdict) -> None:
    assert lasso(theorem(local, worst))[1].verdict is verdict


@pytest.mark.parametrize(
    ("worst", "calls", "verdict"),
    [
        (200.0, 1200, Verdict.HOLDS),  # three times DFW's 400
        (200.0, 1201, Verdict.FAILS),
        (201.0, 1200, Verdict.PAPER_ONLY),
        (201.0, 1199, Verdict.OPEN),
    ],
)
def test_comparable_oracle_calls(worst: float, calls: int, verdict: Verdict) -> None:
    assert completion(theorem(100.0, worst, calls=calls))[1].verdict is verdict


def test_only_what_the_paper_says_of_a_problem_is_judged() -> None:
    assert [len(claims) for claims in (lasso(theorem(1.0, 1.0)), completion(theorem(1.0, 1.0)))] == [2, 2]
    assert "orders of magnitude" in lasso(theorem(1.0, 1.0))[1].paper
    assert "comparable" in completion(theorem(1.0, 1.0))[1].paper


def test_the_measured_text_has_both_losses_and_where_each_was_reached() -> None:
    text = lasso(theorem(50.0, 5e4))[0].measured
    assert (
        "After 800 rounds and 400 oracle calls DFW has 100 on the paper's loss and 200 on everyone's data"
        in text
    )
    assert "on the paper's loss after 6 rounds, and on everyone's data not within its 6 rounds" in text


def test_losses_are_compared_with_those_of_dfw() -> None:
    text = lasso(theorem(10.0, 400.0))[1].measured
    assert "10 (10 times lower) and 400 (2.0 times as high) after 6 rounds and 50 calls" in text


LATE = curve("dfw", [0, 800], [100.0, 150.0], [100.0, 250.0], [0, 400])


@pytest.mark.parametrize(("worst", "verdict"), [(100.0, Verdict.HOLDS), (101.0, Verdict.PAPER_ONLY)])
def test_where_dfw_is_worse_than_x0_dcgs_has_to_be_as_good_as_x0(worst: float, verdict: Verdict) -> None:
    claims = judge(PROMISES["lasso-synthetic"], theorem(100.0, worst), LATE)
    assert claims[0].verdict is verdict
    assert "250 on everyone's data (x⁰ = 0, which needs none, has 100 on both)" in claims[0].measured


def test_a_run_that_ends_in_its_first_iteration_is_described_by_what_it_spent() -> None:
    whole = theorem(1.0, 1.0)
    start = {name: column[:1] for name, column in whole.columns.items()}
    cut = replace(whole, run=replace(whole.run, rounds=2, lmo_calls=500, columns=start))
    rounds, calls = completion(cut)
    assert (rounds.verdict, calls.verdict) == (Verdict.OPEN, Verdict.OPEN)
    assert "not within its 2 rounds" in rounds.measured
    assert "more than the 500 calls it made" in calls.measured


def test_a_loss_of_zero_is_given_without_a_ratio() -> None:
    assert "0 (one of the two is 0)" in lasso(theorem(0.0, 5.0))[1].measured


def test_claims_for_other_data_say_that_the_paper_calls_them_similar() -> None:
    for name in ("lasso-e2006", "lasso-e2006-lookalike", "completion-movielens"):
        said = PROMISES[name]
        texts = [text for text in (said.of_rounds, said.of_loss, said.of_calls) if text is not None]
        assert len(texts) == 2
        assert all(text.startswith("Similar on ") for text in texts)
    assert "the real E2006-tfidf" in PROMISES["lasso-e2006-lookalike"].of_rounds
