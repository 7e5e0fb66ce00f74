"""Sums over the whole network, along its spanning tree.

Every agent adds its value to the partial sums of its children and sends the result to its parent. The root
computes an answer from the total, which is sent down the tree. So all agents get the same answer, to the last
bit, after as many rounds as twice the height of the tree. An agent sends one value up and one answer to each
child, however many agents there are.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias, final

from dcgs.methods.base import Agent
from dcgs.methods.mixing import check_shapes
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.tree import TreeNode

Value: TypeAlias = tuple[Point, ...]
"""Some arrays, which are combined one by one."""
Combine: TypeAlias = Callable[[Value, Value], Value]


def added(a: Value, b: Value) -> Value:
    """Return the sums of two values array by array; an array that only one of them has is taken as it is."""
    both = [one + other for one, other in zip(a, b, strict=False)]
    return (*both, *a[len(both) :], *b[len(both) :])


@final
@dataclass(eq=False)
class Reduction:
    """One agent's part in a series of reductions, of which ``number`` is the current one.

    ``partial`` has the partial sums of its children. ``last`` is the answer of the reduction before, and
    ``unsent`` are the children to which it must be sent. In every round the agent sends :meth:`outgoing` and
    calls :meth:`receive` for what its parent and its children sent. If messages may be lost, everything is
    sent again until it is known to have arrived.
    """

    own: Value
    number: int = 0
    partial: dict[int, Value] = field(default_factory=dict)
    last: Value | None = None
    unsent: list[int] = field(default_factory=list)
    sent_up: bool = False

    def is_complete(self, tree: TreeNode) -> bool:
        """Return True if the partial sums of all children have arrived."""
        return len(self.partial) == len(tree.children)

    def total(self, combine: Combine = added) -> Value:
        """Return the value of this agent and of all agents below it in the tree."""
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

    def following(self, tree: TreeNode, own: Value, answer: Value) -> Reduction:
        """Return the next reduction, after the answer of this one."""
        return Reduction(own, self.number + 1, last=answer, unsent=list(tree.children))


def network_sum(value: Point, agent: Agent) -> Program[Point]:
    """Return the sum of all agents' values, equal to the last bit at all of them.

    It takes one round on a complete graph, else twice the height of the tree: two rounds with a hub.
    """
    if not agent.facts.is_complete:
        (total,) = yield from network_answer((value,), agent, lambda total: total)
        return total
    inbox = yield value
    check_shapes(inbox, value.shape)
    values = {**inbox, agent.index: value}
    return _sum([values[i] for i in sorted(values)])


def network_answer(value: Value, agent: Agent, answer: Callable[[Value], Value]) -> Program[Value]:
    """Return at all agents what the root computes from the sum of all agents' values.

    Only the root calls ``answer``. It takes twice the height of the tree rounds, and at least one.
    """
    return (yield from tree_answer(value, agent.tree, added, answer))


def tree_answer(
    value: Value,
    tree: TreeNode,
    combine: Combine,
    answer: Callable[[Value], Value],
    same_shapes: bool = True,
) -> Program[Value]:
    """Return at all agents what the root computes from all agents' values, which are combined two by two.

    A message with other shapes than the own value is refused, unless ``same_shapes`` is False.
    """
    reduction, answered = Reduction(value), None
    for _ in range(max(1, 2 * tree.height)):
        if tree.parent is None and answered is None and reduction.is_complete(tree):
            answered = answer(reduction.total(combine))
            reduction = _ended(reduction, tree, answered)
        inbox = yield reduction.outgoing(tree, True, combine)
        for j, part in inbox.items():
            _check_parts(j, part, value if same_shapes and j in tree.children else ())
            arrived = reduction.receive(tree, j, reduction.number + (j == tree.parent), part)
            if arrived is not None:
                answered = arrived
                reduction = _ended(reduction, tree, arrived)
    assert answered is not None
    return answered


def _check_parts(sender: int, message: Value, own: Value) -> None:
    """Raise unless a message is a tuple whose arrays can be added to those that this agent has."""
    if not isinstance(message, tuple):
        raise ValueError(f"a message must be a tuple of arrays; agent {sender} sent an array.")
    given, due = [part.shape for part in message], [part.shape for part in own]
    if any(a != b for a, b in zip(given, due, strict=False)):
        raise ValueError(
            f"a message must be a tuple of arrays of shapes {due}; agent {sender} sent one of shapes {given}."
        )


def _ended(reduction: Reduction, tree: TreeNode, answer: Value) -> Reduction:
    """Return a reduction that only sends the answer to the children."""
    return replace(reduction.following(tree, (), answer), sent_up=True)


def _sum(values: list[Point]) -> Point:
    total = values[0]
    for value in values[1:]:
        total = total + value
    return total
