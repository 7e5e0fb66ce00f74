"""Matrix completion on ten agents: each agent observes a tenth of the entries and keeps them private.

Run it with ``python examples/completion.py [FOLDER]``; it writes FOLDER/completion.png (default: out/).
"""

import sys
from pathlib import Path

import networkx as nx
import numpy as np
from rich.console import Console

import dcgs
from dcgs.datasets import completion_synthetic
from dcgs.report import Progress, measures_table
from dcgs.report.figures import losses_figure, save

AGENTS = 10


def main(folder: Path) -> None:
    console = Console()
    console.print("A 60 × 60 matrix of rank 3, 1500 noisy entries spread over 10 agents on a cycle.")
    data = completion_synthetic(side=60, rank=3, entries=1500)
    X = dcgs.NuclearNormBall((60, 60), radius=float(np.linalg.norm(data.truth, "nuc")))
    scaled = dcgs.Theorem1(balance=0.1, distance=float(np.linalg.norm(data.truth)))
    methods: dict[str, tuple[dcgs.Method, int]] = {
        "DCGS, η / 10, last": (dcgs.DCGS(schedule=scaled, answer="last"), 60),
        "DFW": (dcgs.DFW(), 300),
    }
    results = {}
    with Progress(console) as progress:
        for name, (method, iterations) in methods.items():
            results[name] = dcgs.minimize(
                data.objectives(AGENTS),
                X,
                nx.cycle_graph(AGENTS),
                method,
                iterations=iterations,
                callback=progress.bar(name, iterations),
            )
    console.print(measures_table(results, title="At the end of each run"))
    size = np.linalg.norm(data.truth)
    for name, result in results.items():
        error = max(np.linalg.norm(x - data.truth) for x in result.agents) / size
        console.print(f"{name}: the worst agent's matrix is off by {error:.1%} of the true one's norm")
    figure = losses_figure(results, "Matrix completion on ten agents")
    console.print(f"picture: {save(figure, folder / 'completion.png')}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
