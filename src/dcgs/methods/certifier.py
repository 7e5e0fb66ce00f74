"""The agents of any method certify a model and stop together, with the messages that they send anyway.

Reductions along the spanning tree go on beside the method: their parts are attached to messages. When the
root expects its point y to be good enough, it sends y down the tree as a model, and says what it needs. Every
agent adds its decrease fᵢ(x⁰) − fᵢ(y) and its share of a lower bound of f* to the sums that go up. The root
compares the two, and if the gap is small enough, it sends down that y is the answer. This takes three times
the height of the tree, and no round of its own. A second model can be proposed while the first is on its way.
docs/methods.md has the proofs of the bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, final

import numpy as np

from dcgs.inner import Inner, Solver, best_inner
from dcgs.low_rank import LowRank
from dcgs.methods.attachment import Parts, attached, detached
from dcgs.methods.base import Agent, Dual, Method
from dcgs.methods.certificate import Bounds, CertifiedGap, GapKind, excess, gap_noise
from dcgs.methods.fast.step_size import local_eta
from dcgs.methods.local_bound import LocalBound, gradient_multiplier
from dcgs.methods.outlook import Measured, Outlook, Proposal, Request, View
from dcgs.methods.reduction import Reduction, Value
from dcgs.points import EPS, Point, frozen, norm, vdot
from dcgs.protocol import Inbox, Outbox, Program

# Models that can be on their way at the same time.
_LANES = 2

# Lanes are the channels 0 and 1 of attachments; on this one, numbers say what has arrived.
_ACKNOWLEDGES = 2


class Shares(NamedTuple):
    """What an agent contributes to a reduction, or the sums over all agents.

    At the model: a lower bound of the ``decrease`` f(x⁰) − f(y), its rounding ``error``, the ``excess`` of f
    over the least value of the losses, and the ``noise`` of the gradient. ``bound`` is a share of a lower
    bound of f* − f(x⁰), which counts if all ``agents`` gave one; it may be by ``left`` too low.
    ``local_decrease`` is Σ fᵢ(x⁰) − fᵢ(xᵢ) at the agents' own points.
    """

    decrease: float = 0.0
    error: float = 0.0
    excess: float = 0.0
    noise: float = 0.0
    bound: float = 0.0
    agents: float = 0.0
    left: float = 0.0
    local_decrease: float = 0.0


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What the root sends to all agents: a request for the next reduction, or that the last model is final.

    ``at`` is the iteration after which agents contribute; if the run ends, the round after which they stop.
    ``center`` is the mean gradient at the last model, if multipliers are made of it.
    """

    at: int
    request: Request = field(default_factory=Request)
    certified: CertifiedGap | None = None
    center: Point | None = None
    model: Point | None = None

    def value(self) -> Value:
        """Return the answer as arrays."""
        gap = np.zeros(0) if self.certified is None else self.certified.as_array()
        numbers = np.array([self.at, *self.request.numbers(), *gap], dtype=np.float64)
        return numbers, *(vector for vector in (self.center, self.model) if vector is not None)

    @classmethod
    def of(cls, value: Value) -> Answer:
        """Return the answer that these arrays represent."""
        numbers, *vectors = value
        at, code, tolerance, *gap = numbers.tolist()
        request = Request.of(code, tolerance)
        center = vectors.pop(0) if request.uses_gradients else None
        model = vectors[0] if vectors else None
        return cls(int(at), request, CertifiedGap.of(gap) if gap else None, center, model)


@final
@dataclass(eq=False)
class Lane:
    """A series of reductions, in which one model after the other is certified.

    ``request`` is what the root has asked for at ``model``; agents contribute after iteration ``due``.
    ``center`` is the mean gradient at the last ``anchor`` of all lanes, if multipliers are made of it. At the
    root, ``is_read`` is True after the sums of the reduction were read, and ``expected`` is the gap that was
    expected of the model, proposed in ``round``.
    """

    reduction: Reduction = field(default_factory=lambda: Reduction(None))
    due: int = 0
    request: Request = field(default_factory=Request)
    model: Point | None = None
    center: Point | None = None
    is_read: bool = True
    expected: float = 0.0
    round: int = 0


