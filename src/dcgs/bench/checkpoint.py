"""What checkpoints cost: the share of a run's time that goes into making and writing them."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import final

import networkx as nx
import numpy as np

from dcgs.datasets import lasso_synthetic
from dcgs.front import Checkpoint, Result, minimize
from dcgs.sets import L1Ball


@final
@dataclass(frozen=True)
class Cost:
    """Seconds of a run without its checkpoints, those that checkpoints took, and the bytes of one of all.

    What they took includes the fingerprint of the data, once a run. ``equal`` says whether a run resumed from
    the last checkpoint but one ended with the same bits.
    """

    case: str
    every: int
    iterations: int
    seconds: float
    writing: float
    bytes: int
    equal: bool

    @property
    def share(self) -> float:
        """The share of the time that checkpoints take."""
        return self.writing / (self.seconds + self.writing)


@final
@dataclass(frozen=True)
class Size:
    """A dense Lasso as in the paper, and how long to run on it."""

    samples: int = 2000
    features: int = 10_000
    agents: int = 10
    iterations: int = 30


def measure(size: Size, every: int = 10, seed: int = 0) -> Cost:
    """Run FastDCGS with checkpoints, and once more from a checkpoint; time them inside the run itself.

    A difference of two runs would show little but what else the machine did in the meantime.
    """
    data = lasso_synthetic(size.samples, size.features, seed=seed)
    objectives, X = data.objectives(size.agents), L1Ball(size.features, radius=1e3)

    def run(checkpoint: Checkpoint) -> Result:
        graph = nx.cycle_graph(size.agents)
        return minimize(objectives, X, graph, iterations=size.iterations, every=0, checkpoint=checkpoint)

    with tempfile.TemporaryDirectory() as folder:
        result = run(Checkpoint(folder, every))
        newest = [Checkpoint(folder).file(i, size.iterations) for i in range(size.agents)]
        kept = sum(path.stat().st_size for path in newest)
        for path in newest:
            path.unlink()
        again = run(Checkpoint(folder, every, resume=True))
    return Cost(
        case=f"FastDCGS on a Lasso of {size.samples}×{size.features}, {size.agents} agents",
        every=every,
        iterations=size.iterations,
        seconds=result.seconds,
        writing=result.about["checkpoint"]["seconds"],
        bytes=kept,
        equal=bool(np.array_equal(result.agents, again.agents)),
    )
