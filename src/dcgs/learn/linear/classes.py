"""Several classes by models of one number each: every class against all others; and the weights of classes.

Two classes have one model, of the second class. More have one model per class. A joint softmax would couple
the classes of a row; sums, Newton steps and certificates are for losses of single numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.learn.linear.design import LinearModel
from dcgs.learn.sites import Rows

Numbers = NDArray[np.float64]


def class_numbers(labels: Sequence[Any], classes: Sequence[Any]) -> Numbers:
    """Return the place of each label among the classes.

    >>> class_numbers(["b", "a", "c"], ["a", "b", "c"])
    array([1., 0., 2.])
    """
    place = {label: float(number) for number, label in enumerate(classes)}
    return np.array([place[label] for label in labels], dtype=np.float64)


def against_rest(rows: Mapping[int, Rows], classes: int) -> Iterator[dict[int, Rows]]:
    """Yield the rows for each model: targets are +1 for its class, and −1 for all others.

    The targets are the places of classes, from 0.

    >>> rows = {0: Rows([[5.0], [6.0], [7.0]], [2.0, 0.0, 1.0])}
    >>> [some[0].targets.tolist() for some in against_rest(rows, 3)]
    [[-1.0, 1.0, -1.0], [-1.0, -1.0, 1.0], [1.0, -1.0, -1.0]]
    """
    for positive in range(1 if classes == 2 else 0, classes):
        yield {
            i: local.with_targets(np.where(local.targets == positive, 1.0, -1.0)) for i, local in rows.items()
        }


def of_all_classes(parts: Sequence[Mapping[int, Rows]]) -> dict[int, Rows]:
    """Return the rows of the models of several classes with the places of classes as targets.

    >>> rows = {0: Rows([[5.0], [6.0], [7.0]], [2.0, 0.0, 1.0])}
    >>> of_all_classes([*against_rest(rows, 3)])[0].targets.tolist()
    [2.0, 0.0, 1.0]
    """
    places = {i: np.argmax([part[i].targets for part in parts], axis=0) for i in parts[0]}
    return {i: local.with_targets(places[i].astype(np.float64)) for i, local in parts[0].items()}


def class_weights(rows: Mapping[int, Rows], classes: int) -> dict[int, Numbers]:
    """Return the weight of the rows of each class at each agent of this process."""
    return {
        i: np.bincount(local.targets.astype(np.intp), local.counts, classes).astype(np.float64)
        for i, local in rows.items()
    }


def balancing(counts: Sequence[float]) -> list[float]:
    """Return the weights with which classes of these numbers of rows count the same.

    >>> balancing([30.0, 10.0, 20.0])
    [0.6666666666666666, 2.0, 1.0]
    """
    total = float(np.sum(counts))
    return [total / (len(counts) * count) if count > 0.0 else 1.0 for count in counts]


def weighted(rows: Mapping[int, Rows], weights: Sequence[float]) -> dict[int, Rows]:
    """Return the rows with weights multiplied by those of their classes."""
    factors = np.array(weights)
    return {i: local.weighted_by(factors[local.targets.astype(np.intp)]) for i, local in rows.items()}


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
