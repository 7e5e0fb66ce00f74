"""How far a free intercept can be from zero at the optimum: an interval from the data, with a proof.

Let z = ⟨a, x⟩ be the image of a row without the intercept c, and weights sum to W.

**Logistic loss.** Let π be the share of positive rows, m₊ and m₋ the mean of z over positive and negative
rows, and H the mean loss at some feasible point. By Jensen's inequality the mean loss of (x, c) is at least
π log(1 + exp(−m₊ − c)), and log(1 + exp(t)) ≥ t. At an optimum the mean loss is at most H, so that
c ≥ −m₊ − H/π, and likewise c ≤ −m₋ + H/(1 − π). With μ₊ and μ₋ the means of the columns over the two classes,
m₊ is at most the largest ⟨μ₊, x⟩ over the set, which one call of the linear oracle finds.

**Losses of z + c − target**, such as Huber's, whose entries are least where that is 0: the best c for given x
is between the smallest and the largest target − z, and |z| ≤ ‖a‖ ‖x‖.

**Any other loss**, such as a Poisson likelihood. Let t be the best intercept without a model: Σ wᵢ ℓᵢ′(t) is
0. The derivatives ℓᵢ′ do not decrease. If c ≥ t + max |z|, all z + c ≥ t, and the derivative in c is at least
0; if c ≤ t − max |z|, it is at most 0. So the best c for given x is within max |z| of t. With t_s the same
number for the rows of site s alone, t is between the smallest and the largest t_s; network sums find it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from dcgs.learn.sites import Rows
from dcgs.learn.sums import Request, Steps
from dcgs.objectives import Loss
from dcgs.points import norm
from dcgs.sets.base import ConvexSet

if TYPE_CHECKING:
    from dcgs.learn.linear.design import Statistics

Vector = NDArray[np.float64]

# Intervals are this much wider than their proof asks for, so that an optimum is not on the boundary.
_MARGIN = 1.0
# The best constant of a site is looked for up to this size, and found by halving an interval so often; that
# of all sites by so many sums of the derivatives at so many constants.
_FARTHEST, _HALVINGS, _SUMS, _GRID = 1024.0, 60, 3, 65


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

    @classmethod
    def of(cls, weight: float, sums: Vector, statistics: Statistics, scale: Vector) -> LogisticBound:
        """Return the bound from what :func:`class_sums` found; raise if all rows have one label.

        Columns are centered, and divided by ``scale``.
        """
        share = weight / statistics.weight
        if not 0.0 < share < 1.0:
            label = "+1" if share > 0.5 else "−1"
            raise ValueError(f"the rows of all sites must have two classes; all have the label {label}.")
        positive = sums / weight
        negative = (statistics.mean - share * positive) / (1.0 - share)
        squares = float(((statistics.deviation / scale) ** 2).sum())
        return cls(share, (positive - statistics.mean) / scale, (negative - statistics.mean) / scale, squares)

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
    """The bound for losses other than the logistic one: a range for c − z, and the largest ‖a‖.

    It is the range of the targets, or a small one around the best intercept without a model.
    """

    low: float
    high: float
    largest_row: float
    start: float

    def interval(self, X: ConvexSet) -> tuple[float, float]:
        z = self.largest_row * (norm(X.start()) + X.diameter)
        return self.low - z - _MARGIN, self.high + z + _MARGIN


InterceptBound: TypeAlias = LogisticBound | RangeBound
"""What the data say of a free intercept; ``start`` is the best one without a model, or near it."""


def class_sums(rows: Mapping[int, Rows]) -> Steps[tuple[float, Vector]]:
    """Find the weight of the rows of label +1, and the sums of their columns."""
    positives = {i: np.where(local.targets > 0.0, local.counts, 0.0) for i, local in rows.items()}
    values = {i: [float(weights.sum()), rows[i].A.T @ weights] for i, weights in positives.items()}
    weight, sums = yield Request("sums of the columns of one class", values)
    return float(weight), sums


def range_bound(
    rows: Mapping[int, Rows], loss: Callable[[Vector], Loss], statistics: Statistics, scale: Vector
) -> Steps[RangeBound]:
    """Find the bound from the largest row and the extreme targets, or the best constant."""
    values, flags = {}, {}
    for i, local in rows.items():
        low, high, least_at_targets = _constants(local, loss)
        values[i] = [[high, -low, _largest_norm(local.A, statistics.mean, scale)]]
        flags[i] = [[float(not least_at_targets)]]
    name = "largest target and row"
    (maxima,), (others,) = yield [Request(name, values, "bound"), Request(name, flags, "any")]
    high, low, largest = maxima.tolist()
    if not others.any():
        return RangeBound(-low, high, largest, statistics.target_mean)
    low, high = yield from _best_constant(rows, loss, -low, high)
    return RangeBound(low, high, largest, 0.5 * (low + high))


def _constants(rows: Rows, loss: Callable[[Vector], Loss]) -> tuple[float, float, bool]:
    """Return a range that has the best constant of a site, and whether entries are least at their targets."""
    made = loss(rows.targets)
    if not made.grad(rows.targets).any():
        return float(rows.targets.min()), float(rows.targets.max()), True
    low, high = -1.0, 1.0
    while high < _FARTHEST and _slope(rows, made, high) < 0.0:
        low, high = high, 2.0 * high
    while low > -_FARTHEST and _slope(rows, made, low) > 0.0:
        low, high = 2.0 * low, low
    for _ in range(_HALVINGS):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if _slope(rows, made, middle) < 0.0 else (low, middle)
    return low, high, False


def _best_constant(
    rows: Mapping[int, Rows], loss: Callable[[Vector], Loss], low: float, high: float
) -> Steps[tuple[float, float]]:
    """Find a small range that has the best constant of all sites, which is between low and high."""
    losses = {i: loss(local.targets) for i, local in rows.items()}
    for _ in range(_SUMS):
        grid = np.linspace(low, high, _GRID)
        values = {i: [[_slope(local, losses[i], t) for t in grid.tolist()]] for i, local in rows.items()}
        (slopes,) = yield Request("derivatives of the loss at constants", values)
        first = int(np.argmax(np.append(slopes[1:-1], 0.0) >= 0.0)) + 1  # at the ends the signs are known
        low, high = float(grid[first - 1]), float(grid[first])
    return low, high


def _slope(rows: Rows, loss: Loss, constant: float) -> float:
    """Return the derivative of the loss of a site at a constant."""
    return float(rows.counts @ loss.grad(np.full(len(rows), constant)))


def _largest(X: ConvexSet, direction: Vector) -> float:
    """Return the largest ⟨direction, x⟩ over X."""
    return -X.lmo(-direction.reshape(X.shape)).dot(-direction.reshape(X.shape))


def _largest_norm(A: Any, mean: Vector, scale: Vector) -> float:
    """Return a bound of the largest ‖a‖ over the rows of A, centered and scaled."""
    if not sp.issparse(A):
        return float(np.sqrt(np.square((A - mean) / scale).sum(axis=1)).max())
    scaled = A @ sp.diags_array(1.0 / scale)
    return float(np.sqrt(scaled.power(2).sum(axis=1)).max()) + norm(mean / scale)
