"""What the agents of FastDCGS over edges agree on: step sizes, and a preconditioner.

An epoch is one reduction over the spanning tree. It is sent with messages that the method sends anyway, to
the parent and the children only. From the answer of the root all agents take the same decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.methods.base import Agent
from dcgs.methods.fast.step_size import StepSize
from dcgs.methods.reduction import Combine, Reduction, Value, added
from dcgs.points import Point
from dcgs.protocol import Inbox, Message

# The least number of rounds of an epoch.
_SHORTEST = 4
# The place of the dual half of the squared residual among the numbers of an agent.
_DUAL = 3


@final
@dataclass(eq=False)
class Epoch:
    """One agent's part in the epochs. ``primal`` and ``dual`` are its parts of the squared residual.

    ``rounds`` counts those of the current epoch. ``answer`` is that of the root, once it has arrived: the
    sums over all agents, and the iteration in which the last agent gets them; after the first epoch also the
    largest curvature of each coordinate, if the columns of an agent are uneven. All agents switch to new step
    sizes after that iteration. ``scale`` is the mean dual half over all agents divided by that of this agent,
    in the last epoch of which it is known.
    """

    reduction: Reduction
    rounds: int = 0
    primal: float = 0.0
    dual: float = 0.0
    scale: float = 1.0
    answer: Value | None = None

    @classmethod
    def first(cls, step: StepSize, curvature: Point | None) -> Epoch:
        """Return the first epoch, in which agents with uneven columns send the ``curvature`` of each."""
        numbers = np.array([step.local_eta, step.degree, 0.0, 0.0])
        return cls(Reduction((numbers,) if curvature is None else (numbers, curvature)))

    def messages(self, agent: Agent, vectors: dict[int, Point], step: StepSize) -> dict[int, Message]:
        """Return the message for each neighbor: its vector, the scale, and its part of the sums."""
        parts = self.reduction.outgoing(agent.tree, agent.reliable, self._combine)
        made: dict[tuple[int, ...], Message] = {}  # equal messages are one object, which is encoded once
        messages = {}
        for j, vector in vectors.items():
            head = [step.scale]
            if not agent.reliable:
                head += [float(self.reduction.number), float(j in self.reduction.partial)]
            key = id(vector), id(parts.get(j)), *map(int, head[1:])
            if key not in made:
                numbers, *rest = parts.get(j, (np.empty(0),))
                made[key] = vector, np.concatenate([head, numbers]), *rest
            messages[j] = made[key]
        return messages

    def receive(self, agent: Agent, inbox: Inbox, step: StepSize) -> dict[int, Point]:
        """Return the vectors of neighbors, after processing all else in their messages."""
        width = 1 if agent.reliable else 3
        for j, message in inbox.items():
            _check(j, message, agent.X.shape, width)
        step.meet({j: float(message[1][0]) for j, message in inbox.items()})
        for j, (_, head, *rest) in inbox.items():
            tree, number = agent.tree, self.reduction.number + (j == agent.tree.parent)
            if not agent.reliable:
                number = int(head[1])
                self.reduction.acknowledge(tree, j, number, bool(head[2]))
            if head.size > width:
                answer = self.reduction.receive(tree, j, number, (head[width:], *rest))
                self.answer = self.answer if answer is None else answer
        return {j: message[0] for j, message in inbox.items()}

    def measure(self, primal: float, dual: float) -> None:
        """Add the two halves of the squared residual of a round."""
        self.primal += primal
        self.dual += dual

    def advance(self, agent: Agent, k: int, step: StepSize) -> None:
        """Update the step sizes if an epoch ends."""
        self.rounds += 1
        is_due = self.rounds >= _SHORTEST and self.reduction.is_complete(agent.tree)
        if agent.tree.parent is None and is_due:
            sums, *vectors = self.reduction.total(self._combine)
            self.answer = np.append(sums, float(k + agent.tree.height)), *vectors
        if self.answer is not None:
            self._use(agent, self.answer, step)
        step.advance(k)

    def _use(self, agent: Agent, answer: Value, step: StepSize) -> None:
        """Take the decisions that follow from an answer, and start the next epoch."""
        (*sums, end), *curvature = answer[0].tolist(), *answer[1:]
        self.answer, self.rounds = None, 0
        mine = 0.0 if self.reduction.own is None else float(self.reduction.own[0][_DUAL])
        if mine > 0.0:
            self.scale = sums[_DUAL] / (mine * agent.facts.agents)
        switch = int(end) if agent.reliable else 0
        if curvature:
            step.precondition(agent, curvature[0], switch)
        else:
            step.update(sums, switch)
        own = np.array([step.local_eta, step.degree, self.primal, self.dual])
        self.primal = self.dual = 0.0
        self.reduction = self.reduction.following(agent.tree, (own,), answer)

    @property
    def _combine(self) -> Combine:
        """Curvatures are maximized in the first epoch; numbers are added."""
        return _add_and_maximize if self.reduction.number == 0 else added


def _add_and_maximize(a: Value, b: Value) -> Value:
    vectors = [np.maximum(one, other) for one, other in zip(a[1:], b[1:], strict=False)]
    return (a[0] + b[0], *(vectors or (*a[1:], *b[1:])))


def _check(sender: int, message: Any, shape: tuple[int, ...], width: int) -> None:
    """Raise unless a message holds a vector of this shape, numbers, and further vectors of the same shape."""
    shapes = [part.shape for part in message] if isinstance(message, tuple) else [message.shape]
    vectors = [shapes[0], *shapes[2:]]
    valid = len(shapes) > 1 and len(shapes[1]) == 1 and shapes[1][0] >= width
    if not valid or any(each != shape for each in vectors):
        raise ValueError(
            f"a message must hold a vector of shape {shape} with numbers; agent {sender} sent one of shapes "
            f"{shapes}, which does not."
        )
