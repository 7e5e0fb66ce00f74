"""What the page of a fit shows: facts, charts, tables, coefficients, and notes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.learn.files.describe import models, summary_of
from dcgs.learn.files.fit import OPEN_SUMS, FileFit
from dcgs.learn.files.model import Model
from dcgs.learn.linear.scores import warning
from dcgs.learn.radius.result import RadiusPath
from dcgs.learn.summary import (
    FitSummary,
    FitTable,
    agents_table,
    classes_table,
    ledger_table,
    path_table,
    scores_table,
    sent_table,
)
from dcgs.report.numbers import capitalized, count, number, share, size
from dcgs.report.page.charts import plain, thinned
from dcgs.run.result import Result
from dcgs.validation import label_text

_MOST_COEFFICIENTS, _MOST_PER_CLASS = 40, 15
_FORMATS: dict[str, Any] = {
    "text": str,
    "number": number,
    "loss": number,
    "amount": lambda value: f"{value:.3g}",
    "count": count,
    "size": size,
    "seconds": lambda value: f"{value:.2f}",
    "share": share,
}


def fit_page(fit: FileFit, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return by name what the template of a fit shows beside the summary; ``charts`` are data of charts."""
    summary, gaps = summary_of(fit, described), gap_chart(fit)
    scores = summary.scores
    what = "rows" if fit.prepared is not None else "ratings"
    paths = [
        {
            "label": label,
            "key": path_key(k, label),
            "sentence": str(path),
            "table": page_table(path_table(summary.all_paths[label], label, what)),
        }
        for k, (label, path) in enumerate(fit.paths.items())
    ]
    page = {
        "title": f"A fit of {fit.config.problem.name}",
        "lead": _lead(fit, described),
        "status": capitalized(summary.status),
        "facts": _facts(fit, summary, described),
        "charts": [*([] if gaps is None else [gaps]), *map(path_chart, paths, fit.paths.values())],
        "gap_curves": [] if gaps is None else gaps["curves"],
        "paths": paths,
        "coefficients": _coefficients(fit, described),
        "classes": page_table(classes_table(summary)) if summary.classes else None,
        "scores": None if scores is None else page_table(scores_table(scores, summary.labels)),
        "what": what,
        "held_out": scores is not None and scores.held_out,
        "warning": None,
        "notes": [*fit.notes, *described["notes"]],
        "sent": page_table(ledger_table(summary.ledger) if summary.ledger else sent_table(summary)),
        "has_ledger": bool(summary.ledger),
        "privacy": _privacy(fit),
        "agents": page_table(agents_table(summary, fit.config.method.projects)),
    }
    if fit.scores is not None:
        page["warning"] = warning(dict(fit.scores.everyone.scores), summary.balanced)
    return page


def page_table(table: FitTable) -> dict[str, Any]:
    """Return a table of the page: headings, and rows of texts with a class for those that stand out."""
    rows = []
    for k, row in enumerate(table.rows):
        cells = [_cell(value, kind) for value, kind in zip(row, table.columns.values(), strict=True)]
        after = k - (len(table.rows) - table.last)
        look = ("total", "constant")[after] if after >= 0 else "total" if cells[-1].startswith("best") else ""
        rows.append({"cells": cells, "look": look})
    return {"headings": list(table.columns), "rows": rows}


def _cell(value: Any, kind: str) -> str:
    is_unknown = value is None or (isinstance(value, float) and math.isnan(value))
    return "–" if is_unknown else _FORMATS[kind](value)


def _lead(fit: FileFit, described: Mapping[str, Any]) -> str:
    """Return one sentence on what was fitted to what."""
    agents = len(fit.graph.graph)
    holders = f"{agents} sites" if agents > 1 else "one site"
    if fit.prepared is None:
        sides = " × ".join(map(str, described["shape"]))
        return f"A matrix of {sides}, from entries that {holders} hold. They sent sums and models."
    target = fit.prepared.reading.target
    what = f"{target!r}" if target else "the target"
    models_of = "A model" if len(fit.runs) == 1 else f"Models of the {len(fit.runs)} classes"
    features = count(described["shape"][0])
    rows = f"whose rows {holders} hold. They sent sums and models."
    return f"{models_of} of {what} from {features} features, {rows}"


def _privacy(fit: FileFit) -> str:
    """Return what may be found in what was sent."""
    config, floors = fit.config, fit.floors
    if config.secure:
        how = "Sums were masked: a neighbor read uniform words, and only totals over all sites could be read."
    elif len(fit.graph.graph) > 1 and not config.source.is_per_agent:
        how = "Sums were open: one file was split, and its parts are in one place."
    else:
        how = f"Sums were open: {OPEN_SUMS}"
    if floors is None:
        return f"{how} There were no floors."
    return (
        f"{how} Floors: what was summed up is about at least {floors.min_count} people at {floors.min_sites} "
        "sites. Differences of sums may be about fewer."
    )


