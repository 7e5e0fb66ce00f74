"""What the agents of FastDCGS over edges agree on: step sizes, a preconditioner, and when to stop.

An epoch is one reduction over the spanning tree. It is sent with messages that the method sends anyway, to
the parent and the children only. From the answer of the root all agents take the same decisions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.methods.base import Agent
from dcgs.methods.certificate import CertifiedGap
from dcgs.methods.network_certificate import (
    Bound,
    Certificate,
    Found,
    Proposal,
    Request,
    numbers_of,
    shares_of,
)
from dcgs.methods.outlook import Outlook
from dcgs.methods.reduction import Combine, Reduction, Value, added
from dcgs.methods.step_size import StepSize
from dcgs.points import Point
from dcgs.protocol import Inbox, Message

# The least number of rounds of an epoch.
_SHORTEST = 4
# A number that says yes is above this one.
_YES = 0.5
# The numbers of a certified gap.
_GAP = 5
# A request for gradients adds this to the number of what is proposed.
_GRADIENT = 4
# The numbers that are summed over all agents: for step sizes, the halves of the squared residual of one
# round, and for the certificate.
_STEPS, _HALVES, _SHARES = slice(0, 4), slice(4, 6), slice(6, None)
# The places of the halves of the squared residual of an epoch.
_EPOCH_HALVES = slice(2, 4)


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What the root sends to all agents.

    ``sums`` are the sums over all agents. ``end`` is the iteration in which the last agent gets the answer.
    ``gap`` is that of the last model, if there was one; if the root ``stops`` because of it, all agents stop
    after iteration ``end``. ``curvature`` is the largest curvature of each coordinate, after the first epoch,
    if the columns of an agent are uneven. ``request`` is what the root asks for in the next epoch, and
    ``model`` the model that is proposed.
    """

    sums: Point
    gap: CertifiedGap | None
    end: int
    request: Request
    curvature: Point | None = None
    model: Point | None = None
    stops: bool = False

    def value(self) -> Value:
        """Return the answer as arrays."""
        gap = np.zeros(_GAP) if self.gap is None else self.gap.as_array()
        asked = self.request.proposal + _GRADIENT * self.request.gradient, self.request.tolerance
        rest = (self.end, (self.gap is not None) + self.stops, *asked, self.curvature is not None)
        vectors = [vector for vector in (self.curvature, self.model) if vector is not None]
        return np.array([*self.sums, *gap, *map(float, rest)]), *vectors

    @classmethod
    def of(cls, value: Value) -> Answer:
        """Return the answer that these arrays represent.

        Noise in messages may have changed every number: what is not there is not taken for there.
        """
        array, *vectors = value
        *numbers, end, has_gap, asked, tolerance, has_curvature = array.tolist()
        curvature = vectors.pop(0) if vectors and has_curvature > _YES else None
        sums, gap = numbers[:-_GAP], numbers[-_GAP:]
        certified = CertifiedGap.of(gap) if has_gap > _YES else None
        model = vectors[0] if vectors else None
        gradient = asked > _GRADIENT - 1.0
        if model is not None:
            proposed = Proposal.MODEL
        else:
            proposed = Proposal.START if asked > _YES else Proposal.NOTHING
        request = Request(proposed, tolerance, gradient)
        return cls(np.array(sums), certified, int(end), request, curvature, model, has_gap > 1.0 + _YES)


