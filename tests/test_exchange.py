"""The exchange of messages between processes, without MPI: headers, channels, and a transport of threads."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
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
from dcgs.runtime.base import run_hosted
from dcgs.runtime.encoding import Buffer, EncodedArray
from dcgs.runtime.exchange import NeighborExchange
from dcgs.runtime.group import TransportGroup
from dcgs.runtime.messages import Packet, Packets, blaming_senders, packets
from dcgs.runtime.transport import Transfers, hosted_by
from dcgs.runtime.wire import (
    ALL,
    BundleKind,
    Frame,
    Header,
    MessageError,
    Received,
    RecvChannel,
    bundle_size,
    write_bundle,
)
from problems import neighbors_of
from thread_transport import Network, Threads


def encoded(*arrays: NDArray[Any]) -> list[EncodedArray]:
    return [EncodedArray(array) for array in arrays]


def bundle(
    frames: Sequence[Frame], kind: BundleKind = BundleKind.MESSAGE, rank: int = 2, round: int = 5
) -> Buffer:
    """Return messages as they are sent."""
    buffer: Buffer = np.full(bundle_size(frames), 0xAB, dtype=np.uint8)
    write_bundle(frames, Header(kind, rank, round), buffer)
    return buffer


def received(buffer: Buffer, name: str = "agent 2") -> list[Received]:
    """Return what a channel reads of messages that were sent, all checks included."""
    channel = RecvChannel(2, 1, name)
    offered = channel.first().buffer
    offered[:] = 0
    offered[: len(buffer)] = buffer
    channel.read_header()
    channel.rest(BundleKind.MESSAGE, 5)  # what a header promises beyond the capacity never comes
    return channel.take()


@settings(max_examples=50, deadline=None, derandomize=True)
@given(
    kind=st.sampled_from(list(BundleKind)),
    rank=st.integers(0, 2**31 - 1),
    round=st.integers(0, 2**32 - 1),
    count=st.integers(0, 2**32 - 1),
    length=st.integers(0, 2**64 - 1),
)
def test_a_header_is_read_as_it_was_written(
    kind: BundleKind, rank: int, round: int, count: int, length: int
) -> None:
    buffer: Buffer = np.zeros(wire.HEADER, dtype=np.uint8)
    header = Header(kind, rank, round, count, length)
    header.write(buffer)
    assert wire.read_header(buffer, "agent 1") == header


TWO = [Frame(3, ALL, encoded(np.arange(4.0))), Frame(1, 7, encoded(np.eye(2), np.zeros(50)), is_tuple=True)]


def test_messages_are_read_as_they_were_written_with_sender_and_receiver() -> None:
    first, second = received(bundle(TWO))
    assert (first.sender, first.receiver, second.sender, second.receiver) == (3, ALL, 1, 7)
    np.testing.assert_array_equal(first.message, np.arange(4.0))
    assert isinstance(first.message, np.ndarray)
    assert isinstance(second.message, tuple)
    assert [part.shape for part in second.message] == [(2, 2), (50,)]
    assert not any(part.flags.writeable for part in (first.message, *second.message))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(place=st.integers(0, wire.HEADER - 1), change=st.integers(1, 255))
def test_a_header_with_a_changed_byte_is_never_accepted(place: int, change: int) -> None:
    buffer = bundle(TWO)
    buffer[place] ^= change
    with pytest.raises(MessageError, match="agent 2"):
        received(buffer)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(place=st.integers(wire.HEADER, bundle_size(TWO) - 1), change=st.integers(1, 255))
def test_a_message_with_a_changed_byte_is_read_or_refused_with_the_senders_name(
    place: int, change: int
) -> None:
    """The bytes of a number may be any that is finite; nothing else can be raised."""
    buffer = bundle(TWO)
    buffer[place] ^= change
    seen = "2 messages"
    try:
        seen = f"{len(received(buffer))} messages"
    except MessageError as error:
        seen = str(error)
    refused = "messages must be encoded as by dcgs 5; what agent 2 sent is not: "
    assert seen.startswith(("2 messages", refused, "a message must be finite; agent "))


@pytest.mark.parametrize("bit", range(64))
def test_a_flipped_bit_of_the_length_is_noticed_before_bytes_are_awaited(bit: int) -> None:
    channel = RecvChannel(2, 1, "agent 2")
    wire.write_bundle([], Header(BundleKind.MESSAGE, 2, 5), channel.first().buffer[: wire.HEADER])
    channel._buffer[24 + bit // 8] ^= 1 << bit % 8
    with pytest.raises(MessageError, match=r"must match its checksum; that of agent 2 does not"):
        channel.read_header()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [3, 40])
def test_a_number_that_is_not_finite_is_refused_by_who_receives_it(value: float, size: int) -> None:
    """Of few numbers all are sent, of many those that are not zero. What the sender checked was finite."""
    array = np.zeros(size)
    array[1] = 1.0
    parts = encoded(array)
    array[1] = value
    with pytest.raises(MessageError, match=rf"^a message must be finite; agent 3 sent {value} at \(1,\)\.$"):
        received(bundle([Frame(3, ALL, parts)]))


@pytest.mark.parametrize("as_tuple", [False, True])
def test_a_failure_after_a_long_message_with_a_nan_is_blamed_on_its_sender(as_tuple: bool) -> None:
    """Long messages are not checked on arrival."""
    right, wrong = np.zeros(3), np.array([0.0, 1.0, np.nan])
    inboxes = {0: {1: right, 2: (right, wrong) if as_tuple else wrong}}
    sentence = r"^a message must be finite; agent 2 sent nan at \(2,\)\.$"
    with pytest.raises(FloatingPointError, match=sentence), blaming_senders(inboxes):
        raise ZeroDivisionError
    with pytest.raises(ZeroDivisionError), blaming_senders({0: {1: right}}):
        raise ZeroDivisionError


def test_a_collective_operation_may_gather_numbers_that_are_not_finite() -> None:
    buffer = bundle([Frame(3, ALL, encoded(np.array([np.inf])))], BundleKind.COLLECTIVE)
    header = wire.read_header(buffer, "agent 2")
    (read,) = wire.read_messages(buffer[wire.HEADER :], header, "agent 2")
    assert read.message == np.inf


@settings(max_examples=60, deadline=None, derandomize=True)
@given(length=st.integers(wire.HEADER, bundle_size(TWO) - 1))
def test_a_message_that_was_cut_is_refused_with_the_senders_name(length: int) -> None:
    buffer = bundle(TWO)
    header = wire.read_header(buffer, "agent 2")
    with pytest.raises(MessageError, match="agent 2 sent"):
        wire.read_messages(buffer[wire.HEADER : length], header, "agent 2")


@pytest.mark.parametrize("length", [0, 1, wire.HEADER - 1])
def test_a_header_that_was_cut_is_refused_with_the_senders_name(length: int) -> None:
    with pytest.raises(MessageError, match=f"at least 32 bytes; agent 2 sent one of {length} bytes"):
        wire.read_header(bundle(TWO)[:length], "agent 2")


def test_several_arrays_that_are_no_tuple_are_refused() -> None:
    with pytest.raises(MessageError, match=r"a message of 2 arrays is not a tuple\. Install the same"):
        received(bundle([Frame(3, ALL, encoded(np.eye(2), np.eye(2)))]))


def test_a_message_of_another_kind_names_its_sender() -> None:
    sentence = "a message of kind MESSAGE was expected; agent 2 sent one of kind COLLECTIVE."
    with pytest.raises(MessageError, match=f"^{re.escape(sentence)}$"):
        received(bundle(TWO, BundleKind.COLLECTIVE))


def test_a_message_of_another_version_says_what_to_install() -> None:
    buffer = bundle(TWO)
    buffer[4] = 9
    with pytest.raises(MessageError, match=r"of version 5; agent 2 sent one of version 9\. Install the same"):
        received(buffer)


def test_a_message_that_cannot_be_in_memory_names_its_sender() -> None:
    channel = RecvChannel(2, 1, "agent 2")
    Header(BundleKind.MESSAGE, 2, 5, 1, 1 << 62).write(channel.first().buffer)
    channel.read_header()
    with pytest.raises(MessageError, match=rf"must fit into memory; agent 2 sent one of {1 << 62} bytes\.$"):
        channel.rest(BundleKind.MESSAGE, 5)


def test_more_dimensions_than_a_message_has_are_refused() -> None:
    with pytest.raises(ValueError, match=r"at most 8 dimensions; agent 3 sent 9\."):
        Packet(3, np.zeros((1,) * 9))


def all_to(neighbors: Sequence[int], sender: int, message: Any) -> Packets:
    return packets(sender, message, neighbors)


def answered(step: Any, receives: Transfers, frames: Mapping[int, list[Frame]], round: int) -> Any:
    """Fill what is to be received, resume the exchange, and return its result."""
    for receive in receives:
        sent = bundle(frames[receive.rank], rank=receive.rank, round=round)
        receive.buffer[: len(sent)] = sent
    with pytest.raises(StopIteration) as end:
        next(step)
    return end.value.value


def test_an_exchange_sends_a_message_once_to_each_process_and_copies_it_within_one() -> None:
    """Agents 0 and 1 are in process 0, agents 2 and 3 in process 1; all are neighbors."""
    exchange = NeighborExchange(neighbors_of(nx.complete_graph(4)), rank=0, size=2)
    step = exchange.round({0: all_to([1, 2, 3], 0, np.zeros(3)), 1: all_to([0, 2, 3], 1, np.ones(3))})
    sends, receives = next(step)
    assert [(send.rank, send.tag) for send in sends] == [(1, 1)]
    assert [(receive.rank, receive.tag) for receive in receives] == [(1, 1)]
    header = wire.read_header(sends[0].buffer, "agent 0")
    sent = wire.read_messages(sends[0].buffer[wire.HEADER :], header, "agent 0")
    assert [(each.sender, each.receiver) for each in sent] == [(0, ALL), (1, ALL)]
    theirs = [Frame(j, ALL, encoded(np.full(3, float(j)))) for j in (2, 3)]
    inboxes = answered(step, receives, {1: theirs}, round=1)
    received = {i: {j: x.tolist() for j, x in inbox.items()} for i, inbox in inboxes.items()}
    assert received == {i: {j: [float(j)] * 3 for j in range(4) if j != i} for i in (0, 1)}


def test_messages_for_some_neighbors_reach_these_alone() -> None:
    """Agent 0 has neighbors 1, 2 and 3, the last two in another process, and sends to 1 and 3."""
    exchange = NeighborExchange(neighbors_of(nx.star_graph(3)), rank=0, size=2)
    mine: Any = {3: (np.zeros(2), np.ones(1)), 1: np.ones(2)}
    step = exchange.round({0: all_to([1, 2, 3], 0, mine), 1: all_to([0], 1, {})})
    sends, receives = next(step)
    header = wire.read_header(sends[0].buffer, "agent 0")
    (sent,) = wire.read_messages(sends[0].buffer[wire.HEADER :], header, "agent 0")
    assert (sent.sender, sent.receiver, isinstance(sent.message, tuple)) == (0, 3, True)
    inboxes = answered(step, receives, {1: [Frame(2, 0, encoded(np.zeros(1)))]}, round=1)
    assert {i: list(inbox) for i, inbox in inboxes.items()} == {0: [2], 1: [0]}


@pytest.mark.parametrize(
    ("frames", "sentence"),
    [
        ([(2, 1)], "messages must be between neighbors; rank 1 sent one from agent 2 to agent 1."),
        ([(0, ALL)], "messages must be between neighbors; rank 1 sent one from agent 0 to agent -1."),
        ([(9, 0)], "messages must be between neighbors; rank 1 sent one from agent 9 to agent 0."),
        (
            [(2, 0), (2, ALL)],
            "an agent must send a neighbor one message in a round; rank 1 sent two from agent 2 to agents "
            "[0].",
        ),
    ],
)
def test_a_message_that_is_not_due_names_the_process(frames: list[tuple[int, int]], sentence: str) -> None:
    exchange = NeighborExchange(neighbors_of(nx.star_graph(3)), rank=0, size=2)
    step = exchange.round({0: {}, 1: {}})
    _, (receive,) = next(step)
    sent = bundle([Frame(i, j, encoded(np.zeros(1))) for i, j in frames], rank=1, round=1)
    receive.buffer[: len(sent)] = sent
    with pytest.raises(MessageError, match=f"^{re.escape(sentence)}$"):
        next(step)


def test_a_message_to_no_neighbor_names_its_sender() -> None:
    sentence = "messages must be for neighbors of the sender; agent 4 has the neighbors [1, 2] and sent "
    with pytest.raises(ValueError, match=re.escape(sentence + "messages to [0, 4].")):
        packets(4, {0: np.zeros(1), 1: np.zeros(1), 4: np.zeros(1)}, [1, 2])


def test_a_message_beyond_the_capacity_has_a_second_part_once() -> None:
    exchange = NeighborExchange([(1,), (0,)], rank=0, size=2)
    parts: list[list[int]] = []
    large = np.ones(10_000)
    for round in (1, 2):
        step = exchange.round({0: all_to([1], 0, large)})
        sends, receives = next(step)
        theirs = bundle([Frame(1, ALL, encoded(large))], rank=1, round=round)
        receives[0].buffer[:] = theirs[: len(receives[0].buffer)]
        later = next(step, ([], []))[0]
        parts.append([len(send.buffer) for send in (*sends, *later)])
    whole = wire.HEADER + wire.FRAME + EncodedArray(large).nbytes
    assert parts == [[wire.HEADER + 65_536, whole - wire.HEADER - 65_536], [whole]]


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_runs_over_any_transport_equal_those_in_one_process_to_the_bit(size: int) -> None:
    """Messages grow and shrink, beyond the capacity, and what was received stays as it was."""
    graph = nx.random_regular_graph(4, 9, seed=3)
    lengths = [3, 0, 9000, 20_000, 2, 30_000, 1]
    shares = [1.0, 0.3, 0.01]  # of entries that are not zero: every form of an array is sent

    def averaging(kept: dict[int, list[Point]]) -> Callable[[int], Program[Point]]:
        def program(i: int) -> Program[Point]:
            rng = np.random.default_rng(i)
            for length in lengths:
                mine = rng.standard_normal((length, 2)) * (rng.random((length, 2)) < shares[i % 3])
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
