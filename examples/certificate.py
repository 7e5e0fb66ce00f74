"""
A certificate: how good is the model, without knowing the optimum?
==================================================================

The Wolfe gap bounds the error: f(x̄) − f* ≤ gap. The agents compute it together, so that they know when to
stop. Here f* is computed as well, to see how far the bound is from the truth.
"""

import matplotlib.pyplot as plt
import networkx as nx

import dcgs
from dcgs.datasets import lasso_synthetic

data = lasso_synthetic(samples=150, features=500, nonzeros=10)
X = dcgs.L1Ball(500, radius=0.9 * float(abs(data.truth).sum()))
pooled = dcgs.minimize(data.objectives(1), X, nx.empty_graph(1), gap=1e-8)
optimum = float(pooled.history.mean_loss[-1])
result = dcgs.minimize(data.objectives(6), X, nx.cycle_graph(6), gap=1e-5)
print(result.status)

# %%
# The true error is below the certified gap in every round. The last point is the model that was certified.
# It is some rounds older than the newest one.

history = result.history
error = history.mean_loss - optimum
figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
axes.semilogy(history.rounds, history.gap, label="gap: the certificate")
axes.semilogy(history.rounds, error, "--", label="f(x̄) − f*: the true error")
axes.fill_between(history.rounds, error, history.gap, alpha=0.1)
axes.set(xlabel="rounds of communication", title="What is certified, and what is true")
axes.legend(frameon=False)
axes.grid(alpha=0.25)
plt.show()
