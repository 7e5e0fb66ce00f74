"""Sums over the whole network, along its spanning tree or by flooding.

Every agent adds its value to the partial sums of its children and sends the result to its parent. The root
computes an answer from the total, which is sent down the tree. So all agents get the same answer, to the last
bit, after as many rounds as twice the height of the tree; more if the value is cut into pieces. An agent
sends one value up and one answer to each child, however many agents there are.

In these rounds only one level of the tree sends. If values are cut into pieces, one piece follows another up
and down the tree, so that all levels send at the same time: more rounds, of smaller messages, and equal bits.

Short values may be flooded instead. Every agent forwards what is new to it, so all know the values of all
after as many rounds as the diameter of the graph. What agents compute from them, in the order of agents, has
equal bits. An agent sends the values of all agents to each neighbor, but for those that come from there: a
sum along the tree sends one value.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar, final

import numpy as np
from numpy.typing import NDArray

from dcgs.link import ASSUMED, Link, prefers_flood, sparse_bytes, sum_pieces
from dcgs.methods.base import Agent
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.secure.session import SecureSums
from dcgs.secure.sum import complete_answer
from dcgs.sets.base import projects_cheaply
from dcgs.tree import TreeNode

T = TypeVar("T")
M = TypeVar("M")

Value: TypeAlias = tuple[Point, ...]
"""Some arrays, which are combined one by one."""
Combine: TypeAlias = Callable[[Value, Value], Value]


def added(a: Value, b: Value) -> Value:
    """Return the sums of two values array by array; an array that only one of them has is taken as it is."""
    both = [part + other for part, other in zip(a, b, strict=False)]
    return (*both, *a[len(both) :], *b[len(both) :])


@final
@dataclass(eq=False)
class Reduction:
    """One agent's part in a series of reductions, of which ``number`` is the current one.

    ``own`` is the agent's value, or None until it is known. ``partial`` has the partial sums of its
    children. ``last`` is the answer of the reduction before, and ``unsent`` are the children to which it
    must be sent. In every round the agent sends :meth:`outgoing` and calls :meth:`receive` for what its
    parent and its children sent. If messages may be lost, everything is sent again until it is known to
    have arrived.
    """

    own: Value | None
    number: int = 0
    partial: dict[int, Value] = field(default_factory=dict)
    last: Value | None = None
    unsent: list[int] = field(default_factory=list)
    sent_up: bool = False

    def is_complete(self, tree: TreeNode) -> bool:
        """Return True if the own value is known and the partial sums of all children have arrived."""
        return self.own is not None and len(self.partial) == len(tree.children)

    def total(self, combine: Combine = added) -> Value:
        """Return the value of this agent and of all agents below it in the tree."""
        assert self.own is not None
        total = self.own
        for child in sorted(self.partial):
            total = combine(total, self.partial[child])
        return total

    def outgoing(self, tree: TreeNode, reliable: bool, combine: Combine = added) -> dict[int, Value]:
        """Return what to send to the parent and to children in this round."""
        sent: dict[int, Value] = {}
        if self.last is not None:
            sent = dict.fromkeys(self.unsent, self.last)
        if reliable:
            self.unsent = []
        if tree.parent is not None and not self.sent_up and self.is_complete(tree):
            self.sent_up = reliable
            sent[tree.parent] = self.total(combine)
        return sent

    def receive(self, tree: TreeNode, sender: int, number: int, value: Value) -> Value | None:
        """Store what a child sent in its reduction ``number``; return the answer, if the parent sent it.

        A parent sends the answer of the reduction before its current one.
        """
        if sender == tree.parent and number == self.number + 1:
            return value
        if sender in tree.children and number == self.number:
            self.partial[sender] = value
        return None

    def acknowledge(self, tree: TreeNode, sender: int, number: int, has_partial: bool) -> None:
        """Stop sending what has arrived, given the sender's current reduction and what it has of this one."""
        if sender == tree.parent and number == self.number and has_partial:
            self.sent_up = True
        if sender in self.unsent and number >= self.number:
            self.unsent.remove(sender)

    def following(self, tree: TreeNode, value: Value | None, answer: Value) -> Reduction:
        """Return the next reduction, after the answer of this one."""
        return Reduction(value, self.number + 1, last=answer, unsent=list(tree.children))