@final
@dataclass(eq=False)
class CertifierState:
    """One agent's part in the certificate, which is saved in checkpoints with the state of the method.

    ``rounds`` counts those of the run, and ``k`` its iterations, the last of which was ``observed`` after so
    many rounds; none took fewer than ``fewest``. ``anchor`` is the last model whose gradient
    was summed; at the root, ``mean`` is the mean gradient there. The run ends by ``ending`` with ``model``
    after round ``stop``. The root also has the best bounds and its expectations.
    """

    lanes: list[Lane]
    rounds: int = 0
    k: int = 0
    observed: int = 0
    fewest: int = 0
    anchor: Point | None = None
    mean: Point | None = None
    ending: CertifiedGap | None = None
    model: Point | None = None
    stop: int = 0
    bounds: Bounds = field(default_factory=Bounds)
    outlook: Outlook = field(default_factory=Outlook)


def program_of(method: Method, agent: Agent) -> Program[Any]:
    """Return what an agent does in a run of this method; it stops by itself if it has a gap to certify."""
    if agent.target is None or method.certifies or agent.low_rank_start is not None:
        return method.program(agent)
    inner = method.inner_solver(agent.f, agent.X)
    if inner is None or inner.stops_by_gap:
        inner = best_inner(agent.f, agent.X, method.projects)
    return certified(agent, method.program, inner)


def certified(agent: Agent, program: Callable[[Agent], Program[Any]], inner: Inner) -> Program[Any]:
    """Run the program of a method; its agents stop together when they have certified the gap asked for."""
    if agent.target is None:
        return (yield from program(agent))
    certifier = Certifier(agent, inner)
    steps = program(certifier.observed_agent())
    inbox: Inbox | None = None
    while True:
        try:
            outbox = next(steps) if inbox is None else steps.send(inbox)
        except StopIteration as end:
            return end.value
        inbox = certifier.receive((yield certifier.send(outbox)))
        if certifier.stops():
            steps.close()
            return certifier.at.model


