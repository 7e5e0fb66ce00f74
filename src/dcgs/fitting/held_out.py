"""Scores on rows that were held out: those of each site, and those of all sites, by network sums.

The AUC of all sites comes from a histogram of scores that is summed over the network. No score of a row is
sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, final

import numpy as np

from dcgs.fitting.data import Numbers
from dcgs.fitting.scores import (
    Comparison,
    class_scores,
    mean_area,
    number_scores,
    several_class_scores,
)
from dcgs.preprocessing.one_vs_rest import class_log_probabilities
from dcgs.preprocessing.reductions import Reductions
from dcgs.preprocessing.site_data import SiteData

# Scores of rows are counted in bins of this width; the outermost bins have all beyond. Two rows in one bin
# count as a tie in the AUC.
_WIDTH, _REACH = 0.05, 15.0


@final
@dataclass(frozen=True)
class SiteScores:
    """Scores by name on the rows of one site, or of all; ``rows`` is how many."""

    rows: int
    scores: Mapping[str, Comparison]

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON takes them; NaN is null."""
        scores = {
            name: {key: None if np.isnan(value) else value for key, value in asdict(each).items()}
            for name, each in self.scores.items()
        }
        return {"rows": self.rows, "scores": scores}


@final
@dataclass(frozen=True)
class FitScores:
    """The scores of each agent's model on its own rows, and on the rows of everyone.

    ``held_out`` is False if no site held rows out: then they are the rows of the fit.
    """

    sites: tuple[SiteScores, ...]
    everyone: SiteScores
    held_out: bool

    def to_json(self) -> dict[str, Any]:
        """Return the scores as summary.json has them."""
        return {
            "held_out": self.held_out,
            "everyone": self.everyone.to_json(),
            "agents": [site.to_json() for site in self.sites],
        }


def fit_scores(
    sites: Mapping[int, tuple[SiteData, Numbers]],
    network: Reductions,
    constant: float | Sequence[float],
    labels: bool,
) -> tuple[tuple[SiteScores, ...], SiteScores]:
    """Return the scores of each site and of all, from rows and the scores of the site's model on them.

    ``constant`` is the constant prediction: the share of +1, the shares of several classes, or the mean.
    """
    judge = _judge(constant, labels)
    agents = len(network.graph)
    tables, sums = {}, {}
    for i, (site, scores) in sites.items():
        table = np.zeros((agents, 1 + 2 * len(judge.names)))
        if len(scores):
            own = judge.scores(scores, site.targets)
            table[i] = [len(scores), *(_sent(v) for name in judge.names for v in asdict(own[name]).values())]
        tables[i] = table
        sums[i] = judge.sums(scores, site.targets)
    table, *totals = network.sum(
        "each site's scores, and sums for those of all sites", {i: [tables[i], *sums[i]] for i in sites}
    )
    each = tuple(_site(row, judge.names) for row in table)
    rows = sum(site.rows for site in each)
    return each, SiteScores(rows, judge.totals(totals, rows) if rows else {})


@final
@dataclass(frozen=True)
class _Judge:
    """How rows are judged: the scores of a site, its part of network sums, and from them those of all."""

    names: tuple[str, ...]
    scores: Callable[[Numbers, Numbers], dict[str, Comparison]]
    sums: Callable[[Numbers, Numbers], list[Numbers]]
    totals: Callable[[list[Any], int], dict[str, Comparison]]


def _judge(constant: float | Sequence[float], labels: bool) -> _Judge:
    names = ("accuracy", "AUC", "log loss")
    if not isinstance(constant, float):
        several = partial(several_class_scores, shares=constant)
        return _Judge(names, several, partial(_several_class_sums, shares=constant), _several_class_totals)
    if labels:
        two = partial(class_scores, share=constant)
        return _Judge(names, two, partial(_class_sums, share=constant), _class_totals)
    own = partial(number_scores, mean=constant)
    return _Judge(
        ("RMSE", "mean absolute error", "R²"), own, partial(_number_sums, mean=constant), _number_totals
    )


