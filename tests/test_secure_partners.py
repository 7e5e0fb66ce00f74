"""Partners: the graph of masks, and the bound of what colluding agents can learn."""

from __future__ import annotations

from hashlib import sha256
from itertools import permutations

import networkx as nx
import numpy as np
import pytest

from dcgs.secure import partners as partners_module
from dcgs.secure.partners import FAILURE, cycles_needed, disconnection_bound, partner_graph


def as_graph(partners: tuple[tuple[int, ...], ...]) -> nx.Graph:
    graph = nx.empty_graph(len(partners))
    graph.add_edges_from((i, j) for i, near in enumerate(partners) for j in near)
    return graph


@pytest.mark.parametrize("agents", [3, 10, 50])
def test_up_to_fifty_agents_all_pairs_are_partners(agents: int) -> None:
    graph = as_graph(partner_graph(agents, b"seed"))
    assert graph.number_of_edges() == agents * (agents - 1) // 2


@pytest.mark.parametrize("agents", [51, 200, 1000])
def test_above_fifty_agents_the_graph_is_connected_and_mutual_with_few_partners(agents: int) -> None:
    partners = partner_graph(agents, b"seed")
    assert nx.is_connected(as_graph(partners))
    assert all(i in partners[j] for i, near in enumerate(partners) for j in near)
    assert all(i not in near and near == tuple(sorted(near)) for i, near in enumerate(partners))
    assert max(map(len, partners)) <= 2 * cycles_needed(agents)


def test_the_graph_follows_from_the_seed_on_every_machine_and_with_every_version() -> None:
    digest = sha256(repr(partner_graph(60, b"seed")).encode()).hexdigest()
    assert digest == "59561998dbb356ffa701021a5bb5046dbe7745df343317e8281d40e695ea10c2"
    assert partner_graph(60, b"other") != partner_graph(60, b"seed")


def test_the_probability_that_a_cycle_separates_two_sets_is_that_of_counting_all_cycles() -> None:
    agents, colluders = 8, 3
    logs = partners_module._log_separation(agents, colluders)
    for s in (1, 2):
        inside = set(range(colluders, colluders + s))
        outside = set(range(colluders + s, agents))
        separated = 0
        for order in permutations(range(1, agents)):
            cycle = [0, *order]
            pairs = zip(cycle, [*cycle[1:], 0], strict=True)
            separated += not any(
                (i in inside and j in outside) or (j in inside and i in outside) for i, j in pairs
            )
        assert np.exp(logs[s - 1]) == pytest.approx(separated / 5040, rel=1e-12)  # rounding of logarithms


@pytest.mark.parametrize(("agents", "colluders", "cycles"), [(20, 10, 3), (30, 20, 6), (60, 30, 4)])
def test_the_other_agents_fall_apart_no_more_often_than_the_bound_says(
    agents: int, colluders: int, cycles: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With few cycles, so that it happens."""
    monkeypatch.setattr(partners_module, "ALL_PAIRS", 2)
    monkeypatch.setattr(partners_module, "cycles_needed", lambda agents: cycles)
    trials, apart = 1000, 0
    for trial in range(trials):
        partners = partner_graph.__wrapped__(agents, f"trial {trial}".encode())
        apart += not nx.is_connected(as_graph(partners).subgraph(range(colluders, agents)))
    bound = disconnection_bound(agents, colluders, cycles)
    assert bound < 0.8
    # Three standard deviations of a share of 1,000 trials.
    assert 0 < apart / trials <= bound + 3.0 * np.sqrt(bound / trials)


@pytest.mark.parametrize("agents", [51, 100, 1000])
def test_the_number_of_cycles_is_the_smallest_with_which_half_of_the_agents_may_collude(agents: int) -> None:
    cycles = cycles_needed(agents)
    bounds = [
        disconnection_bound(agents, c, cycles) for c in [*range(0, agents // 2, agents // 10), agents // 2]
    ]
    assert max(bounds) == bounds[-1] <= FAILURE == 2.0**-40
    assert disconnection_bound(agents, agents // 2, cycles - 1) > FAILURE
