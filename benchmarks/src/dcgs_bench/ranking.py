"""What methods spent on instances, and their ranking by rounds or by seconds over a link."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from dcgs.link import LINKS, Link
from dcgs.run.stopping import Status
from dcgs_bench.entries import BASELINE, GOAL, OURS
from dcgs_bench.optimum import Optimum
from dcgs_bench.study import NOT_REACHED, Columns, TextTable

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Relative errors of the worst agent, (worst_loss − f*)/(f(x⁰) − f*)."""
TIME_LEVELS = (1e-2, 1e-3)
"""Those of tables of seconds."""
POOL = "pool"
"""The name of pooling in tables: all data sent to one site, and a centralized solver there."""
BEST_OF_GRID = ", best of grid"

Trials: TypeAlias = Mapping[str, Sequence["Trial"]]
"""The trials on each instance, by its name."""


@final
@dataclass(frozen=True)
class RunCost:
    """What was spent up to a point of a run.

    ``bytes`` and ``work`` (oracle calls or projections) are those of the busiest agent. ``peak_bytes`` sums
    over rounds the bytes of the busiest agent of that round, which take the time of the links: agents that
    send in turn wait for each other. ``computing`` sums the seconds of the slowest agent of each round.
    ``setting`` is the one of a grid that was best, where there was a choice. ``all_bytes`` are those of all
    agents, 0 if they were not counted.
    """

    rounds: int
    bytes: int = 0
    work: int = 0
    peak_bytes: int = 0
    computing: float = 0.0
    setting: str = ""
    all_bytes: int = 0

    def seconds(self, link: Link) -> float:
        """Return the time over such links."""
        return self.computing + link.seconds(self.peak_bytes, self.rounds)


def cost_at(columns: Columns, work: str = "lmo_calls", place: int = -1) -> RunCost:
    """Return the cost up to a recorded point, by default the last; ``work`` names its column."""
    rounds, sent, spent, peak = (
        int(columns[name][place]) for name in ("rounds", "bytes", work, "peak_bytes")
    )
    return RunCost(rounds, sent, spent, peak, float(columns["computing"][place]))


def cost_to(columns: Columns, optimum: Optimum, level: float, work: str = "lmo_calls") -> RunCost | None:
    """Return the cost at the first recorded point of a level, or None if it was not reached."""
    place = optimum.first_at(columns["worst_loss"], level)
    return None if place is None else cost_at(columns, work, place)


@final
@dataclass(frozen=True)
class Stop:
    """A run whose agents stop by themselves at a certified gap, unless a limit ends it before.

    ``end`` is the name of its status, or FAILED. ``kind`` is that of the lower bound with which the agents
    stopped. ``error`` is the relative error of the worst agent's model at the end; None if the run failed.
    ``plain`` is what as many iterations cost without certificates; None if they were not run. ``version`` is
    that of dcgs.
    """

    end: str
    cost: RunCost
    kind: str = ""
    error: float | None = None
    diameter: int = 0
    plain: RunCost | None = None
    version: str = ""

    @property
    def stopped(self) -> bool:
        """Whether the agents stopped."""
        return self.end == Status.AGREED.name

    def certificate_share(self) -> float | None:
        """Return the share of certificates in the bytes of all agents; None if it was not measured."""
        return None if self.plain is None else 1.0 - self.plain.all_bytes / max(1, self.cost.all_bytes)

    def computing_ratio(self) -> float | None:
        """Return the computing, as a multiple of that without certificates; None if it was not measured."""
        return None if self.plain is None else self.cost.computing / self.plain.computing

    def meets(self, rounds: int) -> bool:
        """Return whether the agents stop soon after that many rounds, after which it is so."""
        return self.stopped and self.cost.rounds <= self.limit(rounds)

    def limit(self, rounds: int) -> float:
        """Return _LATER times so many rounds and twice the diameter."""
        return _LATER * rounds + 2 * self.diameter


