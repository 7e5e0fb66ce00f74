"""What ``dcgs bench rounds`` writes: a report in Markdown, and all numbers as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dcgs.bench import record
from dcgs.bench.entries import Entry
from dcgs.bench.instances import Instance
from dcgs.bench.optimum import TARGET
from dcgs.bench.ranking import (
    LEVELS,
    Ranking,
    Trial,
    best_of,
    counts_table,
    instance_table,
    stops_table,
    summary_table,
)
from dcgs.bench.rounds import RoundsStudy
from dcgs.front.stopping import LIMITS
from dcgs.study.run import FAILED

STOPS_LEGEND = (
    "A user gets the rounds until the agents stop: they have certified a gap of 1e-3 by themselves, so that "
    "f(x) − f* ≤ 1e-3 (f(x⁰) − f*), and all have the model x. Nobody else sees the data, and nothing is "
    "measured on the way. > marks a run that ended at its limit on rounds, † one that ended at its limit on "
    "seconds, which depends on the machine. — is a run that was not done, or that ended otherwise. The "
    "fewest rounds are bold."
)
OURS_LEGEND = (
    "FastDCGS: the rounds until it is so (the worst agent's model has this relative error), those until the "
    "agents stop because they know, and the kind of lower bound of f* that told them: the dual function, the "
    "Wolfe bound, or the least value of the loss. A certificate goes along a spanning tree to its root and "
    "back. The last two columns are the true relative error when the agents stop at 1e-3, and the share of "
    "certificates in the bytes of the busiest agent: the rest is what as many rounds take without them. "
    "It is negative where certificates take rounds of their own, which send less than others: by sums, as "
    "on the star, and in matrix completion."
)
LEGEND = (
    "Relative error is (worst_loss − f*)/(f(x⁰) − f*), for the worst agent's model on everyone's data. A "
    "number is the rounds until the first measured iteration with at most this error. The first 100 "
    "iterations are all measured; after that, k grows by 1 % from one measured iteration to the next. > "
    "marks a run that ended at its limit on rounds, † one that ended at its limit on seconds, which "
    "depends on the machine. — is a run that failed, or a level for which f* is not known accurately "
    "enough. Bytes and work are the maximum over agents. Work is oracle calls (lmo) or projections "
    "(proj), whose costs differ. The fewest rounds are bold. The best of a grid is chosen with hindsight, "
    "so it is not ranked: × is the step as a multiple of the default step, K the rounds of gossip per "
    "iteration. A setting of a grid is run to 1e-3, but for no more rounds than the default settings "
    "need."
)


def ranking_of(
    study: RoundsStudy,
    instances: Sequence[Instance],
    entries: Sequence[Entry],
    grid: Sequence[Entry],
    level: float,
) -> Ranking:
    """Return the ranking of all recorded runs, and the best of each grid."""
    grids = {one.family: f"{one.family}, best of grid" for one in grid}
    trials = {}
    for chosen in instances:
        own = {one: trial for one in (*entries, *grid) if (trial := study.trial(chosen, one)) is not None}
        shown = [trial for one, trial in own.items() if not one.setting]
        for family, name in grids.items():
            tried = [(trial, one.setting or "default") for one, trial in own.items() if one.family == family]
            if any(setting != "default" for _, setting in tried):
                shown.append(best_of(tried, name))
        if shown:
            trials[chosen.name] = shown
    return Ranking(trials, [one.name for one in entries], list(grids.values()), level)


def remarks(study: RoundsStudy, ranking: Ranking, instances: Sequence[Instance]) -> list[str]:
    """Return a sentence for every f* that is not known to the target, and every run that failed."""
    found = []
    for chosen in instances:
        optimum = study.optimum(chosen)
        if optimum is not None and optimum.uncertainty > TARGET:
            found.append(
                f"f* of {chosen.name}: known to {optimum.uncertainty:.1e} only, after {optimum.iterations} "
                "iterations; levels below ten times that are left out."
            )
        trials = ranking.trials.get(chosen.name, ())
        found += [
            f"{trial.entry} on {chosen.name}: the run failed: {trial.note}"
            for trial in trials
            if trial.end == FAILED
        ]
        found += [
            f"{trial.entry} on {chosen.name}: the agents did not stop at {gap:.0e}; status {stop.end}."
            for trial in trials
            for gap, stop in trial.stops.items()
            if not stop.stopped and stop.end not in {status.name for status in LIMITS}
        ]
    return found


def markdown(
    study: RoundsStudy, ranking: Ranking, instances: Sequence[Instance], notes: Sequence[str]
) -> str:
    """Return the report: when the agents stop, when it is so, then the table of every instance."""
    made = record.environment(study.seed)
    parts = [
        "# Rounds to an accuracy",
        f"`{made['command']}`, seed {study.seed}, dcgs {made['versions']['dcgs']}; at most {study.seconds:g} "
        "seconds a run, times the `time_factor` in `bench/instances.py` and `bench/entries.py`.",
        *summaries(ranking),
        "![Share of instances on which a method needs at most τ times the fewest rounds](profile.png)",
    ]
    parts += record.bullets(notes)
    for chosen in instances:
        if chosen.name in ranking.trials:
            table = instance_table(ranking, chosen.name, chosen.about)
            parts += [f"## {chosen.name}", chosen.about, table.markdown()]
    return "\n\n".join(parts) + "\n"


def summaries(ranking: Ranking) -> list[str]:
    """Return the tables of all instances with legends: first when the agents stop, then when it is so."""
    stops = ranking.until_stop()
    parts = [STOPS_LEGEND, summary_table(stops).markdown(), counts_table(stops).markdown()]
    undecided = stops.undecided()
    if undecided:
        parts.append(
            f"On {', '.join(undecided)} another method ended at its limit after fewer rounds than that: "
            "which needs fewer is not known there."
        )
    known = stops_table(ranking)
    parts += [OURS_LEGEND, known.markdown()] if known.rows else []
    return [*parts, LEGEND, summary_table(ranking).markdown(), counts_table(ranking).markdown()]


def counts_json(ranking: Ranking) -> dict[str, dict[str, int]]:
    """Return for each entry how often it needs the fewest rounds, nearly the fewest, and gets there."""
    counted = ("fewest", "within 20 %", "reached")
    return {name: dict(zip(counted, ranking.counts(name), strict=True)) for name in ranking.names}


def as_json(
    study: RoundsStudy,
    ranking: Ranking,
    instances: Sequence[Instance],
    grid: Sequence[Entry],
    notes: Sequence[str],
) -> str:
    """Return all numbers but the histories, which are in the folder as CSV."""

    def described(chosen: Instance) -> dict[str, Any]:
        optimum = study.optimum(chosen)
        assert optimum is not None
        settings = [trial for one in grid if (trial := study.trial(chosen, one)) is not None]
        return {
            "about": chosen.about,
            "optimum": asdict(optimum) | {"uncertainty": optimum.uncertainty},
            "rounds": chosen.rounds,
            "trials": _by_entry(ranking.trials[chosen.name]),
            "grid": _by_entry(settings),
        }

    numbers: dict[str, Any] = {
        "environment": record.environment(study.seed),
        "levels": [f"{level:.0e}" for level in LEVELS],
        "level": f"{ranking.level:.0e}",
        "seconds": study.seconds,
        "notes": list(notes),
        "instances": {
            chosen.name: described(chosen) for chosen in instances if chosen.name in ranking.trials
        },
        "counts": counts_json(ranking),
        "stop_counts": counts_json(ranking.until_stop()),
    }
    return json.dumps(numbers, indent=1, ensure_ascii=False) + "\n"


def _by_entry(trials: Sequence[Trial]) -> dict[str, Any]:
    return {trial.entry: trial.to_json() for trial in trials}
