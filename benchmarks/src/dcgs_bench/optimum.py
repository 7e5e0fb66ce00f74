"""f*, found on the pooled data by a solver that shares only the projections with the decentralized methods.

It is Beck and Teboulle's FISTA, restarted where the momentum is an ascent direction (O'Donoghue and Candès
2015). It ends when the Wolfe gap certifies f* to the target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.methods.base import Projection
from dcgs.momentum import Momentum
from dcgs.objectives import LeastSquares
from dcgs.objectives.maps import SparseMap
from dcgs.points import Point, vdot
from dcgs.projections import onto_l1_ball
from dcgs.run.distributed import sum_smoothness
from dcgs.run.measuring import certify
from dcgs.sets import L1Ball, ProjectableSet
from dcgs_bench.study import StudyProblem

TARGET = 1e-7  # of f(x⁰) − f(x), for the Wolfe gap at x
_EVERY = 10  # iterations between two evaluations of the gap
_MARGIN = 10.0  # a level must be at least this many times the uncertainty of f*


@final
@dataclass(frozen=True)
class Optimum:
    """f* is between ``value − gap`` and ``value``; ``start`` is f(x⁰)."""

    value: float
    start: float
    gap: float
    iterations: int

    @property
    def uncertainty(self) -> float:
        """The certified gap as a fraction of f(x⁰) − f*."""
        return self.gap / (self.start - self.value)

    def relative(self, losses: Any) -> NDArray[np.float64]:
        """Return (loss − f*)/(f(x⁰) − f*) for each loss."""
        return (np.asarray(losses, dtype=np.float64) - self.value) / (self.start - self.value)

    def resolves(self, level: float) -> bool:
        """Return whether f* is known precisely enough to tell when that relative error is reached."""
        return level >= _MARGIN * self.uncertainty

    def first_at(self, losses: Any, level: float) -> int | None:
        """Return the place of the first loss of that relative error, or None if it cannot be told."""
        reached = np.flatnonzero(self.relative(losses) <= level)
        return int(reached[0]) if reached.size and self.resolves(level) else None


def solve(problem: StudyProblem, iterations: int = 20_000, target: float = TARGET) -> Optimum:
    """Return f* and its certified gap, at most the target unless the limit on iterations is reached."""
    objectives, X = problem.objectives, problem.X
    start, gap = certify(objectives, X, np.asarray(X.start()))
    best = Optimum(start, start, gap, 0)
    for k, x in enumerate(islice(iterates(problem), iterations), 1):
        if k % _EVERY == 0 or k == iterations:
            value, gap = certify(objectives, X, x)
            bound, lowest = max(best.value - best.gap, value - gap), min(best.value, value)
            best = Optimum(lowest, start, max(0.0, lowest - bound), k)
            if best.gap <= target * (start - best.value):
                break
    if not best.value < start:
        raise ValueError(f"x⁰ must not be optimal already; f(x⁰) = {start:.6e} could not be improved.")
    return best


def iterates(problem: StudyProblem) -> Iterator[Point]:
    """Yield the iterates of FISTA, without end."""
    objectives, X = problem.objectives, problem.X
    alpha, project = _geometry(problem)
    x = y = np.asarray(X.start())
    momentum = Momentum()
    while True:
        x_prev, x = x, project(y - alpha * sum((f.grad(y) for f in objectives), np.zeros(X.shape)))
        y = x + momentum.weight(restart=vdot((y - x) / alpha, x - x_prev) > 0.0) * (x - x_prev)
        yield x


def _geometry(problem: StudyProblem) -> tuple[float | Point, Projection]:
    """Return step sizes that the curvature of f allows, and the projection in the metric they define.

    There is one step for all coordinates. Over an ℓ₁ ball with a column that outweighs all others together,
    that column has a step of its own: (a + b)² ≤ 2a² + 2b² bounds f by twice the curvature of each.
    """
    objectives, X = problem.objectives, problem.X
    heavy = _heavy_column(problem)
    if isinstance(X, L1Ball) and heavy is not None:
        others = sp.diags_array((np.arange(X.shape[0]) != heavy).astype(float))
        light = [sp.csr_array(sp.csr_array(f.data()["A"]) @ others) for f in objectives]
        rest = [LeastSquares(A, np.zeros(A.shape[0])) for A in light]
        alpha = np.full(X.shape, 0.5 / sum_smoothness(rest))
        alpha[heavy] = 0.5 / sum_smoothness(objectives)
        return alpha, partial(onto_l1_ball, radius=X.radius, h=1.0 / alpha)
    if not isinstance(X, ProjectableSet):
        raise ValueError(f"X must have a projection for f* to be found; {type(X).__name__} has none.")
    return 1.0 / sum_smoothness(objectives), X.project


def _heavy_column(problem: StudyProblem) -> int | None:
    """Return the column of sparse least squares that has most of all squares, or None if there is none."""
    if not all(isinstance(f.map, SparseMap) for f in problem.objectives):
        return None
    squares = np.zeros(problem.X.shape)
    for f in problem.objectives:
        squares += sp.csr_array(f.data()["A"]).power(2).sum(axis=0)
    heaviest = int(np.argmax(squares))
    return heaviest if squares[heaviest] > 0.5 * np.sum(squares) else None
