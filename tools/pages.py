"""Write the tables of README.md and docs/*.md from the records in benchmarks/.

Run it with ``make pages``, or with ``python tools/pages.py FILE``, which first puts the runs of a rounds.json
of ``dcgs bench rounds`` into the record of their seed. What is between the comments ``from NAME`` and ``end``
is written anew by the function of that name; a test fails if that changes a page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean
from typing import Any

from dcgs.link import LINKS, Link
from dcgs.report.figures import encoded
from dcgs.report.numbers import count, share, short_number, size
from dcgs_bench import faults, growth
from dcgs_bench.entries import GOAL, OURS
from dcgs_bench.figures import profile_figure
from dcgs_bench.paper.folder import load
from dcgs_bench.paper.results import Curve, Findings, PaperStudy, Verdict
from dcgs_bench.ranking import (
    BEST_OF_GRID,
    POOL,
    Ranking,
    Trials,
    counts_table,
    forms_summary,
    forms_table,
    instance_table,
    seconds_text,
    stops_table,
    summary_table,
    time_rankings,
    trials_of,
)
from dcgs_bench.study import NOT_REACHED, Records, TextTable, as_json

ROOT = Path(__file__).parent.parent
FOLDER = ROOT / "benchmarks"
sys.path.insert(0, str(FOLDER / "links"))
import output  # noqa: E402
import timetable  # noqa: E402

PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))
ROUNDS = {0: "rounds", 1: "rounds-seed-1", 2: "rounds-seed-2"}
"""The records of rounds by seed."""
_MARKED = re.compile(r"<!-- from ([a-z0-9-]+) -->(.*?)<!-- end -->", re.DOTALL)


def main() -> None:
    """Merge the file that is given, if there is one, and write all pages."""
    if sys.argv[1:]:
        merge(json.loads(Path(sys.argv[1]).read_text()))
    for page in PAGES:
        text = page.read_text()
        if renewed(text) != text:
            page.write_text(renewed(text))
            print(f"written: {page.relative_to(ROOT)}")


def renewed(text: str) -> str:
    """Return a page with all its marked parts written anew."""

    def part(found: re.Match[str]) -> str:
        name, old = found.groups()
        room = "\n\n" if old.startswith("\n") else ""
        return f"<!-- from {name} -->{room}{PARTS[name]()}{room}<!-- end -->"

    return _MARKED.sub(part, text)


def merge(new: Mapping[str, Any]) -> None:
    """Put the trials of a record into that of rounds of its seed: those of its entries, on its instances.

    Of an entry that has only runs until the agents stop, the measured run on record stays.
    """
    seed = new["environment"]["seed"]
    made = record(ROUNDS[seed])
    for name, one in new["instances"].items():
        trials = {trial["entry"]: trial for trial in made["instances"].setdefault(name, one)["trials"]}
        for trial in one["trials"]:
            known = trials.get(trial["entry"])
            kept = None if trial["end"] else known
            trials[trial["entry"]] = trial if kept is None else kept | {"stops": trial["stops"]}
        made["instances"][name]["trials"] = list(trials.values())
    (FOLDER / f"{ROUNDS[seed]}.json").write_text(as_json(made))
    if seed:
        return
    picture = encoded(profile_figure(Ranking(trials_of(made))), "png")
    (ROOT / "docs" / "images" / "rounds-profile.png").write_bytes(picture)


@cache
def record(name: str) -> dict[str, Any]:
    """Return a record of benchmarks/."""
    made: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return made


def version(made: Mapping[str, Any]) -> str:
    """Return the version of dcgs that made a record."""
    return str(made["environment"]["versions"]["dcgs"])


def rows_of(name: str) -> list[dict[str, Any]]:
    """Return the rows of a record."""
    rows: list[dict[str, Any]] = record(name)["rows"]
    return rows


def captioned(table: TextTable, *names: str) -> str:
    """Return a table in Markdown, with the file, version and command of each of its records below."""
    made = [(f"benchmarks/{name}.json", record(name)) for name in names]
    told = []
    for file, one in made:
        command = one["environment"]["command"]
        told.append(f"[{file}](../{file}), version {version(one)}, `{command}`")
    return f"{table.markdown()}\n\n{'; '.join(told)}."


# Rounds


@cache
def trials() -> Trials:
    """Return the trials of the record of rounds."""
    return trials_of(record("rounds"))


def measured_by(kind: str) -> str:
    """Return which version measured which methods: that of most instances, and the exceptions.

    ``kind`` is "runs" for the measured runs, "stops" for those that the agents end.
    """
    by_entry: dict[str, dict[str, list[str]]] = {}
    for instance, row in trials().items():
        for trial in row:
            made = trial.version if kind == "runs" else next((s.version for s in trial.stops.values()), "")
            if made and not trial.entry.endswith(BEST_OF_GRID):
                by_entry.setdefault(trial.entry, {}).setdefault(made, []).append(instance)
    usual: dict[str, list[str]] = {}
    others: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for entry, found in by_entry.items():
        most, *rest = sorted(found, key=lambda made: -len(found[made]))
        usual.setdefault(most, []).append(entry)
        for made in rest:
            others.setdefault((made, tuple(found[made])), []).append(entry)
    told = [f"{', '.join(entries)} by {made}" for made, entries in usual.items()]
    for (made, names), entries in others.items():
        told.append(f"but {', '.join(entries)} by {made} on {', '.join(names)}")
    return "; ".join(told)


def rounds_versions() -> str:
    """Return by which versions the runs on record were measured."""
    return (
        f"Seed 0. Measured with `dcgs bench rounds --methods NAME`: {measured_by('runs')}. Runs until the "
        f"agents stop, with `--stops-only`: {measured_by('stops')}."
    )


def rounds_stops() -> str:
    """Return the rounds until the agents stop, and how often each method needs the fewest."""
    stops = Ranking(trials(), by_stops=True)
    tables = [summary_table(stops).markdown(), counts_table(stops).markdown()]
    return "\n\n".join(tables) + (
        f"\n\nOn {', '.join(stops.undecided())} another method ended at its limit after fewer rounds than "
        "that: which needs fewer is not known there."
    )


def rounds_errors() -> str:
    """Return the rounds to an error of 1e-3, and how often each method needs the fewest."""
    ranking = Ranking(trials())
    return f"{summary_table(ranking).markdown()}\n\n{counts_table(ranking).markdown()}"


def rounds_instances() -> str:
    """Return the table of every instance under its name and what it is."""
    parts = []
    for name, one in record("rounds")["instances"].items():
        parts += [f"## {name}", one["about"], instance_table(trials(), name, one["about"]).markdown()]
    return "\n\n".join(parts)


def rounds_readme() -> str:
    """Return in words how often FastDCGS needs the fewest rounds."""
    stops, errors = Ranking(trials(), by_stops=True), Ranking(trials())
    (fewest, near, _), (least, close, _) = stops.counts(OURS), errors.counts(OURS)
    return (
        "Until its agents stop by themselves at a certified gap of 1e-3, `FastDCGS` needs the fewest rounds "
        f"on {fewest} of the {len(stops.decided())} instances of our table on which the agents of any method "
        f"stopped, and is within 20 % of the fewest on {near}. On {len(stops.undecided())} of them others "
        "ended at limits of seconds after fewer rounds, so that is open. Until the error is 1e-3, which only "
        f"an observer of all data knows, it needs the fewest on {least}, within 20 % on {close} of "
        f"{len(errors.decided())}."
    )


def soon_table(trials: Mapping[int, Trials]) -> TextTable:
    """Return for FastDCGS, by instance and seed, when the agents stop and the last round that is soon.

    That is 1.4 times the rounds until it is so, and twice the diameter. Stops that are soon are bold.
    """
    names = list(dict.fromkeys(name for of_seed in trials.values() for name in of_seed))
    rows, soon = [], dict.fromkeys(trials, (0, 0))
    for name in names:
        row = [(name, False)]
        for seed, of_seed in trials.items():
            trial = Ranking(of_seed).trial(name, OURS) if name in of_seed else None
            stop, cost = (None, None) if trial is None else (trial.stops.get(GOAL), trial.costs.get(GOAL))
            if stop is None or cost is None:
                row.append((NOT_REACHED, False))
                continue
            text, meets = Ranking(of_seed, by_stops=True).cell(name, OURS)[0], stop.meets(cost.rounds)
            row.append((f"{text} of {int(stop.limit(cost.rounds)):,}", meets))
            soon[seed] = soon[seed][0] + meets, soon[seed][1] + 1
        rows.append(row)
    total = [(f"{met} of {of}", False) for met, of in soon.values()]
    head = [f"{OURS} stops at {GOAL:.0e}, of rounds that are soon", *(f"seed {seed}" for seed in trials)]
    return TextTable("", head, [*rows, [("soon", False), *total]])


def rounds_soon() -> str:
    """Return on which instances and seeds the agents stop soon after it is so, and how often."""
    found = {seed: trials_of(record(name)) for seed, name in ROUNDS.items()}
    stops = [
        (trial.stops[GOAL].meets(cost.rounds), trial.stops[GOAL].version)
        for of_seed in found.values()
        for row in of_seed.values()
        for trial in row
        if trial.entry == OURS and GOAL in trial.stops and (cost := trial.costs.get(GOAL)) is not None
    ]
    met, versions = sum(meets for meets, _ in stops), sorted({version for _, version in stops})
    return (
        f"{soon_table(found).markdown()}\n\nSoon on {met} of {len(stops)}, {met / max(1, len(stops)):.0%} "
        f"(`dcgs bench rounds --stops-only --seed N`, version {', '.join(versions)})."
    )


def rounds_seeds() -> str:
    """Return the rounds of two methods from three seeds."""
    methods, names = (OURS, "ProjectedAGD"), tuple(ROUNDS.values())
    rankings = [Ranking(trials_of(record(name))) for name in names]
    lines, fewer = [], []
    for instance in rankings[1].trials:
        cells = {method: [ranking.cell(instance, method)[0] for ranking in rankings] for method in methods}
        ours = sorted(int(cell.replace(",", "")) for cell in cells[OURS])
        theirs = ", ".join(cells[methods[1]])
        lines.append([instance, ", ".join(cells[OURS]), str(ours[1]), str(ours[2]), theirs])
        fewer += [ranking.best(instance) == ranking.amount(instance, OURS) for ranking in rankings]
    table = TextTable.plain("", ["", OURS, "median", "worst", methods[1]], lines)
    made = sorted({trial.version for one in rankings for row in one.trials.values() for trial in row[:1]})
    told = (
        f"{OURS} was measured by {', '.join(made)}. It needs fewer rounds in {sum(fewer)} of these "
        f"{len(fewer)} comparisons."
    )
    return f"{captioned(table, *names[1:])}\n\n{told}"


def rounds_forms() -> str:
    """Return the rounds of each form of FastDCGS, and how far default settings are from the fewest."""
    forms = trials_of(record("forms"))
    return f"{captioned(forms_table(forms), 'forms')}\n\n{forms_summary(forms)}"


# Seconds


def time_counts(source: Trials, stops: bool) -> str:
    """Return how often each method takes the least time over each link."""
    rankings = time_rankings(source)[0 if stops else -1]
    head = [f"of {len(source)} instances", *(f"`{name}`" for name in LINKS)]
    rows = [[n, *(" / ".join(map(str, each.counts(n))) for each in rankings)] for n in rankings[0].names]
    return TextTable.plain("", head, [row for row in rows if "0 / 0 / 0" not in row[1:]]).markdown()


def time_table() -> str:
    """Return FastDCGS, the fastest other method and the pool over each link, until the stop and to 1e-3."""
    head, rankings = [""], []
    stops, errors = time_rankings(trials())[0], time_rankings(trials_of(record("time")))[-1]
    for place, link in enumerate(LINKS):
        head += [f"`{link}`: agents stop", f"`{link}`: 1e-3"]
        rankings += [stops[place], errors[place]]
    rows = [[name, *(_fastest(ranking, name) for ranking in rankings)] for name in errors[0].trials]
    made, table = record("time"), TextTable.plain("", head, rows).markdown()
    again = made["environment"]["again"]
    return (
        f"{table}\n\nTo 1e-3: version {version(made)}, `{made['environment']['command']}`; "
        f"{', '.join(again['instances'])}: version {again['dcgs']}, `{again['command']}`."
    )


def _fastest(ranking: Ranking, instance: str) -> str:
    if instance not in ranking.trials:
        return "not measured"
    cells = {name: ranking.cell(instance, name) for name in ranking.names}
    amounts = {name: ranking.amount(instance, name) for name in ranking.names if name != OURS}
    others = {name: amount for name, amount in amounts.items() if amount is not None}
    best = min(others, key=others.__getitem__, default=None)
    shown = [cells.get(OURS, (NOT_REACHED, False)), (NOT_REACHED, False) if best is None else cells[best]]
    texts = [f"**{text}**" if bold else NOT_REACHED if text.startswith(">") else text for text, bold in shown]
    texts[1] += f" ({best})" if best else ""
    pool = ranking.amount(instance, POOL)
    return " · ".join([*texts, *([] if ranking.by_stops or pool is None else [seconds_text(pool)])])


def time_readme() -> str:
    """Return in words how often FastDCGS takes nearly the least time."""
    near = {each.link: each.counts(OURS)[1] for each in time_rankings(trials_of(record("time")))[-1]}
    of = len(record("time")["instances"])
    return (
        f"To an error of 1e-3 it takes the least time over links of 10 MB/s, or at most 20 % more, on "
        f"{near[LINKS['paper']]} of {of} instances; over 1 Gbit/s on {near[LINKS['lan']]}."
    )


def robust_share() -> str:
    """Return in words the share of random problems that are certified in time."""
    rows, made = rows_of("robust"), record("robust")
    good = sum(row["certified"] and row["seconds"] <= 5.0 for row in rows)
    ends = [row["status"] for row in rows if not row["certified"]]
    return (
        f"Of {len(rows):,} problems (version {version(made)}, "
        f"[benchmarks/robust.json](../benchmarks/robust.json)), {good:,} were certified within 5 seconds of "
        f"processor time, {good / len(rows):.1%}; {len(rows) - good - len(ends)} others later, and "
        f"{len(ends)} ended with {', '.join(sorted(set(ends)))}."
    )


# Faults


def faults_ratios() -> str:
    """Return the simulated seconds under faults over those without."""
    return captioned(faults.ratio_table(record("faults-fresh-seeds")), "faults-fresh-seeds")


def faults_slow() -> str:
    """Return in words the time without waiting for a slow agent over that with it."""
    made = record("faults-slow")
    (row,) = [row for row in faults.ratio_table(made, over="slow-wait").rows if "nobody" in row[0][0]]
    _, runs, middle, least, most = (text for text, _ in row)
    return (
        f"runs in which nobody waits take {middle} of the time of runs in which all wait (median of {runs}; "
        f"{least} to {most}; version {version(made)})"
    )


def faults_summary() -> str:
    """Return the simulated seconds of all methods under all faults on one instance."""
    made = record("faults")
    others = {
        f"{row['method']} by {row['version']}" for row in made["rows"] if row["version"] != version(made)
    }
    table = captioned(faults.summary_table(made, "lasso-cycle-10"), "faults")
    return table.removesuffix(".") + "".join(f"; {other}" for other in sorted(others)) + "."


# A few numbers each


def measurements(name: str, columns: Mapping[str, str]) -> str:
    """Return the rows of a record as a table."""
    return captioned(TextTable.formatted("", columns, rows_of(name)), name)


def checkpoint() -> str:
    """Return in words the share of the time that checkpoints take."""
    (row,) = rows_of("checkpoint")
    cost = f"{row['share']:.1%} of the time, {size(row['bytes'])} each"
    return f"every {row['every']} iterations: {cost} (version {version(record('checkpoint'))})"


def exchange_uneven() -> str:
    """Return in words what a round takes if one process has more work."""
    row = rows_of("exchange")[-1]
    return (
        f"a round takes {row['bare']:.0f} ms with `Waitall` and {row['ours']:.0f} ms with the waits of dcgs, "
        f"{row['ratio']:.2f} times the {row['ideal']:.0f} ms of the work alone on {row['cores']} cores"
    )


def memory() -> str:
    """Return the peak memory of both methods."""
    points: dict[str, dict[str, float]] = {}
    for row in rows_of("memory"):
        points.setdefault(row["case"], {})[row["method"]] = row["points"]
    lines = [[case, *(f"{row[method]:.1f}" for method in ("DCGS", "DFW"))] for case, row in points.items()]
    return captioned(TextTable.plain("", ["problem", "DCGS", "DFW"], lines), "memory")


# Matrix completion


def completion() -> str:
    """Return all methods on MovieLens."""
    rows = rows_of("completion-100k") + rows_of("completion-1m")
    anew = {(row["data"], row["method"]): row for row in rows_of("completion-pieces")}
    lines = []
    for row in rows:
        shown = anew.get((row["data"], row["method"]), row)
        name = f"{shown['data'].upper()}: {shown['method']}"
        name += f", radius {shown['radius']:g}" if shown["method"] == OURS else ""
        gap = re.search(r"seconds was reached.*\(gap (\S+)", shown["status"])
        cells = [name + (f", not at its end (gap {float(gap[1]):.2g})" if gap else "")]
        cells += [
            f"{shown['cpu']:.3g}",
            count(shown["rounds"]) if shown["rounds"] else "–",
        ]
        cells += [size(shown["bytes"]) if shown["bytes"] else "–", size(shown["memory"])]
        lines.append([*cells, f"{shown['rmse']:.3f}", f"{shown['pairs']:.3f}"])
    table = TextTable.plain("", ["", "CPU s", "rounds", "sent", "memory", "RMSE", "pairs"], lines)
    return captioned(table, "completion-100k", "completion-1m", "completion-pieces")


def completion_synthetic() -> str:
    """Return the two large synthetic matrices."""
    lines = []
    for name in ("completion-10m", "completion-wide"):
        found = {row["method"]: row for row in rows_of(name)}
        row, alone = found[OURS], found.get("offsets")
        error = f"{row['rmse']:.3f}" + (f" ({alone['rmse']:.3f})" if alone else "")
        cells = [count(row["fitted"]), "{:,} × {:,}".format(*row["shape"]), count(row["radius"])]
        cells += [f"{row['cpu']:.0f}", *(count(row[name]) for name in ("iterations", "rounds"))]
        lines.append([*cells, size(row["bytes"]), size(row["memory"]), error])
    head = [
        "ratings",
        "matrix",
        "radius",
        "CPU s",
        "iterations",
        "rounds",
        "sent",
        "memory",
        "RMSE (offsets alone)",
    ]
    return captioned(TextTable.plain("", head, lines), "completion-10m", "completion-wide")


def completion_seeds() -> str:
    """Return in words the errors of FastDCGS and of the centralized optimum over several splits."""
    rows = rows_of("completion-100k-seeds")
    ours, central = _errors(rows, OURS), _errors(rows, "centralized optimum")
    worst = max(abs(a - b) for a, b in zip(ours, central, strict=True))
    return (
        f"over {len(ours)} splits the mean errors are {mean(ours):.4f} and {mean(central):.4f} "
        f"({min(ours):.3f} to {max(ours):.3f}), and on no split do they differ by more than {worst:.5f} "
        f"(version {version(record('completion-100k-seeds'))})"
    )


def _errors(rows: Sequence[Mapping[str, Any]], method: str) -> list[float]:
    return [row["rmse"] for row in rows if row["method"] == method]


def completion_all() -> str:
    """Return in words what the paper's radius takes on all ratings."""
    (row,), made = rows_of("completion-100k-all"), version(record("completion-100k-all"))
    return (
        f"{row['rounds']} rounds and {row['cpu']:.1f} s of CPU to a gap of {row['gap']:.0e} (version {made})"
    )