def _sent(value: float) -> float:
    return -1e300 if np.isnan(value) else value  # a sum over the network has no NaN


def _site(row: Numbers, names: tuple[str, ...]) -> SiteScores:
    values = [float("nan") if value <= -1e299 else float(value) for value in row[1:]]
    pairs = zip(values[::2], values[1::2], strict=True)
    scores = {name: Comparison(*pair) for name, pair in zip(names, pairs, strict=True)}
    return SiteScores(int(row[0]), scores if row[0] else {})


def _class_sums(scores: Numbers, signs: Numbers, share: float) -> list[Numbers]:
    own = class_scores(scores, signs, share) if len(scores) else {}
    return [*_histograms(scores, signs), _means_times_rows(own, len(scores))]


def _class_totals(totals: list[Any], rows: int) -> dict[str, Comparison]:
    ones, others, numbers = totals
    return _with_area(_area(ones, others), numbers / rows)


def _several_class_sums(scores: Numbers, codes: Numbers, shares: Sequence[float]) -> list[Numbers]:
    """Return histograms of the log odds of each class, and sums of the other scores."""
    own = several_class_scores(scores, codes, shares) if len(scores) else {}
    logs = class_log_probabilities(scores)
    with np.errstate(divide="ignore"):  # the odds of a probability that is 1 up to rounding
        odds = logs - np.log(-np.expm1(np.minimum(logs, 0.0)))
    pairs = [_histograms(odds[:, k], np.where(codes == k, 1.0, -1.0)) for k in range(len(shares))]
    return [*(each for pair in pairs for each in pair), _means_times_rows(own, len(scores))]


def _several_class_totals(totals: list[Any], rows: int) -> dict[str, Comparison]:
    *histograms, numbers = totals
    areas = [_area(*pair) for pair in zip(histograms[::2], histograms[1::2], strict=True)]
    return _with_area(mean_area(areas), numbers / rows)


def _histograms(scores: Numbers, signs: Numbers) -> list[Numbers]:
    """Return how many rows of +1, and how many of −1, have a score in each bin."""
    edges = np.arange(-_REACH, _REACH + _WIDTH / 2.0, _WIDTH)
    bins = np.digitize(scores, edges)
    return [np.bincount(bins[signs * side > 0.0], minlength=len(edges) + 1).astype(float) for side in (1, -1)]


def _area(ones: Numbers, others: Numbers) -> float:
    """Return the AUC from histograms."""
    below = np.concatenate([[0.0], np.cumsum(others)[:-1]])
    pairs = float(ones.sum() * others.sum())
    return float(ones @ (below + 0.5 * others)) / pairs if pairs else float("nan")


def _means_times_rows(own: Mapping[str, Comparison], rows: int) -> Numbers:
    numbers = [value * rows for name in own if name != "AUC" for value in asdict(own[name]).values()]
    return np.array(numbers or [0.0] * 4)


def _with_area(area: float, means: Numbers) -> dict[str, Comparison]:
    accuracy, constant_accuracy, loss, constant_loss = means.tolist()
    return {
        "accuracy": Comparison(accuracy, constant_accuracy),
        "AUC": Comparison(area, 0.5),
        "log loss": Comparison(loss, constant_loss),
    }


def _number_sums(scores: Numbers, targets: Numbers, mean: float) -> list[Numbers]:
    error, constant = scores - targets, mean - targets
    parts = (error**2, np.abs(error), constant**2, np.abs(constant), constant)
    return [np.array([float(part.sum()) for part in parts])]


def _number_totals(totals: list[Any], rows: int) -> dict[str, Comparison]:
    square, absolute, constant_square, constant_absolute, constant_sum = (totals[0] / rows).tolist()
    spread = constant_square - constant_sum**2  # the variance of the targets
    r2 = [1.0 - each / spread if spread > 0.0 else float("nan") for each in (square, constant_square)]
    return {
        "RMSE": Comparison(float(np.sqrt(square)), float(np.sqrt(constant_square))),
        "mean absolute error": Comparison(absolute, constant_absolute),
        "R²": Comparison(*r2),
    }
