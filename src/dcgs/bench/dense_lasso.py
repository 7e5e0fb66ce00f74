"""Runs on a dense Lasso: what threads bring, and what checkpoints cost."""

from __future__ import annotations

import tempfile
from statistics import median
from typing import Any

import networkx as nx
import numpy as np

from dcgs.datasets import lasso_synthetic
from dcgs.front import Checkpoint, Result, minimize
from dcgs.methods import DCGS
from dcgs.runtime import Lockstep
from dcgs.schedules import Theorem1
from dcgs.sets import L1Ball

AGENTS = 10


def threads_speedup(
    samples: int, features: int, threads: int, repeats: int, seed: int
) -> list[dict[str, Any]]:
    """Run DCGS on a dense Lasso with one thread and with several, in turns; compare medians and bits."""
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


def checkpoint_share(
    samples: int, features: int, iterations: int, every: int, seed: int
) -> list[dict[str, Any]]:
    """Run FastDCGS on a dense Lasso with checkpoints, then resume it from the last checkpoint but one.

    Checkpoints are timed inside the run, with the fingerprint of the data. The difference between two runs
    would mostly be noise. ``bytes`` are those of one checkpoint of all agents.
    """
    objectives = lasso_synthetic(samples, features, seed=seed).objectives(AGENTS)
    X, graph = L1Ball(features, radius=1e3), nx.cycle_graph(AGENTS)

    def run(checkpoint: Checkpoint) -> Result:
        return minimize(objectives, X, graph, iterations=iterations, every=0, checkpoint=checkpoint)

    with tempfile.TemporaryDirectory() as folder:
        result = run(Checkpoint(folder, every))
        newest = [Checkpoint(folder).file(i, iterations) for i in range(AGENTS)]
        size = sum(path.stat().st_size for path in newest)
        for path in newest:
            path.unlink()
        resumed = run(Checkpoint(folder, every, resume=True))
    writing = result.about["checkpoint"]["seconds"]
    return [
        {
            "case": f"FastDCGS on a Lasso of {samples}×{features}, {AGENTS} agents",
            "every": every,
            "iterations": iterations,
            "seconds": result.seconds,
            "writing": writing,
            "bytes": size,
            "equal": bool(np.array_equal(result.agents, resumed.agents)),
            "share": writing / (result.seconds + writing),
        }
    ]
