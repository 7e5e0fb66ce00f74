"""Put new runs of some methods into the record of rounds: JSON, the page docs/rounds.md, and its picture.

``python benchmarks/merge_rounds.py out/rounds/rounds.json`` takes a file that ``dcgs bench rounds --methods
NAME`` wrote. Trials of its methods replace those on record. All other trials stay as they were measured. The
file and the page say which version measured what. Grids of replaced methods are dropped.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dcgs.bench.ranking import LevelCost, Ranking, Trial, counts_table, instance_table, summary_table
from dcgs.bench.rounds_report import LEGEND
from dcgs.report.bench_figures import profile_figure
from dcgs.report.figures import encoded

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks" / "rounds.json"
PAGE = ROOT / "docs" / "rounds.md"
PICTURE = ROOT / "docs" / "images" / "rounds-profile.png"


def merged(record: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the record with the trials of ``new``."""
    environment = new["environment"]
    names = {name for one in new["instances"].values() for name in one["trials"]}
    for name, one in new["instances"].items():
        own = record["instances"].setdefault(name, one | {"trials": {}, "grid": {}})
        kept = {
            entry: trial
            for entry, trial in own["trials"].items()
            if entry not in names and entry.removesuffix(", best of grid") not in names
        }
        own["trials"] = {**one["trials"], **kept}
        own["grid"] = {entry: trial for entry, trial in own["grid"].items() if entry in kept}
    about = {key: environment[key] for key in ("versions", "seed", "machine")}
    measured = dict.fromkeys(sorted(names), about)
    if set(new["instances"]) == set(record["instances"]):
        record.setdefault("measured", {}).update(measured)
    for name in new["instances"]:
        record["instances"][name]["measured"] = measured
    return record


def trial_of(data: dict[str, Any]) -> Trial:
    """Return the trial that JSON describes; older files call an entry a contestant."""
    costs = {float(level): cost and LevelCost(**cost) for level, cost in data["costs"].items()}
    known = {key: value for key, value in data.items() if key not in ("costs", "contestant")}
    return Trial(**{"entry": data.get("contestant"), **known, "costs": costs})


def ranking_of(record: dict[str, Any]) -> Ranking:
    """Return the ranking of all trials on record."""
    trials = {
        name: [trial_of(trial) for trial in one["trials"].values()]
        for name, one in record["instances"].items()
    }
    entries = list(dict.fromkeys(trial.entry for each in trials.values() for trial in each))
    grids = [entry for entry in entries if entry.endswith(", best of grid")]
    plain = [entry for entry in entries if entry not in grids]
    return Ranking(trials, plain, grids, float(record["level"]))


def page(record: dict[str, Any], ranking: Ranking) -> str:
    """Return the page with all tables."""
    told = ", ".join(f"{name} by {one['versions']['dcgs']}" for name, one in record["measured"].items())
    old = record["environment"]["versions"]["dcgs"]
    some = [
        f"{entry} on {name} by {made['versions']['dcgs']}"
        for name, one in record["instances"].items()
        for entry, made in one.get("measured", {}).items()
        if made != record["measured"].get(entry)
    ]
    told += "".join(f", {text}" for text in some)
    parts = [
        "# Rounds to an accuracy",
        "`dcgs bench rounds` measured this on two cores. [Measuring](measuring.md) describes the command, "
        "[methods](methods.md) the methods. The numbers are in "
        "[benchmarks/rounds.json](../benchmarks/rounds.json). MovieLens needs `DCGS_DATA`.",
        f"Seed 0. Measured {told} (`dcgs bench rounds --methods NAME`, then "
        f"`python benchmarks/merge_rounds.py`); all others by {old}. The steps of the others have not "
        "changed, and so neither have their rounds; bytes of versions up to 0.4 are those of dense messages.",
        LEGEND,
        summary_table(ranking).markdown(),
        counts_table(ranking).markdown(),
        "![Share of instances on which a method needs at most τ times the fewest rounds]"
        "(images/rounds-profile.png)",
    ]
    for name, one in record["instances"].items():
        parts += [f"## {name}", one["about"], instance_table(ranking, name, one["about"]).markdown()]
    return "\n\n".join(parts) + "\n"


def main(file: str) -> None:
    """Merge a file into the record, and write the page and the picture."""
    record = merged(json.loads(RECORD.read_text()), json.loads(Path(file).read_text()))
    ranking = ranking_of(record)
    counted = ("fewest", "within 20 %", "reached")
    record["counts"] = {name: dict(zip(counted, ranking.counts(name), strict=True)) for name in ranking.names}
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(record, ranking))
    PICTURE.write_bytes(encoded(profile_figure(ranking), "png"))


if __name__ == "__main__":
    main(sys.argv[1])
