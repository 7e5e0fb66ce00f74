"""What the page of a fit shows: facts, charts, coefficients, scores, and what was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.experiments.numbers import capitalized, count, number, share, size
from dcgs.fitting.fit_result import FitResult
from dcgs.fitting.scores import warning
from dcgs.fitting.tables import text_of
from dcgs.preprocessing.path_result import Path, PathPoint
from dcgs.report.page.view import thinned

_MOST_COEFFICIENTS = 40
_SIZES = {"features": "coefficients that are not 0", "rank": "singular values that are not 0"}


@final
@dataclass(frozen=True)
class Coefficient:
    """A coefficient in the user's units, the one of the standardized column, and its share of the largest."""

    name: str
    value: float
    standardized: float
    width: float


@final
@dataclass(frozen=True)
class ScoreRow:
    """The scores of an agent, of all agents, or of a constant prediction, as texts."""

    label: str
    rows: str
    cells: Sequence[str]
    kind: str = ""


@final
@dataclass(frozen=True)
class FitPage:
    """All that the template of a fit needs; ``charts`` are the data of its charts."""

    title: str
    lead: str
    certified: bool
    status: str
    facts: Mapping[str, str]
    command: str
    charts: Sequence[Mapping[str, Any]]
    path: Path | None
    coefficients: Sequence[Coefficient]
    coefficient_count: tuple[int, int]
    intercept: float | None
    score_names: Sequence[str]
    scores: Sequence[ScoreRow]
    held_out: bool
    warning: str | None
    notes: Sequence[str]
    sent: Sequence[Mapping[str, Any]]
    agents: Sequence[Mapping[str, Any]]

    def mark(self, point: PathPoint) -> str:
        """Return what a radius of the path is: the best, or the one within one standard error."""
        assert self.path is not None
        marks = (("best", self.path.best), ("one standard error", self.path.one_standard_error))
        return ", ".join(text for text, chosen in marks if chosen is point)

    @property
    def has_gaps(self) -> bool:
        """Whether a gap was certified or measured."""
        return any(chart["name"] == "gap" for chart in self.charts)


def fit_page(fitted: FitResult, summary: Mapping[str, Any]) -> FitPage:
    """Return the page of a fit, given its summary."""
    samples, result = fitted.samples, fitted.result
    charts = [chart for chart in (_gap_chart(fitted), _path_chart(fitted)) if chart is not None]
    scores = None if samples is None else samples.scores
    model = next(iter(fitted.linear_models.values()), None)
    has_intercept = samples is not None and samples.problem.options.intercept
    return FitPage(
        title=f"A fit of {fitted.config.problem.name}",
        lead=_lead(fitted),
        certified=bool(summary["certified"]),
        status=capitalized(str(result.status)),
        facts=_facts(fitted, summary),
        command=str(summary["command"]),
        charts=charts,
        path=fitted.path,
        coefficients=_coefficients(fitted),
        coefficient_count=(0, 0) if model is None else (int(np.count_nonzero(model.x)), int(model.x.size)),
        intercept=model.intercept if model is not None and has_intercept else None,
        score_names=[] if scores is None else list(scores.everyone.scores),
        scores=_scores(fitted),
        held_out=scores is not None and scores.held_out,
        warning=None
        if samples is None
        else warning(dict(samples.scores.everyone.scores), samples.problem.options.balanced),
        notes=[*(samples.notes if samples is not None else ()), *result.notes],
        sent=_sent(fitted),
        agents=list(summary["agents"]),
    )


def _lead(fitted: FitResult) -> str:
    """Return one sentence on what was fitted to what."""
    agents = f"{fitted.agents} agents" if fitted.agents > 1 else "one agent"
    if fitted.samples is None:
        sides = " × ".join(map(str, fitted.data.shape))
        return f"A matrix of {sides}, from entries that {agents} hold. No entry left its agent."
    target = fitted.data.reading.get("target")
    what = f"{target!r}" if target else "the target"
    features = count(fitted.data.shape[0])
    return f"A model of {what} from {features} features, whose rows {agents} hold. No row left its agent."


def _facts(fitted: FitResult, summary: Mapping[str, Any]) -> dict[str, str]:
    result, chosen = fitted.result, dict(summary["set"])
    name = str(chosen.pop("name"))
    options = [
        f"{key} {number(value) if isinstance(value, float) else value}" for key, value in chosen.items()
    ]
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
        low, high = (
            label if isinstance(label, str) else text_of(label) for label in fitted.data.reading["labels"]
        )
        facts["Labels"] = f"{low} (−1), {high} (+1)"
    facts["Method"] = type(fitted.config.method).__name__
    return facts


