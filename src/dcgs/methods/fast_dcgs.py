"""FastDCGS: the fewest rounds to a model that every agent can use.

Over edges: one round an iteration, a balance that the agents find themselves, over-relaxation, the last
iterate, loose inner solves at first. By a hub, where there is one: accelerated steps along the sum of all
gradients. In both, agents agree by themselves on when to stop. docs/methods.md proves what is promised and
says what was tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from dcgs.inner import Block, Corrective, Exact, Inner, Subproblem, check_inner, choose_inner
from dcgs.methods.balance import (
    change,
    common_scale,
    eta_of_common,
    eta_of_own,
    own_scale,
    wished,
)
from dcgs.methods.base import Agent, Method, solver_forgets
from dcgs.methods.certificate import WIDTH as CERTIFICATE_WIDTH
from dcgs.methods.certificate import Certificate
from dcgs.methods.columns import Columns
from dcgs.methods.hub import over_hub
from dcgs.methods.letters import Letter, News, letters_in
from dcgs.objectives.objective import Objective
from dcgs.points import Point, vdot
from dcgs.protocol import Program
from dcgs.sets.base import ConvexSet

# An epoch is as long as news need to reach everyone, and no shorter than this.
_SHORTEST = 4
# Gaps asked of inner solves fall with the power _EARLY of k up to _TURN, and then with _LATE, which
# makes √gap summable.
_EARLY, _LATE, _TURN = 1.5, 2.5, 100
# The columns of a row of news, before those of the certificate.
_WISH, _DEGREE, _PRIMAL, _DUAL, _FALL = range(5)
_WIDTH = 5 + CERTIFICATE_WIDTH


@final
@dataclass(frozen=True)
class FastDCGS(Method):
    """Primal-dual steps over the edges of the graph, or accelerated ones where it has a hub.

    ``form="edges"``: one round and one inner solve an iteration. ``eta``, the mean weight of
    η/2 ‖x − center‖², is found by the agents if None, and ``relaxation`` is in (0, 2). ``form="hub"``: where
    an agent is everyone's neighbor, gradients are added up in two rounds, or in one where all are. ``"auto"``
    is by the hub if there is one and no ``eta`` is given.

    ``inner``: ``"auto"`` takes the closed form where there is one, block steps over nuclear-norm balls,
    corrective steps over polytopes, and cg elsewhere. ``precision`` multiplies all gaps asked of it.

    Given a ``gap``, agents stop when they know that a model they all hold has that gap (relative,
    as the contract has it, and by a test that errs on the safe side), and answer with that model. With
    ``stops_itself=False`` the observer of the run decides instead, who sees everything and costs nothing.
    """

    inner: Literal["auto", "cg", "pcg", "corrective", "block", "exact"] | Inner = "auto"
    eta: float | None = None
    relaxation: float = 1.85
    precision: float = 1.0
    stops_itself: bool = True
    form: Literal["auto", "edges", "hub"] = "auto"
    rounds_per_iteration = 1

    def __post_init__(self) -> None:
        check_inner(self.inner)
        if self.eta is not None and not 0.0 < self.eta < float("inf"):
            raise ValueError(f"eta must be a positive finite number, or None; got {self.eta!r}.")
        if not 0.0 < self.relaxation < 2.0:
            raise ValueError(f"relaxation must be between 0 and 2; got {self.relaxation!r}.")
        if not 0.0 < self.precision <= 1.0:
            raise ValueError(f"precision must be positive and at most 1; got {self.precision!r}.")
        if self.form not in ("auto", "edges", "hub"):
            raise ValueError(f"form must be 'auto', 'edges' or 'hub'; got {self.form!r}.")
        if self.form == "hub" and self.eta is not None:
            raise ValueError(f"eta must be None with form='hub', which has no such weight; got {self.eta!r}.")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self._inner(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None)

    def program(self, agent: Agent) -> Program[Point]:
        hub = agent.facts.hub is not None
        if self.form == "hub" and not hub:
            raise ValueError(
                "form='hub' needs an agent that is everyone's neighbor; there is none. Use 'auto'."
            )
        if self.form == "hub" or (self.form == "auto" and hub and self.eta is None):
            return over_hub(agent, lambda f: self._inner(f, agent.X), self._gap)
        return self._over_edges(agent)

    def _over_edges(self, agent: Agent) -> Program[Point]:
        f, facts = agent.f, agent.facts
        weights = agent.weights or dict.fromkeys(agent.degrees, 1.0)
        degree = sum(weights.values()) or 1.0
        chosen = self._inner(f, agent.X)
        inner = chosen.start(agent.task)
        wish = wished(agent) if self.eta is None else self.eta
        period = max(facts.hops, _SHORTEST)
        past = agent.past
        if past is None:
            value, gap = _at(agent, agent.x0)
            scale = own_scale(wish, degree)
            eta = eta_of_own(scale, degree)
            columns, metric = Columns.of(f, chosen.weighs and self.eta is None), None
            news, certificate = News(), Certificate(agent, value)
            primal = dual = 0.0
            c = agent.x0
            w = 0.0 * c
            phi = Subproblem(f, w, eta, c)
            x = inner(phi, self._gap(1, gap or eta * facts.diameter**2))
            # How large losses are: by how much the first step lowers them, on average once that is known.
            fall = max(value - f.value(x), 0.0)
            size = fall or gap or eta * facts.diameter**2
            news.begin(agent.index, (wish, degree, 0.0, 0.0, fall, *certificate.row))
        else:
            x, c, w = past.points("x", "c", "w")
            wish, scale, eta, fall, size = past.numbers("wish", "scale", "eta", "fall", "size")
            primal, dual = past.numbers("primal", "dual")
            columns = Columns.again(past.part("columns"))
            metric = past.point("metric") if "metric" in past else None
            news = News.again(past.part("news"))
            certificate = Certificate.again(agent, past.part("certificate"))
            phi = Subproblem(f, w, eta, c, metric)
        for k in agent.ks:
            epoch, step = divmod(k - 1, period)
            x_tilde = 2.0 * x - c
            parcel = certificate.parcel(step + 1) if epoch else columns.parcel()
            letter = Letter(x_tilde, scale, news.unsent(), parcel)
            inbox = yield letter.packed()
            letters = letters_in(inbox, x.shape, _WIDTH)
            news.read(letters.values())
            if epoch:
                certificate.receive(letters, step + 1)
            else:
                columns.receive(letters.values())
            v = 0.0 * x
            for j, theirs in letters.items():
                v = v + weights[j] * min(scale, theirs.scale) * (x_tilde - theirs.point)
            v = v if metric is None else metric * v
            primal, dual = primal + phi.bend(x - c), dual + vdot(x_tilde, v)
            c = c + self.relaxation * (x - c)
            w = w + self.relaxation * v
            if step + 1 == period:
                agreed = certificate.agreed(news)
                if agreed is not None:
                    agent.observe(k, agreed)
                    agent.agree()
                    return agreed
                if epoch == 0:
                    size = news.total(_FALL) / facts.agents or size
                    metric = columns.weights()
                # All agents take a common scale once they know each other's wishes; weights make new ones.
                settled = 0 if metric is None else 1
                if epoch < settled:
                    wish = wished(agent, metric)
                    scale = own_scale(wish, degree)
                    eta = eta_of_own(scale, degree)
                else:
                    if epoch == settled:
                        scale = common_scale(news.total(_WISH), news.total(_DEGREE), facts.spread)
                    elif self.eta is None:
                        scale *= change(news.total(_PRIMAL), news.total(_DUAL), epoch - settled)
                    eta = eta_of_common(scale, degree, facts.spread)
                certificate.turn(x, w, epoch, news.total(_PRIMAL) + news.total(_DUAL))
                news.begin(agent.index, (wish, degree, primal, dual, fall, *certificate.row))
                primal = dual = 0.0
            phi = Subproblem(f, w, eta, c, metric)
            x = inner(phi, self._gap(k + 1, size))
            agent.observe(k, x)
            numbers = {"wish": wish, "scale": scale, "eta": eta, "fall": fall, "size": size}
            parts = {"inner": inner, "news": news, "certificate": certificate, "columns": columns}
            agent.keep(k, x=x, c=c, w=w, metric=metric, primal=primal, dual=dual, **numbers, **parts)
        return x

    def forgets(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (solver_forgets(self, self._inner(f, X)) for f in objectives.values())
        return next(filter(None, reasons), None)

    def _gap(self, k: int, size: float) -> float:
        """Return the gap asked of the k-th inner solve."""
        late = max(k / _TURN, 1.0) ** (_LATE - _EARLY)
        return float(self.precision * size / ((k + 1) ** _EARLY * late))

    def _inner(self, f: Objective, X: ConvexSet) -> Inner:
        if self.inner != "auto":
            return choose_inner(self.inner, X)
        best: Sequence[Inner] = (Exact(), Block(), Corrective())
        return next((inner for inner in best if inner.incompatibility(f, X) is None), choose_inner("cg", X))


def _at(agent: Agent, x: Point) -> tuple[float, float]:
    """Return the value of fᵢ at x, and its Wolfe gap there."""
    f = agent.f
    image = f.map.image(x)
    g = f.map.adjoint(f.loss.grad(image))
    return f.loss.value(image), vdot(g, x) - agent.lmo(g, None).dot(g)
