"""When the root proposes a model: as soon as it expects its gap to be small enough, and seldom otherwise.

The tests say what must hold for every choice of the constants in outlook.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs import LeastSquares, Status
from dcgs.counting import CountedOracle
from dcgs.facts import Facts
from dcgs.methods import Agent
from dcgs.methods.base import Dual
from dcgs.methods.certificate import CertifiedGap, GapTarget
from dcgs.methods.outlook import Measured, Outlook, OwnGap, Proposal, Request
from dcgs.points import Point
from dcgs.tree import TreeNode

BALL = dcgs.L1Ball(2, 3.0)
X = np.array([1.0, 0.0])
AGENTS, HEIGHT = 5, 2


def root(gap: float = 1e-2) -> Agent:
    """Return the root of a path of five agents; its f is ‖x − (3, 1)‖², which is 10 at x⁰."""
    return Agent(
        index=2,
        f=LeastSquares(np.eye(2), [3.0, 1.0]),
        X=BALL,
        lmo=CountedOracle(BALL),
        x0=np.zeros(2),
        degrees={1: 2, 3: 2},
        facts=Facts(AGENTS, 1.0, 0.0, 6.0, mean_degree=1.6),
        iterations=1000,
        rng=np.random.default_rng(0),
        observe=lambda k, x, dual=None: None,
        target=GapTarget(gap),
        tree=TreeNode(None, (1, 3), 0, HEIGHT),
    )


def told(outlook: Outlook, decrease: float = 10.0) -> Outlook:
    """Return the outlook of a root that knows the sum of the agents' own decreases."""
    outlook.read_own(decrease)
    return outlook


class Own:
    """The root's part of the gap; counts how often it is computed."""

    def __init__(self, gap: float, left: float = 0.0) -> None:
        self.gap, self.left, self.efforts = gap, left, list[int]()

    def __call__(self, dual: Dual, x: Point, tolerance: float, effort: int) -> tuple[float, float]:
        assert tolerance > 0.0
        self.efforts.append(effort)
        return self.gap, self.left


def dual(residual: float | None = None) -> Dual:
    return Dual(np.zeros(2), 0.0, 1.0, residual)


def measured(gap: float, round: int = 10, **changes: Any) -> Measured:
    given: dict[str, Any] = {"expected": gap, "wolfe": None, "dual": gap, "left": 0.0} | changes
    best = given.pop("best", CertifiedGap(gap, 10.0, 0.0))
    return Measured(round, best=best, **given)


def ask(outlook: Outlook, rounds: int, given: Dual | None, own: OwnGap, is_alone: bool = True) -> Any:
    return outlook.request(root(), rounds, X, given, own, is_alone)


# The gap asked for is 0.01 · 10 = 0.1; five agents with the part of the root make five times that.


@pytest.mark.parametrize(
    ("part", "residual", "is_due"),
    [
        (0.001, 0.0, True),
        (0.001, 0.001, True),
        (1.0, 0.0, False),  # the part by the dual function is too large
        (0.001, 1.0, False),  # agents disagree
        (0.001, None, True),
        (1.0, None, False),
    ],
)
def test_a_model_is_proposed_when_its_gap_is_expected_to_be_small_enough(
    part: float, residual: float | None, is_due: bool
) -> None:
    outlook, own = told(Outlook()), Own(part)
    request = ask(outlook, 20, dual(residual), own)
    assert (request is not None) == is_due
    assert request is None or request.proposal is Proposal.MODEL


def test_the_part_of_the_root_is_not_computed_while_agents_disagree() -> None:
    own = Own(0.001)
    assert ask(told(Outlook()), 20, dual(residual=100.0), own) is None
    assert own.efforts == []


def test_nor_where_the_least_value_of_losses_is_enough() -> None:
    agent, own = root(), Own(math.nan)
    fitting = replace(agent, f=LeastSquares(np.eye(2), X))
    request = told(Outlook()).request(fitting, 20, X, dual(0.0), own, True)
    assert request is not None
    assert own.efforts == []


def test_the_farther_a_gap_is_the_longer_the_root_waits_before_it_computes_its_part_again() -> None:
    waits = []
    for part in (0.1, 1.0, 1000.0):
        outlook, own = told(Outlook()), Own(part)
        first, rounds = 20, 20
        while len(own.efforts) < 2 and ask(outlook, rounds, dual(0.0), own) is None:
            rounds += 1
        waits.append(rounds - first)
    assert 1 <= waits[0] < waits[1] < waits[2]


