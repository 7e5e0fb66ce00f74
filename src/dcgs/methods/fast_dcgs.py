"""FastDCGS: a method that needs few rounds and no tuning.

It has two forms. ``edges.py``: one round an iteration on every graph, with step sizes that the agents find.
``hub.py``: accelerated steps along the sum of all gradients, on graphs where one agent is a neighbor of all
others. In both, the agents decide themselves when to stop. docs/methods.md has the algorithms and the proofs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, final

from dcgs.inner import Block, Corrective, Exact, Inner, check_inner, choose_inner
from dcgs.methods.base import Agent, Method
from dcgs.methods.edges import EdgesState, over_edges
from dcgs.methods.hub import HubState, over_hub
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.sets.base import ConvexSet
from dcgs.validation import FLAG, POSITIVE, number, one_of

# The gap of the k-th inner solve is of order k^(−_EARLY), and from k = _TURN on of order k^(−_LATE), so that
# √gap is summable.
_EARLY, _LATE, _TURN = 1.5, 2.5, 100


@final
@dataclass(frozen=True)
class FastDCGS(Method):
    """Primal-dual steps over the edges of the graph, or accelerated steps if it has a hub.

    ``form="edges"``: one round and one inner solve an iteration. ``eta`` is the mean of η in η/2 ‖x −
    center‖²; the agents find it if it is None. ``relaxation`` is in (0, 2). ``form="hub"``: gradients are
    summed by an agent that is a neighbor of all others, in two rounds, or in one if the graph is complete.
    ``"auto"`` takes the hub form if there is such an agent and no ``eta`` is given.

    ``inner``: ``"auto"`` takes the closed form where there is one, block steps over nuclear-norm balls,
    corrective steps over polytopes, and cg elsewhere. ``precision`` multiplies the gaps of inner solves.

    Given a ``gap``, the agents stop when they have certified that relative gap for a model that they all
    have, and return this model. With ``stops_itself=False`` the observer of the run decides
    instead; it sees all data, and its work is not counted.
    """

    inner: Literal["auto", "cg", "pcg", "corrective", "block", "exact"] | Inner = "auto"
    eta: float | None = None
    relaxation: float = 1.85
    precision: float = 1.0
    stops_itself: bool = True
    form: Literal["auto", "edges", "hub"] = "auto"
    rounds_per_iteration = 1
    State = EdgesState | HubState

    def __post_init__(self) -> None:
        check_inner(self.inner)
        POSITIVE.or_none(self.eta, "eta")
        number("be between 0 and 2", lambda x: 0.0 < x < 2.0)(self.relaxation, "relaxation")
        number("be positive and at most 1", lambda x: 0.0 < x <= 1.0)(self.precision, "precision")
        FLAG(self.stops_itself, "stops_itself")
        one_of("auto", "edges", "hub")(self.form, "form")
        if self.form == "hub" and self.eta is not None:
            raise ValueError(f"eta must be None with form='hub', which has no such weight; got {self.eta!r}.")

    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        reasons = (self.inner_solver(f, X).incompatibility(f, X) for f in objectives.values())
        return next(filter(None, reasons), None)

    def inner_solver(self, f: Objective, X: ConvexSet) -> Inner:
        if self.inner != "auto":
            return choose_inner(self.inner, X)
        best: Sequence[Inner] = (Exact(), Block(), Corrective())
        return next((inner for inner in best if inner.incompatibility(f, X) is None), choose_inner("cg", X))

    def program(self, agent: Agent) -> Program[Point]:
        has_hub = agent.facts.hub is not None
        if self.form == "hub" and not has_hub:
            raise ValueError(
                "form='hub' needs an agent that is a neighbor of all others; there is none. Use form='auto'."
            )
        if self.form == "hub" or (self.form == "auto" and has_hub and self.eta is None):
            return over_hub(agent, lambda f: self.inner_solver(f, agent.X), self._gap)
        return over_edges(agent, self.inner_solver(agent.f, agent.X), self._gap, self.eta, self.relaxation)

    def _gap(self, k: int, scale: float) -> float:
        """Return the gap of the k-th inner solve, for losses of this scale."""
        late = max(k / _TURN, 1.0) ** (_LATE - _EARLY)
        return float(self.precision * scale / ((k + 1) ** _EARLY * late))
