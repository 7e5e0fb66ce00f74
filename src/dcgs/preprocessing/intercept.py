"""How far a free intercept can be from zero at the optimum: an interval from the data, with a proof.

Let z = ⟨a, x⟩ be the image of a row without the intercept c, and weights sum to W.

**Logistic loss.** Let π be the share of positive rows, m₊ and m₋ the mean of z over positive and negative
rows, and H the mean loss at some feasible point. By Jensen's inequality the mean loss of (x, c) is at least
π log(1 + exp(−m₊ − c)), and log(1 + exp(t)) ≥ t. At an optimum the mean loss is at most H, so that
c ≥ −m₊ − H/π, and likewise c ≤ −m₋ + H/(1 − π). With μ₊ and μ₋ the means of the columns over the two classes,
m₊ is at most the largest ⟨μ₊, x⟩ over the set, which one call of the linear oracle finds.

**Other losses** of z + c − target, such as Huber's, whose entries are least where that is 0: the best c for
given x is between the smallest and the largest target − z, and |z| ≤ ‖a‖ ‖x‖.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.points import norm
from dcgs.preprocessing.reductions import ReductionRequest, Reductions, Steps
from dcgs.preprocessing.site_data import SiteData
from dcgs.preprocessing.statistics import Statistics
from dcgs.sets.base import ConvexSet

Vector = NDArray[np.float64]

# Intervals are this much wider than their proof asks for, so that an optimum is not on the boundary.
_MARGIN = 1.0


@final
@dataclass(frozen=True, eq=False)
class LogisticBound:
    """The bound for the logistic loss: the share of positive rows and the means of both classes.

    ``mean_square`` is the mean of ‖a‖² over all rows.
    """

    share: float
    positive: Vector
    negative: Vector
    mean_square: float

    @property
    def start(self) -> float:
        """The best intercept without a model."""
        return math.log(self.share / (1.0 - self.share))

    def interval(self, X: ConvexSet) -> tuple[float, float]:
        """Return an interval that has the intercept of an optimum over X in its interior."""
        p, x = self.share, X.start()
        entropy = -p * math.log(p) - (1.0 - p) * math.log(1.0 - p)
        # At another start than zero, the loss without intercept is at most log 2 + |z| on each row.
        H = entropy if not x.any() else math.log(2.0) + norm(x) * math.sqrt(self.mean_square)
        low = -_largest(X, self.positive) - H / p
        high = _largest(X, -self.negative) + H / (1.0 - p)
        return low - _MARGIN, high + _MARGIN


@final
@dataclass(frozen=True, eq=False)
class RangeBound:
    """The bound for losses of z + c − target: the range of targets, and the largest ‖a‖."""

    low: float
    high: float
    largest_row: float
    start: float

    def interval(self, X: ConvexSet) -> tuple[float, float]:
        z = self.largest_row * (norm(X.start()) + X.diameter)
        return self.low - z - _MARGIN, self.high + z + _MARGIN


InterceptBound: TypeAlias = LogisticBound | RangeBound
"""What the data say of a free intercept; ``start`` is the best one without a model, or near it."""


def logistic_bound(sites: Mapping[int, SiteData], found: Statistics, scale: Vector) -> Steps[LogisticBound]:
    """Return the bound for labels ±1; raise if all rows of all sites have one label.

    Columns are centered, and divided by ``scale``.
    """
    positives = {i: np.where(site.targets > 0.0, site.counts, 0.0) for i, site in sites.items()}
    own = {i: [float(weights.sum()), sites[i].A.T @ weights] for i, weights in positives.items()}
    weight, sums = yield ReductionRequest("sums of the columns of one class", own)
    share = float(weight) / found.weight
    if not 0.0 < share < 1.0:
        label = "+1" if share > 0.5 else "−1"
        raise ValueError(f"the rows of all sites must have two classes; all have the label {label}.")
    positive = sums / float(weight)
    negative = (found.mean - share * positive) / (1.0 - share)
    squares = float(((found.deviation / scale) ** 2).sum())
    return LogisticBound(share, (positive - found.mean) / scale, (negative - found.mean) / scale, squares)


def range_bound(
    sites: Mapping[int, SiteData], network: Reductions, found: Statistics, scale: Vector
) -> RangeBound:
    """Return the bound from the extreme targets and the largest row."""
    own = {
        i: [[site.targets.max(), -site.targets.min(), _largest_norm(site.A, found.mean, scale)]]
        for i, site in sites.items()
    }
    (high, low, largest), *_ = (array.tolist() for array in network.max("largest target and row", own))
    return RangeBound(-low, high, largest, found.target_mean)


def _largest(X: ConvexSet, direction: Vector) -> float:
    """Return the largest ⟨direction, x⟩ over X."""
    return -X.lmo(-direction.reshape(X.shape)).dot(-direction.reshape(X.shape))


def _largest_norm(A: Any, mean: Vector, scale: Vector) -> float:
    """Return a bound of the largest ‖a‖ over the rows of A, centered and scaled."""
    if not sp.issparse(A):
        return float(np.sqrt(np.square((A - mean) / scale).sum(axis=1)).max())
    scaled = A @ sp.diags_array(1.0 / scale)
    return float(np.sqrt(scaled.power(2).sum(axis=1)).max()) + norm(mean / scale)
