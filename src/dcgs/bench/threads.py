"""The speedup from threads: the same run on one thread and on several, alternately."""

from __future__ import annotations

from statistics import median
from typing import Any

import networkx as nx
import numpy as np

from dcgs.datasets import lasso_synthetic
from dcgs.front import Result, minimize
from dcgs.methods import DCGS
from dcgs.runtime import Lockstep
from dcgs.schedules import Theorem1
from dcgs.sets import L1Ball

AGENTS = 10


def measure(samples: int, features: int, threads: int, repeats: int, seed: int) -> list[dict[str, Any]]:
    """Run DCGS on a dense Lasso alternately with one thread and with several; compare medians and bits."""
    objectives = lasso_synthetic(samples, features, seed=seed).objectives(AGENTS)
    X, graph = L1Ball(features, radius=1e3), nx.cycle_graph(AGENTS)
    # Subproblems that take each agent some hundred oracle calls in all.
    method = DCGS(inner="pcg", schedule=Theorem1(balance=100.0, distance=100.0, horizon=10), answer="last")

    def run(threads: int) -> Result:
        return minimize(
            objectives, X, graph, method, iterations=3, every=0, runtime=Lockstep(threads=threads)
        )

    pairs = [(run(1), run(threads)) for _ in range(repeats)]
    one, several = (median(result.seconds for result in results) for results in zip(*pairs, strict=True))
    return [
        {
            "case": f"DCGS on a Lasso of {samples}×{features}, {AGENTS} agents",
            "threads": threads,
            "one": one,
            "several": several,
            "equal": all(np.array_equal(first.agents, second.agents) for first, second in pairs),
            "ratio": one / several,
        }
    ]
