"""From a folder to findings: the recorded curves, what they say about the claims, and a summary in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dcgs.datasets import Kind, Source
from dcgs.experiments import oracle_cost
from dcgs.experiments.claims import DFW_ROUNDS, PROMISES, Promise, at, judge
from dcgs.experiments.manifest import read_manifest
from dcgs.experiments.numbers import count, share, short_duration, short_number
from dcgs.experiments.results import DFW, SCALED, THEOREM, Curve, Findings, Measure, Skipped, Study, Verdict
from dcgs.link import Link
from dcgs.study import FolderError, ResultCache


def load(cache: ResultCache, link: Link) -> Study:
    """Return what the folder holds; verdicts and summaries are derived from the curves each time."""
    manifest = read_manifest(cache)
    try:
        entries: Mapping[str, Mapping[str, Any]] = manifest["experiments"]
        promises = {name: PROMISES[name] for name in entries}
        curves = {name: list(_curves(cache, name, entry["runs"])) for name, entry in entries.items()}
        measured = manifest.get("cost")
        return Study(
            findings=[
                _findings(name, entries[name], found, promises[name], link)
                for name, found in curves.items()
                if found
            ],
            skipped=[
                Skipped(name, entry["title"], entry["skipped"]["why"], entry["skipped"]["how"])
                for name, entry in entries.items()
                if "skipped" in entry
            ],
            cost=None if measured is None else oracle_cost.judged(measured),
            link=link,
            manifest=manifest,
        )
    except (KeyError, TypeError) as error:
        raise FolderError(
            f"the manifest in {str(cache.path)!r} must be as dcgs reproduce wrote it; {error} is missing or "
            "unknown. Run dcgs reproduce again into an empty folder."
        ) from error


def _findings(
    name: str, entry: Mapping[str, Any], curves: list[Curve], promise: Promise, link: Link
) -> Findings:
    by_key = {curve.key: curve for curve in curves}
    complete = THEOREM in by_key and DFW in by_key
    findings = Findings(
        name=name,
        title=entry["title"],
        problem=entry["problem"],
        source=Source(**entry["source"] | {"kind": Kind[entry["source"]["kind"]]}),
        degree=entry["degree"],
        measures=[Measure(**measure) for measure in entry["measures"]],
        curves=curves,
        claims=judge(promise, by_key[THEOREM], by_key.get(SCALED), by_key[DFW]) if complete else [],
        summary=(),
    )
    return replace(findings, summary=_summary(findings, promise, link))


def _curves(cache: ResultCache, name: str, runs: Mapping[str, Mapping[str, Any]]) -> Iterator[Curve]:
    """Yield one curve per recorded run; of the scalings that were tried, only the best."""
    tried: dict[float, Curve] = {}
    for key, run in runs.items():
        result = cache.run(name, key)
        if result is None:
            continue
        about = (key, run["label"], run["about"], result.status, tuple(result.notes))
        curve = Curve(*about, result.columns, result.rounds, result.lmo_calls)
        if run["scaling"] is None:
            yield curve
        else:
            tried[run["scaling"]] = curve
    if tried:
        yield _best(tried)


def _best(tried: Mapping[float, Curve]) -> Curve:
    """Return the curve that ends with the lowest worst_loss, and name the losses of the others."""
    ends = {scaling: curve.columns["worst_loss"][-1] for scaling, curve in tried.items()}
    best = tried[min(ends, key=lambda scaling: ends[scaling])]
    listed = ", ".join(f"{short_number(end)} with η × {scaling:g}" for scaling, end in ends.items())
    about = f"{best.about} Chosen as the best of {len(tried)} by worst_loss at the end: {listed}."
    return replace(best, key=SCALED, about=about, recorded_as=best.key)


def _summary(findings: Findings, promise: Promise, link: Link) -> list[str]:
    """Return the paragraphs of the summary: claims, losses, waiting, conclusion."""
    if not findings.claims:
        return ["Not all of DCGS and DFW have been run yet; run the same command again to continue."]
    by_key = {curve.key: curve for curve in findings.curves}
    shown = [by_key[key] for key in (THEOREM, SCALED, DFW) if key in by_key]
    this = "On the look-alike, this" if findings.banner else "This"
    verdicts = " ".join(f"“{claim.paper}” {this} {claim.verdict}." for claim in findings.claims)
    return [
        f"The paper: {verdicts}",
        "Measured, at the end of each run: " + "; ".join(map(_end, shown)) + ".",
        f"On links of {link}: " + "; ".join(_wait(findings, curve, link) for curve in shown) + ".",
        _meaning(findings.claims[0].verdict, by_key[THEOREM], promise) + _weak_reference(by_key[DFW]),
    ]


def _end(curve: Curve) -> str:
    last = {name: column[-1] for name, column in curve.columns.items()}
    if last["rounds"] == 0:
        return f"{curve.label} did not finish an iteration in {count(curve.lmo_calls)} oracle calls"
    own, worst = (short_number(last[name]) for name in ("local_loss", "worst_loss"))
    text = (
        f"{curve.label} after {count(last['rounds'])} rounds and {count(last['lmo_calls'])} oracle calls "
        f"has a loss of {own} on each agent's own data, and of {worst} with the worst agent's model on "
        "everyone's data"
    )
    if "test_rmse_clipped" in last:
        text += f" (error on held-out ratings {last['test_rmse_clipped']:.3f})"
    elif "test_rmse" in last:
        text += f" (error on held-out entries {last['test_rmse']:.2f})"
    return text


def _wait(findings: Findings, curve: Curve, link: Link) -> str:
    waiting, total = findings.waiting(curve, link)[-1], findings.time(curve, link)[-1]
    if total == 0.0:
        return f"{curve.label} did not finish an iteration"
    return f"{curve.label} would take {short_duration(total)} and wait for {share(waiting / total)} of it"


def _meaning(verdict: Verdict, theorem: Curve, promise: Promise) -> str:
    """Return the conclusion from the verdict on the rounds."""
    if verdict is Verdict.HOLDS:
        return "So DCGS reaches the loss of DFW on everyone's data in far fewer rounds."
    if verdict is Verdict.FAILS:
        return "So with the theorem's parameters DCGS does not reach the loss of DFW in so few rounds."
    if verdict is Verdict.OPEN:
        return "So these runs are too short for a verdict."
    start = theorem.columns["worst_loss"][0]
    left = at(theorem, "rounds", promise.enough, "worst_loss") / start
    text = (
        "So the paper's figure is correct for each agent's loss on its own data. It shows little about "
        f"the loss on everyone's data: after {promise.enough} rounds the worst agent's model "
        f"still has {share(left)} of the loss of x⁰ = 0 there."
    )
    if left > 0.5:
        text += " Every agent fits its own data; its model hardly depends on the others' data."
    return text


def _weak_reference(dfw: Curve) -> str:
    """Return a warning if DFW is hardly better than x⁰, else nothing."""
    reached, start = at(dfw, "rounds", DFW_ROUNDS, "worst_loss"), dfw.columns["worst_loss"][0]
    if reached < 0.5 * start:
        return ""
    return (
        f" The reference is weak: on everyone's data DFW has {short_number(reached)} after its rounds, and "
        f"x⁰ = 0, which needs none, has {short_number(start)}."
    )