@final
@dataclass(frozen=True)
class Trial:
    """One entry on one instance.

    ``work`` names what costs count: oracle calls or projections. ``end`` says why the measured run ended,
    after ``spent`` and ``seconds``; ``reached`` is its lowest relative error. ``costs`` has None for a level
    that was not reached, or that f* is not known well enough for. ``stops`` has the runs whose agents stop,
    by gap. If only these were done, ``end`` is empty. ``version`` is that of dcgs.
    """

    entry: str
    work: str = "oracle calls"
    end: str = ""
    spent: RunCost = RunCost(0)
    seconds: float = 0.0
    reached: float = 1.0
    costs: Mapping[float, RunCost | None] = field(default_factory=dict)
    note: str = ""
    stops: Mapping[float, Stop] = field(default_factory=dict)
    version: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return it as records have it, levels and gaps as text."""
        numbers = asdict(self)
        by_text = {part: {f"{x:.0e}": y for x, y in numbers[part].items()} for part in ("costs", "stops")}
        return numbers | by_text

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Trial:
        """Return the trial that a record has."""
        costs = {float(level): cost and RunCost(**cost) for level, cost in data["costs"].items()}
        stops = {}
        for gap, stop in data["stops"].items():
            costs_of = {name: stop[name] and RunCost(**stop[name]) for name in ("cost", "plain")}
            stops[float(gap)] = Stop(**stop | costs_of)
        return cls(**{**data, "spent": RunCost(**data["spent"]), "costs": costs, "stops": stops})


def best_of(tried: Sequence[Trial], method: str) -> Trial:
    """Return the best of several settings of a method, with hindsight: the fewest rounds at each level.

    The entry of a setting is the name of the method and the setting; without one it is the default.
    """
    costs: dict[float, RunCost | None] = {}
    for level in LEVELS:
        reached = [
            replace(cost, setting=trial.entry.removeprefix(method).removeprefix(", ") or "default")
            for trial in tried
            if (cost := trial.costs[level]) is not None
        ]
        costs[level] = min(reached, key=lambda cost: cost.rounds, default=None)
    farthest = min(tried, key=lambda trial: (trial.reached, -trial.spent.rounds))
    seconds = sum(trial.seconds for trial in tried)
    best = f"{method}{BEST_OF_GRID}"
    return replace(farthest, entry=best, seconds=seconds, costs=costs, note="", stops={})


def trials_of(record: Mapping[str, Any]) -> dict[str, list[Trial]]:
    """Return the trials of a record of ``dcgs bench rounds`` or ``dcgs bench time``."""
    instances = record["instances"].items()
    return {name: [Trial.from_json(trial) for trial in made["trials"]] for name, made in instances}


_NEAR = 1.2  # times the best: within 20 %
_CLOSE = 1.3  # times the best of all forms
_SHORT = {"oracle calls": "lmo", "projections": "proj"}
_LIMITS = (Status.ROUNDS.name, Status.SECONDS.name)
# Agents stop soon if they do within this multiple of the rounds after which it is so, and two diameters.
_LATER = 1.4


@final
@dataclass(frozen=True)
class Ranking:
    """All trials by instance, and what ranks them.

    They are ranked by the cost until the worst agent's error is at the level or, with ``by_stops``, until the
    agents stop at a certified gap of that level. The cost is the rounds, or the seconds over a link. The best
    of a grid and the pool are shown, but not ranked.
    """

    trials: Trials
    level: float = GOAL
    by_stops: bool = False
    link: Link | None = None

    @property
    def shown(self) -> list[str]:
        """All entries, in the order in which they first appear; the best of a grid has no runs that stop."""
        names = dict.fromkeys(trial.entry for row in self.trials.values() for trial in row)
        return [name for name in names if not (self.by_stops and name.endswith(BEST_OF_GRID))]

    @property
    def names(self) -> list[str]:
        """The entries that are ranked."""
        return [name for name in self.shown if name != POOL and not name.endswith(BEST_OF_GRID)]

    @property
    def until(self) -> str:
        """What the cost goes up to, as in "rounds to 1e-03"."""
        stop = "until the agents stop at a certified gap of" if self.by_stops else "to"
        return f"{stop} {self.level:.0e}"

    @property
    def about(self) -> str:
        """What is counted, as the head of a table."""
        return f"{'rounds' if self.link is None else 'seconds'} {self.until}"

    def trial(self, instance: str, name: str) -> Trial | None:
        """Return the trial of an entry on an instance, or None if there is none."""
        return next((trial for trial in self.trials[instance] if trial.entry == name), None)

    def cost(self, instance: str, name: str) -> RunCost | None:
        """Return what an entry needed, or None if it did not get there."""
        trial = self.trial(instance, name)
        if trial is None or not self.by_stops:
            return None if trial is None else trial.costs.get(self.level)
        stop = trial.stops.get(self.level)
        if stop is None:
            return trial.costs.get(self.level) if name == POOL else None
        return stop.cost if stop.stopped else None

    def amount(self, instance: str, name: str) -> float | None:
        """Return the rounds or seconds that an entry needed, or None if it did not get there."""
        cost = self.cost(instance, name)
        return None if cost is None else self._measure(cost)

    def best(self, instance: str) -> float | None:
        """Return the least of all ranked entries."""
        amounts = (self.amount(instance, name) for name in self.names)
        return min((amount for amount in amounts if amount is not None), default=None)

    def decided(self) -> list[str]:
        """Return the instances on which some ranked entry got there."""
        return [name for name in self.trials if self.best(name) is not None]

    def undecided(self) -> list[str]:
        """Return the instances on which an entry ended at a limit before it had spent the least of all."""
        undecided = []
        for instance in self.decided():
            best = self.best(instance) or 0.0
            spent = (self._unfinished(instance, name) for name in self.names)
            if any(cost is not None and end in _LIMITS and self._measure(cost) < best for end, cost in spent):
                undecided.append(instance)
        return undecided

    def ratios(self, name: str) -> list[float]:
        """Return what the entry needed over the least, for all instances on which it got there."""
        # A level that is reached before the first round counts as one round.
        least = 1.0 if self.link is None else 0.0
        pairs = ((self.amount(instance, name), self.best(instance) or 0.0) for instance in self.decided())
        return [max(least, amount) / max(least, best) for amount, best in pairs if amount is not None]

    def counts(self, name: str) -> tuple[int, int, int]:
        """Return on how many instances it needs the least, at most 20 % more, or gets there at all."""
        ratios = self.ratios(name)
        return sum(ratio == 1.0 for ratio in ratios), sum(ratio <= _NEAR for ratio in ratios), len(ratios)

    def profile(self, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return τ and the share of instances on which an entry needs at most τ times the least.

        This is the performance profile of Dolan and Moré 2002, over the instances that some entry solves.
        """
        tau = np.sort(np.array(self.ratios(name)))
        return tau, np.arange(1.0, len(tau) + 1.0) / max(1, len(self.decided()))

    def cell(self, instance: str, name: str) -> tuple[str, bool]:
        """Return the cell of an entry in a table, and whether it is the least of all ranked entries.

        ``>`` is what a run had spent that ended before, † if by its limit on seconds.
        """
        cost, best = self.cost(instance, name), self.best(instance)
        if cost is not None:
            amount = self._measure(cost)
            ranked = name in self.names
            is_best = amount == best if ranked else name == POOL and (best is None or amount < best)
            return self._text(cost) + (f" ({cost.setting})" if cost.setting else ""), is_best
        end, spent = self._unfinished(instance, name)
        if spent is None or end not in _LIMITS:
            return NOT_REACHED, False
        mark = "†" if end == Status.SECONDS.name and self.link is None else ""
        return f">{self._text(spent)}{mark}", False

    def _unfinished(self, instance: str, name: str) -> tuple[str, RunCost | None]:
        """Return why a run ended that did not get there, and what it had spent; None if that is not known."""
        trial = self.trial(instance, name)
        if trial is None or self.cost(instance, name) is not None:
            return "", None
        if self.by_stops:
            stop = trial.stops.get(self.level)
            return ("", None) if stop is None else (stop.end, stop.cost)
        # A level that was reached and has no cost is one for which f* is not known accurately enough.
        return trial.end, trial.spent if trial.end and trial.reached > self.level else None

    def _measure(self, cost: RunCost) -> float:
        return float(cost.rounds) if self.link is None else cost.seconds(self.link)

    def _text(self, cost: RunCost) -> str:
        return f"{cost.rounds:,}" if self.link is None else seconds_text(cost.seconds(self.link))


