"""Put new runs of some methods into the record of rounds: JSON, the page docs/rounds.md, and its picture.

``python benchmarks/merge_rounds.py out/rounds/rounds.json`` takes a file that ``dcgs bench rounds --methods
NAME`` wrote, also with ``--grid``. Trials and grids of its methods replace those on record, on the instances
of the file. All others stay as they were measured. Of a file that ``--stops-only`` wrote, only the runs whose
agents stop replace those on record. The file and the page say which version measured what.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from dcgs.bench.ranking import LevelCost, Ranking, Stop, Trial, instance_table
from dcgs.bench.rounds_report import counts_json, summaries
from dcgs.report.bench_figures import profile_figure
from dcgs.report.figures import encoded

ROOT = Path(__file__).parent.parent
RECORD = ROOT / "benchmarks" / "rounds.json"
PAGE = ROOT / "docs" / "rounds.md"
PICTURE = ROOT / "docs" / "images" / "rounds-profile.png"


def merged(record: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """Return the record with the trials of ``new``."""
    about = {key: new["environment"][key] for key in ("versions", "seed", "machine")}
    about["seconds"] = new["seconds"]
    for name, one in new["instances"].items():
        own = record["instances"].setdefault(name, one | {"trials": {}, "grid": {}})
        for entry, trial in list(one["trials"].items()):
            if trial["stops"]:
                own.setdefault("measured_stops", {})[entry] = about
            if not trial["end"] and entry in own["trials"]:
                own["trials"][entry]["stops"] = trial["stops"]
                del one["trials"][entry]
        names = set(one["trials"])
        kept = {
            entry: trial
            for entry, trial in own["trials"].items()
            if entry not in names and entry.removesuffix(", best of grid") not in names
        }
        own["trials"] = {**one["trials"], **kept}
        own["grid"] = one["grid"] | {
            entry: trial for entry, trial in own["grid"].items() if entry.rpartition(", ")[0] not in names
        }
        own.setdefault("measured", {}).update(dict.fromkeys(sorted(one["trials"]), about))
    return record


def versions(record: dict[str, Any], part: str) -> str:
    """Return which version measured which methods: that of most instances, and the exceptions.

    ``part`` is "measured" for the measured runs, "measured_stops" for those that the agents end.
    """
    by_entry: dict[str, dict[str, str]] = {}
    for name, one in record["instances"].items():
        for entry in [name for name in one["trials"] if not name.endswith(", best of grid")]:
            made = one.get(part, {}).get(entry)
            if part == "measured":
                made = made or record["measured"].get(entry) or record["environment"]
            if made is not None:
                limit = f" with `--seconds {made['seconds']:g}`" if part == "measured_stops" else ""
                by_entry.setdefault(entry, {})[name] = made["versions"]["dcgs"] + limit
    usual: dict[str, list[str]] = {}
    others: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for entry, found in by_entry.items():
        by_version: dict[str, list[str]] = {}
        for name, version in found.items():
            by_version.setdefault(version, []).append(name)
        most, *rest = sorted(by_version, key=lambda version: -len(by_version[version]))
        usual.setdefault(most, []).append(entry)
        for version in rest:
            others.setdefault((version, tuple(by_version[version])), []).append(entry)
    usually = [f"{', '.join(entries)} by {version}" for version, entries in usual.items()]
    rarely = [
        f"but {', '.join(entries)} by {version} on {', '.join(names)}"
        for (version, names), entries in others.items()
    ]
    return "; ".join(usually + rarely)


def trial_of(data: dict[str, Any]) -> Trial:
    """Return the trial that JSON describes; older files call an entry a contestant, and have no stops."""
    costs = {float(level): cost and LevelCost(**cost) for level, cost in data["costs"].items()}
    stops = {float(gap): Stop(**stop) for gap, stop in data.get("stops", {}).items()}
    known = {key: value for key, value in data.items() if key not in ("costs", "contestant", "stops")}
    return Trial(**{"entry": data.get("contestant"), **known, "costs": costs, "stops": stops})


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
    parts = [
        "# Rounds to an accuracy",
        "`dcgs bench rounds` measured this on two cores. [Measuring](measuring.md) describes the command, "
        "[methods](methods.md) the methods. The numbers are in "
        "[benchmarks/rounds.json](../benchmarks/rounds.json). MovieLens needs `DCGS_DATA`.",
        "Seed 0. Measured with `dcgs bench rounds --methods NAME`, then `python benchmarks/merge_rounds.py`: "
        f"{versions(record, 'measured')}. Runs until the agents stop, with `--stops-only`: "
        f"{versions(record, 'measured_stops') or 'none'}; other work shared the machine, f* is that "
        "on record, and — is a method that was not run. Steps of methods that an older version measured "
        "have not changed since, and so neither have their rounds; bytes of versions up to 0.4 are those of "
        "dense messages.",
        *summaries(ranking),
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
    record["counts"] = counts_json(ranking)
    record["stop_counts"] = counts_json(ranking.until_stop())
    RECORD.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(record, ranking))
    PICTURE.write_bytes(encoded(profile_figure(ranking), "png"))


if __name__ == "__main__":
    main(sys.argv[1])
