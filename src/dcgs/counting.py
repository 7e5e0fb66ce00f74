"""Count oracle calls by wrapping the oracle: neither sets nor methods know that they are counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, final

from dcgs.atoms import Atom
from dcgs.points import Point
from dcgs.sets.base import ConvexSet

Oracle: TypeAlias = Callable[[Point, Atom | None], Atom]
"""``lmo(direction, near)`` of a set, counted or not."""


class BudgetSpentError(Exception):
    """Raised inside an agent whose oracle may not be called again; it ends the run, it is no error."""


@final
@dataclass
class CountedOracle:
    """One agent's oracle: every call is counted, and refused once ``may_call(calls so far)`` says no."""

    X: ConvexSet
    may_call: Callable[[int], bool] = field(default=lambda calls: True)
    calls: int = field(default=0, init=False)

    def __call__(self, direction: Point, near: Atom | None = None) -> Atom:
        if not self.may_call(self.calls):
            raise BudgetSpentError
        self.calls += 1
        return self.X.lmo(direction, near)
