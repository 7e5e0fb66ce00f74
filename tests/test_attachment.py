"""What is attached to messages: it travels with those of a method, which does not see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import networkx as nx
import numpy as np
import pytest

import dcgs
from dcgs import Agent, ConvexSet, LeastSquares, Objective, Status
from dcgs.methods.attachment import Parts, attached, detached
from dcgs.methods.reduction import Value
from dcgs.protocol import Inbox, Message, Outbox, Program
from dcgs.runtime.encoding import EncodedArray
from problems import Array

X = np.array([1.0, 0.0, 3.0])
PAIR = (np.array([[1.0, 2.0]]), np.array([3.0]))
NUMBERS: Value = (np.array([0.5, -2.0]),)
VECTORS: Value = (np.array([0.5]), np.array([1.0, 2.0, 3.0]), np.array([[7.0]]))
MESSAGES: dict[str, Message] = {"array": X, "tuple": PAIR, "empty tuple": (), "tuple of one": (X,)}


def arrays_of(message: Message | Value) -> list[Array]:
    return [message] if isinstance(message, np.ndarray) else list(message)


def assert_same(one: Message | Value, other: Message | Value) -> None:
    assert isinstance(one, tuple) == isinstance(other, tuple)
    assert [a.tolist() for a in arrays_of(one)] == [b.tolist() for b in arrays_of(other)]
    assert {a.dtype for a in arrays_of(one)} <= {np.dtype(np.float64)}


def assert_same_parts(one: Parts, other: Parts) -> None:
    assert [channel for channel, _ in one] == [channel for channel, _ in other]
    for (_, value), (_, expected) in zip(one, other, strict=True):
        assert_same(value, expected)


def sent(outbox: Outbox, neighbors: list[int]) -> dict[int, Message]:
    """Return the message to each neighbor."""
    return dict(outbox) if isinstance(outbox, Mapping) else dict.fromkeys(neighbors, outbox)


@pytest.mark.parametrize("value", [NUMBERS, VECTORS], ids=["numbers", "vectors"])
@pytest.mark.parametrize("kind", MESSAGES)
def test_the_message_of_the_method_comes_back_as_it_was_sent(kind: str, value: Value) -> None:
    message = MESSAGES[kind]
    own, parts = detached(sent(attached(message, {1: [(1, value)]}, [0, 1]), [0, 1]))
    assert_same(own[0], message)
    assert_same(own[1], message)
    assert list(parts) == [1]
    assert_same_parts(parts[1], [(1, value)])


@pytest.mark.parametrize("value", [NUMBERS, VECTORS], ids=["numbers", "vectors"])
def test_a_neighbor_to_which_the_method_sends_nothing_receives_nothing_from_it(value: Value) -> None:
    """Its inbox has no message of the method, but what is attached arrives."""
    own, parts = detached(sent(attached({0: X}, {1: [(0, value)]}, [0, 1, 2]), []))
    assert list(own) == [0]
    assert_same(own[0], X)
    assert_same_parts(parts[1], [(0, value)])


def test_different_messages_to_neighbors_get_different_attachments() -> None:
    given = {0: [(0, VECTORS)], 1: [(1, NUMBERS)]}
    own, parts = detached(sent(attached({0: X, 1: PAIR}, given, [0, 1]), []))
    assert_same(own[0], X)
    assert_same(own[1], PAIR)
    assert_same_parts(parts[0], given[0])
    assert_same_parts(parts[1], given[1])


def test_a_message_without_an_attachment_is_the_very_same_object() -> None:
    outbox: Outbox = {0: X, 1: PAIR}
    assert attached(outbox, {}, [0, 1]) is outbox
    assert attached(X, {}, [0, 1]) is X
    own, parts = detached({0: X, 1: PAIR})
    assert (own[0] is X, own[1] is PAIR, parts) == (True, True, {})


def test_equal_messages_are_one_object_which_is_encoded_once() -> None:
    given = {0: [(0, VECTORS)], 1: [(0, VECTORS)], 2: [(0, NUMBERS)]}
    messages = sent(attached(X, given, [0, 1, 2, 3]), [])
    assert messages[0] is messages[1]
    assert messages[0] is not messages[2]
    assert messages[3] is X


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("message", [X, (X, PAIR[0])], ids=["array", "tuple"])
def test_a_vector_that_the_message_has_already_is_not_sent_twice(message: Message, place: int) -> None:
    others = [np.arange(3.0), np.ones(2)]
    value: Value = (np.array([1.0]), *others[:place], X, *others[place:])
    equal: Value = (np.array([1.0]), *others[:place], X.copy(), *others[place:])
    once, twice = (
        arrays_of(sent(attached(message, {1: [(0, each)]}, [1]), [])[1]) for each in (value, equal)
    )
    assert sum(array.nbytes for array in twice) - sum(array.nbytes for array in once) == X.nbytes
    assert len(twice) - len(once) == 1
    own, parts = detached({5: tuple(once)})
    assert_same(own[5], message)
    assert_same_parts(parts[5], [(0, value)])


@pytest.mark.parametrize("shared", [0, 1], ids=["in the first part", "in the second part"])
@pytest.mark.parametrize("kind", ["array", "tuple of one", "tuple"])
def test_two_parts_travel_on_one_message_each_with_its_channel(kind: str, shared: int) -> None:
    """One of them has a vector that the message has already; it is sent once, and is in that part again."""
    messages: dict[str, Message] = {"array": X, "tuple of one": (X,), "tuple": (X, PAIR[0])}
    message = messages[kind]
    value: Value = (np.array([0.5]), np.arange(3.0), X)
    equal: Value = (np.array([0.5]), np.arange(3.0), X.copy())
    first, second = ((1, VECTORS), (0, NUMBERS))[shared], (2, value)
    given: Parts = [second, first] if shared == 0 else [first, second]
    doubled: Parts = [(channel, equal if part is value else part) for channel, part in given]
    once, twice = (arrays_of(sent(attached(message, {1: each}, [1]), [])[1]) for each in (given, doubled))
    assert sum(array.nbytes for array in twice) - sum(array.nbytes for array in once) == X.nbytes
    # Each part ends with its own head of bytes.
    assert [array.dtype == np.uint8 for array in once].count(True) == 2
    own, parts = detached({5: tuple(once)})
    assert_same(own[5], message)
    assert_same_parts(parts[5], given)


def test_two_parts_travel_where_the_method_sends_nothing() -> None:
    given: Parts = [(2, NUMBERS), (0, VECTORS)]
    own, parts = detached(sent(attached({}, {1: given}, [1]), []))
    assert own == {}
    assert_same_parts(parts[1], given)


def test_messages_with_different_second_parts_are_different() -> None:
    given: dict[int, Parts] = {0: [(0, VECTORS), (1, NUMBERS)], 1: [(0, VECTORS)]}
    given[2] = [(0, VECTORS), (1, NUMBERS)]
    messages = sent(attached(X, given, [0, 1, 2]), [])
    assert messages[0] is messages[2]
    assert messages[0] is not messages[1]


def test_an_attachment_of_numbers_costs_eight_bytes_each_and_a_head() -> None:
    (array,) = arrays_of(X)
    *own, head = arrays_of(sent(attached(X, {1: [(0, NUMBERS)]}, [1]), [])[1])
    assert own == [array]
    assert head.nbytes == 8 + 2 * 8
    # On the wire an array has a header of its own, which is some tens of bytes.
    assert EncodedArray(head).nbytes <= head.nbytes + 40


@pytest.mark.parametrize(
    "wrong",
    [
        (X, np.frombuffer(b"\1\1\xff", dtype=np.uint8)),  # cut
        (X, np.frombuffer(b"\xff\1\xff" + 5 * b"\0", dtype=np.uint8)),  # a vector that is not there
        (X, X, np.frombuffer(b"\xff\0\xff" + 5 * b"\0", dtype=np.uint8)),  # one too many
        (np.frombuffer(b"\xff\0\xff" + 5 * b"\0", dtype=np.uint8),),  # no message of the method
        (np.frombuffer(b"\xfe\1\0" + 5 * b"\0", dtype=np.uint8),),  # the first array of none
        (np.frombuffer(b"\0\1\0" + 5 * b"\0", dtype=np.uint8),),  # the first array of an empty tuple
        (X, np.frombuffer(b"\xff\0\xff" + 9 * b"\0", dtype=np.uint8)),  # half a number
        (X, np.frombuffer(b"\xff\0\xff\0\1" + 3 * b"\0", dtype=np.uint8)),  # no second part
        (np.frombuffer(b"\xfe\0\xff\0\1" + 3 * b"\0", dtype=np.uint8),),  # nor a message
        (X, np.frombuffer(b"", dtype=np.uint8)),
    ],
)
def test_a_wrong_attachment_names_its_sender(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"that its last array describes; agent 7 sent one of shapes \["):
        detached({7: wrong})


# Methods whose messages have attachments.

OBJECTIVES: list[Objective] = [LeastSquares(np.eye(2), b) for b in ([1.0, 0.0], [0.0, 1.0], [1.0, 1.0])]
GRAPH = nx.path_graph(3)
BALL = dcgs.L1Ball(2)


class Gossip(dcgs.Method):
    """Frank-Wolfe steps along own gradients, averaged; it notes everything that it receives."""

    def __init__(self, message: Any) -> None:
        self.message = message
        self.seen: list[Inbox] = []

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        return None

    def program(self, agent: Agent) -> Program[Any]:
        for k in agent.iterations_left:
            self.seen.append((yield self.message))
            agent.observe(k, agent.x0)
        return agent.x0


@pytest.mark.parametrize("kind", MESSAGES)
def test_a_method_never_sees_what_is_attached(kind: str) -> None:
    method = Gossip(MESSAGES[kind])
    dcgs.minimize(OBJECTIVES, BALL, GRAPH, method, gap=1e-2, rounds=30, every=None)
    assert len(method.seen) == 90
    for inbox in method.seen:
        assert len(inbox) in (1, 2)
        for received in inbox.values():
            assert_same(received, MESSAGES[kind])


def test_a_method_that_sends_to_some_neighbors_receives_from_some() -> None:
    method = Gossip({})
    result = dcgs.minimize(OBJECTIVES, BALL, GRAPH, method, gap=1e-2, rounds=30, every=None)
    assert all(not inbox for inbox in method.seen)
    assert len(result.certificates) > 0


@pytest.mark.parametrize("message", [np.zeros(3, np.uint8), (np.zeros(2), np.zeros(3, np.uint8))])
def test_a_method_that_sends_bytes_is_refused_where_agents_certify(message: Any) -> None:
    with pytest.raises(TypeError, match=r"must be arrays of float64 where agents certify a gap; the last"):
        dcgs.minimize(OBJECTIVES, BALL, GRAPH, Gossip((*arrays_of(message),)), gap=1e-2, rounds=9)


def test_a_method_that_sends_bytes_runs_without_a_gap() -> None:
    method = Gossip((np.zeros(2), np.zeros(3, np.uint8)))
    result = dcgs.minimize(OBJECTIVES, BALL, GRAPH, method, rounds=9)
    assert result.status is Status.ROUNDS
