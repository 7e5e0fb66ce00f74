"""The data that the page embeds: thinned to load fast, and escaped for HTML."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dcgs.experiments.results import Curve, Findings, Study

MOST_POINTS = 400

_COUNTED = ("rounds", "bytes", "lmo_calls")


def embedded(study: Study) -> str:
    """Return the data of the charts as JSON that is safe inside a script element."""
    text = json.dumps([_experiment(findings) for findings in study.findings], separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def thinned(measures: Iterable[Sequence[float]], length: int, most: int = MOST_POINTS) -> list[int]:
    """Return the indices of the points to show, at most ``most`` of ``length``, in order.

    The first, the last, and each measure's smallest and largest value are among them. Half of the others are
    spaced evenly and half logarithmically, so that both kinds of axis look smooth.
    """
    if length <= most:
        return list(range(length))
    places = {0, length - 1, *_extremes(measures)}
    room = most - len(places)
    even = np.linspace(0, length - 1, room // 2)
    early = np.geomspace(1, length, room - room // 2) - 1
    return sorted(places | {round(place) for place in (*even, *early)})


def _extremes(measures: Iterable[Sequence[float]]) -> set[int]:
    columns = [np.asarray(column, dtype=float) for column in measures]
    known = [column for column in columns if np.isfinite(column).any()]
    at = [
        place(np.where(np.isfinite(column), column, np.nan))
        for column in known
        for place in (np.nanargmin, np.nanargmax)
    ]
    return {int(place) for place in at}


def _experiment(findings: Findings) -> dict[str, Any]:
    keys = [measure.key for measure in findings.measures]
    return {
        "name": findings.name,
        "links": max(findings.degree, 1),
        "measures": [vars(measure) for measure in findings.measures],
        "curves": [
            {"key": curve.key, "label": curve.label, "columns": _columns(curve, keys)}
            for curve in findings.curves
        ],
    }


def _columns(curve: Curve, measures: Sequence[str]) -> Mapping[str, list[float | None]]:
    places = thinned([curve.columns[key] for key in measures], len(curve.columns["rounds"]))
    names = (*_COUNTED, "computing", *measures)
    return {name: [_plain(curve.columns[name][place]) for place in places] for name in names}


def _plain(value: float) -> float | None:
    """Return a whole number exactly, others to seven digits, and None if it is not finite."""
    value = float(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.7g}")
