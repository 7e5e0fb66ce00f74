"""From a folder to findings: the curves as they are kept, and what they say."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dcgs.datasets import Kind, Source
from dcgs.experiments import cost
from dcgs.experiments.claims import DFW_ROUNDS, PROMISES, Promise, at, judge
from dcgs.experiments.folder import Folder
from dcgs.experiments.link import Link
from dcgs.experiments.study import Claim, Curve, Findings, Measure, Skipped, Study, Verdict
from dcgs.experiments.words import count, number, seconds, share

THEOREM = "dcgs-theorem"
SCALED = "dcgs-scaled"
DFW = "dfw"


def load(folder: Folder, link: Link) -> Study:
    """Return what the folder holds; claims and summaries are drawn from the curves anew."""
    manifest = folder.manifest()
    entries: Mapping[str, Mapping[str, Any]] = manifest["experiments"]
    measured = manifest.get("cost")
    return Study(
        findings=[_findings(folder, name, entry, link) for name, entry in entries.items() if entry["runs"]],
        skipped=[
            Skipped(name, entry["title"], entry["skipped"]["why"], entry["skipped"]["how"])
            for name, entry in entries.items()
            if "skipped" in entry
        ],
        cost=None if measured is None else cost.judged(measured),
        link=link,
        manifest=manifest,
    )


def _findings(folder: Folder, name: str, entry: Mapping[str, Any], link: Link) -> Findings:
    curves = list(_curves(folder, name, entry["runs"]))
    source = Source(**entry["source"] | {"kind": Kind[entry["source"]["kind"]]})
    by_key = {curve.key: curve for curve in curves}
    promise = PROMISES[name]
    claims: Sequence[Claim] = ()
    if THEOREM in by_key and DFW in by_key:
        claims = judge(promise, by_key[THEOREM], by_key.get(SCALED), by_key[DFW])
    return Findings(
        name=name,
        title=entry["title"],
        problem=entry["problem"],
        source=source,
        degree=entry["degree"],
        measures=[Measure(**measure) for measure in entry["measures"]],
        curves=curves,
        claims=claims,
        summary=_summary(promise, by_key, claims, entry["degree"], link),
    )


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
    return Curve(key, run["label"], run["about"], run["status"], tuple(run["notes"]), columns)


def _best(tried: Mapping[str, Curve], scalings: Mapping[str, float]) -> Curve:
    """Return the curve that ends with the lowest worst_loss, with what the others came to."""
    best = min(tried.values(), key=lambda curve: curve.columns["worst_loss"][-1])
    ends = ", ".join(
        f"{number(curve.columns['worst_loss'][-1])} with η × {scalings[key]:g}"
        for key, curve in tried.items()
    )
    about = f"{best.about} Chosen as the best of {len(tried)} by worst_loss at the end: {ends}."
    return Curve(SCALED, best.label, about, best.status, best.notes, best.columns, kept_as=best.key)


def _summary(
    promise: Promise, curves: Mapping[str, Curve], claims: Sequence[Claim], degree: int, link: Link
) -> list[str]:
    if not claims:
        return ["Not all of DCGS and DFW have been run yet; run the same command again to go on."]
    shown = [curves[key] for key in (THEOREM, SCALED, DFW) if key in curves]
    ends = "; ".join(_end(curve) for curve in shown)
    waits = "; ".join(_wait(curve, degree, link) for curve in shown)
    return [
        f"The paper: {promise.of_rounds}",
        f"Measured, at the end of each run: {ends}.",
        f"On links of {link}: {waits}.",
        _MEANING[claims[0].verdict] + _worth(curves[DFW]),
    ]


def _worth(dfw: Curve) -> str:
    """Say so if what DCGS is compared with is hardly better than doing nothing."""
    reached, start = at(dfw, "rounds", DFW_ROUNDS, "worst_loss"), dfw.columns["worst_loss"][0]
    if reached < 0.5 * start:
        return ""
    return (
        f" The bar is low here: on everyone's data DFW has {number(reached)} after its rounds, and x⁰ = 0, "
        f"which needs none, has {number(start)}."
    )


def _end(curve: Curve) -> str:
    columns = {name: column[-1] for name, column in curve.columns.items()}
    text = (
        f"{curve.label} after {count(columns['rounds'])} rounds and {count(columns['lmo_calls'])} oracle "
        f"calls loses {number(columns['local_loss'])} on each agent's own data and "
        f"{number(columns['worst_loss'])} with the worst agent's model on everyone's"
    )
    if "test_rmse_clipped" in columns:
        text += f" (error on held-out ratings {columns['test_rmse_clipped']:.3f})"
    elif "test_rmse" in columns:
        text += f" (error on held-out entries {columns['test_rmse']:.2f})"
    return text


def _wait(curve: Curve, degree: int, link: Link) -> str:
    waiting = link.waiting(curve.columns["bytes"][-1] / degree)
    total = waiting + curve.columns["computing"][-1]
    if total == 0.0:
        return f"{curve.label} did not finish an iteration"
    return f"{curve.label} would take {seconds(total)} and wait for {share(waiting / total)} of it"


_MEANING = {
    Verdict.HOLDS: ("So DCGS gets where DFW gets in far fewer rounds, on everyone's data, too."),
    Verdict.PAPER_ONLY: (
        "So the paper's figure is right for what it draws, each agent's loss on its own data, and misleading "
        "about what the agents learn together: after those rounds every agent fits its own data and "
        "has hardly heard of the others'."
    ),
    Verdict.FAILS: (
        "So with the theorem's parameters DCGS does not get there in so few rounds, whichever loss is "
        "looked at."
    ),
    Verdict.OPEN: "",
}
