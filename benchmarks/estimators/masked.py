"""How far a masked fit is from the open one: ``python benchmarks/estimators/masked.py`` prints a table.

Beside it stands how far an open fit on another graph, a path, is from the open one: sums round otherwise
there. Both are relative to the largest coefficient, or of ratings the largest difference of a prediction.
MovieLens needs ``DCGS_DATA``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import networkx as nx
import numpy as np
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits

from dcgs.datasets import DataNotFoundError, movielens100k
from dcgs.estimators import DecentralizedCompletion, DecentralizedLasso, DecentralizedLogisticRegression

SITES = 5
FITS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "diabetes, radius found": (DecentralizedLasso, load_diabetes, {}),
    "breast cancer, radius 8": (DecentralizedLogisticRegression, load_breast_cancer, {"radius": 8.0}),
    "breast cancer, radius found": (DecentralizedLogisticRegression, load_breast_cancer, {}),
    "digits, radius 3, gap 0.01": (
        DecentralizedLogisticRegression,
        load_digits,
        {"radius": 3.0, "gap": 1e-2},
    ),
}


def three(fit: Callable[[Any, bool], Any]) -> tuple[Any, Any, Any]:
    """Return the open fit on a complete graph, the masked one, and the open one on a path."""
    complete, path = nx.complete_graph(SITES), nx.path_graph(SITES)
    return fit(complete, False), fit(complete, True), fit(path, False)


def report(name: str, fits: tuple[Any, Any, Any], values: Callable[[Any], Any], scale: float) -> None:
    """Print a row of the table."""
    plain, masked, path = fits
    apart = [float(np.abs(values(other) - values(plain)).max()) / scale for other in (masked, path)]
    counts = [f"{f.rounds_:,} | {int(np.sum(f.bytes_)):,}" for f in (plain, masked)]
    print(f"| {name} | {apart[0]:.0e} | {apart[1]:.0e} | {' | '.join(counts)} |", flush=True)


def of_rows(kind: Any, options: dict[str, Any], X: Any, y: Any, graph: Any, secure: bool) -> Any:
    """Return the fit of an estimator to rows that are dealt out to the sites in turn."""
    return kind(graph=graph, secure=secure, **options).fit(X, y, sites=np.arange(len(y)) % SITES)


def main() -> None:
    """Print the table."""
    print("| fit | masked | open, on a path | rounds, open | bytes, open | rounds, masked | bytes, masked |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for name, (kind, load, options) in FITS.items():
        X, y = load(return_X_y=True)
        if load is load_digits:
            X, y = X[y < 3], y[y < 3]
        sites = np.arange(len(y)) % SITES

        def fit(
            graph: Any, secure: bool, kind: Any = kind, X: Any = X, y: Any = y, given: Any = options
        ) -> Any:
            return kind(graph=graph, secure=secure, **given).fit(X, y, sites=np.arange(len(y)) % SITES)

        fits = three(fit)
        report(name, fits, lambda f: f.coef_, float(np.abs(fits[0].coef_).max()))
    try:
        data = movielens100k()
    except DataNotFoundError:
        return
    users, items, values = data.rows, data.cols, data.values
    sites = users * SITES // (int(users.max()) + 1)

    def complete(graph: Any, secure: bool) -> Any:
        made = DecentralizedCompletion(radius=3000.0, graph=graph, secure=secure)
        return made.fit(users, items, values, sites=sites)

    report("MovieLens 100K, radius 3,000", three(complete), lambda f: f.predict(users, items), 1.0)


if __name__ == "__main__":
    main()
