"""Scores on rows that were held out: those of each site, and those of all sites, by network sums.

The AUC of all sites comes from a histogram of scores that is summed over the network. No score of a row is
sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np

from dcgs.fitting.data import Numbers
from dcgs.fitting.scores import Comparison, class_scores, mean_area, number_scores, several_class_scores
from dcgs.preprocessing import Reductions, SiteData, class_log_probabilities

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
    names = ("accuracy", "AUC", "log loss") if labels else ("RMSE", "mean absolute error", "R²")
    parts = {}
    for i, (site, scores) in sites.items():
        table = np.zeros((len(network.graph), 1 + 2 * len(names)))
        own: Mapping[str, Comparison] = {}
        if len(scores):
            own = _scores(scores, site.targets, constant, labels)
            table[i] = [len(scores), *(_sent(v) for name in names for v in asdict(own[name]).values())]
        if labels:
            parts[i] = [table, *_class_sums(scores, site.targets, own)]
        else:
            parts[i] = [table, _number_sums(scores, site.targets, constant)]
    table, *totals = network.sum("each site's scores, and sums for those of all sites", parts)
    each = tuple(_site(row, names) for row in table)
    rows = sum(site.rows for site in each)
    of_all = _class_totals if labels else _number_totals
    return each, SiteScores(rows, of_all(totals, rows) if rows else {})


def _scores(
    scores: Numbers, targets: Numbers, constant: float | Sequence[float], labels: bool
) -> dict[str, Comparison]:
    """Return the scores of one site."""
    if not isinstance(constant, float):
        return several_class_scores(scores, targets, constant)
    return (class_scores if labels else number_scores)(scores, targets, constant)


def _sent(value: float) -> float:
    return -1e300 if np.isnan(value) else value  # a sum over the network has no NaN


def _site(row: Numbers, names: tuple[str, ...]) -> SiteScores:
    values = [float("nan") if value <= -1e299 else float(value) for value in row[1:]]
    pairs = zip(values[::2], values[1::2], strict=True)
    scores = {name: Comparison(*pair) for name, pair in zip(names, pairs, strict=True)}
    return SiteScores(int(row[0]), scores if row[0] else {})


def _class_sums(scores: Numbers, targets: Numbers, own: Mapping[str, Comparison]) -> list[Numbers]:
    """Return histograms of the scores, or of the log odds of each of several classes, and other sums."""
    histograms = _histograms(scores, targets) if scores.ndim == 1 else []
    if scores.ndim > 1:
        logs = class_log_probabilities(scores)
        with np.errstate(divide="ignore"):  # the odds of a probability that is 1 up to rounding
            odds = logs - np.log(-np.expm1(np.minimum(logs, 0.0)))
        for k in range(scores.shape[1]):
            histograms += _histograms(odds[:, k], np.where(targets == k, 1.0, -1.0))
    means = [value * len(scores) for name in own if name != "AUC" for value in asdict(own[name]).values()]
    return [*histograms, np.array(means or [0.0] * 4)]


def _class_totals(totals: list[Any], rows: int) -> dict[str, Comparison]:
    *histograms, numbers = totals
    areas = [_area(*pair) for pair in zip(histograms[::2], histograms[1::2], strict=True)]
    accuracy, constant_accuracy, loss, constant_loss = (numbers / rows).tolist()
    return {
        "accuracy": Comparison(accuracy, constant_accuracy),
        "AUC": Comparison(mean_area(areas), 0.5),
        "log loss": Comparison(loss, constant_loss),
    }


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


def _number_sums(scores: Numbers, targets: Numbers, mean: Any) -> Numbers:
    error, constant = scores - targets, mean - targets
    parts = (error**2, np.abs(error), constant**2, np.abs(constant), constant)
    return np.array([float(part.sum()) for part in parts])


def _number_totals(totals: list[Any], rows: int) -> dict[str, Comparison]:
    square, absolute, constant_square, constant_absolute, constant_sum = (totals[0] / rows).tolist()
    spread = constant_square - constant_sum**2  # the variance of the targets
    r2 = [1.0 - each / spread if spread > 0.0 else float("nan") for each in (square, constant_square)]
    return {
        "RMSE": Comparison(float(np.sqrt(square)), float(np.sqrt(constant_square))),
        "mean absolute error": Comparison(absolute, constant_absolute),
        "R²": Comparison(*r2),
    }
