"""The charts on the page of a fit: gaps against rounds and bytes, and the path of radii."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.fitting.fit_result import FitResult
from dcgs.front import Result
from dcgs.preprocessing.path_result import Path, PathPoint
from dcgs.report.page.view import plain, thinned

_SIZES = {"features": "coefficients that are not 0", "rank": "singular values that are not 0"}


@final
@dataclass(frozen=True)
class PathView:
    """The path of the radii of a model; ``key`` is the name of its chart."""

    label: str
    key: str
    path: Path

    def mark(self, point: PathPoint) -> str:
        """Return what a radius of the path is: the best, or the one within one standard error."""
        marks = (("best", self.path.best), ("one standard error", self.path.one_standard_error))
        return ", ".join(text for text, chosen in marks if chosen is point)


def gap_chart(fitted: FitResult) -> dict[str, Any] | None:
    """Return the curves of the gap, one for each run."""
    curves = []
    for at, (label, run) in enumerate(fitted.runs.items()):
        columns = _gaps(run)
        if columns is not None:
            curves.append((f"run-{at}" if label else "run", label or "this fit", columns))
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


def path_chart(view: PathView) -> dict[str, Any]:
    """Return the curves of a path: losses on rows held out and trained on, and the size of models."""
    path = view.path
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
    return _chart(view.key, measures, named)


def _chart(
    name: str, measures: list[dict[str, str]], curves: list[tuple[str, str, dict[str, NDArray[Any]]]]
) -> dict[str, Any]:
    made = []
    for key, label, columns in curves:
        measured = [columns[measure["key"]].tolist() for measure in measures]
        places = thinned(measured, len(measured[0]))
        shown = {column: [plain(values[at]) for at in places] for column, values in columns.items()}
        made.append({"key": key, "label": label, "columns": shown})
    return {"name": name, "links": 1, "measures": measures, "curves": made}


def path_views(fitted: FitResult) -> list[PathView]:
    """Return the path of each model whose radius was found."""
    return [
        PathView(label, f"path-{at}" if label else "path", path)
        for at, (label, path) in enumerate(fitted.paths.items())
    ]