def _gap_chart(fitted: FitResult) -> dict[str, Any] | None:
    """Return the curve of the gap: those that agents certified, or else those that were measured."""
    rows, history = fitted.result.certificates, fitted.result.history
    if len(rows):
        columns = {"rounds": rows[:, 0], "all_bytes": rows[:, 1], "gap": np.maximum(rows[:, 2], 0.0)}
    elif len(history):
        columns = {"rounds": history.rounds, "all_bytes": fitted.agents * history.bytes, "gap": history.gap}
    else:
        return None
    measure = {"key": "gap", "label": "certified gap", "symbol": "f(x) − f* is at most"}
    return _chart("gap", [measure], [("run", "this fit", columns)])


def _path_chart(fitted: FitResult) -> dict[str, Any] | None:
    path = fitted.path
    if path is None:
        return None
    table = path.columns()
    measures = [
        {"key": "error", "label": "mean loss per row", "symbol": "held out, and trained on"},
        {"key": "features", "label": f"{path.size} of the model", "symbol": _SIZES[path.size]},
    ]
    missing = np.full(len(path.points), np.nan)
    upper = {"error": table["error"] + table["standard_error"], "features": missing}
    trained = {"error": table["loss"], "features": missing}
    held = {"error": table["error"], "features": table["features"]}
    curves = [("held-out", "rows held out", held), ("upper", "one standard error above", upper)]
    curves.append(("trained", "rows trained on", trained))
    return _chart(
        "path", measures, [(key, label, {"radius": table["radius"], **own}) for key, label, own in curves]
    )


def _chart(
    name: str, measures: list[dict[str, str]], curves: list[tuple[str, str, dict[str, NDArray[Any]]]]
) -> dict[str, Any]:
    made = []
    for key, label, columns in curves:
        places = thinned(
            [columns[measure["key"]].tolist() for measure in measures], len(next(iter(columns.values())))
        )
        plain = {column: [_plain(values[at]) for at in places] for column, values in columns.items()}
        made.append({"key": key, "label": label, "columns": plain})
    return {"name": name, "links": 1, "measures": measures, "curves": made}


def _plain(value: Any) -> float | None:
    return float(f"{float(value):.7g}") if np.isfinite(value) else None


def _coefficients(fitted: FitResult) -> list[Coefficient]:
    """Return the largest coefficients of the first model, in the order of their standardized size."""
    if fitted.samples is None:
        return []
    model = next(iter(fitted.linear_models.values()))
    statistics = fitted.samples.problem.design.statistics
    standardized = model.x * statistics.deviation
    names, most = model.features, float(np.abs(standardized).max(initial=0.0)) or 1.0
    order = np.argsort(-np.abs(standardized), kind="stable")
    chosen = [at for at in order if model.x[at] != 0.0][:_MOST_COEFFICIENTS]
    return [
        Coefficient(names[at], float(model.x[at]), float(standardized[at]), float(standardized[at]) / most)
        for at in chosen
    ]


def _scores(fitted: FitResult) -> list[ScoreRow]:
    if fitted.samples is None:
        return []
    scores = fitted.samples.scores
    names = list(scores.everyone.scores)
    rows = [
        ScoreRow(
            f"agent {i}",
            count(site.rows),
            [number(site.scores[name].model) if site.scores else "–" for name in names],
        )
        for i, site in enumerate(scores.sites)
    ]
    everyone = scores.everyone
    cells = [number(everyone.scores[name].model) for name in names]
    constant = [number(everyone.scores[name].constant) for name in names]
    rows.append(ScoreRow("everyone", count(everyone.rows), cells, "total"))
    rows.append(ScoreRow("without features", count(everyone.rows), constant, "constant"))
    return rows


def _sent(fitted: FitResult) -> list[dict[str, Any]]:
    """Return what was sent: in the run, and beside it."""
    result = fitted.result
    what = "the run: points, sums of gradients, and bounds of the gap"
    run = {
        "name": what,
        "operation": "",
        "numbers": None,
        "rounds": result.rounds,
        "bytes": int(result.bytes.sum()),
    }
    return [run, *(each.to_dict() for each in fitted.sent)]
