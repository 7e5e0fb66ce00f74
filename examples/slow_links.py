"""
How long over slow links?
=========================

Rounds and bytes are counted, and so is the time that agents compute. So the time over links of any speed
can be told after one run: computing, and bytes divided by the speed.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs
from dcgs.datasets import lasso_synthetic

data = lasso_synthetic(samples=120, features=500, nonzeros=8)
X, graph = dcgs.L1Ball(500, radius=float(abs(data.truth).sum())), nx.cycle_graph(6)
methods = {"FastDCGS": dcgs.FastDCGS(), "NIDS": dcgs.NIDS(), "DFW": dcgs.DFW()}
results = {
    name: dcgs.minimize(data.objectives(6), X, graph, method, rounds=100) for name, method in methods.items()
}
comparison = dcgs.compare(results)

# %%
# Three links: a data center, an office, a satellite. Each round also waits for the delay of the link once.

links = {"1 GB/s, 0.1 ms": (1e9, 1e-4), "1 MB/s, 20 ms": (1e6, 0.02), "10 kB/s, 600 ms": (1e4, 0.6)}
figure, panels = plt.subplots(1, 3, figsize=(9.5, 3.2), sharey=True, layout="constrained")
for axes, (title, (speed, delay)) in zip(panels, links.items(), strict=True):
    for name, run in comparison.frame.groupby("run", sort=False):
        seconds = run.computing + run.bytes / speed + run.rounds * delay
        axes.semilogy(seconds, np.maximum(run.relative, 1e-9), label=name)
    axes.set(title=title, xlabel="seconds")
    axes.grid(alpha=0.25)
panels[0].set_ylabel("relative error of the worst agent")
panels[0].legend(frameon=False)
plt.show()
