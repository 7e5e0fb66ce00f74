"""Count oracle calls.

Projections are counted by ``projector`` in ``methods/base.py``, bytes by ``Traffic`` of
``runtime/messages.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol, final

from dcgs.atoms import Atom
from dcgs.points import Point
from dcgs.sets.base import ConvexSet
from dcgs.sets.lanczos import Matrix
from dcgs.sets.nuclear_norm_ball import Nearest, NuclearNormBall


class Oracle(Protocol):
    """The linear minimization oracle of an agent; two methods return several extreme points at once."""

    def __call__(self, direction: Point, near: Atom | None, /) -> Atom:
        """Return an extreme point s minimizing ⟨direction, s⟩."""

    def more(self, direction: Point, level: float, most: int, /) -> Sequence[Atom]:
        """Return up to ``most`` extreme points s with ⟨direction, s⟩ ≤ level; empty if X has no fast way."""

    def nearest(self, M: Point, basis: Matrix, tolerance: float, /) -> Nearest:
        """Return the nearest point to M from a block of its singular triples; for a NuclearNormBall only."""


@final
@dataclass
class Tally:
    """A counter."""

    count: int = 0


class BudgetSpentError(Exception):
    """Raised in an agent whose limit of oracle calls or seconds is reached; it ends the run."""


@final
@dataclass
class CountedOracle:
    """One agent's oracle. It counts calls, and raises BudgetSpentError if ``may_call(calls)`` is False.

    k extreme points at once, or a block of k singular triples, count as k calls. All k must be allowed.
    """

    X: ConvexSet
    may_call: Callable[[int], bool] = field(default=lambda calls: True)
    calls: int = field(default=0, init=False)

    def __call__(self, direction: Point, near: Atom | None = None) -> Atom:
        self._spend(1)
        atom = self.X.lmo(direction, near)
        if not isinstance(atom, Atom):
            raise TypeError(
                f"lmo must return a dcgs.Atom; that of {type(self.X).__name__} returned a "
                f"{type(atom).__name__}. For an array use dcgs.Vertex(array)."
            )
        return atom

    def more(self, direction: Point, level: float, most: int) -> Sequence[Atom]:
        atoms = self.X.more(direction, level, most)
        self._spend(len(atoms))
        return atoms

    def nearest(self, M: Point, basis: Matrix, tolerance: float) -> Nearest:
        assert isinstance(self.X, NuclearNormBall)
        self._spend(basis.shape[1])
        return self.X.nearest(M, basis, tolerance)

    def _spend(self, calls: int) -> None:
        if not self.may_call(self.calls + calls - 1):
            raise BudgetSpentError
        self.calls += calls
