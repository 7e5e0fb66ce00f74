"""Measure how right the radius is that ``radius="auto"`` finds, and what finding it costs.

    python benchmarks/estimators/radii.py [small] [reviews] [--seeds N] [--graphs G ...] [--jobs N] [--json F]

``small``: problems with few rows, of seven kinds (dense, sparse, fewer rows than features, a weak signal,
both, no signal, uneven columns and sites), for least squares and for classes, with five seeds each. The
regret of a model is (its error − the least of a fine grid of penalties) / (the error of no model − that
least), on 4,000 rows that no fit sees; without a signal it is the share by which it is worse than no
model. Beside it are LassoCV and LogisticRegressionCV of scikit-learn on all rows in one place, with five
folds. ``renamed`` is by what share the radius changes if the sites get other names.

``reviews``: words of texts and a class, over ten sites on a cycle and on a star. ``loss_ratio`` is the
log loss on 2,000 rows that no fit sees, divided by the least of a fine grid of penalties, pooled;
``rounds_ratio`` and ``bytes_ratio`` compare with one fit at the radius that was found. The texts are read
from the folder ``sparse-regression`` of the folder that DCGS_DATA names.

The last row of either has the means and the worst of all rows.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import scipy.sparse as sp
from scipy.special import expit
from sklearn.linear_model import LassoCV, LogisticRegression, LogisticRegressionCV, lasso_path
from sklearn.metrics import log_loss
from sklearn.preprocessing import StandardScaler

from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression
from dcgs_bench.study import environment

KINDS = {  # rows, features, nonzero coefficients, share of the variance that the signal explains
    "dense": (240, 12, 12, 0.6),
    "sparse": (240, 50, 4, 0.5),
    "wide": (100, 150, 5, 0.7),
    "weak": (200, 20, 3, 0.08),
    "wide and weak": (120, 200, 4, 0.3),
    "none": (150, 15, 0, 0.0),
    "uneven": (200, 20, 5, 0.5),
}
TEST, SITES = 4000, 5
MODELS = ("lasso", "logistic")
GRAPHS = {"cycle": nx.cycle_graph(10), "star": nx.star_graph(9)}


def problem(kind: str, of_classes: bool, seed: int) -> tuple[Any, ...]:
    """Return rows, targets and sites to fit, and rows and targets to judge by."""
    rows, features, nonzeros, share = KINDS[kind]
    rng = np.random.default_rng([seed, *kind.encode(), of_classes])
    X = rng.standard_normal((rows + TEST, features))
    X[:, 1::2] += 0.6 * X[:, : features // 2 * 2 : 2]  # neighbors are correlated
    w = np.zeros(features)
    w[rng.choice(features, nonzeros, replace=False)] = rng.choice([-1.0, 1.0], nonzeros) * rng.uniform(
        0.5, 1.5, nonzeros
    )
    z = X @ w
    scale = float(z.std()) or 1.0
    if of_classes:
        slope = 4.0 * np.sqrt(share) / scale
        y = np.where(rng.uniform(size=len(z)) < expit(slope * z), 1.0, 0.0)
    else:
        y = z + rng.standard_normal(len(z)) * (scale * np.sqrt(1.0 / share - 1.0) if share else 1.0)
    sites = rng.integers(SITES, size=rows)
    if kind == "uneven":
        X = X * np.logspace(-2.0, 2.0, features)
        sites = np.minimum(rng.geometric(0.5, size=rows) - 1, SITES - 1)
    return X[:rows], y[:rows], sites, X[rows:], y[rows:]


def least_error(of_classes: bool, X: Any, y: Any, X_test: Any, y_test: Any) -> float:
    """Return the least test error of a fine grid of penalties, on pooled rows, and of no model."""
    null = error(of_classes, np.full(len(y_test), y.mean()), y_test)
    if not of_classes:
        means, centered = X.mean(axis=0), X - X.mean(axis=0)
        _, coefficients, _ = lasso_path(centered, y - y.mean(), eps=1e-3, n_alphas=60)
        predictions = (X_test - means) @ coefficients + y.mean()
        return min(null, float(np.min(np.mean((predictions - y_test[:, None]) ** 2, axis=0))))
    judges = (logistic(C).fit(X, y) for C in np.logspace(-3.0, 2.0, 40))
    return min(null, *(log_loss(y_test, judge.predict_proba(X_test)) for judge in judges))


def logistic(C: float) -> LogisticRegression:
    """Return a pooled model whose intercept is hardly bounded."""
    return LogisticRegression(
        l1_ratio=1.0, C=C, solver="liblinear", intercept_scaling=100.0, tol=1e-4, max_iter=1000
    )


def error(of_classes: bool, predictions: Any, y: Any) -> float:
    """Return the log loss of probabilities, or the mean squared error."""
    return float(log_loss(y, predictions) if of_classes else np.mean((predictions - y) ** 2))


def summary_of_small(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the mean regrets of all problems with a signal, and the worst of all rows."""
    names, with_signal = ("dcgs_regret", "pooled_regret"), [row for row in rows if row["data"] != "none"]
    return {
        "data": "all",
        "problems": len(rows),
        **{
            f"{name}_{which}": float(np.mean([row[name] for row in with_signal if row["model"] in models]))
            for name in names
            for which, models in {"lasso": MODELS[:1], "logistic": MODELS[1:], "mean": MODELS}.items()
        },
        **{
            f"{name}_most": max(row[name] for row in rows)
            for name in ("dcgs_worse_than_none", "pooled_worse_than_none", "renamed")
        },
    }


