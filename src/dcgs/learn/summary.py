"""A fit described once: what ``dcgs fit`` prints, ``dcgs show`` reads from a model, and the page shows.

:class:`FitSummary` is read from what :mod:`dcgs.learn.files.describe` writes: summary.json, or the
description in a model file, of this version or of an older one. Tables have values, and say of what kind
these are; who prints them writes the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

from dcgs.learn.radius.result import PathPoint
from dcgs.learn.sums import Sent
from dcgs.runtime.ledger import MASKED, Entry
from dcgs.state import Plain, from_plain

_MASKED = {True: "masked", False: "open"}
Option: TypeAlias = bool | int | float | str | list[float] | None


@final
@dataclass(frozen=True)
class Gap:
    """A certified gap: the loss exceeds the least one by at most this; and its share of what is explained."""

    gap: float
    decrease: float = 0.0
    share: float | None = None


@final
@dataclass(frozen=True)
class ClassRun:
    """What the run of one of several classes found, and what it cost."""

    rounds: int = 0
    bytes: int = 0
    gap: Gap | None = None


@final
@dataclass(frozen=True)
class PathSummary:
    """The path of radii of a model."""

    points: tuple[PathPoint, ...]
    best_radius: float
    one_standard_error_radius: float
    size: str = "features"


@final
@dataclass(frozen=True)
class Score:
    """A measure of a model, and of the constant prediction; None where there is none."""

    model: float | None
    constant: float | None


@final
@dataclass(frozen=True)
class SiteScores:
    """Scores by name on the rows of one site, or of all; ``rows`` is how many."""

    rows: int = 0
    scores: dict[str, Score] = field(default_factory=dict)


@final
@dataclass(frozen=True)
class ScoresSummary:
    """Scores on rows that were held out, or on those of the fit: of everyone, and of each agent if known.

    Models before version 0.11 have ``rows`` and ``scores`` in place of those of everyone.
    """

    held_out: bool = False
    everyone: SiteScores | None = None
    agents: tuple[SiteScores, ...] = ()
    rows: int = 0
    scores: dict[str, Score] = field(default_factory=dict)
    what: str = "rows"

    @property
    def of_all(self) -> SiteScores:
        """The scores on the rows of all sites."""
        return SiteScores(self.rows, self.scores) if self.everyone is None else self.everyone


@final
@dataclass(frozen=True)
class AgentSummary:
    """What an agent sent and computed; ``rows`` is None if it is in another process."""

    agent: int
    messages: int = 0
    bytes: int = 0
    lmo_calls: int = 0
    projections: int = 0
    computing: float = 0.0
    waiting: float = 0.0
    rows: int | None = None
    name: str = ""

    @property
    def label(self) -> str:
        """The name of the site, or the number of the agent."""
        return self.name or str(self.agent)


@final
@dataclass(frozen=True)
class FitSummary:
    """The description of a fit. Entries that a file does not have keep their defaults.

    ``agents`` is their number, or a summary of each. ``constant`` is the constant prediction.
    ``name`` is that of the site whose model it is, if it has one.
    """

    set: dict[str, Option] = field(default_factory=dict)
    status: str = "?"
    certified: bool = False
    gap: Gap | None = None
    method: str = "?"
    agents: int | tuple[AgentSummary, ...] = 0
    rounds: int = 0
    bytes: int = 0
    classes: dict[str, ClassRun] = field(default_factory=dict)
    intercept: bool | None = None
    standardized: bool | None = None
    balanced: bool = False
    constant: float | tuple[float, ...] | None = None
    scores: ScoresSummary | None = None
    path: PathSummary | None = None
    paths: dict[str, PathSummary] = field(default_factory=dict)
    sent: tuple[Sent, ...] = ()
    ledger: tuple[Entry, ...] = ()
    name: str = ""

    @classmethod
    def read(cls, plain: Plain) -> FitSummary:
        """Return the description in plain values; raise TypeError if an entry is not of its kind."""
        return from_plain(cls, plain, lenient=True)

    @property
    def count(self) -> int:
        """The number of agents."""
        return self.agents if isinstance(self.agents, int) else len(self.agents)

    @property
    def labels(self) -> list[str]:
        """The name or number of each site."""
        known = () if isinstance(self.agents, int) else self.agents
        return [item.label for item in known] or list(map(str, range(self.count)))

    @property
    def all_paths(self) -> dict[str, PathSummary]:
        """The paths of radii by the label of the class; that of one model has an empty label."""
        return self.paths if self.path is None else {"": self.path}

    @property
    def facts(self) -> dict[str, Any]:
        """What is known of any fit, by name: the set, the status, the gap, and what it cost."""
        options = dict(self.set)
        name = str(options.pop("name", "?"))
        chosen = ", ".join([name, *(f"{key} {_option(value)}" for key, value in options.items())])
        facts = {"site": self.name} if self.name else {}
        facts |= {"set": chosen, "status": self.status}
        if self.gap is not None:
            share = "" if self.gap.share is None else f", {self.gap.share:.2g} of the decrease of the loss"
            facts["certified gap"] = f"{self.gap.gap:.3g}{share}"
        for label, path in self.all_paths.items():
            facts[f"radius of {label}" if label else "radius"] = (
                f"best of {len(path.points)}: {path.best_radius:.4g}; within one standard error: "
                f"{path.one_standard_error_radius:.4g}"
            )
        return facts | {"rounds": f"{self.rounds}, of {self.count} agents"}


def _option(value: Option) -> str:
    if isinstance(value, list):
        return ", ".join(map(_option, value))
    return f"{value:.6g}" if isinstance(value, float) else str(value)


@final
@dataclass(frozen=True)
class FitTable:
    """A table: its title, its columns with the kind of their values, and its rows.

    A kind is text, number, loss, amount, count, size, seconds or share. A value of None is not known. The
    ``last`` rows are apart from the others.
    """

    title: str
    columns: Mapping[str, str]
    rows: Sequence[Sequence[Any]]
    last: int = 0


def scores_table(scores: ScoresSummary, labels: Sequence[str] = ()) -> FitTable:
    """Return the scores of each agent's model on its own rows, those of all, and of a constant prediction."""
    everyone = scores.of_all
    names = list(next((site.scores for site in (everyone, *scores.agents) if site.scores), ()))
    what = scores.what
    where = f"{what} held out" if scores.held_out else "the rows of the fit"
    rows: list[list[Any]] = [
        [label, site.rows or None, *(_score(site, name, "model") for name in names)]
        for label, site in zip(labels, scores.agents, strict=True)
    ]
    rows.append(["all", everyone.rows or None, *(_score(everyone, name, "model") for name in names)])
    constant = "all, by the mean alone" if what == "ratings" else "all, without features"
    rows.append([constant, None, *(_score(everyone, name, "constant") for name in names)])
    columns = {"agent": "text", what: "count"} | dict.fromkeys(names, "number")
    return FitTable(f"scores on {where}", columns, rows, last=2)


