"""Classes that all sites agree on, and their weights."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.preprocessing.reductions import Reductions
from dcgs.validation import shown


def agree_on_classes(
    labels: Mapping[int, NDArray[Any]], network: Reductions, names: Mapping[int, str] | None = None
) -> NDArray[Any]:
    """Return the classes of all sites, in increasing order.

    A site may lack a class that another has. Sites whose labels are numbers and sites whose labels are texts
    do not go together: an error names them. ``names`` are what it calls the sites.

    >>> import networkx as nx
    >>> agree_on_classes({0: np.array(["no"]), 1: np.array(["yes", "no"])}, Reductions(nx.path_graph(2)))
    array(['no', 'yes'], dtype='<U3')
    """
    called = {i: (names or {}).get(i, f"site {i}") for i in labels}
    own = {i: [json.dumps(label) for label in _plain(found)] for i, found in labels.items()}
    kinds = {i: sorted({_kind(json.loads(text)) for text in texts}) for i, texts in own.items()}
    marked = {i: own[i] + [json.dumps({"site": called[i], "has": kind}) for kind in kinds[i]] for i in own}
    found = [json.loads(text) for text in network.union("classes", marked)]
    classes = [label for label in found if not isinstance(label, dict)]
    sites_of: dict[str, list[str]] = {}
    for entry in found:
        if isinstance(entry, dict):
            sites_of.setdefault(entry["has"], []).append(entry["site"])
    if len(sites_of) > 1:
        told = "; ".join(f"{kind} at {', '.join(sites)}" for kind, sites in sorted(sites_of.items()))
        raise ValueError(f"the labels of all sites must be of one kind; there are {told}. Recode them.")
    return np.array(sorted(classes))


def balanced_weights(
    labels: Mapping[int, NDArray[Any]],
    weights: Mapping[int, NDArray[np.float64]],
    classes: NDArray[Any],
    network: Reductions,
) -> dict[Any, float]:
    """Return the weight of each class with which all classes count the same."""
    own = {i: [[float(weights[i][found == label].sum()) for label in classes]] for i, found in labels.items()}
    (sums,) = network.sum("weights of the classes", own)
    return dict(zip(classes.tolist(), balancing(sums.tolist()), strict=True))


def balancing(counts: Sequence[float]) -> list[float]:
    """Return the weights with which classes of these numbers of rows count the same.

    >>> balancing([30.0, 10.0, 20.0])
    [0.6666666666666666, 2.0, 1.0]
    """
    total = float(np.sum(counts))
    return [total / (len(counts) * count) if count > 0.0 else 1.0 for count in counts]


def row_factors(labels: NDArray[Any], class_weights: Mapping[Any, float]) -> NDArray[np.float64]:
    """Return the factor of the weight of each row: the weight of its class, 1 for a class without one."""
    factors = np.ones(len(labels))
    for label, weight in class_weights.items():
        factors[labels == label] = weight
    return factors


def _plain(found: NDArray[Any]) -> Iterable[Any]:
    """Return the distinct labels as values that JSON takes."""
    for label in sorted(set(np.asarray(found).tolist()), key=repr):
        if not isinstance(label, str | int | float | bool) or label != label:
            raise ValueError(f"labels must be texts or numbers, and none may be missing; got {shown(label)}.")
        yield label


def _kind(label: Any) -> str:
    return "texts" if isinstance(label, str) else "numbers"
