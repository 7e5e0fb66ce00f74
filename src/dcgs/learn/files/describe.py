"""Write the description of a fit: summary.json, history.csv, and what a model says of its fit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dcgs.learn.files.fit import FileFit
from dcgs.learn.files.folder import model_name
from dcgs.learn.files.model import Model, RatingsFile
from dcgs.learn.linear.fit import RowsFit
from dcgs.learn.ratings.fit import RatingsFit
from dcgs.learn.summary import FitSummary, Gap
from dcgs.run.result import Result
from dcgs.run.stopping import Status
from dcgs.validation import label_text

_COUNTERS = ("messages", "bytes", "lmo_calls", "projections", "computing", "waiting")
_MEASURES = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap")
# What a model says of its fit.
_OF_ANY = ("set", "status", "certified", "gap", "rounds", "bytes", "seed", "versions", "classes", "sent")
_ABOUT = (*_OF_ANY, "path", "paths", "intercept", "standardized", "balanced", "constant")


def describe(fit: FileFit, command: str = "") -> dict[str, Any]:
    """Return the content of summary.json."""
    config, runs = fit.config, list(fit.runs.values())
    first, status = runs[0], next((run.status for run in runs if not run.status.success), runs[0].status)
    chosen = {"name": config.set.name, **config.set.options, **_radius(fit)}
    summary: dict[str, Any] = {
        "format": 1,
        "command": command,
        "problem": config.problem.name,
        "shape": _shape(fit),
        "status": str(status),
        "certified": status.success,
        "iterations": sum(run.iterations for run in runs),
        "rounds": sum(run.rounds for run in runs),
        "messages": int(sum(run.messages.sum() for run in runs)),
        "bytes": int(sum(run.bytes.sum() for run in runs)),
        "seconds": sum(run.seconds for run in runs),
        "agents": _agents(fit),
        "data": _data(fit),
        "set": chosen,
        "graph": {"name": config.graph.text, "edges": fit.graph.graph.number_of_edges()},
        "method": first.about["method"],
        "runtime": first.about["runtime"],
        "seed": config.run.seed,
        "versions": first.about["versions"],
        "notes": list(dict.fromkeys(note for run in runs for note in run.notes)),
        **_classes(fit),
        "gap": _whole_gap(fit),
        "sums": "masked" if config.secure else "open",
        "floors": None if fit.floors is None else asdict(fit.floors),
        "sent": [record.to_dict() for record in fit.sent],
        "ledger": [asdict(entry) for entry in fit.ledger],
        **(_rows_part(fit) if isinstance(fit.fit, RowsFit) else _ratings_part(fit, fit.fit)),
        **_paths(fit),
        "data_notes": list(fit.notes),
        **_checkpoint(runs),
    }
    if fit.graph.labels is not None:
        summary["graph"]["agents are"] = list(fit.graph.labels)
    if config.run.every is not None:
        last = {
            name: {measure: getattr(run.history, measure)[-1].item() for measure in _MEASURES}
            for name, run in fit.runs.items()
        }
        summary["measures"] = last.get("", last)  # those of each class if there are several runs
    return summary


def about(fit: FileFit, summary: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a model says of its fit: a part of the summary."""
    entries = {name: summary[name] for name in _ABOUT if name in summary}
    entries |= {"method": repr(fit.config.method), "agents": len(summary["agents"])}
    if "scores" in summary:
        entries["scores"] = {name: summary["scores"][name] for name in ("held_out", "what", "everyone")}
    return entries


def summary_of(fit: FileFit, summary: Mapping[str, Any]) -> FitSummary:
    """Return the description for those who print it."""
    return FitSummary.read({**summary, "method": repr(fit.config.method)})


def models(fit: FileFit, summary: Mapping[str, Any]) -> dict[int, Model | RatingsFile]:
    """Return the models of the agents of this process, as they are written to files."""
    described = about(fit, summary)
    named: dict[int, dict[str, Any]] = {i: {"agent": i} | _name(fit, i) for i in range(len(fit.graph.graph))}
    if isinstance(fit.fit, RatingsFit):
        return {i: RatingsFile(agent, named[i] | described) for i, agent in fit.fit.agents.items()}
    assert fit.prepared is not None
    deviation = fit.fit.fitted[0].design.statistics.deviation
    reading, problem = fit.prepared.reading, fit.config.problem
    return {
        i: Model(model.coef, problem, reading, named[i] | described, model.intercept, deviation)
        for i, model in fit.fit.models.items()
    }


