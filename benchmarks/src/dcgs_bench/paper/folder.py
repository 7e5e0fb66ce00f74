"""The folder of ``dcgs reproduce``: its manifest, the tasks of its runs, and what they give: a page."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from dcgs.datasets import DataNotFoundError, DownloadError, Source, SourceKind
from dcgs.link import Link
from dcgs.report.figures import encoded
from dcgs.report.numbers import capitalized, short_number
from dcgs.report.page import PageFiles, render
from dcgs.report.page.charts import MOST_POINTS
from dcgs.run.minimize import versions
from dcgs_bench.paper import claims, results
from dcgs_bench.paper.catalog import Experiment, PreparedExperiment
from dcgs_bench.paper.claims import PAPER_LINK, PAPER_SIDE, PROMISES, Promise, judge, meaning
from dcgs_bench.paper.figures import study_figures
from dcgs_bench.paper.page import view
from dcgs_bench.paper.results import DFW, SCALED, THEOREM, Curve, Findings, Measure, PaperStudy
from dcgs_bench.study import FORMAT, FolderError, Records, RunRecord, StudyTask, as_json

MANIFEST = "manifest.json"


def open_manifest(records: Records, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest to continue: a new one, or that of an earlier run with the same settings."""
    records.check_writable()
    if not (records.path / MANIFEST).exists():
        others = sorted(entry.name for entry in records.path.iterdir())
        if others:
            listed = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
            raise FolderError(
                "the output folder must be empty or hold an earlier run of this command; "
                f"{str(records.path)!r} holds {listed}. Choose another with --out."
            )
        return {"format": FORMAT, "settings": dict(settings), "experiments": {}}
    manifest = read_manifest(records)
    earlier = manifest["settings"]
    differing = [name for name in settings if earlier.get(name) != settings[name]]
    if differing:
        changes = "; ".join(f"{name} was {earlier.get(name)!r}, is {settings[name]!r}" for name in differing)
        raise FolderError(
            f"an earlier run can only be continued with its own settings; in {str(records.path)!r} "
            f"{changes}. Use the same settings, or another folder with --out."
        )
    return manifest


