"""PCG: the pairwise procedure of Algorithm 3, for polytopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

from dcgs.atoms import Atom, Spike, Vertex, cross
from dcgs.inner.active_set import ActiveSet
from dcgs.inner.base import (
    Accuracy,
    Inner,
    Outcome,
    Pair,
    Solver,
    Subproblem,
    Task,
    line_minimizer,
    needs_polytope,
)
from dcgs.objectives.losses import Image
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen
from dcgs.sets.base import ConvexSet
from dcgs.validation import COUNT


@final
@dataclass(eq=False)
class PCGState:
    """The iterate with its image, and as a convex combination of atoms."""

    pair: Pair
    S: ActiveSet


@final
@dataclass(frozen=True)
class PCG(Inner):
    """Pairwise steps: weight moves from the worst active atom to the oracle's answer.

    Linearly convergent over polytopes. The active set is reused in the next outer iteration; the
    paper starts each time from x^{k−1} as if it were a vertex.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.PCG(), answer="last")
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), method, iterations=20)
    >>> result.x.round(3) + 0.0
    array([1., 0.])
    """

    max_steps: int = 1_000_000
    State = PCGState

    def __post_init__(self) -> None:
        COUNT(self.max_steps, "max_steps")

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return needs_polytope("pcg", X)

    def start(self, task: Task) -> Solver:
        return _PCGSolver(self, task)


@final
class _PCGSolver(Solver):
    state: PCGState

    def __init__(self, spec: PCG, task: Task) -> None:
        self.spec = spec
        self.task = task
        # x⁰ need not be a vertex: it is an atom like the others until it has no weight left.
        self.state = task.restore(PCGState) or PCGState(
            Pair.at(task.x0, task.f.map), ActiveSet.of(Vertex(task.x0), task.X.shape)
        )
        self.images: dict[Atom, Image] = {}

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        pair, S = self.state.pair, self.state.S
        noise = phi.noise(pair.x, pair.image, self.task.X.diameter)
        outcome = Outcome.STEPS
        for _ in range(self.spec.max_steps):
            g = phi.grad(pair.x, pair.image)
            s = self.task.lmo(g, None)  # Algorithm 3, line 7
            dots = S.dots(g)
            away = int(dots.argmax())  # line 8
            toward = s.dot(g)
            gap = float(S.weights @ (dots - toward))  # line 9
            e = accuracy(pair.x)
            if gap <= max(e, noise):
                outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
                break
            v = S.atoms[away]
            slope = toward - float(dots[away])
            curvature = phi.eta * (s.norm_squared() - 2.0 * cross(s, v) + v.norm_squared())
            motion = self._image(s) - self._image(v)
            # Line 12 of the paper searches along f; the procedure minimizes φ.
            most = float(S.weights[away])
            gamma = line_minimizer(phi.f.loss, pair.image, motion, slope, curvature, most)
            pair.swap(v, s, motion, gamma)  # line 13
            if S.move(gamma, away, s):  # lines 14 and 15
                self.images.pop(v, None)
            if pair.stale:
                pair.reset(S.dense(), self.task.f.map)
        S.trim()
        self.task.outcomes[outcome] += 1
        return frozen(pair.x)

    def _image(self, atom: Atom) -> Image:
        """Return A·atom, cached while the atom is active; a spike's is a column of A, and is not cached."""
        if isinstance(atom, Spike):
            return self.task.f.map.image_of_atom(atom)
        if atom not in self.images:
            self.images[atom] = self.task.f.map.image_of_atom(atom)
        return self.images[atom]
