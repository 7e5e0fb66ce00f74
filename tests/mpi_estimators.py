"""Fit estimators over MPI, each process with its own rows; process 0 prints the models as JSON."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from mpi4py import MPI
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer

import dcgs
from dcgs.estimators import DecentralizedLasso, DecentralizedLogisticRegression


def main() -> None:
    """Fit three models to the rows of this process, and one of them again at the processes' own pace."""
    X, y = load_breast_cancer(return_X_y=True)
    own = np.arange(len(y)) % 2 == MPI.COMM_WORLD.rank
    runtime = dcgs.MPI(timeout=60.0)
    classifier = DecentralizedLogisticRegression(runtime=runtime).fit(X[own, :6], y[own])
    lasso = DecentralizedLasso(runtime=runtime).fit(X[own, :6], X[own, 6])
    wide = DecentralizedLasso(gap=0.1, runtime=runtime).fit(products(X)[own], y[own])
    at_own_pace = dcgs.MPI(timeout=60.0, asynchronous=True)
    again = DecentralizedLogisticRegression(runtime=at_own_pace).fit(X[own, :6], y[own])
    # Both are certified to 1e-4 of what the model explains.
    differ = np.abs(again.predict_proba(X[:, :6]) - classifier.predict_proba(X[:, :6])).max()
    frame = pd.DataFrame(X[own, :3], columns=["age", "hb", "crp"])
    names = ["age", "hb", "crp"] if MPI.COMM_WORLD.rank == 0 else ["hb", "age", "crp"]
    try:
        DecentralizedLasso(1.0, runtime=runtime).fit(frame[names], y[own])
        refused = ""
    except ValueError as error:
        refused = str(error)
    if MPI.COMM_WORLD.rank == 0:
        models = [classifier.coef_[0].tolist(), lasso.coef_.tolist(), wide.coef_.tolist()]
        print(json.dumps([*models, classifier.rounds_, wide.rounds_, bool(differ < 0.02), refused]))


def products(X: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 100 features: all products of two of ten columns. Their path is made by sums of gradients."""
    return np.asarray(X[:, :10, None] * X[:, None, :10]).reshape(len(X), 100)


if __name__ == "__main__":
    main()
