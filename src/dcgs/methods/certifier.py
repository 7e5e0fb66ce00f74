"""The agents of any method certify a model and stop together, with the messages that they send anyway.

When the root of the spanning tree expects its point y to be good enough, it sends y down the tree as a model,
and says what it needs. Every agent has a few numbers for the others: bounds of fᵢ(x⁰) − fᵢ(y), and shares of
lower bounds of f*. If they are flooded, all agents compare the sums by themselves and stop together, as many
rounds later as the height of the tree and the diameter of the graph. Else they are added on their way up the
tree, the root compares, and sends down that y is the answer: three heights, which is the same on a tree, and
fewer bytes. All that is attached to messages of the method, and takes no round of its own. A second model can
be proposed while the first is on its way. docs/methods.md has the proofs of the bounds.
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
from dcgs.methods.certificate import UNKNOWN, Bounds, CertifiedGap, GapKind, excess, gap_noise
from dcgs.methods.fast.step_size import local_eta
from dcgs.methods.local_bound import LocalBound, gradient_multiplier
from dcgs.methods.outlook import Measured, Outlook, Proposal, Request, View
from dcgs.methods.reduction import Flood, Reduction, Value
from dcgs.points import EPS, Point, frozen, norm, vdot
from dcgs.protocol import Inbox, Outbox, Program

# Models that can be on their way at the same time.
_LANES = 2

# Sums along the tree have the channels 0 and 1 of attachments, one for each lane. On channel 2 numbers say
# what has arrived. What is flooded has the channels from 3 on.
_ACKNOWLEDGES, _FLOODS = 2, 3


class Shares(NamedTuple):
    """What an agent says of a model y, or the sums over all agents.

    ``decrease`` is a lower bound of f(x⁰) − f(y), and ``excess`` an upper bound of what f(y) is above the
    least value of the losses, as seen from there. ``bound`` is a share of a lower bound of f* − f(x⁰); it
    counts if all agents have one. ``noise`` is that of the gradient, and ``error`` that of the decrease.
    """

    decrease: float
    excess: float
    bound: float = -UNKNOWN
    noise: float = 0.0
    error: float = 0.0


@final
@dataclass(frozen=True, eq=False)
class Answer:
    """What the root sends to all agents: a request for shares, or that the last model is final.

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
        if self.certified is not None:
            return (np.array([self.at, *self.certified.as_array()]),)
        numbers = np.array([self.at, *self.request.numbers()])
        return numbers, *(vector for vector in (self.center, self.model) if vector is not None)

    @classmethod
    def of(cls, value: Value) -> Answer:
        """Return the answer that these arrays represent."""
        (at, *numbers), *vectors = value[0].tolist(), *value[1:]
        if len(numbers) > len(Request().numbers()):
            return cls(int(at), certified=CertifiedGap.of(numbers))
        request = Request.of(*numbers)
        center = vectors.pop(0) if request.uses_gradients else None
        return cls(int(at), request, None, center, vectors[0] if vectors else None)


