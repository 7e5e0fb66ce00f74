"""Ratings of films, MovieLens 100K."""

from benchopt import BaseDataset

import dcgs
from dcgs.datasets import DataNotFoundError, movielens100k


class Dataset(BaseDataset):
    """Matrix completion of real ratings; skipped if the file is not found, and never downloaded."""

    name = "movielens"
    requirements = ("pip::dcgs",)
    parameters = {"agents": [10]}

    def get_data(self) -> dict[str, object]:
        """Return the agents' objectives and the set, or why they are missing."""
        try:
            data = movielens100k(download=False)
        except DataNotFoundError as error:
            return {"objectives": [], "X": None, "missing": str(error)}
        return {"objectives": data.objectives(self.agents), "X": dcgs.NuclearNormBall(data.shape, radius=1e4)}
