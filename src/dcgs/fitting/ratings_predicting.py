"""Predictions of a model of ratings: for pairs, for the best columns of a row, and of all rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, final

import numpy as np

from dcgs.fitting.data import Indices, Numbers
from dcgs.fitting.output import find_model, models_in, no_formula
from dcgs.fitting.predicting import Predictions, square_errors
from dcgs.fitting.ratings import read_rated_table
from dcgs.fitting.ratings_model import Labels, Numbering, RatingsFile, together
from dcgs.fitting.readers import EntriesLayout, read_entries
from dcgs.ratings.ids import places_in


def load_models(path: Path, agent: int | None) -> RatingsFile:
    """Return the model in a file, of one agent in a folder, or of all agents in a folder."""
    if path.is_dir() and agent is None:
        return together([RatingsFile.load(file) for file in models_in(path)])
    return RatingsFile.load(find_model(path, agent))


def predict_pairs(file: RatingsFile, data: Path, layout: EntriesLayout) -> Predictions:
    """Return the predictions for the pairs in a file, and their errors if it has values."""
    pairs = _read_pairs(file, data, layout)
    scores = file.model.predict(pairs.rows, pairs.cols)
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
    return Predictions(columns, square_errors(scores, pairs.values), notes)


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
    number = int(_known(file, file.naming.rows_of([row]))[0])
    left_out = None
    if rated is not None:
        pairs = _read_pairs(file, rated, layout)
        here = np.array([str(each) == row for each in pairs.row_names])
        left_out = pairs.cols[here & (pairs.cols >= 0)]
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
        table = _read_pairs(file, rated, layout)
        places = places_in(rows, table.rows)
        known = (places >= 0) & (table.cols >= 0)
        pairs = places[known], table.cols[known]
    text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("row", "column", "prediction"))
    for some, best, scores in file.model.top_of_rows(rows, count, pairs):
        there = best >= 0
        names = np.repeat(np.arange(len(some)), there.sum(axis=1)).tolist()
        users, items = file.naming.row_names(some), file.naming.col_names(best[there])
        texts = (no_formula(users[k]) for k in names), map(no_formula, items)
        writer.writerows(zip(*texts, scores[there].tolist(), strict=True))
    text.detach()  # the caller closes the stream


def _known(file: RatingsFile, rows: Indices) -> Indices:
    """Return the rows, −1 for those that the model does not have."""
    return np.where(places_in(np.asarray(file.model.x.rows), rows) >= 0, rows, -1)


@final
@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of a file: their names there, and their rows and columns, −1 for those that the model lacks."""

    rows: Indices
    cols: Indices
    row_names: Sequence[Any]
    col_names: Sequence[Any]
    values: Numbers | None


def _read_pairs(file: RatingsFile, data: Path, layout: EntriesLayout) -> _Pairs:
    naming = file.naming
    if isinstance(naming, Numbering):
        entries = read_entries(data, layout)
        known = entries.from_zero(naming.base)
        rows, cols = naming.within(known.rows, 0), naming.within(known.cols, 1)
        names = entries.rows.tolist(), entries.cols.tolist()
        return _Pairs(_known(file, rows), cols, *names, entries.values)
    rated = read_rated_table(data, layout)
    row_ids, col_ids = rated.rows.ids, rated.cols.ids
    rows = naming.rows_of(row_ids.texts)[rated.rows.codes]
    cols = naming.items.places(col_ids.texts)[rated.cols.codes]
    names = row_ids[rated.rows.codes], col_ids[rated.cols.codes]
    return _Pairs(_known(file, rows), cols, *names, rated.values)