@final
@dataclass(eq=False)
class Lane:
    """One model after the other that is certified.

    ``request`` is what the root has asked for at ``model``; all agents have it after round ``spread``. They
    contribute after iteration ``due``, to the ``reduction`` along the tree or to the ``flood``.
    ``center`` is the mean gradient at the last ``anchor`` of all lanes, if multipliers are made of it.
    ``is_read`` is True after all shares were read: at the root, or at all agents if they are flooded. At the
    root, ``expected`` is the gap that was expected of the model, proposed in ``round``.
    """

    reduction: Reduction = field(default_factory=lambda: Reduction(None))
    flood: Flood = field(default_factory=Flood)
    spread: int = 0
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
    many rounds; none took fewer than ``fewest``. ``anchor`` is the last model whose gradient was summed; at
    the root, ``mean`` is the mean gradient there. The run ends by ``ending`` with ``model`` after round
    ``stop``. The root also has the best bounds and its expectations.
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
            # All have the request by then, unless some agents' iterations take fewer rounds than the root's.
            is_due = (k >= lane.due and at.rounds >= lane.spread) or not agent.reliable
            is_due = is_due and lane.request.proposal is not Proposal.NOTHING
            if is_due and lane.request.floods and agent.index not in lane.flood.known:
                numbers = np.array([at.rounds, *self._contribution(lane, x, dual)[0]])
                lane.flood.add(agent.index, numbers, agent.degrees)
            elif is_due and not lane.request.floods and lane.reduction.own is None:
                lane.reduction.own = self._contribution(lane, x, dual)
        self._conclude()
        if agent.tree.parent is None and at.ending is None:
            self._propose(x, dual)

    def send(self, outbox: Outbox) -> Outbox:
        """Return the messages of the method, with the parts of the reductions attached."""
        at, agent = self.at, self.agent
        parts: dict[int, Parts] = {}
        for number, lane in enumerate(at.lanes):
            for j, value in lane.reduction.outgoing(agent.tree, agent.reliable).items():
                parts.setdefault(j, []).append((number, value))
            for j, rows in lane.flood.outgoing().items():
                numbered = np.concatenate([[lane.reduction.number], rows])
                parts.setdefault(j, []).append((_FLOODS + number, (numbered,)))
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
        answers = list[tuple[Lane, Value]]()
        for j, each in parts.items():
            theirs = None
            for channel, value in each:
                if channel == _ACKNOWLEDGES:
                    theirs, has_partial = map(int, value[0])
                    at.lanes[0].reduction.acknowledge(agent.tree, j, theirs, bool(has_partial))
                    continue
                if channel >= _FLOODS:
                    lane, (of, *rows) = at.lanes[channel - _FLOODS], value[0]
                    if of == lane.reduction.number:  # else it has arrived before, on a shorter way
                        lane.flood.receive(j, np.array(rows), agent.degrees)
                    continue
                lane = at.lanes[channel]
                number = lane.reduction.number + (j == agent.tree.parent) if theirs is None else theirs
                answer = lane.reduction.receive(agent.tree, j, number, value)
                if answer is not None:
                    answers.append((lane, answer))
        self._conclude()  # the last shares of a lane may arrive together with its next request
        for lane, answer in answers:
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
        """Take an answer of the root, and send it on to the children."""
        at, agent, answer = self.at, self.agent, Answer.of(value)
        lane.reduction = lane.reduction.following(agent.tree, None, value)
        lane.request, lane.due, lane.is_read = answer.request, answer.at, answer.certified is not None
        lane.spread = at.rounds + agent.tree.height - agent.tree.depth
        if answer.certified is not None:
            self._end(lane, answer.certified, answer.at)
            return
        lane.flood, lane.center = Flood(), answer.center
        if answer.request.proposal is Proposal.START:
            lane.model = agent.x0
        elif answer.request.proposal is Proposal.MODEL:
            assert answer.model is not None
            lane.model = frozen(answer.model)

    def _end(self, lane: Lane, certified: CertifiedGap, stop: int) -> None:
        """End the run with the model of this lane after round ``stop``, unless another one ends it before."""
        at = self.at
        if self._suffices(certified) and (at.ending is None or stop < at.stop):
            at.ending, at.model, at.stop = certified, lane.model, stop

    def _contribution(self, lane: Lane, x: Point, dual: Dual | None) -> Value:
        """Return the agent's shares, and the gradient at the model if the root has asked for it."""
        agent, f, request, model = self.agent, self.agent.f, lane.request, lane.model
        assert model is not None
        multiplier = self._multiplier(lane, dual) if request.tolerance > 0.0 else None
        bound = -UNKNOWN
        if multiplier is not None:
            found = self._local_bound(multiplier, x, request.tolerance, request.effort)
            bound = found.value - found.noise - multiplier.drift * agent.X.diameter
        image = f.map.image(model)
        decrease, error = agent.baseline.decrease(model, image)
        error += EPS * agent.facts.agents * abs(decrease)  # of the sum over all agents
        # A lower bound by the least value is minus the decrease minus the excess: both are rounded down here.
        above = excess(f, f.loss.value(image)) + 3.0 * error
        numbers = [decrease - error, above, bound][: 2 + (request.tolerance > 0.0 or request.gradient)]
        if not request.gradient:
            return (np.array(numbers),)
        self.at.anchor = model
        numbers += [f.grad_error(model, image), error]
        return np.array(numbers), f.map.adjoint(f.loss.grad(image))

    def _multiplier(self, lane: Lane, dual: Dual | None) -> Dual | None:
        """Return the multiplier for the agent's share of the dual function, if there is one."""
        agent = self.agent
        if lane.center is None:  # those of different iterations need not sum to zero
            return _own(agent, dual) if self.at.k == lane.due else None
        assert self.at.anchor is not None
        return gradient_multiplier(agent, lane.center, agent.f.grad(self.at.anchor))

    def _conclude(self) -> None:
        """Read the shares that are complete; end the run if the gap is small enough."""
        at, agent = self.at, self.agent
        is_root = agent.tree.parent is None
        for lane in at.lanes:
            floods, is_known = lane.request.floods, len(lane.flood.known) == agent.facts.agents
            is_complete = is_known if floods else is_root and lane.reduction.is_complete(agent.tree)
            if lane.is_read or not is_complete:
                continue
            lane.is_read = True
            gap, stop = self._read(lane)
            if is_root:
                agent.certify(gap)
            if floods:
                self._end(lane, gap, stop)
            elif self._suffices(gap) and at.ending is None:
                self._accept(lane, Answer(stop, certified=gap).value())

    def _propose(self, x: Point, dual: Dual | None) -> None:
        """Ask for the shares at a model, if it is time."""
        at, agent = self.at, self.agent
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

    def _read(self, lane: Lane) -> tuple[CertifiedGap, int]:
        """Return the gap at the model from all agents' shares, and the round in which all agents may stop.

        If shares are flooded, all agents compute the same gap, of these shares alone.
        """
        at, agent = self.at, self.agent
        assert lane.model is not None
        floods, vectors = lane.request.floods, list[Point]()
        if floods:
            rounds, *rows = lane.flood.in_order().T
            numbers, stop = [float(row.sum()) for row in rows], int(rounds.max()) + agent.tree.diameter
        else:
            total, *vectors = lane.reduction.total()
            numbers, stop = total.tolist(), at.rounds + agent.tree.height
        sums, bounds = Shares(*numbers), Bounds() if floods else at.bounds
        at_start, wolfe, dual = lane.request.proposal is Proposal.START, None, None
        bounds.add_least(sums.decrease, sums.excess)
        if -sums.bound < UNKNOWN:
            dual = -sums.decrease - sums.bound
            bounds.add(sums.bound, GapKind.DUAL)
        if vectors:
            gap, error = agent.proven_gap(vectors[0], lane.model)
            noise = gap_noise(sums.noise, norm(lane.model), agent.X.diameter) + error
            wolfe = CertifiedGap(gap, sums.decrease, noise, at_start)
            bounds.add_wolfe(wolfe, sums.error)
            at.mean = vectors[0] / agent.facts.agents
        best = bounds.gap(sums.decrease, at_start)
        if wolfe is not None:
            best = bounds.best(wolfe, agent.target)
        at.bounds.add(bounds.lower, bounds.kind)
        known = Measured(lane.round, lane.expected, best, None if wolfe is None else wolfe.gap, dual)
        at.outlook.read(known)
        return best, stop


def _own(agent: Agent, dual: Dual | None) -> Dual | None:
    """Return what a method knows of the dual problem; None if multipliers need not sum to zero."""
    if dual is None or not agent.reliable:
        return None
    return dual if dual.eta > 0.0 else replace(dual, eta=local_eta(agent))
