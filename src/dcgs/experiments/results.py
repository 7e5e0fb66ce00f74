"""What an experiment is: data, and the runs that are compared on them; and its results, for reports."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import Kind, Source
from dcgs.link import Link
from dcgs.methods import Method
from dcgs.study import Budget, Problem

AGENTS = 10

# The runs that claims are judged by; of all scalings tried, SCALED is the best.
DFW, THEOREM, SCALED = "dfw", "dcgs-theorem", "dcgs-scaled"
FAST = "fast-dcgs"


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
@dataclass(frozen=True)
class PlannedRun:
    """One method of an experiment and its budget.

    ``method`` is made from ‖x⁰ − x*‖, which the theorems' parameters contain. ``scaling`` is the factor of η,
    where the run is one of those among which the best scaling is chosen; None elsewhere.
    """

    key: str
    label: str
    about: str
    method: Callable[[float], Method]
    budget: Budget
    scaling: float | None = None


@final
@dataclass(frozen=True, eq=False)
class Prepared:
    """The problem of an experiment and the source of its data.

    ``distance`` is ‖x⁰ − x*‖ or an estimate of it. ``description`` is a sentence.
    """

    problem: Problem
    source: Source
    distance: float
    description: str
    measures: Sequence[Measure] = MEASURES


@final
@dataclass(frozen=True, eq=False)
class Experiment:
    """An experiment of the paper: ``prepare()`` reads or makes its data, ``runs`` are compared.

    ``missing`` is the sentence for data that cannot be found.
    """

    name: str
    title: str
    prepare: Callable[[], Prepared]
    runs: Sequence[PlannedRun]
    missing: str = ""


@final
@dataclass(frozen=True, eq=False)
class Curve:
    """One run: its columns by name, all of one length, and a description.

    ``columns`` are the counts (maximum over agents), ``computing`` (measured seconds) and every measure, up
    to the last iteration that was finished. ``rounds`` and ``lmo_calls`` are totals of the run.
    ``recorded_as`` is the key of the run's files, if it differs from ``key``.
    """

    key: str
    label: str
    about: str
    status: str
    notes: Sequence[str]
    columns: Mapping[str, Sequence[float]]
    rounds: int
    lmo_calls: int
    recorded_as: str | None = None

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
    links of every agent. ``summary`` is a list of paragraphs.
    """

    name: str
    title: str
    problem: str
    source: Source
    degree: int
    measures: Sequence[Measure]
    curves: Sequence[Curve]
    claims: Sequence[Claim]
    summary: Sequence[str]

    def waiting(self, curve: Curve, link: Link) -> NDArray[np.float64]:
        """Return the seconds of waiting for the links, up to each recorded point."""
        return link.waiting(np.asarray(curve.peak_bytes, dtype=float) / self.degree)

    def time(self, curve: Curve, link: Link) -> NDArray[np.float64]:
        """Return the modeled seconds of computing and waiting, up to each recorded point."""
        return np.asarray(curve.columns["computing"], dtype=float) + self.waiting(curve, link)

    @property
    def banner(self) -> str | None:
        """The warning that is printed with these data, or None."""
        if self.source.kind is not Kind.LOOKALIKE:
            return None
        return f"Not the real data: a look-alike of {self.source.name}, made from seed {self.source.seed}."


@final
@dataclass(frozen=True)
class Skipped:
    """An experiment that was not run: why, and how to get its data."""

    name: str
    title: str
    why: str
    how: str


@final
@dataclass(frozen=True)
class OracleCost:
    """The paper's cost claim and the measured oracle: one row per way of calling it."""

    side: int
    rows: Sequence[Mapping[str, Any]]
    claim: Claim


@final
@dataclass(frozen=True, eq=False)
class Study:
    """All results of one folder; ``manifest`` says how they were made."""

    findings: Sequence[Findings]
    skipped: Sequence[Skipped]
    cost: OracleCost | None
    link: Link
    manifest: Mapping[str, Any]
