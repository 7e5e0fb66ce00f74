"""The results of the experiments, as reports are made from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.datasets import Kind, Source
from dcgs.experiments.link import Link


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
        return link.waiting(np.asarray(curve.columns["bytes"], dtype=float) / self.degree)

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
