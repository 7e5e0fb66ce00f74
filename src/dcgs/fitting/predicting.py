"""Predictions of a model for new data, and their errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.fitting.data import Numbers
from dcgs.fitting.encoding import Encoding
from dcgs.fitting.models import Model, reading_columns
from dcgs.fitting.readers import SamplesLayout, kind_of, read_ids, read_samples, read_words
from dcgs.fitting.readers.layout import listed
from dcgs.fitting.samples import TABLES
from dcgs.fitting.scores import (
    CalibrationGroup,
    Comparison,
    calibration,
    class_scores,
    label_calibration,
    number_scores,
    probabilities,
    several_class_scores,
    warning,
)
from dcgs.fitting.tables import Column, Table
from dcgs.preprocessing.one_vs_rest import class_numbers, class_probabilities


@final
@dataclass(frozen=True, eq=False)
class Predictions:
    """Columns to print or write, and errors by name; without targets there are no errors.

    ``notes`` are sentences on the data, such as why there are no errors although there are targets.
    ``calibration`` compares probabilities with what was observed.
    """

    columns: dict[str, Sequence[Any]]
    errors: Mapping[str, Comparison]
    notes: tuple[str, ...] = ()
    calibration: tuple[CalibrationGroup, ...] = ()


def predict(model: Model, file: Path, layout: SamplesLayout, ids: str | None = None) -> Predictions:
    """Return the predictions of a model for the samples in a file; for ratings see ratings_predicting.py.

    ``ids`` is a column of a table that goes with the predictions, as it is written.
    """
    if "columns" in model.reading and kind_of(file) in TABLES:
        A, target, notes = _encoded(model, read_words(file, layout))
    else:
        samples = read_samples(file, layout)
        A, target, notes = samples.A, None if samples.b is None else Column(samples.b), []
    if A.shape[1] != model.width:
        raise BrokenDataError(
            f"{file} must have {model.width} features, as the model; it has {A.shape[1]}. "
            "Give the columns that the model was fitted with."
        )
    scores = np.asarray(A @ model.x.T) + model.intercept
    found = _of_classes(model, target, scores) if model.problem.labels else _of_numbers(model, target, scores)
    found = replace(found, notes=(*notes, *found.notes))
    if ids is None:
        return found
    name, texts = read_ids(file, ids, layout)
    return replace(found, columns={f"{name} (id)" if name in found.columns else name: texts} | found.columns)


def _encoded(model: Model, table: Table) -> tuple[Numbers, Column | None, list[str]]:
    """Return the rows of a table as numbers, its targets, and notes on what had to be filled in."""
    encoding = Encoding.from_json(model.reading["columns"])
    A = encoding.matrix(table)
    notes = [f"{table.file} has decimal commas, which were read as such."] if table.commas else []
    for column, own in zip(encoding.columns, table.columns, strict=True):
        unknown = column.unknown(own) if column.levels is not None else []
        if column.levels is None and own.has_words:
            at = own.first(words=True)
            raise BrokenDataError(
                f"column {column.name!r} of {table.file} must be of numbers, as in the fit; line "
                f"{table.rows[at]} has {(own.words or ())[at]!r}. Correct it."
            )
        has = f"column {column.name!r} has"
        if unknown:
            notes.append(f"{has} {listed(unknown)}, unknown to the model: taken as missing.")
        if own.missing.any():
            notes.append(f"{has} {int(own.missing.sum())} missing values, filled as in the fit.")
    return encoding.filled(A), table.target, notes


def samples_layout(model: Model, target: str | None, header: bool | None) -> SamplesLayout:
    """Return how new samples are read: as those of the fit, with or without targets."""
    names = model.reading["names"]
    return SamplesLayout(
        target=model.reading["target"] if target is None else target,
        header=header,
        features=len(reading_columns(model)) or model.width,
        targets=target is not None,
        names=None if names is None else tuple(names),
        target_at=model.reading["target_at"],
    )


def _of_numbers(model: Model, target: Column | None, scores: Numbers) -> Predictions:
    columns: dict[str, Sequence[Any]] = {"prediction": scores.tolist()}
    if target is None or target.has_words or target.missing.all():
        return Predictions(columns, {})
    known = ~target.missing
    columns["target"] = [
        value if there else "" for value, there in zip(target.numbers.tolist(), known, strict=True)
    ]
    mean = float(model.about.get("constant", target.numbers[known].mean()))
    return _judged(columns, number_scores(scores[known], target.numbers[known], mean), model)


def _of_classes(model: Model, target: Column | None, scores: Numbers) -> Predictions:
    labels, texts = model.reading["labels"], model.labels
    columns = _class_columns(labels, texts, scores)
    if target is None or target.missing.all():
        return Predictions(columns, {})
    own, has_words = target.texts, target.has_words or isinstance(labels[-1], str)
    columns["target"] = ["" if text is None else text if has_words else float(text) for text in own]
    unknown = sorted({text for text in own if text is not None} - set(texts))
    if unknown:
        known_labels = f"{', '.join(texts[:-1])} and {texts[-1]}"
        note = f"no error is computed: the model knows labels {known_labels}, and the data have {unknown[0]}."
        return Predictions(columns, {}, notes=(note,))
    known = ~target.missing
    codes = class_numbers([text for text in own if text is not None], texts)
    if len(texts) > 2:
        shares = model.about.get(
            "constant", np.bincount(codes.astype(int), minlength=len(texts)) / len(codes)
        )
        judged = _judged(columns, several_class_scores(scores[known], codes, shares), model)
        return replace(judged, calibration=tuple(label_calibration(scores[known], codes)))
    signs = 2.0 * codes - 1.0
    share = float(model.about.get("constant", np.mean(signs > 0.0)))
    judged = _judged(columns, class_scores(scores[known], signs, share), model)
    return replace(judged, calibration=tuple(calibration(scores[known], signs)))


def _class_columns(
    labels: Sequence[str | float], texts: Sequence[str], scores: Numbers
) -> dict[str, Sequence[Any]]:
    """Return the label of each row, and the probability of the higher label, or of each of several."""
    if len(labels) == 2:
        low, high = labels
        return {
            "label": [high if score > 0.0 else low for score in scores.tolist()],
            "probability": probabilities(scores).tolist(),
        }
    each = class_probabilities(scores).T.tolist()
    named = {f"probability={text}": column for text, column in zip(texts, each, strict=True)}
    return {"label": [labels[at] for at in scores.argmax(axis=1).tolist()], **named}


def _judged(columns: dict[str, Sequence[Any]], found: dict[str, Comparison], model: Model) -> Predictions:
    told = warning(found, bool(model.about.get("balanced", False)))
    return Predictions(columns, found, () if told is None else (f"warning: {told}",))


def square_errors(scores: Numbers, targets: Numbers) -> dict[str, Comparison]:
    """Return the root mean square error and the mean absolute error, beside those of the mean."""
    found = number_scores(scores, targets, float(targets.mean()))
    return {name: each for name, each in found.items() if name != "R²"}
