"""What the page of a fit shows: facts, charts, coefficients, scores, and what was sent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.experiments.numbers import capitalized, count, number, share, size
from dcgs.fitting.fit_result import FitResult
from dcgs.fitting.scores import warning
from dcgs.fitting.tables import label_texts
from dcgs.report.page.fit_charts import PathView, gap_chart, path_chart, path_views

_MOST_COEFFICIENTS, _MOST_PER_CLASS = 40, 15


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
class CoefficientTable:
    """The largest coefficients of a model, and how many are not 0; ``label`` is that of one of several."""

    label: str
    rows: Sequence[Coefficient]
    used: int
    intercept: float | None


@final
@dataclass(frozen=True)
class ClassRow:
    """The run of one of several classes; what may be missing is a text."""

    label: str
    share: str
    radius: str
    gap: str
    gap_share: str
    rounds: int
    bytes: int


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
    paths: Sequence[PathView]
    classes: Sequence[ClassRow]
    coefficients: Sequence[CoefficientTable]
    features: int
    score_names: Sequence[str]
    scores: Sequence[ScoreRow]
    held_out: bool
    warning: str | None
    notes: Sequence[str]
    sent: Sequence[Mapping[str, Any]]
    agents: Sequence[Mapping[str, Any]]

    @property
    def gap_curves(self) -> Sequence[Mapping[str, Any]]:
        """The curves of gaps that were certified or measured."""
        return next((chart["curves"] for chart in self.charts if chart["name"] == "gap"), ())


def fit_page(fitted: FitResult, summary: Mapping[str, Any]) -> FitPage:
    """Return the page of a fit, given its summary."""
    samples, result = fitted.samples, fitted.result
    paths = path_views(fitted)
    gaps = gap_chart(fitted)
    charts = [*([] if gaps is None else [gaps]), *map(path_chart, paths)]
    scores = None if samples is None else samples.scores
    return FitPage(
        title=f"A fit of {fitted.config.problem.name}",
        lead=_lead(fitted),
        certified=bool(summary["certified"]),
        status=capitalized(str(result.status)),
        facts=_facts(fitted, summary),
        command=str(summary["command"]),
        charts=charts,
        paths=paths,
        classes=_classes(summary),
        coefficients=_coefficients(fitted),
        features=fitted.data.shape[0],
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
    models = "A model" if len(fitted.runs) == 1 else f"Models of the {len(fitted.runs)} classes"
    return f"{models} of {what} from {features} features, whose rows {agents} hold. No row left its agent."


def _facts(fitted: FitResult, summary: Mapping[str, Any]) -> dict[str, str]:
    result, chosen = fitted.result, dict(summary["set"])
    name = str(chosen.pop("name"))
    options = [f"{key} {_text(value)}" for key, value in chosen.items()]
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


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "of each class"
    return number(value) if isinstance(value, float) else str(value)


def _classes(summary: Mapping[str, Any]) -> list[ClassRow]:
    """Return what the run of each class found; nothing if there is one run only."""
    radius, shares = summary["set"].get("radius", "–"), summary.get("constant", ())
    rows = []
    for at, (label, run) in enumerate(summary.get("classes", {}).items()):
        gap = run["gap"] or {}
        rows.append(
            ClassRow(
                label,
                share(shares[at]),
                _text(radius[at] if isinstance(radius, list) else radius),
                number(gap["gap"]) if gap else "–",
                share(gap["share"]) if "share" in gap else "–",
                run["rounds"],
                run["bytes"],
            )
        )
    return rows


def _coefficients(fitted: FitResult) -> list[CoefficientTable]:
    """Return the largest coefficients of the first agent's models, by their standardized size."""
    if fitted.samples is None:
        return []
    problem, model = fitted.samples.problem, next(iter(fitted.linear_models.values()))
    deviation = problem.models[0].design.statistics.deviation
    names = model.features
    limit = _MOST_COEFFICIENTS if len(model.classes) == 1 else _MOST_PER_CLASS
    found = []
    for label, x, intercept in model.classes:
        standardized = x * deviation
        most = float(np.abs(standardized).max(initial=0.0)) or 1.0
        order = np.argsort(-np.abs(standardized), kind="stable")
        rows = [
            Coefficient(names[at], float(x[at]), float(standardized[at]), float(standardized[at]) / most)
            for at in [at for at in order if x[at] != 0.0][:limit]
        ]
        own = intercept if problem.options.intercept else None
        found.append(CoefficientTable(label, rows, int(np.count_nonzero(x)), own))
    return found


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
