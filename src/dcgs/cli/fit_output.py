"""What ``dcgs fit`` prints of a fit."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from dcgs.experiments.numbers import size
from dcgs.fitting.class_runs import certified_gap, with_share
from dcgs.fitting.fit_result import FitResult
from dcgs.fitting.held_out import FitScores
from dcgs.fitting.output import REPORT
from dcgs.fitting.scores import warning
from dcgs.fitting.tables import label_texts
from dcgs.preprocessing.path_result import Path as RadiusPath

_PRINTED_AGENTS = 20
_PRINTED_LEVELS = 8


def print_result(
    fitted: FitResult, summary: Mapping[str, Any], out: Path, page: bool, console: Console
) -> None:
    """Print why the run ended, what it cost, how good the models are, and where they are."""
    say = partial(console.print, soft_wrap=True)
    result, sent, samples = fitted.result, fitted.sent, fitted.samples
    say(str(result.status))
    if "classes" in summary:
        console.print(_classes_table(fitted))
    console.print(_agents_table(fitted))
    if fitted.agents > _PRINTED_AGENTS:
        say(f"and {fitted.agents - _PRINTED_AGENTS} agents more, in summary.json")
    say(f"{result.rounds} rounds, {size(result.bytes.sum())} in all, {result.seconds:.2f} s")
    beside = f"{sum(each.rounds for each in sent)} rounds and {size(sum(each.bytes for each in sent))}"
    say(f"beside the run {beside}, for what the agents agree on: summary.json lists it")
    if summary.get("checkpoint", {}).get("resumed"):
        say(f"resumed after iteration {summary['checkpoint']['resumed']}")
    for line in (*_reading(fitted), *_measures(summary.get("measures", {}))):
        say(line)
    for label, path in fitted.paths.items():
        console.print(_path_table(path, label, "rows" if fitted.ratings is None else "ratings"))
        say(str(path))
    if samples is not None:
        console.print(_scores_table(samples.scores))
        told = warning(dict(samples.scores.everyone.scores), samples.problem.options.balanced)
        if told:
            say(f"warning: {told}")
    for note in result.notes:
        say(note)
    if fitted.data_notes:
        say(f"notes: {len(fitted.data_notes)}, above and in summary.json")
    written = [f"{out}/agent-000.npz{' …' if fitted.agents > 1 else ''}", "summary.json"]
    say(f"written: {', '.join(written + [REPORT] * page)}")


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
            label,
            f"{radius:.4g}" if isinstance(radius, float) else str(radius),
            *(_number(found.get(name, math.nan)) for name in ("gap", "share")),
            str(np.count_nonzero(model.x[at])),
            str(run.rounds),
            size(run.bytes.sum()),
        )
    return table


def _measures(measures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the last measures; those of several classes with their label."""
    for name, value in measures.items():
        if isinstance(value, Mapping):
            yield f"{name}: " + ", ".join(f"{each} {number:.6g}" for each, number in value.items())
        else:
            yield f"{name} {value:.6g}"


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


def _reading(fitted: FitResult) -> Iterator[str]:
    """Yield what was assumed in reading the data."""
    reading, sides = fitted.data.reading, fitted.data.shape
    yield from (f"columns used: {used}" for used in reading.get("used", ()))
    yield from (f"note: {note}" for note in (fitted.ratings.notes if fitted.ratings is not None else ()))
    if "ids" in reading:
        yield f"{sides[0]} rows and {sides[1]} columns, by their ids"
        return
    shape = ",".join(map(str, sides))
    if "base" in reading:
        yield f"the matrix has shape {shape}; rows and columns were counted from {reading['base']}"
        return
    if reading["target_at"] is not None:
        name = f", {reading['target']!r}" if reading["target"] else ""
        yield f"{shape} features; the target was column {reading['target_at'] + 1}{name}"
    for column in reading.get("columns", ()):
        if "levels" in column:
            levels = ", ".join(column["levels"][:_PRINTED_LEVELS])
            more = len(column["levels"]) - _PRINTED_LEVELS
            yield f"category {column['name']}: {levels}{f' and {more} more' if more > 0 else ''}"
    if "labels" in reading:
        labels = label_texts(reading["labels"])
        several = f"{len(labels)} classes: {', '.join(labels)}"
        yield several if len(labels) > 2 else f"label {labels[0]} was mapped to -1 and {labels[1]} to +1"


def _path_table(path: RadiusPath, label: str, what: str) -> Table:
    """Return what each radius is worth, and which one was taken; ``label`` is the class of the model."""
    of = f" of {label}" if label else ""
    table = Table(title=f"radii{of}, judged on {what} that the sites held out")
    for name in ("radius", "mean loss", "standard error", path.size, ""):
        table.add_column(name, justify="left" if not name else "right")
    marks = (("best", path.best), ("one standard error", path.one_standard_error))
    for point in path.points:
        numbers = f"{point.radius:.4g}", f"{point.error:.5g}", f"{point.standard_error:.2g}"
        chosen = ", ".join(text for text, marked in marks if marked is point)
        table.add_row(*numbers, f"{point.features:g}", chosen)
    return table


def _scores_table(scores: FitScores) -> Table:
    """Return the scores of each agent's model on its own rows, those of all, and of a constant prediction."""
    names = list(scores.everyone.scores)
    where = "rows held out" if scores.held_out else "the rows of the fit"
    table = Table("agent", title=f"scores on {where}")
    for name in ("rows", *names):
        table.add_column(name, justify="right")
    for i, site in enumerate(scores.sites[:_PRINTED_AGENTS]):
        cells = (_number(site.scores[name].model) if site.scores else "" for name in names)
        table.add_row(str(i), str(site.rows), *cells)
    everyone = scores.everyone
    table.add_section()
    table.add_row("all", str(everyone.rows), *(_number(everyone.scores[name].model) for name in names))
    table.add_row("all, without features", "", *(_number(everyone.scores[name].constant) for name in names))
    return table


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4g}"
