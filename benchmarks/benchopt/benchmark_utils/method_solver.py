"""A solver of benchopt that runs a method of dcgs for a number of iterations."""

import networkx as nx
import numpy as np
from benchopt import BaseSolver

import dcgs


class MethodSolver(BaseSolver):
    """Run ``make()``, a method of dcgs with default settings."""

    sampling_strategy = "iteration"
    requirements = ("pip::dcgs",)

    def make(self) -> dcgs.Method:
        """Return the method."""
        raise NotImplementedError("a solver must say which method it runs.")

    def set_objective(self, objectives: list[dcgs.Objective], X: dcgs.ConvexSet, graph: nx.Graph) -> None:
        """Take the problem."""
        self.objectives, self.X, self.graph = objectives, X, graph

    def skip(
        self, objectives: list[dcgs.Objective], X: dcgs.ConvexSet, graph: nx.Graph
    ) -> tuple[bool, str | None]:
        """Skip a problem for which the method cannot be used, and say why."""
        reason = self.make().incompatibility(dict(enumerate(objectives)), X)
        return reason is not None, reason

    def run(self, n_iter: int) -> None:
        """Run this number of iterations; measure nothing on the way."""
        if n_iter == 0:
            start = self.X.start()
            self.models, self.spent = [start] * len(self.objectives), dict.fromkeys(COUNTED, 0)
            return
        run = dcgs.minimize(
            self.objectives,
            self.X,
            self.graph,
            self.make(),
            iterations=n_iter,
            every=0,
            runtime=dcgs.Lockstep(),
        )
        self.models = [np.asarray(x) for x in run.agents]
        self.spent = {"rounds": run.rounds} | {name: int(getattr(run, name).max()) for name in COUNTED[1:]}

    def get_result(self) -> dict[str, object]:
        """Return the models of all agents, and what the run took."""
        return {"models": self.models, "spent": self.spent}


COUNTED = ("rounds", "bytes", "lmo_calls", "projections")
