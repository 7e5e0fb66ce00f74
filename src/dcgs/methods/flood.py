"""Numbers and short vectors that every agent learns from all others, in as few rounds as the graph allows.

Every agent forwards what is new to it. All know the numbers of all after as many rounds as the diameter of
the graph; a sum along a spanning tree takes twice the height of the tree to the root and back. What agents
compute from these numbers, in the order of agents, has equal bits. An agent sends the numbers of all agents
to each neighbor, but for those that come from there: a sum sends those of one.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dcgs.points import Point


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

    def outgoing(self) -> dict[int, Point]:
        """Return what to send to neighbors in this round: how many rows, and these: an agent, its numbers."""
        made: dict[tuple[int, ...], Point] = {}  # equal messages are one object, which is encoded once
        sent = {}
        for j, who in self.unsent.items():
            if who and tuple(who) not in made:
                rows = [np.concatenate([[i], self.known[i]]) for i in who]
                made[tuple(who)] = np.concatenate([[len(rows)], *rows])
            if who:
                sent[j] = made[tuple(who)]
        self.unsent = {}
        return sent

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