def test_without_a_residual_the_root_waits_for_a_share_of_the_rounds_so_far() -> None:
    waits = []
    for first in (20, 500):
        outlook, own = told(replace(Outlook(), requests=1, round=first)), Own(0.1)
        rounds = first
        while len(own.efforts) < 2:
            ask(outlook, rounds, dual(None), own)
            rounds += 1
        waits.append(rounds - first)
    assert waits[1] > 3 * waits[0]


def test_a_model_is_proposed_at_the_latest_after_some_rounds() -> None:
    """So that a wrong expectation does not last: gaps are measured now and then."""
    outlook, own = told(Outlook()), Own(1e6)
    asked = [rounds for rounds in range(1, 3000) if ask(outlook, rounds, dual(1e6), own) is not None]
    assert 1 <= len(asked) <= 15
    assert (np.diff([1, *asked, 3000]) <= 0.6 * np.array([*asked, 3000]) + 100).all()


def test_a_gap_that_was_larger_than_expected_makes_the_root_wait_longer() -> None:
    own = Own(0.01)  # five times that is half of the gap asked for
    assert ask(told(Outlook()), 20, dual(0.0), own) is not None
    wrong = told(Outlook())
    wrong.read(measured(1.0, expected=0.1))
    assert ask(wrong, 20, dual(0.0), own) is None


def test_one_certificate_changes_expectations_by_a_factor_of_ten_at_most() -> None:
    before = Outlook().ratio
    for gap, expected, factor in [(1e9, 1e-9, 10.0), (1e-9, 1e9, 0.1), (2.0, 1.0, 2.0)]:
        outlook = Outlook()
        outlook.read(measured(gap, expected=expected))
        assert outlook.ratio == pytest.approx(factor * before)


# While a model is on its way.


def test_a_second_model_is_proposed_only_if_its_gap_is_expected_to_be_much_smaller() -> None:
    for part, is_due in [(0.01, False), (0.0001, True)]:
        outlook = told(replace(Outlook(), requests=1, round=20, expected=0.06))
        request = ask(outlook, 40, dual(0.0), Own(part), is_alone=False)
        assert (request is not None) == is_due


def test_a_second_model_does_not_follow_at_once() -> None:
    outlook = told(replace(Outlook(), requests=1, round=20, expected=0.06))
    assert ask(outlook, 21, dual(0.0), Own(0.0001), is_alone=False) is None


def test_without_multipliers_there_is_no_second_model() -> None:
    outlook = told(replace(Outlook(), requests=1, round=20, gap=1e-9, measured=20))
    assert ask(outlook, 400, None, Own(math.nan), is_alone=False) is None
    assert ask(outlook, 400, None, Own(math.nan), is_alone=True) is not None


# The start.


@pytest.mark.parametrize(
    ("outlook", "is_start"),
    [
        (told(Outlook(), 0.0), True),  # no agent has decreased its own f
        (told(Outlook(), -1.0), True),
        (told(Outlook(), 10.0), False),
        # Agents that had decreased their own f return to x⁰, after a first request.
        (told(told(Outlook(requests=1, round=19), 10.0), 0.1), True),
        (told(told(Outlook(requests=1, round=19), 10.0), 9.0), False),
        (told(told(Outlook(requests=0), 10.0), 0.1), False),
        # It is tried once.
        (told(Outlook(tried_start=True), 0.0), False),
    ],
)
def test_the_start_is_proposed_once_if_it_may_be_optimal(outlook: Outlook, is_start: bool) -> None:
    request = ask(replace(outlook), 20, dual(1e9), Own(1e9))
    assert (request == Request(Proposal.START, gradient=True)) == is_start
    assert is_start or request is None


def test_if_no_model_is_better_than_the_start_the_start_is_proposed() -> None:
    outlook = told(Outlook())
    outlook.read(measured(1.0, best=CertifiedGap(1.0, -1.0, 0.0)))
    assert ask(outlook, 20, dual(1e9), Own(1e9)) == Request(Proposal.START, gradient=True)
    assert ask(outlook, 21, dual(1e9), Own(1e9)) is None


