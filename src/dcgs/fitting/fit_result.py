"""The result of a fit: models, their scores, and the content of summary.json and history.csv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, final

from dcgs.fitting.class_runs import COUNTERS, certified_gap, joined, with_share
from dcgs.fitting.config import FitConfig
from dcgs.fitting.data import LoadedData
from dcgs.fitting.graphs import LabeledGraph
from dcgs.fitting.held_out import FitScores
from dcgs.fitting.models import Model
from dcgs.fitting.output import model_name
from dcgs.fitting.ratings import LoadedRatings
from dcgs.fitting.ratings_model import RatingsFile
from dcgs.fitting.sample_problem import SampleProblem
from dcgs.front import Result
from dcgs.preprocessing import LinearModel, Path, Sent

_MEASURES = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap")


@final
@dataclass(frozen=True, eq=False)
class SampleFit:
    """What a fit of samples has beside the result of its run: models in the user's units, scores, messages.

    ``sent`` lists what the agents agreed on before and after the run. ``paths`` are those of the radii, if
    they were found, by the class of the model; an empty text if there is one model only.
    """

    problem: SampleProblem
    models: Mapping[int, LinearModel]
    scores: FitScores
    sent: tuple[Sent, ...]
    paths: Mapping[str, Path] = field(default_factory=dict)

    @property
    def notes(self) -> list[str]:
        """Sentences on the data."""
        return self.problem.agreement.notes

    def about(self) -> dict[str, Any]:
        """Return what a model says of its fit."""
        options, constant = self.problem.options, self.problem.constant
        return {
            "intercept": bool(options.intercept),
            "standardized": bool(options.standardize),
            "balanced": options.balanced,
            "constant": constant if isinstance(constant, float) else list(constant),
            "scores": {"held_out": self.scores.held_out, **self.scores.everyone.to_json()},
            "sent": [each.to_dict() for each in self.sent],
            **_paths(self.paths),
        }

    def summary(self) -> dict[str, Any]:
        """Return what summary.json has of it."""
        return self.about() | {"scores": self.scores.to_json()}


def _paths(paths: Mapping[str, Path]) -> dict[str, Any]:
    """Return the entry of JSON for the path of one model, or for those of several classes."""
    if not paths:
        return {}
    if "" in paths:
        return {"path": paths[""].to_dict()}
    return {"paths": {label: path.to_dict() for label, path in paths.items()}}


@final
@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a fit: that of each run, and a model for each hosted agent.

    There is one run, whose name is empty, or with more than two classes one for each, named after its label.
    ``notes`` are sentences on files: how they were taken, and which were not written. ``checksums`` are the
    SHA-256 of the files of data that this process read, by name.
    """

    config: FitConfig
    data: LoadedData
    graph: LabeledGraph
    runs: Mapping[str, Result]
    samples: SampleFit | None = None
    ratings: LoadedRatings | None = None
    notes: tuple[str, ...] = ()
    checksums: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def result(self) -> Result:
        """What all runs found and cost together."""
        return joined(list(self.runs.values()))

    @property
    def data_notes(self) -> list[str]:
        """Sentences on files and data, for the user."""
        return [*self.notes, *(part for each in (self.samples, self.ratings) if each for part in each.notes)]

    @property
    def agents(self) -> int:
        """The number of all agents."""
        return len(self.graph.graph)

    @property
    def models(self) -> Mapping[int, Model | RatingsFile]:
        """The models of the hosted agents."""
        return self.linear_models if self.ratings is None else self.ratings.models(self.result, self.about)

    @property
    def linear_models(self) -> dict[int, Model]:
        """The models of the hosted agents, for samples; empty for ratings."""
        if self.samples is None:
            return {}
        problem, reading, about = self.config.problem, self.data.reading, self.about
        deviation = self.samples.problem.models[0].design.statistics.deviation
        return {
            i: Model(model.coef, problem, reading, {"agent": i} | about, model.intercept, deviation)
            for i, model in self.samples.models.items()
        }

    @property
    def about(self) -> dict[str, Any]:
        """What a model says of its fit."""
        result, gap = self.result, self.certified_gap
        about: dict[str, Any] = {
            "set": self.set_options(),
            "method": repr(self.config.method),
            "status": str(result.status),
            "certified": result.status.success,
            "gap": gap,
            "agents": self.agents,
            "rounds": result.rounds,
            "bytes": int(result.bytes.sum()),
            "seed": self.config.seed,
            "versions": result.about["versions"],
            **self._classes(),
        }
        return about | self._part.about()

    @property
    def _part(self) -> SampleFit | LoadedRatings:
        """What is of samples, or of ratings."""
        part = self.samples or self.ratings
        assert part is not None
        return part

    @property
    def paths(self) -> Mapping[str, Path]:
        """The paths of the radii, if the radius was found: by the names of runs."""
        if self.samples is not None:
            return self.samples.paths
        return {} if self.ratings is None or self.ratings.path is None else {"": self.ratings.path}

    def set_options(self) -> dict[str, Any]:
        """Return the set's name and options; a radius that was found for each class is a list."""
        chosen = self.config.set
        radii = {name: path.best.radius for name, path in self.paths.items() if name}
        return {"name": chosen.name, **chosen.options, **({"radius": list(radii.values())} if radii else {})}

    @property
    def sent(self) -> tuple[Sent, ...]:
        """What all agents sent beside the run."""
        return self._part.sent

    @property
    def certified_gap(self) -> dict[str, float] | None:
        """The last gap that was certified, absolute and as a share of the decrease of the loss.

        For several classes it is that of the sum of their losses: the sum of the gaps.
        """
        gaps = [certified_gap(run) for run in self.runs.values()]
        known = [gap for gap in gaps if gap is not None]
        if len(known) < len(gaps):
            return None
        return with_share({name: sum(gap[name] for gap in known) for name in ("gap", "decrease")})

    def _classes(self) -> dict[str, Any]:
        """Return what the run of each class found; nothing if there is one run only."""
        found = {}
        for label, run in self.runs.items():
            gap = certified_gap(run)
            found[label] = {
                "status": str(run.status),
                "certified": run.status.success,
                "gap": None if gap is None else with_share(gap),
                "iterations": run.iterations,
                "rounds": run.rounds,
                "bytes": int(run.bytes.sum()),
            }
        return {} if "" in self.runs else {"classes": found}

    def summary(self, command: str) -> dict[str, Any]:
        """Return the content of summary.json."""
        config, result = self.config, self.result
        summary: dict[str, Any] = {
            "format": 1,
            "command": command,
            "problem": config.problem.name,
            "shape": list(self.data.shape),
            "status": str(result.status),
            "certified": result.status.success,
            "iterations": result.iterations,
            "rounds": result.rounds,
            "messages": int(result.messages.sum()),
            "bytes": int(result.bytes.sum()),
            "seconds": result.seconds,
            "agents": [self._agent(i) for i in range(self.agents)],
            "data": self._data(),
            "set": self.set_options(),
            "graph": {"name": config.graph.text, "edges": self.graph.graph.number_of_edges()},
            "method": result.about["method"],
            "runtime": result.about["runtime"],
            "seed": config.seed,
            "versions": result.about["versions"],
            "notes": list(result.notes),
            **self._classes(),
            "gap": self.certified_gap,
            **self._part.summary(),
            "data_notes": self.data_notes,
        }
        if "checkpoint" in result.about:
            summary["checkpoint"] = result.about["checkpoint"]
        if self.graph.labels is not None:
            summary["graph"]["agents are"] = list(self.graph.labels)
        if config.measure is not None:
            last = {
                name: {measure: getattr(run.history, measure)[-1].item() for measure in _MEASURES}
                for name, run in self.runs.items()
            }
            summary["measures"] = last.get("", last)  # those of each class if there are several runs
        return summary

    def history(self) -> dict[str, list[Any]] | None:
        """Return the columns of history.csv; None if nothing was measured."""
        if self.config.measure is None:
            return None
        parts = {name: run.history.columns() for name, run in self.runs.items()}
        columns = {
            name: [value for part in parts.values() for value in part[name].tolist()]
            for name in next(iter(parts.values()))
        }
        if "" in self.runs:
            return columns
        return {"class": [name for name, run in self.runs.items() for _ in range(len(run.history))]} | columns

    def _agent(self, i: int) -> dict[str, Any]:
        """Return the counters of an agent; its number of rows only if it is hosted."""
        agent: dict[str, Any] = {"agent": i, "model": model_name(i)}
        agent |= {name: getattr(self.result, name)[i].item() for name in COUNTERS}
        return agent | ({"rows": self.data.rows[i]} if i in self.data.rows else {})

    def _data(self) -> dict[str, Any]:
        """Return which files this process read, with their checksums, and how."""
        source = self.config.source
        data: dict[str, Any] = {"files": dict(self.checksums)}
        data |= {name: value for name, value in self.data.reading.items() if name not in ("names", "columns")}
        return data if source.is_per_agent else data | {"split": source.split}
