"""
How large a radius?
===================

The radius decides how many features a model has. Every site holds some rows out, and judges the models of
several radii on them. Only the errors are summed, no rows are sent.
"""

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs

rng = np.random.default_rng(2)
truth = np.zeros(120)
truth[rng.choice(120, 6, replace=False)] = rng.choice((-1.0, 1.0), 6)
train, held_out = [], []
for _ in range(5):
    A = rng.standard_normal((40, 120))
    b = A @ truth + rng.standard_normal(40)
    train.append(dcgs.LeastSquares(A[:30], b[:30]))
    held_out.append(dcgs.LeastSquares(A[30:], b[30:]))

# %%
# Each radius starts from the model of the one before.

radii = np.geomspace(0.5, 20.0, 12)
x, errors, features = None, [], []
for radius in radii:
    run = dcgs.minimize(train, dcgs.L1Ball(120, radius), nx.cycle_graph(5), x0=x, gap_abs=1.0, every=0)
    x = run.x
    errors.append(sum(site.value(x) for site in held_out) / 50)
    features.append(int((abs(x) > 1e-3).sum()))
best = int(np.argmin(errors))

figure, (above, below) = plt.subplots(2, 1, figsize=(6.4, 4.6), sharex=True, layout="constrained")
above.semilogx(radii, errors, "o-", color="#0072B2")
above.axvline(radii[best], color="0.6", linestyle=":")
above.set_ylabel("mean squared error\non rows held out")
below.semilogx(radii, features, "s-", color="#D55E00")
below.axvline(radii[best], color="0.6", linestyle=":")
below.set(xlabel="radius", ylabel="features in the model")
figure.suptitle(
    f"best radius {radii[best]:.2g}; the truth has {abs(truth).sum():.2g} and 6 features", fontsize=10
)
plt.show()
