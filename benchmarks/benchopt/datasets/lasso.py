"""The paper's Lasso, smaller."""

from benchopt import BaseDataset

import dcgs
from dcgs.datasets import lasso_synthetic


class Dataset(BaseDataset):
    """Least squares over an ℓ₁ ball."""

    name = "lasso"
    requirements = ("pip::dcgs",)
    parameters = {"agents": [10], "samples, features": [(400, 2000)], "seed": [0]}

    def get_data(self) -> dict[str, object]:
        """Return the agents' objectives, and the set."""
        data = lasso_synthetic(samples=self.samples, features=self.features, nonzeros=20, seed=self.seed)
        X = dcgs.L1Ball(self.features, radius=float(abs(data.truth).sum()))
        return {"objectives": data.objectives(self.agents), "X": X}
