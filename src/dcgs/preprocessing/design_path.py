"""The path of radii of the rows of several sites, standardized as the rows that are trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dcgs.preprocessing.design import Design, design
from dcgs.preprocessing.folds import HoldOut, Rows, fold_of
from dcgs.preprocessing.path import path_over
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Reductions
from dcgs.preprocessing.site_data import SiteData
from dcgs.sets.base import ConvexSet
from dcgs.sets.box import Box
from dcgs.sets.product_set import ProductSet

# With at least this number of features, some may be in a few rows only.
_MANY = 64


def design_path(
    sites: Mapping[int, SiteData],
    network: Reductions,
    made: Design,
    ball: Callable[[float], ConvexSet],
    how: HoldOut,
) -> Path:
    """Return the path of the rows of all sites; ``ball`` gives the set of the coefficients of a radius.

    With many features the deviations of columns are those of the rows trained on. With the deviations of all
    rows, a word that is in one row trained on and in none that is held out would have a small deviation, so
    that a model may use it, and no row could show the error that it makes on new rows.
    """
    many = len(made.statistics.mean) >= _MANY
    parts = how.split(sites)
    designs = [_of_training(train, network, made) if many else made for train, _ in parts]
    folds = [fold_of(*part, own) for part, own in zip(parts, designs, strict=True)]
    start = designs[0].start(ball(1.0))
    return path_over(network, folds, lambda radius: _set_of(designs, ball(radius)), start=start)


def _of_training(train: Rows, network: Reductions, made: Design) -> Design:
    """Return the design of the rows trained on; that of all rows if all trained on are of one class."""
    try:
        return design(train, network, made.loss, made.intercept, made.standardize)
    except ValueError:
        return made


def _set_of(designs: Sequence[Design], X: ConvexSet) -> ConvexSet:
    """Return X, or X times an interval that has the free intercepts of all designs."""
    intervals = [made.bound.interval(X) for made in designs if made.bound is not None]
    if not intervals:
        return X
    low, high = zip(*intervals, strict=True)
    return ProductSet(X, Box([min(low)], [max(high)]))
