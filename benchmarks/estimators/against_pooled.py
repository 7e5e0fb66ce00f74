"""Compare the estimators of dcgs over several sites with scikit-learn's on all rows in one place.

    python benchmarks/estimators/against_pooled.py [NAME …] [--json F]

Names are breast-cancer, diabetes, digits, womens-clothing and mercari. The first three come with
scikit-learn; rows of the first two are shifted and scaled site by site, as if sites measured with other
instruments. The others are read from the folder ``sparse-regression`` of the folder that DCGS_DATA names. A
quarter of the rows (a fifth of the texts) is a test set that no fit sees. Prints one line per data set: the
test score of both, rounds of the fit with a radius that is found and with the radius known, and seconds of
CPU. ``error_ratio`` is 1 − our score, divided by 1 − the pooled one; for R² the ratio of squared errors.
Digits have ten classes. Their row has accuracy and log loss of the estimator and of ``dcgs fit logistic``,
with one fold and with five, of one pooled model per class, and of a pooled softmax. ``fits`` are the rounds
of the fits, ``path`` all others, ``ratio`` all rounds divided by those of the fits.
The pooled models per class try seven penalties: liblinear hardly converges with smaller ones. LassoCV of the
texts tries few penalties, with three folds and a loose tolerance: else it takes hours.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits
from sklearn.linear_model import LassoCV, LogisticRegressionCV
from sklearn.metrics import log_loss, r2_score, roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from dcgs.cli import main as dcgs_command
from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression
from dcgs.learn.files.model import Model
from dcgs.learn.linear.classes import class_probabilities
from dcgs_bench.study import environment


def shifted(X: Any, sites: Any, rng: np.random.Generator) -> Any:
    """Return the rows with a shift and a scale of their site: up to half a deviation, and 0.8 to 1.25."""
    moved = X.copy()
    for site in np.unique(sites):
        own = sites == site
        scale = np.exp(rng.uniform(-np.log(1.25), np.log(1.25), X.shape[1]))
        shift = rng.uniform(-0.5, 0.5, X.shape[1]) * X.std(axis=0)
        moved[own] = X[own] * scale + shift
    return moved


def compared(model: Any, pooled: Any, parts: Any, sites: Any) -> dict[str, float]:
    """Return the test scores of both, and what the fit over the sites cost."""
    X, X_test, y, y_test = parts
    before = time.process_time()
    fitted = clone(model).fit(X, y, sites=sites)
    seconds = time.process_time() - before
    known = clone(model).set_params(radius=fitted.radius_).fit(X, y, sites=sites)
    before = time.process_time()
    pooled.fit(X, y)
    pooled_seconds = time.process_time() - before
    scores = [score(one, X_test, y_test) for one in (fitted, pooled)]
    return {
        "dcgs": scores[0],
        "pooled": scores[1],
        "error_ratio": (1.0 - scores[0]) / (1.0 - scores[1]),
        "radius": fitted.radius_,
        "rounds": fitted.rounds_,
        "known_rounds": known.rounds_,
        "ratio": fitted.rounds_ / known.rounds_,
        "megabytes": fitted.bytes_ / 1e6,
        "path_rounds": fitted.path_.rounds,
        "radii": len(fitted.path_.points),
        "cpu_seconds": seconds,
        "pooled_cpu_seconds": pooled_seconds,
    }


def score(model: Any, X: Any, y: Any) -> float:
    """Return the AUC of a classifier, and R² of a regression."""
    if isinstance(model, DecentralizedLasso) or "lassocv" in getattr(model, "named_steps", {}):
        return float(r2_score(y, model.predict(X)))
    return float(roc_auc_score(y, model.decision_function(X)))


def small(load: Any, model: Any, pooled: Any) -> dict[str, float]:
    """Return the comparison on a data set of scikit-learn, over four sites, as the mean of ten splits."""
    X, y = load(return_X_y=True)
    found = []
    for seed in range(10):
        rng = np.random.default_rng(seed)
        sites = rng.integers(4, size=len(y))
        X_moved = shifted(X, sites, rng)
        X_train, X_test, y_train, y_test, s_train, _ = train_test_split(
            X_moved, y, sites, test_size=0.25, random_state=seed
        )
        found.append(compared(model, clone(pooled), (X_train, X_test, y_train, y_test), s_train))
    return {name: float(np.mean([one[name] for one in found])) for name in found[0]}


def digits(splits: int = 3) -> dict[str, float]:
    """Return the comparison of ten classes over four sites, as the mean of splits."""
    X, y = load_digits(return_X_y=True)
    found = []
    for seed in range(splits):
        sites = np.random.default_rng(seed).integers(4, size=len(y))
        split = train_test_split(X, y, sites, test_size=0.25, random_state=seed)
        (X_train, X_test, y_train, y_test), s_train = split[:4], split[4]
        row: dict[str, float] = {}
        for name, pooled in {
            "pooled": OneVsRestClassifier(clone(POOLED_LOGISTIC).set_params(Cs=np.logspace(-2.0, 1.0, 7))),
            "softmax": LogisticRegressionCV(
                scoring="neg_log_loss", max_iter=1000, use_legacy_attributes=False
            ),
        }.items():
            judge = make_pipeline(StandardScaler(), clone(pooled)).fit(X_train, y_train)
            row |= class_scores(name, judge.predict_proba(X_test), y_test)
        for folds in (1, 5):
            model = DecentralizedLogisticRegression(folds=folds).fit(X_train, y_train, sites=s_train)
            name = f"dcgs_{folds}"
            row |= class_scores(name, model.predict_proba(X_test), y_test)
            fits = sum(one.rounds for one in model.result_)
            row |= {f"{name}_path": model.rounds_ - fits, f"{name}_fits": fits}
            name = f"fit_{folds}"
            probabilities, rounds, fits = command_fit(X_train, y_train, s_train, X_test, folds)
            row |= class_scores(name, probabilities, y_test)
            row |= {f"{name}_path": rounds - fits, f"{name}_fits": fits}
        found.append(row)
    means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    ratios = {
        name.replace("_fits", "_ratio"): 1.0 + means[name.replace("fits", "path")] / fits
        for name, fits in means.items()
        if name.endswith("_fits")
    }
    return means | ratios


def class_scores(name: str, probabilities: Any, y: Any) -> dict[str, float]:
    """Return accuracy and log loss of the probabilities of classes 0, 1, …"""
    accuracy = float(np.mean(probabilities.argmax(axis=1) == y))
    return {f"{name}_accuracy": accuracy, f"{name}_log_loss": float(log_loss(y, probabilities))}


def command_fit(X: Any, y: Any, sites: Any, X_test: Any, folds: int) -> tuple[Any, int, int]:
    """Return the probabilities of ``dcgs fit logistic --radius auto``, its rounds, and those of the fits."""
    with tempfile.TemporaryDirectory() as folder:
        for site in range(4):
            np.save(Path(folder, f"site-{site}.npy"), np.column_stack([X, y])[sites == site])
        data = f"--data {folder}/site-{{agent}}.npy --open"
        command = f"fit logistic {data} --radius auto --folds {folds} --no-report"
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            assert dcgs_command([*command.split(), "--held-out", "0", "--out", f"{folder}/m"]) == 0
        model = Model.load(Path(folder, "m", "agent-000.npz"))
        told = json.loads(Path(folder, "m", "summary.json").read_text())
    scores = X_test @ np.asarray(model.x).T + model.intercept
    rounds = told["rounds"] + sum(one["rounds"] for one in told["sent"])
    return class_probabilities(scores), rounds, told["rounds"]


def texts(name: str, **penalties: float) -> dict[str, float]:
    """Return the comparison on texts over ten sites; ``penalties`` are those that LassoCV tries, and how."""
    file = Path(os.environ["DCGS_DATA"], "sparse-regression", f"{name}.npz")
    with np.load(file) as npz:
        parts = [npz[part] for part in ("data", "indices", "indptr")]
        X, y = sp.csr_array(tuple(parts), shape=tuple(npz["shape"])), npz["y"].astype(float)
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)  # as scikit-learn needs them
    sites = np.arange(len(y)) * 10 // len(y)
    split = train_test_split(X, y, sites, test_size=0.2, random_state=0)
    pooled = LassoCV(cv=3, **penalties)
    return compared(
        DecentralizedLasso(), make_pipeline(StandardScaler(with_mean=False), pooled), split[:4], split[4]
    )


POOLED_LOGISTIC = LogisticRegressionCV(
    l1_ratios=(1.0,), solver="liblinear", scoring="neg_log_loss", use_legacy_attributes=False
)
RUNS: dict[str, Callable[[], dict[str, float]]] = {
    "breast-cancer": lambda: small(
        load_breast_cancer,
        DecentralizedLogisticRegression(),
        make_pipeline(StandardScaler(), POOLED_LOGISTIC),
    ),
    "diabetes": lambda: small(
        load_diabetes, DecentralizedLasso(), make_pipeline(StandardScaler(), LassoCV())
    ),
    "digits": digits,
    "womens-clothing": lambda: texts("womens-clothing", alphas=20, eps=1e-2, tol=1e-3),
    "mercari": lambda: texts("mercari", alphas=12, eps=0.03, tol=1e-2),
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", choices=list(RUNS), default=list(RUNS))
    parser.add_argument("--json", type=Path, help="write the numbers here, with versions and machine")
    args = parser.parse_args()
    rows = []
    for chosen in args.names:
        rows.append({"data": chosen, **RUNS[chosen]()})
        print(
            {key: value if key == "data" else round(value, 4) for key, value in rows[-1].items()}, flush=True
        )
        if args.json is not None:
            about = environment(0) | {"command": " ".join(["python", *sys.argv])}
            args.json.write_text(json.dumps({"environment": about, "rows": rows}, indent=2) + "\n")
