"""The paper's matrix of low rank, smaller."""

import numpy as np
from benchopt import BaseDataset

import dcgs
from dcgs.datasets import completion_synthetic


class Dataset(BaseDataset):
    """Matrix completion over a nuclear-norm ball."""

    name = "completion"
    requirements = ("pip::dcgs",)
    parameters = {"agents": [10], "side, entries": [(60, 1500)], "seed": [0]}

    def get_data(self) -> dict[str, object]:
        """Return the agents' objectives, and the set."""
        data = completion_synthetic(side=self.side, rank=3, entries=self.entries, seed=self.seed)
        X = dcgs.NuclearNormBall((self.side, self.side), radius=float(np.linalg.norm(data.truth, "nuc")))
        return {"objectives": data.objectives(self.agents), "X": X}