def _score(site: SiteScores, name: str, which: str) -> float | None:
    return getattr(site.scores[name], which) if name in site.scores else None


def classes_table(summary: FitSummary) -> FitTable:
    """Return what the run of each class found, and what it cost."""
    rows, radius = [], summary.set.get("radius")
    constant = summary.constant if isinstance(summary.constant, tuple) else ()
    for k, (label, run) in enumerate(summary.classes.items()):
        gap = run.gap
        rows.append(
            [
                label,
                constant[k] if k < len(constant) else None,
                radius[k] if isinstance(radius, list) else radius,
                None if gap is None else gap.gap,
                None if gap is None else gap.share,
                run.rounds,
                run.bytes,
            ]
        )
    kinds = {"class": "text", "share of rows": "share", "radius": "number", "certified gap": "number"}
    kinds |= {"of the decrease": "share", "rounds": "count", "bytes": "size"}
    return FitTable("one model for each class, against all others", kinds, rows)


def agents_table(summary: FitSummary, projects: bool = False) -> FitTable:
    """Return what each agent has sent and computed in the run."""
    work = "projections" if projects else "oracle calls"
    rows = [
        [
            item.label,
            item.rows,
            item.messages,
            item.bytes,
            item.projections if projects else item.lmo_calls,
            item.computing,
            item.waiting,
        ]
        for item in (() if isinstance(summary.agents, int) else summary.agents)
    ]
    kinds = {"agent": "text", "rows": "count", "messages": "count", "bytes sent": "size", work: "count"}
    return FitTable("", kinds | {"s computing": "seconds", "s waiting": "seconds"}, rows)


def path_table(path: PathSummary, label: str, what: str) -> FitTable:
    """Return the error of each radius, and which one was taken; ``label`` is the class of the model."""
    of = f" of {label}" if label else ""
    marks = (("best", path.best_radius), ("one standard error", path.one_standard_error_radius))
    rows = [
        [
            point.radius,
            point.error,
            point.standard_error,
            point.features,
            ", ".join(text for text, radius in marks if radius == point.radius),
        ]
        for point in path.points
    ]
    kinds = {"radius": "number", "mean loss, held out": "loss", "standard error": "number"}
    kinds |= {path.size: "amount", "": "text"}
    return FitTable(f"radii{of}, with errors on {what} that the sites held out", kinds, rows)


def ledger_table(entries: Sequence[Entry]) -> FitTable:
    """Return all that was sent, from the ledgers: a line for each purpose.

    What is open of a masked sum is its answer, which the root computes from the total over all agents.
    """
    rows = []
    for purpose in dict.fromkeys(entry.sum for entry in entries):
        some = [entry for entry in entries if entry.sum == purpose]
        is_masked = any(entry.masked for entry in some)
        forms = ", ".join(dict.fromkeys(entry.form for entry in some if not entry.masked))
        own, answer = (MASKED, forms or None) if is_masked else (f"{forms}, open", None)
        messages, sent = (sum(getattr(entry, name) for entry in some) for name in ("messages", "bytes"))
        rows.append([purpose, own, answer, messages, sent])
    kinds = {"what for": "text", "what agents sent of their own": "text", "the answer to all, open": "text"}
    return FitTable("what was sent, by all agents", kinds | {"messages": "count", "bytes": "size"}, rows)


def sent_table(summary: FitSummary) -> FitTable:
    """Return what was sent: in the run, and for what the agents agreed on."""
    name = "the run: points, gradients, bounds of the gap; with few unknowns Hessians"
    rows = [[name, "", None, summary.rounds, summary.bytes]]
    rows += [[item.name, item.operation, item.numbers, item.rounds, item.bytes] for item in summary.sent]
    kinds = {"what was sent": "text", "operation": "text", "numbers": "count", "rounds": "count"}
    return FitTable("what was sent, by all agents", kinds | {"bytes": "size"}, rows)
