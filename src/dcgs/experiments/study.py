"""What came of the experiments, in the form that reports are made from."""

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
    """What is true of a claim."""

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
    """One method's run: its columns by name, all of one length, and what to know about it.

    ``columns`` has iterations, rounds, messages, bytes and lmo_calls (counted, the busiest agent's),
    computing (measured seconds), and every measure; of runs since version 0.3 also projections. They end
    with the last iteration that was finished;
    ``rounds`` and ``lmo_calls`` are what the run took in all.
    """

    key: str
    label: str
    about: str
    status: str
    notes: Sequence[str]
    columns: Mapping[str, Sequence[float]]
    rounds: int
    lmo_calls: int
    kept_as: str | None = None

    @property
    def file(self) -> str:
        """The name of its CSV, without folder; that of the run it was chosen from, where it was."""
        return f"{self.kept_as or self.key}.csv"


@final
@dataclass(frozen=True, eq=False)
class Findings:
    """One experiment: the problem, its data, the curves of all methods and what they say.

    ``measures`` starts with the paper's loss; the others are the honest ones, best first. ``degree``
    is how many links every agent has. ``summary`` is plain language, a paragraph an entry.
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
        """Return the seconds a run would have waited for its links at each entry."""
        return link.waiting(np.asarray(curve.columns["bytes"], dtype=float) / self.degree)

    def time(self, curve: Curve, link: Link) -> NDArray[np.float64]:
        """Return the modeled seconds of a run at each entry: computing and waiting."""
        return np.asarray(curve.columns["computing"], dtype=float) + self.waiting(curve, link)

    @property
    def banner(self) -> str | None:
        """A warning that must stand over everything shown of these data, where there is one."""
        if self.source.kind is not Kind.LOOKALIKE:
            return None
        return f"Not the real data: a look-alike of {self.source.name}, made from seed {self.source.seed}."


@final
@dataclass(frozen=True)
class Skipped:
    """An experiment that was not run: why, and what to do about it."""

    name: str
    title: str
    why: str
    how: str


@final
@dataclass(frozen=True)
class Cost:
    """The paper's cost claim, with the oracle measured: one row per way of calling it."""

    side: int
    rows: Sequence[Mapping[str, Any]]
    claim: Claim


@final
@dataclass(frozen=True, eq=False)
class Study:
    """All that one folder holds; ``manifest`` says how it was made."""

    findings: Sequence[Findings]
    skipped: Sequence[Skipped]
    cost: Cost | None
    link: Link
    manifest: Mapping[str, Any]