def seconds_text(value: float) -> str:
    """Return seconds to three digits.

    >>> seconds_text(0.0451), seconds_text(1234.5)
    ('0.0451', '1,234')
    """
    return f"{value:.3g}" if value < 100.0 else f"{value:,.0f}"


def summary_table(ranking: Ranking, title: str = "", name: str = "") -> TextTable:
    """Return what is ranked, instances × entries; of rounds also DFW's over FastDCGS's."""
    shown = ranking.shown
    both = ranking.link is None and {OURS, BASELINE} <= set(shown)
    head = [name or ranking.about, *shown, *([f"{BASELINE} / {OURS}"] if both else [])]
    rows = []
    for instance in ranking.trials:
        cells = [ranking.cell(instance, name) for name in shown]
        rows.append([(instance, False), *cells, *([(_ratio(ranking, instance), False)] if both else [])])
    return TextTable(title or ranking.about, head, rows)


def _ratio(ranking: Ranking, instance: str) -> str:
    """Return the baseline's rounds over those of FastDCGS, or a lower bound if it missed the level."""
    ours, (text, _) = ranking.amount(instance, OURS), ranking.cell(instance, BASELINE)
    if ours is None or text == NOT_REACHED:
        return NOT_REACHED
    bound = ">" * text.startswith(">")
    return f"{bound}{int(re.sub('[^0-9]', '', text)) / max(1.0, ours):.1f}"


