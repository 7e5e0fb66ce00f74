"""The paper's synthetic data, made from a seed."""

from __future__ import annotations

import numpy as np

from dcgs.datasets.base import Kind, Ratings, Regression, Source
from dcgs.validation import COUNT, NOT_NEGATIVE, SEED, SHAPE, whole


def lasso_synthetic(
    samples: int = 2000, features: int = 10_000, nonzeros: int = 100, *, noise: float = 1.0, seed: int = 0
) -> Regression:
    """Return the paper's synthetic Lasso: rows N(0, I), a sparse truth of norm 100, N(0, noise²) added.

    >>> lasso_synthetic(20, 50, 5).A.shape
    (20, 50)
    """
    samples, features = COUNT(samples, "samples"), COUNT(features, "features")
    SHAPE((samples, features), "the shape (samples, features)")
    nonzeros = whole(1, features, "the features")(nonzeros, "nonzeros")
    NOT_NEGATIVE(noise, "noise")
    rng = np.random.default_rng(SEED(seed, "seed"))
    A = rng.standard_normal((samples, features))
    truth = np.zeros(features)
    truth[rng.choice(features, nonzeros, replace=False)] = rng.standard_normal(nonzeros)
    truth *= 100.0 / np.linalg.norm(truth)
    source = Source("synthetic Lasso", Kind.SYNTHETIC, seed=seed)
    return Regression(A, A @ truth + noise * rng.standard_normal(samples), source, truth)


def completion_synthetic(
    side: int = 200, rank: int = 5, entries: int = 5000, *, noise: float = 0.1, seed: int = 0
) -> Ratings:
    """Return the paper's synthetic completion: entries of a side × side matrix of low rank, with noise.

    The paper gives N(0, 0.1) without saying whether that is the variance; here it is the variance.
    The factors are standard normal, which the paper leaves open.

    >>> completion_synthetic(20, 2, 50).values.shape
    (50,)
    """
    side, _ = SHAPE((side, side), "the shape (side, side)")
    rank = whole(1, side, "the side")(rank, "rank")
    entries = whole(1, side * side, "as there are")(entries, "entries")
    NOT_NEGATIVE(noise, "noise")
    rng = np.random.default_rng(SEED(seed, "seed"))
    truth = rng.standard_normal((side, rank)) @ rng.standard_normal((rank, side))
    rows, cols = np.divmod(rng.choice(side * side, entries, replace=False), side)
    values = truth[rows, cols] + np.sqrt(noise) * rng.standard_normal(entries)
    source = Source("synthetic completion", Kind.SYNTHETIC, seed=seed)
    return Ratings(rows, cols, values, (side, side), source, truth)