def growth_rows() -> str:
    """Return how runs grow; with agents by a newer record."""
    others = [row for row in rows_of("growth") if row["grows"] != "agents"]
    return captioned(growth.growth_table(rows_of("growth-agents") + others), "growth-agents", "growth")


def completion_growth() -> str:
    """Return in words how the cost of matrix completion grows."""
    series: dict[str, list[dict[str, Any]]] = {}
    for row in rows_of("completion-growth"):
        series.setdefault(row["grows"], []).append(row)
    told = []
    for name, rows in series.items():
        ends = rows[0], rows[-1]
        first, last = ({key: row[key] for key in (name, "cpu", "bytes", "memory")} for row in ends)
        cpu, sent, kept = (last[key] / first[key] for key in ("cpu", "bytes", "memory"))
        size_ratio = last[name] / first[name]
        told.append(f"{size_ratio:g} times the {name} take {cpu:.1f}, {sent:.1f} and {kept:.1f} times")
    made = record("completion-growth")
    return (
        f"CPU seconds, bytes of an agent, and memory: {'; '.join(told)}. Version {version(made)}, "
        f"`{made['environment']['command']}`, on two cores that other work shared."
    )


def completion_reading() -> str:
    """Return in words how long a file of ratings takes to read."""
    (row,), made = rows_of("completion-reading"), version(record("completion-reading"))
    return (
        f"{row['fitted']:,} lines of text ({size(row['file'])}) are read in {row['cpu']:.1f} s of CPU with "
        f"{size(row['memory'])} (version {made})"
    )


