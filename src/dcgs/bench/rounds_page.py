"""What ``dcgs bench rounds`` writes of its results: a page in Markdown, and everything as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dcgs.bench import record
from dcgs.bench.contestants import Contestant
from dcgs.bench.crossings import LEVELS, End, Trial, best_of
from dcgs.bench.instances import Instance
from dcgs.bench.optimum import TARGET
from dcgs.bench.rounds import Plan
from dcgs.bench.standings import Standings, counts_grid, instance_grid, summary_grid

LEGEND = (
    "Relative error is (worst_loss − f*)/(f(x⁰) − f*), the worst agent's model on everyone's data. A number "
    "is the rounds of the first iteration that was measured to be at the level: every iteration up to the "
    "100th is, and then one in each percent. > is a run that ended by its limit on rounds, † by that on "
    "seconds, which is the one thing that depends on the machine; — is a run that failed, or a level for "
    "which f* is not known well enough. Bytes and work are the busiest agent's; work is oracle calls (lmo) "
    "or projections (proj), which cost very different things. The fewest rounds are bold; what is best of a "
    "grid is chosen with hindsight, and wins nothing: × is the step as a multiple of the theory's, K the "
    "rounds of gossip an iteration. A setting is followed to 1e-3, or for as many rounds as the method needs "
    "as it comes, since it is then no better."
)


def standings_of(
    plan: Plan,
    instances: Sequence[Instance],
    contestants: Sequence[Contestant],
    grid: Sequence[Contestant],
    level: float,
) -> Standings:
    """Return what is on the shelf: methods as they come, and the best of each family's grid."""
    families = list(dict.fromkeys(entrant.family for entrant in grid))
    grids = {family: f"{family}, best of grid" for family in families}
    trials = {}
    for chosen in instances:
        own = {entrant: plan.trial(chosen, entrant) for entrant in (*contestants, *grid)}
        shown = [trial for entrant in contestants if (trial := own[entrant]) is not None]
        for family, name in grids.items():
            tried = [
                (trial, entrant.setting or "default")
                for entrant, trial in own.items()
                if trial is not None and entrant.family == family
            ]
            if any(setting != "default" for _, setting in tried):
                shown.append(best_of(tried, name))
        if shown:
            trials[chosen.name] = shown
    names = [entrant.name for entrant in contestants]
    return Standings(trials, names, list(grids.values()), level)


def remarks(plan: Plan, standings: Standings, instances: Sequence[Instance]) -> list[str]:
    """Return sentences on every f* that is not known as precisely as wanted, and every run that diverged."""
    said = []
    for chosen in instances:
        optimum = plan.optimum(chosen)
        if optimum is not None and optimum.uncertainty > TARGET:
            said.append(
                f"f* of {chosen.name}: known to {optimum.uncertainty:.1e} only, after {optimum.iterations} "
                "iterations; levels below ten times that are not told."
            )
        said += [
            f"{trial.contestant} on {chosen.name}: the run failed: {trial.note}"
            for trial in standings.trials.get(chosen.name, ())
            if trial.end is End.FAILED
        ]
    return said


def markdown(standings: Standings, abouts: Mapping[str, str], notes: Sequence[str], plan: Plan) -> str:
    """Return the summary and all tables."""
    made = record.environment(plan.seed)
    parts = [
        "# Rounds to an accuracy",
        f"`{made['command']}`, seed {plan.seed}, dcgs {made['versions']['dcgs']}; "
        f"at most {plan.seconds:g} seconds a run, times what `bench/instances.py` and "
        "`bench/contestants.py` say.",
        LEGEND,
        summary_grid(standings).markdown(),
        counts_grid(standings).markdown(),
        "![Share of instances on which a method needs at most τ times the fewest rounds](profile.png)",
    ]
    parts += ["\n".join(f"* {note}" for note in notes)] if notes else []
    for name in standings.trials:
        parts += [f"## {name}", abouts[name], instance_grid(standings, name, abouts[name]).markdown()]
    return "\n\n".join(parts) + "\n"


def as_json(
    plan: Plan,
    standings: Standings,
    instances: Sequence[Instance],
    grid: Sequence[Contestant],
    notes: Sequence[str],
) -> str:
    """Return everything but the histories, which are in the files of the runs."""
    told: dict[str, Any] = {
        "environment": record.environment(plan.seed),
        "levels": [f"{level:.0e}" for level in LEVELS],
        "level": f"{standings.level:.0e}",
        "seconds": plan.seconds,
        "notes": list(notes),
        "instances": {},
        "counts": {
            name: dict(zip(("fewest", "within 20 %", "reached"), standings.counts(name), strict=True))
            for name in standings.names
        },
    }
    for chosen in instances:
        if chosen.name not in standings.trials:
            continue
        optimum = plan.optimum(chosen)
        assert optimum is not None
        settings = [trial for one in grid if (trial := plan.trial(chosen, one)) is not None]
        told["instances"][chosen.name] = {
            "about": chosen.about,
            "optimum": asdict(optimum) | {"uncertainty": optimum.uncertainty},
            "rounds": chosen.rounds,
            "trials": _by_name(standings.trials[chosen.name]),
            "grid": _by_name(settings),
        }
    return json.dumps(told, indent=1, ensure_ascii=False) + "\n"


def _by_name(trials: Sequence[Trial]) -> dict[str, Any]:
    return {trial.contestant: trial.to_json() for trial in trials}
