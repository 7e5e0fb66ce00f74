"""
Outliers at one site: the Huber loss
====================================

One of four sites has a broken sensor. Least squares follow it; the Huber loss does not.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs

rng = np.random.default_rng(0)
truth = np.array([3.0, -2.0, 0.0, 0.0, 1.0, 0.0])
parts = []
for site in range(4):
    A = rng.standard_normal((40, 6))
    b = A @ truth + 0.1 * rng.standard_normal(40)
    if site == 3:
        b[:12] += 40.0  # the broken sensor
    parts.append((A, b))

X, graph = dcgs.L1Ball(6, radius=8.0), nx.path_graph(4)
squares = dcgs.minimize([dcgs.LeastSquares(A, b) for A, b in parts], X, graph)
huber = [dcgs.Objective(dcgs.HuberLoss(b, delta=0.5), dcgs.matrix_map(A)) for A, b in parts]
robust = dcgs.minimize(huber, X, graph)

# %%
# An objective is any loss of a linear map. The guide shows how to write a loss of your own.

figure, axes = plt.subplots(figsize=(6, 3.4), layout="constrained")
place = np.arange(6)
axes.bar(place - 0.27, truth, 0.27, label="truth", color="0.6")
axes.bar(place, squares.x, 0.27, label="least squares", color="#D55E00")
axes.bar(place + 0.27, robust.x, 0.27, label="Huber loss", color="#0072B2")
axes.set(xlabel="feature", ylabel="coefficient")
axes.legend(frameon=False)
plt.show()
