"""The page's first answer: which method brings every agent to a good model, and what that costs."""

from __future__ import annotations

from dataclasses import replace
from html import unescape

import pytest

from dcgs.link import Link
from dcgs_bench.paper.folder import render_study
from dcgs_bench.paper.results import Curve, Findings, conclusion, costs_to_accuracy, modeled_seconds
from dcgs_bench.ranking import RunCost
from dcgs_bench.study import RunRecord
from study_sample import lasso, sample


def curve(key: str, worst: list[float], rounds: list[float]) -> Curve:
    columns = {
        "rounds": rounds,
        "bytes": [1e6 * each for each in rounds],
        "computing": [0.5 * each for each in rounds],
        "lmo_calls": rounds,
        "worst_loss": worst,
    }
    return Curve(key, key.upper(), "", RunRecord("ROUNDS", "", "", columns=columns))


def example() -> Findings:
    curves = [
        curve("slow", [100.0, 40.0, 0.5], [0, 50, 100]),  # within 1 % of 100 at its last point
        curve("fast", [100.0, 0.9, 0.0], [0, 5, 10]),  # the best loss of all is 0
        curve("never", [100.0, 100.0, 60.0], [0, 5, 10]),
    ]
    return replace(lasso(), curves=curves, degree=2)


def test_costs_are_those_of_the_first_point_at_which_the_worst_agent_is_good() -> None:
    fast, slow, never = costs_to_accuracy(example())
    assert (fast.curve.key, fast.spent) == ("fast", RunCost(5, 5_000_000, 5, 5_000_000, 2.5))
    assert slow.spent is not None
    assert (slow.curve.key, slow.spent.rounds, slow.missing) == ("slow", 100, 0.005)
    assert (never.curve.key, never.spent, never.missing) == ("never", None, 0.6)


def test_the_modeled_time_is_computing_and_sending_over_all_links_at_once() -> None:
    fast = costs_to_accuracy(example())[0]
    assert fast.spent is not None
    assert modeled_seconds(fast.spent, example(), Link(1e6)) == pytest.approx(2.5 + 5.0 / 2)


def test_the_conclusion_names_the_first_the_second_and_those_that_did_not_get_there() -> None:
    text = conclusion(costs_to_accuracy(example()), example(), Link(1e6))
    assert text.startswith(
        "FAST, after 5 rounds, 5.00 MB sent by the busiest agent, and 5 s on links of 1 MB/s."
    )
    assert "Next is SLOW, after 100 rounds" in text
    assert text.endswith("Not within their budgets: NEVER.")


def test_the_page_answers_before_it_judges_the_paper() -> None:
    page = unescape(render_study(sample()))
    assert 0 < page.index('id="answer"') < page.index('id="verdicts"')
    findings = sample().findings[0]
    assert conclusion(costs_to_accuracy(findings), findings, sample().link) in page
