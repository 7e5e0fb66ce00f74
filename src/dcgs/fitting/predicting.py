"""Predictions of a model for new data, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.fitting.data import Entries, Numbers, Samples
from dcgs.fitting.models import Model
from dcgs.fitting.readers import EntriesLayout, SamplesLayout, read_entries, read_samples


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """Columns to print or write, and errors by name; without targets there are no errors.

    ``note`` says why there are no errors although there are targets.
    """

    columns: Mapping[str, Sequence[Any]]
    errors: Mapping[str, float]
    note: str | None = None


def predict(model: Model, file: Path, layout: SamplesLayout | EntriesLayout) -> Predictions:
    """Return the predictions of a model for the data in a file."""
    if isinstance(layout, EntriesLayout):
        return _of_entries(model, file, read_entries(file, layout))
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


def top_columns(model: Model, row: int, count: int, seen: Entries | None) -> Predictions:
    """Return the columns with the highest predictions in a row, except those that ``seen`` has there."""
    first = model.reading["base"]
    rows = model.x.shape[0]
    if not first <= row < rows + first:
        raise ValueError(f"the row must be from {first} to {rows - 1 + first}; got {row}.")
    scores = model.x[row - first].copy()
    if seen is not None:
        known = seen.from_zero(first)
        here = known.cols[known.rows == row - first]
        scores[here[(here >= 0) & (here < len(scores))]] = -np.inf
    order = [int(at) for at in np.argsort(-scores, kind="stable")[:count] if scores[at] > -np.inf]
    return Predictions(
        {"column": [at + first for at in order], "prediction": [float(scores[at]) for at in order]}, {}
    )


def _of_numbers(samples: Samples, scores: Numbers) -> Predictions:
    columns = {"prediction": scores.tolist()}
    if samples.b is None:
        return Predictions(columns, {})
    return Predictions(columns | {"target": samples.b.tolist()}, _square_errors(scores, samples.b))


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


def _of_entries(model: Model, file: Path, entries: Entries) -> Predictions:
    first = model.reading["base"] if entries.base is None else entries.base
    known = entries.from_zero(first)
    outside = known.first_outside((model.x.shape[0], model.x.shape[1]))
    if outside is not None:
        name, entry, found, side = outside
        raise BrokenDataError(
            f"a {name} must be from {first} to {side - 1 + first}, as in the model; entry {entry + 1} of "
            f"{file} has {found + first}. Leave it out, or give --zero-based or --one-based."
        )
    scores = model.x[known.rows, known.cols]
    columns = {"row": entries.rows.tolist(), "column": entries.cols.tolist(), "prediction": scores.tolist()}
    if entries.values is None:
        return Predictions(columns, {})
    return Predictions(columns | {"value": entries.values.tolist()}, _square_errors(scores, entries.values))


def _square_errors(scores: Numbers, targets: Numbers) -> dict[str, float]:
    error = scores - targets
    return {"RMSE": float(np.sqrt(np.mean(error**2))), "mean absolute error": float(np.mean(np.abs(error)))}