def completion_small() -> str:
    """Return the two completions of the time table with shared rows."""
    found, lines = time_rankings(trials_of(record("time")))[-1], []
    for instance in ("completion-paper", "completion-sorted-4x5"):
        for method in (OURS, "ProjectedAGD"):
            cost = found[0].cost(instance, method)
            assert cost is not None
            times = [f"{cost.seconds(LINKS[link]):.2g} s" for link in ("paper", "wan")]
            cells = [f"{instance}: {method}", count(cost.rounds), size(cost.bytes), size(cost.peak_bytes)]
            lines.append([*cells, f"{cost.computing:.2g} s", *times])
    head = ["", "rounds", "sent", "peak", "computing", "paper", "wan"]
    return captioned(TextTable.plain("", head, lines), "time")


# The paper's experiments


@cache
def reproduction(name: str) -> PaperStudy:
    """Return what is recorded of a folder of ``dcgs reproduce``."""
    return load(Records(FOLDER / "reproduction" / name), Link())


def _studies() -> list[tuple[PaperStudy, Findings]]:
    names = ("synthetic", "e2006-lookalike", "movielens")
    return [(reproduction(name), findings) for name in names for findings in reproduction(name).findings]


def verdicts() -> str:
    """Return every claim of the paper with its verdict."""
    lines = []
    for study, findings in _studies():
        about = f"{findings.title} ({study.manifest['versions']['dcgs']})"
        lines += [[claim.paper, about, f"**{claim.verdict}**", claim.measured] for claim in findings.claims]
    cost = reproduction("synthetic").cost
    assert cost is not None
    about = f"{cost.side:,} × {cost.side:,} at 10 MB/s"
    lines.append([cost.claim.paper, about, f"**{cost.claim.verdict}**", cost.claim.measured])
    table = TextTable.plain("", ["the paper says", "on (version)", "verdict", "measured"], lines)
    return table.markdown().replace("---:", "---")


