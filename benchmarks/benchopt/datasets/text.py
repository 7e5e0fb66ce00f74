"""Words of reports, made from a seed to resemble E2006."""

from benchopt import BaseDataset

import dcgs
from dcgs.datasets import e2006_lookalike


class Dataset(BaseDataset):
    """Least squares with sparse, ill-conditioned rows over an ℓ₁ ball."""

    name = "text"
    requirements = ("pip::dcgs",)
    parameters = {"agents": [10], "samples, features": [(400, 5000)], "seed": [0]}

    def get_data(self) -> dict[str, object]:
        """Return the agents' objectives, and the set."""
        data = e2006_lookalike(self.samples, self.features, seed=self.seed)
        return {"objectives": data.objectives(self.agents), "X": dcgs.L1Ball(self.features, radius=100.0)}
