"""
Links that lose messages
========================

:class:`dcgs.Faults` loses messages at random. Each agent keeps the last message of every neighbor, so that
FastDCGS still converges, in somewhat more rounds.
"""

import matplotlib.pyplot as plt
import networkx as nx

import dcgs
from dcgs.datasets import lasso_synthetic

data = lasso_synthetic(samples=120, features=300, nonzeros=8)
X, graph = dcgs.L1Ball(300, radius=float(abs(data.truth).sum())), nx.cycle_graph(6)
pooled = dcgs.minimize(data.objectives(1), X, nx.empty_graph(1), gap=1e-7)

results = {}
for share in (0.0, 0.1, 0.3):
    runtime = dcgs.Lockstep(faults=dcgs.Faults(loss=share, seed=1)) if share else dcgs.Lockstep()
    results[f"{share:.0%} lost"] = dcgs.minimize(
        data.objectives(6), X, graph, dcgs.FastDCGS(form="edges"), rounds=120, runtime=runtime
    )

# %%
# Faults are drawn from a seed. The same seed gives the same run.

dcgs.compare(results, optimum=float(pooled.history.mean_loss[-1])).plot(y=("relative", "disagreement"))
plt.show()
