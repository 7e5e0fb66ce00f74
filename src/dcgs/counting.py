"""Count the work on the set: oracle calls by wrapping the oracle, projections by a tally."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, final

from dcgs.atoms import Atom
from dcgs.points import Point
from dcgs.sets.base import ConvexSet
from dcgs.sets.block import BlockSet, Nearest
from dcgs.sets.lanczos import Matrix


class Oracle(Protocol):
    """What an agent may ask of its set: ``lmo(direction, near)``, or a block of singular triples at once."""

    def __call__(self, direction: Point, near: Atom | None, /) -> Atom:
        """Return an extreme point s minimizing ⟨direction, s⟩."""

    def more(self, direction: Point, level: float, most: int, /) -> Sequence[Atom]:
        """Return up to ``most`` extreme points s with ⟨direction, s⟩ ≤ level, where X has them at hand."""

    def nearest(self, M: Point, basis: Matrix, tolerance: float, /) -> Nearest:
        """Return the nearest point to M from a block of its singular triples; for a BlockSet only."""


@final
@dataclass
class Tally:
    """How often something was done."""

    count: int = 0


class BudgetSpentError(Exception):
    """Raised inside an agent whose oracle may not be called again; it ends the run, it is no error."""


@final
@dataclass
class CountedOracle:
    """One agent's oracle: every call is counted, and refused once ``may_call(calls so far)`` says no.

    k extreme points at once, or a block of k singular triples, count as k calls, and are refused unless all
    of them may be made.
    """

    X: ConvexSet
    may_call: Callable[[int], bool] = field(default=lambda calls: True)
    calls: int = field(default=0, init=False)

    def __call__(self, direction: Point, near: Atom | None = None) -> Atom:
        self._spend(1)
        return self.X.lmo(direction, near)

    def more(self, direction: Point, level: float, most: int) -> Sequence[Atom]:
        atoms = self.X.more(direction, level, most)
        self._spend(len(atoms))
        return atoms

    def nearest(self, M: Point, basis: Matrix, tolerance: float) -> Nearest:
        assert isinstance(self.X, BlockSet)
        self._spend(basis.shape[1])
        return self.X.nearest(M, basis, tolerance)

    def _spend(self, calls: int) -> None:
        if not self.may_call(self.calls + calls - 1):
            raise BudgetSpentError
        self.calls += calls
