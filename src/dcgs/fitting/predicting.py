"""Predictions of a model for new data, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.fitting.data import Numbers, Samples
from dcgs.fitting.models import Model
from dcgs.fitting.readers import SamplesLayout, read_samples


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """Columns to print or write, and errors by name; without targets there are no errors.

    ``note`` says why there are no errors although there are targets.
    """

    columns: Mapping[str, Sequence[Any]]
    errors: Mapping[str, float]
    note: str | None = None


def predict(model: Model, file: Path, layout: SamplesLayout) -> Predictions:
    """Return the predictions of a model for the samples in a file; for ratings see ratings_predicting.py."""
    samples = read_samples(file, layout)
    if samples.A.shape[1] != len(model.x):
        raise BrokenDataError(
            f"{file} must have {len(model.x)} features, as the model; it has {samples.A.shape[1]}. "
            "Give the columns that the model was fitted with."
        )
    scores = np.asarray(samples.A @ model.x)
    return _of_classes(model, samples, scores) if model.problem.labels else _of_numbers(samples, scores)


def samples_layout(model: Model, target: str | None, header: bool | None) -> SamplesLayout:
    """Return how new samples are read: as those of the fit, with or without targets."""
    names = model.reading["names"]
    return SamplesLayout(
        target=model.reading["target"] if target is None else target,
        header=header,
        features=len(model.x),
        targets=target is not None,
        names=None if names is None else tuple(names),
        target_at=model.reading["target_at"],
    )


def _of_numbers(samples: Samples, scores: Numbers) -> Predictions:
    columns = {"prediction": scores.tolist()}
    if samples.b is None:
        return Predictions(columns, {})
    return Predictions(columns | {"target": samples.b.tolist()}, square_errors(scores, samples.b))


def _of_classes(model: Model, samples: Samples, scores: Numbers) -> Predictions:
    low, high = model.reading["labels"]
    # 1 / (1 + exp(−score)), with no exponential that overflows
    probability = np.exp(-np.logaddexp(0.0, -scores))
    columns = {"label": np.where(scores > 0.0, high, low).tolist(), "probability": probability.tolist()}
    if samples.b is None:
        return Predictions(columns, {})
    columns["target"] = samples.b.tolist()
    unknown = samples.b[(samples.b != low) & (samples.b != high)]
    if len(unknown):
        known = f"{low:.12g} and {high:.12g}"
        note = f"no error is computed: the model knows labels {known}, and the data have {unknown[0]:.12g}."
        return Predictions(columns, {}, note)
    signs = np.where(samples.b == high, 1.0, -1.0)
    errors = {
        "accuracy": float(np.mean(np.where(scores > 0.0, 1.0, -1.0) == signs)),
        "log loss": float(np.mean(np.logaddexp(0.0, -signs * scores))),
    }
    return Predictions(columns, errors)


def square_errors(scores: Numbers, targets: Numbers) -> dict[str, float]:
    """Return the root mean square error and the mean absolute error."""
    error = scores - targets
    return {"RMSE": float(np.sqrt(np.mean(error**2))), "mean absolute error": float(np.mean(np.abs(error)))}
