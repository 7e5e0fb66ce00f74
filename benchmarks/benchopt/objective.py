"""The objective: what the agents' models are worth on everyone's data."""

import networkx as nx
import numpy as np
from benchopt import BaseObjective

import dcgs
from dcgs.run.measuring import certify

GRAPHS = {
    "cycle": nx.cycle_graph,
    "path": nx.path_graph,
    "star": lambda agents: nx.star_graph(agents - 1),
    "complete": nx.complete_graph,
}


class Objective(BaseObjective):
    """maxᵢ f(xᵢ) / f(x⁰), f = Σ fᵢ, over x in X; benchopt takes large numbers for divergence."""

    name = "Decentralized"
    url = "https://benchopt.github.io"
    min_benchopt_version = "1.7"
    requirements = ("pip::dcgs",)
    parameters = {"graph": ["cycle"]}

    def set_data(self, objectives: list[dcgs.Objective], X: dcgs.ConvexSet | None, missing: str = "") -> None:
        """Take the problem of a data set."""
        self.objectives, self.X = objectives, X

    def skip(
        self, objectives: list[dcgs.Objective], X: dcgs.ConvexSet | None, missing: str = ""
    ) -> tuple[bool, str]:
        """Skip a data set whose files are not here."""
        return bool(missing), missing

    def get_objective(self) -> dict[str, object]:
        """Return what a solver gets."""
        return {"objectives": self.objectives, "X": self.X, "graph": GRAPHS[self.graph](len(self.objectives))}

    def evaluate_result(self, models: list[np.ndarray], spent: dict[str, int]) -> dict[str, float]:
        """Measure the models of all agents on the data of all agents."""
        losses = np.array([[f.value(x) for x in models] for f in self.objectives])  # losses[i, j] = fᵢ(xⱼ)
        worst, x_bar = float(losses.sum(axis=0).max()), np.mean(models, axis=0)
        mean_loss, gap = certify(self.objectives, self.X, x_bar)
        return {
            "value": worst / sum(f.value(self.X.start()) for f in self.objectives),
            "worst_loss": worst,
            "local_loss": float(np.trace(losses)),
            "mean_loss": mean_loss,
            "gap": gap,
            "disagreement": max(float(np.linalg.norm(x - x_bar)) for x in models),
            **spent,
        }

    def get_one_result(self) -> dict[str, object]:
        """Return a result for benchopt's own tests: all agents at the start."""
        counted = dict.fromkeys(("rounds", "bytes", "lmo_calls", "projections"), 0)
        return {"models": [self.X.start()] * len(self.objectives), "spent": counted}

    def save_final_results(self, models: list[np.ndarray], spent: dict[str, int]) -> np.ndarray:
        """Keep the network average."""
        return np.mean(models, axis=0)
