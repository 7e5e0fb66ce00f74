"""From a folder to findings: the curves as they are kept, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from dcgs.datasets import Kind, Source
from dcgs.experiments import cost
from dcgs.experiments.base import DFW, SCALED, THEOREM
from dcgs.experiments.claims import PROMISES, judge
from dcgs.experiments.folder import Folder, FolderError
from dcgs.experiments.link import Link
from dcgs.experiments.study import Curve, Findings, Measure, Skipped, Study
from dcgs.experiments.summary import summarize
from dcgs.experiments.words import number


def load(folder: Folder, link: Link) -> Study:
    """Return what the folder holds; claims and summaries are drawn from the curves anew."""
    manifest = folder.manifest()
    try:
        entries: Mapping[str, Mapping[str, Any]] = manifest["experiments"]
        measured = manifest.get("cost")
        return Study(
            findings=[
                _findings(folder, name, entry, link) for name, entry in entries.items() if entry["runs"]
            ],
            skipped=[
                Skipped(name, entry["title"], entry["skipped"]["why"], entry["skipped"]["how"])
                for name, entry in entries.items()
                if "skipped" in entry
            ],
            cost=None if measured is None else cost.judged(measured),
            link=link,
            manifest=manifest,
        )
    except (KeyError, TypeError) as error:
        raise FolderError(
            f"the manifest in {str(folder.path)!r} must be as dcgs reproduce wrote it; {error} is missing or "
            "unknown. Run dcgs reproduce again into an empty folder."
        ) from error


def _findings(folder: Folder, name: str, entry: Mapping[str, Any], link: Link) -> Findings:
    curves = list(_curves(folder, name, entry["runs"]))
    by_key = {curve.key: curve for curve in curves}
    promise = PROMISES[name]
    complete = THEOREM in by_key and DFW in by_key
    claims = judge(promise, by_key[THEOREM], by_key.get(SCALED), by_key[DFW]) if complete else []
    findings = Findings(
        name=name,
        title=entry["title"],
        problem=entry["problem"],
        source=Source(**entry["source"] | {"kind": Kind[entry["source"]["kind"]]}),
        degree=entry["degree"],
        measures=[Measure(**measure) for measure in entry["measures"]],
        curves=curves,
        claims=claims,
        summary=(),
    )
    return replace(findings, summary=summarize(findings, promise, link))


def _curves(folder: Folder, name: str, runs: Mapping[str, Mapping[str, Any]]) -> Iterable[Curve]:
    """Return one curve per run; of the scalings that were tried, the best one's."""
    read = {key: _curve(folder, name, key, run) for key, run in runs.items()}
    tried = {key: read[key] for key, run in runs.items() if run["scaling"] is not None}
    for key, curve in read.items():
        if key not in tried:
            yield curve
    if tried:
        yield _best(tried, {key: runs[key]["scaling"] for key in tried})


def _curve(folder: Folder, name: str, key: str, run: Mapping[str, Any]) -> Curve:
    columns = folder.columns(name, key, run["files"])
    return Curve(
        key,
        run["label"],
        run["about"],
        run["status"],
        tuple(run["notes"]),
        columns,
        run["rounds"],
        run["lmo_calls"],
    )


def _best(tried: Mapping[str, Curve], scalings: Mapping[str, float]) -> Curve:
    """Return the curve that ends with the lowest worst_loss, with what the others came to."""
    best = min(tried.values(), key=lambda curve: curve.columns["worst_loss"][-1])
    ends = ", ".join(
        f"{number(curve.columns['worst_loss'][-1])} with η × {scalings[key]:g}"
        for key, curve in tried.items()
    )
    about = f"{best.about} Chosen as the best of {len(tried)} by worst_loss at the end: {ends}."
    return replace(best, key=SCALED, about=about, kept_as=best.key)
