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
from dcgs.methods.certificate import CertifiedGap, GapTarget
from dcgs.methods.outlook import Measured, Outlook, Proposal, Request, View
from dcgs.tree import TreeNode

AGENTS = 5


def root(height: int = 2, dimension: int = 2) -> Agent:
    """Return the root of a path of five agents, or the only agent if the height of its tree is 0."""
    ball, is_single = dcgs.L1Ball(dimension, 3.0), height == 0
    return Agent(
        index=2,
        f=LeastSquares(np.eye(dimension), np.ones(dimension)),
        X=ball,
        lmo=CountedOracle(ball),
        x0=np.zeros(dimension),
        degrees={} if is_single else {1: 2, 3: 2},
        facts=Facts(1 if is_single else AGENTS, 1.0, 0.0, 6.0, mean_degree=1.6),
        iterations=1000,
        rng=np.random.default_rng(0),
        observe=lambda k, x, dual=None: None,
        target=GapTarget(1e-2),
        tree=TreeNode(None, () if is_single else (1, 3), 0, height, 2 * height, 0.0 if is_single else 0.5),
    )


class Own:
    """What the root knows of gaps by its own data; notes with which effort it computes its dual function.

    The decrease of five agents is 10, that is five times that of the root. So the gap asked for is
    0.01 · 10 = 0.1, and a part of the root counts five times in the gap.
    """

    def __init__(self, gap: float, left: float = 0.0, **changes: Any) -> None:
        self.gap, self.left, self.efforts = gap, left, list[int]()
        self.decreases = 0
        self.given: dict[str, Any] = {"has_dual": True, "residual": 0.0, "excess": 1e9, "decrease": 2.0}
        self.given |= changes
        self.agent: Agent = self.given.get("agent", root())
        self.x = np.eye(1, self.agent.x0.size)[0]

    def dual_gap(self, tolerance: float, effort: int) -> tuple[float, float]:
        assert tolerance > 0.0
        self.efforts.append(effort)
        return self.gap, self.left

    def decrease(self) -> float:
        self.decreases += 1
        return float(self.given["decrease"])

    def view(self, rounds: int) -> View:
        given = self.given
        return View(
            self.agent,
            rounds,
            self.x,
            given["has_dual"],
            given["residual"],
            self.decrease,
            lambda: float(given["excess"]),
            self.dual_gap,
        )


NO_DUAL: dict[str, Any] = {"has_dual": False, "residual": None}


def ask(outlook: Outlook, rounds: int, own: Own, is_alone: bool = True) -> Request | None:
    return outlook.request(own.view(rounds), is_alone)


def measured(gap: float, round: int = 10, **changes: Any) -> Measured:
    given: dict[str, Any] = {"expected": gap, "wolfe": None, "dual": gap} | changes
    best = given.pop("best", CertifiedGap(gap, 10.0, 0.0))
    return Measured(round, best=best, **given)


def asked_for(dimension: int = 2, **known: Any) -> Outlook:
    """Return the outlook of a root that proposed a model before, among points of so many entries."""
    return Outlook(requests=1, entries=float(dimension), points=1, **known)


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
    request = ask(Outlook(), 20, Own(part, residual=residual))
    assert (request is not None) == is_due
    assert request is None or request.proposal is Proposal.MODEL


def test_the_part_of_the_root_is_not_computed_while_agents_disagree() -> None:
    own = Own(0.001, residual=100.0)
    assert ask(Outlook(), 20, own) is None
    assert own.efforts == []


@pytest.mark.parametrize(("residual", "soonest"), [(0.0, 2), (None, 10)])
def test_nothing_is_computed_in_the_first_rounds(residual: float | None, soonest: int) -> None:
    """With a residual not before messages have passed the height of the tree, and without one later."""
    for rounds in range(1, soonest):
        own = Own(0.001, residual=residual)
        assert ask(Outlook(), rounds, own) is None
        assert own.efforts == []
    assert ask(Outlook(), soonest, Own(0.001, residual=residual)) is not None


def test_what_local_solves_leave_open_counts_in_part() -> None:
    """The gap is expected to be smaller than a solve of few steps shows, which is by most of it open."""
    assert ask(Outlook(), 20, Own(0.03, left=0.0)) is None
    assert ask(Outlook(), 20, Own(0.03, left=0.026)) is not None


# The least value of the losses.


