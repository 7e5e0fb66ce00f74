"""The path of radii of the rows of several sites, standardized as the rows that are trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dcgs.preprocessing.design import Design, with_bound
from dcgs.preprocessing.folds import HoldOut, Rows, fold_of
from dcgs.preprocessing.path import path_steps
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Reductions, Steps
from dcgs.preprocessing.site_data import SiteData
from dcgs.preprocessing.statistics import statistics_steps
from dcgs.sets.base import ConvexSet
from dcgs.sets.box import Box
from dcgs.sets.product_set import ProductSet

# With at least this number of features, some may be in a few rows only.
_MANY = 64
# At most this number of paths share sums at a time: each has its own copy of the rows, for each fold.
_TOGETHER = 10


def design_paths(
    models: Sequence[tuple[Mapping[int, SiteData], Design]],
    network: Reductions,
    ball: Callable[[float], ConvexSet],
    how: HoldOut,
) -> list[Path]:
    """Return the path of each model, from the rows of all sites and their design.

    ``ball`` gives the set of the coefficients of a radius. The paths share network sums: together they take
    the rounds of the longest one.
    """
    found: list[Path] = []
    for k in range(0, len(models), _TOGETHER):
        group = models[k : k + _TOGETHER]
        found += network.run(*(_path(sites, network, made, ball, how) for sites, made in group))
    return found


def _path(
    sites: Mapping[int, SiteData],
    network: Reductions,
    made: Design,
    ball: Callable[[float], ConvexSet],
    how: HoldOut,
) -> Steps[Path]:
    """Return the path of one model.

    With many features the deviations of columns are those of the rows trained on. With the deviations of all
    rows, a word that is in one row trained on and in none that is held out would have a small deviation, so
    that a model may use it, and no row could show the error that it makes on new rows.
    """
    many = len(made.statistics.mean) >= _MANY
    designs, folds = [], []
    for train, held_out in how.split(sites):
        own = (yield from _of_training(train, network, made)) if many else made
        designs.append(own)
        folds.append(fold_of(train, held_out, own))
    start = designs[0].start(ball(1.0))
    steps = path_steps(network, folds, lambda radius: _set_of(designs, ball(radius)), start=start)
    return (yield from steps)


def _of_training(train: Rows, network: Reductions, made: Design) -> Steps[Design]:
    """Return the design of the rows trained on; that of all rows if all trained on are of one class."""
    try:
        found = yield from statistics_steps(train, network)
        return (yield from with_bound(replace(made, statistics=found, bound=None), train, network))
    except ValueError:
        return made


def _set_of(designs: Sequence[Design], X: ConvexSet) -> ConvexSet:
    """Return X, or X times an interval that has the free intercepts of all designs."""
    intervals = [made.bound.interval(X) for made in designs if made.bound is not None]
    if not intervals:
        return X
    low, high = zip(*intervals, strict=True)
    return ProductSet(X, Box([min(low)], [max(high)]))
