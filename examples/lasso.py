"""A small Lasso on ten agents: the paper's method, with two choices of η, and its baseline.

Run it with ``python examples/lasso.py [FOLDER]``; it writes FOLDER/lasso.png (default: out/).
"""

import sys
from pathlib import Path

import networkx as nx
from rich.console import Console

import dcgs
from dcgs.datasets import lasso_synthetic
from dcgs.report import Progress, measures_table
from dcgs.report.figures import losses_figure, save

AGENTS = 10


def main(folder: Path) -> None:
    console = Console()
    console.print("Lasso, 400 samples × 2000 features, spread over 10 agents on a cycle.")
    data = lasso_synthetic(samples=400, features=2000, nonzeros=20)
    X = dcgs.L1Ball(2000, radius=float(abs(data.truth).sum()))

    # f*, for comparison: the certified optimum of one agent that has all the data.
    pooled = dcgs.minimize(data.objectives(1), X, nx.empty_graph(1), dcgs.DCGS(answer="last"), gap=1e-9)
    optimum = float(pooled.history.mean_loss[-1])

    # ‖x⁰ − x*‖ is 100 by construction. Without this argument DCGS uses the diameter of X, which is larger.
    theorem = dcgs.Theorem1(distance=100.0)
    scaled = dcgs.Theorem1(distance=100.0, balance=10.0)
    methods: dict[str, tuple[dcgs.Method, int]] = {
        "DCGS, Theorem 1": (dcgs.DCGS(schedule=theorem), 30),
        "DCGS, η × 10, last": (dcgs.DCGS(schedule=scaled, answer="last"), 100),
        "DFW": (dcgs.DFW(), 400),
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
    console.print(measures_table(results, title=f"At the end of each run; f* = {optimum:.4g}"))
    console.print("local_loss is the paper's: each agent's model on its own data.")
    console.print("worst_loss is what the worst agent's model is worth on everyone's data.")
    figure = losses_figure(results, "Lasso on ten agents: fitting one's own data is not agreeing", optimum)
    console.print(f"picture: {save(figure, folder / 'lasso.png')}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "out"))
