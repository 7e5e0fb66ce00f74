"""Fit estimators over MPI, each process with its own rows; process 0 prints the models as JSON."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

import dcgs
from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression


def main() -> None:
    """Fit three models to the rows of this process, and one of them again at the processes' own pace."""
    from mpi4py import MPI

    X, y = load_breast_cancer(return_X_y=True)
    own = np.arange(len(y)) % 2 == MPI.COMM_WORLD.rank
    runtime = dcgs.MPI(timeout=60.0)
    classifier = DecentralizedLogisticRegression(runtime=runtime).fit(X[own, :6], y[own])
    lasso = DecentralizedLasso(runtime=runtime).fit(X[own, :6], X[own, 6])
    A, b = many_columns()
    mine = np.arange(len(b)) % 2 == MPI.COMM_WORLD.rank
    wide = DecentralizedLasso(gap=0.1, runtime=runtime).fit(A[mine], b[mine])
    at_own_pace = dcgs.MPI(timeout=60.0, asynchronous=True)
    again = DecentralizedLogisticRegression(runtime=at_own_pace).fit(X[own, :6], y[own])
    signs = np.where(y == 1, 1.0, -1.0)
    losses = [
        float(np.logaddexp(0.0, -signs * model.decision_function(X[:, :6])).sum())
        for model in (classifier, again)
    ]
    # Each is at most its certified gap above the least loss.
    is_close = again.radius_ == classifier.radius_ and (
        -classifier.gap_ <= losses[1] - losses[0] <= again.gap_
    )
    frame = pd.DataFrame(X[own, :3], columns=["age", "hb", "crp"])
    names = ["age", "hb", "crp"] if MPI.COMM_WORLD.rank == 0 else ["hb", "age", "crp"]
    try:
        DecentralizedLasso(1.0, runtime=runtime).fit(frame[names], y[own])
        refused = ""
    except ValueError as error:
        refused = str(error)
    if MPI.COMM_WORLD.rank == 0:
        models = [classifier.coef_[0].tolist(), lasso.coef_.tolist(), wide.coef_.tolist()]
        print(json.dumps([*models, classifier.rounds_, wide.rounds_, bool(is_close), refused]))


def many_columns() -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return rows with 100 features, and targets. Their path is made by sums of gradients."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((600, 100))
    return A, A[:, :5].sum(axis=1) + rng.standard_normal(600)


if __name__ == "__main__":
    main()
