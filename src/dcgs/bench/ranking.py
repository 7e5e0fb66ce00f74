"""The cost to accuracy of each run, and the ranking of the entries by it: counts, profiles and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dcgs.bench.entries import BASELINE, GOAL, OURS
from dcgs.bench.optimum import Optimum
from dcgs.bench.record import NOT_REACHED, TextTable
from dcgs.front import Status
from dcgs.link import Link
from dcgs.study.cache import Columns

LEVELS = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
"""Relative errors of the worst agent, (worst_loss − f*)/(f(x⁰) − f*)."""
_NEAR = 1.2  # times the best: within 20 %
_SHORT = {"oracle calls": "lmo", "projections": "proj"}


@final
@dataclass(frozen=True)
class LevelCost:
    """Rounds, bytes and oracle calls or projections of the busiest agent until a level was reached.

    ``setting`` is the one of the grid that was best, where there was a choice.
    """

    rounds: int
    bytes: int
    work: int
    setting: str = ""


@final
@dataclass(frozen=True)
class Stop:
    """A run whose agents stop by themselves at a certified gap, unless a limit ends it before.

    ``end`` is the name of its status, or FAILED. The next four are as in :class:`TimeCost`. ``kind`` is that
    of the lower bound with which the agents stopped. ``error`` is the relative error of the worst agent's
    model at the end; None if the run failed. ``plain_bytes`` are the ``bytes`` of as many rounds without
    certificates; None if they were not counted.
    """

    end: str
    computing: float
    bytes: int
    peak_bytes: int
    rounds: int
    kind: str
    error: float | None
    diameter: int
    plain_bytes: int | None = None

    @property
    def stopped(self) -> bool:
        """Whether the agents stopped."""
        return self.end == Status.AGREED.name

    @property
    def cost(self) -> TimeCost:
        """What was spent."""
        return TimeCost(self.computing, self.bytes, self.peak_bytes, self.rounds)

    @property
    def certificate_share(self) -> float | None:
        """The share of certificates in the bytes; None if it was not measured."""
        return None if self.plain_bytes is None else 1.0 - self.plain_bytes / max(1, self.bytes)


@final
@dataclass(frozen=True)
class Trial:
    """One entry on one instance.

    ``work`` names what LevelCost counts: oracle calls or projections. ``end`` says why the run ended, after
    ``rounds`` and ``seconds``; ``reached`` is its lowest relative error. ``costs`` has None for a level that
    was not reached, or that f* is not known well enough for. ``stops`` has the runs whose agents stop, by
    gap. If only these were done, ``end`` is empty.
    """

    instance: str
    entry: str
    work: str
    end: str
    rounds: int
    seconds: float
    reached: float
    costs: Mapping[float, LevelCost | None]
    note: str = ""
    stops: Mapping[float, Stop] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON has it, levels and gaps as text."""
        costs = {f"{level:.0e}": cost and vars(cost) for level, cost in self.costs.items()}
        stops = {f"{gap:.0e}": vars(stop) for gap, stop in self.stops.items()}
        return vars(self) | {"costs": costs, "stops": stops}


def cost_to_accuracy(columns: Columns, optimum: Optimum, work: str) -> dict[float, LevelCost | None]:
    """Return the cost at the first recorded point of each level; ``work`` names its column."""
    costs: dict[float, LevelCost | None] = {}
    for level in LEVELS:
        at = optimum.first_at(columns["worst_loss"], level)
        rounds, sent, spent = (int(columns[name][at or 0]) for name in ("rounds", "bytes", work))
        costs[level] = None if at is None else LevelCost(rounds, sent, spent)
    return costs


@final
@dataclass(frozen=True)
class TimeCost:
    """Seconds of computing, bytes of the busiest agent and rounds until a level was reached.

    ``peak_bytes`` sums over rounds the bytes of the busiest agent of that round. They take the time of the
    links: agents that send in turn wait for each other.
    """

    computing: float
    bytes: int
    peak_bytes: int
    rounds: int

    def seconds(self, link: Link) -> float:
        """Return the time over such links."""
        return self.computing + link.seconds(self.peak_bytes, self.rounds)


def time_cost(columns: Columns, optimum: Optimum, level: float) -> TimeCost | None:
    """Return the cost at the first recorded point of the level, or None if it was not reached."""
    at = optimum.first_at(columns["worst_loss"], level)
    return None if at is None else time_spent(columns, at)


def time_spent(columns: Columns, at: int = -1) -> TimeCost:
    """Return the cost up to a recorded point; by default that of the whole run."""
    counts = (int(columns[name][at]) for name in ("bytes", "peak_bytes", "rounds"))
    return TimeCost(float(columns["computing"][at]), *counts)


def best_of(tried: Sequence[tuple[Trial, str]], name: str) -> Trial:
    """Return the best of several trials, each with its setting: at every level the fewest rounds."""
    costs = {}
    for level in LEVELS:
        reached = [replace(cost, setting=setting) for trial, setting in tried if (cost := trial.costs[level])]
        costs[level] = min(reached, key=lambda cost: cost.rounds, default=None)
    trials = [trial for trial, _ in tried]
    farthest = min(trials, key=lambda trial: (trial.reached, -trial.rounds))
    seconds = sum(trial.seconds for trial in trials)
    return replace(farthest, entry=name, seconds=seconds, costs=costs, note="", stops={})


