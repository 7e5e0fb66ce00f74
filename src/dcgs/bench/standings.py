"""Who needed how many rounds: tables of text, counts and performance profiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from numpy.typing import NDArray

from dcgs.bench.contestants import BASELINE, OURS
from dcgs.bench.crossings import LEVELS, End, Trial

_NEAR = 1.2  # times the fewest: within 20 %
_SHORT = {"oracle calls": "lmo", "projections": "proj"}
NOT_REACHED = "—"


@final
@dataclass(frozen=True)
class Standings:
    """All trials, of methods as they come and of the best of each grid, with the level summed up at.

    ``trials`` has for every instance those of all contestants, in their order. ``names`` are the methods
    as they come, ``grids`` the names of the best of each grid: chosen with hindsight, so that they are
    shown and win nothing.
    """

    trials: Mapping[str, Sequence[Trial]]
    names: Sequence[str]
    grids: Sequence[str] = ()
    level: float = 1e-3

    def rounds(self, instance: str, name: str, level: float | None = None) -> int | None:
        """Return the rounds that a method needed, or None where it did not get there."""
        trial = self.trial(instance, name)
        cost = None if trial is None else trial.costs[self.level if level is None else level]
        return None if cost is None else cost.rounds

    def trial(self, instance: str, name: str) -> Trial | None:
        """Return a trial, or None where there was none."""
        return next((trial for trial in self.trials[instance] if trial.contestant == name), None)

    def fewest(self, instance: str) -> int | None:
        """Return the fewest rounds that any method as it comes needed."""
        found = (self.rounds(instance, name) for name in self.names)
        return min((rounds for rounds in found if rounds is not None), default=None)

    def decided(self) -> list[str]:
        """Return the instances on which some method as it comes reached the level."""
        return [name for name in self.trials if self.fewest(name) is not None]

    def ratios(self, name: str) -> list[float]:
        """Return, of decided instances on which it got there, its rounds over the fewest."""
        pairs = ((self.rounds(instance, name), self.fewest(instance)) for instance in self.decided())
        # One that is there before its first round is taken to need one.
        return [max(1, own) / max(1, least) for own, least in pairs if own is not None and least is not None]

    def counts(self, name: str) -> tuple[int, int, int]:
        """Return on how many instances it needs the fewest rounds, at most 20 % more, and gets there."""
        ratios = self.ratios(name)
        return sum(ratio == 1.0 for ratio in ratios), sum(ratio <= _NEAR for ratio in ratios), len(ratios)


def profile(standings: Standings, name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return τ and the share of instances on which a method needs at most τ times the fewest rounds.

    Dolan and Moré 2002. Where it does not get there it never counts; instances on which nobody does are
    left out. The share goes up at each τ and stays to the next.
    """
    tau = np.sort(np.array(standings.ratios(name)))
    share = np.arange(1.0, len(tau) + 1.0) / max(1, len(standings.decided()))
    return tau, share


@final
@dataclass(frozen=True)
class Grid:
    """A table of text: a head, and rows with whether each cell is the best of its row."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[tuple[str, bool]]]

    def markdown(self) -> str:
        """Return it as Markdown; the best are bold."""
        lines = [
            _line(self.head),
            _line(["---", *(["---:"] * (len(self.head) - 1))]),
            *(_line([f"**{text}**" if best else text for text, best in row]) for row in self.rows),
        ]
        return "\n".join(lines)


def instance_grid(standings: Standings, instance: str, about: str) -> Grid:
    """Return one instance's table: rounds to every level, then bytes and work to the level summed up at."""
    level = f"{standings.level:.0e}"
    head = [
        "rounds to",
        *(f"{each:.0e}" for each in LEVELS),
        f"bytes to {level}",
        f"work to {level}",
    ]
    rows = [_instance_row(standings, trial) for trial in standings.trials[instance]]
    return Grid(f"{instance}: {about}", head, rows)


def summary_grid(standings: Standings) -> Grid:
    """Return rounds to the level summed up at, instances × methods, and how our method does against DFW."""
    both = {OURS, BASELINE} <= set(standings.names)
    head = [
        f"rounds to {standings.level:.0e}",
        *standings.names,
        *standings.grids,
        *([f"{BASELINE} / {OURS}"] if both else []),
    ]
    rows = []
    for instance in standings.trials:
        least = standings.fewest(instance)
        cells = [(instance, False)]
        for name in (*standings.names, *standings.grids):
            rounds = standings.rounds(instance, name)
            best = name in standings.names and rounds is not None and rounds == least
            cells.append((cell(standings.trial(instance, name), standings.level), best))
        if both:
            cells.append((_ratio(standings, instance), False))
        rows.append(cells)
    return Grid(f"rounds to a relative error of {standings.level:.0e} of the worst agent", head, rows)


def counts_grid(standings: Standings) -> Grid:
    """Return how often each method needs the fewest rounds, nearly the fewest, and gets there at all."""
    counts = {name: standings.counts(name) for name in standings.names}
    most = max((wins for wins, _, _ in counts.values()), default=0)
    rows = [
        [(name, False), (str(wins), wins == most > 0), (str(near), False), (str(there), False)]
        for name, (wins, near, there) in counts.items()
    ]
    of = len(standings.trials)
    return Grid("", [f"of {of} instances", "the fewest", "within 20 %", "reached"], rows)


def cell(trial: Trial | None, level: float) -> str:
    """Return the rounds to a level; ``>`` what it ran for if that was not enough, † if seconds ended it."""
    if trial is None:
        return NOT_REACHED
    cost = trial.costs[level]
    if cost is not None:
        return f"{cost.rounds:,}" + (f" ({cost.setting})" if cost.setting else "")
    if trial.end is End.ROUNDS:
        return f">{trial.rounds:,}"
    # A level that was passed without a cost is one that f* is not known well enough to tell.
    return f">{trial.rounds:,}†" if trial.end is End.SECONDS and trial.reached > level else NOT_REACHED


def _instance_row(standings: Standings, trial: Trial) -> list[tuple[str, bool]]:
    cells = [(trial.contestant, False)]
    for level in LEVELS:
        found = (standings.rounds(trial.instance, name, level) for name in standings.names)
        least = min((rounds for rounds in found if rounds is not None), default=None)
        cost = trial.costs[level]
        best = trial.contestant in standings.names and cost is not None and cost.rounds == least
        cells.append((cell(trial, level), best))
    cost = trial.costs[standings.level]
    cells.append((NOT_REACHED if cost is None else f"{cost.bytes:,}", False))
    cells.append((NOT_REACHED if cost is None else f"{cost.work:,} {_SHORT[trial.work]}", False))
    return cells


def _ratio(standings: Standings, instance: str) -> str:
    """Return the baseline's rounds over ours; at least so much where the baseline did not get there."""
    ours, theirs = (standings.rounds(instance, name) for name in (OURS, BASELINE))
    baseline = standings.trial(instance, BASELINE)
    if ours is None or baseline is None:
        return NOT_REACHED
    if theirs is None:
        return f">{baseline.rounds / max(1, ours):.1f}"
    return f"{theirs / max(1, ours):.1f}"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
