"""Letters: what is packed comes out, and news reach everyone when they can and no sooner."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dcgs import Lockstep
from dcgs.methods.letters import ALL, Letter, News, Parcel, Row, unpacked
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import Job, Traffic
from problems import GRAPHS, neighbors_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)
every_graph = pytest.mark.parametrize("name", GRAPHS)


@st.composite
def letters(draw: st.DrawFn) -> tuple[Letter, int]:
    """Return a letter, and how wide its rows are."""
    shape, width = draw(array_shapes(max_dims=2, max_side=4)), draw(st.integers(1, 4))
    points: Any = arrays(np.float64, shape, elements=FINITE)
    row: st.SearchStrategy[Row] = st.tuples(*[FINITE] * width)
    rows = draw(st.dictionaries(st.integers(0, 10**6), row, max_size=5))
    parcel = draw(st.none() | st.builds(Parcel, points, st.integers(ALL, 10**6)))
    return Letter(draw(points), draw(FINITE), rows, parcel), width


def contents(letter: Letter) -> list[object]:
    """Return all that a letter says, for comparison to the bit."""
    parcels = [] if letter.parcel is None else [letter.parcel]
    points = [(p.shape, p.tobytes()) for p in (letter.point, *(parcel.point for parcel in parcels))]
    return [points, letter.scale, list(letter.rows.items()), [parcel.to for parcel in parcels]]


@given(written=letters())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_what_is_packed_comes_out(written: tuple[Letter, int]) -> None:
    letter, width = written
    message = letter.packed()
    assert message.ndim == 1
    assert message.dtype == np.float64
    assert contents(unpacked(message, letter.point.shape, width)) == contents(letter)


def test_a_letter_has_no_more_numbers_than_it_says() -> None:
    plain = Letter(np.zeros((2, 3)), 0.5, {})
    # Six of the point; the scale, the addressee, the count of rows.
    assert plain.packed().size == 6 + 3
    rows = {4: (1.0, 2.0), 0: (3.0, 4.0)}
    assert Letter(np.zeros((2, 3)), 0.5, rows, Parcel(np.ones((2, 3)), 1)).packed().size == 6 + 3 + 2 * 3 + 6


def spread(graph: nx.Graph, rows: list[Row], rounds: int) -> dict[tuple[int, int], dict[int, Row]]:
    """Return what agent i has heard after round r, under (i, r)."""
    heard: dict[tuple[int, int], dict[int, Row]] = {}

    def program(i: int) -> Program[Point]:
        news = News()
        news.begin(i, rows[i])
        heard[i, 0] = dict(news.rows)
        for r in range(1, rounds + 1):
            inbox = yield Letter(np.zeros(1), 1.0, news.unsent()).packed()
            news.read(unpacked(message, (1,), len(rows[i])) for message in inbox.values())
            heard[i, r] = dict(news.rows)
        totals[i] = [news.total(column) for column in range(len(rows[i]))]
        return np.zeros(1)

    totals: dict[int, list[float]] = {}
    Lockstep().run(Job(program, neighbors_of(graph), Traffic(len(graph)), lambda: True))
    first = totals[0]
    # The same numbers added in the same order: the same to the bit.
    assert all(total == first for total in totals.values())
    return heard


def random_rows(agents: int) -> list[Row]:
    """Return numbers whose sum depends on the order of adding."""
    rng = np.random.default_rng(91)
    return [
        tuple(row) for row in (rng.standard_normal((agents, 3)) * 10.0 ** rng.integers(-9, 9, 3)).tolist()
    ]


@every_graph
def test_news_travel_one_edge_a_round(name: str) -> None:
    graph = GRAPHS[name]
    rows, hops = random_rows(len(graph)), nx.diameter(graph)
    distance = dict(nx.all_pairs_shortest_path_length(graph))
    for (i, r), heard in spread(graph, rows, hops).items():
        assert heard == {j: rows[j] for j in distance[i] if distance[i][j] <= r}


@every_graph
def test_after_as_many_rounds_as_the_graph_is_wide_everyone_has_the_same_totals(name: str) -> None:
    graph = GRAPHS[name]
    rows, hops = random_rows(len(graph)), nx.diameter(graph)
    heard = spread(graph, rows, hops)
    assert all(heard[i, hops] == dict(enumerate(rows)) for i in range(len(graph)))


def test_on_a_path_the_ends_hear_of_each_other_in_the_last_round_and_not_before() -> None:
    heard = spread(nx.path_graph(6), random_rows(6), 5)
    assert 5 not in heard[0, 4]
    assert 0 not in heard[5, 4]
    assert 5 in heard[0, 5]
    assert 0 in heard[5, 5]


@every_graph
def test_nobody_says_anything_twice(name: str) -> None:
    graph = GRAPHS[name]
    news = News()
    news.begin(0, (1.0,))
    assert news.unsent() == {0: (1.0,)}
    assert news.unsent() == {}
    news.read([Letter(np.zeros(1), 1.0, {0: (1.0,), len(graph): (2.0,)})])
    assert news.unsent() == {len(graph): (2.0,)}
    assert news.unsent() == {}


def test_a_new_issue_forgets_the_last() -> None:
    news = News()
    news.begin(0, (1.0,))
    news.read([Letter(np.zeros(1), 1.0, {1: (2.0,)})])
    news.begin(0, (5.0,))
    assert news.rows == {0: (5.0,)}
    assert news.unsent() == {0: (5.0,)}
    assert news.total(0) == 5.0
