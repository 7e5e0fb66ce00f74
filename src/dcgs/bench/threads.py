"""What threads bring: the same run on one thread and on several, in turns."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import final

import networkx as nx
import numpy as np

from dcgs.datasets import lasso_synthetic
from dcgs.front import Result, minimize
from dcgs.methods import DCGS
from dcgs.runtime import Lockstep
from dcgs.schedules import Theorem1
from dcgs.sets import L1Ball


@final
@dataclass(frozen=True)
class Speedup:
    """Seconds of one run on one thread and on several, and whether the results agree to the bit."""

    case: str
    threads: int
    one: float
    several: float
    equal: bool

    @property
    def ratio(self) -> float:
        """How many times as fast several threads are."""
        return self.one / self.several


@final
@dataclass(frozen=True)
class Size:
    """A dense Lasso as in the paper, and how long to run on it."""

    samples: int = 2000
    features: int = 10_000
    agents: int = 10
    iterations: int = 3


def measure(size: Size, threads: int = 2, repeats: int = 3, seed: int = 0) -> Speedup:
    """Run DCGS on one thread and on several, in turns, and compare the medians."""
    data = lasso_synthetic(size.samples, size.features, seed=seed)
    objectives = data.objectives(size.agents)
    X = L1Ball(size.features, radius=1e3)
    # Subproblems that take each agent some hundred oracle calls in all.
    method = DCGS(inner="pcg", schedule=Theorem1(balance=100.0, distance=100.0, horizon=10), answer="last")

    def run(threads: int) -> Result:
        return minimize(
            objectives,
            X,
            nx.cycle_graph(size.agents),
            method,
            iterations=size.iterations,
            every=0,
            runtime=Lockstep(threads=threads),
        )

    pairs = [(run(1), run(threads)) for _ in range(repeats)]
    return Speedup(
        case=f"DCGS on a Lasso of {size.samples}×{size.features}, {size.agents} agents",
        threads=threads,
        one=median(first.seconds for first, _ in pairs),
        several=median(second.seconds for _, second in pairs),
        equal=all(np.array_equal(first.agents, second.agents) for first, second in pairs),
    )
