"""Data sets: their numbers, their source, how they are split over agents, and the errors of their files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise
from typing import TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from dcgs.objectives import LeastSquares, MatrixCompletion, Objective
from dcgs.validation import SEED, number, whole

Matrix: TypeAlias = NDArray[np.float64] | sparse.csr_array
"""A dense or a sparse matrix of samples, one a row."""


@final
class DataNotFoundError(FileNotFoundError):
    """A data set, or a file of it, does not exist or cannot be read."""


@final
class BrokenDataError(ValueError):
    """The content of a file is not what it must be."""


@final
class DownloadError(OSError):
    """A file could not be downloaded; nothing of it was saved."""


class SourceKind(Enum):
    """Whether data are real or made; ``str(kind)`` is a phrase for reports."""

    REAL = "real data"
    SYNTHETIC = "synthetic data"
    LOOKALIKE = "a look-alike made from a seed, not the real data"

    def __str__(self) -> str:
        return self.value


@final
@dataclass(frozen=True)
class Source:
    """The origin of a data set; ``files`` has the SHA-256 of every file that was read."""

    name: str
    kind: SourceKind
    files: Mapping[str, str] = field(default_factory=dict)
    seed: int | None = None


@final
@dataclass(frozen=True, eq=False)
class Regression:
    """A and b of ‖A x − b‖²; ``made_from`` is the x that synthetic data were made from."""

    A: Matrix
    b: NDArray[np.float64]
    source: Source
    made_from: NDArray[np.float64] | None = None

    @property
    def truth(self) -> NDArray[np.float64]:
        """The x that the data were made from; real data have none."""
        return _known(self.made_from, self.source)

    def sample(self, count: int, seed: int = 0) -> Regression:
        """Return ``count`` of the rows, drawn without replacement, in random order."""
        count = whole(1, len(self.b), f"the rows of {self.source.name}")(count, "count")
        chosen = np.random.default_rng(SEED(seed, "seed")).choice(len(self.b), count, replace=False)
        return replace(self, A=self.A[chosen], b=self.b[chosen])

    def parts(self, agents: int) -> list[tuple[Matrix, NDArray[np.float64]]]:
        """Return the rows in their order, in one part of about equal size per agent."""
        return [(self.A[low:high], self.b[low:high]) for low, high in cuts(len(self.b), agents)]

    def objectives(self, agents: int) -> list[Objective]:
        """Return one least-squares objective per agent."""
        return [LeastSquares(A, b) for A, b in self.parts(agents)]


@final
@dataclass(frozen=True, eq=False)
class Ratings:
    """Observed entries of a matrix; ``made_from`` is the matrix that synthetic entries were taken from."""

    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    values: NDArray[np.float64]
    shape: tuple[int, int]
    source: Source
    made_from: NDArray[np.float64] | None = None

    @property
    def truth(self) -> NDArray[np.float64]:
        """The matrix that the entries were taken from; real data have none."""
        return _known(self.made_from, self.source)

    def __len__(self) -> int:
        return len(self.values)

    def take(self, chosen: NDArray[np.intp]) -> Ratings:
        """Return the entries at these places, in this order."""
        return replace(self, rows=self.rows[chosen], cols=self.cols[chosen], values=self.values[chosen])

    def split(self, held_out: float = 0.2, seed: int = 0) -> tuple[Ratings, Ratings]:
        """Return the entries to fit and the entries held out, drawn at random."""
        number("be a fraction between 0 and 1", lambda x: 0.0 < x < 1.0)(held_out, "held_out")
        order = np.random.default_rng(SEED(seed, "seed")).permutation(len(self))
        fitted = len(self) - round(held_out * len(self))
        return self.take(order[:fitted]), self.take(order[fitted:])

    def objectives(self, agents: int) -> list[Objective]:
        """Return one completion objective per agent, with parts of about equal size in their order."""
        return [
            MatrixCompletion(self.rows[low:high], self.cols[low:high], self.values[low:high], self.shape)
            for low, high in cuts(len(self), agents)
        ]


def _known(made_from: NDArray[np.float64] | None, source: Source) -> NDArray[np.float64]:
    if made_from is None:
        raise ValueError(f"only synthetic data have a known truth; {source.name} is {source.kind}.")
    return made_from


def cuts(count: int, agents: int) -> list[tuple[int, int]]:
    """Return the first item and the end of each contiguous part; their sizes differ by at most one."""
    agents = whole(1, count, "so that each has data")(agents, "agents")
    edges = [count * i // agents for i in range(agents + 1)]
    return list(pairwise(edges))
