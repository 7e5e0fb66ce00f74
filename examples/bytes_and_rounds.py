"""
The same runs against rounds and against bytes
==============================================

A method may need few rounds and large messages, or the other way around. :func:`dcgs.compare` draws both.
"""

import matplotlib.pyplot as plt
import networkx as nx

import dcgs
from dcgs.datasets import lasso_synthetic

# %%
# Five methods on one Lasso, all with their default settings.

data = lasso_synthetic(samples=150, features=500, nonzeros=10)
X, graph = dcgs.L1Ball(500, radius=float(abs(data.truth).sum())), nx.cycle_graph(8)
methods = [dcgs.FastDCGS(), dcgs.ProjectedAGD(), dcgs.NIDS(), dcgs.PGExtra(), dcgs.DFW()]
results = {
    type(method).__name__: dcgs.minimize(data.objectives(8), X, graph, method, rounds=100)
    for method in methods
}
pooled = dcgs.minimize(data.objectives(1), X, nx.empty_graph(1), gap=1e-7)
comparison = dcgs.compare(results, optimum=float(pooled.history.mean_loss[-1]))

# %%
# Against rounds.

comparison.plot("rounds")

# %%
# Against bytes of the agent that sends most. ``comparison.save("runs.pdf", x="bytes")`` writes it to a file.

comparison.plot("bytes")
plt.show()

# %%
# What each had sent when its worst model was within 1 % of the optimum, relative to the start:

for name, sent in comparison.to_accuracy(1e-2, "bytes").items():
    print(f"{name:>14}: " + ("not reached" if sent is None else f"{sent:,} bytes"))
