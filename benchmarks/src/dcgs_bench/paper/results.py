"""The results of experiments, for reports: curves, claims with verdicts, and costs to a good model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import Source
from dcgs.datasets import SourceKind as SourceKind
from dcgs.link import Link
from dcgs.report.numbers import count, short_duration, size
from dcgs_bench.optimum import Optimum
from dcgs_bench.ranking import RunCost, cost_to
from dcgs_bench.study import Columns, RunRecord

# The runs that claims are judged by; of all scalings tried, SCALED is the best.
DFW, THEOREM, SCALED = "dfw", "dcgs-theorem", "dcgs-scaled"


class Verdict(Enum):
    """Whether a claim holds."""

    HOLDS = "holds"
    PAPER_ONLY = "holds only for the paper's loss"
    FAILS = "does not hold"
    OPEN = "not settled here"

    def __str__(self) -> str:
        return self.value


@final
@dataclass(frozen=True)
class Claim:
    """What the paper says, what was measured (sentences), and the verdict."""

    paper: str
    measured: str
    verdict: Verdict


@final
@dataclass(frozen=True)
class Measure:
    """A column that can be drawn: its name in CSV, a plain label, and its formula."""

    key: str
    label: str
    symbol: str


MEASURES = (
    Measure("local_loss", "each agent on its own data", "Σᵢ fᵢ(xᵢ)"),
    Measure("worst_loss", "the worst agent on everyone's data", "maxᵢ f(xᵢ)"),
    Measure("mean_loss", "the average model on everyone's data", "f(x̄)"),
    Measure("disagreement", "disagreement between agents", "maxᵢ ‖xᵢ − x̄‖"),
    Measure("gap", "certified gap of the average model", "max ⟨∇f(x̄), x̄ − s⟩"),
)


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """The record of a run, and its description; ``recorded_as`` is the key of its files, if another one.

    Its columns are the counts (maximum over agents), ``computing`` (measured seconds) and every measure, up
    to the last iteration that was finished.
    """

    key: str
    label: str
    about: str
    run: RunRecord
    recorded_as: str | None = None

    @property
    def columns(self) -> Columns:
        """Its measures by name, all of one length."""
        return self.run.columns

    @property
    def file(self) -> str:
        """The name of its CSV, without folder."""
        return f"{self.recorded_as or self.key}.csv"

    @property
    def peak_bytes(self) -> Sequence[float]:
        """The bytes of the busiest agent of each round, added up; those of the busiest agent before 0.7.0."""
        return self.columns.get("peak_bytes", self.columns["bytes"])


@final
@dataclass(frozen=True, eq=False)
class Findings:
    """One experiment: the problem, its data, the curves of all methods, and the verdicts on the claims.

    ``measures`` starts with the paper's loss; measures on all data follow. ``degree`` is the number of
    links of every agent. ``summary`` is what follows from the claims.
    """

    name: str
    title: str
    problem: str
    source: Source
    degree: int
    measures: Sequence[Measure]
    curves: Sequence[Curve]
    claims: Sequence[Claim]
    summary: str

    def waiting(self, curve: Curve, link: Link) -> NDArray[np.float64]:
        """Return the seconds of waiting for the links, up to each recorded point."""
        return link.waiting(np.asarray(curve.peak_bytes, dtype=float) / self.degree)

    def time(self, curve: Curve, link: Link) -> NDArray[np.float64]:
        """Return the modeled seconds of computing and waiting, up to each recorded point."""
        return np.asarray(curve.columns["computing"], dtype=float) + self.waiting(curve, link)

    @property
    def banner(self) -> str | None:
        """The warning that is printed with these data, or None."""
        if self.source.kind is not SourceKind.LOOKALIKE:
            return None
        return f"Not the real data: a look-alike of {self.source.name}, made from seed {self.source.seed}."


@final
@dataclass(frozen=True)
class OracleCost:
    """The paper's cost claim and the measured oracle: one row per way of calling it."""

    side: int
    rows: Sequence[Mapping[str, Any]]
    claim: Claim


@final
@dataclass(frozen=True, eq=False)
class PaperStudy:
    """All results of one folder; ``manifest`` says how they were made, and why experiments were not run."""

    findings: Sequence[Findings]
    cost: OracleCost | None
    link: Link
    manifest: Mapping[str, Any]


ACCURACY = 0.01
"""A model is good if at most this share of the possible decrease of the loss is missing."""


@final
@dataclass(frozen=True, eq=False)
class CostToAccuracy:
    """What a run had spent at the first recorded point at which every agent's model is good.

    ``missing`` is the share of the possible decrease that is missing at the end of the run: (worst_loss −
    best) / (worst_loss at x⁰ − best), where best is the least worst_loss of all runs. ``spent`` is None if
    the run does not come to the accuracy.
    """

    curve: Curve
    missing: float
    spent: RunCost | None


def costs_to_accuracy(findings: Findings) -> list[CostToAccuracy]:
    """Return the costs of all methods, fewest rounds first; methods that do not get there are last."""
    losses = [np.asarray(curve.columns["worst_loss"], dtype=float) for curve in findings.curves]
    finite = [np.where(np.isfinite(loss), loss, np.inf) for loss in losses]
    best = min(float(loss.min()) for loss in finite)
    start = max(float(loss[0]) for loss in finite if loss[0] < np.inf)
    least = Optimum(best, start if start > best else best + 1.0, 0.0, 0)
    costs = []
    for curve, loss in zip(findings.curves, finite, strict=True):
        columns = {**curve.columns, "worst_loss": loss.tolist(), "peak_bytes": curve.peak_bytes}
        missing = float(least.relative(loss[-1]))
        costs.append(CostToAccuracy(curve, missing, cost_to(columns, least, ACCURACY)))
    return sorted(
        costs, key=lambda cost: (cost.spent is None, cost.spent and cost.spent.rounds, cost.missing)
    )


def modeled_seconds(spent: RunCost, findings: Findings, link: Link) -> float:
    """Return computing and sending to the accuracy, in seconds."""
    return spent.computing + float(link.waiting(spent.peak_bytes / findings.degree))


def conclusion(costs: Sequence[CostToAccuracy], findings: Findings, link: Link) -> str:
    """Return the sentence that tells which method serves every agent, and at what cost."""
    arrived = [(cost.curve.label, cost.spent) for cost in costs if cost.spent is not None]
    late = ", ".join(cost.curve.label for cost in costs if cost.spent is None)
    told = [
        f"{label}, after {count(spent.rounds)} {'round' if spent.rounds == 1 else 'rounds'}, "
        f"{size(spent.bytes)} sent by the busiest agent, and "
        f"{short_duration(modeled_seconds(spent, findings, link))} on links of {link}"
        for label, spent in arrived[:2]
    ]
    text = f"{told[0]}." if told else "No method brings every agent there."
    if len(told) > 1:
        text += f" Next is {told[1]}."
    return text + (f" Not within their budgets: {late}." if late and arrived else "")