@final
@dataclass(eq=False)
class Flood:
    """One agent's part: the numbers ``known`` of each agent, and those ``unsent`` to each neighbor.

    ``width`` is how many numbers an agent has, or 0 if that may be any.
    """

    width: int = 0
    known: dict[int, Point] = field(default_factory=dict)
    unsent: dict[int, list[int]] = field(default_factory=dict)

    def add(self, i: int, numbers: Point, neighbors: Collection[int], sender: int | None = None) -> None:
        """Take the numbers of agent i, from itself or from a neighbor, to which they are not sent."""
        if i not in self.known:
            self.known[i] = numbers
            for j in neighbors:
                self.unsent.setdefault(j, []).append(i)
        if sender is not None and i in self.unsent.get(sender, ()):
            self.unsent[sender].remove(i)

    def messages(self, made_of: Callable[[list[int]], M]) -> dict[int, M]:
        """Return what to send to neighbors in this round, made of the agents whose numbers it has.

        Equal messages are one object, which is encoded once.
        """
        made: dict[tuple[int, ...], M] = {}
        sent = {}
        for j, who in self.unsent.items():
            if who and tuple(who) not in made:
                made[tuple(who)] = made_of(who)
            if who:
                sent[j] = made[tuple(who)]
        self.unsent = {}
        return sent

    def outgoing(self) -> dict[int, Point]:
        """Return the messages of this round: how many rows, and these: an agent, its numbers."""
        return self.messages(lambda who: _after(len(who), self._rows(who).reshape(-1)))

    def table(self, who: list[int], widths: Sequence[int]) -> Value:
        """Return arrays of these widths with a row for each agent: together the agent and its numbers."""
        return tuple(part.T for part in _parts(self._rows(who).T, widths))

    def _rows(self, who: list[int]) -> NDArray[Any]:
        return np.stack([_after(i, self.known[i]) for i in who])

    def receive(self, sender: int, message: Point, neighbors: Collection[int]) -> None:
        """Take what a neighbor has sent."""
        shape = message.shape if isinstance(message, np.ndarray) else ()
        rows, width = (int(message[0]) if len(shape) == 1 and message.size else 0), self.width + 1
        if rows < 1 or (message.size - 1) % rows or (self.width and message.size != 1 + rows * width):
            wanted = width if self.width else "w"
            raise ValueError(
                f"a message must have shape (1 + n · {wanted},): n, and n rows of an agent and its numbers; "
                f"agent {sender} sent one of shape {shape}."
            )
        for row in message[1:].reshape(rows, -1):
            self.add(int(row[0]), row[1:], neighbors, sender)

    def in_order(self) -> Point:
        """Return a row of numbers for each agent that is known, in the order of agents."""
        return np.stack([self.known[i] for i in sorted(self.known)])


def _after(number: int, numbers: Point) -> Point:
    """Return a number and then these, of their type: float64, or uint64 for masked words."""
    return np.concatenate([np.array([number], dtype=numbers.dtype), numbers])


@final
@dataclass(frozen=True)
class Place:
    """Where an agent is in the network: its number, its neighbors, and its node of the tree.

    ``most_neighbors`` is the largest number of neighbors of an agent.
    """

    index: int
    neighbors: Collection[int]
    node: TreeNode
    agents: int
    most_neighbors: int
    is_complete: bool

    @classmethod
    def of(cls, agent: Agent) -> Place:
        """Return the place of an agent of a run."""
        facts = agent.facts
        neighbors = facts.sizes.most_neighbors
        return cls(agent.index, agent.degrees, agent.tree, facts.agents, neighbors, facts.is_complete)

    @property
    def diameter(self) -> int:
        """The rounds after which all agents know what is flooded."""
        return 1 if self.is_complete else self.node.diameter

    def floods(self, link: Link, nbytes: int) -> bool:
        """Return True if values of so many bytes are known to all sooner by flooding than along the tree."""
        known = 1 if self.is_complete else self.agents  # what an agent sends: of its own, or of all agents
        return prefers_flood(link, self.node.height, self.diameter, known, self.most_neighbors, nbytes)


def is_flooded(agent: Agent, nbytes: int) -> bool:
    """Return True if sums of so many bytes are flooded: always on a complete graph, elsewhere by a rule.

    All agents then compute what the root does else, which is cheap over sets with a cheap projection only.
    """
    if agent.facts.is_complete:
        return True
    return projects_cheaply(agent.X) and Place.of(agent).floods(agent.link or ASSUMED, nbytes)


