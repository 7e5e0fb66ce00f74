"""What the template shows of a study: rows, choices and labels."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

from dcgs.datasets import Kind
from dcgs.experiments.link import Link
from dcgs.experiments.results import Claim, Findings, Measure, OracleCost, Study, Verdict

COST_TITLE = "What a round costs"
LINES = 8
"""How many line styles there are: each has a color and a dash pattern of its own."""

_SYMBOLS = {Verdict.HOLDS: "✓", Verdict.PAPER_ONLY: "◐", Verdict.FAILS: "✗", Verdict.OPEN: "○"}
_KINDS = {
    Kind.REAL: ("real", "real data"),
    Kind.SYNTHETIC: ("synthetic", "synthetic data"),
    Kind.LOOKALIKE: ("lookalike", "look-alike, not the real data"),
}
_SPEEDS = ("1 Mbit/s", "1 MB/s", "10 MB/s", "100 MB/s", "1 GB/s")
_COST_COLUMNS = {
    "case": "way of calling the oracle",
    "seconds": "one oracle call",
    "products": "matrix products",
    "round_seconds": "sending one message",
    "waiting_share": "waiting, one message a call",
    "waiting_share_dfw": "waiting, two messages a call",
}
_COST_FORMS = {
    "seconds": "duration",
    "round_seconds": "duration",
    "waiting_share": "share",
    "waiting_share_dfw": "share",
}


@final
@dataclass(frozen=True)
class Group:
    """The claims of one part of the page, as the overview lists them."""

    title: str
    anchor: str
    claims: Sequence[Claim]
    kind: Kind | None = None


def check(study: Study) -> None:
    """Refuse a study that would show the paper's loss alone."""
    alone = [findings.name for findings in study.findings if len(findings.measures) < 2]
    if alone:
        raise ValueError(
            f"every experiment must have an honest measure beside the paper's loss; {alone} have none."
        )


def groups(study: Study) -> Iterator[Group]:
    """Yield the claims of each experiment, then those about cost."""
    for findings in study.findings:
        yield Group(findings.title, anchor(findings.name), findings.claims, findings.source.kind)
    if study.cost is not None:
        yield Group(COST_TITLE, "cost", (study.cost.claim,))


def tally(study: Study) -> list[tuple[Verdict, int]]:
    """Return how often each verdict occurs; claims on a look-alike are not counted."""
    real = [group for group in groups(study) if group.kind is not Kind.LOOKALIKE]
    seen = Counter(claim.verdict for group in real for claim in group.claims)
    return [(verdict, seen[verdict]) for verdict in Verdict if seen[verdict]]


def moment(text: str) -> str:
    """Return an ISO 8601 time with a space and UTC.

    >>> moment("2026-01-02T03:04:05+00:00")
    '2026-01-02 03:04:05 UTC'
    """
    return re.sub(r"(?<=\d)T(?=\d)", " ", text).replace("+00:00", " UTC")


def anchor(name: str) -> str:
    """Return the name of an experiment's section inside the page."""
    return f"experiment-{name}"


def verdict_class(verdict: Verdict) -> str:
    """Return the CSS class of a verdict."""
    return f"verdict-{verdict.name.lower().replace('_', '-')}"


def verdict_symbol(verdict: Verdict) -> str:
    """Return the symbol that distinguishes a verdict without color."""
    return _SYMBOLS[verdict]


def kind_class(kind: Kind) -> str:
    """Return the CSS class of a kind of data."""
    return f"kind-{_KINDS[kind][0]}"


def kind_words(kind: Kind) -> str:
    """Return the label of a kind of data."""
    return _KINDS[kind][1]


def is_lookalike(findings: Findings) -> bool:
    """Return whether the data are a look-alike."""
    return findings.source.kind is Kind.LOOKALIKE


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
    paper, *honest = findings.measures
    return [paper, *sorted(honest, key=lambda measure: measure.key != "worst_loss")]


def table_measures(findings: Findings) -> list[Measure]:
    """Return the measures of the table of final values: all but the average model's loss."""
    return [measure for measure in shown_measures(findings) if measure.key != "mean_loss"]


def all_measures(study: Study) -> list[Measure]:
    """Return every measure of the study once."""
    return list(
        {measure.key: measure for findings in study.findings for measure in findings.measures}.values()
    )


def cost_columns(cost: OracleCost) -> list[tuple[str, str, str]]:
    """Return name, heading and form of each column of the cost table."""
    names = list(dict.fromkeys(name for row in cost.rows for name in row))
    return [(name, _COST_COLUMNS.get(name, name.replace("_", " ")), _form(cost.rows, name)) for name in names]


def _form(rows: Sequence[Mapping[str, Any]], name: str) -> str:
    values = [row[name] for row in rows if name in row]
    if all(isinstance(value, int) for value in values):
        return "count"
    if any(isinstance(value, str) for value in values):
        return "text"
    return _COST_FORMS.get(name, "number")
