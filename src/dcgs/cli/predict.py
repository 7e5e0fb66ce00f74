"""``dcgs predict``: what a model says of new data."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.cli.values import count, seed
from dcgs.fitting import (
    EntriesLayout,
    Model,
    Predictions,
    best,
    find_model,
    predict,
    put,
    read_entries,
    samples_layout,
    table,
    write_whole,
)

_ABOUT = """\
Apply a model of dcgs fit to new data: numbers for lasso and least-squares, labels and
probabilities for logistic, entries of the matrix for completion.
"""

_MORE = """\
MODEL is an agent's file, or the folder of a fit (then agent 0's, or the one --agent names). Data are
read as those of the fit; a table with names may have its columns in any order. Where the data
have targets the error is told: the root of the mean square, or accuracy and log loss.

examples:
  dcgs predict model/ --data new.svm
  dcgs predict model/ --data new.csv --out predictions.csv
  dcgs predict model/agent-003.npz --data held-out.csv
  dcgs predict model/ --row 7 --top 5                      the best columns for row 7
  dcgs predict model/ --row 7 --top 5 --data ratings.csv   without those it has rated already
"""

_SHOWN = 10


def add(jobs: Any) -> None:
    """Add the job to the command."""
    parser = jobs.add_parser(
        "predict",
        help="apply a model of dcgs fit to new data",
        description=_ABOUT,
        epilog=_MORE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model, or the folder of a fit")
    parser.add_argument("--data", type=Path, metavar="FILE", help="in any format of dcgs fit")
    parser.add_argument("--agent", type=seed, metavar="I", help="whose model of a folder (default: 0)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all predictions as CSV")
    parser.add_argument(
        "--target", metavar="COLUMN", help="of tables (default: as in the fit, if it is there)"
    )
    parser.add_argument("--columns", metavar="ROW,COL[,VALUE]", help="of tables, for completion")
    parser.add_argument(
        "--header",
        action=argparse.BooleanOptionalAction,
        help="whether the first line has names (default: see)",
    )
    based = parser.add_mutually_exclusive_group()
    for name, base in (("--zero-based", 0), ("--one-based", 1)):
        based.add_argument(
            name,
            dest="base",
            action="store_const",
            const=base,
            help=f"rows and columns count from {base} (default: as in the fit; .npz from 0)",
        )
    parser.add_argument("--row", type=seed, metavar="R", help="for completion: the best columns of this row")
    parser.add_argument("--top", type=count, metavar="N", help="how many of them (default: 10)")
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    model = Model.load(find_model(args.model, args.agent))
    found = _predictions(args, model)
    if args.out is None:
        _show(found, console)
    else:
        _write(args.out, found)
        console.print(f"written: {args.out}", soft_wrap=True)
    if found.note is not None:
        console.print(found.note, soft_wrap=True)
    for name, value in found.errors.items():
        console.print(f"{name} {value:.6g}")
    return 0


def _predictions(args: argparse.Namespace, model: Model) -> Predictions:
    completes = model.problem.entries
    foreign = ("target",) if completes else ("columns", "base", "row", "top")
    given = [name for name in foreign if getattr(args, name) is not None]
    if given:
        raise ValueError(f"--{given[0]} must be left out for a model of {model.problem.name}; got it.")
    if args.row is None and args.top is not None:
        raise ValueError("--top tells the best columns of a row; say which with --row.")
    if args.data is None and args.row is None:
        raise ValueError("there must be data to predict for; give --data FILE.")
    if not completes:
        return predict(model, args.data, samples_layout(model, args.target, args.header))
    columns = None if args.columns is None else tuple(name.strip() for name in args.columns.split(","))
    layout = EntriesLayout(columns, args.header, args.base, values=False)
    if args.row is None:
        return predict(model, args.data, layout)
    seen = None if args.data is None else read_entries(args.data, layout)
    return best(model, args.row, args.top or 10, seen)


def _show(found: Predictions, console: Console) -> None:
    shown = Table(*found.columns)
    rows = list(zip(*found.columns.values(), strict=True))
    for row in rows[:_SHOWN]:
        shown.add_row(*(f"{cell:.6g}" if isinstance(cell, float) else str(cell) for cell in row))
    console.print(shown)
    if len(rows) > _SHOWN:
        console.print(f"and {len(rows) - _SHOWN} more; write all with --out FILE")


def _write(path: Path, found: Predictions) -> None:
    text = table(found.columns)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole({path: partial(put, text)})
    except OSError as error:
        raise OSError(
            f"{path} must be a file that can be written; {error.strerror or error}. "
            "Choose another with --out."
        ) from error
