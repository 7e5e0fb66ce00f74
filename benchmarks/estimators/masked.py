"""How far a masked fit is from the open one: ``python benchmarks/estimators/masked.py`` prints a table.

Beside it stands how far an open fit on another graph, a path, is from the open one: sums round otherwise
there. Both are relative to the largest coefficient, or for ratings prediction. Then how far radius and score
of the masked fit are from those of the open one, and rounds, bytes and seconds of both. MovieLens and
women's clothing need ``DCGS_DATA``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from dcgs.datasets import DataNotFoundError, movielens100k
from dcgs.estimators import DecentralizedCompletion, DecentralizedLasso, DecentralizedLogisticRegression

SITES = 5


def clothing(return_X_y: bool) -> tuple[Any, Any]:
    """Return the words of reviews and their stars."""
    assert return_X_y
    folder = os.environ.get("DCGS_DATA", "")
    with np.load(Path(folder, "sparse-regression", "womens-clothing.npz")) as file:
        A = sp.csr_array((file["data"], file["indices"], file["indptr"]), shape=tuple(file["shape"]))
        A.indices, A.indptr = (
            A.indices.astype(np.int32),
            A.indptr.astype(np.int32),
        )  # for scikit-learn
        return A.astype(np.float64), file["y"].astype(np.float64)


FITS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "diabetes, radius found": (DecentralizedLasso, load_diabetes, {}),
    "breast cancer, radius 8": (DecentralizedLogisticRegression, load_breast_cancer, {"radius": 8.0}),
    "breast cancer, radius found": (DecentralizedLogisticRegression, load_breast_cancer, {}),
    "ten digits, radius 3, gap 0.01": (
        DecentralizedLogisticRegression,
        load_digits,
        {"radius": 3.0, "gap": 1e-2},
    ),
    "ten digits, radius 3, gap 1e-06": (
        DecentralizedLogisticRegression,
        load_digits,
        {"radius": 3.0, "gap": 1e-6},
    ),
    "women's clothing, radius 3": (DecentralizedLasso, clothing, {"radius": 3.0, "gap": 1e-3}),
}


Timed = tuple[Any, float]


def three(fit: Callable[[Any, bool], Any]) -> tuple[Timed, Timed, Timed]:
    """Return the open fit on a complete graph, the masked one, and the open one on a path, with seconds."""
    complete, path = nx.complete_graph(SITES), nx.path_graph(SITES)
    fits = []
    for graph, secure in ((complete, False), (complete, True), (path, False)):
        start = perf_counter()
        fits.append((fit(graph, secure), perf_counter() - start))
    return fits[0], fits[1], fits[2]


def report(
    name: str, fits: Sequence[Timed], values: Callable[[Any], Any], score: Callable[[Any], float]
) -> None:
    """Print a row of the table."""
    (plain, seconds), (masked, more), (path, _) = fits
    scale = float(np.abs(values(plain)).max())
    apart = [float(np.abs(values(other) - values(plain)).max()) / scale for other in (masked, path)]
    radius = float(np.max(np.abs(np.asarray(masked.radius_) / np.asarray(plain.radius_) - 1.0)))
    told = abs(score(masked) - score(plain))
    pairs = [
        f"{plain.rounds_:,} / {masked.rounds_:,}",
        f"{np.sum(plain.bytes_) / 1e6:.3g} / {np.sum(masked.bytes_) / 1e6:.3g} MB",
        f"{seconds:.1f} / {more:.1f} s",
    ]
    print(
        f"| {name} | {apart[0]:.0e} | {apart[1]:.0e} | {radius:.0e} | {told:.0e} | {' | '.join(pairs)} |",
        flush=True,
    )


def of_rows(kind: Any, options: dict[str, Any], X: Any, y: Any, graph: Any, secure: bool) -> Any:
    """Return the fit of an estimator to rows that are dealt out to the sites in turn."""
    return kind(graph=graph, secure=secure, **options).fit(X, y, sites=np.arange(len(y)) % SITES)


def main() -> None:
    """Print the table."""
    print("| fit | masked | open, on a path | radius | score | rounds, open / masked | bytes | time |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, (kind, load, options) in FITS.items():
        try:
            X, y = load(return_X_y=True)
        except FileNotFoundError:
            continue

        def fit(
            graph: Any, secure: bool, kind: Any = kind, X: Any = X, y: Any = y, given: Any = options
        ) -> Any:
            return kind(graph=graph, secure=secure, **given).fit(X, y, sites=np.arange(len(y)) % SITES)

        fits = three(fit)
        report(name, fits, lambda f: f.coef_, lambda f, X=X, y=y: f.score(X, y))
    try:
        data = movielens100k()
    except DataNotFoundError:
        return
    users, items, values = data.rows, data.cols, data.values
    sites = users * SITES // (int(users.max()) + 1)

    def complete(graph: Any, secure: bool) -> Any:
        made = DecentralizedCompletion(radius=3000.0, graph=graph, secure=secure)
        return made.fit(users, items, values, sites=sites)

    report(
        "MovieLens 100K, radius 3,000",
        three(complete),
        lambda f: f.predict(users, items),
        lambda f: f.score(users, items, values),
    )


if __name__ == "__main__":
    main()