@final
class Certifier:
    """One agent's part in the certificate."""

    def __init__(self, agent: Agent, inner: Inner) -> None:
        self.agent = agent
        saved = None if agent.resume is None else agent.resume.certifier
        lanes = _LANES if agent.reliable else 1
        self.at = (
            CertifierState([Lane() for _ in range(lanes)]) if saved is None else saved.restore(CertifierState)
        )
        if saved is None and agent.resume is not None:
            self.at.k = agent.resume.iteration
        self._local_bound = LocalBound(agent, inner)
        if self.at.ending is not None and not self._suffices(self.at.ending):
            self.at.ending = None

    def _suffices(self, certified: CertifiedGap) -> bool:
        """Return True if a gap ends the run; a run that is resumed may be asked for another one."""
        return self.agent.target is not None and self.agent.target.ends(certified)

    def observed_agent(self) -> Agent:
        """Return the agent for the program of the method, whose models and states pass through here."""
        return replace(self.agent, target=None, observe=self.observe, on_save=self.save)

    def save(self, k: int, state: object, inner: Solver | None, certifier: object = None) -> None:
        """Save the state of the method together with that of the certificate."""
        self.agent.on_save(k, state, inner, self.at)

    def observe(self, k: int, x: Point | LowRank, dual: Dual | None = None) -> None:
        """Take the model of an iteration, and contribute to reductions if it is time."""
        assert not isinstance(x, LowRank)
        at, agent = self.at, self.agent
        if k != at.k + 1:
            raise ValueError(
                "a method must call agent.observe(k, x) after each iteration, k = 1, 2, …; it was called "
                f"with k = {k} after k = {at.k}. The model that agents certify would not be returned."
            )
        agent.observe(k, x if at.ending is None or agent.reliable or at.model is None else at.model)
        rounds = at.rounds - at.observed
        at.k, at.observed, at.fewest = k, at.rounds, min(at.fewest or rounds, rounds)
        for lane in at.lanes:
            is_due = k >= lane.due or not agent.reliable
            if lane.reduction.own is None and lane.reduction.number > 0 and is_due:
                lane.reduction.own = self._contribution(lane, x, dual)
        if agent.tree.parent is None and at.ending is None:
            self._decide(x, dual)

    def send(self, outbox: Outbox) -> Outbox:
        """Return the messages of the method, with the parts of the reductions attached."""
        at, agent = self.at, self.agent
        parts: dict[int, Parts] = {}
        for number, lane in enumerate(at.lanes):
            for j, value in lane.reduction.outgoing(agent.tree, agent.reliable).items():
                parts.setdefault(j, []).append((number, value))
        if not agent.reliable:
            (lane,), tree = at.lanes, agent.tree
            for j in (*tree.children, *(() if tree.parent is None else (tree.parent,))):
                known = np.array([lane.reduction.number, j in lane.reduction.partial], dtype=np.float64)
                parts.setdefault(j, []).insert(0, (_ACKNOWLEDGES, (known,)))
        return attached(outbox, parts, agent.degrees)

    def receive(self, inbox: Inbox) -> Inbox:
        """Return the messages of the method, after taking the parts of the reductions."""
        at, agent = self.at, self.agent
        at.rounds += 1
        own, parts = detached(inbox)
        for j, each in parts.items():
            theirs = None
            for channel, value in each:
                if channel == _ACKNOWLEDGES:
                    theirs, has_partial = map(int, value[0])
                    at.lanes[0].reduction.acknowledge(agent.tree, j, theirs, bool(has_partial))
                    continue
                lane = at.lanes[channel]
                number = lane.reduction.number + (j == agent.tree.parent) if theirs is None else theirs
                answer = lane.reduction.receive(agent.tree, j, number, value)
                if answer is not None:
                    self._accept(lane, answer)
        return own

    def stops(self) -> bool:
        """Return True if the agent returns its model now; tell the observer of the run."""
        at, agent = self.at, self.agent
        if at.ending is None or (agent.reliable and at.rounds < at.stop):
            return False
        assert at.model is not None
        agent.observe(at.k + 1, at.model)  # also if the method has not ended its iteration
        agent.agree(at.ending)
        return agent.reliable  # else neighbors may not know the answer yet: send it until the run ends

    def _accept(self, lane: Lane, value: Value) -> None:
        """Take an answer of the root, and begin the next reduction."""
        at, agent, answer = self.at, self.agent, Answer.of(value)
        lane.reduction = lane.reduction.following(agent.tree, None, value)
        lane.request, lane.due, lane.is_read = answer.request, answer.at, False
        if answer.certified is not None:
            lane.due = 0
            if self._suffices(answer.certified):
                at.ending, at.model, at.stop = answer.certified, lane.model, answer.at
            return
        lane.center = answer.center
        if answer.request.proposal is Proposal.START:
            lane.model = agent.x0
        elif answer.request.proposal is Proposal.MODEL:
            assert answer.model is not None
            lane.model = frozen(answer.model)

    def _contribution(self, lane: Lane, x: Point, dual: Dual | None) -> Value:
        """Return the agent's shares, and the gradient at the model if the root has asked for it."""
        agent, f, request = self.agent, self.agent.f, lane.request
        shares = Shares(local_decrease=agent.baseline.decrease(x, f.map.image(x))[0])
        if request.proposal is Proposal.NOTHING:
            return (np.array(shares),)
        assert lane.model is not None
        multiplier = self._multiplier(lane, dual)
        if multiplier is not None and request.tolerance > 0.0:
            found = self._local_bound(multiplier, x, request.tolerance, request.effort)
            noise = found.noise + multiplier.drift * agent.X.diameter
            is_common = lane.center is not None or self.at.k == lane.due
            shares = shares._replace(bound=found.value - noise, agents=float(is_common), left=found.gap)
        image = f.map.image(lane.model)
        decrease, error = agent.baseline.decrease(lane.model, image)
        error += EPS * agent.facts.agents * abs(decrease)  # of the sum over all agents
        above = excess(f, f.loss.value(image)) + error
        shares = shares._replace(decrease=decrease - error, error=error, excess=above)
        if not request.gradient:
            return (np.array(shares),)
        self.at.anchor = lane.model
        shares = shares._replace(noise=f.grad_error(lane.model, image))
        return np.array(shares), f.map.adjoint(f.loss.grad(image))

    def _multiplier(self, lane: Lane, dual: Dual | None) -> Dual | None:
        """Return the multiplier for the agent's share of the dual function, if there is one."""
        agent = self.agent
        if lane.center is None:
            return _own(agent, dual)
        assert self.at.anchor is not None
        return gradient_multiplier(agent, lane.center, agent.f.grad(self.at.anchor))

    def _decide(self, x: Point, dual: Dual | None) -> None:
        """Read the sums that are complete; end the run, or propose a model, if it is time."""
        at, agent = self.at, self.agent
        for lane in at.lanes:
            if lane.is_read or not lane.reduction.is_complete(agent.tree):
                continue
            gap, lane.is_read = self._read(lane), True
            if gap is not None:
                agent.certify(gap)
                if self._suffices(gap):
                    self._accept(lane, Answer(at.rounds + agent.tree.height, certified=gap).value())
                    return
        free = [lane for lane in at.lanes if lane.is_read]
        if not free:
            return
        request = at.outlook.request(self._view(x, dual), is_alone=len(free) == len(at.lanes))
        if request is None:
            return
        # The first iteration that the last agent ends after it has got the request.
        due = at.k + max(1, -(-agent.tree.height // max(at.fewest, 1)))
        model = agent.X.restore(x) if request.proposal is Proposal.MODEL else None
        center = at.mean if request.uses_gradients else None
        free[0].expected, free[0].round = at.outlook.expected, at.rounds
        self._accept(free[0], Answer(due, request, None, center, model).value())

    def _view(self, x: Point, dual: Dual | None) -> View:
        """Return what the root sees at its point x."""
        agent, f, own = self.agent, self.agent.f, _own(self.agent, dual)

        def decrease() -> float:
            return agent.baseline.decrease(x, f.map.image(x))[0]

        def dual_gap(tolerance: float, effort: int) -> tuple[float, float]:
            # The gap at y is the sum over all agents of fᵢ(y) + ⟨wᵢ, y⟩ minus their minima over X.
            assert own is not None
            share = self._local_bound(own, x, tolerance, effort)
            return vdot(own.w, x - agent.x0) - decrease() - share.value, share.gap

        residual = None if own is None else own.residual
        return View(
            agent,
            self.at.rounds,
            x,
            own is not None,
            residual,
            decrease,
            lambda: excess(f, f.value(x)),
            dual_gap,
        )

    def _read(self, lane: Lane) -> CertifiedGap | None:
        """Return the gap at the model from the sums over all agents, if there is one."""
        at, agent = self.at, self.agent
        numbers, *vectors = lane.reduction.total()
        sums, grad = Shares(*numbers.tolist()), vectors[0] if vectors else None
        at.outlook.local = sums.local_decrease
        if lane.request.proposal is Proposal.NOTHING:
            return None
        assert lane.model is not None
        at_start, wolfe, dual = lane.request.proposal is Proposal.START, None, None
        most = sums.decrease + 2.0 * sums.error  # f(x⁰) − f(y), rounded up
        at.bounds.add_least(most, sums.excess)
        if round(sums.agents) == agent.facts.agents:
            dual = -sums.decrease - sums.bound
            at.bounds.add(sums.bound, GapKind.DUAL)
        if grad is not None:
            gap, error = agent.proven_gap(grad, lane.model)
            noise = gap_noise(sums.noise, norm(lane.model), agent.X.diameter) + error
            wolfe = CertifiedGap(gap, sums.decrease, noise, at_start)
            at.bounds.add(-most - gap - noise, GapKind.WOLFE)
            at.mean = grad / agent.facts.agents
        best = at.bounds.gap(sums.decrease, at_start)
        if wolfe is not None:
            best = at.bounds.best(wolfe, agent.target)
        known = Measured(
            lane.round, lane.expected, best, None if wolfe is None else wolfe.gap, dual, sums.left
        )
        at.outlook.read(known)
        return best


def _own(agent: Agent, dual: Dual | None) -> Dual | None:
    """Return what a method knows of the dual problem; None if multipliers need not sum to zero."""
    if dual is None or not agent.reliable:
        return None
    return dual if dual.eta > 0.0 else replace(dual, eta=local_eta(agent))
