"""FastDCGS told the link: the rule that chooses its form, worked out by hand, and the runs that follow."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs.front.facts import facts_of
from dcgs.front.network import as_network
from dcgs.link import LINKS, Link
from dcgs.methods.link_rule import prefers_sums
from dcgs.schedules import SizeFacts

EVEN = SizeFacts(most_neighbors=2, most_entries=80_000, has_uneven_columns=False)


@pytest.mark.parametrize(
    ("link", "sum_rounds", "unknowns", "chosen"),
    [
        # 0.2 + 0.256 + 0.48 + 0.3 ms over edges, 2.0 + 0.256 + 0.16 + 0.1 by sums: 2.04 times as long.
        ("lan", 10, 2000, True),
        # 2.8 + 0.516 ms by sums: 2.68 times as long.
        ("lan", 14, 2000, False),
        # 1 + 3.2 + 0.78 ms over edges, 10 + 3.2 + 0.26 by sums: 2.70 times as long.
        ("paper", 10, 2000, False),
        # 1 + 8 + 0.78 and 10 + 8 + 0.26: the bytes of an iteration weigh more than its rounds, 1.87 times.
        ("paper", 10, 5000, True),
        # 20 + 2.56 + 0.78 and 200 + 2.56 + 0.26: 8.7 times as long.
        ("wan", 10, 2000, False),
        # 40 + 2.82 by sums: 1.84 times as long.
        ("wan", 2, 2000, True),
    ],
)
def test_sums_are_chosen_where_an_iteration_takes_less_than_two_and_a_half_times_as_long(
    link: str, sum_rounds: int, unknowns: int, chosen: bool
) -> None:
    assert prefers_sums(LINKS[link], EVEN, sum_rounds, unknowns) is chosen


def test_passes_over_the_data_count() -> None:
    slow = Link(1e9, latency=1e-3)
    assert not prefers_sums(slow, EVEN, sum_rounds=10, unknowns=100)
    # 6 passes over 16 MB take 12 ms, 2 passes 4 ms.
    large = SizeFacts(most_neighbors=2, most_entries=2_000_000, has_uneven_columns=False)
    assert prefers_sums(slow, large, sum_rounds=10, unknowns=100)


def test_sums_have_no_preconditioner_so_uneven_columns_exclude_them() -> None:
    uneven = SizeFacts(most_neighbors=2, most_entries=80_000, has_uneven_columns=True)
    assert not prefers_sums(LINKS["lan"], uneven, sum_rounds=10, unknowns=2000)


def problem(scale: float = 1.0) -> tuple[list[dcgs.Objective], dcgs.L1Ball, nx.Graph]:
    """Return a Lasso with more unknowns than are few, on a path of 4 agents; one column may be larger."""
    rng = np.random.default_rng(0)
    x = np.concatenate([np.ones(4), np.zeros(76)])
    columns = np.concatenate([[scale], np.ones(79)])
    data = [columns * rng.standard_normal((12, 80)) for _ in range(4)]
    return [dcgs.LeastSquares(A, A @ x) for A in data], dcgs.L1Ball(80, 3.0), nx.path_graph(4)


def test_sizes_are_the_largest_of_all_agents() -> None:
    objectives, X, _ = problem()
    objectives[1] = dcgs.LeastSquares(np.ones((20, 80)), np.ones(20))
    network = as_network(nx.star_graph(3))
    assert facts_of(objectives, X, network, smoothness=False).sizes is None
    assert facts_of(objectives, X, network, False, sizes=True).sizes == SizeFacts(3, 1600, False)
    uneven = [*problem()[0][:3], problem(scale=1000.0)[0][3]]
    assert facts_of(uneven, X, network, False, sizes=True).sizes == SizeFacts(3, 960, True)


@pytest.mark.parametrize(
    ("scale", "link", "form"),
    [(1.0, "1Gbit/s,0.2ms", "sums"), (1.0, "10MB/s,20ms", "edges"), (1000.0, "1Gbit/s,0.2ms", "edges")],
)
def test_a_run_that_is_told_the_link_is_that_of_the_form_which_the_rule_chooses(
    scale: float, link: str, form: Any
) -> None:
    objectives, X, graph = problem(scale)
    told = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(link=link), rounds=24)
    chosen = dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(form=form), rounds=24)
    np.testing.assert_array_equal(told.agents, chosen.agents)
    np.testing.assert_array_equal(told.bytes, chosen.bytes)


def test_a_form_that_is_asked_for_is_taken_over_every_link() -> None:
    objectives, X, graph = problem()
    told = dcgs.FastDCGS(form="edges", link="1Gbit/s,0.2ms")
    asked = dcgs.FastDCGS(form="edges")
    runs = [dcgs.minimize(objectives, X, graph, method, rounds=8) for method in (told, asked)]
    np.testing.assert_array_equal(runs[0].agents, runs[1].agents)


def test_what_is_no_link_is_refused() -> None:
    with pytest.raises(ValueError, match=r"as in 10MB/s,20ms; got '20ms'"):
        dcgs.FastDCGS(link="20ms")
    number: Any = 10e6
    with pytest.raises(TypeError, match=r"link must be a text such as '10MB/s,20ms'; got 10000000\.0"):
        dcgs.FastDCGS(link=number)
