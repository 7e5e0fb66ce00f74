"""
Which graph? Rounds and bytes on six of them
============================================

The same data on the same 12 agents, which are connected in six ways.
"""

import matplotlib.pyplot as plt
import networkx as nx

import dcgs
from dcgs.datasets import lasso_synthetic

AGENTS = 12
data = lasso_synthetic(samples=120, features=200, nonzeros=6)
X = dcgs.L1Ball(200, radius=float(abs(data.truth).sum()))
graphs = {
    "path": nx.path_graph(AGENTS),
    "cycle": nx.cycle_graph(AGENTS),
    "grid": nx.convert_node_labels_to_integers(nx.grid_2d_graph(3, 4)),
    "random": nx.connected_watts_strogatz_graph(AGENTS, 4, 0.4, seed=1),
    "star": nx.star_graph(AGENTS - 1),
    "complete": nx.complete_graph(AGENTS),
}
results = {
    name: dcgs.minimize(data.objectives(AGENTS), X, graph, gap=1e-2, every=0)
    for name, graph in graphs.items()
}

# %%
# Long ways between agents take many rounds. An agent that is a neighbor of all others (star, complete) makes
# sums over the network cheap.

figure = plt.figure(figsize=(9, 5.2), layout="constrained")
drawings, bars = figure.subfigures(2, 1, squeeze=False, height_ratios=(1, 1.2))[:, 0]
for axes, (name, graph) in zip(drawings.subplots(1, len(graphs)), graphs.items(), strict=True):
    place = nx.spring_layout(graph, seed=3) if name in ("grid", "random") else nx.circular_layout(graph)
    nx.draw(graph, place, ax=axes, node_size=12, width=0.5, node_color="#0072B2")
    axes.set_title(name, fontsize=9)
left, right = bars.subplots(1, 2)
left.bar(list(graphs), [result.rounds for result in results.values()], color="#0072B2")
left.set_title("rounds to a certified gap of 1e-2", fontsize=9)
right.bar(list(graphs), [result.bytes.sum() / 1e6 for result in results.values()], color="#D55E00")
right.set_title("megabytes sent by all agents", fontsize=9)
for axes in (left, right):
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, axis="y")
plt.show()