def counts_table(ranking: Ranking) -> TextTable:
    """Return how often each entry needs the fewest rounds, nearly the fewest, and gets there."""
    counts = {name: ranking.counts(name) for name in ranking.names}
    most = max((wins for wins, _, _ in counts.values()), default=0)
    rows = [
        [(name, False), (str(wins), wins == most > 0), (str(near), False), (str(there), False)]
        for name, (wins, near, there) in counts.items()
    ]
    head = [f"of {len(ranking.trials)} instances", "the fewest", "within 20 %", "reached"]
    return TextTable("", head, rows)


def time_rankings(trials: Trials) -> list[list[Ranking]]:
    """Return the rankings over each link: until the agents stop, then to each level."""
    kinds = [(GOAL, True), *((level, False) for level in TIME_LEVELS)]
    return [[Ranking(trials, *kind, link) for link in LINKS.values()] for kind in kinds]


def time_tables(rankings: Sequence[Ranking]) -> list[TextTable]:
    """Return how often each entry takes the least time over each link, and the seconds over each."""
    first = rankings[0]
    counts = [
        [name, *(" / ".join(map(str, ranking.counts(name))) for ranking in rankings)] for name in first.names
    ]
    title = f"least time {first.until} / within 20 % of it / reached, of {len(first.trials)} instances"
    tables = [TextTable.plain(title, ["least / near / reached", *LINKS], counts)]
    for ranking, (name, link) in zip(rankings, LINKS.items(), strict=True):
        about = f"{name} ({link}, {1e3 * link.latency:g} ms a round): seconds {first.until}"
        tables.append(summary_table(ranking, about, name))
    return tables