# What is asked for.


def test_local_solves_get_more_effort_where_they_were_too_short_up_to_a_limit() -> None:
    outlook = Outlook()
    before = outlook.effort
    outlook.read(measured(1.0, dual=1.0, left=0.1))  # they are not what is missing
    assert outlook.effort == before
    outlook.read(measured(1.0, dual=1.0, left=0.9))
    assert outlook.effort > before
    for _ in range(50):
        outlook.read(measured(1.0, dual=1.0, left=0.9))
    assert before < outlook.effort <= 100 * before


def test_the_root_asks_for_the_effort_and_for_a_share_of_the_gap_as_the_tolerance() -> None:
    outlook = told(replace(Outlook(), effort=123))
    request = ask(outlook, 20, dual(0.0), Own(0.001))
    assert request is not None
    assert request.effort == 123
    # All agents together may be off by less than the gap of 0.1.
    assert 0.0 < AGENTS * request.tolerance < 0.1


def test_gradients_are_asked_for_only_where_they_help() -> None:
    """They are dense: with multipliers they are sent if the last Wolfe gap was nearly small enough."""
    asked = {}
    for wolfe in (math.inf, 100.0, 0.1, 1e-3):
        outlook = told(replace(Outlook(), wolfe=wolfe, round=19))
        request = ask(outlook, 20, dual(0.0), Own(0.001))
        assert request is not None
        asked[wolfe] = request.gradient
    assert asked == {math.inf: False, 100.0: False, 0.1: True, 1e-3: True}


def test_gradients_are_asked_for_now_and_then_in_any_case() -> None:
    asked = []
    outlook = told(Outlook())
    for rounds in range(20, 40):
        request = ask(outlook, rounds, dual(0.0), Own(0.0001))
        asked += [] if request is None else [request.gradient]
    assert 1 <= sum(asked) <= len(asked) // 3


def test_without_multipliers_those_of_gradients_are_used_once_there_are_some() -> None:
    outlook = told(Outlook())
    first = ask(outlook, 50, None, Own(math.nan))
    assert first is not None
    assert (first.gradient, first.uses_gradients, first.tolerance) == (True, False, 0.0)
    outlook.read(measured(0.11, round=50, wolfe=0.2, dual=None))
    second = ask(outlook, 100, None, Own(math.nan))
    assert second is not None
    assert (second.gradient, second.uses_gradients) == (True, True)
    assert second.tolerance > 0.0


def test_without_multipliers_the_next_model_follows_when_the_gaps_have_fallen() -> None:
    """They fall as a power of the number of rounds: from 1 to 0.25 if rounds double, so to 0.1 after 160."""
    outlook = told(replace(Outlook(), requests=2))
    outlook.read(measured(1.0, round=25, wolfe=1.0, dual=None))
    outlook.read(measured(0.25, round=50, wolfe=0.25, dual=None))
    outlook.round = 75
    due = [rounds for rounds in range(76, 113) if ask(replace(outlook), rounds, None, Own(math.nan))]
    assert min(due) in range(79, 100)


def test_a_request_survives_its_way_as_numbers() -> None:
    for request in (
        Request(),
        Request(Proposal.START, gradient=True),
        Request(Proposal.MODEL, True, True, 0.5, 80),
    ):
        assert Request.of(request.numbers()) == request


def test_agents_ask_for_little_where_nothing_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap that is out of reach costs few models: their number grows like the logarithm of the rounds."""
    asked: list[Request] = []
    request: Callable[..., Request | None] = Outlook.request

    def noted(*args: Any) -> Request | None:
        given = request(*args)
        asked.extend([] if given is None else [given])
        return given

    monkeypatch.setattr(Outlook, "request", noted)
    rng = np.random.default_rng(0)
    objectives = [LeastSquares(rng.standard_normal((8, 6)), rng.standard_normal(8)) for _ in range(4)]
    result = dcgs.minimize(
        objectives,
        dcgs.L2Ball(6),
        nx.path_graph(4),
        dcgs.DFW(tracking=False),
        gap=1e-9,
        rounds=1500,
        every=None,
    )
    assert result.status is Status.ROUNDS
    assert 1 <= len(asked) <= 25