def one_small(seed: int, kind: str, of_classes: bool) -> dict[str, Any]:
    """Return the regrets of one small problem."""
    X, y, sites, X_test, y_test = problem(kind, of_classes, seed)
    model = (DecentralizedLogisticRegression if of_classes else DecentralizedLasso)(gap=1e-3)
    model.fit(X, y, sites=sites)
    renamed = np.random.default_rng(seed).permutation(SITES)[sites]
    radius = type(model)(gap=1e-3).fit(X, y, sites=renamed).radius_
    scaler = StandardScaler().fit(X)
    Z, Z_test = scaler.transform(X), scaler.transform(X_test)
    pooled: Any = LassoCV(cv=5)
    if of_classes:
        pooled = LogisticRegressionCV(
            l1_ratios=(1.0,),
            Cs=10,
            cv=5,
            solver="liblinear",
            scoring="neg_log_loss",
            use_legacy_attributes=False,
        )
    pooled.fit(Z, y)
    null = error(of_classes, np.full(len(y_test), y.mean()), y_test)
    least = least_error(of_classes, Z, y, Z_test, y_test)
    row: dict[str, Any] = {"data": kind, "model": MODELS[of_classes], "seed": seed}
    for name, judge, test in (("dcgs", model, X_test), ("pooled", pooled, Z_test)):
        predictions = judge.predict_proba(test)[:, 1] if of_classes else judge.predict(test)
        excess = error(of_classes, predictions, y_test)
        row[f"{name}_regret"] = (excess - least) / (null - least if kind != "none" else null)
        row[f"{name}_worse_than_none"] = excess / null - 1.0
    change = abs(model.radius_ - radius) / max(model.radius_, radius, 1e-9)
    return row | {"radius": model.radius_, "renamed": change, "rounds": model.rounds_}


