"""Several classes by models of one number each: every class against all others.

Two classes have one model, of the second class. More have one model per class. A joint softmax would couple
the classes of a row; sums, Newton steps and certificates are for losses of single numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.preprocessing.design import LinearModel
from dcgs.preprocessing.site_data import SiteData

Numbers = NDArray[np.float64]


def class_numbers(labels: Sequence[Any], classes: Sequence[Any]) -> Numbers:
    """Return the place of each label among the classes.

    >>> class_numbers(["b", "a", "c"], ["a", "b", "c"])
    array([1., 0., 2.])
    """
    place = {label: float(at) for at, label in enumerate(classes)}
    return np.array([place[label] for label in labels], dtype=np.float64)


def against_rest(sites: Mapping[int, SiteData], classes: int) -> Iterator[dict[int, SiteData]]:
    """Yield the rows for each model: targets are +1 for its class, and −1 for all others.

    The targets of ``sites`` are the places of classes, from 0.

    >>> sites = {0: SiteData([[5.0], [6.0], [7.0]], [2.0, 0.0, 1.0])}
    >>> [rows[0].targets.tolist() for rows in against_rest(sites, 3)]
    [[-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]
    """
    for positive in range(1 if classes == 2 else 0, classes):
        yield {
            i: site.with_targets(np.where(site.targets == positive, 1.0, -1.0)) for i, site in sites.items()
        }


def stacked(models: Sequence[LinearModel]) -> LinearModel:
    """Return the models of all classes as one, with a row of coefficients and an intercept for each."""
    coef = np.array([model.coef for model in models])
    return LinearModel(coef, np.array([model.intercept for model in models]))


def class_log_probabilities(scores: Numbers) -> Numbers:
    """Return the log of the probability of each class, from a column of scores per class.

    The probability is that of the class's own model, divided by the sum over all classes. It is found from
    logs: scores far below zero would all have the probability 0, and no sum to divide by.
    """
    logs = -np.logaddexp(0.0, -scores)
    logs = logs - logs.max(axis=1, keepdims=True)
    return np.asarray(logs - np.log(np.exp(logs).sum(axis=1, keepdims=True)))


def class_probabilities(scores: Numbers) -> Numbers:
    """Return the probability of each class, from a column of scores per class.

    >>> class_probabilities(np.array([[0.0, 0.0, -800.0], [-900.0, -900.0, -900.0]])).round(3)
    array([[0.5  , 0.5  , 0.   ],
           [0.333, 0.333, 0.333]])
    """
    logs = -np.logaddexp(0.0, -scores)
    shares = np.exp(logs - logs.max(axis=1, keepdims=True))
    return np.asarray(shares / shares.sum(axis=1, keepdims=True))
