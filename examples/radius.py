"""
How large a radius?
===================

The radius decides how many features a model has. Every site holds some rows out, and judges the models of
several radii on them. Only the sums of the errors are sent, no rows. :func:`dcgs.path` does it.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs

rng = np.random.default_rng(2)
truth = np.zeros(60)
truth[rng.choice(60, 6, replace=False)] = rng.choice((-1.0, 1.0), 6)
train, held_out = {}, {}
for i in range(5):
    A = rng.standard_normal((30, 60))
    b = A @ truth + rng.standard_normal(30)
    train[i] = dcgs.LeastSquares(A[:20], b[:20])
    held_out[i] = dcgs.LeastSquares(A[20:], b[20:])

# %%
# Each radius starts from the model of the one before.

found = dcgs.path(dcgs.Fold(train, held_out), lambda radius: dcgs.L1Ball(60, radius), nx.cycle_graph(5))
print(found)
print(found.to_frame().round(3))

# %%
# The truth has radius 6 and 6 features.

found.plot()
plt.show()