def test_no_dual_function_is_computed_where_the_least_value_of_the_losses_is_enough() -> None:
    own = Own(math.nan, excess=0.001)
    request = ask(Outlook(), 20, own)
    assert request is not None
    assert (request.tolerance, own.efforts) == (0.0, [])  # nor is one asked for


def test_no_dual_function_is_computed_while_f_falls_to_a_least_value_that_is_near() -> None:
    outlook, own = Outlook(), Own(math.nan)
    requests = []
    for rounds in range(
        2, 20
    ):  # f is above it by five times the gap asked for, and falls below 0.2 times that
        own.given["excess"] = 0.1 * 0.8 ** (rounds - 2)
        requests.append(ask(outlook, rounds, own))
    first = next(request for request in requests if request is not None)
    assert (first.tolerance, own.efforts) == (0.0, [])


def test_a_dual_function_is_computed_where_f_stays_above_the_least_value_of_the_losses() -> None:
    outlook, own = Outlook(), Own(0.001, excess=0.1)
    requests = (ask(outlook, rounds, own) for rounds in range(2, 20))
    first = next(request for request in requests if request is not None)
    assert first.tolerance > 0.0
    assert len(own.efforts) == 1


def test_a_dual_function_is_computed_at_once_where_the_least_value_of_the_losses_is_far() -> None:
    own = Own(0.001, excess=100.0)
    assert ask(Outlook(), 20, own) is not None
    assert len(own.efforts) == 1


# Waiting.


def test_the_farther_a_gap_is_the_longer_the_root_waits_before_it_computes_its_part_again() -> None:
    waits = []
    for part in (0.1, 1.0, 1000.0):
        outlook, own = Outlook(), Own(part)
        first, rounds = 20, 20
        while len(own.efforts) < 2:
            assert ask(outlook, rounds, own) is None
            rounds += 1
        waits.append(rounds - first)
    assert 1 <= waits[0] < waits[1] < waits[2]


def test_without_a_residual_the_root_waits_for_a_share_of_the_rounds_so_far() -> None:
    waits = []
    for first in (20, 500):
        outlook, own = asked_for(round=first), Own(0.1, residual=None)
        rounds = first
        while len(own.efforts) < 2:
            ask(outlook, rounds, own)
            rounds += 1
        waits.append(rounds - first)
    assert waits[1] > 3 * waits[0]


def test_the_own_decrease_is_computed_seldom_and_not_once_that_of_all_is_known() -> None:
    outlook, own = Outlook(), Own(1e6)
    for rounds in range(1, 1000):
        ask(outlook, rounds, own)
    assert own.decreases <= 10  # in rounds 1, 2, 4, …
    outlook, own = Outlook(), Own(1e6)
    outlook.read(measured(1.0))
    assert ask(outlook, 20, own) is None
    assert own.decreases == 0


@pytest.mark.parametrize("height", [0, 2, 40])
@pytest.mark.parametrize("given", [{"residual": 1e6}, {"residual": 0.0}, NO_DUAL], ids=str)
def test_a_model_is_proposed_at_the_latest_after_some_rounds(given: dict[str, Any], height: int) -> None:
    """So that a wrong expectation does not last: gaps are measured now and then."""
    outlook, own = Outlook(gap=1e6, measured=1), Own(1e6, agent=root(height), **given)
    asked = [rounds for rounds in range(1, 3000) if ask(outlook, rounds, own) is not None]
    assert 1 <= len(asked) <= 25
    # After half as many rounds again, or four heights of the tree, where no other rule delays the first.
    longest = np.maximum(0.5 * np.array([1, *asked]) + 1, 4 * max(height, 1))
    longest[0] = max(longest[0], 100)
    assert (np.diff([1, *asked, 3000]) <= longest).all()


def test_in_a_high_tree_the_next_model_waits_for_four_heights() -> None:
    """One certificate takes three; without this, models would follow one another in the first rounds."""
    outlook, own = asked_for(round=100), Own(1e6, residual=1e6, agent=root(height=40))
    asked = [rounds for rounds in range(101, 300) if ask(outlook, rounds, own) is not None]
    assert asked[0] == 100 + 4 * 40


@pytest.mark.parametrize("given", [{"residual": 1e6}, {"residual": 0.0}], ids=str)
def test_the_number_of_models_grows_like_the_logarithm_of_the_rounds(given: dict[str, Any]) -> None:
    outlook, own = Outlook(), Own(1e6, **given)
    asked = [rounds for rounds in range(1, 10000) if ask(outlook, rounds, own) is not None]
    assert asked[0] == 100
    assert len(asked) <= 1 + math.log(100) / math.log(1.5)