def history(fit: FileFit) -> dict[str, list[Any]] | None:
    """Return the columns of history.csv; None if nothing was measured."""
    if fit.config.run.every is None:
        return None
    parts = {name: run.history.columns() for name, run in fit.runs.items()}
    columns = {
        name: [value for part in parts.values() for value in part[name].tolist()]
        for name in next(iter(parts.values()))
    }
    if "" in parts:
        return columns
    return {"class": [name for name, run in fit.runs.items() for _ in range(len(run.history))]} | columns


def _checkpoint(runs: Sequence[Result]) -> dict[str, Any]:
    """Return what was saved and resumed: iterations and seconds of all runs together."""
    entries = [run.about["checkpoint"] for run in runs if "checkpoint" in run.about]
    if not entries:
        return {}
    resumed = sum(entry["resumed"] or 0 for entry in entries) or None
    seconds = sum(entry["seconds"] for entry in entries)
    return {"checkpoint": {"every": entries[0]["every"], "resumed": resumed, "seconds": seconds}}


def certified(run: Result, explained: float = 0.0) -> Gap | None:
    """Return the last gap that a run certified, with its share of what the model explains.

    A run that was resumed after its end has certified no other gap than the one that it ended by.
    ``explained`` is the decrease of the loss before the run.
    """
    if len(run.certificates):
        gap, decrease = (float(run.certificates[name][-1]) for name in ("gap", "decrease"))
    elif run.status is Status.AGREED:
        gap, decrease = (float(run.about["certified"][name]) for name in ("gap", "decrease"))
    else:
        return None
    return _with_share(max(gap, 0.0), decrease + explained)


def _with_share(gap: float, decrease: float) -> Gap:
    return Gap(gap, decrease, gap / decrease if decrease > 0.0 else None)


def _gaps(fit: FileFit) -> list[Gap | None]:
    if isinstance(fit.fit, RowsFit):
        return [certified(record.result, record.explained) for record in fit.fit.fitted]
    return [certified(fit.fit.result, fit.fit.explained)]


def _plain_gap(gap: Gap | None) -> dict[str, float] | None:
    """Return a gap as JSON has it; without its share if nothing is explained."""
    return None if gap is None else {name: value for name, value in asdict(gap).items() if value is not None}


def _whole_gap(fit: FileFit) -> dict[str, float] | None:
    """Return the certified gap; for several classes that of the sum of their losses: the sum of the gaps."""
    gaps = _gaps(fit)
    known = [gap for gap in gaps if gap is not None]
    if len(known) < len(gaps):
        return None
    return _plain_gap(_with_share(sum(gap.gap for gap in known), sum(gap.decrease for gap in known)))


def _classes(fit: FileFit) -> dict[str, Any]:
    """Return what the run of each class found; nothing if there is one run only."""
    if "" in fit.runs:
        return {}
    classes = {}
    for (label, run), gap in zip(fit.runs.items(), _gaps(fit), strict=True):
        classes[label] = {
            "status": str(run.status),
            "certified": run.status.success,
            "gap": _plain_gap(gap),
            "iterations": run.iterations,
            "rounds": run.rounds,
            "bytes": int(run.bytes.sum()),
        }
    return {"classes": classes}


def _radius(fit: FileFit) -> dict[str, Any]:
    """Return the radius that was found; a list for several classes."""
    if not fit.paths:
        return {}
    if isinstance(fit.fit, RatingsFit):
        return {"radius": fit.fit.radius}
    radii = [record.radius for record in fit.fit.fitted]
    return {"radius": radii[0] if len(radii) == 1 else radii}


def _paths(fit: FileFit) -> dict[str, Any]:
    """Return the entry of JSON for the path of one model, or for those of several classes."""
    paths = {label: path.to_dict() for label, path in fit.paths.items()}
    if not paths:
        return {}
    return {"path": paths[""]} if "" in paths else {"paths": paths}


