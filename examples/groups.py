"""
Whole groups of features: the group ℓ₁ ball
===========================================

Features come in groups of five, for example the levels of one category. A group ball takes a group as a
whole or leaves it out; an ℓ₁ ball takes single features.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs

rng = np.random.default_rng(1)
groups = [list(range(start, start + 5)) for start in range(0, 40, 5)]
truth = np.zeros(40)
truth[5:10], truth[25:30] = rng.uniform(0.5, 1.5, 5), -rng.uniform(0.5, 1.5, 5)
sites = []
for _ in range(4):
    A = rng.standard_normal((9, 40))
    sites.append(dcgs.LeastSquares(A, A @ truth + 1.5 * rng.standard_normal(9)))

graph = nx.cycle_graph(4)
by_group = sum(float(np.linalg.norm(truth[group])) for group in groups)
grouped = dcgs.minimize(sites, dcgs.GroupL1Ball(40, groups, radius=0.9 * by_group), graph, gap=1e-4)
single = dcgs.minimize(sites, dcgs.L1Ball(40, radius=0.9 * float(abs(truth).sum())), graph, gap=1e-4)

# %%
# Gray bands are the groups that matter.

figure, panels = plt.subplots(2, 1, figsize=(8, 4.4), sharex=True, sharey=True, layout="constrained")
for axes, result, title in zip(panels, (single, grouped), ("ℓ₁ ball", "group ℓ₁ ball"), strict=True):
    axes.axvspan(4.5, 9.5, color="0.9")
    axes.axvspan(24.5, 29.5, color="0.9")
    axes.plot(truth, "_", color="0.3", markersize=9, label="truth")
    axes.bar(np.arange(40), result.x, color="#0072B2", label="found")
    axes.set_title(title, fontsize=9)
panels[0].legend(frameon=False, loc="upper right")
panels[1].set_xlabel("feature")
plt.show()