# Learning.


def test_a_gap_that_was_larger_than_expected_makes_the_root_wait_longer() -> None:
    own = Own(0.01)  # five times that is half of the gap asked for
    assert ask(Outlook(), 20, own) is not None
    wrong = Outlook()
    wrong.read(measured(1.0, expected=0.1))
    assert ask(wrong, 20, own) is None


def test_one_certificate_changes_expectations_by_a_factor_of_ten_at_most() -> None:
    before = Outlook().ratio
    for gap, expected, factor in [(1e9, 1e-9, 10.0), (1e-9, 1e9, 0.1), (2.0, 1.0, 2.0)]:
        outlook = Outlook()
        outlook.read(measured(gap, expected=expected))
        assert outlook.ratio == pytest.approx(factor * before)


@pytest.mark.parametrize("expected", [math.inf, 0.0])
def test_a_model_of_which_no_gap_was_expected_changes_no_expectation(expected: float) -> None:
    outlook = Outlook()
    outlook.read(measured(2.0, expected=expected))
    assert outlook.ratio == Outlook().ratio


def test_the_rate_of_the_dual_function_is_measured_between_two_looks() -> None:
    """A part that falls quickly is expected to be small when agents compute their shares, later."""
    slow, fast = Outlook(), Outlook()
    for outlook, parts in ((slow, (1.0, 0.99)), (fast, (1.0, 0.1))):
        ask(outlook, 20, Own(parts[0]))
        assert ask(outlook, outlook.look, Own(parts[1])) is None
    assert slow.rate < fast.rate <= 0.2


# While a model is on its way.


@pytest.mark.parametrize(
    ("part", "dimension", "spent", "is_due"),
    [
        (0.0001, 10, 0.0, True),
        (0.01, 10, 0.0, False),  # not much better
        (0.0001, 10, 1e9, False),  # models have taken much of what was sent
    ],
)
def test_a_second_model_is_proposed_only_if_it_is_much_better_and_cheap(
    part: float, dimension: int, spent: float, is_due: bool
) -> None:
    """Cheap: a model of one entry, where points have had ten."""
    outlook = asked_for(dimension, round=20, expected=0.06, spent=spent)
    own = Own(part, agent=root(dimension=dimension))
    assert (ask(outlook, 400, own, is_alone=False) is not None) == is_due


def test_the_part_of_the_root_is_not_computed_again_while_a_model_is_on_its_way() -> None:
    """It is reckoned to fall at the rate so far, but not by more than a factor of three."""
    outlook = asked_for(round=20, expected=0.06, dual_gap=0.1, looked=20)
    own = Own(math.nan)
    ask(outlook, 40, own, is_alone=False)
    assert own.efforts == []
    assert outlook.dual_gap == 0.1


def test_a_second_model_does_not_follow_at_once() -> None:
    for height, soonest in ((2, 22), (40, 40)):
        for rounds in (soonest - 1, soonest):
            outlook = asked_for(1000, round=20, expected=0.06)
            own = Own(0.0001, agent=root(height, 1000))
            request = ask(outlook, rounds, own, is_alone=False)
            assert (request is not None) == (rounds == soonest and height <= rounds)


def test_without_multipliers_there_is_no_second_model() -> None:
    outlook = asked_for(round=20, gap=1e-9, measured=20)
    assert ask(outlook, 400, Own(math.nan, **NO_DUAL), is_alone=False) is None
    assert ask(outlook, 400, Own(math.nan, **NO_DUAL), is_alone=True) is not None


def test_a_model_that_is_cheap_is_proposed_with_a_larger_gap() -> None:
    """A share of the gap asked for is kept in reserve where a model that fails costs much."""
    for x, is_cheap in ((np.ones(1000), False), (np.eye(1, 1000)[0], True)):
        own = Own(0.017, agent=root(dimension=1000))
        own.x = x
        request = ask(Outlook(entries=1000.0, points=1), 20, own)
        assert (request is not None) == is_cheap


# The start.


