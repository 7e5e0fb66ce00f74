"""How far a masked fit is from the open one: ``python benchmarks/estimators/masked.py [--json F]``.

Beside it stands how far an open fit on another graph, a path, is from the open one: sums round otherwise
there. Both are relative to the largest coefficient, or for ratings prediction. Then how far radius and score
of the masked fit are from those of the open one, and rounds, bytes and seconds of both. MovieLens and
women's clothing need ``DCGS_DATA``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import networkx as nx
import numpy as np
import scipy.sparse as sp
from private import record
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from dcgs.datasets import movielens100k
from dcgs.estimators import DecentralizedCompletion, DecentralizedLasso, DecentralizedLogisticRegression

SITES = 5


class Case(NamedTuple):
    """A fit on a graph, masked or not, and what is compared: numbers of its model, and a score."""

    fit: Callable[[Any, bool], Any]
    values: Callable[[Any], Any]
    score: Callable[[Any], float]


def table(kind: Any, load: Callable[..., Any], **options: Any) -> Case:
    """Return the fit of an estimator to rows that are dealt out to the sites in turn."""
    X, y = load(return_X_y=True)
    sites = np.arange(len(y)) % SITES
    return Case(
        lambda graph, secure: kind(graph=graph, secure=secure, **options).fit(X, y, sites=sites),
        lambda model: model.coef_,
        lambda model: model.score(X, y),
    )


def ratings(**options: Any) -> Case:
    """Return the fit to ratings of MovieLens, with users dealt out in pieces."""
    data = movielens100k()
    users, items, values = data.rows, data.cols, data.values
    sites, kind = users * SITES // (int(users.max()) + 1), partial(DecentralizedCompletion, radius=3000.0)
    return Case(
        lambda graph, secure: kind(graph=graph, secure=secure, **options).fit(
            users, items, values, sites=sites
        ),
        lambda model: model.predict(users, items),
        lambda model: model.score(users, items, values),
    )


def clothing(return_X_y: bool) -> tuple[Any, Any]:
    """Return the words of reviews and their stars."""
    assert return_X_y
    folder = os.environ.get("DCGS_DATA", "")
    with np.load(Path(folder, "sparse-regression", "womens-clothing.npz")) as file:
        A = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        A.indices, A.indptr = A.indices.astype(np.int32), A.indptr.astype(np.int32)  # for scikit-learn
        return A.astype(np.float64), file["y"].astype(np.float64)


CLASSES = partial(table, DecentralizedLogisticRegression)
CASES: dict[str, Callable[[], Case]] = {
    "diabetes, radius found": partial(table, DecentralizedLasso, load_diabetes),
    "breast cancer, radius 8": partial(CLASSES, load_breast_cancer, radius=8.0),
    "breast cancer, radius found": partial(CLASSES, load_breast_cancer),
    "ten digits, radius 3, gap 0.01": partial(CLASSES, load_digits, radius=3.0, gap=1e-2),
    "ten digits, radius 3, gap 1e-06": partial(CLASSES, load_digits, radius=3.0, gap=1e-6),
    "ten digits, radius 3, gap 1e-08": partial(CLASSES, load_digits, radius=3.0, gap=1e-8),
    "women's clothing, radius 3": partial(table, DecentralizedLasso, clothing, radius=3.0, gap=1e-3),
    "MovieLens 100K, radius 3,000": ratings,
    # Open blocks are float64 below a gap of 2.8e-4, as masked words are.
    "MovieLens 100K, radius 3,000, gap 0.0002": partial(ratings, gap=2e-4),
}


def measured(case: Case) -> dict[str, Any]:
    """Return a row of the record; of pairs the first is of the open fit, the second of the masked one."""
    fits, seconds = [], []
    for graph, secure in (
        (nx.complete_graph(SITES), False),
        (nx.complete_graph(SITES), True),
        (nx.path_graph(SITES), False),
    ):
        start = perf_counter()
        fits.append(case.fit(graph, secure))
        seconds.append(perf_counter() - start)
    plain, masked, path = map(case.values, fits)
    radius, wanted = (np.asarray(fit.radius_) for fit in fits[1::-1])
    scale, both = np.abs(plain).max(), fits[:2]
    return {
        "masked": float(np.abs(masked - plain).max() / scale),
        "path": float(np.abs(path - plain).max() / scale),
        "radius": float(np.abs(radius / wanted - 1.0).max()),
        "score": abs(case.score(fits[1]) - case.score(fits[0])),
        "rounds": [fit.rounds_ for fit in both],
        "bytes": [int(np.sum(fit.bytes_)) for fit in both],
        "seconds": seconds[:2],
    }


def main() -> None:
    """Measure all cases whose data are there."""
    rows = list[dict[str, Any]]()
    record(rows)  # refuses wrong options, and shows the help
    for name, load in CASES.items():
        try:
            case = load()
        except FileNotFoundError as error:
            print(f"{name} is left out: {error}", flush=True)
            continue
        rows.append({"fit": name} | measured(case))
        print(rows[-1], flush=True)
        record(rows)


if __name__ == "__main__":
    main()
