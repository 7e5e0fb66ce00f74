"""``dcgs predict``: apply a model to new data."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.cli import EscapingConsole
from dcgs.cli.fit_options import add_reading_options, columns_of, text_format
from dcgs.cli.jobs import HELP
from dcgs.cli.values import count, job, option, path, seed
from dcgs.files import Content, is_stream, write_through
from dcgs.learn.files.folder import csv_text, find_model
from dcgs.learn.files.layout import EntriesLayout
from dcgs.learn.files.model import RatingsFile, load_model
from dcgs.learn.files.predict import (
    Predictions,
    best_columns,
    folded_in,
    load_ratings,
    outside_catalogue,
    predict,
    predict_pairs,
    samples_layout,
    write_best_of_all,
)

_ABOUT = """\
Apply a model of dcgs fit to new data: numbers for lasso and least-squares, labels and
probabilities for logistic, entries of the matrix for completion.
"""

_MORE = """\
MODEL is an agent's file, or the folder of a fit: then the first in it, or the one --agent names; for
completion the rows of all agents. Data are read as in the fit; a table with names may have its columns in any
order. Missing values, and levels that the model does not know, are filled in as in the fit. If the data have
targets, scores are printed beside those without features: RMSE, mean absolute error and R², or accuracy,
AUC (of more than two classes, the mean of each against all others), log loss and calibration.

examples:
  dcgs predict model/ --data new.svm
  dcgs predict model/ --data new.csv --out predictions.csv
  dcgs predict model/ --data new.csv --id patient --out predictions.csv
  dcgs predict model/agent-003.npz --data held-out.csv
  dcgs predict model/ --row u739 --top 5                      the best columns for row u739
  dcgs predict model/ --row u739 --top 5 --data ratings.csv   without those it has rated already
  dcgs predict model/ --top 10 --data ratings.csv --out best.csv   for all rows
  dcgs predict model/ --row new7 --top 5 --fold-in new.csv --catalogue shop.txt
"""

_PRINTED = 10


def add(jobs: Any) -> None:
    """Add the job to the command."""
    parser = job(jobs, "predict", HELP["predict"], _ABOUT, _MORE)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model, or the folder of a fit")
    option(parser, "--agent I", "whose model of a folder (default: the first in it)", seed)
    option(parser, "--out FILE", "write all predictions as CSV", path)
    data = parser.add_argument_group("data")
    option(data, "--data FILE", "in any format of dcgs fit", Path)
    option(data, "--target COLUMN", "of tables (default: as in the fit, if the column is there)")
    option(
        data, "--id COLUMN", "of tables, a column that goes with the predictions, such as a number of rows"
    )
    add_reading_options(data, "of tables, for completion", base="as in the fit; .npz from 0")
    best = parser.add_argument_group("the best columns of a row, for completion")
    option(best, "--row R", "the row: its id, or its number")
    text = "how many columns (default: 10); without --row of all rows, which needs --out"
    option(best, "--top N", text, count)
    option(best, "--catalogue FILE", "the only columns to choose from, one on each line", Path)
    text = "ratings of users whom the model lacks: their rows are found from these, without a fit"
    option(data, "--fold-in FILE", text, Path)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    if args.out is not None and is_stream(args.out):  # there the predictions are alone
        console = EscapingConsole(sys.stderr)
    predictions = _predictions(args)
    if args.out is None:
        _print(predictions, console)
    else:
        if predictions.columns:
            _write(args.out, csv_text(predictions.columns).encode())
        console.print(f"written: {args.out}", soft_wrap=True)
    for name, entry in predictions.errors.items():
        console.print(f"{name} {entry.model:.6g}   (without features: {entry.constant:.6g})", highlight=False)
    if predictions.calibration:
        _print_calibration(predictions, console)
    for note in predictions.notes:
        console.print(note, soft_wrap=True)
    return 0


def _print_calibration(predictions: Predictions, console: Console) -> None:
    several = "probability" not in predictions.columns
    observed = "share that is right" if several else "observed share"
    order = "the probability of their label" if several else "their probability"
    table = Table("rows", "mean probability", observed, title=f"calibration: rows in order of {order}")
    for group in predictions.calibration:
        table.add_row(str(group.rows), f"{group.predicted:.3f}", f"{group.observed:.3f}")
    console.print(table)


def _predictions(args: argparse.Namespace) -> Predictions:
    """Return the predictions; those of all rows are written already, and have no columns here."""
    model = load_model(find_model(args.model, args.agent))
    if isinstance(model, RatingsFile):
        return _ratings(args)
    _check_left_out(args, ("columns", "base", "row", "top", "fold_in", "catalogue"), model.problem.name)
    if args.data is None:
        raise ValueError("there must be data to predict for; give --data FILE.")
    layout = samples_layout(model, args.target, args.header)
    return predict(model, args.data, replace(layout, text=text_format(args)), args.id)


def _ratings(args: argparse.Namespace) -> Predictions:
    _check_left_out(args, ("target", "decimal", "id"), "completion")
    model = load_ratings(args.model, args.agent)
    layout = EntriesLayout(columns_of(args), args.header, args.base, values=False, text=text_format(args))
    notes, without = list[str](), None
    if args.catalogue is not None:
        without, notes = outside_catalogue(model, args.catalogue, args.encoding)
    if args.fold_in is not None:
        model, more = folded_in(model, args.fold_in, layout)
        notes += more
    if args.row is not None:
        return _noted(best_columns(model, args.row, args.top or 10, args.data, layout, without), notes)
    if args.top is not None:
        if args.out is None:
            raise ValueError("the best columns of all rows are written to a file; give --out FILE, or --row.")
        write = partial(write_best_of_all, model, args.top, args.data, layout, without=without)
        _write(args.out, write)
        return Predictions({}, {}, tuple(notes))
    if args.data is None:
        raise ValueError("there must be data to predict for; give --data FILE, or a row with --row.")
    if args.catalogue is not None:
        raise ValueError("--catalogue is for the best columns; got none of --row and --top. Leave it out.")
    return _noted(predict_pairs(model, args.data, layout), notes)


def _noted(predictions: Predictions, notes: Sequence[str]) -> Predictions:
    return replace(predictions, notes=(*notes, *predictions.notes))


def _check_left_out(args: argparse.Namespace, foreign: tuple[str, ...], problem: str) -> None:
    given = [name.replace("_", "-") for name in foreign if getattr(args, name) is not None]
    if given:
        raise ValueError(f"--{given[0]} must be left out for a model of {problem}; got it.")


def _print(predictions: Predictions, console: Console) -> None:
    table = Table(*predictions.columns)
    rows = list(zip(*predictions.columns.values(), strict=True))
    for row in rows[:_PRINTED]:
        table.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(table)
    if len(rows) > _PRINTED:
        console.print(f"and {len(rows) - _PRINTED} more; write all with --out FILE")


def _write(path: Path, content: Content) -> None:
    try:
        write_through(path, content)
    except OSError as error:
        raise OSError(
            f"{path} must be a file that can be written; {error.strerror or error}. "
            "Choose another with --out."
        ) from error
