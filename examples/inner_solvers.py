"""
Oracle calls of the inner solvers
=================================

DCGS solves a subproblem in every iteration. The solver is a choice: conditional gradient steps (``CG``),
pairwise steps (``PCG``), or all weights at once (``Corrective``).
"""

import matplotlib.pyplot as plt
import networkx as nx

import dcgs
from dcgs.datasets import lasso_synthetic

data = lasso_synthetic(samples=80, features=200, nonzeros=6)
X, graph = dcgs.L1Ball(200, radius=float(abs(data.truth).sum())), nx.cycle_graph(4)
schedule = dcgs.Theorem1(balance=10.0, distance=float((data.truth @ data.truth) ** 0.5))
solvers = {"CG": dcgs.CG(max_steps=300), "PCG": dcgs.PCG(), "Corrective": dcgs.Corrective()}
results = {}
for name, solver in solvers.items():
    method = dcgs.DCGS(inner=solver, schedule=schedule, answer="last")
    results[name] = dcgs.minimize(data.objectives(4), X, graph, method, iterations=25)

# %%
# The three agree in rounds, because each solves the same subproblems. They differ in what it takes.

dcgs.compare(results).plot("lmo_calls")
plt.show()