def verdict_counts() -> str:
    """Return in words how many claims hold."""
    found = [(claim.verdict, each.banner is not None) for _, each in _studies() for claim in each.claims]
    cost = reproduction("synthetic").cost
    assert cost is not None
    found.append((cost.claim.verdict, False))
    told = []
    for verdict in Verdict:
        made_up = [lookalike for other, lookalike in found if other is verdict]
        if made_up:
            told.append(f"{len(made_up)} × {verdict}")
            told[-1] += f" ({sum(made_up)} on a look-alike of its data)" if any(made_up) else ""
    return f"Verdicts on {len(found)} claims: {'; '.join(told)}."


def oracle_cost() -> str:
    """Return the times of the oracle."""
    cost = reproduction("synthetic").cost
    assert cost is not None
    lines = [
        [row["case"], f"{row['seconds']:.2g}", share(row["waiting_share"]), share(row["waiting_share_dfw"])]
        for row in cost.rows
    ]
    head = ["way of calling the oracle", "seconds", "of the time waiting, one message a call"]
    head.append("two messages, as DFW")
    return TextTable.plain("", head, lines).markdown()


def losses(name: str) -> Callable[[], str]:
    """Return a function that returns the end of every run of an experiment."""

    def table() -> str:
        ((study, findings),) = [each for each in _studies() if each[1].name == name]
        tests = [measure for measure in findings.measures if measure.key.startswith("test_rmse")]
        keys = ["rounds", "lmo_calls", "local_loss", "worst_loss", *(measure.key for measure in tests)]
        head = ["at the end of the run", "rounds", "oracle calls", "own data", "all data"]
        first = findings.curves[0]
        lines = [["x⁰ = 0", *(_loss(first, key, 0) for key in keys)]]
        lines += [[curve.label, *(_loss(curve, key, -1) for key in keys)] for curve in findings.curves]
        plain = TextTable.plain("", [*head, *(measure.label for measure in tests)], lines).markdown()
        return f"{plain}\n\nVersion {study.manifest['versions']['dcgs']}, `{study.manifest['command']}`."

    return table


