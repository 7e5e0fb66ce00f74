"""The cost of checkpoints: the share of a run's time that making and writing them takes."""

from __future__ import annotations

import tempfile
from typing import Any

import networkx as nx
import numpy as np

from dcgs.datasets import lasso_synthetic
from dcgs.front import Checkpoint, Result, minimize
from dcgs.sets import L1Ball

AGENTS = 10


def measure(samples: int, features: int, iterations: int, every: int, seed: int) -> list[dict[str, Any]]:
    """Run FastDCGS on a dense Lasso with checkpoints, then resume it from the second to last checkpoint.

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