@final
@dataclass(frozen=True)
class Ranking:
    """All trials by instance, and the level to rank at.

    ``names`` are the entries with default settings. ``grids`` are the names of the best of each grid search;
    they are chosen with hindsight, so they are reported but not ranked. ``by_stops``: the rounds are those
    until the agents stop, not those until the worst agent's error is at the level.
    """

    trials: Mapping[str, Sequence[Trial]]
    names: Sequence[str]
    grids: Sequence[str] = ()
    level: float = GOAL
    by_stops: bool = False

    def until_stop(self) -> Ranking:
        """Return the ranking by the rounds until the agents stop at a certified gap of 1e-3."""
        trials = {
            instance: [_until_stop(trial, stop) for trial in row if (stop := trial.stops.get(GOAL))]
            for instance, row in self.trials.items()
        }
        return Ranking(trials, self.names, by_stops=True)

    @property
    def about(self) -> str:
        """What is counted, as the head of a table."""
        level = f"{self.level:.0e}"
        return (
            f"rounds until the agents stop at a certified gap of {level}"
            if self.by_stops
            else f"rounds to {level}"
        )

    def trial(self, instance: str, name: str) -> Trial | None:
        """Return the trial of an entry on an instance, or None if there is none."""
        return next((trial for trial in self.trials[instance] if trial.entry == name), None)

    def rounds(self, instance: str, name: str, level: float | None = None) -> int | None:
        """Return the rounds that an entry needed, or None if it did not reach the level."""
        trial = self.trial(instance, name)
        cost = None if trial is None else trial.costs[self.level if level is None else level]
        return None if cost is None else cost.rounds

    def fewest(self, instance: str, level: float | None = None) -> int | None:
        """Return the fewest rounds of all ranked entries."""
        found = (self.rounds(instance, name, level) for name in self.names)
        return min((rounds for rounds in found if rounds is not None), default=None)

    def decided(self) -> list[str]:
        """Return the instances on which some ranked entry reached the level."""
        return [name for name in self.trials if self.fewest(name) is not None]

    def undecided(self) -> list[str]:
        """Return the instances on which an entry ended at a limit before the fewest rounds of the others."""
        limits = (Status.ROUNDS.name, Status.SECONDS.name)
        return [
            name
            for name in self.decided()
            for fewest in [self.fewest(name)]
            if any(
                trial.end in limits and self.rounds(name, trial.entry) is None and trial.rounds < fewest
                for trial in self.trials[name]
                if fewest is not None and trial.entry in self.names
            )
        ]

    def ratios(self, name: str) -> list[float]:
        """Return the entry's rounds over the fewest, for all instances on which it reached the level."""
        pairs = ((self.rounds(instance, name), self.fewest(instance)) for instance in self.decided())
        # A level that is reached before the first round counts as one round.
        return [max(1, own) / max(1, least) for own, least in pairs if own is not None and least is not None]

    def counts(self, name: str) -> tuple[int, int, int]:
        """Return on how many instances it needs the fewest rounds, at most 20 % more, or reaches it."""
        return count_ratios(self.ratios(name))


def _until_stop(trial: Trial, stop: Stop) -> Trial:
    """Return a trial with the one cost of stopping in place of those to each level."""
    cost = LevelCost(stop.rounds, stop.bytes, 0) if stop.stopped else None
    costs = {**dict.fromkeys(LEVELS), GOAL: cost}
    return replace(trial, end=stop.end, rounds=stop.rounds, reached=1.0, costs=costs)


def count_ratios(ratios: Sequence[float]) -> tuple[int, int, int]:
    """Return how many ratios to the best are 1, at most 1.2, and how many there are."""
    return sum(ratio == 1.0 for ratio in ratios), sum(ratio <= _NEAR for ratio in ratios), len(ratios)