def _loss(curve: Curve, key: str, at: int) -> str:
    value = float(curve.columns[key][at])
    if key in ("rounds", "lmo_calls"):
        return count(value)
    return f"{value:.2f}" if key.startswith("test") else short_number(value)


# Estimators


def pooled() -> str:
    """Return the estimators beside scikit-learn on pooled rows."""
    kinds = {"diabetes": "R²", "breast-cancer": "AUC", "womens-clothing": "R²", "mercari": "R²"}
    lines = [
        [f"{row['data']} ({kinds[row['data']]} on test rows)", f"{row['dcgs']:.4f}", f"{row['pooled']:.4f}"]
        + [count(row[key]) for key in ("rounds", "known_rounds")]
        for row in rows_of("estimators/against_pooled")
    ]
    head = ["data", "dcgs", "scikit-learn on pooled rows", "rounds, radius found", "rounds, radius known"]
    return captioned(TextTable.plain("", head, lines), "estimators/against_pooled")


def _columns(row: Mapping[str, Any]) -> list[str]:
    kind = "correlated" if row["correlated"] else "independent"
    return [count(row["rows"]), count(row["features"]), kind]


def _lost(row: Mapping[str, Any], keys: Sequence[str]) -> list[str]:
    return [f"{100.0 * row[key]:.1f} %" for key in keys]