def texts(name: str, seed: int, rows: int) -> tuple[Any, ...]:
    """Return words and classes of some texts to fit, and of others to judge by."""
    with np.load(
        Path(os.environ.get("DCGS_DATA", "DCGS_DATA is not set"), "sparse-regression", f"{name}.npz")
    ) as npz:
        parts = [npz[part] for part in ("data", "indices", "indptr")]
        X, y = sp.csr_array(tuple(parts), shape=tuple(npz["shape"])), npz["y"].astype(float)
    chosen = np.random.default_rng(seed).permutation(len(y))[: rows + 2000]
    X, y = X[chosen], y[chosen]
    X = sp.csr_array(X[:, np.flatnonzero((X[:rows] != 0).sum(axis=0) >= 5)])
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # as scikit-learn needs them
    y = (y >= 4.5 if name == "womens-clothing" else y > np.median(y)).astype(float)
    return X[:rows], y[:rows], X[rows:], y[rows:]


def one_text(seed: int, name: str, graph_name: str, rows: int = 6000) -> dict[str, Any]:
    """Compare the radius that is found for texts with a fine grid, and its cost with that of one fit."""
    X, y, X_test, y_test = texts(name, seed, rows)
    judges = [logistic(C).fit(X, y) for C in np.logspace(-1.0, 1.5, 21)]
    losses = [log_loss(y_test, judge.predict_proba(X_test)) for judge in judges]
    assert losses.index(min(losses)) not in (0, len(losses) - 1), "the best penalty is outside of the grid"
    sites, options = np.arange(rows) % 10, {"graph": GRAPHS[graph_name], "standardize": False}
    model = DecentralizedLogisticRegression(**options).fit(X, y, sites=sites)
    known = DecentralizedLogisticRegression(model.radius_, **options).fit(X, y, sites=sites)
    return {
        "data": name,
        "graph": graph_name,
        "seed": seed,
        "features": X.shape[1],
        "radius": model.radius_,
        "loss_ratio": log_loss(y_test, model.predict_proba(X_test)) / min(losses),
        "no_model": log_loss(y_test, np.full(len(y_test), y.mean())) / min(losses),
        "rounds": model.rounds_,
        "rounds_ratio": model.rounds_ / known.rounds_,
        "bytes_ratio": model.bytes_ / known.bytes_,
        "megabytes": model.bytes_ / 1e6,
        "stopped": model.path_.stopped,
    }


def summary_of_texts(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the worst of all rows."""
    worst = {f"{name}_most": max(row[name] for row in rows) for name in ("rounds_ratio", "bytes_ratio")}
    loss = max(row["loss_ratio"] for row in rows)
    return {"data": "all", "fits": len(rows), "loss_ratio_most": loss, **worst}


RUNS: dict[str, tuple[Callable[..., dict[str, Any]], Callable[..., dict[str, Any]], Any]] = {
    "small": (one_small, summary_of_small, (KINDS, (False, True))),
    "reviews": (one_text, summary_of_texts, (("womens-clothing", "mercari"), GRAPHS)),
}


def run(name: str, seeds: Sequence[int], graphs: Sequence[str], jobs: int) -> Iterator[dict[str, Any]]:
    """Yield the rows of all problems in their order, then that of their means and the worst."""
    one, summary, of_each_seed = RUNS[name]
    cases = [case for case in product(seeds, *of_each_seed) if case[2] not in GRAPHS or case[2] in graphs]
    with ProcessPoolExecutor(jobs) as pool:
        waiting = [pool.submit(one, *case) for case in cases]
        for case in waiting:
            yield case.result()
    yield summary([case.result() for case in waiting])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", help=f"some of {list(RUNS)}; all by default")
    parser.add_argument("--seeds", type=int, default=5, help="how many problems of each kind")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--graphs", nargs="+", choices=GRAPHS, default=list(GRAPHS), help="of the reviews")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--json", type=Path, help="write the numbers here, with versions and machine")
    args = parser.parse_args()
    about = environment(0) | {"command": " ".join(["python", *sys.argv])}
    found = []
    for chosen in args.names or RUNS:
        for row in run(chosen, range(args.first, args.first + args.seeds), args.graphs, args.jobs):
            found.append(row)
            shown = {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
            print(shown, flush=True)
            if args.json is not None:
                args.json.write_text(json.dumps({"environment": about, "rows": found}, indent=2) + "\n")
