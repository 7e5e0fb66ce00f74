"""What the page of a fit shows: facts, charts, coefficients, scores, and what was sent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dcgs.experiments.numbers import capitalized, count, number, share, size
from dcgs.fitting.fit_result import FitResult
from dcgs.fitting.scores import warning
from dcgs.fitting.tables import label_texts
from dcgs.report.page.fit_charts import gap_chart, path_chart, path_views

_MOST_COEFFICIENTS, _MOST_PER_CLASS = 40, 15


def fit_page(fitted: FitResult, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return by name what the template of a fit shows beside the summary; ``charts`` are data of charts."""
    samples, paths, gaps = fitted.samples, path_views(fitted), gap_chart(fitted)
    page = {
        "title": f"A fit of {fitted.config.problem.name}",
        "lead": _lead(fitted),
        "status": capitalized(str(fitted.result.status)),
        "facts": _facts(fitted, summary),
        "charts": [*([] if gaps is None else [gaps]), *map(path_chart, paths)],
        "gap_curves": [] if gaps is None else gaps["curves"],
        "paths": paths,
        "coefficients": _coefficients(fitted),
        "features": fitted.data.shape[0],
        "scores": None,
        "warning": None,
        "notes": [*fitted.data_notes, *fitted.result.notes],
        "sent": _sent(fitted),
    }
    if samples is None:
        return page
    told = warning(dict(samples.scores.everyone.scores), samples.problem.options.balanced)
    return page | {"scores": samples.scores, "warning": told}


def _lead(fitted: FitResult) -> str:
    """Return one sentence on what was fitted to what."""
    agents = f"{fitted.agents} agents" if fitted.agents > 1 else "one agent"
    if fitted.samples is None:
        sides = " × ".join(map(str, fitted.data.shape))
        return f"A matrix of {sides}, from entries that {agents} hold. No entry left its agent."
    target = fitted.data.reading.get("target")
    what = f"{target!r}" if target else "the target"
    features = count(fitted.data.shape[0])
    models = "A model" if len(fitted.runs) == 1 else f"Models of the {len(fitted.runs)} classes"
    return f"{models} of {what} from {features} features, whose rows {agents} hold. No row left its agent."


def _facts(fitted: FitResult, summary: Mapping[str, Any]) -> dict[str, str]:
    result, chosen = fitted.result, dict(summary["set"])
    name = str(chosen.pop("name"))
    options = [f"{key} {setting(value)}" for key, value in chosen.items()]
    facts = {"Set": ", ".join([name, *options])}
    gap = fitted.certified_gap
    if gap is not None:
        facts["Certified gap"] = number(gap["gap"])
        if "share" in gap:
            facts["Of the decrease of the loss"] = share(gap["share"])
    facts |= {
        "Rounds": count(result.rounds),
        "Bytes sent by all": size(float(result.bytes.sum())),
        "Seconds": f"{result.seconds:.2f}",
        "Agents": count(fitted.agents),
        "Graph": str(summary["graph"]["name"]),
    }
    if fitted.samples is not None:
        options_ = fitted.samples.problem.options
        facts["Intercept"] = "free" if options_.intercept else "none"
        facts["Columns"] = "standardized" if options_.standardize else "as they are"
    if "labels" in fitted.data.reading:
        low, *more = label_texts(fitted.data.reading["labels"])
        facts["Labels"] = f"{low} (−1), {more[0]} (+1)" if len(more) == 1 else ", ".join([low, *more])
    facts["Method"] = type(fitted.config.method).__name__
    return facts


def setting(value: Any) -> str:
    """Return an option of a set; that of several classes is in the table of classes."""
    if isinstance(value, list):
        return "of each class"
    return number(value) if isinstance(value, float) else str(value)


def _coefficients(fitted: FitResult) -> list[dict[str, Any]]:
    """Return the largest coefficients of the first agent's models, by their size per deviation.

    A row has the name, the coefficient in the user's units, and the one per deviation of the column.
    """
    if fitted.samples is None:
        return []
    problem, model = fitted.samples.problem, next(iter(fitted.linear_models.values()))
    names = model.features
    limit = _MOST_COEFFICIENTS if len(model.classes) == 1 else _MOST_PER_CLASS
    found = []
    for label, x, intercept in model.classes:
        per_deviation = model.effects(x)
        most = float(np.abs(per_deviation).max(initial=0.0)) or 1.0
        order = np.argsort(-np.abs(per_deviation), kind="stable")
        rows = [(names[at], x[at], per_deviation[at]) for at in order if x[at] != 0.0][:limit]
        own = intercept if problem.options.intercept else None
        used = int(np.count_nonzero(x))
        found.append({"label": label, "rows": rows, "most": most, "used": used, "intercept": own})
    return found


def _sent(fitted: FitResult) -> list[dict[str, Any]]:
    """Return what was sent: in the run, and beside it."""
    run = {
        "name": "the run: points, sums of gradients, and bounds of the gap",
        "operation": "",
        "numbers": None,
    }
    counted = {"rounds": fitted.result.rounds, "bytes": int(fitted.result.bytes.sum())}
    return [run | counted, *(each.to_dict() for each in fitted.sent)]
