"""How good predictions are: errors, beside those of a model that knows no feature, and calibration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.fitting.data import Indices, Numbers
from dcgs.preprocessing.one_vs_rest import class_log_probabilities, class_probabilities

_GROUPS = 10


@final
@dataclass(frozen=True)
class Comparison:
    """A measure of a model, and of the constant prediction: the majority class, or the mean.

    ``constant`` is NaN where there is none.
    """

    model: float
    constant: float


@final
@dataclass(frozen=True)
class CalibrationGroup:
    """Rows with similar predictions: how many, their mean probability, and the share that has the label."""

    rows: int
    predicted: float
    observed: float


def probabilities(scores: Numbers) -> Numbers:
    """Return 1 / (1 + exp(−score)), with no exponential that overflows."""
    return np.asarray(np.exp(-np.logaddexp(0.0, -scores)))


def class_scores(scores: Numbers, signs: Numbers, share: float) -> dict[str, Comparison]:
    """Return accuracy, AUC and log loss; ``share`` is the share of +1 that a constant prediction knows.

    >>> found = class_scores(np.array([-1.0, 2.0, 0.5, -3.0]), np.array([-1.0, 1.0, -1.0, -1.0]), 0.25)
    >>> {name: round(each.model, 3) for name, each in found.items()}
    {'accuracy': 0.75, 'AUC': 1.0, 'log loss': 0.366}
    """
    majority = 1.0 if share > 0.5 else -1.0
    at = np.clip(share, 1e-12, 1.0 - 1e-12)
    constant = np.where(signs > 0.0, -np.log(at), -np.log1p(-at))
    return {
        "accuracy": Comparison(
            float(np.mean(np.where(scores > 0.0, 1.0, -1.0) == signs)), float(np.mean(signs == majority))
        ),
        "AUC": Comparison(auc(scores, signs), 0.5),
        "log loss": Comparison(float(np.mean(np.logaddexp(0.0, -signs * scores))), float(np.mean(constant))),
    }


def several_class_scores(scores: Numbers, codes: Numbers, shares: Sequence[float]) -> dict[str, Comparison]:
    """Return accuracy, AUC and log loss of several classes, from a column of scores for each.

    ``codes`` are the places of the true classes. ``shares`` are the shares of the classes, which a constant
    prediction knows. The AUC is the mean of those of each class against all others.

    >>> scores = np.array([[2.0, -1.0, -3.0], [-1.0, 1.0, -2.0], [-2.0, 1.0, 0.5], [-3.0, -2.0, 2.0]])
    >>> found = several_class_scores(scores, np.array([0.0, 1.0, 2.0, 2.0]), (0.25, 0.25, 0.5))
    >>> {name: round(each.model, 3) for name, each in found.items()}
    {'accuracy': 0.75, 'AUC': 1.0, 'log loss': 0.442}
    """
    places = codes.astype(np.intp)
    logs, rows = class_log_probabilities(scores), np.arange(len(places))
    areas = [auc(logs[:, k], np.where(places == k, 1.0, -1.0)) for k in range(scores.shape[1])]
    constant = -np.log(np.clip(shares, 1e-12, 1.0))
    return {
        "accuracy": Comparison(
            float(np.mean(scores.argmax(axis=1) == places)), float(np.mean(places == np.argmax(shares)))
        ),
        "AUC": Comparison(mean_area(areas), 0.5),
        "log loss": Comparison(float(np.mean(-logs[rows, places])), float(np.mean(constant[places]))),
    }


def mean_area(areas: Sequence[float]) -> float:
    """Return the mean of the AUC of classes, without those of which there are no rows, or no others."""
    known = [area for area in areas if not np.isnan(area)]
    return float(np.mean(known)) if known else float("nan")


def number_scores(scores: Numbers, targets: Numbers, mean: float) -> dict[str, Comparison]:
    """Return the root mean square error, the mean absolute error and R²; ``mean`` is the constant prediction.

    >>> found = number_scores(np.array([1.0, 2.0]), np.array([1.0, 3.0]), 2.0)
    >>> {name: round(each.model, 3) for name, each in found.items()}
    {'RMSE': 0.707, 'mean absolute error': 0.5, 'R²': 0.5}
    """
    error, constant = scores - targets, mean - targets
    spread = float(np.sum((targets - targets.mean()) ** 2))
    r2 = [1.0 - float(np.sum(each**2)) / spread if spread else float("nan") for each in (error, constant)]
    return {
        "RMSE": Comparison(float(np.sqrt(np.mean(error**2))), float(np.sqrt(np.mean(constant**2)))),
        "mean absolute error": Comparison(float(np.mean(np.abs(error))), float(np.mean(np.abs(constant)))),
        "R²": Comparison(*r2),
    }


def auc(scores: Numbers, signs: Numbers) -> float:
    """Return the area under the ROC curve: how often a +1 has a higher score than a −1; ties count half.

    It is NaN if there is one class only.
    """
    positive = signs > 0.0
    ones, others = int(positive.sum()), int((~positive).sum())
    if not ones or not others:
        return float("nan")
    # The ranks of equal scores are their mean. SciPy's rankdata would take a second to import.
    _, place, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - 0.5 * (counts - 1))[place]
    return float((ranks[positive].sum() - ones * (ones + 1) / 2.0) / (ones * others))


def calibration(scores: Numbers, signs: Numbers) -> list[CalibrationGroup]:
    """Return up to ten groups of equally many rows, in the order of their probability."""
    return _groups(np.argsort(scores, kind="stable"), probabilities(scores), signs > 0.0)


def label_calibration(scores: Numbers, codes: Numbers) -> list[CalibrationGroup]:
    """Return up to ten groups of rows, in the order of the probability of the label that is predicted.

    ``observed`` is the share of rows whose label is right.
    """
    p = class_probabilities(scores).max(axis=1)
    return _groups(np.argsort(p, kind="stable"), p, scores.argmax(axis=1) == codes)


def _groups(order: Indices, p: Numbers, hit: NDArray[np.bool_]) -> list[CalibrationGroup]:
    parts = [part for part in np.array_split(order, _GROUPS) if len(part)]
    return [CalibrationGroup(len(part), float(p[part].mean()), float(hit[part].mean())) for part in parts]


def warning(found: dict[str, Comparison], weighted: bool = False) -> str | None:
    """Return a warning if a model is no better than a constant prediction.

    With class weights, probabilities are not those of the rows, so the AUC decides.
    """
    name = ("AUC" if weighted else "log loss") if "AUC" in found else "RMSE"
    model, constant = found[name].model, found[name].constant
    worse = model <= constant if name == "AUC" else model >= constant
    if not worse:
        return None
    what = "the same probability for every row" if "AUC" in found else "the mean for every row"
    return (
        f"the model is no better than {what}: its {name} is {model:.6g}, that of the constant prediction "
        f"{constant:.6g}. Try another radius (--radius auto), or other columns."
    )
