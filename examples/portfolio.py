"""
A portfolio on the simplex
==========================

Three desks have seen the returns of twenty stocks in different years, and do not show them to each other.
They choose shares that sum to one, with the least variance around a wanted return, together.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs

rng = np.random.default_rng(4)
market = rng.standard_normal((750, 1)) * 0.01
volatility = np.linspace(0.004, 0.03, 20)
returns = market * rng.uniform(0.2, 1.5, 20) + rng.standard_normal((750, 20)) * volatility + 0.0004
years = np.array_split(returns, 3)

# %%
# Σ (returnₜ · x − wanted)² over all days, x ≥ 0 and Σ xⱼ = 1. The set is the simplex.

wanted = 0.0005
desks = [dcgs.LeastSquares(each, np.full(len(each), wanted)) for each in years]
X = dcgs.Simplex(20)
result = dcgs.minimize(desks, X, nx.complete_graph(3), gap=1e-4)
alone = [dcgs.minimize([desk], X, nx.empty_graph(1), gap=1e-4).x for desk in desks]

figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for i, x in enumerate(alone):
    axes.plot(x, ".", alpha=0.7, label=f"desk {i} alone")
axes.bar(np.arange(20), result.x, color="#0072B2", alpha=0.5, label="together")
axes.set(xlabel="stock, from calm to wild", ylabel="share", xticks=range(0, 20, 2))
axes.legend(frameon=False)
plt.show()
