"""From a folder to findings: the recorded curves, and what they say about the claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from dcgs.datasets import Kind, Source
from dcgs.experiments import oracle_cost
from dcgs.experiments.base import DFW, SCALED, THEOREM
from dcgs.experiments.claims import PROMISES, Promise, judge
from dcgs.experiments.link import Link
from dcgs.experiments.manifest import read_manifest
from dcgs.experiments.numbers import short_number
from dcgs.experiments.results import Curve, Findings, Measure, Skipped, Study
from dcgs.experiments.summary import summarize
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
    return replace(findings, summary=summarize(findings, promise, link))


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
