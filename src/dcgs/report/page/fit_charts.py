"""The charts on the page of a fit: gaps against rounds and bytes, and the path of radii."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dcgs.learn.files.fit import FileFit
from dcgs.learn.radius.result import RadiusPath
from dcgs.report.page.charts import plain, thinned
from dcgs.run.result import Result

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