def flooded_answer(
    value: Value, agent: Agent, answer: Callable[[Value], Value], name: str = ""
) -> Program[Value]:
    """Return what every agent computes from the sum of all agents' values, which have equal shapes.

    The values are flooded, in as many rounds as the graph has diameter: one if it is complete. Masked words
    are flooded in the same way; those of one ``name`` have the same exponents, array by array.
    """
    flooded = partial(_flooded, place=Place.of(agent))
    if agent.secure is None:
        return (yield from flooded(value, answer=answer))
    reduce = complete_answer if agent.facts.is_complete else flooded
    return (yield from agent.secure.answer(value, reduce, answer, _names(name, value)))


def answer_for_all(
    value: Value, *, place: Place, answer: Callable[[Value], Value], combine: Combine = added
) -> Program[Value]:
    """Return at all agents what is computed from all values, which all agents may read: in less time.

    Short values are flooded, and all agents compute the answer; long ones go along the tree, and the root
    does. All agents must have values of equal shapes.
    """
    if value and place.floods(ASSUMED, sum(array.nbytes for array in value)):
        return (yield from _flooded(value, place=place, answer=answer, combine=combine))
    return (yield from tree_answer(value, place.node, combine, answer))


def _flooded(
    value: Value, *, place: Place, answer: Callable[[Value], Value], combine: Combine = added
) -> Program[Value]:
    """Return what every agent computes from all values, which all combine in the same order.

    A message has an array for each array of a value, with a row of each agent. Rows of the first begin with
    the agent.
    """
    sizes = [array.size for array in value]
    widths = [1 + sizes[0], *sizes[1:]]
    flood, near = Flood(sum(sizes)), place.neighbors
    flood.add(place.index, np.concatenate([array.reshape(-1) for array in value]), near)
    for left in reversed(range(place.diameter)):
        inbox = yield flood.messages(partial(flood.table, widths=widths))
        for j, message in inbox.items():
            shapes = [part.shape for part in message]
            if not shapes or shapes != [(*shapes[0][:1], width) for width in widths]:
                due = ", ".join(f"(n, {width})" for width in widths)
                raise ValueError(
                    f"a message must be a tuple of arrays of shapes [{due}]; "
                    f"agent {j} sent one of shapes {shapes}."
                )
            for row in np.concatenate(message, axis=1):
                flood.add(int(row[0]), row[1:], near if left else (), j)  # what comes last is not sent on
    rows = flood.in_order()
    if combine is added:
        total = _parts(np.add.reduce(rows, axis=0, dtype=rows.dtype), sizes)
    else:
        total = reduce(combine, [_parts(row, sizes) for row in rows])
    return answer(tuple(part.reshape(array.shape) for part, array in zip(total, value, strict=True)))


def _parts(numbers: Point, sizes: Sequence[int]) -> Value:
    """Return parts of these sizes of an array, one after another."""
    return tuple(numbers[end - n : end] for n, end in zip(sizes, accumulate(sizes), strict=True))


def network_answer(
    value: Value,
    agent: Agent,
    answer: Callable[[Value], Value],
    nbytes: int | None = None,
    sparse_answer: bool = False,
    name: str = "",
) -> Program[Value]:
    """Return at all agents what the root computes from the sum of all agents' values.

    Only the root calls ``answer``. It takes twice the height of the tree rounds, and at least one; more if
    the value is cut. If the agent has a link, a rule chooses the number of pieces. Agents whose values differ
    in size pass as ``nbytes`` a number that is the same for all. The answer is cut into as many pieces;
    into fewer with ``sparse_answer``, if most of its entries are zero. Masked sums of one ``name`` have the
    same exponents, array by array.
    """
    pieces, link, height = 1, agent.link, agent.tree.height
    answer_pieces = None
    if link is not None:
        pieces_of = partial(sum_pieces, link, height)
        pieces = pieces_of(sum(array.nbytes for array in value) if nbytes is None else nbytes)
        if sparse_answer and pieces > 1:

            def answer_pieces(given: Value) -> int:
                return pieces_of(sparse_bytes(given))

    reduce = partial(tree_answer, tree=agent.tree, combine=added, pieces=pieces, answer_pieces=answer_pieces)
    if agent.secure is not None:
        return (yield from agent.secure.answer(value, reduce, answer, _names(name, value)))
    return (yield from reduce(value, answer=answer))


def _names(name: str, value: Value) -> list[str]:
    return [f"{name} {k}".lstrip() for k in range(len(value))]


