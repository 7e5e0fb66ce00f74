"""What the page shows of a study: rows, choices and labels of the template, and the data of the charts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dcgs.datasets import SourceKind
from dcgs.link import Link
from dcgs.report.numbers import duration, share
from dcgs.report.page.charts import plain, thinned
from dcgs_bench.paper.results import Curve, Findings, Measure, PaperStudy, Verdict

COST_TITLE = "What a round costs"
LINES = 8
"""How many line styles there are: each has a color and a dash pattern of its own."""

SYMBOLS = {Verdict.HOLDS: "✓", Verdict.PAPER_ONLY: "◐", Verdict.FAILS: "✗", Verdict.OPEN: "○"}
"""They distinguish verdicts without color."""
KINDS = {
    SourceKind.REAL: ("real", "real data"),
    SourceKind.SYNTHETIC: ("synthetic", "synthetic data"),
    SourceKind.LOOKALIKE: ("lookalike", "look-alike, not the real data"),
}
"""The CSS class and the label of each kind of data."""
COST_COLUMNS = {
    "case": ("way of calling the oracle", str),
    "seconds": ("one oracle call", duration),
    "round_seconds": ("sending one message", duration),
    "waiting_share": ("waiting, one message a call", share),
    "waiting_share_dfw": ("waiting, two messages a call", share),
}
"""The heading and the format of each column of the cost table."""
_COUNTED = ("rounds", "bytes", "lmo_calls")
_SPEEDS = ("1 Mbit/s", "1 MB/s", "10 MB/s", "100 MB/s", "1 GB/s")


def check(study: PaperStudy) -> None:
    """Raise if the paper's loss would be the only measure."""
    alone = [findings.name for findings in study.findings if len(findings.measures) < 2]
    if alone:
        raise ValueError(
            f"every experiment must have a measure on all data beside the paper's loss; {alone} have none."
        )


def groups(study: PaperStudy) -> Iterator[dict[str, Any]]:
    """Yield the claims of each experiment, then those about cost, as the overview lists them."""
    for findings in study.findings:
        about = {
            "title": findings.title,
            "anchor": f"experiment-{findings.name}",
            "kind": findings.source.kind,
        }
        yield about | {"claims": findings.claims}
    if study.cost is not None:
        yield {"title": COST_TITLE, "anchor": "cost", "kind": None, "claims": (study.cost.claim,)}


def skipped(study: PaperStudy) -> list[dict[str, str]]:
    """Return the experiments that were not run: their name and title, why, and how to get their data."""
    entries = study.manifest["experiments"].items()
    return [{"name": n, "title": e["title"]} | e["skipped"] for n, e in entries if "skipped" in e]


def tally(study: PaperStudy) -> list[tuple[Verdict, int]]:
    """Return how often each verdict occurs; claims on a look-alike are not counted."""
    counted = (group["claims"] for group in groups(study) if group["kind"] is not SourceKind.LOOKALIKE)
    seen = Counter(claim.verdict for claims in counted for claim in claims)
    return [(verdict, seen[verdict]) for verdict in Verdict if seen[verdict]]


def speeds(study: PaperStudy) -> list[tuple[str, float]]:
    """Return the link speeds to choose from, slowest first, with the study's own."""
    choices = {Link.parse(text).speed: text for text in _SPEEDS}
    choices.setdefault(study.link.speed, str(study.link))
    return [(text, speed) for speed, text in sorted(choices.items())]


def speed_words(study: PaperStudy) -> str:
    """Return the label of the study's link speed."""
    return next(text for text, speed in speeds(study) if speed == study.link.speed)


def shown_measures(findings: Findings) -> list[Measure]:
    """Return the measures: the paper's loss, the worst agent's loss, then the others."""
    paper, *others = findings.measures
    return [paper, *sorted(others, key=lambda measure: measure.key != "worst_loss")]


def charts(study: PaperStudy) -> list[dict[str, Any]]:
    """Return the data of the charts."""
    return [_experiment(findings) for findings in study.findings]


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
