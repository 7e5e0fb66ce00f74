"""Print the modeled seconds until the agents stop, from the record of rounds, as tables of docs/time.md.

``python benchmarks/stop_times.py`` takes computing, bytes and rounds of each run until agents stop at 1e-3
from benchmarks/rounds.json. A row has, for each link, FastDCGS · the fastest other method; the least is bold.
"""

from __future__ import annotations

import json

from merge_rounds import RECORD, ranking_of

from dcgs.bench.entries import GOAL, OURS
from dcgs.bench.ranking import Ranking
from dcgs.bench.record import NOT_REACHED, TextTable
from dcgs.bench.time_report import counts_table
from dcgs.bench.timing import Times
from dcgs.link import LINKS, Link


def times_of(ranking: Ranking) -> Times:
    """Return the costs of all runs on record until their agents stop."""
    costs = {
        instance: {
            trial.entry: stop.cost for trial in trials if (stop := trial.stops.get(GOAL)) and stop.stopped
        }
        for instance, trials in ranking.trials.items()
    }
    return Times(GOAL, costs, by_stops=True)


def cell(times: Times, instance: str, link: Link) -> str:
    """Return the seconds of FastDCGS, and of the fastest other method."""
    found = {name: times.seconds(instance, name, link) for name in times.costs[instance]}
    ours = found.pop(OURS, None)
    others = {name: seconds for name, seconds in found.items() if seconds is not None}
    best = min(others, key=others.__getitem__, default=None)
    least = times.least(instance, link)

    def text(seconds: float | None) -> str:
        shown = NOT_REACHED if seconds is None else f"{seconds:.3g}"
        return f"**{shown}**" if seconds is not None and seconds == least else shown

    return f"{text(ours)} · " + (NOT_REACHED if best is None else f"{text(others[best])} ({best})")


def main() -> None:
    """Print the table of counts and that of seconds."""
    times = times_of(ranking_of(json.loads(RECORD.read_text())))
    rows = [[name, *(cell(times, name, link) for link in LINKS.values())] for name in times.costs]
    print(counts_table(times).markdown(), end="\n\n")
    print(TextTable.plain("", [f"seconds {times.until}", *LINKS], rows).markdown())


if __name__ == "__main__":
    main()