def with_keys(program: Program[T], agent: Agent) -> Program[T]:
    """Return the program of an agent; if its sums are masked, it exchanges their keys first."""
    if agent.secure is None:
        return program

    def after_keys(secure: SecureSums) -> Program[T]:
        yield from secure.begin(partial(answer_for_all, place=Place.of(agent)))
        return (yield from program)

    return after_keys(agent.secure)


def tree_answer(
    value: Value,
    tree: TreeNode,
    combine: Combine,
    answer: Callable[[Value], Value],
    same_shapes: bool = True,
    pieces: int = 1,
    answer_pieces: Callable[[Value], int] | None = None,
) -> Program[Value]:
    """Return at all agents what the root computes from all agents' values, which are combined two by two.

    A message with other shapes than the own value is refused, unless ``same_shapes`` is False. With more than
    one piece, which must be the same number at all agents, ``combine`` must work entry by entry. The answer
    is cut into the same number of pieces, or into as many as ``answer_pieces`` says, but not more; the root
    sends this number with the first of them. It takes 2 (height − 1) rounds and one for each piece of the
    value and of the answer, and at least one.
    """
    up, sent_up = [Reduction(piece) for piece in cut(value, pieces)], 0
    down, sent_down, due = list[Value](), 0, pieces
    answered, arrived, rounds = None, Counter[int](), 0
    while rounds < max(1, 2 * (tree.height - 1) + pieces + due):
        rounds += 1
        if tree.parent is None and answered is None and up[-1].is_complete(tree):
            answered = answer(joined([piece.total(combine) for piece in up]))
            due = pieces if answer_pieces is None else min(pieces, answer_pieces(answered))
            down = cut(answered, due)
        outbox: dict[int, Value] = {}
        if sent_down < len(down):
            number = (np.array([float(due)]),) if answer_pieces is not None and sent_down == 0 else ()
            outbox = dict.fromkeys(tree.children, (*number, *down[sent_down]))
            sent_down += 1
        if tree.parent is not None and sent_up < pieces and up[sent_up].is_complete(tree):
            outbox[tree.parent] = up[sent_up].total(combine)
            sent_up += 1
        inbox = yield outbox
        for j, piece in inbox.items():
            # A repeated message is ignored; sums are not cut where a runtime may repeat some.
            if arrived[j] == (due if j == tree.parent else pieces):
                continue
            reduction = up[arrived[j]]
            arrived[j] += 1
            _check_parts(j, piece, reduction.own or () if same_shapes and j in tree.children else ())
            if j == tree.parent:
                if answer_pieces is not None and not down:
                    due, piece = _first_piece(j, piece, pieces)
                down.append(piece)
            elif j in tree.children:
                reduction.partial[j] = piece
    assert len(down) == due
    return joined(down) if answered is None else answered


def _first_piece(sender: int, message: Value, most: int) -> tuple[int, Value]:
    """Return the number of pieces that the root has sent with the first of them, and this piece."""
    number = message[0] if message else np.empty(0)
    if number.shape != (1,) or number[0] not in range(1, most + 1):
        raise ValueError(
            f"an answer must begin with its number of pieces, 1 to {most}; agent {sender} sent {number}."
        )
    return int(number[0]), message[1:]


def cut(value: Value, pieces: int) -> list[Value]:
    """Return pieces of nearly equal size: each has some rows of every array, the first piece the first."""
    if pieces == 1:
        return [value]
    slices = [np.array_split(array, pieces) for array in value]
    return [tuple(rows[k] for rows in slices) for k in range(pieces)]


def joined(pieces: Sequence[Value]) -> Value:
    """Return the value that was cut into these pieces."""
    if len(pieces) == 1:
        return pieces[0]
    return tuple(np.ascontiguousarray(np.concatenate(rows)) for rows in zip(*pieces, strict=True))


def _check_parts(sender: int, message: Value, local: Value) -> None:
    """Raise unless a message is a tuple whose arrays can be added to those that this agent has."""
    if not isinstance(message, tuple):
        raise ValueError(f"a message must be a tuple of arrays; agent {sender} sent an array.")
    given, due = [part.shape for part in message], [part.shape for part in local]
    if any(a != b for a, b in zip(given, due, strict=False)):
        raise ValueError(
            f"a message must be a tuple of arrays of shapes {due}; agent {sender} sent one of shapes {given}."
        )
