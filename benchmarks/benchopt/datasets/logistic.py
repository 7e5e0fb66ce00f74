"""Sparse logistic regression; labels are sorted over the agents, so that none has a fair sample."""

import numpy as np
from benchopt import BaseDataset

import dcgs


class Dataset(BaseDataset):
    """Logistic regression over an ℓ₁ ball."""

    name = "logistic"
    requirements = ("pip::dcgs",)
    parameters = {"agents": [10], "samples, features": [(1000, 200)], "seed": [0]}

    def get_data(self) -> dict[str, object]:
        """Return the agents' objectives, and the set."""
        rng = np.random.default_rng(self.seed)
        A = rng.standard_normal((self.samples, self.features))
        truth = np.zeros(self.features)
        truth[:10] = rng.choice((-1.0, 1.0), 10)
        labels = np.where(rng.random(self.samples) < 1.0 / (1.0 + np.exp(-A @ truth)), 1.0, -1.0)
        parts = np.array_split(np.argsort(labels, kind="stable"), self.agents)
        objectives = [dcgs.Logistic(A[mine], labels[mine]) for mine in parts]
        return {"objectives": objectives, "X": dcgs.L1Ball(self.features, radius=8.0)}
