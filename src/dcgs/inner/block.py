"""Block: accelerated steps with many singular triples each, for nuclear-norm balls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.inner.base import Accuracy, Inner, Outcome, Solver, Subproblem, Task
from dcgs.inner.projected import Stall
from dcgs.momentum import Momentum
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, frozen, norm, vdot
from dcgs.sets.base import ConvexSet
from dcgs.sets.lanczos import Matrix
from dcgs.sets.nuclear_norm_ball import NuclearNormBall, extended, with_atom
from dcgs.validation import COUNT

# Triples computed at first.
_FIRST = 8
# If more than this share of the smaller side is needed, all triples are computed: measured to be faster.
_DENSE = 0.4
# The error of a step's triples, relative to the length of the step before; and an error that needs no
# improvement, relative to what the accuracy asked for allows.
_ACCURACY, _FINEST = 0.1, 0.1
# The rounding error of a step, in units of the rounding error of one gradient.
_ROUNDINGS = 4.0


@final
@dataclass(eq=False)
class BlockState:
    """The iterate with its image, a basis for the next triples, and the length of the last step."""

    x: Point
    image: Image
    basis: Matrix
    length: float


@final
@dataclass(frozen=True)
class Block(Inner):
    """Accelerated proximal gradient steps, each from the top singular triples of one matrix.

    After the block Frank-Wolfe method of Allen-Zhu, Hazan, Hu and Li, "Linear convergence of a Frank-Wolfe
    type algorithm over trace-norm balls" (2017). CG adds one atom a step; here a step solves
    min ⟨∇φ(y), v⟩ + β/2 ‖v − y‖² over X, β = l + η, with as many triples as the solution has. With momentum
    for the η-strongly convex φ this takes about √(β/η) log(1/e) steps. It ends at a v with
    β²‖v − y‖²/(2η) ≤ accuracy(v), which bounds φ(v) − min φ. One oracle call makes sure that no triple is
    missing: the basis of a block may lack a direction. A block of k triples counts as k calls. If f is a
    sum of squares of single entries, a solve begins at the projection of the unconstrained minimizer of φ,
    provided that this lowers φ.

    >>> import dcgs, networkx as nx
    >>> parts = [([0, 1], [0, 1], [2.0, 2.0]), ([0, 1], [1, 0], [2.0, 2.0])]
    >>> objectives = [dcgs.MatrixCompletion(*part, shape=(2, 2)) for part in parts]
    >>> method, X = dcgs.DCGS(inner=dcgs.Block(), answer="last"), dcgs.NuclearNormBall((2, 2), radius=2.0)
    >>> dcgs.minimize(objectives, X, nx.path_graph(2), method, iterations=50).x.round(2)
    array([[1., 1.],
           [1., 1.]])
    """

    max_steps: int = 10_000
    State = BlockState
    stops_by_gap = False

    def __post_init__(self) -> None:
        COUNT(self.max_steps, "max_steps")

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        if isinstance(X, NuclearNormBall):
            return None
        return f"block needs a NuclearNormBall; {type(X).__name__} is not one. Use inner='auto'."

    def start(self, task: Task) -> Solver:
        assert isinstance(task.X, NuclearNormBall)
        return _BlockSolver(self, task, task.X)


@final
class _BlockSolver(Solver):
    state: BlockState

    def __init__(self, spec: Block, task: Task, X: NuclearNormBall) -> None:
        self.spec = spec
        self.task = task
        self.X = X
        x, side = frozen(task.x0), min(X.shape)
        self.state = task.restore(BlockState) or BlockState(
            x, task.f.map.image(x), extended(np.zeros((side, 0)), min(_FIRST, side)), length=X.diameter
        )

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        state = self.state
        beta = phi.f.smoothness + phi.eta
        self._project_unconstrained_minimizer(phi)
        root = math.sqrt(phi.eta / beta)
        momentum = Momentum(most=(1.0 - root) / (1.0 + root))
        y, image = state.x, state.image
        noise = _ROUNDINGS * (phi.grad_noise(y, image) + EPS * beta * norm(y))
        outcome = Outcome.STEPS
        finest = 0.0
        stall = Stall(beta / phi.eta)
        for _ in range(self.spec.max_steps):
            z = y - phi.grad(y, image) / beta
            v, error = self._projected(z, max(_ACCURACY * state.length, finest))
            image_v = phi.f.map.image(v)
            state.length = norm(v - y)
            theta = momentum.weight(restart=vdot(y - v, v - state.x) > 0.0)
            y, image = v + theta * (v - state.x), image_v + theta * (image_v - state.image)
            state.x, state.image = v, image_v
            target = max(0.0, accuracy(v))
            # The residual of v: that of an exact step, and the error of the triples.
            bound, floor = (0.5 * r**2 / phi.eta for r in (beta * (state.length + error), noise))
            if bound <= max(target, floor) and self._is_nearest(v, z, error):
                outcome = Outcome.REACHED if bound <= target else Outcome.ROUNDING
                break
            if stall.is_reached(bound):
                outcome = Outcome.ROUNDING
                break
            finest = _FINEST * max(math.sqrt(2.0 * phi.eta * target), noise) / beta
        self.task.outcomes[outcome] += 1
        return frozen(state.x)

    def _is_nearest(self, v: Point, z: Point, error: float) -> bool:
        """Return False if a triple was missing when z was projected to v; its vector is then in the basis.

        If v is the projection of a matrix at distance ≤ ``error`` from z, then for all s of X
        ⟨z − v, s − v⟩ ≤ error · ‖s − v‖.
        """
        state, rest = self.state, z - v
        if error == 0.0 or not rest.any():
            return True
        s = self.task.lmo(-rest, None)
        allowed = error * self.X.diameter + _ROUNDINGS * EPS * norm(z) * self.X.diameter
        if s.dot(rest) - vdot(rest, v) <= allowed:
            return True
        state.basis = with_atom(state.basis, s, self.X.shape)
        return False

    def _project_unconstrained_minimizer(self, phi: Subproblem) -> None:
        """Move to the projection of φ's minimizer over all matrices, if that is known and lowers φ.

        If the map takes entries of a matrix and the loss is quadratic, the Hessian is diagonal and one Newton
        step gives the minimizer. Entries that are not observed have the curvature η: if η is below the
        rounding error of the curvature of f, the step is not taken.
        """
        state = self.state
        low, high = phi.f.loss.curvature
        accurate = phi.eta > EPS * phi.f.smoothness
        if not (phi.f.map.orthogonal and low == high and accurate):
            return
        step = phi.grad(state.x, state.image)
        step /= high * phi.f.map.column_squares + phi.eta
        basis = state.basis
        x, _ = self._projected(state.x - step, _ACCURACY * norm(step))
        image = phi.f.map.image(x)
        if phi.value_at(x, image) < phi.value_at(state.x, state.image):
            state.x, state.image = x, image
        else:
            state.basis = basis

    def _projected(self, M: Point, tolerance: float) -> tuple[Point, float]:
        """Return the projection of M onto X, computed with as many triples as needed, and its error."""
        if self.X.surely_holds(M):
            return M, 0.0
        state = self.state
        side = len(state.basis)
        answer = self.task.lmo.nearest(M, state.basis, tolerance)
        while not answer.whole:
            state.basis = extended(answer.basis, _columns(2 * state.basis.shape[1], side))
            answer = self.task.lmo.nearest(M, state.basis, tolerance)
        error = 0.0 if state.basis.shape[1] == side else tolerance  # all triples are exact
        state.basis = extended(answer.basis, _columns(answer.wanted, side))
        return answer.point, error


def _columns(wanted: int, side: int) -> int:
    """Return how many triples to compute: all of them if that is faster."""
    return wanted if wanted <= _DENSE * side else side
