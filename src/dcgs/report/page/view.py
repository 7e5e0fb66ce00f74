"""What the page shows of a study: rows, choices and labels of the template, and the data of the charts."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dcgs.datasets import Kind
from dcgs.experiments.cost_to_accuracy import ACCURACY, conclusion, costs_to_accuracy, modeled_seconds
from dcgs.experiments.numbers import count, duration, share
from dcgs.experiments.results import Claim, Curve, Findings, Measure, Study, Verdict
from dcgs.link import Link

__all__ = ["ACCURACY", "conclusion", "costs_to_accuracy", "modeled_seconds"]

COST_TITLE = "What a round costs"
LINES = 8
"""How many line styles there are: each has a color and a dash pattern of its own."""

SYMBOLS = {Verdict.HOLDS: "✓", Verdict.PAPER_ONLY: "◐", Verdict.FAILS: "✗", Verdict.OPEN: "○"}
"""They distinguish verdicts without color."""
KINDS = {
    Kind.REAL: ("real", "real data"),
    Kind.SYNTHETIC: ("synthetic", "synthetic data"),
    Kind.LOOKALIKE: ("lookalike", "look-alike, not the real data"),
}
"""The CSS class and the label of each kind of data."""
COST_COLUMNS = {
    "case": ("way of calling the oracle", str),
    "products": ("matrix products", count),
    "seconds": ("one oracle call", duration),
    "round_seconds": ("sending one message", duration),
    "waiting_share": ("waiting, one message a call", share),
    "waiting_share_dfw": ("waiting, two messages a call", share),
}
"""The heading and the format of each column of the cost table."""
MOST_POINTS = 400
"""The most points of a curve that are embedded."""
_COUNTED = ("rounds", "bytes", "lmo_calls")
_SPEEDS = ("1 Mbit/s", "1 MB/s", "10 MB/s", "100 MB/s", "1 GB/s")


@final
@dataclass(frozen=True)
class Group:
    """The claims of one part of the page, as the overview lists them."""

    title: str
    anchor: str
    claims: Sequence[Claim]
    kind: Kind | None = None


def check(study: Study) -> None:
    """Raise if the paper's loss would be the only measure."""
    alone = [findings.name for findings in study.findings if len(findings.measures) < 2]
    if alone:
        raise ValueError(
            f"every experiment must have a measure on all data beside the paper's loss; {alone} have none."
        )


def groups(study: Study) -> Iterator[Group]:
    """Yield the claims of each experiment, then those about cost."""
    for findings in study.findings:
        yield Group(findings.title, anchor(findings.name), findings.claims, findings.source.kind)
    if study.cost is not None:
        yield Group(COST_TITLE, "cost", (study.cost.claim,))


def tally(study: Study) -> list[tuple[Verdict, int]]:
    """Return how often each verdict occurs; claims on a look-alike are not counted."""
    counted = (group.claims for group in groups(study) if group.kind is not Kind.LOOKALIKE)
    seen = Counter(claim.verdict for claims in counted for claim in claims)
    return [(verdict, seen[verdict]) for verdict in Verdict if seen[verdict]]


def moment(text: str) -> str:
    """Return an ISO 8601 time with a space and UTC.

    >>> moment("2026-01-02T03:04:05+00:00")
    '2026-01-02 03:04:05 UTC'
    """
    return re.sub(r"(?<=\d)T(?=\d)", " ", text).replace("+00:00", " UTC")


def anchor(name: str) -> str:
    """Return the id of an experiment's section."""
    return f"experiment-{name}"


def verdict_class(verdict: Verdict) -> str:
    """Return the CSS class of a verdict."""
    return f"verdict-{verdict.name.lower().replace('_', '-')}"


def speeds(study: Study) -> list[tuple[str, float]]:
    """Return the link speeds to choose from, slowest first, with the study's own."""
    choices = {Link.parse(text).speed: text for text in _SPEEDS}
    choices.setdefault(study.link.speed, str(study.link))
    return [(text, speed) for speed, text in sorted(choices.items())]


def speed_words(study: Study) -> str:
    """Return the label of the study's link speed."""
    return next(text for text, speed in speeds(study) if speed == study.link.speed)


def shown_measures(findings: Findings) -> list[Measure]:
    """Return the measures: the paper's loss, the worst agent's loss, then the others."""
    paper, *others = findings.measures
    return [paper, *sorted(others, key=lambda measure: measure.key != "worst_loss")]


def table_measures(findings: Findings) -> list[Measure]:
    """Return the measures of the table of final values: all but the average model's loss."""
    return [measure for measure in shown_measures(findings) if measure.key != "mean_loss"]


def all_measures(study: Study) -> list[Measure]:
    """Return every measure of the study once."""
    return list(
        {measure.key: measure for findings in study.findings for measure in findings.measures}.values()
    )


def embedded(study: Study) -> str:
    """Return the data of the charts as JSON that is safe inside a script element."""
    return as_json([_experiment(findings) for findings in study.findings])


def as_json(data: Any) -> str:
    """Return data as JSON that is safe inside a script element."""
    text = json.dumps(data, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def thinned(measures: Iterable[Sequence[float]], length: int) -> list[int]:
    """Return the indices of the points to show, at most MOST_POINTS of ``length``, in order.

    The first, the last, and each measure's smallest and largest value are among them. Half of the others are
    spaced evenly and half logarithmically, so that both kinds of axis look smooth.
    """
    if length <= MOST_POINTS:
        return list(range(length))
    places = {0, length - 1, *_extremes(measures)}
    room = MOST_POINTS - len(places)
    even = np.linspace(0, length - 1, room // 2)
    early = np.geomspace(1, length, room - room // 2) - 1
    return sorted(places | {round(place) for place in (*even, *early)})


def _extremes(measures: Iterable[Sequence[float]]) -> set[int]:
    columns = [np.asarray(column, dtype=float) for column in measures]
    known = [np.where(np.isfinite(column), column, np.nan) for column in columns if np.isfinite(column).any()]
    return {int(place(column)) for column in known for place in (np.nanargmin, np.nanargmax)}


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
    columns = {name: curve.columns[name] for name in (*_COUNTED, "computing", *measures)}
    columns["peak_bytes"] = curve.peak_bytes
    return {name: [plain(column[place]) for place in places] for name, column in columns.items()}


def plain(value: float) -> float | None:
    """Return a whole number exactly, others to seven digits, and None if it is not finite."""
    value = float(value)
    if not math.isfinite(value):
        return None
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(f"{value:.7g}")