def _facts(fit: FileFit, summary: FitSummary, described: Mapping[str, Any]) -> dict[str, str]:
    facts = {"Set": _set(summary)}
    if summary.gap is not None:
        facts["Certified gap"] = number(summary.gap.gap)
        if summary.gap.share is not None:
            facts["Of the decrease of the loss"] = share(summary.gap.share)
    facts |= {
        "Rounds": count(summary.rounds),
        "Bytes sent by all": size(float(summary.bytes)),
        "Seconds": f"{described['seconds']:.2f}",
        "Agents": count(summary.count),
        "Graph": str(described["graph"]["name"]),
    }
    if fit.prepared is not None:
        facts["Intercept"] = "free" if summary.intercept else "none"
        facts["Columns"] = "standardized" if summary.standardized else "as they are"
        if fit.prepared.reading.labels:
            low, *more = map(label_text, fit.prepared.reading.labels)
            facts["Labels"] = f"{low} (−1), {more[0]} (+1)" if len(more) == 1 else ", ".join([low, *more])
    facts["Method"] = type(fit.config.method).__name__
    return facts


def _set(summary: FitSummary) -> str:
    """Return the set with its options; a radius of each class is in the table of classes."""
    options = dict(summary.set)
    texts = [str(options.pop("name"))]
    for name, value in options.items():
        if isinstance(value, list):
            texts.append(f"{name} of each class")
        else:
            texts.append(f"{name} {number(value) if isinstance(value, float) else value}")
    return ", ".join(texts)


def _coefficients(fit: FileFit, described: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the largest coefficients of the first agent's model, for each class, by their effect."""
    model = next(iter(models(fit, described).values()))
    if not isinstance(model, Model):
        return []
    parts = []
    for largest in model.largest(_MOST_COEFFICIENTS if len(model.classes) == 1 else _MOST_PER_CLASS):
        most = max((abs(effect or 0.0) for _, _, effect in largest.rows), default=0.0) or 1.0
        intercept = largest.intercept if described["intercept"] else None
        parts.append({"largest": largest, "most": most, "intercept": intercept})
    return parts


_SIZES = {"features": "coefficients that are not 0", "rank": "singular values that are not 0"}


def gap_chart(fit: FileFit) -> dict[str, Any] | None:
    """Return the curves of the gap, one for each run."""
    curves = []
    for k, (label, run) in enumerate(fit.runs.items()):
        columns = _gaps(run)
        if columns is not None:
            curves.append((f"run-{k}" if label else "run", label or "this fit", columns))
    measure = {"key": "gap", "label": "certified gap", "symbol": "f(x) − f* is at most"}
    return _chart("gap", [measure], curves) if curves else None


def _gaps(run: Result) -> dict[str, NDArray[Any]] | None:
    """Return the gaps that the agents of a run certified, or else those that were measured."""
    rows, history = run.certificates, run.history
    if len(rows):
        return {"rounds": rows["rounds"], "all_bytes": rows["bytes"], "gap": np.maximum(rows["gap"], 0.0)}
    if len(history):
        return {"rounds": history.rounds, "all_bytes": len(run.bytes) * history.bytes, "gap": history.gap}
    return None


def path_chart(view: Mapping[str, Any], path: RadiusPath) -> dict[str, Any]:
    """Return the curves of a path: losses on rows held out and trained on, and the size of models."""
    table = path.columns()
    measures = [
        {"key": "error", "label": "mean loss per row", "symbol": "held out, and trained on"},
        {"key": "features", "label": f"{path.size} of the model", "symbol": _SIZES[path.size]},
    ]
    missing = np.full(len(path.points), np.nan)
    curves = [
        ("held-out", "rows held out", table["error"], table["features"]),
        ("upper", "one standard error above", table["error"] + table["standard_error"], missing),
        ("trained", "rows trained on", table["loss"], missing),
    ]
    named = [
        (key, label, {"radius": table["radius"], "error": error, "features": features})
        for key, label, error, features in curves
    ]
    return _chart(view["key"], measures, named)


def _chart(
    name: str, measures: list[dict[str, str]], curves: list[tuple[str, str, dict[str, NDArray[Any]]]]
) -> dict[str, Any]:
    made = []
    for key, label, columns in curves:
        measured = [columns[measure["key"]].tolist() for measure in measures]
        places = thinned(measured, len(measured[0]))
        shown = {column: [plain(values[k]) for k in places] for column, values in columns.items()}
        made.append({"key": key, "label": label, "columns": shown})
    return {"name": name, "links": 1, "measures": measures, "curves": made}


def path_key(place: int, label: str) -> str:
    """Return the name of the chart of a path; ``label`` is the class of its model."""
    return f"path-{place}" if label else "path"
