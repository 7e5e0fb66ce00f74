"""An inner solver: conditional gradient with the steps 2/(t + 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import dcgs


@final
@dataclass
class OpenLoopState:
    """The last answer, where the next call starts."""

    x: dcgs.Point


@final
@dataclass(frozen=True)
class OpenLoopCG(dcgs.Inner):
    """Conditional gradient with open-loop steps, at most ``max_steps`` of them."""

    max_steps: int = 500
    State = OpenLoopState

    def incompatibility(self, f: dcgs.Objective, X: dcgs.ConvexSet) -> str | None:
        return None

    def start(self, task: dcgs.Task) -> dcgs.Solver:
        return _OpenLoopSolver(task, self.max_steps)


@final
@dataclass
class _OpenLoopSolver(dcgs.Solver):
    task: dcgs.Task
    max_steps: int

    def __post_init__(self) -> None:
        self.state: OpenLoopState = self.task.restore(OpenLoopState) or OpenLoopState(self.task.x0)

    def __call__(self, phi: dcgs.Subproblem, accuracy: dcgs.Accuracy) -> dcgs.Point:
        outcome = dcgs.Outcome.STEPS
        for t in range(self.max_steps):
            x = self.state.x
            g = phi.grad(x, phi.f.map.image(x))
            s = self.task.lmo(g, None)
            if dcgs.vdot(g, x) - s.dot(g) <= accuracy(x):
                outcome = dcgs.Outcome.REACHED
                break
            self.state.x = x + 2.0 / (t + 2.0) * (s.dense() - x)
        self.task.outcomes[outcome] += 1
        return self.state.x
