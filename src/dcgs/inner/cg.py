"""CG: the conditional-gradient procedure of Algorithm 2."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from dcgs.atoms import Atom, atom_again
from dcgs.inner.base import Inner, Outcome, Solver, Subproblem, Task, check_max_steps
from dcgs.inner.line_search import Line
from dcgs.inner.pair import Pair
from dcgs.memory import Memory, plain
from dcgs.objectives.objective import Objective
from dcgs.points import Point, frozen, vdot
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True)
class CG(Inner):
    """Conditional gradient steps: toward the oracle's answer, by line search or by γ = 2/(t+2).

    Works over every set. ``step="agnostic"`` is γₜ = 2/(t+2), whose γ₀ = 1 throws the starting
    point away: only the line search profits from the last answer.
    """

    step: Literal["line-search", "agnostic"] = "line-search"
    max_steps: int = 100_000
    remembers = True

    def __post_init__(self) -> None:
        if self.step not in ("line-search", "agnostic"):
            raise ValueError(f"step must be 'line-search' or 'agnostic'; got {self.step!r}.")
        check_max_steps(self.max_steps)

    def incompatibility(self, f: Objective, X: ConvexSet) -> str | None:
        return None

    def start(self, task: Task) -> Solver:
        return _CGSolver(self, task)


@final
class _CGSolver(Solver):
    def __init__(self, spec: CG, task: Task) -> None:
        self.spec = spec
        self.task = task
        past = task.past
        self.pair = Pair(task.f.map, task.x0, past and past.part("pair"))
        # ‖x‖², carried along like the image
        self.xx = vdot(task.x0, task.x0) if past is None else past.number("xx")
        self.s: Atom | None = None
        if past is not None and "s" in past:
            self.s = atom_again(past.part("s"), task.X.shape)

    def memory(self) -> Memory:
        return {"pair": self.pair.memory(), "xx": self.xx, "s": plain(self.s)}

    def __call__(self, phi: Subproblem, e: float) -> Point:
        pair = self.pair
        noise = phi.noise(pair.x, pair.image, self.task.X.diameter)
        outcome = Outcome.STEPS
        for t in range(self.spec.max_steps):
            g = phi.grad(pair.x, pair.image)
            s = self.s = self.task.lmo(g, self.s)  # Algorithm 2, line 15
            gap = vdot(g, pair.x) - s.dot(g)  # line 16; the text prints x^{k−1} where s^t is meant
            if gap <= max(e, noise):
                outcome = Outcome.REACHED if gap <= e else Outcome.ROUNDING
                break
            motion = phi.f.map.image_of_atom(s) - pair.image
            along = s.dot(pair.x)
            length = s.norm_squared() - 2.0 * along + self.xx
            gamma = 2.0 / (t + 2.0)
            if self.spec.step == "line-search":
                gamma = Line(phi.f.loss, pair.image, motion, -gap, phi.eta * length, 1.0).minimizer()
            pair.toward(s, motion, gamma)  # line 19
            self.xx += 2.0 * gamma * (along - self.xx) + gamma**2 * length
            if pair.stale:
                pair.reset(pair.x)
                self.xx = vdot(pair.x, pair.x)
        self.task.outcomes[outcome] += 1
        return frozen(pair.x)
