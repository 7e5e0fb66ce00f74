"""Predictions of a model for new data in files, and their errors."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from dcgs.datasets import BrokenDataError
from dcgs.datasets.store import whole_lines
from dcgs.learn.files.folder import find_model, models_in, no_formula
from dcgs.learn.files.layout import EntriesLayout, SamplesLayout
from dcgs.learn.files.model import Model, RatingsFile, load_model
from dcgs.learn.files.ratings import read_rated_table
from dcgs.learn.files.readers import kind_of, read_entries, read_ids, read_samples, read_words
from dcgs.learn.files.rows import TABLES
from dcgs.learn.files.source import Indices, Numbers
from dcgs.learn.files.tables import Column, Table
from dcgs.learn.files.text import decoded
from dcgs.learn.linear.classes import class_numbers, class_probabilities
from dcgs.learn.linear.scores import (
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
from dcgs.learn.ratings.ids import places_in
from dcgs.learn.ratings.model import AgentRatings, Labels, Numbering, together
from dcgs.validation import Label, counted, listed


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
    """Return the predictions of a model for the samples in a file.

    ``ids`` is a column of a table that goes with the predictions, as it is written.
    """
    if model.reading.columns is not None and kind_of(file) in TABLES:
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
    of_model = _of_classes if model.problem.labels else _of_numbers
    predictions = of_model(model, target, scores)
    predictions = replace(predictions, notes=(*notes, *predictions.notes))
    if ids is None:
        return predictions
    name, texts = read_ids(file, ids, layout)
    name = f"{name} (id)" if name in predictions.columns else name
    return replace(predictions, columns={name: texts} | predictions.columns)


def _encoded(model: Model, table: Table) -> tuple[Numbers, Column | None, list[str]]:
    """Return the rows of a table as numbers, its targets, and notes on what had to be filled in."""
    encoding = model.reading.encoding
    assert encoding is not None
    A = encoding.matrix(table)
    notes = [f"{table.file} has decimal commas, which were read as such."] if table.commas else []
    for column, given in zip(encoding.columns, table.columns, strict=True):
        unknown = column.unknown(given) if column.levels is not None else []
        if column.levels is None and given.has_words:
            row = given.first(words=True)
            raise BrokenDataError(
                f"column {column.name!r} of {table.file} must be of numbers, as in the fit; line "
                f"{table.rows[row]} has {(given.words or ())[row]!r}. Correct it."
            )
        has = f"column {column.name!r} has"
        if unknown:
            notes.append(f"{has} {listed(unknown)}, unknown to the model: taken as missing.")
        if given.missing.any():
            notes.append(f"{has} {counted(int(given.missing.sum()), 'missing value')}, filled as in the fit.")
    return encoding.filled(A), table.target, notes


def samples_layout(model: Model, target: str | None, header: bool | None) -> SamplesLayout:
    """Return how new samples are read: as those of the fit, with or without targets."""
    reading = model.reading
    return SamplesLayout(
        target=reading.target if target is None else target,
        header=header,
        features=len(reading.columns or ()) or model.width,
        targets=target is not None,
        names=reading.names,
        target_at=reading.target_at,
    )


def _of_numbers(model: Model, target: Column | None, scores: Numbers) -> Predictions:
    columns: dict[str, Sequence[Any]] = {"prediction": scores.tolist()}
    if target is None or target.has_words or target.missing.all():
        return Predictions(columns, {})
    known = ~target.missing
    pairs = zip(target.numbers.tolist(), known, strict=True)
    columns["target"] = [value if is_known else "" for value, is_known in pairs]
    constant = model.summary.constant
    mean = constant if isinstance(constant, float) else float(target.numbers[known].mean())
    return _scored(columns, number_scores(scores[known], target.numbers[known], mean), model)


def _of_classes(model: Model, target: Column | None, scores: Numbers) -> Predictions:
    labels, texts, constant = model.reading.labels, model.labels, model.summary.constant
    columns = _class_columns(labels, texts, scores)
    if target is None or target.missing.all():
        return Predictions(columns, {})
    given, has_words = target.texts, target.has_words or isinstance(labels[-1], str)
    columns["target"] = ["" if text is None else text if has_words else float(text) for text in given]
    unknown = sorted({text for text in given if text is not None} - set(texts))
    if unknown:
        known_labels = f"{', '.join(texts[:-1])} and {texts[-1]}"
        note = f"no error is computed: the model knows labels {known_labels}, and the data have {unknown[0]}."
        return Predictions(columns, {}, notes=(note,))
    known = ~target.missing
    codes = class_numbers([text for text in given if text is not None], texts)
    if len(texts) > 2:
        counts = np.bincount(codes.astype(int), minlength=len(texts))
        shares = constant if isinstance(constant, tuple) else (counts / len(codes)).tolist()
        class_errors = several_class_scores(scores[known], codes, shares)
        return replace(
            _scored(columns, class_errors, model), calibration=tuple(label_calibration(scores[known], codes))
        )
    signs = 2.0 * codes - 1.0
    share = constant if isinstance(constant, float) else float(np.mean(signs > 0.0))
    scored = _scored(columns, class_scores(scores[known], signs, share), model)
    return replace(scored, calibration=tuple(calibration(scores[known], signs)))


def _class_columns(
    labels: Sequence[Label], texts: Sequence[str], scores: Numbers
) -> dict[str, Sequence[Any]]:
    """Return the label of each row, and the probability of the higher label, or of each of several."""
    if len(labels) == 2:
        low, high = labels
        return {
            "label": [high if score > 0.0 else low for score in scores.tolist()],
            "probability": probabilities(scores).tolist(),
        }
    shares = class_probabilities(scores).T.tolist()
    named = {f"probability={text}": column for text, column in zip(texts, shares, strict=True)}
    return {"label": [labels[k] for k in scores.argmax(axis=1).tolist()], **named}


def _scored(columns: dict[str, Sequence[Any]], scores: dict[str, Comparison], model: Model) -> Predictions:
    worse = warning(scores, model.summary.balanced)
    return Predictions(columns, scores, () if worse is None else (f"warning: {worse}",))


def load_ratings(path: Path, agent: int | None) -> AgentRatings:
    """Return the model of ratings in a file, of one agent in a folder, or of all agents in a folder."""
    files = models_in(path) if path.is_dir() and agent is None else [find_model(path, agent)]
    models = [load_model(file) for file in files]
    try:
        return together([model.agent for model in models if isinstance(model, RatingsFile)])
    except ValueError as error:
        raise ValueError(f"the models in {path} do not go together: {error} Use --agent.") from error


def predict_pairs(agent: AgentRatings, data: Path, layout: EntriesLayout) -> Predictions:
    """Return the predictions for the pairs in a file, and their errors if it has values."""
    pairs = _read_pairs(agent, data, layout)
    scores = agent.model.predict(pairs.rows, pairs.cols)
    columns = {"row": pairs.row_names, "column": pairs.col_names, "prediction": scores.tolist()}
    rows, cols = int((pairs.rows < 0).sum()), int((pairs.cols < 0).sum())
    unseen = (
        f"{rows} pairs have a row and {cols} a column that the model does not have; "
        "their predictions are offsets alone."
    )
    notes = (unseen,) if rows or cols else ()
    if pairs.values is None:
        return Predictions(columns, {}, notes)
    columns["value"] = pairs.values.tolist()
    errors = number_scores(scores, pairs.values, float(pairs.values.mean()))
    return Predictions(columns, {name: error for name, error in errors.items() if name != "R²"}, notes)


def folded_in(agent: AgentRatings, file: Path, layout: EntriesLayout) -> tuple[AgentRatings, list[str]]:
    """Return the model with rows of new users in a file of ratings, and notes on what was left out."""
    pairs = _read_pairs(agent, file, replace(layout, values=True))
    assert pairs.values is not None
    users, items = np.asarray(pairs.row_names), np.asarray(pairs.col_names)
    known, unknown = len(set(users[pairs.rows >= 0].tolist())), int((pairs.cols < 0).sum())
    extended = agent.folded_in(users, items, pairs.values)
    new = len(extended.model.x.U) - len(agent.model.x.U)
    notes = [f"rows were found for {counted(new, 'new user')} of {file}, from their ratings."]
    notes += [f"{counted(known, 'user')} of {file} in the model: their rows are as before."] if known else []
    out = f"{counted(unknown, 'rating')} of {file} left out: the model does not have the items."
    notes += [out] if unknown else []
    return extended, notes


def outside_catalogue(agent: AgentRatings, file: Path, encoding: str | None) -> tuple[Indices, list[str]]:
    """Return the columns that a catalogue, an item on each line, does not have; a note on unknown items."""
    ids: list[str] = []
    for first_line, content in whole_lines(file, 1 << 20):
        text = decoded(file, first_line, content, encoding).removeprefix("\ufeff")
        ids += [line.strip() for line in text.split("\n") if line.strip()]
    cols = agent.naming.cols_of(ids) if ids else np.empty(0, dtype=np.intp)
    if not (cols >= 0).any():
        raise BrokenDataError(
            f"{file} must have an item of the model on each line; it has {len(ids)} lines, and none is one."
        )
    unknown = [name for name, col in zip(ids, cols, strict=True) if col < 0]
    notes = [f"items of {file} that the model does not have: {listed(unknown)}."] if unknown else []
    return np.setdiff1d(np.arange(agent.model.x.shape[1]), cols), notes


def best_columns(
    agent: AgentRatings,
    row: str,
    count: int,
    rated: Path | None,
    layout: EntriesLayout,
    without: Indices | None = None,
) -> Predictions:
    """Return the columns with the highest predictions in a row, except those that ``rated`` has there.

    A row that the fit has not seen gets the columns that are best by their offsets. ``without`` are columns
    that are left out.
    """
    if row in agent.doubles:
        raise ValueError(
            f"the row must be that of one agent; several agents have a user {row!r}. Choose with --agent."
        )
    number = int(agent.rows_of([row])[0])
    left_out = np.empty(0, dtype=np.intp) if without is None else without
    if rated is not None:
        pairs = _read_pairs(agent, rated, layout)
        is_row = np.array([str(name) == row for name in pairs.row_names])
        left_out = np.union1d(left_out, pairs.cols[is_row & (pairs.cols >= 0)])
    best, scores = agent.model.top(number, count, left_out)
    unseen = f"row {row} was not in the fit: its predictions are offsets alone."
    columns = {"column": agent.naming.col_names(best), "prediction": scores.tolist()}
    return Predictions(columns, {}, () if number >= 0 else (unseen,))


def write_best_of_all(
    agent: AgentRatings,
    count: int,
    rated: Path | None,
    layout: EntriesLayout,
    stream: IO[bytes],
    without: Indices | None = None,
) -> None:
    """Write the best columns of all rows as CSV, some rows at a time."""
    rows = np.asarray(agent.model.x.rows)
    if isinstance(agent.naming, Labels):
        rows = np.sort(agent.naming.numbers)
    pairs = None
    if rated is not None:
        table = _read_pairs(agent, rated, layout)
        places = places_in(rows, table.rows)
        known = (places >= 0) & (table.cols >= 0)
        pairs = places[known], table.cols[known]
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("row", "column", "prediction"))
    for some, best, scores in agent.model.top_of_rows(rows, count, pairs, without):
        there = best >= 0
        names = np.repeat(np.arange(len(some)), there.sum(axis=1)).tolist()
        users, items = agent.naming.row_names(some), agent.naming.col_names(best[there])
        texts = (no_formula(users[k]) for k in names), map(no_formula, items)
        writer.writerows(zip(*texts, scores[there].tolist(), strict=True))
    text.detach()  # the caller closes the stream


@final
@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of a file: their names there, and their rows and columns, −1 for those that the model lacks."""

    rows: Indices
    cols: Indices
    row_names: Sequence[Any]
    col_names: Sequence[Any]
    values: Numbers | None


def _read_pairs(agent: AgentRatings, data: Path, layout: EntriesLayout) -> _Pairs:
    naming = agent.naming
    if isinstance(naming, Numbering):
        entries = read_entries(data, layout)
        known = entries.from_zero(naming.base)
        rows, cols = naming.within(known.rows, 0), naming.within(known.cols, 1)
        names = entries.rows.tolist(), entries.cols.tolist()
        return _Pairs(agent.known(rows), cols, *names, entries.values)
    rated = read_rated_table(data, layout)
    row_ids, col_ids = rated.rows.ids, rated.cols.ids
    rows = agent.rows_of(row_ids.texts)[rated.rows.codes]
    cols = naming.cols_of(col_ids.texts)[rated.cols.codes]
    names = row_ids[rated.rows.codes], col_ids[rated.cols.codes]
    return _Pairs(rows, cols, *names, rated.values)
