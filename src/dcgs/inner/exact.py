"""Closed form of the subproblem: least squares with a dense matrix over a Euclidean ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np
import scipy

from dcgs.inner.base import Accuracy, Inner, Outcome, Solver, Subproblem, Task
from dcgs.objectives.losses import SquaredLoss
from dcgs.objectives.maps import DenseMap
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen
from dcgs.sets.base import ConvexSet
from dcgs.sets.norm_balls import L2Ball


@final
@dataclass(frozen=True)
class ExactState:
    """Nothing: everything is computed from the data."""


@final
@dataclass(frozen=True)
class Exact(Inner):
    """Solve the subproblem by one singular value decomposition and one scalar equation.

    φ is then a quadratic whose minimizer over ‖x‖ ≤ ρ is x(μ) = (2AᵀA + (η + μ) I)⁻¹ h, with the
    multiplier μ = 0 if x(0) is in the ball, and else the root of ‖x(μ)‖ = ρ. No oracle is called.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.Exact(), answer="last")
    >>> X, graph = dcgs.L2Ball(2, radius=1.0), nx.path_graph(2)
    >>> result = dcgs.minimize(objectives, X, graph, method, iterations=20)
    >>> result.x.round(3) + 0.0
    array([1., 0.])
    """

    State = ExactState
    stops_by_gap = False

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        if isinstance(X, L2Ball) and isinstance(f.map, DenseMap) and isinstance(f.loss, SquaredLoss):
            return None
        return (
            "the closed form is for LeastSquares with a dense matrix over an L2Ball; "
            f"got {type(f.loss).__name__} with {type(f.map).__name__} over {type(X).__name__}. "
            "Use inner='auto'."
        )

    def start(self, task: Task) -> Solver:
        assert isinstance(task.f.map, DenseMap)
        assert isinstance(task.X, L2Ball)
        return _ExactSolver(task, task.f.map.A, task.X.radius)

    def start_beside(self, solver: Solver, task: Task) -> Solver:
        return solver  # it has no state


@final
class _ExactSolver(Solver):
    state: ExactState

    def __init__(self, task: Task, A: Point, radius: float) -> None:
        self.task = task
        self.state = ExactState()
        self.radius = radius
        _, sigma, self.Vt = np.linalg.svd(A, full_matrices=False)
        self.curvature = 2.0 * sigma**2
        # 2Aᵀb, from the gradient at zero.
        self.linear = -task.f.grad(np.zeros(task.X.shape)).reshape(-1)

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        h = self.linear - (phi.w - phi.eta * phi.center).reshape(-1)
        inside = self.Vt @ h
        outside = h - self.Vt.T @ inside  # in the null space of A, where the curvature is η alone
        # Twice, because a rounding error would be divided by η alone as well.
        outside -= self.Vt.T @ (self.Vt @ outside)
        rest = float(np.linalg.norm(outside))

        def excess(mu: float) -> float:
            scaled = inside / (self.curvature + phi.eta + mu)
            return float(np.hypot(np.linalg.norm(scaled), rest / (phi.eta + mu))) - self.radius

        mu = 0.0
        if excess(0.0) > 0.0:
            # At μ = ‖h‖/ρ every denominator is at least ‖h‖/ρ, so x(μ) is inside, up to rounding error.
            mu = float(np.linalg.norm(h)) / self.radius
            if excess(mu) < 0.0:
                mu = float(scipy.optimize.brentq(excess, 0.0, mu, xtol=1e-300, rtol=1e-15))
        x = self.Vt.T @ (inside / (self.curvature + phi.eta + mu)) + outside / (phi.eta + mu)
        self.task.outcomes[Outcome.ROUNDING] += 1
        return frozen(x.reshape(self.task.X.shape))
