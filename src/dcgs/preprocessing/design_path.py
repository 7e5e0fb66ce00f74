"""The path of radii of the rows of several sites, standardized as the rows that are trained on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from dcgs.preprocessing.design import Design, with_bound
from dcgs.preprocessing.folds import Fold, HoldOut, Rows, fold_of
from dcgs.preprocessing.one_vs_rest import by_model
from dcgs.preprocessing.path import path_steps
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Reductions, Steps
from dcgs.preprocessing.site_data import SiteData
from dcgs.preprocessing.statistics import statistics
from dcgs.sets.base import ConvexSet
from dcgs.sets.box import Box
from dcgs.sets.product_set import ProductSet

# With at least this number of features, some may be in a few rows only.
_MANY = 64


def design_paths(
    sites: Mapping[int, SiteData],
    designs: Sequence[Design],
    network: Reductions,
    ball: Callable[[float], ConvexSet],
    how: HoldOut,
) -> list[Path]:
    """Return the path of each design; ``ball`` gives the set of the coefficients of a radius.

    With several designs the targets of ``sites`` are the places of classes, one for each design. All classes
    hold out the same rows, and share network sums: together their paths take the rounds of the longest.

    With many features the deviations of columns are those of the rows trained on. With the deviations of all
    rows, a word that is in one row trained on and in none that is held out would have a small deviation, so
    that a model may use it, and no row could show the error that it makes on new rows.
    """
    many = len(designs[0].statistics.mean) >= _MANY
    folds: list[list[Fold]] = [[] for _ in designs]
    made: list[list[Design]] = [[] for _ in designs]
    for part in how.split(sites):
        train, held_out = (by_model(rows, len(designs)) for rows in part)
        for n, own in enumerate(_of_training(train, network, designs) if many else designs):
            same = n > 0 and own.statistics is made[0][-1].statistics
            folds[n].append(fold_of(train[n], held_out[n], own, folds[0][-1] if same else None))
            made[n].append(own)
    return network.run(*(_path(network, folds[n], made[n], ball) for n in range(len(designs))))


def _path(
    network: Reductions, folds: Sequence[Fold], designs: Sequence[Design], ball: Callable[[float], ConvexSet]
) -> Steps[Path]:
    start = designs[0].start(ball(1.0))
    return path_steps(network, folds, lambda radius: _set_of(designs, ball(radius)), start=start)


def _of_training(train: Sequence[Rows], network: Reductions, designs: Sequence[Design]) -> list[Design]:
    """Return the designs of the rows trained on; that of all rows if all trained on are of one class."""

    def trained(sites: Rows, whole: Design) -> Steps[Design]:
        try:
            return (yield from with_bound(replace(whole, statistics=found, bound=None), sites, network))
        except ValueError:
            return whole

    try:
        found = statistics(train[0], network)
    except ValueError:
        return list(designs)
    return network.run(*map(trained, train, designs))


def _set_of(designs: Sequence[Design], X: ConvexSet) -> ConvexSet:
    """Return X, or X times an interval that has the free intercepts of all designs."""
    intervals = [made.bound.interval(X) for made in designs if made.bound is not None]
    if not intervals:
        return X
    low, high = zip(*intervals, strict=True)
    return ProductSet(X, Box([min(low)], [max(high)]))