@final
@dataclass(eq=False)
class Epoch:
    """One agent's part in the epochs. ``primal`` and ``dual`` are its parts of the squared residual.

    ``halves`` are those of the last round. ``rounds`` counts those of the current epoch. ``answer`` is that
    of the root, once it has arrived. After iteration ``due``, which is the same for all agents if messages
    always arrive, the agent adds its shares of the certificate to ``sums``, and contributes both.
    ``ending`` is the gap with which the run ends after iteration ``stop``, once it is known, and ``model`` is
    then the model that all agents return.
    """

    reduction: Reduction
    certificate: Certificate
    outlook: Outlook
    sums: Point
    rounds: int = 0
    due: int = 0
    primal: float = 0.0
    dual: float = 0.0
    halves: tuple[float, float] = (0.0, 0.0)
    answer: Value | None = None
    ending: CertifiedGap | None = None
    stop: int = 0
    model: Point | None = None

    @classmethod
    def first(cls, agent: Agent, x: Point, step: StepSize, curvature: Point | None) -> Epoch:
        """Return the first epoch, in which agents with uneven columns send the ``curvature`` of each."""
        certificate, sums = Certificate(), np.array([step.local_eta, step.degree, 0.0, 0.0])
        epoch = cls(Reduction(None), certificate, Outlook(), sums)
        epoch.reduction.own = epoch._contribution(agent, x, None)
        if curvature is not None:
            epoch.reduction.own = *epoch.reduction.own, curvature
        return epoch

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

    def reconsider(self, agent: Agent) -> None:
        """Go on if the gap with which the run would end is not the one that is asked for now."""
        if self.ending is not None and not (agent.target is not None and agent.target.ends(self.ending)):
            self.ending, self.stop, self.model = None, 0, None

    def measure(self, primal: float, dual: float) -> None:
        """Add the two halves of the squared residual of a round."""
        self.primal += primal
        self.dual += dual
        self.halves = primal, dual

    def advance(
        self, agent: Agent, k: int, x: Point, step: StepSize, bound: Bound | None
    ) -> CertifiedGap | None:
        """Return the gap with which all agents stop, if it is time; else update the step sizes.

        If messages always arrive, all agents stop after the same iteration. ``bound`` computes the agent's
        share of the dual function; None if the dual variables need not sum to zero.
        """
        self.rounds += 1
        is_due = self.rounds >= _SHORTEST and self.reduction.is_complete(agent.tree)
        if agent.tree.parent is None and self.ending is None and is_due:
            self.answer = self._root_answer(agent, k, x).value()
        if self.answer is not None:
            self._use(agent, Answer.of(self.answer), step)
        if self.reduction.own is None and (k >= self.due or not agent.reliable):
            self.reduction.own = self._contribution(agent, x, bound)
        step.advance(k)
        return self.ending if k >= self.stop or not agent.reliable else None

    def _root_answer(self, agent: Agent, k: int, x: Point) -> Answer:
        """Return the answer of the root, after the sums of all children have arrived."""
        sums, *vectors = self.reduction.total(self._combine)
        vector = vectors[0] if vectors else None
        curvature = vector if self.reduction.number == 0 else None
        shares, target = shares_of(sums[_SHARES]), agent.target
        found = self.certificate.found(agent, shares, vector if curvature is None else None)
        stops = False
        if found is not None and target is not None:
            agent.certify(found.best)
            stops = target.ends(found.best)
        request = Request()
        if target is not None and not stops:
            request = self._request(agent, k, x, sums, found)
        model = agent.X.restore(x) if request.proposal is Proposal.MODEL else None
        gap = None if found is None else found.best
        return Answer(sums[_STEPS], gap, k + agent.tree.height, request, curvature, model, stops)

    def _request(self, agent: Agent, k: int, x: Point, sums: Point, found: Found | None) -> Request:
        """Return what the root asks for in the next epoch."""
        outlook, (primal, dual) = self.outlook, sums[_HALVES].tolist()
        restart = None if found is None else outlook.restart(agent, found)
        if restart is not None:
            return restart
        if not agent.reliable:
            residual = float(sums[_EPOCH_HALVES].sum())
            return outlook.lossy_request(agent, self.reduction.number, x, residual, found)
        if found is not None:
            outlook.measure(found, primal + dual)
        return outlook.request(agent, k, x, shares_of(sums[_SHARES]), (primal, dual))

    def _use(self, agent: Agent, answer: Answer, step: StepSize) -> None:
        """Take the decisions that follow from an answer, and start the next epoch."""
        assert self.answer is not None
        last, self.answer, self.rounds = self.answer, None, 0
        if answer.stops:  # the next epoch begins all the same: a run that is resumed may need another gap
            self.ending, self.stop, self.model = answer.gap, answer.end, self.certificate.model
            self.reconsider(agent)
        switch = answer.end if agent.reliable else 0
        if answer.curvature is not None:
            step.precondition(agent, answer.curvature, switch)
        else:
            step.update(answer.sums.tolist(), switch)
        self.certificate.accept(agent, answer.request, answer.model)
        self.sums = np.array([step.local_eta, step.degree, self.primal, self.dual])
        self.primal = self.dual = 0.0
        self.due, self.reduction = answer.end, self.reduction.following(agent.tree, None, last)

    def _contribution(self, agent: Agent, x: Point, bound: Bound | None) -> Value:
        """Return what the agent contributes to the current reduction."""
        shares, grad = self.certificate.contribution(agent, x, bound)
        numbers = np.concatenate([self.sums, self.halves, numbers_of(shares)])
        return (numbers,) if grad is None else (numbers, grad)

    @property
    def _combine(self) -> Combine:
        """Curvatures are maximized in the first epoch; gradients are added later; numbers are added."""
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