def profile(ranking: Ranking, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return τ and the share of instances on which an entry needs at most τ times the fewest rounds.

    This is the performance profile of Dolan and Moré 2002, over the instances that some entry solves.
    """
    tau = np.sort(np.array(ranking.ratios(name)))
    share = np.arange(1.0, len(tau) + 1.0) / max(1, len(ranking.decided()))
    return tau, share


def instance_table(ranking: Ranking, instance: str, about: str) -> TextTable:
    """Return the table of one instance: rounds and bytes until the agents stop, then to every level."""
    level, stops = f"{ranking.level:.0e}", ranking.until_stop()
    head = ["rounds until", f"agents stop at {GOAL:.0e}", "bytes then", *(f"{each:.0e}" for each in LEVELS)]
    head += [f"bytes to {level}", f"work to {level}"]
    rows = []
    for trial in ranking.trials[instance]:
        cost = trial.costs[ranking.level]
        spent = ("", "") if cost is None else (f"{cost.bytes:,}", f"{cost.work:,} {_SHORT[trial.work]}")
        stop = trial.stops.get(GOAL)
        sent = f"{stop.bytes:,}" if stop is not None and stop.stopped else NOT_REACHED
        cells = [_cell(stops, instance, trial.entry, GOAL), (sent, False)]
        cells += [_cell(ranking, instance, trial.entry, level) for level in LEVELS]
        rows.append([(trial.entry, False), *cells, *((text or NOT_REACHED, False) for text in spent)])
    return TextTable(f"{instance}: {about}", head, rows)


def summary_table(ranking: Ranking) -> TextTable:
    """Return the rounds that the ranking counts, instances × entries, and DFW's rounds over FastDCGS's."""
    both = {OURS, BASELINE} <= set(ranking.names)
    shown = (*ranking.names, *ranking.grids)
    head = [ranking.about, *shown, *([f"{BASELINE} / {OURS}"] if both else [])]
    rows = []
    for instance in ranking.trials:
        cells = [_cell(ranking, instance, name, ranking.level) for name in shown]
        ratio = [(_ratio(ranking, instance), False)] if both else []
        rows.append([(instance, False), *cells, *ratio])
    error = f"rounds to a relative error of {ranking.level:.0e} of the worst agent"
    return TextTable(ranking.about if ranking.by_stops else error, head, rows)


def stops_table(ranking: Ranking) -> TextTable:
    """Return for FastDCGS when the error is at each gap, and when the agents stop at it, by which bound."""
    found = {name: trial for name in ranking.trials if (trial := ranking.trial(name, OURS)) and trial.stops}
    gaps = sorted({gap for trial in found.values() for gap in trial.stops}, reverse=True)
    rows = []
    for instance, trial in found.items():
        stop = next(iter(trial.stops.values()))
        row = [instance, str(stop.diameter)]
        for gap in gaps:
            row += [cell_text(trial, gap), stop_text(trial, gap)]
        stop = trial.stops.get(GOAL, stop)
        share = stop.certificate_share
        row += [f"{stop.error:.1e}" if stop.stopped else NOT_REACHED]
        rows.append([*row, NOT_REACHED if share is None else f"{share:.1%}"])
    head = [OURS, "diameter"]
    for gap in gaps:
        head += [f"within {gap:.0e}", f"agents stop at {gap:.0e}"]
    head += [f"error at {GOAL:.0e}", "share of certificates in the bytes"]
    return TextTable.plain(f"{OURS}: when it is so, and when the agents know", head, rows)


def stop_text(trial: Trial, gap: float) -> str:
    """Return the rounds until the agents stop at a gap, and the kind of the bound."""
    stop = trial.stops.get(gap)
    if stop is None:
        return NOT_REACHED
    return f"{stop.rounds:,} ({stop.kind})" if stop.stopped else cell_text(_until_stop(trial, stop), GOAL)


def counts_table(ranking: Ranking) -> TextTable:
    """Return how often each entry needs the fewest rounds, nearly the fewest, and reaches the level."""
    counts = {name: ranking.counts(name) for name in ranking.names}
    most = max((wins for wins, _, _ in counts.values()), default=0)
    rows = [
        [(name, False), (str(wins), wins == most > 0), (str(near), False), (str(there), False)]
        for name, (wins, near, there) in counts.items()
    ]
    head = [f"of {len(ranking.trials)} instances", "the fewest", "within 20 %", "reached"]
    return TextTable("", head, rows)


def cell_text(trial: Trial | None, level: float) -> str:
    """Return the rounds to a level; ``>`` the rounds of a run that ended before, † if by its time limit."""
    if trial is None:
        return NOT_REACHED
    cost = trial.costs[level]
    if cost is not None:
        return f"{cost.rounds:,}" + (f" ({cost.setting})" if cost.setting else "")
    if trial.end == "ROUNDS":
        return f">{trial.rounds:,}"
    # A level that was reached and has no cost is one for which f* is not known accurately enough.
    return f">{trial.rounds:,}†" if trial.end == "SECONDS" and trial.reached > level else NOT_REACHED


def _cell(ranking: Ranking, instance: str, name: str, level: float) -> tuple[str, bool]:
    """Return the cell of an entry, and whether it has the fewest rounds of all ranked entries."""
    rounds = ranking.rounds(instance, name, level)
    best = name in ranking.names and rounds is not None and rounds == ranking.fewest(instance, level)
    return cell_text(ranking.trial(instance, name), level), best


def _ratio(ranking: Ranking, instance: str) -> str:
    """Return the baseline's rounds over those of FastDCGS, or a lower bound if it missed the level."""
    ours, theirs = (ranking.rounds(instance, name) for name in (OURS, BASELINE))
    baseline = ranking.trial(instance, BASELINE)
    if ours is None or baseline is None:
        return NOT_REACHED
    bound, rounds = (">", baseline.rounds) if theirs is None else ("", theirs)
    return f"{bound}{rounds / max(1, ours):.1f}"