def read_manifest(records: Records) -> dict[str, Any]:
    """Return the manifest of the folder."""
    file = records.path / MANIFEST
    try:
        manifest: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        version = manifest["format"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise FolderError(
            f"{str(file)!r} must be a manifest written by dcgs reproduce; it is missing or cannot be read as "
            "one. Run dcgs reproduce again into an empty folder."
        ) from error
    if version != FORMAT:
        raise FolderError(
            f"a manifest must be of format {FORMAT}; {str(file)!r} has {version!r}. "
            "Read it with the version of dcgs that wrote it."
        )
    return manifest


def write_manifest(records: Records, manifest: Mapping[str, Any]) -> None:
    """Replace the manifest."""
    records.write_file(MANIFEST, as_json(manifest))


def plan(
    records: Records, manifest: dict[str, Any], experiments: Sequence[Experiment], seed: int
) -> list[StudyTask]:
    """Return the tasks of all runs of experiments whose data are found, and describe all in the manifest.

    All data are read here, so that errors in them are reported before the first run. Those of an experiment
    whose runs are all recorded are not read.
    """
    planned = []
    for experiment in experiments:
        entry = manifest["experiments"].setdefault(experiment.name, {})
        entry.pop("skipped", None)
        entry["title"] = experiment.title
        entry["runs"] = {
            run.key: {"label": run.label, "about": run.about, "scaling": run.scaling}
            for run in experiment.runs
        }
        tasks = _tasks(experiment, None, seed)
        done = [records.has(task) for task in tasks]
        if not all(done):
            try:
                data = experiment.prepare()
            except (DataNotFoundError, DownloadError) as error:
                entry["skipped"] = {"why": experiment.missing, "how": capitalized(str(error))}
                continue
            _describe(entry, data, experiment.name if any(done) else None)
            tasks = _tasks(experiment, data, seed)
        planned += tasks
    write_manifest(records, manifest)
    return planned


def _tasks(experiment: Experiment, data: PreparedExperiment | None, seed: int) -> list[StudyTask]:
    tasks = []
    for run in experiment.runs:
        key = {"seed": seed, "versions": versions(), "budget": run.budget.limits}
        work = None if data is None else partial(run.record, data, seed)
        tasks.append(
            StudyTask(f"runs/{experiment.name}/{run.key}", key, work, f"{run.label} on {experiment.name}")
        )
    return tasks


def _describe(entry: dict[str, Any], data: PreparedExperiment, begun: str | None) -> None:
    """Describe data in the manifest; those of an experiment that was begun must be the same as before."""
    source = asdict(data.source) | {"kind": data.source.kind.name}
    if begun is not None and entry["source"] != source:
        raise FolderError(
            f"all methods of an experiment must see the same data; those of {begun} were run on "
            f"{entry['source']['files']}, now there are {source['files']}. Choose another folder with --out."
        )
    entry |= {
        "problem": data.description,
        "source": source,
        "degree": max(degree for _, degree in data.problem.graph.degree),
        "measures": [asdict(measure) for measure in data.measures],
    }


def load(records: Records, link: Link) -> PaperStudy:
    """Return what the folder holds; verdicts are derived from the curves each time."""
    manifest = read_manifest(records)
    try:
        entries: Mapping[str, Mapping[str, Any]] = manifest["experiments"]
        promises = {name: PROMISES[name] for name in entries}
        curves = {name: list(_curves(records, name, entry["runs"])) for name, entry in entries.items()}
        return PaperStudy(
            [_findings(name, entries[name], some, promises[name]) for name, some in curves.items() if some],
            claims.judged(manifest["cost"]) if "cost" in manifest else None,
            link,
            manifest,
        )
    except (KeyError, TypeError) as error:
        raise FolderError(
            f"the manifest in {str(records.path)!r} must be as dcgs reproduce wrote it; {error} is missing "
            "or unknown. Run dcgs reproduce again into an empty folder."
        ) from error


def _findings(name: str, entry: Mapping[str, Any], curves: list[Curve], promise: Promise) -> Findings:
    by_key = {curve.key: curve for curve in curves}
    claims, told = [], "Not all of DCGS and DFW have been run yet; run the same command again to continue."
    if THEOREM in by_key and DFW in by_key:
        pair = by_key[THEOREM], by_key[DFW]
        claims = judge(promise, *pair)
        told = meaning(promise, claims[0].verdict, *pair)
    return Findings(
        name=name,
        title=entry["title"],
        problem=entry["problem"],
        source=Source(**entry["source"] | {"kind": SourceKind[entry["source"]["kind"]]}),
        degree=entry["degree"],
        measures=[Measure(**measure) for measure in entry["measures"]],
        curves=curves,
        claims=claims,
        summary=told,
    )


def _curves(records: Records, name: str, runs: Mapping[str, Mapping[str, Any]]) -> Iterator[Curve]:
    """Yield one curve per recorded run; of the scalings that were tried, only the best."""
    tried: dict[float, Curve] = {}
    for key, run in runs.items():
        record = records.read(f"runs/{name}/{key}")
        if record is not None:
            curve = Curve(key, run["label"], run["about"], RunRecord(**record))
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


_FILES = PageFiles("dcgs_bench.paper.page", "page.html", "page.js", ("style.css", "study.css"))


def render_study(study: PaperStudy) -> str:
    """Return the page as HTML; every experiment must have a measure on all data beside the paper's loss."""
    view.check(study)
    shown = {"study": study, "view": view, "results": results, "most_points": MOST_POINTS}
    shown |= {"paper_side": PAPER_SIDE, "paper_link": PAPER_LINK}
    return render(_FILES, view.charts(study), shown)


def write_report(records: Records, link: Link) -> tuple[PaperStudy, Path]:
    """Write page and figures, replacing earlier ones; return the study and the path of the page."""
    study = load(records, link)
    for name, figure in study_figures(study).items():
        for kind in ("png", "pdf"):
            records.write_file(f"figures/{name}.{kind}", encoded(figure, kind))
    return study, records.write_file("index.html", render_study(study))
