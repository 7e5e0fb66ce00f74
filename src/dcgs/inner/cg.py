"""CG: the conditional-gradient procedure of Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from dcgs.atoms import Atom
from dcgs.inner.base import Accuracy, Inner, Outcome, Pair, Solver, Subproblem, Task, line_minimizer
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
