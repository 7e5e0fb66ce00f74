"""Counts, means and deviations of columns over all sites, and the mean of targets, by network sums."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.points import EPS
from dcgs.preprocessing.reductions import ReductionRequest, Reductions, Steps
from dcgs.preprocessing.site_data import SiteData

Vector = NDArray[np.float64]

# A deviation below this multiple of the rounding error of the mean is that of a constant column.
_ROUNDING = 32.0
# So many columns that differ are named.
_TOLD = 5


@final
@dataclass(frozen=True, eq=False)
class Statistics:
    """What all sites know of the columns and the targets of all rows, each row counted by its weight.

    ``rows`` counts rows of positive weight, and ``weight`` adds up weights. ``deviation`` is the root of the
    mean squared difference from ``mean``; it is exactly 0 for a constant column. ``sparse`` is True if a site
    stores its features sparse.
    """

    rows: int
    weight: float
    mean: Vector
    deviation: Vector
    target_mean: float
    sparse: bool

    @property
    def constant(self) -> NDArray[np.intp]:
        """The numbers of the columns that have the same value in all rows."""
        return np.flatnonzero(self.deviation == 0.0)

    @property
    def scale(self) -> Vector:
        """What standardization divides by: the deviation, and 1 for a constant column."""
        return np.where(self.deviation > 0.0, self.deviation, 1.0)


def statistics(sites: Mapping[int, SiteData], network: Reductions) -> Statistics:
    """Return the statistics of all rows of all sites, by two network sums.

    The first adds up counts and values. The second adds up squared differences from the mean, so that no
    accuracy is lost where a deviation is small beside a mean. Sparse data are not filled in.

    >>> import networkx as nx
    >>> sites = {0: SiteData([[1.0], [3.0]], [0.0, 1.0]), 1: SiteData([[5.0], [7.0]], [1.0, 2.0])}
    >>> found = statistics(sites, Reductions(nx.path_graph(2)))
    >>> found.rows, found.mean, found.deviation.round(3), found.target_mean
    (4, array([4.]), array([2.236]), 1.0)
    """
    return network.run(statistics_steps(sites, network))[0]


def statistics_steps(sites: Mapping[int, SiteData], network: Reductions) -> Steps[Statistics]:
    """Find the statistics by sums that other programs may share."""
    sparse = yield from check_columns(sites, network)
    first = {i: _sums(site) for i, site in sites.items()}
    counts, sums = yield ReductionRequest("counts, and sums of columns and targets", first)
    rows, weight = float(counts[0]), float(counts[1])
    if weight <= 0.0:
        raise ValueError("the weights of all rows of all sites must have a positive sum; it is 0.")
    mean, target_mean = sums[:-1] / weight, float(sums[-1] / weight)
    second = {i: [_column_squares(site.A, site.counts, mean)] for i, site in sites.items()}
    (squares,) = yield ReductionRequest("squared differences from the means", second)
    deviation = np.sqrt(squares / weight)
    deviation[deviation <= _ROUNDING * EPS * np.abs(mean)] = 0.0
    return Statistics(int(rows), weight, mean, deviation, target_mean, sparse)


def check_columns(sites: Mapping[int, SiteData], network: Reductions) -> Steps[bool]:
    """Return whether a site has sparse features; raise unless all have rows, and the same columns."""
    own = {}
    for i, site in sites.items():
        names, width = _digest(site.columns), float(site.features)
        own[i] = [[width, -width, names, -names, -float(site.is_sparse), float(site.A.shape[0])]]
    (found,) = yield ReductionRequest("numbers of columns and rows", own, "min")
    least, most, names, other_names, dense, rows = found.tolist()
    if least != -most:
        texts = {i: [f"{_name(i, site)} has {site.features}"] for i, site in sites.items()}
        told = ", ".join(network.union("which site has how many columns", texts))
        raise ValueError(f"all sites must have the same columns; {told}.")
    if names != -other_names:
        listed = {i: [json.dumps([_name(i, site), site.columns])] for i, site in sites.items()}
        named = [json.loads(text) for text in network.union("names of columns", listed)]
        raise ValueError(f"all sites must have the same columns in the same order; {_differences(named)}")
    if rows == 0.0:
        empty = {i: [_name(i, site)] if site.A.shape[0] == 0 else [] for i, site in sites.items()}
        without = ", ".join(network.union("sites without rows", empty))
        raise ValueError(f"every site must have rows; there are none at {without}. Leave it out.")
    return bool(dense < 0.0)


def _name(i: int, site: SiteData) -> str:
    return site.name or f"site {i}"


def _digest(columns: Sequence[str] | None) -> float:
    """Return a whole number that is another one for other names, or for another order; 0 without names."""
    if columns is None:
        return 0.0
    return float(int.from_bytes(blake2b(json.dumps(columns).encode(), digest_size=6).digest()))


def _differences(named: Sequence[tuple[str, Sequence[str] | None]]) -> str:
    """Return where the columns of sites differ from those of the first, given sites with their columns."""
    without = [site for site, columns in named if columns is None]
    if without:
        return f"there are no names of columns at {', '.join(without)}. Give all sites data frames, or none."
    (first, columns), *others = ((site, columns or ()) for site, columns in named)
    parts = []
    for site, other in others:
        pairs = [(a, b) for a, b in zip(columns, other, strict=True) if a != b]
        if pairs:
            here, there = (", ".join(map(repr, names[:_TOLD])) for names in zip(*pairs, strict=True))
            more = f", and {len(pairs) - _TOLD} more differ" if len(pairs) > _TOLD else ""
            parts.append(f"{site} has {there} where {first} has {here}{more}")
    return f"{'; '.join(parts)}. Give X its columns in one order at all sites, such as X[sorted(X)]."


def _sums(site: SiteData) -> list[Any]:
    weights = site.counts
    count = [float(np.count_nonzero(weights)), float(weights.sum())]
    return [count, np.append(site.A.T @ weights, site.targets @ weights)]


def _column_squares(A: Any, weights: Vector, mean: Vector) -> Vector:
    """Return Σ wᵢ (aᵢⱼ − μⱼ)² for each column; entries that are not stored count as 0."""
    if not sp.issparse(A):
        return np.asarray(weights @ (A - mean) ** 2)
    d, total = A.shape[1], float(weights.sum())
    row_weights = np.repeat(weights, np.diff(A.indptr))
    stored = np.bincount(A.indices, weights=row_weights * (A.data - mean[A.indices]) ** 2, minlength=d)
    weight_stored = np.bincount(A.indices, weights=row_weights, minlength=d)
    return np.asarray(stored + np.maximum(total - weight_stored, 0.0) * mean**2)
