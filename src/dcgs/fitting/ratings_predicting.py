"""Predictions of a model of ratings: for pairs, for the best columns of a row, and of all rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import numpy as np

from dcgs.fitting.data import Indices
from dcgs.fitting.models import find_model, models_in
from dcgs.fitting.naming import Labels
from dcgs.fitting.predicting import Predictions, square_errors
from dcgs.fitting.ratings import read_rated_table
from dcgs.fitting.ratings_model import RatingsFile, together
from dcgs.fitting.readers import EntriesLayout
from dcgs.fitting.readers.ratings import Coded
from dcgs.ratings.ids import Ids


def load_models(path: Path, agent: int | None) -> RatingsFile:
    """Return the model in a file, of one agent in a folder, or of all agents in a folder."""
    if path.is_dir() and agent is None:
        return together([RatingsFile.load(file) for file in models_in(path)])
    return RatingsFile.load(find_model(path, agent))


def predict_pairs(file: RatingsFile, data: Path, layout: EntriesLayout) -> Predictions:
    """Return the predictions for the pairs in a file, and their errors if it has values."""
    rated = read_rated_table(data, layout)
    rows, cols = file.naming.rows_of(rated.rows), file.naming.cols_of(rated.cols)
    scores = file.model.predict(_known(file, rows), cols)
    columns = {
        "row": rated.rows.ids[rated.rows.codes],
        "column": rated.cols.ids[rated.cols.codes],
        "prediction": scores.tolist(),
    }
    notes = _notes(file, rows, cols)
    if rated.values is None:
        return Predictions(columns, {}, notes)
    errors = square_errors(scores, rated.values)
    return Predictions(columns | {"value": rated.values.tolist()}, errors, notes)


def best_columns(
    file: RatingsFile, row: str, count: int, rated: Path | None, layout: EntriesLayout
) -> Predictions:
    """Return the columns with the highest predictions in a row, except those that ``rated`` has there.

    A row that the fit has not seen gets the columns that are best by their offsets.
    """
    if row in file.doubles:
        raise ValueError(
            f"the row must be that of one agent; several agents have a user {row!r}. Choose with --agent."
        )
    name = Coded(np.zeros(1, dtype=np.intp), Ids.of([row]))
    number = int(_known(file, file.naming.rows_of(name))[0])
    left_out = None
    if rated is not None:
        pairs = read_rated_table(rated, layout)
        here = pairs.rows.ids.texts[pairs.rows.codes] == name.ids.texts[0]
        cols = file.naming.cols_of(pairs.cols)[here]
        left_out = cols[cols >= 0]
    best, scores = file.model.top(number, count, left_out)
    unseen = f"row {row} was not in the fit: its predictions are offsets alone."
    columns = {"column": file.naming.col_names(best), "prediction": scores.tolist()}
    return Predictions(columns, {}, () if number >= 0 else (unseen,))


def write_best_of_all(
    file: RatingsFile, count: int, rated: Path | None, layout: EntriesLayout, stream: IO[bytes]
) -> None:
    """Write the best columns of all rows as CSV, some rows at a time."""
    rows = np.asarray(file.model.x.rows)
    if isinstance(file.naming, Labels):
        rows = np.sort(file.naming.numbers)
    pairs = None
    if rated is not None:
        table = read_rated_table(rated, layout)
        places, cols = _places(rows, file.naming.rows_of(table.rows)), file.naming.cols_of(table.cols)
        known = (places >= 0) & (cols >= 0)
        pairs = places[known], cols[known]
    stream.write(b"row,column,prediction\n")
    for lines in _lines(file, rows, count, pairs):
        stream.write(lines.encode())


def _lines(
    file: RatingsFile, rows: Indices, count: int, pairs: tuple[Indices, Indices] | None
) -> Iterator[str]:
    for some, best, scores in file.model.top_of_rows(rows, count, pairs):
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        there = best >= 0
        names = np.repeat(np.arange(len(some)), there.sum(axis=1)).tolist()
        users, items = file.naming.row_names(some), file.naming.col_names(best[there])
        writer.writerows(zip((users[k] for k in names), items, scores[there].tolist(), strict=True))
        yield buffer.getvalue()


def _places(rows: Indices, wanted: Indices) -> Indices:
    at = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
    return np.where(rows[at] == wanted, at, -1)


def _known(file: RatingsFile, rows: Indices) -> Indices:
    """Return the rows, −1 for those that the model does not have."""
    return np.where(_places(np.asarray(file.model.x.rows), rows) >= 0, rows, -1)


def _notes(file: RatingsFile, rows: Indices, cols: Indices) -> tuple[str, ...]:
    """Return a note on pairs that the fit has not seen."""
    unseen_rows, unseen_cols = int((_known(file, rows) < 0).sum()), int((cols < 0).sum())
    if not unseen_rows and not unseen_cols:
        return ()
    return (
        f"{unseen_rows} pairs have a row and {unseen_cols} a column that the model does not have; "
        "their predictions are offsets alone.",
    )
