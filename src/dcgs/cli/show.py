"""``dcgs show``: what a model is, and where it comes from."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from dcgs.cli.jobs import HELP
from dcgs.cli.values import count, job, option, seed
from dcgs.experiments.numbers import size
from dcgs.fitting.models import Model
from dcgs.fitting.output import find_model
from dcgs.fitting.problems import PROBLEMS
from dcgs.fitting.ratings_model import RatingsFile, is_ratings_file

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
    file = find_model(args.model, args.agent)
    model = RatingsFile.load(file) if is_ratings_file(file) else Model.load(file)
    about = model.about
    problem = PROBLEMS["completion"] if isinstance(model, RatingsFile) else model.problem
    console.print(f"{problem.name}: {problem.about}", soft_wrap=True)
    own = _of_ratings(model) if isinstance(model, RatingsFile) else _of_samples(model)
    for name, text in (_facts(about) | own | {"method": str(about.get("method", "?"))}).items():
        console.print(f"{name}: {text}", soft_wrap=True, highlight=False)
    if isinstance(model, Model) and not problem.entries:
        for label, x, _ in model.classes:
            console.print(_coefficients(model, label, x, args.top))
    scores = about.get("scores")
    if isinstance(scores, Mapping) and scores.get("scores"):
        console.print(_scores(scores))
    sent = about.get("sent")
    if sent:
        console.print(_sent(about, sent))
    console.print("rows of data were never sent", highlight=False)
    return 0


def _facts(about: Mapping[str, Any]) -> dict[str, str]:
    """Return what is known of any fit, by name."""
    gap, chosen = about.get("gap"), dict(about.get("set", {}))
    name = str(chosen.pop("name", "?"))
    options = [f"{key} {_shown(value)}" for key, value in chosen.items()]
    facts = {"set": ", ".join([name, *options]), "status": str(about.get("status", "?"))}
    if isinstance(gap, Mapping):
        share = f", {gap['share']:.2g} of the decrease of the loss" if "share" in gap else ""
        facts["certified gap"] = f"{gap['gap']:.3g}{share}"
    paths = {"": about["path"]} if "path" in about else about.get("paths", {})
    for label, path in paths.items():
        facts[f"radius of {label}" if label else "radius"] = (
            f"best of {len(path['points'])}: {path['best_radius']:.4g}; within one standard error: "
            f"{path['one_standard_error_radius']:.4g}"
        )
    facts["rounds"] = f"{about.get('rounds', '?')}, of {about.get('agents', '?')} agents"
    if "bytes" in about:
        facts["bytes sent"] = size(float(about["bytes"]))
    return facts


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(_shown, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _of_ratings(model: RatingsFile) -> dict[str, str]:
    """Return what is known of a model of ratings."""
    x, offsets = model.model.x, model.model.offsets
    return {
        "matrix": f"{x.shape[0]} rows, {len(x.U)} of them this agent's, {x.shape[1]} columns, rank {x.rank}",
        "ratings": f"from {offsets.low:.6g} to {offsets.high:.6g}, {offsets.mean:.6g} on average",
    }


def _of_samples(model: Model) -> dict[str, str]:
    """Return what is known of a model of samples."""
    about, facts = model.about, {}
    if "labels" in model.reading:
        low, *more = model.labels
        facts["labels"] = f"{low} (−1) and {more[0]} (+1)"
        if len(more) > 1:
            facts["labels"] = f"{', '.join(model.labels)}; one model for each, against all others"
    if "standardized" in about:
        own = ", ".join(f"{intercept:.6g}" for _, _, intercept in model.classes)
        facts["intercept"] = own if about.get("intercept", True) else "none"
        facts["columns"] = "standardized for the fit" if about["standardized"] else "as they are"
    return facts


def _coefficients(model: Model, label: str, x: NDArray[np.float64], top: int) -> Table:
    """Return the coefficients of the largest effects by name; ``label`` is that of one of several classes."""
    used = int(np.count_nonzero(x))
    of = f"{label}: " if label else ""
    order = "per deviation of the column"
    if model.deviation is None:
        order = "in the units of the columns; the model has no deviations"
    table = Table("feature", title=f"{of}{used} of {x.size} are not 0; largest first {order}")
    table.add_column("coefficient", justify="right")
    names, effects = model.features, model.effects(x)
    if model.deviation is not None:
        table.add_column("per deviation", justify="right")
    for at in np.argsort(-np.abs(effects), kind="stable")[: min(top, used)]:
        cells = [f"{x[at]:+.6g}", f"{effects[at]:+.4g}"]
        table.add_row(names[at], *cells[: len(table.columns) - 1])
    return table


def _scores(scores: Mapping[str, Any]) -> Table:
    where = "rows held out" if scores.get("held_out") else "rows of the fit"
    table = Table("score", title=f"on {scores.get('rows')} {where}, of all agents")
    for name in ("model", "without features"):
        table.add_column(name, justify="right")
    for name, each in scores["scores"].items():
        cells = ("" if each[key] is None else f"{each[key]:.4g}" for key in ("model", "constant"))
        table.add_row(name, *cells)
    return table


def _sent(about: Mapping[str, Any], sent: Any) -> Table:
    """Return what was sent: in the run, and for what the agents agreed on."""
    table = Table("what was sent", title="what was sent, by all agents")
    for name in ("operation", "numbers", "rounds", "bytes"):
        table.add_column(name, justify="right")
    run = {"name": "points and gradients of the run", "operation": "", "numbers": ""}
    counted = {"rounds": about.get("rounds", ""), "bytes": about.get("bytes", 0)}
    for each in (run | counted, *sent):
        cells = (str(each[name]) for name in ("name", "operation", "numbers", "rounds"))
        table.add_row(*cells, size(float(each["bytes"])))
    return table
