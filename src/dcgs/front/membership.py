"""Membership: what is measured, certified and returned are points of X, up to rounding error.

A point that many steps have made leaves X by the sum of their rounding errors. It is moved back before it is
measured, so that all that a result says is about the points that it has.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, final

import numpy as np

from dcgs.front.agent_models import Model, allgather_answers, average, whole
from dcgs.low_rank import LowRank
from dcgs.points import EPS, is_finite
from dcgs.runtime import ProcessGroup
from dcgs.sets.base import FEASIBLE, ROUNDINGS, ConvexSet


class Member(NamedTuple):
    """A model after a check, by how much it violates X, and whether the check has moved it."""

    model: Model
    violation: float
    moved: bool = False


Check: TypeAlias = Callable[[Model, ConvexSet], Member]
Answers: TypeAlias = dict[int, Model]


class Members(NamedTuple):
    """The models of the agents of this process, those of all agents that are known, and their average.

    ``violation`` is that of the worst of them, 0 if X holds all; ``moved`` is True if one was moved into X.
    """

    answers: Answers
    known: Answers
    x_bar: Model
    violation: float
    moved: bool

    @property
    def models(self) -> list[Model]:
        """The models of all known agents, each with the rows of all agents."""
        return whole(list(self.known.values()), self.x_bar)


@final
@dataclass(frozen=True, eq=False)
class Membership:
    """Moves models into X and averages them; all processes take part, if the models of all are known."""

    X: ConvexSet
    group: ProcessGroup
    knows_all: bool

    def __call__(self, answers: Answers, check: Check | None = None) -> Members:
        """Return the models after this check, by default the one for all measured models, and their average.

        A matrix in factors is checked as a whole, since its rows are with different agents.
        """
        check = check or (restored if self.X.cheap_violation else unchecked)
        checked: dict[int, Member] = {}
        last: tuple[Model, Member] | None = None
        for i, x in answers.items():
            if isinstance(x, LowRank):
                last = x, Member(x, 0.0)
            elif last is None or not np.array_equal(x, last[0]):  # agents often have equal models
                last = x, check(x, self.X)
            checked[i] = last[1]
        inside = {i: member.model for i, member in checked.items()}
        known = allgather_answers(self.group, inside) if self.knows_all else inside
        x_bar = check(average(list(known.values())), self.X)
        every = [x_bar, *checked.values()]
        violation, moved = max(member.violation for member in every), any(member.moved for member in every)
        return Members(inside, known, x_bar.model, violation, moved)


def unchecked(x: Model, X: ConvexSet) -> Member:
    """Return the model as it is: where a check is expensive, only the last models are checked."""
    return Member(x, 0.0)


def restored(x: Model, X: ConvexSet) -> Member:
    """Move a model into X if it is outside by rounding error."""
    violation = outside_by(x, X)
    if isinstance(x, LowRank):
        accepted = violation <= FEASIBLE * X.diameter
    else:
        accepted = 0.0 < violation < math.inf and X.accepts(x)
    return moved_into(x, X) if accepted else Member(x, violation)


def moved_into(x: Model, X: ConvexSet) -> Member:
    """Move a model into X, however far outside it is."""
    violation = outside_by(x, X)
    if not 0.0 < violation < math.inf:
        return Member(x, violation)
    if isinstance(x, LowRank):
        near: Model = LowRank(x.U * (X.magnitude / (X.magnitude + violation)), x.V, x.shape, x.rows)
    else:
        near = X.nearby(x)
    return Member(near, outside_by(near, X), moved=True)


def outside_by(x: Model, X: ConvexSet) -> float:
    """Return by how much a model violates X: 0 if X holds it, and infinity if that is not a number."""
    if isinstance(x, LowRank):
        violation = float(x.singular_values().sum()) - X.magnitude
        return 0.0 if violation <= ROUNDINGS * EPS * X.magnitude else violation
    if not is_finite(x):
        return math.inf
    if X.holds(x):
        return 0.0
    violation = X.violation(x)
    return math.inf if math.isnan(violation) else violation