def forms_table(trials: Trials) -> TextTable:
    """Return the rounds of FastDCGS with default settings, of each of its forms, and over the fewest.

    The form that default settings have taken is that with the same rounds and bytes.
    """
    ranking, rows = Ranking(trials), []
    forms = [name for name in ranking.shown if name != OURS]
    for instance in trials:
        cost, best = ranking.cost(instance, OURS), ranking.best(instance)
        text, is_best = ranking.cell(instance, OURS)
        costs = [(name, ranking.cost(instance, name)) for name in forms if cost is not None]
        spent = {name: (other.rounds, other.bytes) for name, other in costs if other}
        same = [name for name, sent in spent.items() if cost and sent == (cost.rounds, cost.bytes)]
        text += f" ({same[0].removeprefix(f'{OURS}, ')})" if same else ""
        ratio = NOT_REACHED if cost is None or best is None else f"{cost.rounds / max(1.0, best):.2f}"
        cells = [(text, is_best), *(ranking.cell(instance, name) for name in forms)]
        rows.append([(instance, False), *cells, (ratio, False)])
    head = ["rounds to 1e-03", "auto", *(name.removeprefix(f"{OURS}, ") for name in forms), "auto / fewest"]
    return TextTable("rounds of the forms of FastDCGS", head, rows)


def forms_summary(trials: Trials) -> str:
    """Return in words how far default settings are from the fewest rounds of all forms."""
    ratios = Ranking(trials).ratios(OURS)
    near, worst = sum(ratio <= _CLOSE for ratio in ratios), max(ratios, default=0.0)
    return (
        f"With default settings, rounds to {GOAL:.0e} are at most {_CLOSE:g} times the fewest of all forms "
        f"on {near} of {len(trials)} instances, and {worst:.2f} times at most."
    )


def instance_table(trials: Trials, instance: str, about: str) -> TextTable:
    """Return the table of one instance: rounds and bytes until the agents stop, then to every level."""
    stops, to_levels = Ranking(trials, by_stops=True), [Ranking(trials, level) for level in LEVELS]
    head = ["rounds until", f"agents stop at {GOAL:.0e}", "bytes then", *(f"{level:.0e}" for level in LEVELS)]
    head += [f"bytes to {GOAL:.0e}", f"work to {GOAL:.0e}"]
    rows = []
    for trial in trials[instance]:
        sent, cost = stops.cost(instance, trial.entry), trial.costs.get(GOAL)
        work = NOT_REACHED if cost is None else f"{cost.work:,} {_SHORT[trial.work]}"
        sizes = [NOT_REACHED if level is None else f"{level.bytes:,}" for level in (sent, cost)]
        cells = [stops.cell(instance, trial.entry), (sizes[0], False)]
        cells += [ranking.cell(instance, trial.entry) for ranking in to_levels]
        rows.append([(trial.entry, False), *cells, (sizes[1], False), (work, False)])
    return TextTable(f"{instance}: {about}", head, rows)


def stops_table(trials: Trials) -> TextTable:
    """Return for FastDCGS when the error is at each gap, and when the agents stop at it, by which bound."""
    ours = ((name, trial) for name, row in trials.items() for trial in row if trial.entry == OURS)
    ours_by_name = {name: trial for name, trial in ours if trial.stops}
    gaps = sorted({gap for trial in ours_by_name.values() for gap in trial.stops}, reverse=True)
    head, rows = [OURS, "diameter"], []
    for gap in gaps:
        head += [f"within {gap:.0e}", f"agents stop at {gap:.0e}"]
    for instance, trial in ours_by_name.items():
        row = [instance, str(next(iter(trial.stops.values())).diameter)]
        for gap in gaps:
            error, stopped = (
                Ranking(trials, gap, by_stops=by).cell(instance, OURS)[0] for by in (False, True)
            )
            known = trial.stops.get(gap)
            row += [error, f"{stopped} ({known.kind})" if known is not None and known.stopped else stopped]
        stop = trial.stops.get(GOAL)
        error = f"{stop.error:.1e}" if stop is not None and stop.stopped else NOT_REACHED
        share = None if stop is None else stop.certificate_share()
        ratio = None if stop is None else stop.computing_ratio()
        row += [error, NOT_REACHED if share is None else f"{share:.1%}"]
        rows.append([*row, NOT_REACHED if ratio is None else f"{ratio:.1f}"])
    head += [f"error at {GOAL:.0e}", "share of certificates in the bytes", "computing, × that without"]
    return TextTable.plain(f"{OURS}: when it is so, and when the agents know", head, rows)
