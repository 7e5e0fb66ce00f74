"""Newton solves over the coordinates that matter, for sparse data of which an agent has few columns.

Let A have no entries in column j, and let w and the center be zero there. Then the minimizer of φ over an ℓ₁
ball is zero there as well: a smaller |xⱼ| lowers φ, and stays in the ball. So the solve is exact without this
coordinate. An agent with few of all features takes time in proportion to these, and not to all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.inner.base import Accuracy, DistanceAccuracy, Solver, Subproblem, Task
from dcgs.inner.newton_state import CompressedState, NewtonState
from dcgs.objectives.maps import SparseMap
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen
from dcgs.sets.norm_balls import L1Ball

Coordinates: TypeAlias = NDArray[np.int64]
MakeSolver: TypeAlias = Callable[[Task, NewtonState | None], Solver]
"""Returns the solver of a task, with this state, or with that of a new run."""

# With fewer coordinates, or if A has entries in more than this share of them, nothing is saved.
_LEAST, _SHARE = 10_000, 0.5


def used_columns(task: Task) -> Coordinates | None:
    """Return the columns in which an agent has entries, if a compressed solver pays, else None."""
    if not (isinstance(task.X, L1Ball) and isinstance(task.f.map, SparseMap) and len(task.X.shape) == 1):
        return None
    used = np.flatnonzero(np.diff(task.f.map.columns.indptr))
    return used if task.X.shape[0] >= _LEAST and len(used) <= _SHARE * task.X.shape[0] else None


@final
class CompressedSolver(Solver):
    """Newton solves over the columns of A with entries, and where x⁰, w or the center is not 0.

    Coordinates are added when a subproblem needs them.
    """

    def __init__(self, task: Task, used: Coordinates, make: MakeSolver) -> None:
        self.task, self.used, self.make = task, used, make
        self.outside = np.ones(task.X.shape, dtype=np.bool_)
        self.preconditioner: tuple[Point, Point] | None = None
        saved = task.restore(CompressedState)
        self.outside[used] = False
        more = np.flatnonzero(self.outside & (task.x0 != 0.0))
        self.coordinates = np.concatenate([used, more]) if saved is None else saved.coordinates
        self._build(None if saved is None else saved.newton)

    @property
    def state(self) -> CompressedState:
        return CompressedState(self.coordinates, self.solver.state)

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        more = np.flatnonzero(self.outside & ((phi.center != 0.0) | (phi.w != 0.0)))
        if len(more):
            self.coordinates = np.concatenate([self.coordinates, more])
            self._build(self.solver.state.with_zeros(len(more)))
        J = self.coordinates
        small = Subproblem(self.f, phi.w[J], phi.eta, phi.center[J], self._compressed(phi.preconditioner))
        return self._whole(self.solver(small, self._by_whole(accuracy)))

    def _build(self, state: NewtonState | None) -> None:
        """Make the solver over the current coordinates, with this state or that of a new run."""
        J, f = self.coordinates, self.task.f
        assert isinstance(f.map, SparseMap)
        assert isinstance(self.task.X, L1Ball)
        self.outside[J] = False
        self.preconditioner = None
        self.f = Objective(f.loss, f.map.with_columns(self.used, len(J)))
        X = L1Ball(len(J), self.task.X.radius)
        task = replace(self.task, f=self.f, X=X, x0=self.task.x0[J], saved=None)
        self.solver = self.make(task, state)

    def _compressed(self, h: Point | None) -> Point | None:
        """Return the entries of a preconditioner; the same array for the same preconditioner."""
        if h is None:
            return None
        if self.preconditioner is None or self.preconditioner[0] is not h:
            self.preconditioner = h, h[self.coordinates]
        return self.preconditioner[1]

    def _whole(self, x: Point) -> Point:
        whole = np.zeros(self.task.X.shape)
        whole[self.coordinates] = x
        return frozen(whole)

    def _by_whole(self, accuracy: Accuracy) -> Accuracy:
        def bound(x: Point) -> float:
            return accuracy(self._whole(x))

        return DistanceAccuracy(bound) if isinstance(accuracy, DistanceAccuracy) else bound