def _rows_part(fit: FileFit) -> dict[str, Any]:
    prepared, scores = fit.prepared, fit.scores
    assert prepared is not None
    assert scores is not None
    assert isinstance(fit.fit, RowsFit)
    design, constant = fit.fit.fitted[0].design.spec, prepared.constant
    return {
        "intercept": design.intercept,
        "standardized": design.standardize,
        "balanced": fit.config.rows.preparation.balanced,
        "constant": constant if isinstance(constant, float) else list(constant),
        "scores": scores.to_json(),
    }


def _ratings_part(fit: FileFit, ratings: RatingsFit) -> dict[str, Any]:
    facts, ridge = ratings.placed.facts, ratings.ridge
    return {
        "offsets": None if ridge is None else {"mean": facts.mean, "ridge": ridge},
        "range of ratings": [facts.low, facts.high],
    } | ({} if ratings.scores is None else {"scores": ratings.scores.to_json()})


def _shape(fit: FileFit) -> list[int]:
    if isinstance(fit.fit, RatingsFit):
        return list(fit.fit.placed.shape)
    return [fit.fit.fitted[0].design.features]


def _agents(fit: FileFit) -> list[dict[str, Any]]:
    """Return the counters of each agent, of all runs; its number of rows only if it is in this process."""
    if isinstance(fit.fit, RatingsFit):
        rows = {i: len(part.values) for i, part in fit.fit.placed.parts.items()}
    else:
        assert fit.prepared is not None
        rows = {i: len(local) for i, local in fit.prepared.fitted.items()}
    runs, agents = list(fit.runs.values()), list[dict[str, Any]]()
    for i in range(len(fit.graph.graph)):
        counters = {name: sum(getattr(run, name)[i].item() for run in runs) for name in _COUNTERS}
        agents.append({"agent": i, "model": model_name(i), **counters})
        agents[-1] |= {"rows": rows[i]} if i in rows else {}
        agents[-1] |= _name(fit, i)
    return agents


def _name(fit: FileFit, i: int) -> dict[str, str]:
    """Return the name of a site as an entry of JSON, if the user has given it one."""
    name = fit.config.source.name(i)
    return {} if name == f"agent {i}" else {"name": name}


def _data(fit: FileFit) -> dict[str, Any]:
    """Return which files this process read, with their checksums, and how."""
    source = fit.config.source
    data: dict[str, Any] = {"files": dict(fit.checksums), **fit.read}
    if fit.prepared is not None:
        reading = fit.prepared.reading
        data |= {"target": reading.target, "target_at": reading.target_at}
        data |= {"labels": list(reading.labels)} if reading.labels else {}
    return data if source.is_per_agent else data | {"split": source.split}


def reading_lines(fit: FileFit, levels: int = 8) -> Iterator[str]:
    """Yield what was assumed in reading the data; of categories at most so many levels are named."""
    sides = _shape(fit)
    yield from (f"columns used: {used}" for used in fit.read.get("used", ()))
    if "ids" in fit.read:
        yield f"{sides[0]} rows and {sides[1]} columns, by their ids"
    elif "base" in fit.read:
        shape = ",".join(map(str, sides))
        yield f"the matrix has shape {shape}; rows and columns were counted from {fit.read['base']}"
    if fit.prepared is None:
        return
    reading = fit.prepared.reading
    if reading.target_at is not None:
        name = f", {reading.target!r}" if reading.target else ""
        yield f"{sides[0]} features; the target was column {reading.target_at + 1}{name}"
    for column in reading.columns or ():
        if column.levels is not None:
            more = len(column.levels) - levels
            named = ", ".join(column.levels[:levels])
            yield f"category {column.name}: {named}{f' and {more} more' if more > 0 else ''}"
    if reading.labels:
        labels = list(map(label_text, reading.labels))
        several = f"{len(labels)} classes: {', '.join(labels)}"
        yield several if len(labels) > 2 else f"label {labels[0]} was mapped to -1 and {labels[1]} to +1"