@pytest.mark.parametrize(
    ("outlook", "decrease", "is_start"),
    [
        (Outlook(), 0.0, True),  # the root has not decreased its own f
        (Outlook(), -1.0, True),
        (Outlook(), 2.0, False),
        # It is tried once.
        (Outlook(tried_start=True), 0.0, False),
    ],
)
@pytest.mark.parametrize("is_alone", [True, False])
def test_the_start_is_proposed_once_if_it_may_be_optimal(
    outlook: Outlook, decrease: float, is_start: bool, is_alone: bool
) -> None:
    request = ask(replace(outlook), 20, Own(1e9, residual=1e9, decrease=decrease), is_alone)
    assert (request == Request(Proposal.START, gradient=True)) == is_start
    assert is_start or request is None


def test_if_no_model_is_better_than_the_start_the_start_is_proposed() -> None:
    outlook, own = Outlook(), Own(1e9, residual=1e9)
    outlook.read(measured(1.0, best=CertifiedGap(1.0, -1.0, 0.0)))
    assert ask(outlook, 20, own) == Request(Proposal.START, gradient=True)
    assert ask(outlook, 21, own) is None


# What is asked for.


def test_local_solves_get_more_effort_where_they_were_too_short_up_to_a_limit() -> None:
    outlook = Outlook()
    before = outlook.effort
    outlook.read(measured(1.0, dual=1.0, expected=0.9))  # they are not what is missing
    assert outlook.effort == before
    outlook.read(measured(1.0, dual=1.0, expected=0.1))
    assert outlook.effort > before
    for _ in range(50):
        outlook.read(measured(1.0, dual=1.0, expected=0.1))
    assert before < outlook.effort <= 128 * before


def test_the_root_takes_more_effort_itself_where_its_solve_leaves_most_open() -> None:
    for left, efforts in ((0.5, 1), (0.99, 2)):
        own = Own(1.0, left)
        outlook = Outlook()
        ask(outlook, 20, own)
        assert len(own.efforts) == efforts
        assert own.efforts == sorted(set(own.efforts))
        assert outlook.effort == own.efforts[-1]
    # It is no use where the gap is small enough, or where no more effort is allowed.
    small = Own(0.001, left=0.001)
    ask(Outlook(), 20, small)
    assert len(small.efforts) == 1
    most = Own(1.0, left=0.99)
    ask(Outlook(effort=10**6), 20, most)
    assert len(most.efforts) == 1


def test_a_part_that_took_much_effort_holds_for_some_rounds() -> None:
    counts = {}
    for effort in (Outlook().effort, 100 * Outlook().effort):
        outlook, own = Outlook(effort=effort), Own(0.025)
        for rounds in range(20, 30):
            outlook.look = 0
            assert ask(outlook, rounds, own) is None or effort > Outlook().effort
        counts[effort] = len(own.efforts)
    assert sorted(counts.values(), reverse=True) == list(counts.values())
    assert list(counts.values()) == [10, 1]


def test_agents_take_more_steps_than_the_root_up_to_a_limit() -> None:
    for effort in (20, 320, 2560):
        request = ask(Outlook(effort=effort), 20, Own(0.001))
        assert request is not None
        assert effort <= request.effort <= 2560
    first = ask(Outlook(), 20, Own(0.001))
    assert first is not None
    assert first.effort > Outlook().effort


def test_all_agents_together_may_be_off_by_a_share_of_the_gap() -> None:
    request = ask(Outlook(), 20, Own(0.001))
    assert request is not None
    assert 0.0 < AGENTS * request.tolerance < 0.1


def test_gradients_are_asked_for_only_where_they_help() -> None:
    """They are dense: with multipliers they are sent if the last Wolfe gap was nearly small enough."""
    asked = {}
    for wolfe in (math.inf, 100.0, 0.1, 1e-3):
        request = ask(Outlook(wolfe=wolfe, round=19), 20, Own(0.001))
        assert request is not None
        asked[wolfe] = request.gradient
    assert asked == {math.inf: False, 100.0: False, 0.1: True, 1e-3: True}


def test_gradients_are_asked_for_now_and_then_in_any_case() -> None:
    asked = []
    outlook = Outlook()
    for rounds in range(20, 40):
        request = ask(outlook, rounds, Own(0.0001))
        asked += [] if request is None else [request.gradient]
    assert 1 <= sum(asked) <= len(asked) // 3


def test_what_models_and_gradients_cost_is_counted() -> None:
    """An agent with two neighbors sends a model to one of them, and a gradient to one."""
    outlook = Outlook()
    assert ask(outlook, 20, Own(0.001)) is not None
    assert outlook.spent == 0.5 * 1
    with_gradient = Outlook(wolfe=1e-3, round=19)
    assert ask(with_gradient, 20, Own(0.001)) is not None
    assert with_gradient.spent == outlook.spent + 2