def private_fits() -> str:
    """Return what private fits lose."""
    lines = [
        [*_columns(row), *_lost(row, ("nobody", "root", "alone")), f"{row['signal']:.0f}"]
        for row in rows_of("estimators/private")
    ]
    head = ["rows", "features", "columns", "lost", "lost, root trusted", "lost by one site alone", "signal"]
    return captioned(TextTable.plain("", head, lines), "estimators/private")


def _promise(part: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = rows_of("estimators/promise")[0][part]
    return rows


def promise_versions() -> str:
    """Return what judged private fits."""
    made = record("estimators/promise")["environment"]["versions"]
    return ", ".join(f"{name} {made[name]}" for name in ("dp-accounting", "diffprivlib"))


_ACCOUNTANTS = {"ε": "{epsilon:g}", "δ": "{delta:g}", "by dcgs (zCDP)": "{dcgs:.4f}", "by PLD": "{PLD:.4f}"}
_ACCOUNTANTS |= {"by Rényi": "{Rényi:.4f}", "noise more than needed": "{more:.1%}"}
_ATTACK = {"ε": "{epsilon:g}", "trusted": "{trusted}", "fits": "2 × {fits:,}", "AUC": "{AUC:.3f}"}
_ATTACK |= {"most": "{most:.3f}", "ε shown": "{shown:.2f}", "ε shown with a tenth of the noise": "{less:.2f}"}
_MASKED = {
    "fit": "{fit}",
    "masked": "{masked:.0e}",
    "open, on a path": "{path:.0e}",
    "radius": "{radius:.0e}",
}
_MASKED |= {
    "score": "{score:.0e}",
    "rounds, open / masked": "{rounds}",
    "bytes": "{bytes}",
    "seconds": "{seconds}",
}


def promise_accountants() -> str:
    """Return ε of the noise of private fits by other accountants."""
    return captioned(TextTable.formatted("", _ACCOUNTANTS, _promise("accountants")), "estimators/promise")


def promise_attack() -> str:
    """Return how well an attack on private fits does, and on fits with less noise than is promised."""
    rows = _promise("attack")
    pairs = [row | {"less": less["shown"]} for row, less in zip(rows[::2], rows[1::2], strict=True)]
    return TextTable.formatted("", _ATTACK, pairs).markdown()


def promise_beside() -> str:
    """Return what private fits lose beside those of diffprivlib."""
    lines = [[*_columns(row), *_lost(row, ("nobody", "root", "diffprivlib"))] for row in _promise("beside")]
    head = ["rows", "features", "columns", "dcgs", "dcgs, root trusted", "diffprivlib, pooled"]
    return TextTable.plain("", head, lines).markdown()


def masked_fits() -> str:
    """Return how far masked fits are from open ones, and what they cost."""
    shown = {"rounds": count, "bytes": size, "seconds": "{:.1f}".format}
    rows = [
        row | {name: " / ".join(map(text, row[name])) for name, text in shown.items()}
        for row in rows_of("estimators/masked")
    ]
    return captioned(TextTable.formatted("", _MASKED, rows), "estimators/masked")


def radii_small() -> str:
    """Return the regret of the radius that is found on small problems, beside that of pooled rows."""
    *rows, total = rows_of("estimators/radii_small")
    kinds = list(dict.fromkeys((row["data"], row["model"]) for row in rows if row["data"] != "none"))
    names, lines = ("dcgs_regret", "pooled_regret"), []
    for kind in kinds:
        some = [row for row in rows if (row["data"], row["model"]) == kind]
        worst = max(row["dcgs_worse_than_none"] for row in some)
        means = [f"{mean(row[name] for row in some):.3f}" for name in names]
        lines.append([", ".join(kind), *means, f"{100.0 * worst:+.1f} %"])
    for which in ("lasso", "logistic", "mean"):
        means = [f"{total[f'{name}_{which}']:.3f}" for name in names]
        lines.append([f"mean of {which}" if which != "mean" else "mean of all", *means, ""])
    nothing = [
        max(row[f"{name}_worse_than_none"] for row in rows if row["data"] == "none")
        for name in ("dcgs", "pooled")
    ]
    lines.append(["no signal: worse than no model by", *(f"{100.0 * most:.1f} %" for most in nothing), ""])
    head = ["small problems", "regret of dcgs", "of pooled rows", "dcgs against no model, worst"]
    return captioned(TextTable.plain("", head, lines), "estimators/radii_small")


def radii_reviews() -> str:
    """Return how right the radius is that is found for texts, and what it costs."""
    rows = rows_of("estimators/radii_reviews")
    lines = [
        [f"{row['data']}, {row['graph']}, seed {row['seed']}", short_number(row["radius"])]
        + [f"{row['loss_ratio']:.4f}", f"{row['no_model']:.2f}", count(row["rounds"])]
        + [f"{row[key]:.1f}" for key in ("rounds_ratio", "bytes_ratio")]
        for row in rows
        if row["data"] != "all"
    ]
    head = ["texts", "radius", "log loss", "no model", "rounds", "rounds / one fit", "bytes / one fit"]
    return captioned(TextTable.plain("", head, lines), "estimators/radii_reviews")


def digits() -> str:
    """Return ten classes by the estimator, by the command, and on pooled rows."""
    (row,) = rows_of("estimators/against_pooled_digits")
    fits = {
        "dcgs_1": "`DecentralizedLogisticRegression`, one fold",
        "dcgs_5": "the same, `folds=5`",
        "fit_1": "`dcgs fit logistic --radius auto`",
        "fit_5": "the same, `--folds 5`",
        "pooled": "pooled rows, one `LogisticRegressionCV` (ℓ₁) per class",
        "softmax": "pooled rows, `LogisticRegressionCV` (softmax, ℓ₂)",
    }
    lines = []
    for key, about in fits.items():
        cells = [about, f"{row[f'{key}_accuracy']:.3f}", f"{row[f'{key}_log_loss']:.3f}"]
        known = f"{key}_fits" in row
        counts = [count(row[f"{key}_{part}"]) for part in ("fits", "path")] if known else ["", ""]
        lines.append([*cells, *counts, f"{row[f'{key}_ratio']:.1f}" if known else ""])
    head = ["digits", "accuracy", "log loss", "rounds of the fits", "all other rounds", "ratio"]
    return captioned(TextTable.plain("", head, lines), "estimators/against_pooled_digits")


# Real links


def links(name: str, place: int) -> Callable[[], str]:
    """Return a function that returns a table of a run over real links."""
    return lambda: output.tables(record(f"links/{name}")).split("\n\n")[2 * place + 1].strip()


def links_instances() -> str:
    """Return instances over real links, modeled and measured."""
    made = record("links/instances")
    return f"{timetable.instance_summary(made)}\n\n{timetable.instance_table(made)}"


_STEP = {"one agent's share": "{case}", "solver": "{solver}", "step over product and oracle": "{ratio:.2f}"}
_EXCHANGE = {"message": "{message}", "bare": "{bare:.2f}", "dcgs": "{ours:.2f}", "dcgs / bare": "{ratio:.2f}"}
_EXCHANGE["dcgs − bare"] = "{difference:.2f}"
_SITES = {"link": "{link}", "message": "{message}", "bare TLS, ms": "{bare:.1f}", "sites, ms": "{sites:.1f}"}
_SITES |= {"sites − bare, ms": "{difference:.1f}", "sites / bare": "{ratio:.2f}", "sites / model": "{model}"}


def sites() -> str:
    """Return the times of rounds between sites, with the number of processes beside them."""
    made = record("links/sites")
    rows = [
        row | {"model": f"{row['over_model']:.2f}" if "over_model" in row else ""} for row in made["rows"]
    ]
    busy = made["environment"]["machine"]["wanted by processes"]
    table = captioned(TextTable.formatted("", _SITES, rows), "links/sites")
    return f"{table} Meanwhile {busy:.0f} processes wanted the two cores."


PARTS: Mapping[str, Callable[[], str]] = {
    "rounds-versions": rounds_versions,
    "rounds-stops": rounds_stops,
    "rounds-soon": rounds_soon,
    "stops-versions": lambda: measured_by("stops"),
    "rounds-ours": lambda: stops_table(trials()).markdown(),
    "rounds-errors": rounds_errors,
    "rounds-instances": rounds_instances,
    "rounds-readme": rounds_readme,
    "rounds-seeds": rounds_seeds,
    "rounds-forms": rounds_forms,
    "rounds-forms-huber": lambda: captioned(forms_table(trials_of(record("forms-huber"))), "forms-huber"),
    "time-stop-counts": lambda: time_counts(trials(), stops=True),
    "time-counts": lambda: time_counts(trials_of(record("time")), stops=False),
    "time-table": time_table,
    "time-readme": time_readme,
    "robust": robust_share,
    "growth": growth_rows,
    "faults": faults_summary,
    "faults-ratios": faults_ratios,
    "faults-slow": faults_slow,
    "step": lambda: measurements("step", _STEP),
    "memory": memory,
    "checkpoint": checkpoint,
    "exchange": lambda: measurements("exchange", _EXCHANGE),
    "exchange-uneven": exchange_uneven,
    "sites": sites,
    "completion": completion,
    "completion-synthetic": completion_synthetic,
    "completion-seeds": completion_seeds,
    "completion-reading": completion_reading,
    "completion-all": completion_all,
    "completion-growth": completion_growth,
    "completion-small": completion_small,
    "verdicts": verdicts,
    "verdict-counts": verdict_counts,
    "oracle-cost": oracle_cost,
    "losses-lasso-synthetic": losses("lasso-synthetic"),
    "losses-lasso-e2006": losses("lasso-e2006-lookalike"),
    "losses-completion-synthetic": losses("completion-synthetic"),
    "losses-completion-movielens": losses("completion-movielens"),
    "pooled": pooled,
    "digits": digits,
    "private-fits": private_fits,
    "promise-versions": promise_versions,
    "promise-accountants": promise_accountants,
    "promise-attack": promise_attack,
    "promise-beside": promise_beside,
    "masked-fits": masked_fits,
    "radii-small": radii_small,
    "radii-reviews": radii_reviews,
    "links-exchange": links("results", 0),
    "links-time": links("results", 1),
    "links-losses": links("results", 2),
    "links-longer-time": links("longer", 1),
    "links-longer-losses": links("longer", 2),
    "links-instances": links_instances,
}
"""What may stand between two comments of a page, by name."""


if __name__ == "__main__":
    main()
