"""What ``dcgs fit`` prints of a fit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dcgs.experiments.numbers import size
from dcgs.fitting.class_runs import certified_gap, with_share
from dcgs.fitting.fit_result import FitResult
from dcgs.fitting.held_out import FitScores
from dcgs.fitting.scores import warning
from dcgs.fitting.tables import label_texts
from dcgs.preprocessing.path_result import Path as RadiusPath

_PRINTED_AGENTS = 20
_PRINTED_LEVELS = 8


def print_result(
    fitted: FitResult, summary: Mapping[str, Any], out: Path, page: bool, console: Console
) -> None:
    """Print why the run ended, what it cost, how good the models are, and where they are."""
    result = fitted.result
    console.print(str(result.status), soft_wrap=True)
    if "classes" in summary:
        console.print(_classes_table(fitted))
    console.print(_agents_table(fitted))
    if fitted.agents > _PRINTED_AGENTS:
        console.print(f"and {fitted.agents - _PRINTED_AGENTS} agents more, in summary.json")
    total = size(result.bytes.sum())
    console.print(f"{result.rounds} rounds, {total} in all, {result.seconds:.2f} s", soft_wrap=True)
    sent = fitted.sent
    console.print(
        f"beside the run {sum(each.rounds for each in sent)} rounds and "
        f"{size(sum(each.bytes for each in sent))}, for what the agents agree on: summary.json lists it",
        soft_wrap=True,
    )
    if summary.get("checkpoint", {}).get("resumed"):
        console.print(f"resumed after iteration {summary['checkpoint']['resumed']}")
    _print_reading(fitted, console)
    _print_measures(summary.get("measures", {}), console)
    for label, path in fitted.paths.items():
        _print_path(path, label, "rows" if fitted.ratings is None else "ratings", console)
    if fitted.samples is not None:
        _print_scores(fitted.samples.scores, fitted.samples.problem.options.balanced, console)
        for note in fitted.samples.notes:
            console.print(f"note: {note}", soft_wrap=True)
    for note in result.notes:
        console.print(note)
    more = " …" if fitted.agents > 1 else ""
    pages = ", report.html" if page else ""
    console.print(f"written: {out}/agent-000.npz{more}, summary.json{pages}", soft_wrap=True)


def _classes_table(fitted: FitResult) -> Table:
    """Return what the run of each class found, and what it cost."""
    table = Table("class", title="one model for each class, against all others")
    for name in ("radius", "certified gap", "of the decrease", "features", "rounds", "bytes"):
        table.add_column(name, justify="right")
    options = fitted.set_options()
    model = next(iter(fitted.linear_models.values()))
    for at, (label, run) in enumerate(fitted.runs.items()):
        radius, gap = options.get("radius", ""), certified_gap(run)
        radius = radius[at] if isinstance(radius, list) else radius
        found = {} if gap is None else with_share(gap)
        table.add_row(
            escape(label),
            f"{radius:.4g}" if isinstance(radius, float) else str(radius),
            *(_number(found.get(name, math.nan)) for name in ("gap", "share")),
            str(np.count_nonzero(model.x[at])),
            str(run.rounds),
            size(run.bytes.sum()),
        )
    return table


def _print_measures(measures: Mapping[str, Any], console: Console) -> None:
    """Print the last measures; those of several classes with their label."""
    for name, value in measures.items():
        if isinstance(value, Mapping):
            texts = ", ".join(f"{each} {number:.6g}" for each, number in value.items())
            console.print(f"{name}: {texts}", soft_wrap=True, markup=False)
        else:
            console.print(f"{name} {value:.6g}")


def _agents_table(fitted: FitResult) -> Table:
    result, projects = fitted.result, fitted.config.method.projects
    table = Table("agent")
    work = "projections" if projects else "oracle calls"
    for name in ("rows", "messages", "bytes sent", work, "s computing", "s waiting"):
        table.add_column(name, justify="right")
    for i in range(min(fitted.agents, _PRINTED_AGENTS)):
        table.add_row(
            str(i),
            str(fitted.data.rows.get(i, "")),
            str(result.messages[i]),
            size(result.bytes[i]),
            str((result.projections if projects else result.lmo_calls)[i]),
            f"{result.computing[i]:.2f}",
            f"{result.waiting[i]:.2f}",
        )
    return table


def _print_reading(fitted: FitResult, console: Console) -> None:
    """Print what was assumed in reading the data."""
    reading, sides = fitted.data.reading, ",".join(map(str, fitted.data.shape))
    if "ids" in reading:
        rows, columns = fitted.data.shape
        console.print(f"{rows} rows and {columns} columns, by their ids")
        return
    if "base" in reading:
        console.print(f"the matrix has shape {sides}; rows and columns were counted from {reading['base']}")
        return
    if reading["target_at"] is not None:
        name = f", {reading['target']!r}" if reading["target"] else ""
        console.print(
            f"{sides} features; the target was column {reading['target_at'] + 1}{name}", soft_wrap=True
        )
    for column in reading.get("columns", ()):
        if "levels" in column:
            levels = ", ".join(column["levels"][:_PRINTED_LEVELS])
            more = len(column["levels"]) - _PRINTED_LEVELS
            console.print(
                f"category {column['name']}: {levels}{f' and {more} more' if more > 0 else ''}",
                soft_wrap=True,
            )
    if "labels" in reading:
        labels = label_texts(reading["labels"])
        if len(labels) == 2:
            console.print(f"label {labels[0]} was mapped to -1 and {labels[1]} to +1")
        else:
            console.print(f"{len(labels)} classes: {', '.join(labels)}", soft_wrap=True, markup=False)


def _print_path(path: RadiusPath, label: str, what: str, console: Console) -> None:
    """Print what each radius is worth, and which one was taken; ``label`` is the class of the model."""
    of = f" of {escape(label)}" if label else ""
    table = Table(title=f"radii{of}, judged on {what} that the sites held out")
    for name in ("radius", "mean loss", "standard error", path.size, ""):
        table.add_column(name, justify="left" if not name else "right")
    for point in path.points:
        marks = [
            text
            for text, chosen in (("best", path.best), ("one standard error", path.one_standard_error))
            if chosen is point
        ]
        table.add_row(
            f"{point.radius:.4g}",
            f"{point.error:.5g}",
            f"{point.standard_error:.2g}",
            f"{point.features:g}",
            ", ".join(marks),
        )
    console.print(table)
    console.print(str(path), soft_wrap=True)


def _print_scores(scores: FitScores, weighted: bool, console: Console) -> None:
    """Print the scores of each agent's model on its own rows, those of all, and of a constant prediction."""
    names = list(scores.everyone.scores)
    table = Table(
        "agent", title="scores on rows held out" if scores.held_out else "scores on the rows of the fit"
    )
    for name in ("rows", *names):
        table.add_column(name, justify="right")
    for i, site in enumerate(scores.sites[:_PRINTED_AGENTS]):
        table.add_row(
            str(i),
            str(site.rows),
            *(_number(site.scores[name].model) if site.scores else "" for name in names),
        )
    everyone = scores.everyone
    table.add_section()
    table.add_row("all", str(everyone.rows), *(_number(everyone.scores[name].model) for name in names))
    table.add_row("all, without features", "", *(_number(everyone.scores[name].constant) for name in names))
    console.print(table)
    told = warning(dict(everyone.scores), weighted)
    if told:
        console.print(f"warning: {told}", soft_wrap=True)


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