def test_shares_are_flooded_where_that_saves_rounds_and_few_bytes_are_spent() -> None:
    """On a path two heights are the diameter: sums along it are as fast. Gradients are never flooded."""
    path, ring = root(dimension=1000), root(dimension=1000)
    ring = replace(ring, tree=replace(ring.tree, diameter=2))
    for agent, entries, wolfe, floods in (
        (path, 1000.0, math.inf, False),
        (ring, 1000.0, math.inf, True),
        (ring, 1.0, math.inf, False),
        (ring, 1000.0, 1e-3, False),
        (replace(ring, reliable=False), 1000.0, math.inf, False),
    ):
        outlook = Outlook(entries=entries, points=1, wolfe=wolfe, round=19)
        request = ask(outlook, 20, Own(0.001, agent=agent))
        assert request is not None
        assert request.floods == floods


def test_shares_are_flooded_also_where_a_run_is_short() -> None:
    """All that was sent so far is little then, but the rounds that are saved cost more than the shares."""
    agent = root(dimension=100)
    ring = replace(agent, tree=replace(agent.tree, diameter=2))
    for agents, floods in ((5, True), (50, False)):
        many = replace(ring, facts=replace(ring.facts, agents=agents))
        request = ask(Outlook(entries=100.0, points=1), 2, Own(1e-6, agent=many))
        assert request is not None
        assert request.floods == floods


def test_a_single_agent_floods_nothing() -> None:
    request = ask(Outlook(), 20, Own(1e-6, agent=root(height=0)))
    assert request is not None
    assert not request.floods


# Without multipliers.


def test_without_multipliers_those_of_gradients_are_used_once_there_are_some() -> None:
    outlook, own = Outlook(), Own(math.nan, **NO_DUAL)
    first = ask(outlook, 50, own)
    assert first is not None
    assert (first.gradient, first.uses_gradients, first.tolerance) == (True, False, 0.0)
    outlook.read(measured(0.11, round=50, wolfe=0.2, dual=None))
    second = ask(outlook, 100, own)
    assert second is not None
    assert (second.gradient, second.uses_gradients) == (True, True)
    assert second.tolerance > 0.0


def test_without_multipliers_the_next_model_follows_when_the_gaps_have_fallen() -> None:
    """They fall as a power of the number of rounds: from 1 to 0.25 if rounds double, so to 0.1 after 79."""
    outlook = Outlook(requests=2, local=10.0)
    outlook.read(measured(1.0, round=25, wolfe=1.0, dual=None))
    outlook.read(measured(0.25, round=50, wolfe=0.25, dual=None))
    outlook.round = 75
    own = Own(math.nan, **NO_DUAL)
    due = [rounds for rounds in range(76, 113) if ask(replace(outlook), rounds, own)]
    assert min(due) in range(79, 83)  # before the latest time, eight rounds after round 75


# Single agents.


def test_a_single_agent_proposes_by_its_own_part_alone() -> None:
    """The sum over one agent is its own part, and the gap asked for is a share of its own decrease."""
    single = root(height=0)
    for part, is_due in ((0.05, True), (0.2, False)):
        request = ask(Outlook(), 20, Own(part, agent=single, decrease=10.0))
        assert (request is not None) == is_due
    assert Own(0.0, agent=single).view(1).height == 1


def test_a_request_survives_its_way_as_numbers() -> None:
    for request in (
        Request(),
        Request(Proposal.START, gradient=True),
        Request(Proposal.MODEL, True, True, 0.5, 80),
        Request(Proposal.MODEL, False, True, 1e-300, 2560),
        Request(Proposal.MODEL, True, False, 1e300, 1),
        Request(Proposal.MODEL, False, False, 1.0, 2560, True),
    ):
        code, tolerance = request.numbers()
        assert isinstance(code, float)
        assert Request.of(code, tolerance) == request


def test_agents_ask_for_little_where_nothing_is_near(monkeypatch: pytest.MonkeyPatch) -> None:
    """A gap that is out of reach costs few models: their number grows like the logarithm of the rounds."""
    asked: list[Request] = []
    request: Callable[[Outlook, View, bool], Request | None] = Outlook.request

    def noted(self: Outlook, view: View, is_alone: bool) -> Request | None:
        given = request(self, view, is_alone)
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
