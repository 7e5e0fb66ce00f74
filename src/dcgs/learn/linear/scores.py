"""How good predictions are: errors beside those of a model that knows no feature, calibration, and a warning.

The scores of a fit are on rows that were held out: those of each site, and those of all sites, by a sum over
the network. The AUC of all sites comes from a histogram of scores. No score of a row is sent. With floors
there is no histogram, which has cells of one row: the AUC of all is that of pairs of rows at one site.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.floors import Floors
from dcgs.learn.files.source import Indices, Numbers
from dcgs.learn.floors import above_floors, people_of
from dcgs.learn.linear.classes import class_log_probabilities, class_probabilities
from dcgs.learn.sites import Rows
from dcgs.learn.sums import Reductions

_GROUPS = 10
# Scores of rows are counted in bins of this width; the outermost bins have all beyond. Two rows in one bin
# count as a tie in the AUC.
_WIDTH, _REACH = 0.05, 15.0


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
    inside = np.clip(share, 1e-12, 1.0 - 1e-12)
    constant = np.where(signs > 0.0, -np.log(inside), -np.log1p(-inside))
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
    r2 = [1.0 - float(np.sum(entry**2)) / spread if spread else float("nan") for entry in (error, constant)]
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


def warning(scores: dict[str, Comparison], weighted: bool = False) -> str | None:
    """Return a warning if a model is no better than a constant prediction; None if there are no scores.

    With class weights, probabilities are not those of the rows, so the AUC decides.
    """
    if not scores:
        return None
    name = ("AUC" if weighted else "log loss") if "AUC" in scores else "RMSE"
    model, constant = scores[name].model, scores[name].constant
    worse = model <= constant if name == "AUC" else model >= constant
    if not worse or (name != "AUC" and constant == 0.0):  # a constant that errs nowhere
        return None
    what = "the same probability for every row" if "AUC" in scores else "the mean for every row"
    return (
        f"the model is no better than {what}: its {name} is {model:.6g}, that of the constant prediction "
        f"{constant:.6g}. Try another radius (--radius auto), or other columns."
    )


@final
@dataclass(frozen=True)
class SiteScores:
    """Scores by name on the rows of one site, or of all; ``rows`` is how many."""

    rows: int
    scores: Mapping[str, Comparison]

    def to_json(self) -> dict[str, Any]:
        """Return the scores as JSON takes them; NaN is null."""
        scores = {
            name: {key: None if np.isnan(value) else value for key, value in asdict(entry).items()}
            for name, entry in self.scores.items()
        }
        return {"rows": self.rows, "scores": scores}


@final
@dataclass(frozen=True)
class FitScores:
    """The scores of each agent's model on its own rows, and on the rows of everyone.

    ``held_out`` is False if no site held any out: then they are those of the fit. ``what``: rows or ratings.
    """

    sites: tuple[SiteScores, ...]
    everyone: SiteScores
    held_out: bool
    what: str = "rows"

    def to_json(self) -> dict[str, Any]:
        """Return the scores as summary.json has them."""
        return {
            "held_out": self.held_out,
            "what": self.what,
            "everyone": self.everyone.to_json(),
            "agents": [site.to_json() for site in self.sites],
        }


def fit_scores_above(
    sites: Mapping[int, tuple[Rows, Numbers]],
    network: Reductions,
    constant: float | Sequence[float],
    classes: Sequence[float],
    floors: Floors,
) -> tuple[tuple[SiteScores, ...], SiteScores, str | None]:
    """Return what :func:`fit_scores` does and a note; with floors.

    The scores of a site stay there. ``classes`` are the targets of classes; none for numbers. If fewer people
    than the floors are of a class, there are no scores of all sites, and the note says so.
    """
    parts: dict[int, list[Any]] = {}
    people, by_agent = {}, [SiteScores(0, {})] * len(network.graph)
    for i, (site, scores) in sites.items():
        chosen = [site.targets == c for c in classes] or [np.ones(len(site), dtype=np.bool_)]
        people[i] = [people_of(rows, site.subjects) for rows in chosen]
        local = _scores(scores, site.targets, constant, bool(classes)) if len(scores) else {}
        by_agent[i] = SiteScores(len(scores), local)
        if not classes:
            parts[i] = [[float(len(scores))], _number_sums(scores, site.targets, constant)]
        else:
            areas = _pair_sums(scores, site.targets, classes)
            parts[i] = [[float(len(scores))], areas, _mean_sums(scores, local)]
    asked = above_floors("people of each class whose scores are summed up", people, floors)
    (enough,) = network.reduced(asked)
    if not enough.all():
        few = f"fewer than {floors.min_count} people, or fewer than {floors.min_sites} sites,"
        which = "a class" if classes else "the rows"
        return (
            tuple(by_agent),
            SiteScores(0, {}),
            f"no scores of all sites: {few} are in {which} that is held out.",
        )
    (rows,), *totals = network.sum("sums for scores of all sites", parts)
    if not classes:
        return tuple(by_agent), SiteScores(int(rows), _number_totals(totals, int(rows))), None
    areas, means = totals
    pairs = areas.reshape(-1, 2)
    within = mean_area([float(a / b) if b else float("nan") for a, b in pairs])
    note = (
        "the AUC of all sites compares rows of one site with each other: floors allow no histogram of scores."
    )
    return tuple(by_agent), SiteScores(int(rows), _class_measures(within, means / rows)), note


def _pair_sums(scores: Numbers, targets: Numbers, classes: Sequence[float]) -> Numbers:
    """Return for each class how many pairs of a row of it and another are in order, and how many are."""
    sums = []
    columns = [(scores, 1.0)] if scores.ndim == 1 else []
    if scores.ndim > 1:
        columns = list(zip(class_log_probabilities(scores).T, classes, strict=True))
    for column, label in columns:
        signs = np.where(targets == label, 1.0, -1.0)
        pairs = float((signs > 0.0).sum() * (signs < 0.0).sum())
        sums += [auc(column, signs) * pairs if pairs else 0.0, pairs]
    return np.array(sums)


def fit_scores(
    sites: Mapping[int, tuple[Rows, Numbers]],
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
        local: Mapping[str, Comparison] = {}
        if len(scores):
            local = _scores(scores, site.targets, constant, labels)
            table[i] = [len(scores), *(_sent(v) for name in names for v in asdict(local[name]).values())]
        if labels:
            parts[i] = [table.reshape(-1), *_class_sums(scores, site.targets, local)]
        else:
            parts[i] = [table.reshape(-1), _number_sums(scores, site.targets, constant)]
    table, *totals = network.sum("each site's scores, and sums for those of all sites", parts)
    sites_scores = tuple(_site(row, names) for row in table.reshape(len(network.graph), -1))
    rows = sum(site.rows for site in sites_scores)
    of_all = _class_totals if labels else _number_totals
    return sites_scores, SiteScores(rows, of_all(totals, rows) if rows else {})


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


def _class_sums(scores: Numbers, targets: Numbers, local: Mapping[str, Comparison]) -> list[Numbers]:
    """Return histograms of the scores, or of the log odds of each of several classes, and other sums."""
    histograms = _histograms(scores, targets) if scores.ndim == 1 else []
    if scores.ndim > 1:
        logs = class_log_probabilities(scores)
        with np.errstate(divide="ignore"):  # the odds of a probability that is 1 up to rounding
            odds = logs - np.log(-np.expm1(np.minimum(logs, 0.0)))
        for k in range(scores.shape[1]):
            histograms += _histograms(odds[:, k], np.where(targets == k, 1.0, -1.0))
    return [*histograms, _mean_sums(scores, local)]


def _mean_sums(scores: Numbers, local: Mapping[str, Comparison]) -> Numbers:
    """Return the sums over rows that accuracy and log loss are means of."""
    means = [value * len(scores) for name in local if name != "AUC" for value in asdict(local[name]).values()]
    return np.array(means or [0.0] * 4)


def _class_totals(totals: list[Any], rows: int) -> dict[str, Comparison]:
    *histograms, numbers = totals
    areas = [_area(*pair) for pair in zip(histograms[::2], histograms[1::2], strict=True)]
    return _class_measures(mean_area(areas), numbers / rows)


def _class_measures(area: float, means: Numbers) -> dict[str, Comparison]:
    accuracy, constant_accuracy, loss, constant_loss = means.tolist()
    return {
        "accuracy": Comparison(accuracy, constant_accuracy),
        "AUC": Comparison(area, 0.5),
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
    r2 = [1.0 - entry / spread if spread > 0.0 else float("nan") for entry in (square, constant_square)]
    return {
        "RMSE": Comparison(float(np.sqrt(square)), float(np.sqrt(constant_square))),
        "mean absolute error": Comparison(absolute, constant_absolute),
        "R²": Comparison(*r2),
    }
