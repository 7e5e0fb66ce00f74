"""Block: accelerated steps made of many singular triples at once, for nuclear-norm balls."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from dcgs.atoms import Atom, atom_again
from dcgs.inner.base import Inner, Outcome, Solver, Subproblem, Task, check_max_steps
from dcgs.memory import Memory, plain
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import EPS, Point, frozen, norm, vdot
from dcgs.sets.base import ConvexSet
from dcgs.sets.block import BlockSet, extended, with_atom

_FIRST = 8
"""Triples asked for at first."""
_DENSE = 0.4
"""Beyond this share of the smaller side all triples at once are faster: measured."""
_ACCURACY = 0.1
"""The error of a step's triples, relative to the length of the step before."""
_FINEST = 0.02
"""The error that needs no improvement, as a share of the gap asked for."""
_SHORTEST = 30.0
"""Length of a step that is rounding error, in units of EPS·√side times the norm of the point."""
_ROUNDINGS = 4.0
"""Rounding errors of a matrix that a step is made from, in units of EPS times its norm."""


@final
@dataclass(frozen=True)
class Block(Inner):
    """Accelerated proximal gradient steps, each from the top singular triples of one matrix.

    After the block Frank-Wolfe method of Allen-Zhu, Hazan, Hu and Li, "Linear convergence of a Frank-Wolfe
    type algorithm over trace-norm balls" (2017): where CG adds one atom, a step here solves
    min ⟨∇φ(y), v⟩ + β/2 ‖v − y‖² over X with as many triples as its solution has, β = l + η. Momentum for
    the η-strongly convex φ makes about √(β/η) log(1/e) steps of it. A block of k triples counts as k calls.
    For squares of single entries a solve begins with a leap to the nearest point to the minimizer over all
    matrices, kept if it lowers φ, which is the whole solve where X does not bind.
    """

    max_steps: int = 10_000
    remembers = True

    def __post_init__(self) -> None:
        check_max_steps(self.max_steps)

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        if isinstance(X, BlockSet):
            return None
        return f"block needs a NuclearNormBall; {type(X).__name__} is not one. Use inner='auto'."

    def start(self, task: Task) -> Solver:
        assert isinstance(task.X, BlockSet)
        return _BlockSolver(self, task, task.X)


@final
class _BlockSolver(Solver):
    def __init__(self, spec: Block, task: Task, X: BlockSet) -> None:
        self.spec = spec
        self.task = task
        self.X = X
        self.x: Point = frozen(task.x0)
        self.image: Image = task.f.map.image(self.x)
        self.s: Atom | None = None
        self.basis = extended(np.zeros((min(X.shape), 0)), min(_FIRST, *X.shape))
        self.length = X.diameter  # of the last step
        self.shortest = _SHORTEST * EPS * math.sqrt(min(X.shape))
        past = task.past
        if past is not None:
            self.x, self.image, self.basis = past.points("x", "image", "basis")
            self.s = atom_again(past.part("s"), X.shape) if "s" in past else None
            self.length = past.number("length")

    def memory(self) -> Memory:
        return {
            "x": self.x,
            "image": self.image,
            "basis": self.basis,
            "s": plain(self.s),
            "length": self.length,
        }

    def __call__(self, phi: Subproblem, e: float) -> Point:
        beta = phi.f.smoothness + phi.eta
        self._leap(phi)
        momentum = _Momentum(phi.eta / beta)
        y, image = self.x, self.image
        short = math.inf  # a step so short is a sign that the gap is reached
        outcome = Outcome.STEPS
        for steps in range(self.spec.max_steps):
            looked = steps == 0 or self.length <= short
            if looked:
                gap, target = self._gap(phi), max(e, self._noise(phi, beta))
                if gap <= target:
                    outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
                    break
            finest = _FINEST * target / (beta * self.X.diameter)
            v = self._nearest(y - phi.grad(y, image) / beta, max(_ACCURACY * self.length, finest))
            image_v = phi.f.map.image(v)
            self.length = norm(v - y)
            if looked:
                short = max(self.length * target / gap, self.shortest * norm(v))
            theta = momentum.weight(turned=vdot(y - v, v - self.x) > 0.0)
            y, image = v + theta * (v - self.x), image_v + theta * (image_v - self.image)
            self.x, self.image = v, image_v
        self.task.outcomes[outcome] += 1
        return frozen(self.x)

    def _leap(self, phi: Subproblem) -> None:
        """Go to the nearest point of X to the minimizer of φ over all matrices, if that lowers φ.

        Where the map takes entries of a matrix and the loss is quadratic, the Hessian is diagonal and that
        minimizer one step away; where X does not bind it is the answer. Entries that are not observed have
        η alone for curvature: where it is rounding error beside that of f, their minimizer is out of reach.
        """
        low, high = phi.f.loss.curvature
        reached = phi.eta > EPS * phi.f.smoothness
        if not (phi.f.map.orthogonal and low == high and reached):
            return
        step = phi.grad(self.x, self.image)
        step /= high * phi.f.map.column_squares + phi.eta
        basis = self.basis
        x = self._nearest(self.x - step, _FINEST * norm(step))
        image = phi.f.map.image(x)
        if phi.value_at(x, image) < phi.value_at(self.x, self.image):
            self.x, self.image = x, image
        else:
            self.basis = basis

    def _noise(self, phi: Subproblem, beta: float) -> float:
        """Return the size of a gap that is rounding error of ∇φ, or of the matrix a step is made from."""
        diameter = self.X.diameter
        return _ROUNDINGS * (phi.noise(self.x, self.image, diameter) + EPS * beta * norm(self.x) * diameter)

    def _gap(self, phi: Subproblem) -> float:
        """Return the Wolfe gap at x; the oracle's answer joins the block, which may have missed it."""
        g = phi.grad(self.x, self.image)
        s = self.s = self.task.lmo(g, self.s)
        self.basis = with_atom(self.basis, s, self.X.shape)
        return vdot(g, self.x) - s.dot(g)

    def _nearest(self, M: Point, tolerance: float) -> Point:
        """Return the nearest point of X to M, from as many triples as that takes."""
        if self.X.surely_holds(M):
            return M
        side = len(self.basis)
        answer = self.task.lmo.nearest(M, self.basis, tolerance)
        while not answer.whole:
            self.basis = extended(answer.basis, _columns(2 * self.basis.shape[1], side))
            answer = self.task.lmo.nearest(M, self.basis, tolerance)
        self.basis = extended(answer.basis, _columns(answer.wanted, side))
        return answer.point


@final
class _Momentum:
    """Nesterov's weights for convexity η over smoothness β, begun anew when a step turns back."""

    def __init__(self, share: float) -> None:
        self.most = (1.0 - math.sqrt(share)) / (1.0 + math.sqrt(share))
        self.t = 1.0

    def weight(self, turned: bool) -> float:
        """Return how much of the last move to add to the next starting point."""
        if turned:
            self.t = 1.0
        before, self.t = self.t, 0.5 * (1.0 + math.sqrt(1.0 + 4.0 * self.t**2))
        return min((before - 1.0) / self.t, self.most)


def _columns(wanted: int, side: int) -> int:
    """Return how many triples to ask for: all, where that is faster."""
    return wanted if wanted <= _DENSE * side else side
