"""
3. A researcher with a new method
=================================

You have an idea for a decentralized method. This tutorial writes it in twenty lines, checks it, compares
it with the others on honest measures, runs it on twenty problems, and makes it ready for checkpoints and
clusters.

You need ``pip install 'dcgs[plot,frame]'``.
"""

from dataclasses import dataclass

import matplotlib.pyplot as plt
import networkx as nx

import dcgs
from dcgs.datasets import lasso_synthetic

# %%
# The problem
# -----------
#
# Agent i has private data, hence a private function fᵢ. All agents want one x in X with a small f(x) = Σ
# fᵢ(x). An agent can ask for the gradient of its own fᵢ, for a linear minimization over X, and for one
# message from each neighbor in each round.

data = lasso_synthetic(samples=120, features=300, nonzeros=8)
objectives = data.objectives(8)
X = dcgs.L1Ball(300, radius=float(abs(data.truth).sum()))
graph = nx.cycle_graph(8)

# %%
# The idea
# --------
#
# Average the model with the neighbors, then take a Frank–Wolfe step along the gradient of the own data. A
# method is a class with the settings, and a generator that is the program of *one* agent. A ``yield`` is
# one round: ``dcgs.average`` sends x to the neighbors and returns the weighted average of what they sent.


@dataclass
class State:
    """All that the next iteration depends on."""

    x: dcgs.Point


@dataclass(frozen=True)
class LocalFW(dcgs.Method):
    """Average with the neighbors, then a Frank–Wolfe step on the own data."""

    shift: float = 2.0
    State = State

    def incompatibility(self, objectives, X):
        """Return why it cannot work, or None."""
        return None

    def program(self, agent):
        """Return the program of one agent."""
        at = agent.restore(State) or State(agent.x0)
        for k in agent.iterations_left:
            x = yield from dcgs.average(at.x, agent.metropolis)
            s = agent.lmo(agent.f.grad(x), None)
            at.x = x + self.shift / (k + self.shift) * (s.dense() - x)
            agent.observe(k, at.x)
            agent.save(k, at)
        return at.x


# %%
# The loop has no timing, no counting and no plotting. Whoever runs it does that.

mine = dcgs.minimize(objectives, X, graph, LocalFW(), rounds=200)
print(mine.status, mine.rounds, "rounds,", mine.lmo_calls.max(), "oracle calls of any agent")

# %%
# Is it any good? Look at the honest measures
# -------------------------------------------
#
# ``worst_loss`` is what the worst agent's model is worth on everyone's data. ``gap`` certifies the network
# average. ``disagreement`` is how far the models are apart.

mine.history.plot()

# %%
# The loss stops far above zero, and the agents do not agree: each step follows the own data only, and the
# average with two neighbors cannot repair that. The paper's loss Σ fᵢ(xᵢ) would not have told you. So dcgs
# does not draw it alone.
#
# The second idea
# ---------------
#
# Track the average gradient: g starts as the own gradient, is averaged with the neighbors, and follows the
# change of the own gradient. The step is then along the gradient of everyone's data.


@dataclass(frozen=True)
class TrackedFW(dcgs.Method):
    """Frank–Wolfe steps along a tracked average gradient; x and g travel in one message."""

    shift: float = 2.0

    def incompatibility(self, objectives, X):
        """Return why it cannot work, or None."""
        return None

    def program(self, agent):
        """Return the program of one agent."""
        x, W = agent.x0, agent.metropolis
        grad = agent.f.grad(x)
        g = grad
        for k in agent.iterations_left:
            s = agent.lmo(g, None)
            x = x + self.shift / (k + self.shift) * (s.dense() - x)
            inbox = yield x, g
            rest = 1.0 - sum(W.values())
            x, g = rest * x, rest * g
            for j, (x_j, g_j) in inbox.items():
                x, g = x + W[j] * x_j, g + W[j] * g_j
            grad_prev, grad = grad, agent.f.grad(x)
            g = g + grad - grad_prev
            agent.observe(k, x)
        return x


# %%
# Compare
# -------
#
# f* comes from one agent that has all data, to a certified gap. :func:`dcgs.compare` takes the runs by name.

pooled = dcgs.minimize(data.objectives(1), X, nx.empty_graph(1), gap=1e-7)
results = {
    "LocalFW": mine,
    "TrackedFW": dcgs.minimize(objectives, X, graph, TrackedFW(), rounds=200),
    "DFW": dcgs.minimize(objectives, X, graph, dcgs.DFW(), rounds=200),
    "FastDCGS": dcgs.minimize(objectives, X, graph, dcgs.FastDCGS(), rounds=200),
}
comparison = dcgs.compare(results, optimum=float(pooled.history.mean_loss[-1]))
comparison.plot("rounds")

# %%
# TrackedFW sends x and g in one round, where DFW takes two rounds. Against bytes they are closer:

comparison.plot("bytes")
plt.show()

# %%
# The same numbers as a tidy table, for your own figures:

print(
    comparison.frame.groupby("run", sort=False)[["rounds", "bytes", "relative", "gap", "disagreement"]].last()
)

# %%
# More problems, from a file
# --------------------------
#
# One problem proves little. Put the class in a file, ``study.py``, and perhaps a function that makes a
# problem of your own:
#
# .. code-block:: python
#
#     def plants(seed):
#         """Least squares of three plants on a path."""
#         rng = np.random.default_rng(seed)
#         draw = rng.standard_normal
#         objectives = [dcgs.LeastSquares(draw((8, 5)), draw(8)) for _ in range(3)]
#         return objectives, dcgs.L1Ball(5, radius=0.5), nx.path_graph(3)
#
# Then run it beside all others, on the small table or on the whole one:
#
# .. code-block:: text
#
#     dcgs bench rounds --quick --method study.py:TrackedFW --instance study.py:plants
#     dcgs bench rounds --method study.py:TrackedFW
#
# Every run is recorded, and is not repeated by the next command. ``rounds.md`` and ``profile.png`` are the
# result.
#
# What comes for free
# -------------------
#
# * **MPI.** ``dcgs.minimize(..., runtime=dcgs.MPI())`` runs the same class with one process for each agent,
#   to the same bits.
# * **Checkpoints.** LocalFW declares its ``State`` and saves it, so that a run can be resumed. TrackedFW
#   does not, and cannot.
# * **The command line.** ``dcgs fit lasso … --method study.py:TrackedFW --rounds 500``.
#
# Before you publish, test a method against a version with the Laplacian as a matrix. The page on
# contributing shows how the methods of dcgs are tested.
