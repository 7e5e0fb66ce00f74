"""The result of a fit: models, and the content of summary.json and history.csv."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, final

from dcgs.datasets.store import sha256_of
from dcgs.fitting.config import FitConfig
from dcgs.fitting.graphs import LabeledGraph
from dcgs.fitting.loading import LoadedData
from dcgs.fitting.models import Model, ModelFile, model_name
from dcgs.fitting.ratings import LoadedRatings
from dcgs.fitting.sample_fit import SampleFit
from dcgs.front import Result
from dcgs.preprocessing.path_result import Path
from dcgs.preprocessing.reductions import Sent

_MEASURES = ("local_loss", "mean_loss", "worst_loss", "disagreement", "gap")


@final
@dataclass(frozen=True, eq=False)
class FitResult:
    """The result of a fit: that of the run, and a model for each hosted agent."""

    config: FitConfig
    data: LoadedData
    graph: LabeledGraph
    result: Result
    samples: SampleFit | None = None
    ratings: LoadedRatings | None = None

    @property
    def agents(self) -> int:
        """The number of all agents."""
        return len(self.graph.graph)

    @property
    def models(self) -> Mapping[int, ModelFile]:
        """The models of the hosted agents."""
        return self.linear_models if self.ratings is None else self.ratings.models(self.result, self.about)

    @property
    def linear_models(self) -> dict[int, Model]:
        """The models of the hosted agents, for samples; empty for ratings."""
        problem, reading, about = self.config.problem, self.data.reading, self.about
        return {
            i: Model(model.coef, problem, reading, {"agent": i} | about, model.intercept)
            for i, model in ({} if self.samples is None else self.samples.models).items()
        }

    @property
    def about(self) -> dict[str, Any]:
        """What a model says of its fit."""
        result, gap = self.result, self.certified_gap
        about: dict[str, Any] = {
            "set": self.config.set_options(),
            "method": repr(self.config.method),
            "status": str(result.status),
            "certified": result.status.success,
            "gap": gap,
            "agents": self.agents,
            "rounds": result.rounds,
            "bytes": int(result.bytes.sum()),
            "seed": self.config.seed,
            "versions": result.about["versions"],
        }
        parts = [part.about() for part in (self.samples, self.ratings) if part is not None]
        return about | parts[0]

    @property
    def path(self) -> Path | None:
        """The path of the radii, if the radius was found."""
        return next((part.path for part in (self.samples, self.ratings) if part is not None), None)

    @property
    def sent(self) -> tuple[Sent, ...]:
        """What all agents sent beside the run."""
        return next((part.sent for part in (self.samples, self.ratings) if part is not None), ())

    @property
    def certified_gap(self) -> dict[str, float] | None:
        """The last gap that was certified, absolute and as a share of the decrease of the loss."""
        rows = self.result.certificates
        if len(rows) == 0:
            return None
        gap, decrease = float(rows[-1, 2]), float(rows[-1, 3])
        return {
            "gap": max(gap, 0.0),
            "decrease": decrease,
            **({"share": max(gap, 0.0) / decrease} if decrease > 0 else {}),
        }

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
            "set": config.set_options(),
            "graph": {"name": config.graph.text, "edges": self.graph.graph.number_of_edges()},
            "method": result.about["method"],
            "runtime": result.about["runtime"],
            "seed": config.seed,
            "versions": result.about["versions"],
            "notes": list(result.notes),
        }
        summary["gap"] = self.certified_gap
        if self.samples is not None:
            summary |= self.samples.summary()
        if self.ratings is not None:
            summary |= self.ratings.summary()
        if "checkpoint" in result.about:
            summary["checkpoint"] = result.about["checkpoint"]
        if self.graph.labels is not None:
            summary["graph"]["agents are"] = list(self.graph.labels)
        history = self.history()
        if history is not None:
            summary["measures"] = {name: history[name][-1] for name in _MEASURES}
        return summary

    def history(self) -> dict[str, list[float]] | None:
        """Return the columns of history.csv; None if nothing was measured."""
        if self.config.measure is None:
            return None
        return {name: column.tolist() for name, column in self.result.history.columns().items()}

    def _agent(self, i: int) -> dict[str, Any]:
        """Return the counters of an agent; its number of rows only if it is hosted."""
        counters = ("messages", "bytes", "lmo_calls", "projections", "computing", "waiting")
        agent: dict[str, Any] = {"agent": i, "model": model_name(i)}
        agent |= {name: getattr(self.result, name)[i].item() for name in counters}
        return agent | ({"rows": self.data.rows[i]} if i in self.data.rows else {})

    def _data(self) -> dict[str, Any]:
        """Return which files this process read, with their checksums, and how."""
        source = self.config.source
        files = dict.fromkeys(source.file(i) for i in self.data.objectives)
        data: dict[str, Any] = {"files": {str(file): sha256_of(file) for file in files}}
        data |= {name: value for name, value in self.data.reading.items() if name not in ("names", "columns")}
        return data if source.is_per_agent else data | {"split": source.split}
