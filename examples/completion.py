"""
Complete a matrix of which nobody has a row
===========================================

Ten agents each observe a tenth of the known entries of a matrix, and keep them private. Together they find
the whole matrix, as factors of low rank.

``python examples/completion.py FOLDER`` writes FOLDER/completion.png; without a folder the figure is shown.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import networkx as nx
import numpy as np

import dcgs
from dcgs.datasets import completion_synthetic

# %%
# A 60 × 60 matrix of rank 3, of which 1500 noisy entries are known.

data = completion_synthetic(side=60, rank=3, entries=1500)
X = dcgs.NuclearNormBall((60, 60), radius=float(np.linalg.norm(data.truth, "nuc")))
result = dcgs.minimize(data.objectives(10), X, nx.cycle_graph(10), gap=1e-3)
print(result.status)
print(f"rank {result.x.rank} after {result.rounds} rounds, {result.bytes.max():,} bytes of any agent")

# %%
# What one agent knew, what all found, and what is true.

known = np.full((60, 60), np.nan)
one = data.take(np.arange(150))
known[one.rows, one.cols] = one.values
found = np.asarray(result.x)
figure, panels = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")
span = float(abs(data.truth).max())
titles = ("entries of one agent", "found by all", "the truth")
for axes, matrix, title in zip(panels, (known, found, data.truth), titles, strict=True):
    image = axes.imshow(matrix, cmap="RdBu", vmin=-span, vmax=span)
    axes.set(title=title, xticks=[], yticks=[])
figure.colorbar(image, ax=panels, shrink=0.8)
error = np.linalg.norm(found - data.truth) / np.linalg.norm(data.truth)
print(f"relative error of all entries, known and unknown: {error:.1%}")
if len(sys.argv) > 1:
    path = Path(sys.argv[1]) / "completion.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    print(path)
else:
    plt.show()
