"""The exchange of messages between processes, without MPI: headers, channels, and a transport of threads."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.runtime import Job, Lockstep, Traffic, wire
from dcgs.runtime.exchange import NeighborExchange
from dcgs.runtime.group import TransportGroup
from dcgs.runtime.programs import run_hosted
from dcgs.runtime.transport import hosted_by
from dcgs.runtime.wire import Buffer, Header, Kind, MessageError
from problems import neighbors_of
from thread_transport import Network, Threads


def empty_header() -> Buffer:
    return np.zeros(wire.SIZE, dtype=np.uint8)


@settings(deadline=None, derandomize=True)
@given(
    shape=st.lists(st.integers(0, 6), max_size=6).map(tuple),
    dtype=st.sampled_from(["f8", "i8", "u1"]),
    kind=st.sampled_from(list(Kind)),
    round=st.integers(0, 2**64 - 1),
    sender=st.integers(0, 2**31 - 1),
)
def test_a_header_is_read_as_it_was_written(
    shape: tuple[int, ...], dtype: str, kind: Kind, round: int, sender: int
) -> None:
    header, array = empty_header(), np.zeros(shape, dtype)
    Header.of(array, kind, round, sender).write(header)
    back = wire.read(header, "agent 1")
    assert back == Header(kind, array.dtype, shape, round, sender)
    assert back.length == array.nbytes


@settings(deadline=None, derandomize=True)
@given(place=st.integers(0, wire.SIZE - 1), change=st.integers(1, 255))
def test_a_header_with_a_changed_byte_is_never_accepted(place: int, change: int) -> None:
    """Except for bytes without a meaning: padding, and sides beyond the dimensions."""
    header = empty_header()
    Header.of(np.zeros((3, 4)), Kind.MESSAGE, 5, 2).write(header)
    header[place] ^= change
    meaningless = place in range(9, 12) or place in range(32 + 16, 32 + 64)
    with nullcontext() if meaningless else pytest.raises(MessageError, match="agent 2"):
        wire.check(wire.read(header, "agent 2"), Kind.MESSAGE, 5, 2, "agent 2")


@pytest.mark.parametrize(
    ("kind", "array", "sentence"),
    [
        (
            Kind.COLLECTIVE,
            np.zeros(7),
            "a message of kind MESSAGE was expected; agent 2 sent one of kind COLLECTIVE.",
        ),
        (
            Kind.MESSAGE,
            np.zeros(7, dtype=np.int64),
            "a message must be an array of float64; agent 2 sent one of int64.",
        ),
    ],
)
def test_a_message_of_another_kind_or_type_names_its_sender(
    kind: Kind, array: NDArray[Any], sentence: str
) -> None:
    with pytest.raises(MessageError, match=f"^{re.escape(sentence)}$"):
        wire.check(Header.of(array, kind, 5, 2), Kind.MESSAGE, 5, 2, "agent 2")


def test_a_message_of_another_version_says_what_to_install() -> None:
    header = empty_header()
    Header.of(np.zeros(7), Kind.MESSAGE, 5, 2).write(header)
    header[4] = 9
    with pytest.raises(MessageError, match=r"of version 3; agent 2 sent one of version 9\. Install the same"):
        wire.read(header, "agent 2")


def test_more_dimensions_than_a_header_holds_are_refused() -> None:
    with pytest.raises(MessageError, match=r"at most 8 dimensions; agent 3 sent 9\."):
        Header.of(np.zeros((1,) * 9), Kind.MESSAGE, 1, 3).write(empty_header())


def test_an_exchange_sends_a_message_once_to_each_process_and_copies_it_within_one() -> None:
    """Agents 0 and 1 are in process 0, agents 2 and 3 in process 1; all are neighbors."""
    exchange = NeighborExchange(neighbors_of(nx.complete_graph(4)), rank=0, size=2)
    step = exchange.round({0: np.zeros(3), 1: np.ones(3)})
    sends, receives = next(step)
    assert [(send.rank, send.tag) for send in sends] == [(1, 1), (1, 2)]
    assert [(receive.rank, receive.tag) for receive in receives] == [(1, 3), (1, 4)]
    for receive, value in zip(receives, (2.0, 3.0), strict=True):
        Header.of(np.zeros(3), Kind.MESSAGE, 1, int(value)).write(receive.buffer)
        receive.buffer[wire.SIZE :][:24].view(np.float64)[:] = value
    with pytest.raises(StopIteration) as end:
        next(step)
    received = {i: {j: x.tolist() for j, x in inbox.items()} for i, inbox in end.value.value.items()}
    assert received == {i: {j: [float(j)] * 3 for j in range(4) if j != i} for i in (0, 1)}


def test_a_message_beyond_the_capacity_has_a_second_part_once() -> None:
    exchange = NeighborExchange([(1,), (0,)], rank=0, size=2)
    parts: list[list[int]] = []
    for round in (1, 2):
        step = exchange.round({0: np.zeros(10_000)})
        sends, receives = next(step)
        Header.of(np.zeros(10_000), Kind.MESSAGE, round, 1).write(receives[0].buffer)
        later = next(step, ([], []))[0]
        parts.append([len(send.buffer) for send in (*sends, *later)])
    assert parts == [[wire.SIZE + 65_536, 80_000 - 65_536], [wire.SIZE + 80_000]]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_runs_over_any_transport_equal_those_in_one_process_to_the_bit(size: int) -> None:
    """Messages grow and shrink, beyond the capacity, and what was received stays as it was."""
    graph = nx.random_regular_graph(4, 9, seed=3)
    lengths = [3, 0, 9000, 20_000, 2, 30_000, 1]

    def averaging(kept: dict[int, list[Point]]) -> Callable[[int], Program[Point]]:
        def program(i: int) -> Program[Point]:
            rng = np.random.default_rng(i)
            for length in lengths:
                mine = rng.standard_normal((length, 2))
                inbox = yield mine[::-1]
                mine[:] = -1.0  # the neighbors must not see this
                kept[i] += [sum(inbox.values(), start=np.zeros_like(mine)), *inbox.values()]
            return np.zeros(1)

        return program

    def run(transport: Threads) -> tuple[dict[int, list[Point]], Traffic]:
        kept: dict[int, list[Point]] = {i: [] for i in hosted_by(transport.rank, size, 9)}
        traffic = Traffic(9)
        run_hosted(Job(averaging(kept), neighbors_of(graph), traffic, lambda: True), transport)
        return kept, traffic

    alone: dict[int, list[Point]] = {i: [] for i in range(9)}
    traffic = Traffic(9)
    Lockstep().run(Job(averaging(alone), neighbors_of(graph), traffic, lambda: True))
    for kept, counted in Network(size).run(run):
        for i, received in kept.items():
            assert [x.tobytes() for x in received] == [x.tobytes() for x in alone[i]]
            assert not received[1].flags.writeable
            assert (counted.bytes[i], counted.messages[i]) == (traffic.bytes[i], traffic.messages[i])


def test_an_agent_that_returns_early_in_another_process_is_named() -> None:
    def program(i: int) -> Program[Point]:
        for _ in range(2 + i):
            yield np.zeros(1)
        return np.zeros(1)

    def run(transport: Threads) -> str:
        with pytest.raises(RuntimeError) as caught:
            run_hosted(Job(program, [(1,), (0,)], Traffic(2), lambda: True), transport)
        return str(caught.value)

    assert Network(2).run(run) == ["agents [0] returned while agents [1] still send."] * 2


def test_collective_operations_return_the_same_in_all_processes() -> None:
    def collect(transport: Threads) -> list[Any]:
        group, rank = TransportGroup(transport), transport.rank
        large = np.arange(20_000) + rank  # beyond the capacity
        arrays = group.allgather([large, np.full((rank, 2), 0.5), np.frombuffer(b"text", np.uint8)])
        shapes = [(array.shape, str(array.dtype), float(array.sum())) for array in arrays]
        flags = group.any(rank == 1), group.any(False)
        return [shapes, flags, group.broadcast(np.array([7.0]) if group.is_root else None).tolist()]

    first, *others = Network(3).run(collect)
    assert all(other == first for other in others)
    assert [shape for shape, _, _ in first[0][:3]] == [(20_000,), (0, 2), (4,)]
    assert first[1:] == [(True, False), [7.0]]
