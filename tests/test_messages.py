"""Messages of FastDCGS: unpacking inverts packing, and flooded scalars travel one edge a round."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest
from dcgs.methods.messages import ALL, AttachedVector, FloodedScalars, Message, Row, unpacked
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from dcgs import Lockstep
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import Job, Traffic
from problems import GRAPHS, neighbors_of

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Message, int]:
    """Return a message, and the width of its rows."""
    shape, width = draw(array_shapes(max_dims=2, max_side=4)), draw(st.integers(1, 4))
    points: Any = arrays(np.float64, shape, elements=FINITE)
    row: st.SearchStrategy[Row] = st.tuples(*[FINITE] * width)
    rows = draw(st.dictionaries(st.integers(0, 10**6), row, max_size=5))
    attached = draw(st.none() | st.builds(AttachedVector, points, st.integers(ALL, 10**6)))
    return Message(draw(points), draw(FINITE), rows, attached), width


def contents(message: Message) -> list[object]:
    """Return everything in a message, for comparison to the bit."""
    attached = [] if message.attached is None else [message.attached]
    points = [(p.shape, p.tobytes()) for p in (message.point, *(each.vector for each in attached))]
    return [points, message.edge_step, list(message.rows.items()), [each.to for each in attached]]


@given(written=messages())
@settings(max_examples=200, deadline=None, derandomize=True)
def test_unpacking_inverts_packing(written: tuple[Message, int]) -> None:
    message, width = written
    packed = message.packed()
    assert packed.ndim == 1
    assert packed.dtype == np.float64
    assert contents(unpacked(packed, message.point.shape, width)) == contents(message)


def test_a_packed_message_has_no_unused_numbers() -> None:
    # Six of the point; the edge step, the receiver, the number of rows.
    assert Message(np.zeros((2, 3)), 0.5, {}).packed().size == 6 + 3
    rows = {4: (1.0, 2.0), 0: (3.0, 4.0)}
    attached = AttachedVector(np.ones((2, 3)), 1)
    assert Message(np.zeros((2, 3)), 0.5, rows, attached).packed().size == 6 + 3 + 2 * 3 + 6


def flood(graph: nx.Graph, rows: list[Row], rounds: int) -> dict[tuple[int, int], dict[int, Row]]:
    """Return the rows that agent i has after round r, under (i, r)."""
    received: dict[tuple[int, int], dict[int, Row]] = {}
    totals: dict[int, list[float]] = {}

    def program(i: int) -> Program[Point]:
        scalars = FloodedScalars()
        scalars.start(i, rows[i])
        received[i, 0] = dict(scalars.rows)
        for r in range(1, rounds + 1):
            inbox = yield Message(np.zeros(1), 1.0, scalars.take_unsent()).packed()
            scalars.receive(unpacked(packed, (1,), len(rows[i])) for packed in inbox.values())
            received[i, r] = dict(scalars.rows)
        totals[i] = [scalars.total(column) for column in range(len(rows[i]))]
        return np.zeros(1)

    Lockstep().run(Job(program, neighbors_of(graph), Traffic(len(graph)), lambda: True))
    # The same numbers added in the same order: the same to the bit.
    assert all(total == totals[0] for total in totals.values())
    return received


@pytest.mark.parametrize("name", GRAPHS)
def test_scalars_travel_one_edge_a_round_and_reach_all_within_the_diameter(name: str) -> None:
    graph = GRAPHS[name]
    rng = np.random.default_rng(91)
    # Numbers whose sum depends on the order of adding.
    table = rng.standard_normal((len(graph), 3)) * 10.0 ** rng.integers(-9, 9, 3)
    rows: list[Row] = [tuple(row) for row in table.tolist()]
    distance, diameter = dict(nx.all_pairs_shortest_path_length(graph)), nx.diameter(graph)
    received = flood(graph, rows, diameter)
    for (i, r), found in received.items():
        assert found == {j: rows[j] for j in distance[i] if distance[i][j] <= r}
    assert all(received[i, diameter] == dict(enumerate(rows)) for i in range(len(graph)))


def test_no_row_is_sent_twice() -> None:
    scalars = FloodedScalars()
    scalars.start(0, (1.0,))
    assert scalars.take_unsent() == {0: (1.0,)}
    assert scalars.take_unsent() == {}
    scalars.receive([Message(np.zeros(1), 1.0, {0: (1.0,), 7: (2.0,)})])
    assert scalars.take_unsent() == {7: (2.0,)}
    assert scalars.take_unsent() == {}


def test_a_new_epoch_discards_the_rows_of_the_last() -> None:
    scalars = FloodedScalars()
    scalars.start(0, (1.0,))
    scalars.receive([Message(np.zeros(1), 1.0, {1: (2.0,)})])
    scalars.start(0, (5.0,))
    assert scalars.rows == {0: (5.0,)}
    assert scalars.take_unsent() == {0: (5.0,)}
    assert scalars.total(0) == 5.0
