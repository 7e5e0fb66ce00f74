"""``dcgs show``: what a model is, and where it comes from."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from dcgs.cli.jobs import HELP
from dcgs.cli.values import count, job, option, seed
from dcgs.learn.files.folder import find_model
from dcgs.learn.files.model import Coefficients, Model, RatingsFile, load_model
from dcgs.learn.files.specs import PROBLEMS
from dcgs.learn.summary import scores_table, sent_table
from dcgs.report.numbers import screen_table, size

_ABOUT = """\
Print what a model of dcgs fit is: its largest coefficients by name, the set and the radius, the certified
gap, how good it was on rows held out, and what the agents sent each other.
"""

_MORE = """\
A coefficient is in the units of your column: by how much the prediction (for logistic, the log odds of
the higher label; of more than two, of each class against all others) changes if the column grows by 1.
To compare columns of different units it is also shown per deviation of the column over all sites, and sorted
by that. The name of a category's coefficient is column=level.

examples:
  dcgs show model/
  dcgs show model/ --top 30
  dcgs show model/agent-003.npz
"""


def add(jobs: Any) -> None:
    """Add the job to the command."""
    parser = job(jobs, "show", HELP["show"], _ABOUT, _MORE)
    parser.add_argument("model", type=Path, metavar="MODEL", help="a model, or the folder of a fit")
    option(parser, "--agent I", "whose model of a folder (default: the first in it)", seed)
    option(parser, "--top N", "how many coefficients (default: 15)", count, default=15)
    parser.set_defaults(run=_run)


def _run(args: argparse.Namespace, console: Console) -> int:
    model = load_model(find_model(args.model, args.agent))
    summary = model.summary
    problem = PROBLEMS["completion"] if isinstance(model, RatingsFile) else model.problem
    console.print(f"{problem.name}: {problem.about}", soft_wrap=True)
    facts = summary.facts | {"bytes sent": size(summary.bytes)}
    facts |= _of_ratings(model) if isinstance(model, RatingsFile) else _of_rows(model)
    for name, text in (facts | {"method": summary.method}).items():
        console.print(f"{name}: {text}", soft_wrap=True, highlight=False)
    if isinstance(model, Model) and not problem.entries:
        for largest in model.largest(args.top):
            console.print(_coefficients(largest))
    if summary.scores is not None and summary.scores.of_all.scores:
        console.print(screen_table(scores_table(summary.scores)))
    if summary.sent:
        console.print(screen_table(sent_table(summary)))
    told = "a sum over few people tells about these people: docs/privacy.md says what neighbors can find"
    console.print(told, highlight=False, soft_wrap=True)
    return 0


def _of_ratings(file: RatingsFile) -> dict[str, str]:
    """Return what is known of a model of ratings."""
    x, offsets = file.agent.model.x, file.agent.model.offsets
    return {
        "matrix": f"{x.shape[0]} rows, {len(x.U)} of them this agent's, {x.shape[1]} columns, rank {x.rank}",
        "ratings": f"from {offsets.low:.6g} to {offsets.high:.6g}, {offsets.mean:.6g} on average",
    }


def _of_rows(model: Model) -> dict[str, str]:
    """Return what is known of a model of rows."""
    facts, summary = {}, model.summary
    if model.labels:
        low, *more = model.labels
        facts["labels"] = f"{low} (−1) and {more[0]} (+1)"
        if len(more) > 1:
            facts["labels"] = f"{', '.join(model.labels)}; one model for each, against all others"
    if summary.standardized is not None:
        intercepts = ", ".join(f"{intercept:.6g}" for _, _, intercept in model.classes)
        facts["intercept"] = "none" if summary.intercept is False else intercepts
        facts["columns"] = "standardized for the fit" if summary.standardized else "as they are"
    return facts


def _coefficients(largest: Coefficients) -> Table:
    """Return the coefficients of the largest effects by name; ``label`` is that of one of several classes."""
    of = f"{largest.label}: " if largest.label else ""
    has_effects = all(effect is not None for _, _, effect in largest.rows)
    order = "per deviation of the column"
    if not has_effects:
        order = "in the units of the columns; the model has no deviations"
    title = f"{of}{largest.used} of {largest.count} are not 0; largest first {order}"
    table = Table("feature", title=title)
    table.add_column("coefficient", justify="right")
    if has_effects:
        table.add_column("per deviation", justify="right")
    for name, value, effect in largest.rows:
        cells = [f"{value:+.6g}", *([] if effect is None else [f"{effect:+.4g}"])]
        table.add_row(name, *cells)
    return table
