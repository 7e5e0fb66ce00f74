"""Data to run on. Synthetic sets are made from a seed and need nothing."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.objectives import LeastSquares, MatrixCompletion, Objective


@final
@dataclass(frozen=True, eq=False)
class Regression:
    """A and b of ‖A x − b‖², and the x they were made from."""

    A: NDArray[np.float64]
    b: NDArray[np.float64]
    truth: NDArray[np.float64]

    def parts(self, agents: int) -> list[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """Return the rows spread evenly over the agents, in their order."""
        cuts = _cuts(len(self.b), agents)
        return [(self.A[low:high], self.b[low:high]) for low, high in cuts]

    def objectives(self, agents: int) -> list[Objective]:
        """Return one least-squares objective per agent."""
        return [LeastSquares(A, b) for A, b in self.parts(agents)]


@final
@dataclass(frozen=True, eq=False)
class Ratings:
    """Observed entries of a matrix, and the matrix they were taken from."""

    rows: NDArray[np.intp]
    cols: NDArray[np.intp]
    values: NDArray[np.float64]
    truth: NDArray[np.float64]

    def objectives(self, agents: int) -> list[Objective]:
        """Return one completion objective per agent, the entries spread evenly in their order."""
        shape = (self.truth.shape[0], self.truth.shape[1])
        return [
            MatrixCompletion(self.rows[low:high], self.cols[low:high], self.values[low:high], shape)
            for low, high in _cuts(len(self.values), agents)
        ]


def lasso_synthetic(
    samples: int = 2000, features: int = 10_000, nonzeros: int = 100, *, noise: float = 1.0, seed: int = 0
) -> Regression:
    """Return the paper's synthetic Lasso: rows N(0, I), a sparse truth of norm 100, N(0, noise²) added.

    >>> lasso_synthetic(20, 50, 5).A.shape
    (20, 50)
    """
    if not 1 <= nonzeros <= features:
        raise ValueError(f"nonzeros must be between 1 and {features}, the features; got {nonzeros!r}.")
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((samples, features))
    truth = np.zeros(features)
    truth[rng.choice(features, nonzeros, replace=False)] = rng.standard_normal(nonzeros)
    truth *= 100.0 / np.linalg.norm(truth)
    return Regression(A, A @ truth + noise * rng.standard_normal(samples), truth)


def completion_synthetic(
    side: int = 200, rank: int = 5, entries: int = 5000, *, noise: float = 0.1, seed: int = 0
) -> Ratings:
    """Return the paper's synthetic completion: entries of a side × side matrix of low rank, with noise.

    The paper gives N(0, 0.1) without saying whether that is the variance; here it is the variance.
    The factors are standard normal, which the paper leaves open.

    >>> completion_synthetic(20, 2, 50).values.shape
    (50,)
    """
    if not 1 <= rank <= side:
        raise ValueError(f"rank must be between 1 and {side}, the side; got {rank!r}.")
    if not 1 <= entries <= side * side:
        raise ValueError(f"entries must be between 1 and {side * side}, those there are; got {entries!r}.")
    rng = np.random.default_rng(seed)
    truth = rng.standard_normal((side, rank)) @ rng.standard_normal((rank, side))
    rows, cols = np.divmod(rng.choice(side * side, entries, replace=False), side)
    values = truth[rows, cols] + np.sqrt(noise) * rng.standard_normal(entries)
    return Ratings(rows, cols, values, truth)


def _cuts(count: int, agents: int) -> list[tuple[int, int]]:
    """Return where to cut ``count`` items into contiguous parts that differ by at most one."""
    if not 1 <= agents <= count:
        raise ValueError(f"agents must be between 1 and {count}, so that each has data; got {agents!r}.")
    edges = [count * i // agents for i in range(agents + 1)]
    return list(pairwise(edges))
