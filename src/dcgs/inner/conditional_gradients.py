"""CG and PCG: the conditional-gradient procedure of Algorithm 2, and the pairwise one of Algorithm 3."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

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
from dcgs.points import Point, frozen, vdot
from dcgs.sets.base import ConvexSet
from dcgs.validation import COUNT, one_of


@final
@dataclass(eq=False)
class CGState:
    """The iterate with its image, ‖x‖² (updated along with x), and the oracle's last answer."""

    pair: Pair
    xx: float
    s: Atom | None = None


@final
@dataclass(frozen=True)
class CG(Inner):
    """Conditional gradient steps: toward the oracle's answer, by line search or by γ = 2/(t+2).

    Works over every set. ``step="agnostic"`` is γₜ = 2/(t+2). Its γ₀ = 1 discards the starting point, so
    only the line search gains from a warm start.

    >>> import dcgs, networkx as nx, numpy as np
    >>> objectives = [dcgs.LeastSquares(np.eye(2), b) for b in ([3.0, 0.0], [1.0, 0.0])]
    >>> method = dcgs.DCGS(inner=dcgs.CG(), answer="last")
    >>> result = dcgs.minimize(objectives, dcgs.L1Ball(2), nx.path_graph(2), method, iterations=20)
    >>> result.x.round(3) + 0.0
    array([1., 0.])
    """

    step: Literal["line-search", "agnostic"] = "line-search"
    max_steps: int = 100_000
    State = CGState

    def __post_init__(self) -> None:
        one_of("line-search", "agnostic")(self.step, "step")
        COUNT(self.max_steps, "max_steps")

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        return _CGSolver(self, task)


@final
class _CGSolver(Solver):
    state: CGState

    def __init__(self, spec: CG, task: Task) -> None:
        self.spec = spec
        self.task = task
        self.state = task.restore(CGState) or CGState(Pair.at(task.x0, task.f.map), vdot(task.x0, task.x0))

    def __call__(self, phi: Subproblem, accuracy: Accuracy) -> Point:
        state, pair = self.state, self.state.pair
        noise = phi.noise(pair.x, pair.image, self.task.X.diameter)
        outcome = Outcome.STEPS
        for t in range(self.spec.max_steps):
            g = phi.grad(pair.x, pair.image)
            s = state.s = self.task.lmo(g, state.s)  # Algorithm 2, line 15
            gap = vdot(g, pair.x) - s.dot(g)  # line 16; the paper prints x^{k−1} in place of s^t
            e = accuracy(pair.x)
            if gap <= max(e, noise):
                outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
                break
            motion = phi.f.map.image_of_atom(s) - pair.image
            along = s.dot(pair.x)
            length = s.norm_squared() - 2.0 * along + state.xx
            gamma = 2.0 / (t + 2.0)
            if self.spec.step == "line-search":
                gamma = line_minimizer(phi.f.loss, pair.image, motion, -gap, phi.eta * length, 1.0)
            pair.toward(s, motion, gamma)  # line 19
            state.xx += 2.0 * gamma * (along - state.xx) + gamma**2 * length
            if pair.stale:
                pair.reset(pair.x, self.task.f.map)
                state.xx = vdot(pair.x, pair.x)
        self.task.outcomes[outcome] += 1
        return frozen(pair.x)


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
