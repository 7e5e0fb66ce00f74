"""What a method is: a program for one agent."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import final

import numpy as np

from dcgs.counting import Oracle, Tally
from dcgs.inner.base import Inner, Outcome, Task
from dcgs.memory import Keep, Past, keep_nothing
from dcgs.objectives.objective import Objective
from dcgs.points import Point
from dcgs.protocol import Program
from dcgs.schedules import Facts
from dcgs.sets.base import ConvexSet


@final
@dataclass(frozen=True, eq=False)
class Agent:
    """All that one agent knows: its own data, its neighbors, and what was agreed beforehand.

    It is number ``index``; ``degrees`` are the neighbors' numbers of neighbors, and ``weights`` those of the
    edges to them, which FastDCGS uses: all 1 where none are given. ``observe(k, answer)``
    shows what the agent would answer if the run ended after its k-th iteration. ``gap`` is what the
    agents are to certify before they stop by themselves, relative to that at x⁰, and say so by
    ``agree()``; None where the end is not theirs to decide.

    ``keep(k, name=variable, …)`` is offered all that the iterations after the k-th depend on. ``past`` is
    what was kept of a run to go on with, None at the start.
    """

    index: int
    f: Objective
    X: ConvexSet
    lmo: Oracle
    x0: Point
    degrees: Mapping[int, int]
    facts: Facts
    iterations: int
    rng: np.random.Generator
    observe: Callable[[int, Point], None]
    gap: float | None = None
    agree: Callable[[], None] = lambda: None
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    projections: Tally = field(default_factory=Tally)
    weights: Mapping[int, float] = field(default_factory=dict)
    keep: Keep = keep_nothing
    past: Past | None = None

    @property
    def ks(self) -> range:
        """The numbers of the iterations to do, from 1 or from after what was kept."""
        done = 0 if self.past is None else self.past.whole("k")
        return range(done + 1, self.iterations + 1)

    @property
    def task(self) -> Task:
        """What an inner solver needs of it."""
        past = self.past.part("inner") if self.past is not None and "inner" in self.past else None
        return Task(self.f, self.X, self.lmo, self.x0, self.outcomes, past)

    @property
    def metropolis(self) -> dict[int, float]:
        """Metropolis weights: Wᵢⱼ = 1 / (1 + max(degreeᵢ, degreeⱼ)) for the neighbors j."""
        return {j: 1.0 / (1.0 + max(len(self.degrees), degree)) for j, degree in self.degrees.items()}


class Method(ABC):
    """A decentralized method; values only, all state is in the running programs."""

    rounds_per_iteration: int
    """The rounds of one iteration; no more than the least of them where the number is not fixed."""
    stops_itself: bool = False
    """Whether its agents decide by themselves when the gap asked for is reached."""
    projects: bool = False
    """Whether it projects onto X and asks no oracle; it is then told how smooth everyone's objective is."""

    @abstractmethod
    def incompatibility(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        """Return why the method cannot serve these objectives over this set, or None if it can."""

    @abstractmethod
    def program(self, agent: Agent) -> Program[Point]:
        """Return what the agent does, up to ``agent.iterations`` iterations."""

    def forgets(self, objectives: Mapping[int, Objective], X: ConvexSet) -> str | None:
        """Return why a run cannot be gone on with from what its agents keep, or None if it can."""
        return (
            f"{type(self).__name__} cannot be checkpointed: it does not say that its program keeps "
            "its state. Leave out the checkpoint, or use a method of dcgs."
        )

    def plan(self, facts: Facts) -> str:
        """Return what of the limits of a run its steps depend on; nothing, for most methods."""
        return ""


def solver_forgets(method: Method, inner: Inner) -> str | None:
    """Return why runs of the method with this solver cannot be gone on with, or None if they can."""
    if inner.remembers:
        return None
    return (
        f"{type(method).__name__} cannot be checkpointed: its solver {type(inner).__name__} does not "
        "say that it remembers. Leave out the checkpoint, or use a solver of dcgs."
    )
