"""
Fitting one's own data is not agreeing
======================================

A small Lasso on ten agents: the paper's method with two choices of η, its baseline, and FastDCGS. The paper
judges a run by the loss of each agent's model on its own data. That loss falls at once, while no model is
good on the data of the others.

``python examples/lasso.py FOLDER`` writes FOLDER/lasso.png; without a folder the figure is shown.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx

import dcgs
from dcgs.datasets import lasso_synthetic

# %%
# 200 samples of 800 features, spread over ten agents on a cycle.

data = lasso_synthetic(samples=200, features=800, nonzeros=10)
X = dcgs.L1Ball(800, radius=float(abs(data.truth).sum()))
graph = nx.cycle_graph(10)

# %%
# For comparison f*, the certified optimum of one agent that has all the data.

pooled = dcgs.minimize(data.objectives(1), X, nx.empty_graph(1), gap=1e-6)
optimum = float(pooled.history.mean_loss[-1])

# %%
# ‖x⁰ − x*‖ is known here. Without it, DCGS uses the diameter of X, which is larger.

distance = float((data.truth @ data.truth) ** 0.5)
methods = {
    "DCGS, Theorem 1": dcgs.DCGS(schedule=dcgs.Theorem1(distance=distance)),
    "DCGS, η × 10, last": dcgs.DCGS(schedule=dcgs.Theorem1(10.0, distance), answer="last"),
    "DFW": dcgs.DFW(),
    "FastDCGS": dcgs.FastDCGS(),
}
results = {
    name: dcgs.minimize(data.objectives(10), X, graph, method, rounds=60) for name, method in methods.items()
}

# %%
# Left: the paper's loss. Right: what the worst agent's model is worth on everyone's data.

comparison = dcgs.compare(results, optimum)
comparison.plot(y=("local_loss", "worst_loss"), title="Lasso on ten agents")
if len(sys.argv) > 1:
    print(comparison.save(Path(sys.argv[1]) / "lasso.png", y=("local_loss", "worst_loss")))
else:
    plt.show()
